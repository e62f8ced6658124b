/* waiters.c - messages: a lock was released, which waiters want to know,
 * or broken, which its holder wants to know. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "strategy/redlock/redlock.h"

#define NUDGE_MS 4          /* those who wait come back one by one */
#define LISTEN_AFTER_MS 200 /* a lock held for less needs no connections more */

/* A claim that was told to wait. */
struct waiter {
    struct hf_dlist link;
    bool nudged;
    struct hf_nonce nonce;
    size_t key_size;
    uint8_t key[];
};

static struct waiter *find_redlock_waiter(const struct hf_redlock *redlock,
                                          const struct hf_nonce *nonce)
{
    for (struct hf_dlist *link = redlock->waiters.next;
         link != &redlock->waiters; link = link->next) {
        struct waiter *waiter = HF_CONTAINER(link, struct waiter, link);

        if (hf_nonce_equal(&waiter->nonce, nonce))
            return waiter;
    }
    return NULL;
}

static bool has_waiter_for(const struct hf_redlock *redlock, struct hf_key key)
{
    for (struct hf_dlist *link = redlock->waiters.next;
         link != &redlock->waiters; link = link->next) {
        struct waiter *waiter = HF_CONTAINER(link, struct waiter, link);

        if (hf_key_equal((struct hf_key){waiter->key, waiter->key_size}, key))
            return true;
    }
    return false;
}

static void send_subscription(struct hf_redlock_server *server,
                              const char *word, struct hf_key channel)
{
    struct hf_redis_resp_args args = {.count = 0};

    hf_redis_resp_add_text(&args, word);
    hf_redis_resp_add(&args, channel.data, channel.size);
    if (server->pubsub.state == HF_REDIS_UP)
        (void)hf_redis_connection_send(&server->pubsub, NULL, &args);
}

static void send_subscribe(struct hf_redlock_server *server, const char *word,
                           struct hf_key key)
{
    char channel[HF_REDIS_KEY_SIZE];
    size_t size = hf_redis_keyspace_name(
        &server->address.space, server->redlock->freed_channel, key, channel);

    send_subscription(server, word, (struct hf_key){channel, size});
}

static struct hf_key forced_channel(const struct hf_redlock_server *server)
{
    return hf_key_of(server->address.space.shared[HF_REDIS_CHANNEL_FORCED]);
}

void hf_redlock_waiters_remove(struct hf_redlock *redlock,
                               const struct hf_nonce *nonce)
{
    struct waiter *waiter = find_redlock_waiter(redlock, nonce);
    struct hf_key key;

    if (!waiter)
        return;
    key = (struct hf_key){waiter->key, waiter->key_size};
    hf_dlist_remove(&waiter->link);
    for (unsigned i = 0; i < redlock->count && !has_waiter_for(redlock, key);
         i++)
        send_subscribe(&redlock->servers[i], "UNSUBSCRIBE", key);
    free(waiter);
}

/* The waiters for the key ask again, after a moment of this client's own, so
 * that not all clients come at once. */
static void nudge_waiters(struct hf_redlock *redlock, struct hf_key key)
{
    struct hf_host *host = redlock->host;
    struct hf_random *random = host->ops->random(host);
    bool any = false;

    for (struct hf_dlist *at = redlock->waiters.next; at != &redlock->waiters;
         at = at->next) {
        struct waiter *waiter = HF_CONTAINER(at, struct waiter, link);

        waiter->nudged =
            waiter->nudged ||
            hf_key_equal((struct hf_key){waiter->key, waiter->key_size}, key);
        any = any || waiter->nudged;
    }
    if (any && !redlock->nudge_pending)
        hf_timer_set(host, &redlock->nudge_timer,
                     hf_time_add(host->ops->now(host),
                                 hf_random_below(random, NUDGE_MS)));
    redlock->nudge_pending = redlock->nudge_pending || any;
}

/* A release is announced, or is from now on: what was released since the LOCK
 * said "busy" was not. */
static void on_freed(struct hf_redlock_server *server, struct hf_key channel)
{
    struct hf_redlock *redlock = server->redlock;
    size_t prefix = strlen(redlock->freed_channel);
    struct hf_key name;

    if (hf_redis_keyspace_strip(&server->address.space, channel, &name) &&
        hf_key_has_prefix(name,
                          (struct hf_key){redlock->freed_channel, prefix}))
        nudge_waiters(redlock, (struct hf_key){(const char *)name.data + prefix,
                                               name.size - prefix});
}

static bool hears_forced(const struct hf_redlock *redlock)
{
    bool hears = false;

    for (unsigned i = 0; i < redlock->count; i++)
        hears = hears || redlock->servers[i].hears_forced;
    return hears;
}

