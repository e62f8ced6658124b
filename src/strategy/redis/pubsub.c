/* pubsub.c - messages from the server. There are three kinds of channels:
 *
 *   one for each client            grants for its waiters
 *   one for all clients            the tokens of locks that were broken
 *   one for each watched pattern   "there are new events" */
#include <string.h>

#include "base/hex.h"
#include "strategy/redis/redis.h"

/* A client that renews locks opens its pub/sub connection after this delay, so
 * that a client that is closed sooner never opens it for that purpose. */
#define PUBSUB_DELAY_MS 200

/* ---- Messages -----------------------------------------------------------*/

/* Handle the message "grant NONCE TOKEN SENT". SENT is when this client sent
 * its last heartbeat, or a LOCK that counts as one. The lease started after
 * that, so validity may count from SENT. */
static void on_grant_message(struct hf_redis *redis, const char *text)
{
    static const char word[] = "grant ";
    struct hf_push_grant grant = {.anchor.known = true};
    const char *at = text + strlen(word);
    uint64_t sent;

    if (strncmp(text, word, strlen(word)) != 0 ||
        !hf_hex_decode(grant.nonce.bytes, sizeof(grant.nonce.bytes), at))
        return;
    at += HF_REDIS_NONCE_SIZE;
    if (*at++ != ' ' || !hf_redis_reply_next_number(&at, &grant.token) ||
        !hf_redis_reply_next_number(&at, &sent))
        return;
    /* With ?wait_replicas= set an old anchor, so that the client renews at
     * once: the answer to that renewal waits for the replicas (age_anchor() in
     * redis.c). */
    grant.anchor.sent = redis->wait_replicas > 0 ? 0 : (hf_time)sent;
    redis->host->ops->grant(redis->host, &grant);
}

/* `text` is the token of the broken lock. It is NULL when the subscription
 * begins: any lock may have been broken before, so recheck all of them. */
static void on_forced_message(struct hf_redis *redis, const char *text)
{
    uint64_t token = HF_ANY_TOKEN;

    if (!text ||
        (hf_redis_reply_next_number(&text, &token) && token != HF_ANY_TOKEN))
        redis->host->ops->recheck(redis->host, token);
}

static void send_subscription(struct hf_redis *redis, const char *command,
                              struct hf_key channel)
{
    struct hf_redis_resp_args args = {.count = 0};

    hf_redis_resp_add_text(&args, command);
    hf_redis_resp_add(&args, channel.data, channel.size);
    (void)hf_redis_connection_send(&redis->pubsub, NULL, &args);
}

static struct hf_key forced_channel(const struct hf_redis *redis)
{
    return hf_key_of(redis->address.space.shared[HF_REDIS_CHANNEL_FORCED]);
}

static bool is_forced_channel(const struct hf_redis *redis,
                              struct hf_key channel)
{
    return hf_key_equal(channel, forced_channel(redis));
}

static struct hf_redis_request *take_held_lock(struct hf_redis *redis)
{
    struct hf_dlist *link = hf_dlist_take(&redis->until_subscribed);

    return link ? HF_CONTAINER(link, struct hf_redis_request, held_back) : NULL;
}

static void on_pubsub_message(struct hf_redis_connection *connection,
                              const redisReply *reply)
{
    struct hf_redis *redis = HF_CONTAINER(connection, struct hf_redis, pubsub);
    struct hf_key channel;
    const char *kind;

    if (reply->type == REDIS_REPLY_ERROR) {
        hf_redis_connection_drop(connection, HF_EUNAVAIL, reply->str);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3 ||
        reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_STRING)
        return;
    kind = reply->element[0]->str;
    channel = (struct hf_key){reply->element[1]->str, reply->element[1]->len};
    if (!strcmp(kind, "subscribe") && is_forced_channel(redis, channel))
        on_forced_message(redis, NULL);
    else if (!strcmp(kind, "subscribe"))
        hf_redis_registration_on_subscribed(redis, channel);
    else if (strcmp(kind, "message") != 0 ||
             reply->element[2]->type != REDIS_REPLY_STRING)
        return;
    else if (hf_key_equal(channel, hf_key_of(redis->identity.channel)))
        on_grant_message(redis, reply->element[2]->str);
    else if (is_forced_channel(redis, channel))
        on_forced_message(redis, reply->element[2]->str);
    else
        hf_redis_watch_fetch(redis);
}

