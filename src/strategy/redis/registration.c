/* registration.c - keep the watches of a client registered with the server.
 *
 * The server records events only for registered patterns. A watch first
 * subscribes to the channel of its pattern, so that it misses no message, and
 * is then registered by watch.lua. Registrations expire, so the timer `tick`
 * renews them. The reply of watch.lua also names the keys whose leases are due;
 * reading such a key makes the server record the expiry (read.lua). */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/siphash.h"
#include "strategy/redis/watch.h"

#define TICK_MS 3000   /* renewal interval; registrations last 10 s */
#define DUE_AGAIN_MS 2 /* delay of the tick after due keys; more may follow */
#define PART_MAX 256   /* watches in one call, as a script blocks the server */

/* ---- Channels -----------------------------------------------------------*/

#define PATTERN_SIZE (1 + HF_REDIS_KEY_SIZE)

/* Write the watch's pattern, '=KEY' or '^PREFIX' (patterns.lua). */
static struct hf_key pattern_of(const struct hf_redis *redis,
                                const struct hf_redis_watch *watch,
                                char to[PATTERN_SIZE])
{
    to[0] = watch->entry.exact ? '=' : '^';
    return (struct hf_key){to, 1 + hf_redis_keyspace_name(&redis->address.space,
                                                          "", watch->entry.key,
                                                          to + 1)};
}

/* The hash needs no secret, because only this program chooses its patterns. */
static uint64_t hash_pattern(struct hf_key pattern)
{
    static const struct hf_seed seed = {0};

    return hf_siphash(&seed, pattern.data, pattern.size);
}

/* The first watch with this pattern, starting at `link`; or NULL. */
static struct hf_redis_watch *find_match(const struct hf_redis *redis,
                                         struct hf_map_link *link,
                                         struct hf_key pattern)
{
    char own[PATTERN_SIZE];

    for (; link; link = hf_map_find_next(link)) {
        struct hf_redis_watch *watch =
            HF_CONTAINER(link, struct hf_redis_watch, by_pattern);

        if (hf_key_equal(pattern, pattern_of(redis, watch, own)))
            return watch;
    }
    return NULL;
}

static struct hf_redis_watch *first_match(const struct hf_redis *redis,
                                          struct hf_key pattern)
{
    return find_match(
        redis, hf_map_find(&redis->watches_by_pattern, hash_pattern(pattern)),
        pattern);
}

static struct hf_redis_watch *next_match(const struct hf_redis *redis,
                                         const struct hf_redis_watch *watch,
                                         struct hf_key pattern)
{
    return find_match(redis, hf_map_find_next(&watch->by_pattern), pattern);
}

void hf_redis_registration_add(struct hf_redis *redis,
                               struct hf_redis_watch *watch)
{
    char pattern[PATTERN_SIZE];

    hf_map_insert(&redis->watches_by_pattern, &watch->by_pattern,
                  hash_pattern(pattern_of(redis, watch, pattern)));
}

void hf_redis_registration_remove(struct hf_redis *redis,
                                  struct hf_redis_watch *watch)
{
    hf_map_remove(&redis->watches_by_pattern, &watch->by_pattern);
}

#define CHANNEL_SIZE (HF_REDIS_SPACE_MAX + HF_REDIS_PREFIX_MAX + PATTERN_SIZE)

/* The channel on which events.lua announces events: the name of the stream,
 * followed by the pattern. */
static struct hf_key channel_of(const struct hf_redis *redis,
                                const struct hf_redis_watch *watch,
                                char to[CHANNEL_SIZE])
{
    const char *events = redis->address.space.shared[HF_REDIS_KEY_EVENTS];
    size_t size = strlen(events);

    hf_copy(to, events, size);
    return (struct hf_key){to, size + pattern_of(redis, watch, to + size).size};
}

void hf_redis_registration_subscribe(struct hf_redis *redis,
                                     const struct hf_redis_watch *watch)
{
    char channel[CHANNEL_SIZE];

    hf_redis_pubsub_subscribe(redis, channel_of(redis, watch, channel));
}

void hf_redis_registration_subscribe_all(struct hf_redis *redis)
{
    const struct hf_redis_watch *watch = NULL;

    while ((watch = hf_watches_next(&redis->watches, watch)))
        hf_redis_registration_subscribe(redis, watch);
}

void hf_redis_registration_on_subscribed(struct hf_redis *redis,
                                         struct hf_key channel)
{
    struct hf_key events =
        hf_key_of(redis->address.space.shared[HF_REDIS_KEY_EVENTS]);
    struct hf_key pattern;
    struct hf_redis_watch *watch;

