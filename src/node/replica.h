/* replica.h - the lock table of a node, driven by the log.
 *
 * All replicas apply the same commands in the same order. Each counts leases
 * on its own clock, from when it applied the grant. */
#ifndef HF_NODE_REPLICA_H
#define HF_NODE_REPLICA_H

#include "core/store.h"

struct hf_node_grant;

/* When this node applied a LOCK that waits. */
struct hf_note {
    struct hf_nonce nonce;
    hf_time applied;
};

/* A cache: a note that was overwritten costs a client one renewal. */
#define HF_NOTES 16384

struct hf_node_replica {
    struct hf_store *store;
    uint64_t applied;       /* index of the last entry that was applied */
    struct hf_dlist grants; /* waiters that the last command has granted */
    struct hf_note *notes;  /* by nonce */
    struct hf_seed seed;
    size_t history_bytes;
    uint64_t commands; /* applied, for statistics */
};

enum hf_err hf_node_replica_init(struct hf_node_replica *replica,
                                 const struct hf_seed *seed,
                                 size_t history_bytes);
void hf_node_replica_fini(struct hf_node_replica *replica);

/* A new, empty store that replica->store can become; NULL: no memory. */
struct hf_store *hf_node_replica_new_store(struct hf_node_replica *replica);
void hf_node_replica_free_store(struct hf_store *store);

/* The state is that of a snapshot at `index`. Takes `store`, and gives the store
 * that it replaces. */
struct hf_store *hf_node_replica_replace(struct hf_node_replica *replica,
                                         struct hf_store *store,
                                         uint64_t index);

/* Apply one command. HF_ENOMEM: nothing has changed, and the node must stop. */
enum hf_err hf_node_replica_apply(struct hf_node_replica *replica, hf_time now,
                                  const struct hf_command *command,
                                  struct hf_result *result);

/* Remove a grant of the last command. False if there is none. `*noted` is when
 * its LOCK was applied, or HF_NEVER. */
bool hf_node_replica_take_grant(struct hf_node_replica *replica,
                                struct hf_node_grant *grant, hf_time *noted);

/* Take a lease that is due: fill in its EXPIRE. It is not returned again until
 * hf_node_replica_reset_due(), or until it is due again. */
bool hf_node_replica_take_due(struct hf_node_replica *replica, hf_time now,
                              struct hf_command *expire);
void hf_node_replica_reset_due(struct hf_node_replica *replica);
hf_time hf_node_replica_deadline(const struct hf_node_replica *replica);

#endif
