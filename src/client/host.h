/* host.h - what a client gives its strategy (struct hf_host_ops): timers,
 * descriptors, posts from other threads, and a place to leave answers.
 *
 * What is left here is run by who drives: client/loop. With the client's mutex
 * held. */
#ifndef HF_CLIENT_HOST_H
#define HF_CLIENT_HOST_H

#include "strategy/strategy.h"

struct hf_client;

extern const struct hf_host_ops hf_client_host_ops;

/* Fire the timers that are due by the client's clock. */
void hf_host_fire_due(struct hf_client *client);

/* Run what other threads have posted so far, each post once: what is posted
 * meanwhile rings the waker and is left for the next turn. Neither this nor the
 * next does anything while the client is being opened in another thread. */
void hf_host_run_posts(struct hf_client *client);

/* Run what was to wait for the end of the turn. */
void hf_host_run_deferred(struct hf_client *client);

/* Run the `done` of what is answered, and send the calls that waited for that,
 * until nothing is left. */
void hf_host_settle_answers(struct hf_client *client);

#endif
