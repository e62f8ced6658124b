/* beat.c - the heartbeat of a client with waiters: one for all of them
 * (alive.lua).
 *
 * This file keeps no list of waiters. Each waiter repeats its LOCK about once a
 * second, and a reply that tells a position keeps the heartbeat going. */
#include "strategy/redis/redis.h"

#define LINGER_MS 3000 /* after a waiter was last told its position */

static void beat_replied(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redis *redis = HF_CONTAINER(call, struct hf_redis, beat.call);

    redis->beat.sent = false;
    if (reply && reply->type == REDIS_REPLY_ERROR)
        (void)hf_redis_failure(&redis->link, reply);
}

static void send_beat(struct hf_redis *redis, hf_time now)
{
    struct hf_redis_words words;

    if (redis->beat.sent)
        return; /* the server is slow: one under way is enough */
    hf_redis_beat(&words, &redis->link, &redis->asker, now,
                  redis->beat.every_ms);
    redis->beat.call.reply = beat_replied;
    redis->beat.sent =
        hf_redis_link_send(&redis->link, &redis->beat.call, &words.args);
}

static void on_beat(struct hf_timer *timer)
{
    struct hf_redis *redis = HF_CONTAINER(timer, struct hf_redis, beat.timer);
    hf_time now = redis->host->ops->now(redis->host);

    redis->beat.running = now < redis->beat.until;
    if (!redis->beat.running)
        return;
    send_beat(redis, now);
    hf_timer_set(redis->host, timer, hf_time_add(now, redis->beat.every_ms));
}

uint32_t hf_redis_beat_every(const struct hf_redis *redis, uint32_t lease_ms)
{
    uint32_t own = hf_redis_beat_ms(lease_ms);
    hf_time now = redis->host->ops->now(redis->host);

    if (redis->beat.running && now < redis->beat.brief_until &&
        redis->beat.every_ms < own)
        return redis->beat.every_ms;
    return own;
}

void hf_redis_beat_go_on(struct hf_redis *redis, uint32_t lease_ms)
{
    hf_time now = redis->host->ops->now(redis->host);
    uint32_t every_ms = hf_redis_beat_every(redis, lease_ms);

    redis->beat.until = hf_time_add(now, LINGER_MS);
    if (hf_redis_beat_ms(lease_ms) == every_ms)
        redis->beat.brief_until = redis->beat.until;
    if (redis->beat.running && redis->beat.every_ms <= every_ms) {
        redis->beat.every_ms = every_ms;
        return;
    }
    redis->beat.running = true;
    redis->beat.every_ms = every_ms;
    hf_timer_set(redis->host, &redis->beat.timer, hf_time_add(now, every_ms));
}

enum hf_err hf_redis_beat_open(struct hf_redis *redis)
{
    redis->beat.timer.fire = on_beat;
    return redis->host->ops->timer_add(redis->host, &redis->beat.timer);
}

void hf_redis_beat_close(struct hf_redis *redis)
{
    redis->host->ops->timer_remove(redis->host, &redis->beat.timer);
}
