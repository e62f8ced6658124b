/* hooks.h - callbacks of the replication half of a node to its client half.
 *
 * A hook runs inside hf_node_turn() or another call of the shell into the node.
 * It may call hf_node_submit(), hf_node_abandon(), hf_node_attach() and
 * hf_node_detach(). */
#ifndef HF_NODE_HOOKS_H
#define HF_NODE_HOOKS_H

#include "node/attachments.h"

struct hf_node_hooks {
    /* A session that is attached at the connection `conn` was granted a key
     * after a wait. The same grant may be reported twice. */
    void (*on_grant)(void *arg, uint64_t conn,
                     const struct hf_node_grant *grant);

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
