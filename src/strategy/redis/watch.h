/* watch.h - the watches of one client, for watch.c and interest.c. */
#ifndef HF_STRATEGY_REDIS_WATCH_H
#define HF_STRATEGY_REDIS_WATCH_H

#include "strategy/redis/redis.h"

struct hf_redis_watch {
    struct hf_list link;
    uint64_t number;
    struct hf_request *opening; /* until it is answered */
    uint64_t next;              /* index wanted; 0: not known yet */
    size_t in_look;             /* its place in the look under way; 0: none */
    bool subscribed;
    bool exact;
    bool gone;
    size_t key_size;
    uint8_t key[];
};

static inline struct hf_redis_watch *hf_redis_watch_of(struct hf_list *link)
{
    return HF_CONTAINER(link, struct hf_redis_watch, link);
}

/* watch.c: the lowest index that a watch wants, or UINT64_MAX. Free the watches
 * that are gone, unless `telling`. Refuse one that is being opened. Set the next
 * tick. */
uint64_t hf_redis_watches_wanted(const struct hf_redis *redis);
void hf_redis_watches_sweep(struct hf_redis *redis);
void hf_redis_watch_refuse(struct hf_redis *redis, struct hf_redis_watch *watch,
                           enum hf_err err, const char *text);
void hf_redis_tick_at(struct hf_redis *redis, hf_time at);

/* interest.c: subscribe to what is watched, or not any more. The next tick. */
void hf_redis_watch_subscribe(struct hf_redis *redis,
                              const struct hf_redis_watch *watch);
void hf_redis_watch_unsubscribe(struct hf_redis *redis,
                                const struct hf_redis_watch *watch);
void hf_redis_on_tick(struct hf_timer *timer);

#endif
