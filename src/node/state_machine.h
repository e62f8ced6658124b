/* state_machine.h - the lock table of a node, driven by the log.
 *
 * The state machines of all nodes apply the same commands in the same order.
 * Each of them measures leases by the clock of its node, from when it applied
 * the grant or the last RENEW, or restored a snapshot. */
#ifndef HF_NODE_STATE_MACHINE_H
#define HF_NODE_STATE_MACHINE_H

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

struct hf_state_machine {
    struct hf_store *store;
    uint64_t applied;        /* index of the last entry that was applied */
    struct hf_dlist grants;  /* waiters that the last command has granted */
    bool has_granted;        /* the last command, a LOCK, was granted at once */
    uint64_t forced_session; /* whose lock the last command has broken; 0: it
                                has broken none */
    uint64_t forced_token;
    struct hf_note *notes; /* by the hash of the nonce */
    struct hf_seed seed;
    size_t history_bytes;
    uint64_t commands; /* how many were applied */
};

enum hf_err hf_state_machine_init(struct hf_state_machine *machine,
                                  const struct hf_seed *seed,
                                  size_t history_bytes);
void hf_state_machine_fini(struct hf_state_machine *machine);

/* Returns a new, empty store for hf_state_machine_replace(); NULL if memory is
 * short. */
struct hf_store *hf_state_machine_new_store(struct hf_state_machine *machine);
void hf_state_machine_free_store(struct hf_store *store);

/* Replace the store by `store`, which was restored from a snapshot at `index`.
 * The state machine owns `store` now; returns the old store, which the caller
 * frees. */
struct hf_store *hf_state_machine_replace(struct hf_state_machine *machine,
                                          struct hf_store *store,
                                          uint64_t index);

/* Apply one command. HF_ENOMEM: nothing has changed, and the node must stop. */
enum hf_err hf_state_machine_apply(struct hf_state_machine *machine,
                                   hf_time now,
                                   const struct hf_command *command,
                                   struct hf_result *result);

/* Remove a grant that the last command made, and fill in `*grant`. `*noted` is
 * when its LOCK was applied here, or HF_NEVER if that is unknown. Returns false
 * if no grant is left. */
bool hf_state_machine_take_grant(struct hf_state_machine *machine,
                                 struct hf_node_grant *grant, hf_time *noted);

/* Take a lease that is due at `now`, and fill in its EXPIRE command. Returns
 * false if there is none. A lease is not taken again until it is renewed and
 * due again, or until hf_state_machine_reset_due(), for EXPIREs that may be
 * lost. */
bool hf_state_machine_take_due(struct hf_state_machine *machine, hf_time now,
                               struct hf_command *expire);
void hf_state_machine_reset_due(struct hf_state_machine *machine);
hf_time hf_state_machine_deadline(const struct hf_state_machine *machine);

#endif
