/* release.h - giving a lock back.
 *
 * Validity ends before anything is sent: who asks while a release is under way
 * holds nothing. With the client's mutex held throughout. */
#ifndef HF_CLIENT_RELEASE_H
#define HF_CLIENT_RELEASE_H

#include "client/handle.h"

/* Send the UNLOCK of what is held or lost; `lock->releasing` hears of it. */
void hf_release_begin(struct hf_lock *lock);

/* The handle's call is answered while it is RELEASING. */
void hf_release_settled(struct hf_lock *lock);

/* The client closes: calls are answered, claims end. */
void hf_release_on_close(struct hf_lock *lock);

#endif
