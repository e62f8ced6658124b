/* hooks.h - what the client half of a node is told by the replication half.
 * They run inside hf_node_turn(), or while a node's message is received. They may
 * submit, abandon, attach and detach. */
#ifndef HF_NODE_HOOKS_H
#define HF_NODE_HOOKS_H

#include "node/attachments.h"

struct hf_node_hooks {
    /* A session that is attached at `conn` was granted a key after a wait. The
     * same grant may be reported twice. */
    void (*on_grant)(void *arg, uint64_t conn,
                     const struct hf_node_grant *grant);

    /* Commands were applied: watches may have something to read. */
    void (*on_applied)(void *arg);

    /* The store was replaced: iterations and history cursors are invalid. */
    void (*on_restored)(void *arg);

    /* Another leader; 0: none is known. */
    void (*on_leader)(void *arg, uint64_t leader);

    /* The last call of a turn: write what is left to the connections. */
    void (*on_turn)(void *arg);

    /* When on_turn() must be called again; HF_NEVER: whenever. */
    hf_time (*deadline)(void *arg);
};

/* Set the hooks, once, before the first turn. Members may be NULL. */
void hf_node_set_hooks(struct hf_node *node, const struct hf_node_hooks *hooks,
                       void *arg);

#endif
