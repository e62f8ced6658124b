/* news.c - messages from the server: grants, on a channel of this client's own;
 * the tokens of locks that were broken, on one channel for all clients; and
 * that there are events, on one channel for each key or prefix that is
 * watched. */
#include <string.h>

#define LISTEN_AFTER_MS                                                        \
    200 /* a lock held for less needs no second connection */

#include "strategy/redis/redis.h"

/* ---- Messages -----------------------------------------------------------*/

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_nonce(const char *text, struct hf_nonce *nonce)
{
    for (size_t i = 0; i < sizeof(nonce->bytes); i++) {
        int high = hex_digit(text[2 * i]);
        int low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);

        if (low < 0)
            return false;
        nonce->bytes[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

/* grant NONCE TOKEN SENT: the lease is counted from after what this client
 * sent at SENT, its last sign of life. */
static void hear_grant(struct hf_redis *redis, const char *text)
{
    static const char word[] = "grant ";
    struct hf_push_grant grant = {.anchor.known = true};
    const char *at = text + strlen(word);
    uint64_t sent;

    if (strncmp(text, word, strlen(word)) != 0 || !read_nonce(at, &grant.nonce))
        return;
    at += HF_REDIS_NONCE_SIZE;
    if (*at++ != ' ' || !hf_redis_next(&at, &grant.token) ||
        !hf_redis_next(&at, &sent))
        return;
    /* Replicas are waited for once it is renewed (redis.c). */
    grant.anchor.sent = redis->wait_replicas > 0 ? 0 : (hf_time)sent;
    redis->host->ops->grant(redis->host, &grant);
}

/* The message is the token; an answer to SUBSCRIBE has none. Then any lock may
 * have been broken before. */
static void on_forced(struct hf_redis *redis, const char *text)
{
    uint64_t token = HF_ANY_TOKEN;

    if (!text || (hf_redis_next(&text, &token) && token != HF_ANY_TOKEN))
        redis->host->ops->recheck(redis->host, token);
}

static void send_subscription(struct hf_redis *redis, const char *word,
                              struct hf_key channel)
{
    struct hf_redis_args args = {.count = 0};

    hf_redis_add_text(&args, word);
    hf_redis_add(&args, channel.data, channel.size);
    (void)hf_redis_link_send(&redis->news, NULL, &args);
}

static struct hf_key forced_channel(const struct hf_redis *redis)
{
    return hf_key(redis->address.space.shared[HF_REDIS_CHANNEL_FORCED]);
}

static bool is_forced_channel(const struct hf_redis *redis,
                              struct hf_key channel)
{
    return hf_key_equal(channel, forced_channel(redis));
}

static struct hf_redis_request *take_held(struct hf_redis *redis)
{
    struct hf_list *link = hf_list_take(&redis->until_heard);

    return link ? HF_CONTAINER(link, struct hf_redis_request, held_back) : NULL;
}

static void message(struct hf_redis_link *link, const redisReply *reply)
{
    struct hf_redis *redis = HF_CONTAINER(link, struct hf_redis, news);
    struct hf_key channel;
    const char *kind;

    if (reply->type == REDIS_REPLY_ERROR) {
        hf_redis_link_drop(link, HF_EUNAVAIL, reply->str);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3 ||
        reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_STRING)
        return;
    kind = reply->element[0]->str;
    channel = (struct hf_key){reply->element[1]->str, reply->element[1]->len};
    if (!strcmp(kind, "subscribe") && is_forced_channel(redis, channel))
        on_forced(redis, NULL);
    else if (!strcmp(kind, "subscribe"))
        hf_redis_watches_subscribed(redis, channel);
    else if (strcmp(kind, "message") != 0 ||
             reply->element[2]->type != REDIS_REPLY_STRING)
        return;
    else if (hf_key_equal(channel, hf_key(redis->asker.channel)))
        hear_grant(redis, reply->element[2]->str);
    else if (is_forced_channel(redis, channel))
        on_forced(redis, reply->element[2]->str);
    else
        hf_redis_fetch(redis);
}

static void news_up(struct hf_redis_link *link)
{
    struct hf_redis *redis = HF_CONTAINER(link, struct hf_redis, news);
    struct hf_redis_request *request;

    redis->hears_grants = true;
    if (redis->keeps)
        send_subscription(redis, "SUBSCRIBE", forced_channel(redis));
    while ((request = take_held(redis)))
        hf_redis_send_lock(request);
    hf_redis_watches_subscribe(redis);
}

static void news_down(struct hf_redis_link *link)
{
    struct hf_redis *redis = HF_CONTAINER(link, struct hf_redis, news);
    struct hf_redis_request *request;

    redis->hears_grants = false;
    hf_redis_watches_deaf(redis);
    while ((request = take_held(redis)))
        hf_redis_refuse(request, HF_EUNAVAIL, link->failure.text);
    hf_redis_refuse_watches(redis, HF_EUNAVAIL, link->failure.text);
}

static const struct hf_redis_link_ops news_ops = {
    .up = news_up,
    .down = news_down,
    .message = message,
};

bool hf_redis_news_open(struct hf_redis *redis)
{
    if (hf_redis_link_is_open(&redis->news))
        return true;
    return !hf_redis_link_open(&redis->news, redis->host, &redis->address,
                               &news_ops, redis->asker.channel);
}

/* ---- What is asked of it ------------------------------------------------*/

static void on_listen(struct hf_timer *timer)
{
    (void)hf_redis_news_open(HF_CONTAINER(timer, struct hf_redis, listen));
}

enum hf_err hf_redis_listen_open(struct hf_redis *redis)
{
    redis->listen.fire = on_listen;
    return redis->host->ops->timer_add(redis->host, &redis->listen);
}

void hf_redis_listen_close(struct hf_redis *redis)
{
    redis->host->ops->timer_remove(redis->host, &redis->listen);
}

void hf_redis_listen_soon(struct hf_redis *redis)
{
    struct hf_host *host = redis->host;

    if (redis->keeps)
        return;
    redis->keeps = true;
    if (hf_redis_link_is_open(&redis->news))
        hf_redis_news_subscribe(redis, forced_channel(redis));
    else
        hf_timer_set(host, &redis->listen,
                     host->ops->now(host) + LISTEN_AFTER_MS);
}

void hf_redis_news_hold(struct hf_redis *redis,
                        struct hf_redis_request *request)
{
    if (hf_redis_news_open(redis))
        hf_list_push_back(&redis->until_heard, &request->held_back);
    else
        hf_redis_refuse(request, HF_ENOMEM, hf_err_text(HF_ENOMEM));
}

void hf_redis_news_subscribe(struct hf_redis *redis, struct hf_key channel)
{
    if (redis->hears_grants)
        send_subscription(redis, "SUBSCRIBE", channel);
}

void hf_redis_news_unsubscribe(struct hf_redis *redis, struct hf_key channel)
{
    if (redis->hears_grants)
        send_subscription(redis, "UNSUBSCRIBE", channel);
}