/* One server reports a broken lock. The holder renews it, and a majority decides.
 * Each server reports only after it has broken the lock, so the renewal that
 * follows the report of the majority's last server is refused. A subscription
 * has no token: if it is the first, any lock may have been broken before. */
static void on_forced(struct hf_redlock_server *server, const redisReply *token)
{
    struct hf_redlock *redlock = server->redlock;
    struct hf_host *host = redlock->host;
    bool first = !hears_forced(redlock);
    uint64_t number = HF_ANY_TOKEN;
    const char *text = token->str;

    if (token->type == REDIS_REPLY_STRING) {
        if (hf_redis_reply_next_number(&text, &number))
            host->ops->recheck(host, number);
        return;
    }
    server->hears_forced = true;
    if (first)
        host->ops->recheck(host, number);
}

static void on_release_message(struct hf_redis_connection *connection,
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
    if (hf_key_equal(channel, forced_channel(server)))
        on_forced(server, reply->element[2]);
    else
        on_freed(server, channel);
}

void hf_redlock_waiters_on_timer(struct hf_timer *timer)
{
    struct hf_redlock *redlock =
        HF_CONTAINER(timer, struct hf_redlock, nudge_timer);

    redlock->nudge_pending = false;
    for (struct hf_dlist *link = redlock->waiters.next;
         link != &redlock->waiters; link = link->next) {
        struct waiter *waiter = HF_CONTAINER(link, struct waiter, link);

        if (waiter->nudged)
            redlock->host->ops->nudge(redlock->host, &waiter->nonce);
        waiter->nudged = false;
    }
}

static void on_waiters_pubsub_up(struct hf_redis_connection *connection)
{
    struct hf_redlock_server *server =
        HF_CONTAINER(connection, struct hf_redlock_server, pubsub);
    struct hf_redlock *redlock = server->redlock;

    for (struct hf_dlist *at = redlock->waiters.next; at != &redlock->waiters;
         at = at->next) {
        struct waiter *waiter = HF_CONTAINER(at, struct waiter, link);

        send_subscribe(server, "SUBSCRIBE",
                       (struct hf_key){waiter->key, waiter->key_size});
    }
    if (redlock->keeps)
        send_subscription(server, "SUBSCRIBE", forced_channel(server));
}

static void news_down(struct hf_redis_connection *connection)
{
    HF_CONTAINER(connection, struct hf_redlock_server, pubsub)->hears_forced =
        false;
}

static const struct hf_redis_connection_ops pubsub_ops = {
    .up = on_waiters_pubsub_up,
    .down = news_down,
    .message = on_release_message,
};

/* False: it is open already. */
static bool open_news(struct hf_redlock_server *server)
{
    struct hf_redlock *redlock = server->redlock;

    if (hf_redis_connection_is_open(&server->pubsub))
        return false;
    (void)hf_redis_connection_open(&server->pubsub, redlock->host,
                                   &server->address, &pubsub_ops,
                                   redlock->identity.channel);
    return true;
}

static void subscribe_servers(struct hf_redlock *redlock, struct hf_key key)
{
    for (unsigned i = 0; i < redlock->count; i++) {
        if (!open_news(&redlock->servers[i]))
            send_subscribe(&redlock->servers[i], "SUBSCRIBE", key);
    }
}

void hf_redlock_listen_soon(struct hf_redlock *redlock)
{
    struct hf_host *host = redlock->host;

    if (redlock->keeps)
        return;
    redlock->keeps = true;
    hf_timer_set(host, &redlock->listen,
                 hf_time_add(host->ops->now(host), LISTEN_AFTER_MS));
}

void hf_redlock_on_listen(struct hf_timer *timer)
{
    struct hf_redlock *redlock = HF_CONTAINER(timer, struct hf_redlock, listen);

    for (unsigned i = 0; i < redlock->count; i++) {
        struct hf_redlock_server *server = &redlock->servers[i];

        if (!open_news(server))
            send_subscription(server, "SUBSCRIBE", forced_channel(server));
    }
}

/* Remember who waits, and listen. Where there is no memory for that, looking
 * again by and by is enough. */
void hf_redlock_waiters_add(struct hf_redlock *redlock,
                            const struct hf_command *command)
{
    bool listens = has_waiter_for(redlock, command->key);
    struct waiter *waiter;

    if (find_redlock_waiter(redlock, &command->nonce))
        return;
    waiter = calloc(1, sizeof(*waiter) + command->key.size);
    if (!waiter)
        return;
    waiter->nonce = command->nonce;
    waiter->key_size = command->key.size;
    hf_copy(waiter->key, command->key.data, command->key.size);
    hf_dlist_push_back(&redlock->waiters, &waiter->link);
    if (!listens)
        subscribe_servers(redlock, command->key);
}

void hf_redlock_waiters_fini(struct hf_redlock *redlock)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&redlock->waiters)))
        free(HF_CONTAINER(link, struct waiter, link));
}
