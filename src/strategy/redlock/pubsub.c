/* pubsub.c - messages from the servers. Each server has two kinds of channels:
 *
 *   one for each key   a release of the lock, for waiters
 *   one for all keys   the tokens of broken locks, for holders that renew */
#include <string.h>

#include "base/bytes.h"
#include "strategy/redlock/redlock.h"

/* A client that renews locks opens its pub/sub connections after this delay, so
 * that a client that is closed sooner never opens them for that purpose. */
#define PUBSUB_DELAY_MS 200

/* ---- Subscriptions ------------------------------------------------------*/

static void send_server_subscription(struct hf_redlock_server *server,
                                     const char *command, struct hf_key channel)
{
    struct hf_redis_resp_args args = {.count = 0};

    hf_redis_resp_add_text(&args, command);
    hf_redis_resp_add(&args, channel.data, channel.size);
    if (server->pubsub.state == HF_REDIS_UP)
        (void)hf_redis_connection_send(&server->pubsub, NULL, &args);
}

static void send_key_subscription(struct hf_redlock_server *server,
                                  const char *command, struct hf_key key)
{
    char channel[HF_REDIS_KEY_SIZE];
    size_t size = hf_redis_keyspace_name(
        &server->address.space, server->redlock->freed_channel, key, channel);

    send_server_subscription(server, command, (struct hf_key){channel, size});
}

static struct hf_key server_forced_channel(
    const struct hf_redlock_server *server)
{
    return hf_key_of(server->address.space.shared[HF_REDIS_CHANNEL_FORCED]);
}

/* ---- Messages -----------------------------------------------------------*/

/* Nudge the waiters for a key. Either its release was announced, or the
 * subscription to its channel has just begun, and this client may have missed
 * an earlier announcement. */
static void on_freed_message(struct hf_redlock_server *server,
                             struct hf_key channel)
{
    struct hf_redlock *redlock = server->redlock;
    size_t prefix = strlen(redlock->freed_channel);
    struct hf_key name;

    if (hf_redis_keyspace_strip(&server->address.space, channel, &name) &&
        hf_key_has_prefix(name,
                          (struct hf_key){redlock->freed_channel, prefix}))
        hf_redlock_waiters_nudge(
            redlock, (struct hf_key){(const char *)name.data + prefix,
                                     name.size - prefix});
}

static bool is_any_subscribed_to_forced(const struct hf_redlock *redlock)
{
    for (unsigned i = 0; i < redlock->count; i++) {
        if (redlock->servers[i].is_subscribed_to_forced)
            return true;
    }
    return false;
}

/* One server reports a broken lock. If this client holds the lock, it renews
 * it, and a majority decides. Each server reports only after it has broken the
 * lock. So once a majority has reported, the next renewal is refused.
 *
 * The confirmation of a SUBSCRIBE has no token. If this is the first server
 * that confirms, any lock may have been broken before, so recheck all locks. */
static void on_broken_message(struct hf_redlock_server *server,
                              const redisReply *token)
{
    struct hf_redlock *redlock = server->redlock;
    struct hf_host *host = redlock->host;
    bool first = !is_any_subscribed_to_forced(redlock);
    uint64_t number = HF_ANY_TOKEN;
    const char *text = token->str;

    if (token->type == REDIS_REPLY_STRING) {
        if (hf_redis_reply_next_number(&text, &number))
            host->ops->recheck(host, number);
        return;
    }
    server->is_subscribed_to_forced = true;
    if (first)
        host->ops->recheck(host, number);
}

static void on_server_message(struct hf_redis_connection *connection,
                              const redisReply *reply)
{
    struct hf_redlock_server *server =
        HF_CONTAINER(connection, struct hf_redlock_server, pubsub);
    const redisReply *kind, *name;
    struct hf_key channel;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3)
        return;
    kind = reply->element[0];
    name = reply->element[1];
    if (kind->type != REDIS_REPLY_STRING || name->type != REDIS_REPLY_STRING ||
        (strcmp(kind->str, "message") != 0 &&
         strcmp(kind->str, "subscribe") != 0))
        return;
    channel = (struct hf_key){name->str, name->len};
    if (hf_key_equal(channel, server_forced_channel(server)))
        on_broken_message(server, reply->element[2]);
    else
        on_freed_message(server, channel);
}

/* ---- Connections --------------------------------------------------------*/

static void on_server_pubsub_up(struct hf_redis_connection *connection)
{
    struct hf_redlock_server *server =
        HF_CONTAINER(connection, struct hf_redlock_server, pubsub);

    hf_redlock_waiters_subscribe(server);
    if (server->redlock->renews_locks)
        send_server_subscription(server, "SUBSCRIBE",
                                 server_forced_channel(server));
}

static void on_server_pubsub_down(struct hf_redis_connection *connection)
{
    HF_CONTAINER(connection, struct hf_redlock_server, pubsub)
        ->is_subscribed_to_forced = false;
}

static const struct hf_redis_connection_ops server_pubsub_ops = {
    .up = on_server_pubsub_up,
    .down = on_server_pubsub_down,
    .message = on_server_message,
};

/* Open the server's pub/sub connection. Returns false if it is open already. A
 * new connection subscribes by itself when it comes up. */
static bool open_server_pubsub(struct hf_redlock_server *server)
{
    struct hf_redlock *redlock = server->redlock;

    if (hf_redis_connection_is_open(&server->pubsub))
        return false;
    (void)hf_redis_connection_open(&server->pubsub, redlock->host,
                                   &server->address, &server_pubsub_ops,
                                   redlock->identity.channel);
    return true;
}

void hf_redlock_pubsub_subscribe_server(struct hf_redlock_server *server,
                                        struct hf_key key)
{
    send_key_subscription(server, "SUBSCRIBE", key);
}

void hf_redlock_pubsub_subscribe(struct hf_redlock *redlock, struct hf_key key)
{
    for (unsigned i = 0; i < redlock->count; i++) {
        if (!open_server_pubsub(&redlock->servers[i]))
            send_key_subscription(&redlock->servers[i], "SUBSCRIBE", key);
    }
}

void hf_redlock_pubsub_unsubscribe(struct hf_redlock *redlock,
                                   struct hf_key key)
{
    for (unsigned i = 0; i < redlock->count; i++)
        send_key_subscription(&redlock->servers[i], "UNSUBSCRIBE", key);
}

void hf_redlock_pubsub_open_soon(struct hf_redlock *redlock)
{
    struct hf_host *host = redlock->host;

    if (redlock->renews_locks)
        return;
    redlock->renews_locks = true;
    hf_timer_set(host, &redlock->pubsub_timer,
                 hf_time_add(host->ops->now(host), PUBSUB_DELAY_MS));
}

void hf_redlock_pubsub_on_timer(struct hf_timer *timer)
{
    struct hf_redlock *redlock =
        HF_CONTAINER(timer, struct hf_redlock, pubsub_timer);

    for (unsigned i = 0; i < redlock->count; i++) {
        struct hf_redlock_server *server = &redlock->servers[i];

        if (!open_server_pubsub(server))
            send_server_subscription(server, "SUBSCRIBE",
                                     server_forced_channel(server));
    }
}
