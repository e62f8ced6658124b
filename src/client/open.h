/* open.h - opening a client, at once or in a thread.
 *
 * A strategy's `open` may block: it looks names up, connects and shakes hands.
 * hf_open() calls it directly; hf_open_start() calls it in a thread, to which
 * the host looks a little different (opening.c). */
#ifndef HF_CLIENT_OPEN_H
#define HF_CLIENT_OPEN_H

#include "client/client.h"

/* Open the strategy: no mutex is held, and nobody else uses the client. On
 * failure it is closed again. */
enum hf_err hf_open_strategy(struct hf_client *client, struct hf_url *url,
                             uint32_t *caps, struct hf_error *error);

/* Open it in a thread, and answer a future. `url` goes over to it, and is empty
 * afterwards. With the mutex held. HF_ENOMEM, HF_ESYSTEM with a text. */
enum hf_err hf_opening_start(struct hf_client *client, struct hf_url *url,
                             hf_done_fn *done, void *arg,
                             struct hf_future **future, struct hf_error *error);

/* The client closes: whoever waits for it to open is answered HF_ECLOSED. */
void hf_opening_abandon(struct hf_client *client);

#endif
