/* status.h - what `status` has found out about a cluster. */
#ifndef CLI_STATUS_H
#define CLI_STATUS_H

#include "cluster.h"

#define STATUS_NODES_MAX 32 /* those given, and members that they report */

struct status_node {
    char address[CLUSTER_ADDRESS];
    char role[16];
    const char *why;  /* why it did not answer; NULL: it did */
    uint64_t id;      /* 0: unknown */
    bool is_reported; /* a node has reported it; the user has not given it */
    pid_t pid;        /* 0: unknown, or on another machine */

    /* Of a raft cluster. */
    uint64_t applied;
    uint64_t first, last; /* entries in its log */
    bool uncommitted_earlier_term;
    uint64_t lag; /* as its leader reports it */
    bool has_lag;

    /* Of a quorum. */
    uint64_t quiet_ms; /* it has restarted, and decides nothing for so long */
    uint64_t held;     /* keys with a lease at this master */
    uint64_t waiters;
    bool mark_failed; /* it cannot write its file, so it decides little */
};

struct status_view {
    enum cluster_mode mode;
    struct status_node nodes[STATUS_NODES_MAX];
    size_t count, answered;
    char cluster[CLUSTER_ID];
    uint64_t term, commit; /* the highest of all nodes */
    uint64_t leader_term;  /* of the leader that reported the lags; 0: none */
    uint64_t set;          /* the number of the newest set of masters */
};

/* Print the view as one JSON object, or as a table. */
void status_print_json(const struct status_view *view);
void status_print_text(const struct status_view *view);

#endif
