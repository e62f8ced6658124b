/* keeper.h - keeping a held lock: renewals, and the events AT_RISK and LOST.
 *
 * The keeper renews a lock `renew_ms` before the end of validity. If `renew_ms`
 * is 0, it renews when a third of the ttl has passed (or the part that the
 * strategy sets in renew_part), with some jitter, so that the renewals of many
 * locks spread out. Failed attempts are retried until validity ends. From the
 * first failed attempt, or from the moment when an answer is overdue, until a
 * renewal succeeds, hf_lock_error() returns the cause.
 *
 * AT_RISK is reported when half the ttl has passed without a confirmed renewal,
 * or when half of `renew_ms` is left if that is later; LOST is reported when
 * validity ends. Both depend on the local clock alone. A refused renewal
 * reports them earlier: AT_RISK if an operator broke the lock, LOST if the
 * claim does not hold the key any more. Each event is reported at most once per
 * claim. A lock without `renew` gets only LOST. All functions require the
 * client's mutex. */
#ifndef HF_CLIENT_KEEPER_H
#define HF_CLIENT_KEEPER_H

#include "client/lock.h"

/* Allocate the call for renewals, if the handle has `renew`. Can fail with
 * HF_ENOMEM or HF_ELIMIT. */
enum hf_err hf_keeper_init(struct hf_lock *lock);
void hf_keeper_fini(struct hf_lock *lock);

/* Called when the lock is granted. Schedules the first renewal. */
void hf_keeper_start(struct hf_lock *lock);

/* Schedule the next renewal. Called when the validity of the lock was set or
 * extended: by a grant, by the keeper's renewal or by hf_renew(). */
void hf_keeper_on_renewed(struct hf_lock *lock);

/* Unset the timer and abandon the open renewal, because the lock is released,
 * detached or lost. */
void hf_keeper_stop(struct hf_lock *lock);

/* Called when lock->timer fires while the lock is held. */
void hf_keeper_on_timer(struct hf_lock *lock);

/* hf_host_ops.recheck: renew now the lock that was granted with `token`, or
 * every lock if it is HF_ANY_TOKEN. Locks that the client does not renew are
 * skipped. */
void hf_keeper_recheck(struct hf_host *host, uint64_t token);

#endif
