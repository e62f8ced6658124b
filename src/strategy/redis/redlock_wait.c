/* redlock_wait.c - who waits, and is told when a lock is given back. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "strategy/redis/redlock.h"

#define NUDGE_MS 4 /* those who wait come back one by one */

/* A claim that was told to wait. */
struct waiter {
    struct hf_list link;
    bool nudged;
    struct hf_nonce nonce;
    size_t key_size;
    uint8_t key[];
};

static struct waiter *find_waiter(const struct hf_redlock *redlock,
                                  const struct hf_nonce *nonce)
{
    for (struct hf_list *link = redlock->waiters.next;
         link != &redlock->waiters; link = link->next) {
        struct waiter *waiter = HF_CONTAINER(link, struct waiter, link);

        if (hf_nonce_equal(&waiter->nonce, nonce))
            return waiter;
    }
    return NULL;
}

static bool waits_for(const struct hf_redlock *redlock, struct hf_key key)
{
    for (struct hf_list *link = redlock->waiters.next;
         link != &redlock->waiters; link = link->next) {
        struct waiter *waiter = HF_CONTAINER(link, struct waiter, link);

        if (hf_key_equal((struct hf_key){waiter->key, waiter->key_size}, key))
            return true;
    }
    return false;
}

static void tell_server(struct hf_redlock_server *server, const char *word,
                        struct hf_key key)
{
    struct hf_redis_args args = {.count = 0};
    char channel[HF_REDIS_KEY_SIZE];
    size_t size = hf_redis_keyspace_name(&server->address.space,
                                         server->redlock->freed, key, channel);

    hf_redis_add_text(&args, word);
    hf_redis_add(&args, channel, size);
    if (server->news.state == HF_REDIS_UP)
        (void)hf_redis_link_send(&server->news, NULL, &args);
}

void hf_redlock_forget_waiter(struct hf_redlock *redlock,
                              const struct hf_nonce *nonce)
{
    struct waiter *waiter = find_waiter(redlock, nonce);
    struct hf_key key;

    if (!waiter)
        return;
    key = (struct hf_key){waiter->key, waiter->key_size};
    hf_list_remove(&waiter->link);
    for (unsigned i = 0; i < redlock->count && !waits_for(redlock, key); i++)
        tell_server(&redlock->servers[i], "UNSUBSCRIBE", key);
    free(waiter);
}

/* The waiters for the key ask again, after a moment of this client's own, so
 * that not all clients come at once. */
static void nudge_waiters(struct hf_redlock *redlock, struct hf_key key)
{
    struct hf_host *host = redlock->host;
    struct hf_random *random = host->ops->random(host);
    bool any = false;

    for (struct hf_list *at = redlock->waiters.next; at != &redlock->waiters;
         at = at->next) {
        struct waiter *waiter = HF_CONTAINER(at, struct waiter, link);

        waiter->nudged =
            waiter->nudged ||
            hf_key_equal((struct hf_key){waiter->key, waiter->key_size}, key);
        any = any || waiter->nudged;
    }
    if (any && !redlock->nudging)
        hf_timer_set(host, &redlock->nudge,
                     hf_time_add(host->ops->now(host),
                                 hf_random_below(random, NUDGE_MS)));
    redlock->nudging = redlock->nudging || any;
}

/* A release is announced, or is from now on: what was released since the LOCK
 * said "busy" was not. */
static void on_message(struct hf_redis_link *link, const redisReply *reply)
{
    struct hf_redlock *redlock =
        HF_CONTAINER(link, struct hf_redlock_server, news)->redlock;
    size_t prefix = strlen(redlock->freed);
    const redisReply *kind, *channel;
    struct hf_key name;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3)
        return;
    kind = reply->element[0];
    channel = reply->element[1];
    if (kind->type != REDIS_REPLY_STRING ||
        channel->type != REDIS_REPLY_STRING ||
        !hf_redis_keyspace_strip(&link->address->space,
                                 (struct hf_key){channel->str, channel->len},
                                 &name) ||
        !hf_key_has_prefix(name, (struct hf_key){redlock->freed, prefix}))
        return;
    if (!strcmp(kind->str, "message") || !strcmp(kind->str, "subscribe"))
        nudge_waiters(redlock, (struct hf_key){(const char *)name.data + prefix,
                                               name.size - prefix});
}

void hf_redlock_on_nudge(struct hf_timer *timer)
{
    struct hf_redlock *redlock = HF_CONTAINER(timer, struct hf_redlock, nudge);

    redlock->nudging = false;
    for (struct hf_list *link = redlock->waiters.next;
         link != &redlock->waiters; link = link->next) {
        struct waiter *waiter = HF_CONTAINER(link, struct waiter, link);

        if (waiter->nudged)
            redlock->host->ops->nudge(redlock->host, &waiter->nonce);
        waiter->nudged = false;
    }
}

static void news_up(struct hf_redis_link *link)
{
    struct hf_redlock_server *server =
        HF_CONTAINER(link, struct hf_redlock_server, news);
    struct hf_redlock *redlock = server->redlock;

    for (struct hf_list *at = redlock->waiters.next; at != &redlock->waiters;
         at = at->next) {
        struct waiter *waiter = HF_CONTAINER(at, struct waiter, link);

        tell_server(server, "SUBSCRIBE",
                    (struct hf_key){waiter->key, waiter->key_size});
    }
}

static void ignore(struct hf_redis_link *link)
{
    (void)link;
}

static const struct hf_redis_link_ops news_ops = {
    .up = news_up,
    .down = ignore,
    .message = on_message,
};

static void listen_for(struct hf_redlock *redlock, struct hf_key key)
{
    for (unsigned i = 0; i < redlock->count; i++) {
        struct hf_redlock_server *server = &redlock->servers[i];

        if (hf_redis_link_is_open(&server->news))
            tell_server(server, "SUBSCRIBE", key);
        else
            (void)hf_redis_link_open(&server->news, redlock->host,
                                     &server->address, &news_ops,
                                     redlock->asker.channel);
    }
}

/* Remember who waits, and listen. Where there is no memory for that, looking
 * again by and by is enough. */
void hf_redlock_add_waiter(struct hf_redlock *redlock,
                           const struct hf_command *command)
{
    bool listens = waits_for(redlock, command->key);
    struct waiter *waiter;

    if (find_waiter(redlock, &command->nonce))
        return;
    waiter = calloc(1, sizeof(*waiter) + command->key.size);
    if (!waiter)
        return;
    waiter->nonce = command->nonce;
    waiter->key_size = command->key.size;
    hf_copy(waiter->key, command->key.data, command->key.size);
    hf_list_push_back(&redlock->waiters, &waiter->link);
    if (!listens)
        listen_for(redlock, command->key);
}

void hf_redlock_forget_waiters(struct hf_redlock *redlock)
{
    struct hf_list *link;

    while ((link = hf_list_take(&redlock->waiters)))
        free(HF_CONTAINER(link, struct waiter, link));
}