    if (!hf_key_has_prefix(channel, events))
        return;
    pattern = (struct hf_key){(const char *)channel.data + events.size,
                              channel.size - events.size};
    for (watch = first_match(redis, pattern); watch;
         watch = next_match(redis, watch, pattern))
        watch->subscribed = true;
    hf_redis_registration_send_new(redis);
}

void hf_redis_registration_reset(struct hf_redis *redis)
{
    struct hf_redis_watch *watch = NULL;

    while ((watch = hf_watches_next(&redis->watches, watch))) {
        watch->subscribed = false;
        watch->part = 0;
    }
}

/* Unsubscribe, unless another watch has the same pattern. */
void hf_redis_registration_unsubscribe(struct hf_redis *redis,
                                       const struct hf_redis_watch *watch)
{
    char channel[CHANNEL_SIZE], own[PATTERN_SIZE];
    struct hf_key pattern = pattern_of(redis, watch, own);
    const struct hf_redis_watch *other;

    for (other = first_match(redis, pattern); other;
         other = next_match(redis, other, pattern)) {
        if (!other->entry.removed)
            return;
    }
    hf_redis_pubsub_unsubscribe(redis, channel_of(redis, watch, channel));
}

/* ---- Replies ------------------------------------------------------------*/

static void free_read_call(struct hf_redis_call *call, const redisReply *reply)
{
    (void)reply;
    free(call);
}

/* Read a key whose lease is due, so that the server records the expiry. The
 * reply is discarded. */
static void send_due_read(struct hf_redis *redis, struct hf_key key)
{
    struct hf_redis_call *call = calloc(1, sizeof(*call));
    struct hf_redis_script_call script_call;

    if (!call)
        return; /* the next tick tries again */
    call->reply = free_read_call;
    hf_redis_script_call_read(&script_call, &redis->connection, key);
    if (!hf_redis_connection_send(&redis->connection, call, &script_call.args))
        free(call);
}

static void complete_watch(struct hf_redis *redis, struct hf_redis_watch *watch,
                           uint64_t index)
{
    struct hf_request *request = watch->opening;
    struct hf_key key = watch->entry.key;

    watch->opening = NULL;
    if (watch->next == 0)
        watch->next = request->from > 0 ? request->from : index + 1;
    request->answer.index = index;
    redis->host->ops->answer(redis->host, request);
    if (watch->entry.exact)
        send_due_read(redis, key);
    else
        (void)hf_redis_list_start(&redis->connection, key, NULL, NULL, NULL,
                                  NULL);
}

/* Report missed events to a watch. Its pattern has been registered only since
 * the event `since`, and earlier events may not have been recorded. So a watch
 * that still expects an earlier event has missed some. */
static void report_missed_events(struct hf_redis *redis,
                                 struct hf_redis_watch *watch, uint64_t since)
{
    struct hf_push_event push = {
        .watch = watch->entry.number,
        .event = {.kind = HF_EVENT_DROPPED, .index = since, .owner = ""},
    };

    if (watch->next == 0 || watch->next > since)
        return;
    watch->next = since + 1;
    redis->host->ops->event(redis->host, &push);
}

static void on_watch_registered(struct hf_redis *redis,
                                struct hf_redis_watch *watch, uint64_t since,
                                uint64_t index)
{
    if (watch->opening && since == 0)
        hf_redis_watch_fail(redis, watch, HF_ELIMIT,
                            "the prefixes watched on this server have too many "
                            "different lengths; watch longer or shorter ones");
    else if (watch->opening)
        complete_watch(redis, watch, index);
    if (!watch->entry.removed && since > 0)
        report_missed_events(redis, watch, since);
}

static void on_part_registered(struct hf_redis *redis, const redisReply *reply,
                               uint64_t index)
{
    struct hf_redis_watch *watch = NULL;

    redis->watches.busy = true;
    while ((watch = hf_watches_next(&redis->watches, watch))) {
        if (watch->part == redis->part)
            on_watch_registered(
                redis, watch,
                hf_redis_reply_number(reply->element[2 + watch->index_in_part]),
                index);
    }
    redis->watches.busy = false;
    hf_redis_watches_sweep(redis);
}

/* Decode the reply of watch.lua: {index, milliseconds until the next lease
 * expires or -1, the registration of each pattern, keys whose leases are
 * due}. */
