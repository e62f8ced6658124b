/* replica.h - the lock table of a node, driven by the log.
 *
 * All replicas apply the same commands in the same order. Each replica measures
 * leases by the clock of its node, from when it applied the grant or the
 * last RENEW, or restored a snapshot. */
#ifndef HF_NODE_REPLICA_H
#define HF_NODE_REPLICA_H

#include "core/store.h"

struct hf_node_grant;

/* When this node applied a LOCK that waits. */
struct hf_note {
    struct hf_nonce nonce;
    hf_time applied;
};

/* The number of notes. They are a cache: if a note was overwritten, the client
 * renews once more. */
#define HF_NOTES 16384

struct hf_node_replica {
    struct hf_store *store;
    uint64_t applied;       /* index of the last entry that was applied */
    struct hf_dlist grants; /* waiters that the last command has granted */
    struct hf_note *notes;  /* by the hash of the nonce */
    struct hf_seed seed;
    size_t history_bytes;
    uint64_t commands; /* how many were applied */
};

enum hf_err hf_node_replica_init(struct hf_node_replica *replica,
                                 const struct hf_seed *seed,
                                 size_t history_bytes);
void hf_node_replica_fini(struct hf_node_replica *replica);

/* Returns a new, empty store for hf_node_replica_replace(); NULL if memory is
 * short. */
struct hf_store *hf_node_replica_new_store(struct hf_node_replica *replica);
void hf_node_replica_free_store(struct hf_store *store);

/* Replace the store by `store`, which was restored from a snapshot at `index`.
 * The replica owns `store` now; returns the old store, which the caller
 * frees. */
struct hf_store *hf_node_replica_replace(struct hf_node_replica *replica,
                                         struct hf_store *store,
                                         uint64_t index);

/* Apply one command. HF_ENOMEM: nothing has changed, and the node must stop. */
enum hf_err hf_node_replica_apply(struct hf_node_replica *replica, hf_time now,
                                  const struct hf_command *command,
                                  struct hf_result *result);

/* Remove a grant that the last command made, and fill in `*grant`. `*noted` is
 * when its LOCK was applied here, or HF_NEVER if that is unknown. Returns false
 * if no grant is left. */
bool hf_node_replica_take_grant(struct hf_node_replica *replica,
                                struct hf_node_grant *grant, hf_time *noted);

/* Take a lease that is due at `now`, and fill in its EXPIRE command. Returns
 * false if there is none. A lease is not taken again until it is renewed and
 * due again, or until hf_node_replica_reset_due(), for EXPIREs that may be
 * lost. */
bool hf_node_replica_take_due(struct hf_node_replica *replica, hf_time now,
                              struct hf_command *expire);
void hf_node_replica_reset_due(struct hf_node_replica *replica);
hf_time hf_node_replica_deadline(const struct hf_node_replica *replica);

#endif
