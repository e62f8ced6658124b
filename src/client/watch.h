/* watch.h - events for the user, and waiting for one of them.
 *
 * A watch queues copies of what is pushed until its callback has taken them;
 * over HF_WATCH_QUEUE_MAX, or without memory, the newest are dropped and one
 * DROPPED event marks the place.
 *
 * hf_wait_held() and hf_wait_free() register first and read then, so that no
 * change between the two is missed, and read again now and then in case a push
 * is lost. */
#ifndef HF_CLIENT_WATCH_H
#define HF_CLIENT_WATCH_H

#include "client/call.h"
#include "client/future.h"

/* hf_host_ops.event: a push has come. */
void hf_watch_pushed(struct hf_host *host, const struct hf_push_event *push);

/* The client closes. */
void hf_watch_close(struct hf_watch *watch);
struct hf_watch *hf_watch_of(struct hf_list *link);

#endif
