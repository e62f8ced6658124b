/* node_messages.h - what simulated nodes send to each other.
 *
 * A node sends a message after the term, the vote and the entries that the
 * message depends on are durable. Otherwise a crash could make the node forget
 * what it has said. */
#ifndef HF_TESTS_SIM_NODE_MESSAGES_H
#define HF_TESTS_SIM_NODE_MESSAGES_H

#include "sim/nodes.h"

struct node_messages {
    uint64_t checked;
    uint64_t votes; /* that were granted */
};

/* The node sends `bytes`, which are whole frames, to node number `to`. If
 * `is_first` is set, they begin with a HELLO. */
void node_messages_check(struct node_messages *messages,
                         const struct sim_node *node, unsigned to,
                         bool is_first, const void *bytes, size_t size);

#endif
