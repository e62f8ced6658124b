/* node_faults.h - what goes wrong in a simulation of nodes. */
#ifndef HF_TESTS_SIM_NODE_FAULTS_H
#define HF_TESTS_SIM_NODE_FAULTS_H

#include "sim/nodes.h"

/* Which faults a simulation may have; a seed chooses among them. */
struct node_faults_plan {
    bool network, disorder, cuts, crashes, pauses, slow_disks, full_disks,
        clocks, leaves;
};

struct node_faults;

struct node_faults_restart {
    struct sim_event event;
    struct node_faults *faults;
    unsigned number;
};

struct node_faults {
    struct sim_nodes *nodes;
    const struct node_faults_plan *plan;
    struct hf_random random;
    struct sim_event next, heal;
    struct node_faults_restart restarts[SIM_NODES];
    bool is_ending;
    uint64_t crashes, cuts, pauses;
    struct sim_node *leaving; /* node that is shutting down, or NULL */
};

void node_faults_init(struct node_faults *faults, struct sim_nodes *nodes,
                      const struct node_faults_plan *plan, uint64_t seed);

/* Call this after each turn of a node. It may crash the node, or all nodes,
 * during a flush of the node. If the node has shut down, it ends the node and
 * restarts it later. */
void node_faults_on_turn(struct node_faults *faults, struct sim_node *node);

/* End all faults except drifting clocks, and start all nodes. */
void node_faults_end(struct node_faults *faults);

#endif
