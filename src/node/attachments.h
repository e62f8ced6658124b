/* attachments.h - which sessions have their client at this node.
 *
 * The node reports them to the leader, so that the leader sends grants to the
 * node that has the client, and closes a session only if its client is at no
 * node. */
#ifndef HF_NODE_ATTACHMENTS_H
#define HF_NODE_ATTACHMENTS_H

#include "base/bytes.h"
#include "base/map.h"
#include "base/time.h"

struct hf_node;

/* A grant after a wait.
 *
 * `age_ms` is the time from when the leader applied the LOCK to when it
 * submitted the command that granted the key, on the leader's clock; so the
 * lease started at least that long after the LOCK was sent. -1: unknown, for
 * example because an earlier leader submitted that command, or because a
 * follower reports the grant. Then the client renews first. */
struct hf_node_grant {
    uint64_t session;
    struct hf_nonce nonce;
    uint64_t token;
    int64_t age_ms;
};

struct hf_attachments {
    struct hf_map by_session;
    uint64_t pushed;   /* highest token of the grants that leaders have sent */
    bool is_announced; /* the leader knows all of `by_session` */
};

/* The client of `session` is at the connection `conn` of this node. Replaces an
 * earlier attachment of the session at this node. Can fail with HF_ENOMEM. */
enum hf_err hf_attachments_add(struct hf_node *node, uint64_t session,
                               uint64_t conn);

/* The client of `session` has left the connection `conn`. Does nothing if the
 * session is attached at another connection, or not at all. */
void hf_attachments_remove(struct hf_node *node, uint64_t session,
                           uint64_t conn);

/* ---- For the other parts of the node ------------------------------------*/

void hf_attachments_init(struct hf_attachments *attachments);
void hf_attachments_fini(struct hf_attachments *attachments);

/* Report all attachments to the leader, unless no leader can be reached or it
 * knows them already. */
void hf_attachments_announce(struct hf_node *node);

/* Call the hook on_grant() if the session of `grant` is attached at this
 * node. */
void hf_attachments_push(struct hf_node *node,
                         const struct hf_node_grant *grant);

/* An operator has broken the lock `token` of `session`: call the hook
 * on_forced() if the session is attached at this node. */
void hf_attachments_push_forced(struct hf_node *node, uint64_t session,
                                uint64_t token);

#endif
