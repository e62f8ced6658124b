#include "walk.h"

#include "steps.h"

enum {
    WALK_MAX = 300,
};

struct walker {
    uint64_t random;
    struct hf_steps steps;
    unsigned choices; /* steps that can be taken from the current state */
    struct hf_state next;
    struct hf_step taken[WALK_MAX];
    unsigned len;
};

/* xorshift: the same walks on every machine. */
static uint64_t next_random(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random >> 11;
}

/* Choose each of the steps with the same probability. */
static void on_step(void *context, const struct hf_state *next,
                    const struct hf_step *step)
{
    struct walker *walker = context;

    walker->choices++;
    if (next_random(&walker->random) % walker->choices == 0) {
        walker->next = *next;
        walker->taken[walker->len] = *step;
    }
}

static enum hf_invariant walk_once(struct walker *walker)
{
    struct hf_state state;

    hf_state_init(&state);
    walker->len = 0;
    while (walker->len < WALK_MAX) {
        enum hf_invariant violated;

        walker->choices = 0;
        walker->steps.from = &state;
        hf_steps_generate(&walker->steps);
        if (walker->choices == 0)
            break;
        walker->len++;
        state = walker->next;
        violated = hf_invariants_check(&state);
        if (violated != INVARIANT_NONE)
            return violated;
    }
    return INVARIANT_NONE;
}

struct hf_result hf_walk_many(uint64_t walks, uint64_t seed, FILE *trace)
{
    static struct walker walker;
    struct hf_result result = {.violated = INVARIANT_NONE};

    walker.random = seed * 0x9e3779b97f4a7c15ull + 1;
    walker.steps.take = on_step;
    walker.steps.context = &walker;
    while (result.walks < walks && result.violated == INVARIANT_NONE) {
        result.violated = walk_once(&walker);
        result.walks++;
        result.steps += walker.len;
    }
    if (result.violated == INVARIANT_NONE)
        return result;
    result.trace_len = walker.len;
    for (unsigned i = 0; trace && i < walker.len; i++) {
        fprintf(trace, "%3u  ", i + 1);
        hf_step_print(&walker.taken[i], trace);
    }
    return result;
}
