/* cluster.h - a simulated cluster: nodes, clients and faults, from one seed.
 *
 * Every random decision comes from `cluster->random`, so that a seed reproduces
 * a run. Failures are assertions. */
#ifndef HF_TESTS_SIM_CLUSTER_H
#define HF_TESTS_SIM_CLUSTER_H

#include "sim/node.h"

/* The size of the cluster, and the kinds of faults that a seed may draw. */
struct sim_plan {
    unsigned nodes;
    bool swarm;     /* each kind below is left out of some seeds */
    bool network;   /* loss, delay, repeats, reordering */
    bool cuts;      /* of links, in one direction or both */
    bool crashes;   /* which lose a part of what was not flushed */
    bool stops;     /* as by SIGSTOP */
    bool clocks;    /* which run up to 5 percent fast or slow */
    bool slow_disk; /* flushes of up to a second */
    bool snapshots;
    bool transfers;
};

struct sim_cluster {
    struct sim_plan plan; /* of this seed */
    struct sim_schedule schedule;
    struct hf_random random;
    struct sim_network network;
    struct sim_checks checks;
    struct sim_node nodes[SIM_NODES_MAX];
    unsigned count;
    uint64_t commands; /* submitted so far */
    uint64_t trace;    /* hash of all frames that arrived */
    bool verbose;
};

/* Start all nodes. Apart from fast and slow clocks, there are no faults before
 * sim_cluster_torture(). */
void sim_cluster_init(struct sim_cluster *cluster, uint64_t seed,
                      const struct sim_plan *plan);
void sim_cluster_fini(struct sim_cluster *cluster);

/* Let time pass without clients and without new faults. */
void sim_cluster_run(struct sim_cluster *cluster, uint32_t ms);

/* Let time pass while clients act and faults happen. */
void sim_cluster_torture(struct sim_cluster *cluster, uint32_t ms);

/* End all faults except fast and slow clocks. Afterwards the first `dead` nodes
 * are down, and all others run. */
void sim_cluster_heal(struct sim_cluster *cluster, unsigned dead);

/* Check that the running nodes commit and apply a new entry, and that a read is
 * answered. */
void sim_cluster_check_progress(struct sim_cluster *cluster);

/* The running node that leads in the highest term, or NULL. */
struct sim_node *sim_cluster_leader(struct sim_cluster *cluster);

/* Let time pass until a leader can answer reads, and return it. */
struct sim_node *sim_cluster_await_leader(struct sim_cluster *cluster);

/* Submit one command to `node`. Returns what sim_node_submit() returns. */
enum hf_err sim_cluster_submit(struct sim_cluster *cluster,
                               struct sim_node *node);

#endif
