/* node_checks.h - what must be true of simulated nodes.
 *
 * After every turn:
 *   - nodes apply equal entries at equal indexes, before and after restarts;
 *   - a term has at most one leader;
 *   - no node stops by itself.
 * At the end, nodes that have applied the same entries have equal tables. */
#ifndef HF_TESTS_SIM_NODE_CHECKS_H
#define HF_TESTS_SIM_NODE_CHECKS_H

#include "sim/nodes.h"

struct node_checks {
    uint64_t *entries; /* hashes of committed entries, by index */
    size_t capacity;
    uint64_t applied[SIM_NODES];
    uint64_t leader_of[4096]; /* by term */
    uint64_t leaders;
};

void node_checks_init(struct node_checks *checks);
void node_checks_fini(struct node_checks *checks);

void node_checks_on_start(struct node_checks *checks, struct sim_node *node);
void node_checks_on_turn(struct node_checks *checks, struct sim_node *node);

/* Check that all tables are equal. All nodes must run, and must have applied
 * the same entries. */
void node_checks_equal(struct node_checks *checks, struct sim_nodes *nodes);

#endif
