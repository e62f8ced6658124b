/* hold.h - for how long a lock is held, by the clock.
 *
 * Always true:
 *   1. validity ends by the clock, whether or not anybody is there to see it;
 *   2. until it is given back, its end is only ever put further off;
 *   3. lost is final: what is confirmed too late changes nothing.
 *
 * hf_valid_for() and its like read the end without the client's mutex; all
 * else here is called with it held. */
#ifndef HF_CLIENT_HOLD_H
#define HF_CLIENT_HOLD_H

#include "client/handle.h"

/* Granted: held from now on, and kept (keeper.h). The lease counts from
 * `base`. */
void hf_hold_begin(struct hf_lock *lock, hf_time base);

/* Validity ends at `end`; 0: it has ended. */
void hf_hold_until(struct hf_lock *lock, hf_time end);

/* The handle's state by the clock: LOST as soon as validity has ended, also
 * where nobody has moved it there yet. */
enum hf_lock_state hf_lock_state_now(const struct hf_lock *lock);

/* HF_OK while it is held or adopted, HF_EEXPIRED once it is lost, else
 * HF_ESTATE. */
enum hf_err hf_lock_check_held(struct hf_lock *lock);

/* A renewal was confirmed: validity ends no earlier than before. HF_EEXPIRED:
 * it had ended already, and lost is final. */
enum hf_err hf_lock_extend(struct hf_lock *lock, hf_time base, uint32_t ttl_ms);

/* Validity has ended without an unlock. Told once. */
void hf_lock_lose(struct hf_lock *lock, enum hf_err why, const char *text);

/* What an answer "not the holder" means to a handle that was granted. */
enum hf_err hf_lock_ended(const struct hf_lock *lock, enum hf_err err);

#endif