static void on_pubsub_up(struct hf_redis_connection *connection)
{
    struct hf_redis *redis = HF_CONTAINER(connection, struct hf_redis, pubsub);
    struct hf_redis_request *request;

    redis->pubsub_ready = true;
    if (redis->renews_locks)
        send_subscription(redis, "SUBSCRIBE", forced_channel(redis));
    while ((request = take_held_lock(redis)))
        hf_redis_request_send_lock(request);
    hf_redis_registration_subscribe_all(redis);
}

static void on_pubsub_down(struct hf_redis_connection *connection)
{
    struct hf_redis *redis = HF_CONTAINER(connection, struct hf_redis, pubsub);
    struct hf_redis_request *request;

    redis->pubsub_ready = false;
    hf_redis_registration_reset(redis);
    while ((request = take_held_lock(redis)))
        hf_redis_request_fail(request, HF_EUNAVAIL, connection->failure.text);
    hf_redis_watches_fail(redis, HF_EUNAVAIL, connection->failure.text);
}

static const struct hf_redis_connection_ops pubsub_ops = {
    .up = on_pubsub_up,
    .down = on_pubsub_down,
    .message = on_pubsub_message,
};

bool hf_redis_pubsub_open(struct hf_redis *redis)
{
    if (hf_redis_connection_is_open(&redis->pubsub))
        return true;
    return !hf_redis_connection_open(&redis->pubsub, redis->host,
                                     &redis->address, &pubsub_ops,
                                     redis->identity.channel);
}

/* ---- Opening and subscribing --------------------------------------------*/

static void on_pubsub_timer(struct hf_timer *timer)
{
    (void)hf_redis_pubsub_open(
        HF_CONTAINER(timer, struct hf_redis, pubsub_timer));
}

enum hf_err hf_redis_pubsub_init(struct hf_redis *redis)
{
    redis->pubsub_timer.fire = on_pubsub_timer;
    return redis->host->ops->timer_add(redis->host, &redis->pubsub_timer);
}

void hf_redis_pubsub_fini(struct hf_redis *redis)
{
    redis->host->ops->timer_remove(redis->host, &redis->pubsub_timer);
}

void hf_redis_pubsub_open_soon(struct hf_redis *redis)
{
    struct hf_host *host = redis->host;

    if (redis->renews_locks)
        return;
    redis->renews_locks = true;
    if (hf_redis_connection_is_open(&redis->pubsub))
        hf_redis_pubsub_subscribe(redis, forced_channel(redis));
    else
        hf_timer_set(host, &redis->pubsub_timer,
                     host->ops->now(host) + PUBSUB_DELAY_MS);
}

void hf_redis_pubsub_hold_lock(struct hf_redis *redis,
                               struct hf_redis_request *request)
{
    if (hf_redis_pubsub_open(redis))
        hf_dlist_push_back(&redis->until_subscribed, &request->held_back);
    else
        hf_redis_request_fail(request, HF_ENOMEM, hf_err_text(HF_ENOMEM));
}

void hf_redis_pubsub_subscribe(struct hf_redis *redis, struct hf_key channel)
{
    if (redis->pubsub_ready)
        send_subscription(redis, "SUBSCRIBE", channel);
}

void hf_redis_pubsub_unsubscribe(struct hf_redis *redis, struct hf_key channel)
{
    if (redis->pubsub_ready)
        send_subscription(redis, "UNSUBSCRIBE", channel);
}
