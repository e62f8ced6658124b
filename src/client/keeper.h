/* keeper.h - keeping a held lock: renewals, and the two warnings.
 *
 * Renews when a third of the ttl has gone (or what the strategy asks for), a
 * little earlier or later so that the renewals of many locks spread out. The
 * renewal's call retries failed attempts inside the lease. From the first
 * failed attempt, or when an answer is overdue, until a renewal succeeds,
 * hf_lock_error() has the cause.
 *
 * Half the ttl without a confirmed renewal, or half of `renew_ms` if that comes
 * later, is reported as *at risk*, the end of validity as *lost*: each once a
 * claim, by the local clock alone. */
#ifndef HF_CLIENT_KEEPER_H
#define HF_CLIENT_KEEPER_H

#include "client/lock.h"

/* Room for the renewals of a handle; HF_ENOMEM. */
enum hf_err hf_keeper_init(struct hf_lock *lock);
void hf_keeper_fini(struct hf_lock *lock);

/* The lock is held from now on; it is confirmed anew; it is held no more. */
void hf_keeper_start(struct hf_lock *lock);
void hf_keeper_on_renewed(struct hf_lock *lock);
void hf_keeper_stop(struct hf_lock *lock);

/* The lock's timer fired while it is held. */
void hf_keeper_on_timer(struct hf_lock *lock);

/* hf_host_ops.recheck: renew what was granted with `token` now. */
void hf_keeper_recheck(struct hf_host *host, uint64_t token);

#endif
