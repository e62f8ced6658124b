/* node_durable.h - what each simulated node has on its disk, whether it runs or
 * not.
 *
 * An entry, a term and a vote that the log of a node has reported as durable
 * are still there when the node starts again. */
#ifndef HF_TESTS_SIM_NODE_DURABLE_H
#define HF_TESTS_SIM_NODE_DURABLE_H

#include "raft/entries.h"
#include "sim/nodes.h"

/* The durable state of one node. */
struct node_durable {
    uint64_t *entries; /* hashes, by index */
    size_t capacity;
    uint64_t last;     /* index of the last entry */
    uint64_t snapshot; /* entries up to this index are in a snapshot */
    uint64_t term, vote;
};

/* A zeroed struct has nothing. */
void node_durable_fini(struct node_durable *durable);

/* Update `durable` from its node, which runs. Call this after every turn, and
 * before the node goes down. */
void node_durable_note(struct node_durable *durable,
                       const struct sim_node *node);

/* Check that the node, which has just started, has all that was durable.
 * `committed` is the hash of the last entry in its snapshot, as other nodes
 * have applied it. */
void node_durable_on_start(struct node_durable *durable,
                           const struct sim_node *node, uint64_t committed);

/* Returns true if the node has entry `index`, whose hash is `hash`. */
bool node_durable_has(const struct node_durable *durable, uint64_t index,
                      uint64_t hash);

/* A hash of term, kind and data; never 0. */
uint64_t node_durable_hash(const struct hf_entry *entry);

#endif
