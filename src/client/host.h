/* host.h - the services that a client offers its strategy (struct hf_host_ops):
 * timers, descriptors, posts from other threads, and answers.
 *
 * Timers, posts and answers are only recorded. The driver (loop.h), and the end
 * of each turn, call the functions below to handle them. These functions
 * require the client's mutex. */
#ifndef HF_CLIENT_HOST_H
#define HF_CLIENT_HOST_H

#include "strategy/strategy.h"

struct hf_client;

extern const struct hf_host_ops hf_client_host_ops;

/* Fire the timers that are due. */
void hf_host_fire_due(struct hf_client *client);

/* Run the posts that are queued now. Posts that arrive meanwhile wake the
 * driver and run in the next turn. Like hf_host_run_deferred(), this does
 * nothing while another thread opens the strategy. */
void hf_host_run_posts(struct hf_client *client);

/* Run the posts that were deferred to the end of the turn. */
void hf_host_run_deferred(struct hf_client *client);

/* Call `done` of all answered requests and send parked calls, until no request
 * is answered and no parked call can be sent. */
void hf_host_settle_answers(struct hf_client *client);

#endif
