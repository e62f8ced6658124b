/* in_process.h - a client of a store that is in this process: the code that
 * memory: and file: share.
 *
 * The strategy implements `enter` and `leave`. Between these two calls is the
 * *critical section*: the client has exclusive access to the store, and the
 * store is up to date. Requests are executed in a critical section. Grants and
 * events are collected in one and reported to the host after it, one at a time,
 * because the host may submit another request at once. */
#ifndef HF_STRATEGY_IN_PROCESS_H
#define HF_STRATEGY_IN_PROCESS_H

#include "core/store.h"
#include "strategy/strategy.h"
#include "strategy/watches.h"

struct hf_in_process {
    const struct hf_in_process_ops *ops;
    struct hf_host *host;
    struct hf_store *store;
    uint64_t session;
    hf_time offset;   /* this client's clock minus the store's */
    uint32_t poll_ms; /* poll interval of the first waiter; 0: poll only when
                         the lease is due */
    struct hf_timer
        expiry_timer; /* set to the next deadline while there are watches */
    struct hf_watches watches;
    struct hf_post more;    /* reports the remaining events in the next turn */
    struct hf_dlist grants; /* waiters of this client that were granted and are
                               not reported yet. Used only in the critical
                               section */
    uint64_t forced_token;  /* token of a forced lock of this client that has
                               not been reported; HF_ANY_TOKEN: there are
                               several; 0: none. Used only in the critical
                               section */
    bool has_reports;       /* there may be grants or events to report */
    bool is_reporting;
    bool report_failed; /* `enter` failed, so retry_report is called */
    const char *cause;  /* why the last command failed, or NULL */
};

struct hf_in_process_ops {
    /* On HF_OK the critical section lasts until `leave`. */
    enum hf_err (*enter)(struct hf_in_process *local);
    void (*leave)(struct hf_in_process *local);

    /* Call hf_in_process_report() again soon, because it stopped when `enter`
     * failed. */
    void (*retry_report)(struct hf_in_process *local);

    /* Run a command, which may concern the session of another client. Called
     * in the critical section, as are all members below. */
    void (*run)(struct hf_in_process *local, hf_time now,
                const struct hf_command *command, struct hf_result *result);

    /* End the grant of `key` if its holder is dead. Called before `key` is
     * read, looked up or listed. May be NULL. */
    void (*reap_holder)(struct hf_in_process *local, struct hf_key key);

    /* Called for a LOOKUP of a claim that waits: see to it that the claim does
     * not wait for a dead client. May be NULL. */
    void (*follow)(struct hf_in_process *local,
                   const struct hf_command *command);

    /* Called before a watch is added that starts at event `from`; 0: from now
     * on. If this fails, the watch is not added. */
    enum hf_err (*watch)(struct hf_in_process *local, uint64_t from);
    /* Called after the last watch was removed, or the first could not be
     * added. */
    void (*unwatch)(struct hf_in_process *local);
};

/* Initialize the members that depend on the host. The strategy sets store,
 * offset and poll_ms, before or after this call. Can fail with HF_ENOMEM. */
enum hf_err hf_in_process_init(struct hf_in_process *local,
                               struct hf_host *host,
                               const struct hf_in_process_ops *ops);
void hf_in_process_fini(struct hf_in_process *local);

/* The capabilities of the strategy, for hf_strategy.caps. */
uint32_t hf_in_process_caps(const void *self);

/* Open the session of this client. Call this in the critical section. */
enum hf_err hf_in_process_open_session(struct hf_in_process *local);
/* Close `session`, which may belong to another client. Call this in the
 * critical section. */
enum hf_err hf_in_process_close_session(struct hf_in_process *local,
                                        uint64_t session);

/* The time of the store's clock. */
hf_time hf_in_process_now(const struct hf_in_process *local);

/* Execute and answer a request. If `enter` fails, returns its error; the
 * request is neither executed nor answered. */
enum hf_err hf_in_process_submit(struct hf_in_process *local,
                                 struct hf_request *request);

/* Report all grants and events to the host. Events beyond the limit of a turn
 * are reported in the next turn. */
void hf_in_process_report(struct hf_in_process *local);

/* Note an event about a claim of this client, for the next report. Returns true
 * if there is something to report. Call this in the critical section. */
bool hf_in_process_note_event(struct hf_in_process *local,
                              const struct hf_table_event *event);

/* Returns true if hf_in_process_note_event() has to be called for an event. */
static inline bool hf_in_process_needs(const struct hf_table_event *event)
{
    return event->waited || event->kind == HF_EVENT_FORCED ||
           (event->ends && event->hold->waiter_taken);
}

/* Drop the grants that are not reported yet; waiters find out by polling. Call
 * this in the critical section. */
void hf_in_process_drop_grants(struct hf_in_process *local);

/* Add the watch of a WATCH request; a repeated request has no effect. Only
 * in_process.c calls this function and the next, in the critical section. */
enum hf_err hf_in_process_watch(struct hf_in_process *local,
                                const struct hf_request *request);
/* Remove the watch with `number`, if there is one. */
void hf_in_process_unwatch(struct hf_in_process *local, uint64_t number);

#endif
