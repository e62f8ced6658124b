/* node_faults.h - what goes wrong in a simulation of nodes.
 *
 * Faults happen in steps. The random numbers of a step depend only on the seed
 * and the number of the step, so that leaving out one kind of fault (see
 * seeds.h) does not change when the others happen. */
#ifndef HF_TESTS_SIM_NODE_FAULTS_H
#define HF_TESTS_SIM_NODE_FAULTS_H

#include "sim/nodes.h"

/* The kinds of faults, each with the name of its counter. The AIMED ones hit
 * the leader at a moment in the life of a command: before its flush, during its
 * flush, when it is committed but its answer is lost, and after its answer was
 * sent. Those from APP_CUT on need applications (apps.h). */
#define NODE_FAULTS(X)                                                         \
    X(DELAY, "delays")                                                         \
    X(DISORDER, "messages lost, repeated or overtaken")                        \
    X(CUT, "cuts")                                                             \
    X(ONE_WAY_CUT, "one-way cuts")                                             \
    X(RESET, "resets")                                                         \
    X(CRASH, "crashes")                                                        \
    X(CRASH_ALL, "crashes of all nodes")                                       \
    X(CRASH_FLUSH, "crashes during a flush")                                   \
    X(PAUSE, "pauses")                                                         \
    X(SLOW_DISK, "slow disks")                                                 \
    X(FULL_DISK, "full disks")                                                 \
    X(CLOCKS, "drifting clocks")                                               \
    X(LEAVE, "shutdowns")                                                      \
    X(EIO, "failing disks")                                                    \
    X(START, "failing disks of nodes that start")                              \
    X(VERSION, "version raises")                                               \
    X(WALL_CLOCK, "jumps of the wall clock")                                   \
    X(AIMED_SUBMIT, "leaders hit after a submit")                              \
    X(AIMED_FLUSH, "leaders hit during a flush")                               \
    X(AIMED_COMMIT, "leaders hit before an answer")                            \
    X(AIMED_ANSWER, "leaders hit after an answer")                             \
    X(APP_CUT, "cuts of applications")                                         \
    X(APP_RESET, "resets of applications")                                     \
    X(APP_PAUSE, "pauses of applications")                                     \
    X(APP_DEATH, "deaths of applications")                                     \
    X(SESSION_END, "expired sessions")

enum node_fault {
#define NODE_FAULT(name, text) NODE_FAULT_##name,
    NODE_FAULTS(NODE_FAULT)
#undef NODE_FAULT
    NODE_FAULT_COUNT
};

#define NODE_FAULT_BIT(name) (UINT32_C(1) << NODE_FAULT_##name)
#define NODE_FAULTS_ALL ((UINT32_C(1) << NODE_FAULT_COUNT) - 1)

extern const char *const node_fault_names[NODE_FAULT_COUNT];

/* Which faults a simulation may have, a set of NODE_FAULT_BIT()s, and how wrong
 * the rates of clocks may be. */
struct node_faults_plan {
    uint32_t faults;
    int32_t clock_ppm;
    bool swarm;        /* each seed draws which of `faults` it has */
    bool keeps_leader; /* they depose no leader */
};

struct node_faults;

struct node_faults_restart {
    struct sim_event event;
    struct node_faults *faults;
    unsigned number;
};

/* A kind of fault that a step can choose. */
struct node_faults_action {
    enum node_fault fault;
    void (*run)(struct node_faults *faults);
};

struct node_faults {
    struct sim_nodes *nodes;
    uint32_t mask; /* kinds of faults that may happen */
    int32_t clock_ppm;
    uint64_t seed, step;
    uint32_t pace_ms;             /* the longest time between two steps */
    struct hf_random random;      /* of this step */
    struct hf_random turn_random; /* of what happens after turns */
    struct sim_event next, heal;
    struct node_faults_restart restarts[SIM_NODES];
    bool is_ending;
    hf_time refused_at;       /* when a connection was last refused */
    bool eio[SIM_NODES];      /* the disk is going to fail */
    struct sim_node *leaving; /* node that is shutting down, or NULL */
    enum node_fault aim;      /* AIMED_...; 0: none */
    bool aim_cuts;            /* cut the leader off instead of crashing it: */
    bool aim_out, aim_in;     /* what it sends, what it receives, or both */
    uint64_t aimed_commit;    /* commit index of the leader at its last turn */
    uint64_t aimed_last;      /* its last log index then */
    uint64_t happened[NODE_FAULT_COUNT];

    /* More kinds of faults; NULL: none. */
    const struct node_faults_action *more;
    unsigned more_count;
    /* Called to lose what the leader has just sent to clients; may be NULL. */
    void (*lose_answers)(void *arg, struct sim_node *node);
    void *arg; /* for `more` and `lose_answers` */
};

/* Only faults in `allowed` happen. */
void node_faults_init(struct node_faults *faults, struct sim_nodes *nodes,
                      const struct node_faults_plan *plan, uint32_t allowed,
                      uint64_t seed);

/* Call this after each turn of a node, before node_checks_on_turn(). It may
 * crash the node, or all nodes. If the node has shut down, or has stopped
 * because its disk failed, it ends the node and restarts it later. Returns true
 * if the node is down now. */
bool node_faults_on_turn(struct node_faults *faults, struct sim_node *node);

/* End all faults except drifting clocks, and start all nodes. */
void node_faults_end(struct node_faults *faults);

/* A random number of this step. */
uint32_t node_faults_below(struct node_faults *faults, uint32_t bound);

/* A random rate error, in parts per million. */
int32_t node_faults_draw_drift(struct node_faults *faults);

#endif
