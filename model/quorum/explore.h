/* explore.h - visit every state within the bounds.
 *
 * States are visited breadth first, so that the first violation has a shortest
 * trace. Masters are interchangeable: states that differ only in their order
 * count as one. */
#ifndef HF_MODEL_QUORUM_EXPLORE_H
#define HF_MODEL_QUORUM_EXPLORE_H

#include "invariants.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct hf_result {
    enum hf_invariant violated;
    bool cut_off; /* the limit of states was reached */
    uint64_t states;
    uint64_t steps;
    uint64_t walks;
    unsigned trace_len; /* steps up to the violation */
    size_t bytes;       /* of memory, at most */
};

/* Visit all states, at most `states_max`. If an invariant is violated, print
 * the steps that lead there to `trace`, unless that is NULL. */
struct hf_result hf_explore_all(uint32_t states_max, FILE *trace);

#endif
