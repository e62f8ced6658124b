/* watch.c - the watches of a client, and the events that they receive.
 *
 * The server appends events to a stream. A message only announces that there
 * are new ones (pubsub.c); the client then reads the stream from the first
 * index that one of its watches needs. So a lost message does no harm: the
 * events are read after the next message, when a connection is up again, or at
 * the next tick. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "strategy/redis/watch.h"

#define FETCH_COUNT 512 /* events in one reply */

/* ---- Watches ------------------------------------------------------------*/

/* The lowest index that a watch needs next; UINT64_MAX if there is none. */
static uint64_t next_index_needed(const struct hf_redis *redis)
{
    const struct hf_redis_watch *watch = NULL;
    uint64_t lowest = UINT64_MAX;

    while ((watch = hf_watches_next(&redis->watches, watch))) {
        if (watch->next > 0 && watch->next < lowest)
            lowest = watch->next;
    }
    return lowest;
}

/* Replies contain the index of the newest event, so a lost message is noticed
 * before the next tick. */
void hf_redis_watches_catch_up(struct hf_redis *redis, uint64_t index)
{
    if (next_index_needed(redis) <= index)
        hf_redis_watch_fetch(redis);
}

void hf_redis_watch_set_tick(struct hf_redis *redis, hf_time at)
{
    redis->tick_at = at;
    hf_timer_set(redis->host, &redis->tick, at);
}

static void on_watch_free(void *entry, void *arg)
{
    hf_redis_registration_remove(arg, entry);
}

void hf_redis_watches_sweep(struct hf_redis *redis)
{
    if (redis->watches.busy)
        return;
    hf_watches_sweep(&redis->watches, on_watch_free, redis);
    if (hf_watches_is_empty(&redis->watches))
        hf_redis_watch_set_tick(redis, HF_NEVER);
}

/* Report an event to one watch. If the watch has missed earlier events, report
 * that first. */
static void report_event(struct hf_redis *redis, struct hf_redis_watch *watch,
                         const struct hf_event *event)
{
    struct hf_push_event push = {
        .watch = watch->entry.number,
        .event = {.kind = HF_EVENT_DROPPED, .index = event->index, .owner = ""},
    };

    if (watch->next == 0 || event->index < watch->next)
        return;
    if (event->index > watch->next)
        redis->host->ops->event(redis->host, &push);
    watch->next = event->index + 1;
    push.event = *event;
    if (event->kind && hf_watches_match(&watch->entry, event->key))
        redis->host->ops->event(redis->host, &push);
}

/* The text of an entry of the stream; NULL if holdfast did not write it. */
static const redisReply *entry_text(const redisReply *entry)
{
    const redisReply *fields;

    if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 2)
        return NULL;
    fields = entry->element[1];
    if (fields->type != REDIS_REPLY_ARRAY || fields->elements != 2 ||
        fields->element[1]->type != REDIS_REPLY_STRING)
        return NULL;
    return fields->element[1];
}

/* Parse "KIND TOKEN FREED LEASE OWNER_SIZE\n", owner, key. An empty entry marks
 * a registration. It yields an event with nothing but an index, which makes
 * watches notice that earlier events may be missing. */
static bool parse_event(const struct hf_redis_keyspace *space,
                        const redisReply *entry, struct hf_event *event,
                        char owner[HF_NOTE_MAX + 1], uint32_t *lease_ms)
{
    const redisReply *text = entry_text(entry);
    uint64_t kind, freed, lease, owner_size;
    const char *at;

    if (!text)
        return false;
    *event = (struct hf_event){
        .index = hf_redis_reply_number(entry->element[0]), .owner = ""};
    at = text->str;
    if (text->len == 0)
        return true;
    if (!hf_redis_reply_next_number(&at, &kind) ||
        !hf_redis_reply_next_number(&at, &event->token) ||
        !hf_redis_reply_next_number(&at, &freed) ||
        !hf_redis_reply_next_number(&at, &lease) ||
        !hf_redis_reply_next_number(&at, &owner_size) ||
        owner_size > HF_NOTE_MAX ||
        owner_size > text->len - (size_t)(at - text->str))
        return false;
    memcpy(owner, at, owner_size);
    owner[owner_size] = '\0';
    event->kind = (enum hf_event_kind)kind;
    event->freed = freed == 1;
    event->owner = owner;
    *lease_ms = (uint32_t)lease;
    at += owner_size;
    return hf_redis_keyspace_strip(
        space, (struct hf_key){at, text->len - (size_t)(at - text->str)},
        &event->key);
}

/* Set the next tick earlier, if a lease that was just granted or renewed for
 * `ms` expires before it. */
static void advance_tick(struct hf_redis *redis, uint32_t ms)
{
    struct hf_host *host = redis->host;
    hf_time at = hf_time_add(host->ops->now(host), ms);

    if (at < redis->tick_at)
        hf_redis_watch_set_tick(redis, at);
}

