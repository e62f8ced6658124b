/* redis_open.c - redis: opened and closed; what it promises. */
#include <stdio.h>

#include "strategy/redis/await.h"
#include "strategy/redis/redis.h"

#define OPEN_MS 5000         /* hf_open() waits so long for a server */
#define WAIT_REPLICAS_MAX 64 /* a number too many to be meant */

static void link_up(struct hf_redis_link *link)
{
    hf_redis_look_due(HF_CONTAINER(link, struct hf_redis, link));
}

/* Those whose replies are lost have heard it by their calls. */
static void link_down(struct hf_redis_link *link)
{
    (void)link;
}

static const struct hf_redis_link_ops link_ops = {
    .up = link_up,
    .down = link_down,
};

static void close_parts(struct hf_redis *redis)
{
    hf_redis_listen_close(redis);
    hf_redis_watches_close(redis);
    hf_redis_beat_close(redis);
}

static enum hf_err open_parts(struct hf_redis *redis)
{
    enum hf_err err =
        hf_redis_asker_init(&redis->asker, redis->host, &redis->address.space);

    if (!err)
        err = hf_redis_beat_open(redis);
    if (err)
        return err;
    err = hf_redis_watches_open(redis);
    if (!err) {
        err = hf_redis_listen_open(redis);
        if (err)
            hf_redis_watches_close(redis);
    }
    if (err)
        hf_redis_beat_close(redis);
    return err;
}

static enum hf_err connect(struct hf_redis *redis, struct hf_error *error)
{
    enum hf_err err = open_parts(redis);
    struct hf_redis_link *link = &redis->link;

    if (err)
        return hf_error_code(error, err);
    err =
        hf_redis_link_open(link, redis->host, &redis->address, &link_ops, NULL);
    if (err) {
        close_parts(redis);
        return hf_error_code(error, err);
    }
    hf_redis_await_links(&link, 1, 1, OPEN_MS);
    err = link->failure.code;
    if (link->state == HF_REDIS_UP)
        err = hf_redis_check_eviction(&link->promises, link->address,
                                      &link->failure);
    if (!err)
        return HF_OK;
    if (error)
        *error = link->failure;
    hf_redis_link_close(link);
    close_parts(redis);
    return err;
}

static enum hf_err redis_open(void *self, struct hf_url *url,
                              struct hf_host *host, struct hf_error *error)
{
    struct hf_redis *redis = self;
    enum hf_err err;

    redis->host = host;
    hf_list_init(&redis->requests);
    hf_list_init(&redis->gathered);
    hf_list_init(&redis->until_heard);
    err = hf_redis_number(url, "wait_replicas", WAIT_REPLICAS_MAX,
                          &redis->wait_replicas, error);
    if (err)
        return err;
    err = hf_redis_address_init(&redis->address, url, url->hosts, error);
    if (err)
        return err;
    err = connect(redis, error);
    if (err)
        hf_redis_address_fini(&redis->address);
    return err;
}

/* After a failover to a replica that had not heard of it, neither the lock nor
 * the token need be there: that cannot be promised, nor that the server's
 * clock is not set. */
static uint32_t caps(const void *self)
{
    const struct hf_redis *redis = self;
    uint32_t caps = HF_CAP_FENCE | HF_CAP_FIFO | HF_CAP_PUSH |
                    HF_CAP_LINEARIZABLE_READ | HF_CAP_VALUE | HF_CAP_WATCH |
                    HF_CAP_FLEET;

    /* A policy that evicts locks also evicts queues and the token counter. */
    if (*redis->link.promises.evicts)
        caps &= ~(uint32_t)(HF_CAP_FENCE | HF_CAP_FIFO);
    else if (redis->link.promises.durable)
        caps |= HF_CAP_DURABLE;
    return caps;
}

static void redis_describe(const void *self, hf_fact_fn *each, void *arg)
{
    const struct hf_redis *redis = self;
    const struct hf_redis_promises *promises = &redis->link.promises;
    char text[HF_REDIS_VERSION_SIZE + 8];

    each("address", redis->address.name, arg);
    (void)snprintf(text, sizeof(text), "Redis %s", promises->version);
    each("server", text, arg);
    each("persistence",
         promises->durable ? "each write is on disk before its reply"
                           : "a restart may forget locks that are held",
         arg);
    if (*promises->evicts)
        each("eviction", promises->evicts, arg);
}

static void redis_close(void *self)
{
    struct hf_redis *redis = self;

    redis->host->ops->unpost(redis->host, &redis->gather);
    hf_redis_link_close(&redis->link);
    hf_redis_link_close(&redis->news);
    close_parts(redis);
    hf_redis_address_fini(&redis->address);
}

#define STRATEGY(name)                                                         \
    {                                                                          \
        .scheme = (name), .size = sizeof(struct hf_redis), .open = redis_open, \
        .caps = caps, .describe = redis_describe, .submit = hf_redis_submit,   \
        .cancel = hf_redis_cancel, .close = redis_close,                       \
    }

const struct hf_strategy hf_strategy_redis = STRATEGY("redis");
const struct hf_strategy hf_strategy_redis_unix = STRATEGY("redis+unix");
const struct hf_strategy hf_strategy_rediss = STRATEGY("rediss");
