/* node_sessions.h - which sessions the committed entries leave open.
 *
 * A leader closes a session with a CLOSE, which names the highest sequence that
 * the leader knew. It names no sequence that the session has not used, and ends
 * the session unless a later command came first. Nothing else ends a
 * session. */
#ifndef HF_TESTS_SIM_NODE_SESSIONS_H
#define HF_TESTS_SIM_NODE_SESSIONS_H

#include "raft/entries.h"
#include "sim/nodes.h"

struct node_session {
    uint64_t highest; /* sequence of its commands */
    bool is_closed;
};

struct node_sessions {
    struct node_session *list; /* by id */
    size_t capacity;
    uint64_t index;  /* of the last entry */
    uint64_t closed; /* by CLOSEs */
    uint64_t saved;  /* CLOSEs that came too late */
};

/* A zeroed struct knows no entries. */
void node_sessions_fini(struct node_sessions *sessions);

/* Add the committed entry `index`, which follows the last one. */
void node_sessions_add(struct node_sessions *sessions, uint64_t index,
                       const struct hf_entry *entry);

/* Check the sessions of a node that has applied all these entries. */
void node_sessions_check(struct node_sessions *sessions,
                         const struct sim_node *node);

#endif
