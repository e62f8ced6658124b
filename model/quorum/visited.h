/* visited.h - the states that were visited, by their fingerprints.
 *
 * States are numbered in the order in which they were added. Each remembers the
 * state from which it was reached, so that a trace can be found. 20 bytes per
 * state. Two states with the same fingerprint are taken for one: with n states
 * the chance is about n * n / 2^65, which is 1 in 30,000 for 33 million. */
#ifndef HF_MODEL_QUORUM_VISITED_H
#define HF_MODEL_QUORUM_VISITED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hf_visited {
    uint64_t *fingerprints; /* by number */
    uint32_t *parents;      /* by number */
    uint32_t count;
    uint32_t room;
    uint32_t *slots; /* a hash table of numbers + 1; 0: empty */
    size_t slot_count;
};

void hf_visited_init(struct hf_visited *visited);
void hf_visited_fini(struct hf_visited *visited);

/* Add a state. Returns false if it is known already. Ends the program if there
 * is no memory. */
bool hf_visited_add(struct hf_visited *visited, uint64_t fingerprint,
                    uint32_t parent);

/* The memory that it uses. */
size_t hf_visited_bytes(const struct hf_visited *visited);

#endif
