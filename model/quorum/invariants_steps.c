#include "invariants.h"

#include "bounds.h"
#include "value.h"

/* ---- grants and values -------------------------------------------------- */

void hf_invariants_on_grant(struct hf_state *state, uint8_t c)
{
    uint8_t token = state->clients[c].token;

    if (token <= state->token_max)
        state->broken = TOKENS_RISE;
    else
        state->token_max = token;
    if (hf_bounds.reads > 0)
        state->granted |= (uint8_t)(1u << c);
}

void hf_invariants_on_value(struct hf_state *state, uint8_t value,
                            uint8_t before)
{
    bool is_newer = hf_value_follows(value, state->value_observed);
    bool is_older = hf_value_follows(state->value_observed, value);

    if (!hf_value_follows(value, before) || (!is_newer && !is_older))
        state->broken = VALUES_IN_ORDER;
    if (is_newer)
        state->value_observed = value;
    if (value == VALUE_P_R_P)
        state->broken = UPDATED_ONCE;
}

/* ---- reads -------------------------------------------------------------- */

static uint8_t valid_claims(const struct hf_state *state)
{
    unsigned valid = 0;

    for (unsigned c = 0; c < hf_bounds.claims; c++)
        if (is_valid(&state->clients[c]))
            valid |= 1u << c;
    return (uint8_t)valid;
}

static uint8_t ended_claims(const struct hf_state *state)
{
    unsigned ended = 0;

    for (unsigned c = 0; c < hf_bounds.claims; c++)
        if (state->clients[c].phase == ENDED)
            ended |= 1u << c;
    return (uint8_t)ended;
}

void hf_invariants_on_read_begin(struct hf_state *state)
{
    struct hf_reader *reader = &state->reader;

    reader->valid = valid_claims(state);
    reader->ended = ended_claims(state);
    reader->token_before = state->token_max;
    reader->known_before = state->granted | reader->read_as_held;
    reader->value_before = state->value_observed;
}

void hf_invariants_on_read_step(struct hf_state *state)
{
    state->reader.valid &= valid_claims(state);
}

/* The read answers "free". */
static void on_free(struct hf_state *state)
{
    struct hf_reader *reader = &state->reader;

    if (reader->valid != 0)
        state->broken = READ_FREE_IS_FREE;
    for (unsigned c = 0; c < hf_bounds.claims; c++) {
        const struct hf_client *client = &state->clients[c];

        if (!(reader->known_before >> c & 1) || client->lapsed > 0)
            continue;
        if (client->phase >= ENDING)
            reader->ended_then |= (uint8_t)(1u << c);
        else
            state->broken = READ_FREE_IS_FREE;
    }
}

static void on_held(struct hf_state *state, const struct hf_lease *held)
{
    struct hf_reader *reader = &state->reader;
    uint8_t bit = (uint8_t)(1u << held->claim);

    if (reader->ended & bit || held->token < reader->token_before ||
        reader->valid & ~bit)
        state->broken = READ_HELD_IS_HELD;
    if (reader->valid & bit && held->token != state->clients[held->claim].token)
        state->broken = READ_HELD_IS_HELD;
    if (reader->ended_then & bit)
        state->broken = FREE_STAYS_FREE;
    reader->read_as_held |= bit;
    if (held->claim == 0) /* updaters change the value of claim A */
        hf_invariants_on_value(state, held->value, reader->value_before);
}

void hf_invariants_on_read_end(struct hf_state *state,
                               const struct hf_lease *held)
{
    struct hf_reader *reader = &state->reader;

    if (held && held->claim == NOBODY)
        on_free(state);
    else if (held)
        on_held(state, held);
    reader->valid = 0;
    reader->ended = 0;
    reader->token_before = 0;
    reader->known_before = 0;
    reader->value_before = 0;
}
