/* background.h - the threads of a client that runs in the background.
 *
 * There are two threads with the same duties: while one runs a callback, the
 * other drives the client (loop.h). All functions require the client's
 * mutex. */
#ifndef HF_CLIENT_BACKGROUND_H
#define HF_CLIENT_BACKGROUND_H

#include "base/error.h"
#include "base/time.h"

struct hf_client;

/* Start the threads. From now on only they drive the client. On HF_ESYSTEM no
 * thread is left running, and the mutex was unlocked and locked again. */
enum hf_err hf_background_start(struct hf_client *client,
                                struct hf_error *error);

/* Start the threads, unless they run already, the program drives the client
 * itself (it has called hf_fd() or hf_process()), or the client is closing.
 * Without them the client would be driven during blocking calls only, but
 * renewals and event callbacks need a driver at all times. Can fail with
 * HF_ESYSTEM. */
enum hf_err hf_background_ensure(struct hf_client *client);

/* Stop the threads and join them. If one of them still runs at `deadline`,
 * because it is inside a callback, all are detached instead. Unlocks the mutex
 * while it waits. */
void hf_background_stop(struct hf_client *client, hf_time deadline);

/* Stop the threads and detach them, without waiting. One of these threads may
 * call this function. */
void hf_background_dismiss(struct hf_client *client);

#endif
