#include "explore.h"

#include "frontier.h"
#include "memory.h"
#include "steps.h"
#include "visited.h"

#include <stdlib.h>
#include <string.h>

struct explorer {
    struct hf_visited visited;
    struct hf_frontier frontier;
    struct hf_steps steps;
    uint32_t current; /* the number of the state that is being explored */
    uint32_t last;    /* the number of the state that violates an invariant */
    uint64_t step_count;
    enum hf_invariant violated;
};

static void on_explored(void *context, const struct hf_state *next,
                        const struct hf_step *step)
{
    struct explorer *explorer = context;

    (void)step;
    explorer->step_count++;
    if (explorer->violated != INVARIANT_NONE ||
        !hf_visited_add(&explorer->visited, hf_state_fingerprint(next),
                        explorer->current))
        return;
    explorer->violated = hf_invariants_check(next);
    explorer->last = explorer->visited.count - 1;
    hf_frontier_push(&explorer->frontier, next);
}

/* ---- traces ------------------------------------------------------------- */

/* The search for the step that leads to a state with a known fingerprint. */
struct search {
    uint64_t fingerprint;
    bool found;
    struct hf_state state;
    struct hf_step step;
};

static void on_searched(void *context, const struct hf_state *next,
                        const struct hf_step *step)
{
    struct search *search = context;

    if (search->found || hf_state_fingerprint(next) != search->fingerprint)
        return;
    search->found = true;
    search->state = *next;
    search->step = *step;
}

/* Take the step from `state` to the state numbered `number`, and print it. */
static void retrace_step(const struct hf_visited *visited, uint32_t number,
                         struct hf_state *state, FILE *trace)
{
    struct search search = {.fingerprint = visited->fingerprints[number]};
    struct hf_steps steps = {
        .from = state,
        .take = on_searched,
        .context = &search,
    };

    hf_steps_generate(&steps);
    *state = search.state;
    hf_step_print(&search.step, trace);
}

/* Only fingerprints are kept, so the states are computed again. Masters may
 * have other numbers than at first; that makes no difference. */
static unsigned print_trace(const struct hf_visited *visited, uint32_t last,
                            FILE *trace)
{
    struct hf_state state;
    uint32_t *path;
    unsigned count = 0;

    for (uint32_t at = last; at != 0; at = visited->parents[at])
        count++;
    if (!trace)
        return count;
    path = hf_memory_zeroed(count, sizeof *path);
    for (uint32_t at = last, i = count; at != 0; at = visited->parents[at])
        path[--i] = at;
    hf_state_init(&state);
    for (unsigned i = 0; i < count; i++) {
        fprintf(trace, "%3u  ", i + 1);
        retrace_step(visited, path[i], &state, trace);
    }
    free(path);
    return count;
}

/* ---- breadth first ------------------------------------------------------ */

struct hf_result hf_explore_all(uint32_t states_max, FILE *trace)
{
    struct explorer explorer = {.violated = INVARIANT_NONE};
    struct hf_result result = {.violated = INVARIANT_NONE};
    struct hf_state state;

    hf_visited_init(&explorer.visited);
    hf_frontier_init(&explorer.frontier);
    explorer.steps.from = &state;
    explorer.steps.take = on_explored;
    explorer.steps.context = &explorer;

    hf_state_init(&state);
    hf_visited_add(&explorer.visited, hf_state_fingerprint(&state), 0);
    hf_frontier_push(&explorer.frontier, &state);
    while (explorer.violated == INVARIANT_NONE &&
           hf_frontier_take(&explorer.frontier, &state)) {
        if (explorer.visited.count > states_max) {
            result.cut_off = true;
            break;
        }
        hf_steps_generate(&explorer.steps);
        explorer.current++;
    }

    result.violated = explorer.violated;
    result.states = explorer.visited.count;
    result.steps = explorer.step_count;
    result.bytes =
        explorer.frontier.bytes_max + hf_visited_bytes(&explorer.visited);
    if (result.violated != INVARIANT_NONE)
        result.trace_len = print_trace(&explorer.visited, explorer.last, trace);
    hf_frontier_fini(&explorer.frontier);
    hf_visited_fini(&explorer.visited);
    return result;
}
