/* waiting.h - the claims of a client that wait in a queue.
 *
 * Grants are pushed by nonce, so client->waiting maps nonces to handles. A push
 * may be lost, so each waiting claim is also checked from time to time. All
 * functions require the client's mutex. */
#ifndef HF_CLIENT_WAITING_H
#define HF_CLIENT_WAITING_H

#include "client/handle.h"

/* Add the handle to client->waiting, unless it is there. */
void hf_waiting_add(struct hf_lock *lock);

/* Remove the handle from client->waiting, if it is there. */
void hf_waiting_remove(struct hf_lock *lock);

/* The handle whose claim `nonce` waits, or may wait because its LOCK is not
 * answered; or NULL. */
struct hf_lock *hf_waiting_find(const struct hf_client *client,
                                const struct hf_nonce *nonce);

/* The time after which to check a claim that waits. If a push may be lost, this
 * is short enough to find the grant before its lease expires. `answer` is the
 * last answer that had a position, or NULL. */
uint32_t hf_waiting_poll_ms(struct hf_lock *lock,
                            const struct hf_answer *answer);

#endif
