/* background.h - the threads of a client that drives itself.
 *
 * There are two, and they are equal: while one is inside a callback the other
 * one drives (loop.h). With the client's mutex held throughout. */
#ifndef HF_CLIENT_BACKGROUND_H
#define HF_CLIENT_BACKGROUND_H

#include "base/error.h"
#include "base/time.h"

struct hf_client;

/* Start the threads; they drive from now on. HF_ESYSTEM with a text: there are
 * none, and the mutex was dropped meanwhile. */
enum hf_err hf_background_start(struct hf_client *client,
                                struct hf_error *error);

/* See that somebody drives also while no call is open: start the threads,
 * unless there are some or the program drives itself. */
enum hf_err hf_background_ensure(struct hf_client *client);

/* End the threads, waiting for them until `deadline`, after which they end by
 * themselves. Drops the mutex meanwhile. */
void hf_background_stop(struct hf_client *client, hf_time deadline);

/* Have the threads end by themselves; one of them may be the caller. */
void hf_background_dismiss(struct hf_client *client);

#endif
