/* hooks.h - callbacks of the replication half of a node to its client half.
 *
 * A hook runs inside hf_node_turn() or another call of the shell into the node.
 * It may call hf_requests_submit(), hf_requests_abandon(), hf_attachments_add()
 * and hf_attachments_remove(). */
#ifndef HF_NODE_HOOKS_H
#define HF_NODE_HOOKS_H

#include "node/attachments.h"

struct hf_node_hooks {
    /* A session that is attached at the connection `conn` was granted a key
     * after a wait. The same grant may be reported more than once. */
    void (*on_grant)(void *arg, uint64_t conn,
                     const struct hf_node_grant *grant);

    /* An operator has broken the lock `token`, which a session that is attached
     * at the connection `conn` holds, or held until now. Every node applies the
     * FORCE, so this needs no message from the leader. */
    void (*on_forced)(void *arg, uint64_t conn, uint64_t token);

    /* Entries were applied: watches may have events to send. */
    void (*on_applied)(void *arg);

    /* A snapshot has replaced the store: iterations and history cursors are
     * invalid. */
    void (*on_restored)(void *arg);

    /* The leader is now `leader`, which may be this node; 0: none is known. */
    void (*on_leader)(void *arg, uint64_t leader);

    /* The last hook of a turn: send the output that has collected for
     * clients. */
    void (*on_turn)(void *arg);

    /* Returns when the client half needs the next turn; HF_NEVER if it needs
     * none. */
    hf_time (*deadline)(void *arg);
};

/* Set the hooks, once, before the first turn. Members may be NULL. `arg` is
 * passed to each hook. */
void hf_node_set_hooks(struct hf_node *node, const struct hf_node_hooks *hooks,
                       void *arg);

#endif
