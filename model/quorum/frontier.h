/* frontier.h - the states whose steps are still to be explored: a queue.
 *
 * A state is kept without its unused messages. The queue grows by blocks, and
 * frees each block when its last state has been taken. */
#ifndef HF_MODEL_QUORUM_FRONTIER_H
#define HF_MODEL_QUORUM_FRONTIER_H

#include "state.h"

#include <stddef.h>

struct hf_frontier_block;

struct hf_frontier {
    struct hf_frontier_block *first;
    struct hf_frontier_block *last;
    size_t bytes; /* in blocks */
    size_t bytes_max;
};

void hf_frontier_init(struct hf_frontier *frontier);
void hf_frontier_fini(struct hf_frontier *frontier);

void hf_frontier_push(struct hf_frontier *frontier,
                      const struct hf_state *state);

/* Remove the first state. Returns false if there is none. */
bool hf_frontier_take(struct hf_frontier *frontier, struct hf_state *state);

#endif
