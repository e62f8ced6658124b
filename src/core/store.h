/* store.h - a lock table with its leases and its history.
 *
 * Pure: the driver passes `now` with each command. Before the driver runs a
 * command, it runs the EXPIRE commands that hf_store_take_due() returns; after
 * that, the store is up to date at `now`. A driver that replicates its commands
 * sends the EXPIREs, and runs them when they are committed.
 *
 * Always true: a lease starts when the command that granted or renewed it is
 * run, never expires early, and expires by an EXPIRE command, not by time
 * alone. */
#ifndef HF_CORE_STORE_H
#define HF_CORE_STORE_H

#include "core/history.h"
#include "core/lease.h"
#include "core/table.h"

struct hf_store {
    struct hf_table table;
    struct hf_leases leases;
    struct hf_history history;
    hf_time now;              /* the time of the running command */
    struct hf_hold *touched;  /* granted, renewed or queued for by it */
    hf_table_event_fn *event; /* the driver's, called after the store's */
    void *arg;
};

/* Keep events for watches in `history_bytes` (history.h), from the start on; 0:
 * keep none until hf_store_enable_history(). Can fail with HF_ENOMEM, but not
 * with 0. */
enum hf_err hf_store_init(struct hf_store *store, const struct hf_seed *seed,
                          size_t history_bytes, hf_table_event_fn *event,
                          void *arg);
void hf_store_fini(struct hf_store *store);

/* Remove all sessions and locks. The next token, session and event are the
 * first. */
void hf_store_clear(struct hf_store *store);

/* Replace the contents by a snapshot (core/snapshot). It has no instants, so
 * every lease starts again at `now`, with the longest lease since its grant, and
 * no lease ends early. `since` is `now`, too, which is later than the grant. The
 * history, if there is one, continues after the last event of the snapshot. On
 * HF_EPROTO, HF_EUNSUPPORTED and HF_ENOMEM the store is empty. Reports no
 * events. */
enum hf_err hf_store_restore(struct hf_store *store, hf_time now,
                             const void *data, size_t size);

/* Run one valid command at `now`. Returns HF_OK, or HF_ENOMEM if memory runs out:
 * then nothing has changed, no event was reported, and result->err is
 * HF_ENOMEM, which is never the result of a command that has run. A driver whose
 * replicas run the same commands must stop then, because the others go on. */
enum hf_err hf_store_run(struct hf_store *store, hf_time now,
                         const struct hf_command *command,
                         struct hf_result *result);

/* Take leases that are due at `now`, at most `max`: fill in their EXPIRE
 * commands and return how many there are. A lease is not returned again until
 * its EXPIRE has run, except for the next holder; or until it is renewed, which
 * makes the EXPIRE void, and is due again; or after hf_store_retry_due(). Keys
 * are borrowed until the next command. Running an EXPIRE needs no memory. */
size_t hf_store_take_due(struct hf_store *store, hf_time now,
                         struct hf_command *expires, size_t max);

/* Let hf_store_take_due() return all leases that are due, for a driver whose
 * EXPIREs may be lost. An EXPIRE that runs twice has an effect once. */
void hf_store_retry_due(struct hf_store *store);

/* The deadline of the lease of `hold`, and the earliest deadline of the leases
 * that are not taken. */
hf_time hf_store_deadline(const struct hf_store *store,
                          const struct hf_hold *hold);
hf_time hf_store_next_deadline(const struct hf_store *store);

/* Keep events for watches, from the next event on, if none are kept yet. Can
 * fail with HF_ENOMEM. */
enum hf_err hf_store_enable_history(struct hf_store *store, size_t bytes);

#endif
