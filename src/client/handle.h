/* handle.h - struct hf_lock: state, lifetime and events of one handle.
 *
 * holdfast.h describes the states; a table in handle.c lists the allowed
 * transitions, and hf_handle_set_state() asserts them. One embedded call serves
 * both claiming and releasing, because these never overlap.
 *
 * hf_handle_new() allocates what claims, the keeper's renewals and releases
 * need, so that these cannot run out of memory once they have started. All
 * functions require the client's mutex. */
#ifndef HF_CLIENT_HANDLE_H
#define HF_CLIENT_HANDLE_H

#include <stdatomic.h>

#include "base/bytes.h"
#include "base/map.h"
#include "client/acquire.h"
#include "client/call.h"
#include "client/future.h"

struct hf_lock {
    struct hf_client *client;
    struct hf_dlist link;        /* in client->locks */
    struct hf_map_link by_nonce; /* in client->waiting, if in_map */
    unsigned references;
    enum hf_state state;
    enum hf_acquire_phase phase;
    bool in_map;
    bool user_has_reference; /* a call has returned the handle to the user */
    bool freed;              /* the user has freed the handle; no more events
                                are reported */
    bool adopted;            /* set by hf_lock_adopt(): another handle was
                                granted the lock */
    bool detached;           /* detached, and not claimed again since */

    /* Options. */
    uint32_t ttl_ms, wait_ms, timeout_ms, renew_ms;
    bool renew, ttl_includes_wait;
    hf_lock_event_fn *on_event;
    void *arg;
    struct hf_bytes value; /* points into `bytes` */
    struct hf_bytes note;  /* points into `bytes` */

    /* The claim. */
    struct hf_nonce nonce;
    _Atomic uint64_t token;
    _Atomic hf_time valid_until; /* an instant, or a value in validity.h */
    hf_time first_sent;          /* when the nonce's first LOCK was sent */
    hf_time wait_until;
    hf_time limit;            /* with ttl_includes_wait, validity ends by then;
                                 otherwise HF_NEVER */
    uint32_t held_ttl_ms;     /* the ttl of the lease that was last confirmed */
    uint32_t position;        /* in the queue; 0: not queued */
    enum hf_err refusal;      /* result of a claim that is being withdrawn */
    char *refusal_text;       /* allocated; NULL: hf_err_text() */
    enum hf_err claim_result; /* result of the last completed claim */
    bool was_claimed;
    struct hf_acquire_caller *caller;   /* of the pending claim, or NULL */
    struct hf_acquire_caller *answered; /* of the granted claim, until the
                                           caller has the result */
    struct hf_dlist claim_waiters;      /* threads in hf_lock_wait() */
    struct hf_future *releasing;
    hf_time held_until; /* RELEASING: the lease cannot have ended before this;
                           0 or less: unknown */
    struct hf_call call;
    struct hf_timer timer; /* CLAIMING: the next poll or the timeout; HELD: set
                              by the keeper */

    /* The keeper. */
    struct hf_call *renewal; /* NULL: not renewed */
    hf_time next_renewal;
    hf_time overdue_at;       /* when the open renewal counts as failing */
    bool failing;             /* a renewal has failed, or is overdue */
    bool forced;              /* an operator broke the lock; no more renewals */
    bool recheck;             /* renew again when the open renewal settles */
    unsigned reported_events; /* events reported: bits 1 << hf_lock_event */
    unsigned pending_events;  /* events queued for the callback, as bits */
    struct hf_callback callback;

    enum hf_err failure;  /* for hf_lock_error() */
    char *failure_text;   /* NULL: hf_err_text(failure) */
    bool renewal_failure; /* `failure` is that of a renewal, so a successful
                             renewal clears it */
    size_t key_size;
    uint8_t bytes[]; /* copies of the key, the value and the note */
};

static inline struct hf_key hf_handle_key(const struct hf_lock *lock)
{
    return (struct hf_key){lock->bytes, lock->key_size};
}

/* Create an idle handle with one reference. `opts` come from hf_options_lock()
 * and are copied. Can fail with HF_ENOMEM or HF_ELIMIT. */
enum hf_err hf_handle_new(struct hf_client *client, struct hf_key key,
                          const struct hf_lock_opts *opts,
                          struct hf_lock **new_lock);

void hf_handle_ref(struct hf_lock *lock);
void hf_handle_unref(struct hf_lock *lock);

/* Change the state, and set the acquire phase to HF_ACQUIRE_NONE. */
void hf_handle_set_state(struct hf_lock *lock, enum hf_state state);

/* Returns true if the lock, while it is held, needs a thread that drives the
 * client, because it is renewed or has an event callback. */
bool hf_handle_needs_driver(const struct hf_lock *lock);

/* Set what hf_lock_error() returns. `text` is copied and may be NULL. */
void hf_handle_set_failure(struct hf_lock *lock, enum hf_err err,
                           const char *text);

/* Record the event and queue the event callback, if the handle has one; at most
 * once per event and claim. */
void hf_handle_report(struct hf_lock *lock, enum hf_lock_event event);

/* Set the call's command to `kind`, with this lock's key, nonce and token. */
void hf_handle_fill_command(struct hf_lock *lock, struct hf_call *call,
                            enum hf_command_kind kind);

/* Set the call's request to a LOOKUP of this lock's nonce. */
void hf_handle_fill_lookup(struct hf_lock *lock, struct hf_call *call,
                           enum hf_consistency how);

/* The deadline of a call that starts now: timeout_ms from now. */
hf_time hf_handle_call_deadline(const struct hf_lock *lock);

#endif
