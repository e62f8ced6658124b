/* open.h - opening a client, in the calling thread or in the background.
 *
 * A strategy's `open` may block: it resolves names, connects and does a
 * handshake. hf_open() calls it directly. hf_open_start() calls it in a new
 * thread, with host operations that lock the client's mutex (opening.c). */
#ifndef HF_CLIENT_OPEN_H
#define HF_CLIENT_OPEN_H

#include "client/client.h"

/* Open the strategy, set `*given` to its capabilities, and check that they
 * include those that the URL requires and that the URL has no unknown
 * parameter. Called without the mutex. On failure the strategy is closed. */
enum hf_err hf_open_strategy(struct hf_client *client, struct hf_url *url,
                             uint32_t *given, struct hf_error *error);

/* Open the strategy in a new thread, and deliver the result to a future.
 * Requires the mutex. `url` is moved into the thread and left empty; after a
 * failure it is unchanged or empty. Can fail with HF_ENOMEM or HF_ESYSTEM. */
enum hf_err hf_opening_start(struct hf_client *client, struct hf_url *url,
                             hf_done_fn *done, void *arg,
                             struct hf_future **future, struct hf_error *error);

/* Complete a pending hf_open_start() with HF_ECLOSED, because the client is
 * closing. The opening thread continues in the background. */
void hf_opening_abandon(struct hf_client *client);

#endif
