#include "value.h"

static unsigned value_number(enum hf_value value)
{
    switch (value) {
    case VALUE_P:
    case VALUE_P_R_P:
        return 1;
    case VALUE_Q:
        return 2;
    default:
        return 0;
    }
}

bool hf_value_matches(enum hf_value value, enum hf_update update)
{
    return value_number(value) == (update == UPDATE_R ? 1 : 0);
}

enum hf_value hf_value_apply(enum hf_value value, enum hf_update update)
{
    switch (update) {
    case UPDATE_P:
        return value == VALUE_FIRST ? VALUE_P : VALUE_P_R_P;
    case UPDATE_Q:
        return VALUE_Q;
    case UPDATE_R:
        return VALUE_P_R;
    default:
        return value;
    }
}

/* The position in the list of P, R, P; VALUE_Q is in another list. */
static unsigned value_len(enum hf_value value)
{
    switch (value) {
    case VALUE_P:
    case VALUE_Q:
        return 1;
    case VALUE_P_R:
        return 2;
    case VALUE_P_R_P:
        return 3;
    default:
        return 0;
    }
}

bool hf_value_follows(enum hf_value newer, enum hf_value older)
{
    if (newer == older || older == VALUE_FIRST)
        return true;
    return newer != VALUE_Q && older != VALUE_Q &&
           value_len(newer) > value_len(older);
}
