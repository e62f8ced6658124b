/* watch.h - the watches of one client, for watch.c and registration.c. */
#ifndef HF_STRATEGY_REDIS_WATCH_H
#define HF_STRATEGY_REDIS_WATCH_H

#include "strategy/redis/redis.h"

struct hf_redis_watch {
    struct hf_watch_entry entry; /* must be first */
    struct hf_map_link by_pattern;
    struct hf_request *opening; /* the WATCH request, until it is answered */
    uint64_t next;              /* index of the next event; 0: unknown */
    uint64_t part;        /* the part that last registered the watch; 0: none */
    size_t index_in_part; /* position of the watch in `part` */
    bool subscribed;      /* subscribed to the channel of its pattern */
};

/* watch.c: free the watches that were removed, unless the list of watches is
 * being iterated. */
void hf_redis_watches_sweep(struct hf_redis *redis);

/* watch.c: fail a watch that is not open yet, and mark it as removed. */
void hf_redis_watch_fail(struct hf_redis *redis, struct hf_redis_watch *watch,
                         enum hf_err err, const char *text);

/* watch.c: set the timer `tick`, which renews registrations and looks for
 * leases that are due. */
void hf_redis_watch_set_tick(struct hf_redis *redis, hf_time at);

/* registration.c: subscribe to the channel of a watch. */
void hf_redis_registration_subscribe(struct hf_redis *redis,
                                     const struct hf_redis_watch *watch);

/* registration.c: unsubscribe from the channel of a watch, unless another watch
 * needs the channel. */
void hf_redis_registration_unsubscribe(struct hf_redis *redis,
                                       const struct hf_redis_watch *watch);

/* registration.c: add a watch to `watches_by_pattern`. */
void hf_redis_registration_add(struct hf_redis *redis,
                               struct hf_redis_watch *watch);

/* registration.c: remove a watch from `watches_by_pattern`. */
void hf_redis_registration_remove(struct hf_redis *redis,
                                  struct hf_redis_watch *watch);

/* registration.c: the timer `tick` fired: renew registrations that are due, and
 * ask the server for leases that are due. */
void hf_redis_registration_on_tick(struct hf_timer *timer);

#endif
