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
    hf_time now; /* the time of the running command */
    /* The hold of the last event of the running command; NULL if there was no
     * event, or if the event ended the grant. */
    struct hf_hold *touched;
    /* The driver's callback, called after the store has handled an event. */
    hf_table_event_fn *event;
    void *arg;
};

/* Initialize an empty store that calls `event` with `arg` for each event.
 * `history_bytes` is the size of the history (history.h), and this call fails
 * with HF_ENOMEM if it cannot be allocated. If it is 0, no events are kept
 * until hf_store_enable_history(), and this call cannot fail. */
enum hf_err hf_store_init(struct hf_store *store, const struct hf_seed *seed,
                          size_t history_bytes, hf_table_event_fn *event,
                          void *arg);
void hf_store_fini(struct hf_store *store);

/* Remove all sessions and locks. Tokens, session ids and event indexes start
 * at 1 again. */
void hf_store_clear(struct hf_store *store);

/* Replace the contents by a snapshot (core/snapshot). It has no instants, so
 * every lease starts again at `now`, with the longest lease since its grant,
 * and no lease ends early. `since` becomes `now` as well, although the grant
 * was earlier. The history, if there is one, continues after the last event of
 * the snapshot. On HF_EPROTO, HF_EUNSUPPORTED and HF_ENOMEM the store is
 * empty. Reports no events. */
enum hf_err hf_store_restore(struct hf_store *store, hf_time now,
                             const void *data, size_t size);

/* Run one valid command at `now`. Returns HF_OK, or HF_ENOMEM if memory runs
 * out: then nothing has changed, no event was reported, and result->err is
 * HF_ENOMEM, which is never the result of a command that has run. A driver
 * whose replicas run the same commands must stop then, because the others go
 * on. */
enum hf_err hf_store_run(struct hf_store *store, hf_time now,
                         const struct hf_command *command,
                         struct hf_result *result);

/* Take up to `max` leases that are due at `now`: write an EXPIRE command for
 * each to `expires`, and return their number. A lease is not taken again
 * unless it is renewed, which makes its EXPIRE void, and becomes due again, or
 * hf_store_retry_due() is called. Keys are borrowed until the next command.
 * Running an EXPIRE needs no memory. */
size_t hf_store_take_due(struct hf_store *store, hf_time now,
                         struct hf_command *expires, size_t max);

/* Let hf_store_take_due() take the taken leases again, for a driver whose
 * EXPIREs may be lost. An EXPIRE that runs twice has an effect once. */
void hf_store_retry_due(struct hf_store *store);

/* The deadline of the lease of `hold`, or an earlier instant if the lease was
 * taken. */
hf_time hf_store_deadline(const struct hf_store *store,
                          const struct hf_hold *hold);
/* The earliest deadline of the leases that are not taken; HF_NEVER if there is
 * none. */
hf_time hf_store_next_deadline(const struct hf_store *store);

/* The info of a key that is held, at `now`. Its pointers are valid until the
 * next command; the note is copied to `note`, with a NUL. */
struct hf_info hf_store_info(const struct hf_store *store, hf_time now,
                             const struct hf_hold *hold,
                             char note[HF_NOTE_MAX + 1]);

/* Keep events for watches, from the next event on, in a history of `bytes`
 * bytes. Does nothing if events are kept already. Can fail with HF_ENOMEM. */
enum hf_err hf_store_enable_history(struct hf_store *store, size_t bytes);

#endif
