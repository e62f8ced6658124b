/* redis_open.c - open, close and describe redis:. */
#include <stdio.h>

#include "strategy/redis/await.h"
#include "strategy/redis/redis.h"

#define OPEN_MS 5000         /* how long hf_open() waits for the server */
#define WAIT_REPLICAS_MAX 64 /* a larger number is a typing error */

static void on_connection_up(struct hf_redis_connection *connection)
{
    hf_redis_registration_renew_all(
        HF_CONTAINER(connection, struct hf_redis, connection));
}

/* There is nothing to do: connection.c completes every pending call with NULL,
 * and that fails its request. */
static void on_connection_down(struct hf_redis_connection *connection)
{
    (void)connection;
}

static const struct hf_redis_connection_ops connection_ops = {
    .up = on_connection_up,
    .down = on_connection_down,
};

static void close_parts(struct hf_redis *redis)
{
    hf_redis_pubsub_fini(redis);
    hf_redis_watches_close(redis);
    hf_redis_heartbeat_close(redis);
}

static enum hf_err open_parts(struct hf_redis *redis)
{
    enum hf_err err = hf_redis_identity_init(&redis->identity, redis->host,
                                             &redis->address.space);

    if (!err)
        err = hf_redis_heartbeat_open(redis);
    if (err)
        return err;
    err = hf_redis_watches_open(redis);
    if (!err) {
        err = hf_redis_pubsub_init(redis);
        if (err)
            hf_redis_watches_close(redis);
    }
    if (err)
        hf_redis_heartbeat_close(redis);
    return err;
}

static enum hf_err open_connection(struct hf_redis *redis,
                                   struct hf_error *error)
{
    enum hf_err err = open_parts(redis);
    struct hf_redis_connection *connection = &redis->connection;

    if (err)
        return hf_error_set_code(error, err);
    err = hf_redis_connection_open(connection, redis->host, &redis->address,
                                   &connection_ops, NULL);
    if (err) {
        close_parts(redis);
        return hf_error_set_code(error, err);
    }
    hf_redis_await_connections(&connection, 1, 1, OPEN_MS);
    err = connection->failure.code;
    if (connection->state == HF_REDIS_UP)
        err = hf_redis_server_info_check_eviction(&connection->server_info,
                                                  connection->address,
                                                  &connection->failure);
    if (!err)
        return HF_OK;
    if (error)
        *error = connection->failure;
    hf_redis_connection_close(connection);
    close_parts(redis);
    return err;
}

static enum hf_err redis_open(void *self, struct hf_url *url,
                              struct hf_host *host, struct hf_error *error)
{
    struct hf_redis *redis = self;
    enum hf_err err;

    redis->host = host;
    hf_dlist_init(&redis->requests);
    hf_dlist_init(&redis->batched);
    hf_dlist_init(&redis->until_subscribed);
    err = hf_redis_address_number(url, "wait_replicas", WAIT_REPLICAS_MAX,
                                  &redis->wait_replicas, error);
    if (err)
        return err;
    err = hf_redis_address_init(&redis->address, url, url->hosts, error);
    if (err)
        return err;
    err = open_connection(redis, error);
    if (err)
        hf_redis_address_fini(&redis->address);
    return err;
}

/* HF_CAP_FAILOVER_SAFE is missing because a replica that becomes the master may
 * lack the lock and its token. HF_CAP_STEADY is missing because the server's
 * clock may be set. */
static uint32_t redis_caps(const void *self)
{
    const struct hf_redis *redis = self;
    uint32_t caps = HF_CAP_FENCE | HF_CAP_FIFO | HF_CAP_PUSH |
                    HF_CAP_LINEARIZABLE_READ | HF_CAP_VALUE | HF_CAP_WATCH |
                    HF_CAP_FLEET;

    /* A policy that evicts locks also evicts queues and the token counter, so
     * neither order nor rising tokens can be promised. */
    if (*redis->connection.server_info.eviction_policy)
        caps &= ~(uint32_t)(HF_CAP_FENCE | HF_CAP_FIFO);
    else if (redis->connection.server_info.durable)
        caps |= HF_CAP_DURABLE;
    return caps;
}

static void redis_describe(const void *self, hf_fact_fn *each, void *arg)
{
    const struct hf_redis *redis = self;
    const struct hf_redis_server_info *server = &redis->connection.server_info;
    char text[HF_REDIS_VERSION_SIZE + 8];

    each("address", redis->address.name, arg);
    (void)snprintf(text, sizeof(text), "Redis %s", server->version);
    each("server", text, arg);
    each("persistence",
         server->durable ? "every write is on disk before its reply"
                         : "locks may be lost when the server restarts",
         arg);
    if (*server->eviction_policy)
        each("eviction", server->eviction_policy, arg);
}

static void redis_close(void *self)
{
    struct hf_redis *redis = self;

    redis->host->ops->unpost(redis->host, &redis->batch_post);
    hf_redis_connection_close(&redis->connection);
    hf_redis_connection_close(&redis->pubsub);
    close_parts(redis);
    hf_redis_address_fini(&redis->address);
}

#define STRATEGY(name)                                                         \
    {                                                                          \
        .scheme = (name), .size = sizeof(struct hf_redis), .open = redis_open, \
        .caps = redis_caps, .describe = redis_describe,                        \
        .submit = hf_redis_submit, .cancel = hf_redis_cancel,                  \
        .close = redis_close,                                                  \
    }

const struct hf_strategy hf_strategy_redis = STRATEGY("redis");
const struct hf_strategy hf_strategy_redis_unix = STRATEGY("redis+unix");
const struct hf_strategy hf_strategy_rediss = STRATEGY("rediss");
