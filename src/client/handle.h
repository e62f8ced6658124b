/* handle.h - one handle: its states, its life, what it tells.
 *
 * The states are drawn in holdfast.h; the moves between them are a table in
 * handle.c, and asserted. One embedded call serves claiming and releasing in
 * turn, since no two are ever open.
 *
 * All the memory that its life will need is there from the start, so nothing
 * fails later for want of it. With the client's mutex held throughout. */
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
    struct hf_dlist link;        /* in the client */
    struct hf_map_link by_nonce; /* in the client, while in line */
    unsigned references;
    enum hf_state state;
    enum hf_acquire_phase phase;
    bool in_map;
    bool
        user_has_reference; /* the user has a reference: a call has returned it */
    bool freed;             /* by the user: nothing is reported any more */
    bool adopted;           /* granted elsewhere */
    bool detached;          /* left to whoever adopts it; idle here */

    /* What was asked for. */
    uint32_t ttl_ms, wait_ms, timeout_ms, renew_ms;
    bool renew, ttl_includes_wait;
    hf_lock_event_fn *on_event;
    void *arg;
    struct hf_bytes value; /* in the same block as the key */
    struct hf_bytes note;

    /* The claim. */
    struct hf_nonce nonce;
    _Atomic uint64_t token;
    _Atomic hf_time valid_until; /* or HF_HOLD_...: validity.h */
    hf_time first_sent;          /* of this nonce's LOCK */
    hf_time wait_until;
    hf_time limit;        /* the first lease ends by then */
    uint32_t held_ttl_ms; /* of the lease that is confirmed */
    uint32_t position;
    enum hf_err refusal;      /* WITHDRAWING: why */
    const char *refusal_text; /* the same in words; NULL: those of the code */
    enum hf_err claim_result; /* how the last claim ended */
    bool was_claimed;
    struct hf_claimant *claimant;
    struct hf_claimant *answered;  /* HF_OK, and it may not know yet */
    struct hf_dlist claim_waiters; /* struct hf_acquire_waiter */
    struct hf_future *releasing;
    struct hf_call call;
    struct hf_timer timer; /* in line: look again; held: the keeper's */

    /* The keeper. */
    struct hf_call *renewal; /* NULL where it is not renewed */
    hf_time next_renewal;
    hf_time overdue_at; /* the renewal under way counts as failing */
    bool failing;       /* renewals fail since the last confirmed one */
    bool forced;        /* no more renewals */
    bool recheck;       /* renew again when the open renewal is answered */
    unsigned reported_events; /* events of this claim, as bits */
    unsigned pending_events;
    struct hf_callback callback;

    enum hf_err failure;  /* the last one */
    char *failure_text;   /* may be NULL */
    bool renewal_failure; /* it ends when a renewal succeeds */
    size_t key_size;
    uint8_t bytes[]; /* key, value, note */
};

static inline struct hf_key hf_handle_key(const struct hf_lock *lock)
{
    return (struct hf_key){lock->bytes, lock->key_size};
}

/* An idle handle, with one reference. HF_ENOMEM, HF_ELIMIT.
 *
 *   opts   checked, none of it left to default; copied */
enum hf_err hf_handle_new(struct hf_client *client, struct hf_key key,
                          const struct hf_lock_opts *opts,
                          struct hf_lock **new_lock);

void hf_handle_ref(struct hf_lock *lock);
void hf_handle_unref(struct hf_lock *lock);

/* Go to `state`, which the table must allow. */
void hf_handle_set_state(struct hf_lock *lock, enum hf_state state);

/* Whether there is something to do or to tell while it is held. */
bool hf_handle_needs_driver(const struct hf_lock *lock);

/* What hf_lock_error() tells from now on. `text` is copied and may be NULL. */
void hf_handle_set_failure(struct hf_lock *lock, enum hf_err err,
                           const char *text);

/* Tell an event, if it has not been told of this claim. */
void hf_handle_report(struct hf_lock *lock, enum hf_lock_event event);

/* Fill a call's command with this lock's key, nonce and token. */
void hf_handle_fill_command(struct hf_lock *lock, struct hf_call *call,
                            enum hf_command_kind kind);

/* When a call that starts now is given up. */
hf_time hf_handle_call_deadline(const struct hf_lock *lock);

#endif
