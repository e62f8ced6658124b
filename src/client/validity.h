/* validity.h - how long a held lock is valid, by the local clock.
 *
 * Always true:
 *   1. validity ends by the clock alone; no thread has to run for that;
 *   2. while the lock is held, the end of validity only moves to later
 *      instants;
 *   3. a loss is final: once a thread has seen that validity has ended, no
 *      thread sees this claim valid again, even if a renewal is confirmed
 *      later.
 *
 * hf_lock_valid_for() and the other getters read the end of validity without
 * the client's mutex. To keep (3), a getter that finds the end in the past
 * sets it to HF_VALIDITY_ENDED with a compare-and-swap, and a renewal moves it
 * with a compare-and-swap: the first one wins. The functions below require
 * the mutex. */
#ifndef HF_CLIENT_VALIDITY_H
#define HF_CLIENT_VALIDITY_H

#include "client/handle.h"

/* Values of valid_until that are not instants. */
#define HF_VALIDITY_NONE 0     /* not held; or adopted and not renewed yet */
#define HF_VALIDITY_ENDED (-1) /* a thread has seen that validity has ended */

/* Set the end of validity and start the keeper, because the lock was granted.
 * The lease is counted from `base` (drift.h). */
void hf_validity_begin(struct hf_lock *lock, hf_time base);

/* End validity, because the lock is released, detached or lost. */
void hf_validity_clear(struct hf_lock *lock);

/* lock->state, except that a held lock whose validity has ended is LOST even if
 * hf_validity_lose() was not called yet. */
enum hf_state hf_validity_state(const struct hf_lock *lock);

/* Returns HF_OK if the lock is held, HF_EEXPIRED if it is lost, otherwise
 * HF_ESTATE. Moves a held lock whose validity has ended to LOST. An adopted
 * lock counts as held before its first renewal. */
enum hf_err hf_validity_check(struct hf_lock *lock);

/* Extend validity after a confirmed renewal with `ttl_ms`, whose lease is
 * counted from `base`; never shorten it. Returns HF_EEXPIRED if validity had
 * already ended, in which case the lock is lost, or if the lock is not held. */
enum hf_err hf_validity_extend(struct hf_lock *lock, hf_time base,
                               uint32_t ttl_ms);

/* Move a held lock to LOST and report the loss. Does nothing if the lock is not
 * held. `why` and `text` are for hf_lock_error(); `text` may be NULL. */
void hf_validity_lose(struct hf_lock *lock, enum hf_err why, const char *text);

/* Map HF_ENOTHELD and HF_ENOTOWNER to HF_EEXPIRED, unless the lock was adopted,
 * because an adopted lock may never have been held. */
enum hf_err hf_validity_map_error(const struct hf_lock *lock, enum hf_err err);

#endif