static void report_stream_events(struct hf_redis *redis,
                                 const redisReply *entries)
{
    struct hf_redis_watch *watch = NULL;
    char owner[HF_NOTE_MAX + 1];
    struct hf_event event;
    uint32_t lease_ms = 0;

    redis->watches.busy = true;
    for (size_t i = 0; i < entries->elements; i++) {
        if (!parse_event(&redis->address.space, entries->element[i], &event,
                         owner, &lease_ms))
            continue;
        while ((watch = hf_watches_next(&redis->watches, watch)))
            report_event(redis, watch, &event);
        if (event.kind == HF_EVENT_GRANTED || event.kind == HF_EVENT_RENEWED)
            advance_tick(redis, lease_ms + 1);
    }
    redis->watches.busy = false;
    hf_redis_watches_sweep(redis);
}

/* ---- Fetching -----------------------------------------------------------*/

static void on_fetch_reply(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redis *redis = HF_CONTAINER(call, struct hf_redis, fetch);
    bool more = false;

    redis->fetching = false;
    if (reply && reply->type == REDIS_REPLY_ARRAY) {
        more = reply->elements == FETCH_COUNT;
        report_stream_events(redis, reply);
        if (more || redis->fetch_again)
            hf_redis_watch_fetch(redis);
    } else if (reply && reply->type == REDIS_REPLY_ERROR) {
        (void)hf_redis_reply_handle_error(&redis->connection, reply);
    }
}

void hf_redis_watch_fetch(struct hf_redis *redis)
{
    struct hf_redis_resp_args args = {.count = 0};
    uint64_t from = next_index_needed(redis);
    char first[32];

    redis->fetch_again = redis->fetching;
    if (redis->fetching || from == UINT64_MAX)
        return;
    (void)snprintf(first, sizeof(first), "%llu-0", (unsigned long long)from);
    hf_redis_resp_add_text(&args, "XRANGE");
    hf_redis_resp_add_text(&args,
                           redis->address.space.shared[HF_REDIS_KEY_EVENTS]);
    hf_redis_resp_add_text(&args, first);
    hf_redis_resp_add_text(&args, "+");
    hf_redis_resp_add_text(&args, "COUNT");
    hf_redis_resp_add_number(&args, FETCH_COUNT);
    redis->fetch.reply = on_fetch_reply;
    redis->fetching =
        hf_redis_connection_send(&redis->connection, &redis->fetch, &args);
}

void hf_redis_watch_fail(struct hf_redis *redis, struct hf_redis_watch *watch,
                         enum hf_err err, const char *text)
{
    struct hf_request *request = watch->opening;

    watch->opening = NULL;
    hf_watches_remove(&watch->entry);
    request->answer.result.err = err;
    hf_redis_reply_set_cause(&request->answer, text);
    redis->host->ops->answer(redis->host, request);
}

void hf_redis_watches_fail(struct hf_redis *redis, enum hf_err err,
                           const char *text)
{
    struct hf_redis_watch *watch = NULL;

    while ((watch = hf_watches_next(&redis->watches, watch))) {
        if (watch->opening)
            hf_redis_watch_fail(redis, watch, err, text);
    }
    hf_redis_watches_sweep(redis);
}

/* ---- Requests -----------------------------------------------------------*/

static struct hf_redis_watch *add_redis_watch(struct hf_redis *redis,
                                              const struct hf_request *request)
{
    struct hf_redis_watch *watch =
        hf_watches_add(&redis->watches, request, sizeof(*watch));

    if (watch)
        hf_redis_registration_add(redis, watch);
    return watch;
}

void hf_redis_watch_start(struct hf_redis *redis, struct hf_request *request)
{
    struct hf_redis_watch *watch =
        hf_watches_find(&redis->watches, request->watch);

    if (!watch)
        watch = add_redis_watch(redis, request);
    if (!watch || !hf_redis_pubsub_open(redis)) {
        request->answer.result.err = HF_ENOMEM;
        redis->host->ops->answer(redis->host, request);
        if (watch)
            hf_redis_watch_stop(redis, request->watch);
        return;
    }
    watch->opening = request;
    watch->part = 0;
    if (watch->subscribed)
        hf_redis_registration_send_new(redis);
    else
        hf_redis_registration_subscribe(redis, watch);
}

void hf_redis_watch_stop(struct hf_redis *redis, uint64_t number)
{
    struct hf_redis_watch *watch = hf_watches_find(&redis->watches, number);

    if (watch) {
        hf_watches_remove(&watch->entry);
        hf_redis_registration_unsubscribe(redis, watch);
    }
    hf_redis_watches_sweep(redis);
}

void hf_redis_watch_cancel(struct hf_redis *redis, struct hf_request *request)
{
    struct hf_redis_watch *watch =
        hf_watches_find(&redis->watches, request->watch);

    if (watch && watch->opening == request)
        watch->opening = NULL;
}

/* ---- Opening and closing ------------------------------------------------*/

enum hf_err hf_redis_watches_open(struct hf_redis *redis)
{
    hf_watches_init(&redis->watches);
    hf_map_init(&redis->watches_by_pattern);
    redis->round = 1;
    redis->tick.fire = hf_redis_registration_on_tick;
    redis->tick_at = HF_NEVER;
    return redis->host->ops->timer_add(redis->host, &redis->tick);
}

void hf_redis_watches_close(struct hf_redis *redis)
{
    hf_watches_fini(&redis->watches, on_watch_free, redis);
    hf_map_fini(&redis->watches_by_pattern);
    redis->host->ops->timer_remove(redis->host, &redis->tick);
}
