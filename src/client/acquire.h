/* acquire.h - one claim: from asking to held or refused.
 *
 * While a handle is CLAIMING, its claim is in one of these phases:
 *
 *   DEFERRED    until the loss of the claim before has been reported
 *        |
 * REQUESTING -- queued ---> QUEUED <----> POLLING        (lost pushes)
 *        |                       |               |
 *        +------- granted -------+---------------+---> held, or CONFIRMING
 *                                |                     first, where less
 *                 wait ran out,  |                     than the ttl is left
 *                 canceled       v
 *                           WITHDRAWING ---> refused
 *
 * However it ends, all who wait for it hear so once. With the client's mutex
 * held throughout. */
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
    HF_ACQUIRE_CONFIRMING,
    HF_ACQUIRE_WITHDRAWING,
};

/* A thread in hf_lock_wait(). It is answered for the claim that was under way
 * when it began to wait, even if another one has begun since. */
struct hf_acquire_waiter {
    struct hf_dlist link;
    struct hf_blocked blocked;
    enum hf_err err;
};

/* The caller that began a claim, and is answered when it ends. */
struct hf_claimant {
    struct hf_future future;
    struct hf_lock *lock;
    struct hf_lock *
        *out;     /* hf_acquire_start(): the handle goes here, or away */
    bool granted; /* it went there */
};

/* Begin a claim, with a nonce of its own; `lock` is idle or lost. On failure,
 * that of the randomness, its state is as it was. Set lock->claimant before: a
 * push may end the claim before this returns. */
enum hf_err hf_acquire_begin(struct hf_lock *lock);

/* The event callback for the loss of the claim before has returned: send the
 * claim that was deferred until then, if there is one. */
void hf_acquire_resume(struct hf_lock *lock);

/* Leave the line, or give back what was granted meanwhile; once that is
 * confirmed the claim is refused, with `why`. */
void hf_acquire_withdraw(struct hf_lock *lock, enum hf_err why);

/* End the nonce without waiting for it (withdrawal.h). What holds ends by
 * itself with its lease; what may wait in line does not. */
void hf_acquire_withdraw_in_background(struct hf_lock *lock);

/* It is refused, as of now: the handle is idle. `text` may be NULL. */
void hf_acquire_refuse(struct hf_lock *lock, enum hf_err err, const char *text);

/* The handle's call is answered, or its timer fires, while it is CLAIMING. */
void hf_acquire_on_settled(struct hf_lock *lock);
void hf_acquire_on_timer(struct hf_lock *lock);

/* hf_host_ops.grant: a push has come. */
void hf_acquire_on_grant(struct hf_host *host,
                         const struct hf_push_grant *grant);

/* hf_host_ops.nudge: it looks again at once. */
void hf_acquire_on_nudge(struct hf_host *host, const struct hf_nonce *nonce);

#endif
