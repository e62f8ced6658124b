/* drift.h - for how long a lock is held, by the clock.
 *
 * Always true:
 *   1. validity ends by the clock, whether or not anybody is there to see it;
 *   2. until it is released, its end only ever moves to a later instant;
 *   3. lost is final: once any thread has seen that validity has ended, no
 *      thread sees this claim valid again, whatever is confirmed later.
 *
 * hf_lock_valid_for() and the other getters read the end without the client's mutex.
 * So that (3) holds, a getter that finds the end in the past replaces it by
 * HF_VALIDITY_ENDED with a compare-and-swap, and a renewal moves the end with one:
 * whichever comes first wins. All else here is called with the mutex held. */
#ifndef HF_CLIENT_VALIDITY_H
#define HF_CLIENT_VALIDITY_H

#include "client/handle.h"

/* Values of valid_until that are no instants. */
#define HF_VALIDITY_NONE 0 /* not held; or adopted, and nothing confirmed yet */
#define HF_VALIDITY_ENDED -1 /* somebody has seen the end */

/* Granted: held from now on, and kept (keeper.h). The lease counts from
 * `base`. */
void hf_validity_begin(struct hf_lock *lock, hf_time base);

/* Nothing is held from now on. */
void hf_validity_clear(struct hf_lock *lock);

/* The handle's state by the clock: LOST as soon as validity has ended, also
 * where nobody has moved it there yet. */
enum hf_state hf_validity_state(const struct hf_lock *lock);

/* HF_OK while it is held or adopted, HF_EEXPIRED once it is lost, else
 * HF_ESTATE. */
enum hf_err hf_validity_check(struct hf_lock *lock);

/* A renewal was confirmed: validity ends no earlier than before. HF_EEXPIRED:
 * it had ended already, and lost is final. */
enum hf_err hf_validity_extend(struct hf_lock *lock, hf_time base,
                               uint32_t ttl_ms);

/* Validity has ended without an unlock. Told once. */
void hf_validity_lose(struct hf_lock *lock, enum hf_err why, const char *text);

/* What an answer "not the holder" means to a handle that was granted. */
enum hf_err hf_validity_map_error(const struct hf_lock *lock, enum hf_err err);

#endif
