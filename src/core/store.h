/* store.h - a lock table with its leases and its history: what a driver runs.
 *
 * Pure: `now` comes in with each command. Whoever drives it asks for what is
 * due and runs that as well; then the store is as it ought to be at `now`.
 *
 * Always true: a lease is counted from the instant at which its command was
 * run, never ends early, and is ended only by an EXPIRE that was run. */
#ifndef HF_CORE_STORE_H
#define HF_CORE_STORE_H

#include "core/history.h"
#include "core/lease.h"
#include "core/table.h"

struct hf_store {
    struct hf_table table;
    struct hf_leases leases;
    struct hf_history history; /* from hf_store_enable_history() on */
    hf_time now;               /* of the command that is run */
    struct hf_hold *touched;   /* by it: granted, renewed or waited for */
    hf_table_event_fn *event;  /* the driver's: after the store's own part */
    void *arg;
};

void hf_store_init(struct hf_store *store, const struct hf_seed *seed,
                   hf_table_event_fn *event, void *arg);
void hf_store_fini(struct hf_store *store);

/* Run one valid command at `now`. Out of memory is an answer here, HF_ENOMEM,
 * and then nothing has changed. */
void hf_store_run(struct hf_store *store, hf_time now,
                  const struct hf_command *command, struct hf_result *result);

/* The EXPIRE for a lease that has ended by `now`; false: none has. Its key is
 * borrowed until the next command. It cannot fail. */
bool hf_store_find_due(const struct hf_store *store, hf_time now,
                       struct hf_command *expire);

/* When the lease of `hold` ends, and when the first of all does. */
hf_time hf_store_deadline(const struct hf_store *store,
                          const struct hf_hold *hold);
hf_time hf_store_next_deadline(const struct hf_store *store);

/* Keep events for watchers, from the next one on. HF_ENOMEM. */
enum hf_err hf_store_enable_history(struct hf_store *store);

#endif
