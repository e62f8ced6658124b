/* interest.c - what is watched, as the server is told: registered, subscribed
 * to, and looked at when a lease ought to have ended. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "strategy/redis/watch.h"

#define TICK_MS 3000 /* a registration ends after 10 s: watch.lua */
#define DUE_AGAIN_MS 2

/* ---- Channels -----------------------------------------------------------*/

/* '=KEY' or '^PREFIX', as interest.lua has it; its size is returned. */
static size_t write_pattern(const struct hf_redis *redis,
                            const struct hf_redis_watch *watch,
                            char to[1 + HF_REDIS_KEY_SIZE])
{
    to[0] = watch->exact ? '=' : '^';
    return 1 + hf_redis_keyspace_name(
                   &redis->address.space, "",
                   (struct hf_key){watch->key, watch->key_size}, to + 1);
}

#define CHANNEL_SIZE                                                           \
    (HF_REDIS_SPACE_MAX + HF_REDIS_PREFIX_MAX + 1 + HF_REDIS_KEY_SIZE)

/* Where events.lua says that there are events: the name of the stream, and the
 * pattern. */
static struct hf_key channel_of(const struct hf_redis *redis,
                                const struct hf_redis_watch *watch,
                                char to[CHANNEL_SIZE])
{
    const char *events = redis->address.space.shared[HF_REDIS_KEY_EVENTS];
    size_t size = strlen(events);

    memcpy(to, events, size);
    return (struct hf_key){to, size + write_pattern(redis, watch, to + size)};
}

void hf_redis_watch_subscribe(struct hf_redis *redis,
                              const struct hf_redis_watch *watch)
{
    char channel[CHANNEL_SIZE];

    hf_redis_news_subscribe(redis, channel_of(redis, watch, channel));
}

void hf_redis_watches_subscribe(struct hf_redis *redis)
{
    for (struct hf_list *link = redis->watches.next; link != &redis->watches;
         link = link->next)
        hf_redis_watch_subscribe(redis, hf_redis_watch_of(link));
}

void hf_redis_watches_subscribed(struct hf_redis *redis, struct hf_key channel)
{
    char own[CHANNEL_SIZE];

    for (struct hf_list *link = redis->watches.next; link != &redis->watches;
         link = link->next) {
        struct hf_redis_watch *watch = hf_redis_watch_of(link);

        if (hf_key_equal(channel, channel_of(redis, watch, own)))
            watch->subscribed = true;
    }
    hf_redis_look_due(redis);
}

void hf_redis_watches_deaf(struct hf_redis *redis)
{
    for (struct hf_list *link = redis->watches.next; link != &redis->watches;
         link = link->next)
        hf_redis_watch_of(link)->subscribed = false;
}

/* Unless another watch wants the same. */
void hf_redis_watch_unsubscribe(struct hf_redis *redis,
                                const struct hf_redis_watch *watch)
{
    char channel[CHANNEL_SIZE], other[CHANNEL_SIZE];
    struct hf_key own = channel_of(redis, watch, channel);

    for (struct hf_list *link = redis->watches.next; link != &redis->watches;
         link = link->next) {
        if (!hf_redis_watch_of(link)->gone &&
            hf_key_equal(own,
                         channel_of(redis, hf_redis_watch_of(link), other)))
            return;
    }
    hf_redis_news_unsubscribe(redis, own);
}

/* ---- Looking for what is due --------------------------------------------*/

static void forget(struct hf_redis_call *call, const redisReply *reply)
{
    (void)reply;
    free(call);
}

/* The look itself notes what it finds. */
static void look_at(struct hf_redis *redis, struct hf_key key)
{
    struct hf_redis_call *call = calloc(1, sizeof(*call));
    struct hf_redis_words words;

    if (!call)
        return; /* the next tick */
    call->reply = forget;
    hf_redis_read(&words, &redis->link, key);
    if (!hf_redis_link_send(&redis->link, call, &words.args))
        free(call);
}

static void open_watch(struct hf_redis *redis, struct hf_redis_watch *watch,
                       uint64_t index)
{
    struct hf_request *request = watch->opening;
    struct hf_key key = {watch->key, watch->key_size};

    watch->opening = NULL;
    if (watch->next == 0)
        watch->next = request->from > 0 ? request->from : index + 1;
    request->answer.index = index;
    redis->host->ops->answer(redis->host, request);
    if (watch->exact)
        look_at(redis, key);
    else
        (void)hf_redis_list_start(&redis->link, key, NULL, NULL, NULL, NULL);
}

/* Events before `since` may not have been recorded, if the registration had
 * ended: a watch that is behind has missed some. */
