/* event.c - the names of events, which clients and nodes show. */
#include "holdfast.h"

const char *hf_event_name(enum hf_event_kind kind)
{
    switch (kind) {
#define NAME(name, text, bit)                                                  \
    case HF_EVENT_##name:                                                      \
        return text;
        HF_EVENTS(NAME)
#undef NAME
    case HF_EVENT_ANY:
        break;
    }
    return "?";
}
