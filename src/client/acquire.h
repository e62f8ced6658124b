/* acquire.h - one claim on a key, from the first request to its result.
 *
 * While a handle is CLAIMING, its claim is in one of these phases:
 *
 *    DEFERRED    the loss of the previous claim is reported first
 *        |
 *   REQUESTING -- queued ---> QUEUED <----> POLLING  in case a push is lost
 *        |                       |              |
 *        +------- granted -------+--------------+---> held; by way of
 *        |                       |                    CONFIRMING if too little
 *        | session gone          | timeout,           validity may be left
 *        v                       | canceled
 *    RESOLVING                   v
 *                           WITHDRAWING ---> refused
 *
 * RESOLVING is followed by CONFIRMING if the claim holds the key, and by QUEUED
 * if it waits for the key. If the store does not know the claim in RESOLVING or
 * POLLING, or if CONFIRMING leaves no validity, REQUESTING follows again with a
 * new nonce, unless the wait has timed out. In every phase, a cancellation or a
 * late grant withdraws the claim, and a request that fails may refuse it.
 *
 * Every caller that waits for the claim gets its result exactly once. All
 * functions require the client's mutex. */
#ifndef HF_CLIENT_ACQUIRE_H
#define HF_CLIENT_ACQUIRE_H

#include "client/future.h"
#include "strategy/strategy.h"

struct hf_lock;

enum hf_acquire_phase {
    HF_ACQUIRE_NONE,
    HF_ACQUIRE_DEFERRED,
    HF_ACQUIRE_REQUESTING,
    HF_ACQUIRE_QUEUED,
    HF_ACQUIRE_POLLING,
    HF_ACQUIRE_RESOLVING,
    HF_ACQUIRE_CONFIRMING,
    HF_ACQUIRE_WITHDRAWING,
};

/* A thread in hf_lock_wait(). It gets the result of the claim that was pending
 * when it started to wait, even if the handle has been claimed again since. */
struct hf_acquire_waiter {
    struct hf_dlist link;
    struct hf_blocked blocked;
    enum hf_err err;
};

/* The public call that started a claim and receives its result. */
struct hf_acquire_caller {
    struct hf_future future;
    struct hf_lock *lock;
    struct hf_lock **out; /* where hf_acquire_start() returns the handle */
    bool granted;         /* *out was set */
};

/* Start a claim with a new nonce. `lock` is idle or lost. Fails with HF_ESYSTEM
 * if no random bytes are available, and then leaves lock->state unchanged. If a
 * caller waits for the result, set lock->caller before this call, because a
 * push inside it may complete the claim. */
enum hf_err hf_acquire_begin(struct hf_lock *lock);

/* Send the claim if it is DEFERRED. The handle calls this when the event
 * callback for the loss of the previous claim has returned. */
void hf_acquire_resume(struct hf_lock *lock);

/* Cancel the claim at the server, whether it is queued or was granted in the
 * meantime. When the server confirms, the claim is refused with `why`; if it
 * does not confirm in time, with HF_EINDOUBT. A DEFERRED claim was never sent
 * and is refused at once. */
void hf_acquire_withdraw(struct hf_lock *lock, enum hf_err why);

/* Cancel the claim in the background (withdrawal.h) without waiting for the
 * answer. If the claim may be queued, CANCEL is repeated until it is confirmed,
 * because a queued claim never expires; otherwise until the lease has
 * expired. A grant of the claim that arrives from now on is ignored. */
void hf_acquire_withdraw_in_background(struct hf_lock *lock);

/* Complete the claim with `err`. The handle becomes idle. `text` is the error
 * message; if it is NULL, the message is hf_err_text(err). */
void hf_acquire_refuse(struct hf_lock *lock, enum hf_err err, const char *text);

/* Called when the handle's call is settled while the handle is CLAIMING. */
void hf_acquire_on_settled(struct hf_lock *lock);

/* Called when the handle's timer fires while the handle is CLAIMING. */
void hf_acquire_on_timer(struct hf_lock *lock);

/* hf_host_ops.grant */
void hf_acquire_on_grant(struct hf_host *host,
                         const struct hf_push_grant *grant);

/* hf_host_ops.nudge: check the queued claim with `nonce` at once. */
void hf_acquire_on_nudge(struct hf_host *host, const struct hf_nonce *nonce);

#endif
