/* release.h - releasing a lock, and freeing or closing its handle.
 *
 * Validity ends before the UNLOCK is sent: during a release,
 * hf_lock_valid_for() is false. All functions require the client's mutex. */
#ifndef HF_CLIENT_RELEASE_H
#define HF_CLIENT_RELEASE_H

#include "client/handle.h"

/* Send UNLOCK, or CANCEL if the handle is lost and was not adopted. The result
 * completes the future lock->releasing, which the caller has set. */
void hf_release_begin(struct hf_lock *lock);

/* Called when the handle's call is settled while the handle is RELEASING. */
void hf_release_on_settled(struct hf_lock *lock);

/* End the claim of the handle, because the client is closing: withdraw it in
 * the background, unless it was adopted. A pending claim completes with
 * HF_ECLOSED. If the client is closed already, give up an open release too. */
void hf_release_on_close(struct hf_lock *lock);

#endif
