/* watch.h - the watches of one client, for watch.c and registration.c. */
#ifndef HF_STRATEGY_REDIS_WATCH_H
#define HF_STRATEGY_REDIS_WATCH_H

#include "strategy/redis/redis.h"

struct hf_redis_watch {
    struct hf_watch_entry entry; /* first */
    struct hf_map_link by_pattern;
    struct hf_request *opening; /* until it is answered */
    uint64_t next;              /* index wanted; 0: not known yet */
    uint64_t part;              /* the last that has registered it; 0: none */
    size_t index_in_part;       /* in that */
    bool subscribed;
};

/* watch.c: the lowest index that a watch wants, or UINT64_MAX. Free the watches
 * that were removed, unless the list is busy. Refuse one that is being opened. Set the next
 * tick. */
uint64_t hf_redis_watches_wanted(const struct hf_redis *redis);
void hf_redis_watches_sweep(struct hf_redis *redis);
void hf_redis_watch_fail(struct hf_redis *redis, struct hf_redis_watch *watch,
                         enum hf_err err, const char *text);
void hf_redis_watch_set_tick(struct hf_redis *redis, hf_time at);

/* registration.c: subscribe to what is watched, or not any more. Add a watch to the
 * map by which the replies to that find it, or remove it. The next tick. */
void hf_redis_registration_subscribe(struct hf_redis *redis,
                                     const struct hf_redis_watch *watch);
void hf_redis_registration_unsubscribe(struct hf_redis *redis,
                                       const struct hf_redis_watch *watch);
void hf_redis_registration_add(struct hf_redis *redis,
                               struct hf_redis_watch *watch);
void hf_redis_registration_remove(struct hf_redis *redis,
                                  struct hf_redis_watch *watch);
void hf_redis_registration_on_tick(struct hf_timer *timer);

#endif
