/* This file keeps no list of waiters. Each waiter repeats its LOCK about once a
 * second or more often, and each reply with a position keeps the heartbeat
 * running. */
#include "strategy/redis/heartbeat.h"

#include "strategy/redis/redis.h"

#define INTERVAL_MIN_MS 20
#define INTERVAL_MAX_MS 500
#define LINGER_MS 3000 /* heartbeats stop this long after the last position */

/* The validity of a grant that arrives by message counts from the client's last
 * heartbeat. The lease is longer than the ttl, by a sixteenth of the ttl and 50
 * ms. The interval is shorter than that difference, so even a grant just before
 * the next heartbeat leaves a validity of the full ttl. */
uint32_t hf_redis_heartbeat_default_ms(uint32_t lease_ms)
{
    uint32_t interval_ms = lease_ms / 32;

    if (interval_ms < INTERVAL_MIN_MS)
        return INTERVAL_MIN_MS;
    return interval_ms < INTERVAL_MAX_MS ? interval_ms : INTERVAL_MAX_MS;
}

static void on_heartbeat_reply(struct hf_redis_call *call,
                               const redisReply *reply)
{
    struct hf_redis *redis =
        HF_CONTAINER(call, struct hf_redis, heartbeat.call);

    redis->heartbeat.sent = false;
    if (reply && reply->type == REDIS_REPLY_ERROR)
        (void)hf_redis_reply_handle_error(&redis->connection, reply);
}

static void send_heartbeat(struct hf_redis *redis, hf_time now)
{
    struct hf_redis_script_call script_call;

    if (redis->heartbeat.sent)
        return; /* do not send more heartbeats to a slow server */
    hf_redis_script_call_heartbeat(&script_call, &redis->connection,
                                   &redis->identity, now,
                                   redis->heartbeat.interval_ms);
    redis->heartbeat.call.reply = on_heartbeat_reply;
    redis->heartbeat.sent = hf_redis_connection_send(
        &redis->connection, &redis->heartbeat.call, &script_call.args);
}

static void on_heartbeat_timer(struct hf_timer *timer)
{
    struct hf_redis *redis =
        HF_CONTAINER(timer, struct hf_redis, heartbeat.timer);
    hf_time now = redis->host->ops->now(redis->host);

    redis->heartbeat.running = now < redis->heartbeat.until;
    if (!redis->heartbeat.running)
        return;
    send_heartbeat(redis, now);
    hf_timer_set(redis->host, timer,
                 hf_time_add(now, redis->heartbeat.interval_ms));
}

uint32_t hf_redis_heartbeat_interval(const struct hf_redis *redis,
                                     uint32_t lease_ms)
{
    uint32_t own = hf_redis_heartbeat_default_ms(lease_ms);
    hf_time now = redis->host->ops->now(redis->host);

    if (redis->heartbeat.running && now < redis->heartbeat.interval_until &&
        redis->heartbeat.interval_ms < own)
        return redis->heartbeat.interval_ms;
    return own;
}

void hf_redis_heartbeat_extend(struct hf_redis *redis, uint32_t lease_ms)
{
    hf_time now = redis->host->ops->now(redis->host);
    uint32_t interval_ms = hf_redis_heartbeat_interval(redis, lease_ms);

    redis->heartbeat.until = hf_time_add(now, LINGER_MS);
    if (hf_redis_heartbeat_default_ms(lease_ms) == interval_ms)
        redis->heartbeat.interval_until = redis->heartbeat.until;
    if (redis->heartbeat.running &&
        redis->heartbeat.interval_ms <= interval_ms) {
        redis->heartbeat.interval_ms = interval_ms;
        return;
    }
    redis->heartbeat.running = true;
    redis->heartbeat.interval_ms = interval_ms;
    hf_timer_set(redis->host, &redis->heartbeat.timer,
                 hf_time_add(now, interval_ms));
}

enum hf_err hf_redis_heartbeat_open(struct hf_redis *redis)
{
    redis->heartbeat.timer.fire = on_heartbeat_timer;
    return redis->host->ops->timer_add(redis->host, &redis->heartbeat.timer);
}

void hf_redis_heartbeat_close(struct hf_redis *redis)
{
    redis->host->ops->timer_remove(redis->host, &redis->heartbeat.timer);
}