static void see_missed(struct hf_redis *redis, struct hf_redis_watch *watch,
                       uint64_t since)
{
    struct hf_push_event push = {
        .watch = watch->number,
        .event = {.kind = HF_EVENT_DROPPED, .index = since, .owner = ""},
    };

    if (watch->next == 0 || watch->next > since || HF_MUTANT(164))
        return;
    watch->next = since + 1;
    redis->host->ops->event(redis->host, &push);
}

static void take_registered(struct hf_redis *redis,
                            struct hf_redis_watch *watch, uint64_t since,
                            uint64_t index)
{
    if (watch->opening && since == 0)
        hf_redis_watch_refuse(
            redis, watch, HF_ELIMIT,
            "prefixes of too many lengths are watched on this "
            "server");
    else if (watch->opening)
        open_watch(redis, watch, index);
    if (!watch->gone && since > 0)
        see_missed(redis, watch, since);
}

static void take_all_registered(struct hf_redis *redis, const redisReply *reply,
                                uint64_t index)
{
    redis->telling = true;
    for (struct hf_list *link = redis->watches.next; link != &redis->watches;
         link = link->next) {
        struct hf_redis_watch *watch = hf_redis_watch_of(link);
        size_t at = watch->in_look;

        if (at == 0 || at + 1 >= reply->elements)
            continue;
        watch->in_look = 0;
        if (!watch->gone)
            take_registered(redis, watch,
                            hf_redis_digits(reply->element[at + 1]), index);
    }
    redis->telling = false;
    hf_redis_watches_sweep(redis);
}

/* {index, milliseconds until the next lease ends or -1, since when each is
 * registered, keys that are due} */
static void take_look(struct hf_redis *redis, const redisReply *reply)
{
    uint64_t index = hf_redis_digits(reply->element[0]);
    long long left = reply->element[1]->integer;
    uint32_t next = left >= 0 && left < TICK_MS ? (uint32_t)left + 1 : TICK_MS;
    size_t due = 2 + redis->in_look;

    take_all_registered(redis, reply, index);
    for (size_t i = due; i < reply->elements; i++) {
        struct hf_key name = {reply->element[i]->str, reply->element[i]->len};
        struct hf_key key;

        if (hf_redis_keyspace_strip(&redis->address.space, name, &key))
            look_at(redis, key);
    }
    if (reply->elements > due)
        next = DUE_AGAIN_MS;
    if (!hf_list_empty(&redis->watches))
        hf_redis_tick_at(redis,
                         hf_time_add(redis->host->ops->now(redis->host), next));
    hf_redis_watches_catch_up(redis, index);
}

static void looked(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redis *redis = HF_CONTAINER(call, struct hf_redis, look);

    redis->looking = false;
    if (!reply)
        hf_redis_refuse_watches(redis, HF_EUNAVAIL, redis->link.failure.text);
    else if (reply->type == REDIS_REPLY_ERROR)
        hf_redis_refuse_watches(redis, hf_redis_failure(&redis->link, reply),
                                reply->str);
    else if (reply->type == REDIS_REPLY_ARRAY &&
             reply->elements >= 2 + redis->in_look)
        take_look(redis, reply);
    else
        hf_redis_refuse_watches(redis, HF_EPROTO,
                                "unexpected reply of watch.lua");
    if (redis->look_again)
        hf_redis_look_due(redis);
}

/* What is subscribed to: what happens from now on is heard of. */
static size_t count_subscribed(struct hf_redis *redis)
{
    size_t count = 0;

    for (struct hf_list *link = redis->watches.next; link != &redis->watches;
         link = link->next) {
        struct hf_redis_watch *watch = hf_redis_watch_of(link);

        watch->in_look = 0;
        if (!watch->gone && watch->subscribed)
            watch->in_look = ++count;
    }
    return count;
}

void hf_redis_look_due(struct hf_redis *redis)
{
    struct hf_buf bytes = {0};
    char pattern[1 + HF_REDIS_KEY_SIZE];

    redis->look_again = redis->looking;
    if (redis->looking || hf_list_empty(&redis->watches))
        return;
    redis->in_look = count_subscribed(redis);
    hf_redis_look(&bytes, &redis->link, redis->in_look);
    for (struct hf_list *link = redis->watches.next; link != &redis->watches;
         link = link->next) {
        if (hf_redis_watch_of(link)->in_look > 0)
            hf_redis_say(
                &bytes, pattern,
                write_pattern(redis, hf_redis_watch_of(link), pattern));
    }
    redis->look.reply = looked;
    redis->looking =
        !bytes.failed && hf_redis_link_send_bytes(&redis->link, &redis->look,
                                                  bytes.data, bytes.size);
    hf_buf_fini(&bytes);
}

void hf_redis_on_tick(struct hf_timer *timer)
{
    struct hf_redis *redis = HF_CONTAINER(timer, struct hf_redis, tick);

    hf_redis_tick_at(redis,
                     hf_time_add(redis->host->ops->now(redis->host), TICK_MS));
    hf_redis_look_due(redis);
}
