/* sessions.h - at the leader: which nodes have a client of each session, and
 * which sessions have been without a client for too long.
 *
 * The nodes report which sessions are attached to them. A client that moves is
 * at two nodes for a while, and the node that it has left may notice that late,
 * so a session may have several nodes. A session that has none is closed after
 * HF_NODE_DETACHED_MS. A new leader does not know how long a session has had no
 * client, so it measures that time from when it becomes the leader. */
#ifndef HF_NODE_SESSIONS_H
#define HF_NODE_SESSIONS_H

#include "base/heap.h"
#include "base/map.h"
#include "core/command.h"

struct hf_node;

#define HF_SESSIONS_CLOSE_MAX 64 /* CLOSEs proposed in one turn */

struct hf_sessions {
    struct hf_map by_id;
    struct hf_heap detached; /* sessions without a client, by the time when they
                                are closed */
};

void hf_sessions_init(struct hf_sessions *sessions);
void hf_sessions_fini(struct hf_sessions *sessions);

/* The node has become the leader: all sessions of the table have no client
 * until their node reports it. Or it has stopped leading: forget all
 * sessions. */
void hf_sessions_reset(struct hf_node *node);

/* A client of session `id` is at the node `origin`. Does nothing unless this
 * node leads. */
void hf_sessions_attach(struct hf_node *node, uint64_t origin, uint64_t id);

/* The client of session `id` has left the node `origin`. */
void hf_sessions_detach(struct hf_node *node, uint64_t origin, uint64_t id);

/* The node `origin` has disconnected or was restarted, or is about to report
 * all its sessions: forget that it has clients. */
void hf_sessions_drop_origin(struct hf_node *node, uint64_t origin);

/* A command was applied: an OPEN adds a session, and a CLOSE removes it. */
void hf_sessions_applied(struct hf_node *node, const struct hf_command *command,
                         const struct hf_result *result);

/* Returns the nodes that have a client of session `id`: bit i stands for
 * members[i]. 0: none, or unknown. */
uint32_t hf_sessions_origins(const struct hf_node *node, uint64_t id);

/* Fill in the CLOSE of a session that has had no client for too long. Returns
 * false if there is none. The session is due again after HF_NODE_DETACHED_MS,
 * if it still exists then, because the CLOSE may be lost. */
bool hf_sessions_take_due(struct hf_node *node, struct hf_command *close);

hf_time hf_sessions_deadline(const struct hf_node *node);

#endif
