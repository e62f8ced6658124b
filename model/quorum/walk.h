/* walk.h - random walks, for bounds that are too large to visit every state. */
#ifndef HF_MODEL_QUORUM_WALK_H
#define HF_MODEL_QUORUM_WALK_H

#include "explore.h"

/* Take random steps from the first state, until none is left or for WALK_MAX
 * steps, and begin again, `walks` times; stop at a violation, and print the
 * steps of that walk to `trace`, unless that is NULL. The seed decides all. */
struct hf_result hf_walk_many(uint64_t walks, uint64_t seed, FILE *trace);

#endif