static void decode_registration(struct hf_redis *redis, const redisReply *reply)
{
    uint64_t index = hf_redis_reply_number(reply->element[0]);
    long long left = reply->element[1]->integer;
    uint32_t next = left >= 0 && left < TICK_MS ? (uint32_t)left + 1 : TICK_MS;
    size_t due = 2 + redis->part_size;

    on_part_registered(redis, reply, index);
    for (size_t i = due; i < reply->elements; i++) {
        struct hf_key name = {reply->element[i]->str, reply->element[i]->len};
        struct hf_key key;

        if (hf_redis_keyspace_strip(&redis->address.space, name, &key))
            send_due_read(redis, key);
    }
    if (reply->elements > due)
        next = DUE_AGAIN_MS;
    if (!hf_watches_is_empty(&redis->watches))
        hf_redis_watch_set_tick(
            redis, hf_time_add(redis->host->ops->now(redis->host), next));
    hf_redis_watches_catch_up(redis, index);
}

static void on_registration_reply(struct hf_redis_call *call,
                                  const redisReply *reply)
{
    struct hf_redis *redis =
        HF_CONTAINER(call, struct hf_redis, registration_call);

    redis->registering = false;
    if (!reply)
        hf_redis_watches_fail(redis, HF_EUNAVAIL,
                              redis->connection.failure.text);
    else if (reply->type == REDIS_REPLY_ERROR)
        hf_redis_watches_fail(
            redis, hf_redis_reply_handle_error(&redis->connection, reply),
            reply->str);
    else if (reply->type == REDIS_REPLY_ARRAY &&
             reply->elements >= 2 + redis->part_size)
        decode_registration(redis, reply);
    else
        hf_redis_watches_fail(
            redis, HF_EPROTO,
            "unexpected reply to watch.lua: expected an array "
            "with an element for each pattern");
    if (reply)
        hf_redis_registration_send_new(redis);
}

/* ---- Parts --------------------------------------------------------------*/

/* A watch that is not subscribed yet is not registered, because it could miss
 * messages. */
static bool needs_registration(const struct hf_redis *redis,
                               const struct hf_redis_watch *watch)
{
    return watch->subscribed && watch->part < redis->round;
}

/* Assign up to PART_MAX of the watches that need registration to the next
 * part. */
static void choose_part(struct hf_redis *redis)
{
    struct hf_redis_watch *watch = NULL;

    redis->part++;
    redis->part_size = 0;
    while (redis->part_size < PART_MAX &&
           (watch = hf_watches_next(&redis->watches, watch))) {
        if (needs_registration(redis, watch)) {
            watch->part = redis->part;
            watch->index_in_part = redis->part_size++;
        }
    }
}

static void send_part(struct hf_redis *redis)
{
    const struct hf_redis_watch *watch = NULL;
    struct hf_buf bytes = {0};
    char to[PATTERN_SIZE];

    hf_redis_script_call_watch(&bytes, &redis->connection, redis->part_size);
    while ((watch = hf_watches_next(&redis->watches, watch))) {
        if (watch->part == redis->part) {
            struct hf_key pattern = pattern_of(redis, watch, to);

            hf_redis_resp_write_bulk(&bytes, pattern.data, pattern.size);
        }
    }
    redis->registration_call.reply = on_registration_reply;
    redis->registering =
        !bytes.failed && hf_redis_connection_send_bytes(
                             &redis->connection, &redis->registration_call,
                             bytes.data, bytes.size);
    hf_buf_fini(&bytes);
}

void hf_redis_registration_send_new(struct hf_redis *redis)
{
    if (redis->registering)
        return; /* the next part follows the reply */
    choose_part(redis);
    if (redis->part_size > 0)
        send_part(redis);
}

/* Send a part even if it registers nothing, because the reply also names the
 * keys whose leases are due. */
static void send_next_part(struct hf_redis *redis)
{
    if (redis->registering || hf_watches_is_empty(&redis->watches))
        return;
    choose_part(redis);
    send_part(redis);
}

static void begin_round(struct hf_redis *redis)
{
    redis->round = redis->part + 1;
    redis->round_at = redis->host->ops->now(redis->host);
}

void hf_redis_registration_renew_all(struct hf_redis *redis)
{
    begin_round(redis);
    send_next_part(redis);
}

/* A tick may come early, because a lease is due. So renew the registrations
 * only if TICK_MS have passed. */
void hf_redis_registration_on_tick(struct hf_timer *timer)
{
    struct hf_redis *redis = HF_CONTAINER(timer, struct hf_redis, tick);
    hf_time now = redis->host->ops->now(redis->host);

    hf_redis_watch_set_tick(redis, hf_time_add(now, TICK_MS));
    if (now >= hf_time_add(redis->round_at, TICK_MS))
        begin_round(redis);
    send_next_part(redis);
}
