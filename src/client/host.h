/* host.h - what a client gives its strategy (struct hf_host_ops): timers,
 * descriptors, posts from other threads, and a place to leave answers.
 *
 * What is left here is run by who drives: client/loop. All but wakers: with
 * the client's mutex held. */
#ifndef HF_CLIENT_HOST_H
#define HF_CLIENT_HOST_H

#include "strategy/strategy.h"

struct hf_client;

extern const struct hf_host_ops hf_client_host_ops;

/* Fire the timers that are due by the client's clock. */
void hf_host_fire_due(struct hf_client *client);

/* Run what other threads have posted. */
void hf_host_run_posts(struct hf_client *client);

/* Run what was to wait for the end of the turn. */
void hf_host_run_deferred(struct hf_client *client);

/* Run the `done` of what is answered, until nothing is. */
void hf_host_settle(struct hf_client *client);

/* ---- Wakers -------------------------------------------------------------*/

/* NULL: no memory. Its descriptor is -1 where none can be had. */
struct hf_waker *hf_waker_new(void);

/* One more reference, for who is to ring it (hf_waker_ring() drops it). */
struct hf_waker *hf_waker_take(struct hf_waker *waker);
void hf_waker_drop(struct hf_waker *waker);

/* It has rung. Whoever rang has posted before: look at the posts after this. */
void hf_waker_hear(struct hf_waker *waker);

#endif
