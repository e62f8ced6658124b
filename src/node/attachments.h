/* attachments.h - which sessions have their client at this node.
 *
 * The leader is told, so that it pushes grants to the node that has the client,
 * and closes a session only if its client is nowhere. */
#ifndef HF_NODE_ATTACHMENTS_H
#define HF_NODE_ATTACHMENTS_H

#include "base/bytes.h"
#include "base/map.h"
#include "base/time.h"

struct hf_node;

/* A grant after a wait.
 *
 * `age_ms` is the time from when the leader applied the LOCK to when it
 * submitted the command that granted the key, on its own clock; so the lease
 * started at least that long after the LOCK was sent. -1: unknown, because the
 * leader has changed meanwhile; then a client renews first. */
struct hf_node_grant {
    uint64_t session;
    struct hf_nonce nonce;
    uint64_t token;
    uint32_t generation;
    int64_t age_ms;
};

struct hf_attachments {
    struct hf_map by_session;
    uint64_t pushed;   /* highest token that the leader has pushed */
    bool is_announced; /* the leader has the whole list */
};

/* The client of `session` is at the connection `conn` of this node. Replaces an
 * earlier attachment of the session at this node. */
enum hf_err hf_node_attach(struct hf_node *node, uint64_t session,
                           uint64_t conn);

/* The client is gone. Does nothing unless `session` is attached at `conn`. */
void hf_node_detach(struct hf_node *node, uint64_t session, uint64_t conn);

/* ---- For the other parts of the node ------------------------------------*/

void hf_attachments_init(struct hf_attachments *attachments);
void hf_attachments_fini(struct hf_attachments *attachments);

/* Send the whole list to the leader, if there is one that lacks it. */
void hf_attachments_announce(struct hf_node *node);

/* Report a grant to the client, if it is here. */
void hf_attachments_push(struct hf_node *node,
                         const struct hf_node_grant *grant);

#endif
