/* sessions.h - at the leader: where the clients of sessions are, and which
 * sessions have been without one for too long.
 *
 * The other nodes report which sessions are attached to them. A session without
 * a client is closed after HF_NODE_DETACHED_MS; a new leader counts that from
 * when it took office, because it cannot know better. */
#ifndef HF_NODE_SESSIONS_H
#define HF_NODE_SESSIONS_H

#include "base/heap.h"
#include "base/map.h"
#include "core/command.h"

struct hf_node;

#define HF_SESSIONS_CLOSE_MAX 64 /* CLOSEs proposed in one turn */

struct hf_sessions {
    struct hf_map by_id;
    struct hf_heap detached; /* by the time when they are closed */
};

void hf_sessions_init(struct hf_sessions *sessions);
void hf_sessions_fini(struct hf_sessions *sessions);

/* The node leads, or does not lead any more. */
void hf_sessions_reset(struct hf_node *node);

/* The client of a session is at the node `origin`, or has gone from it. */
void hf_sessions_attach(struct hf_node *node, uint64_t origin, uint64_t id);
void hf_sessions_detach(struct hf_node *node, uint64_t origin, uint64_t id);

/* The node `origin` is not connected any more: all its clients are gone. */
void hf_sessions_drop_origin(struct hf_node *node, uint64_t origin);

/* A command was applied. */
void hf_sessions_applied(struct hf_node *node, const struct hf_command *command,
                         const struct hf_result *result);

/* The node that has the client of a session; 0: none, or unknown. */
uint64_t hf_sessions_origin(const struct hf_node *node, uint64_t id);

/* Fill in the CLOSE of a session that is due. The session is due again later,
 * if it still exists then. */
bool hf_sessions_take_due(struct hf_node *node, struct hf_command *close);

hf_time hf_sessions_deadline(const struct hf_node *node);

#endif
