/* watch.c - dispatch changes: grants to waiters, events to watches. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "strategy/mongo/event_line.h"
#include "strategy/mongo/mongo.h"

#define NEXT_RETRY_MS 50 /* between retries of waiters that end an offer */
#define HISTORY_S 3600   /* a watch can start this far in the past */

struct watch {
    struct hf_watch_entry entry;
    uint64_t next; /* the index of the first event to report */
};

/* ---- Grants -------------------------------------------------------------*/

bool hf_mongo_watch_grants(struct hf_mongo *mongo, uint64_t time)
{
    return mongo->stream && time > 0 &&
           hf_mongo_stream_request(mongo->stream, time, false) &&
           hf_mongo_stream_is_live(mongo->stream);
}

bool hf_mongo_watch_was_granted(const struct hf_mongo *mongo,
                                const struct hf_nonce *nonce)
{
    unsigned kept = mongo->grant_count < HF_MONGO_GRANTS_KEPT
                        ? mongo->grant_count
                        : HF_MONGO_GRANTS_KEPT;

    for (unsigned i = 0; i < kept; i++)
        if (hf_nonce_equal(&mongo->grants[i].nonce, nonce))
            return true;
    return false;
}

static void push_grant(struct hf_mongo *mongo, const struct hf_nonce *nonce,
                       uint64_t token)
{
    struct hf_push_grant push = {
        .nonce = *nonce,
        .token = token,
        .offered = true,
    };

    mongo->grants[mongo->grant_count++ % HF_MONGO_GRANTS_KEPT] =
        (struct hf_mongo_grant){*nonce, token};
    mongo->host->ops->grant(mongo->host, &push);
    hf_mongo_waiters_remove(mongo, nonce);
}

/* The first claim of a GRANTED is offered the key. The other claims in that
 * line are next in the queue: if the offer is not confirmed, they end it, one
 * after another. A WITHDRAWN names a claim that was dropped and has to join the
 * queue again. */
static void dispatch_claims(struct hf_mongo *mongo,
                            const struct hf_mongo_event_line *line)
{
    bool granted = line->event.kind == HF_EVENT_GRANTED;

    for (unsigned i = 0; i < line->claim_count; i++) {
        const struct hf_mongo_claim *claim = &line->claims[i];

        if (strcmp(claim->client, mongo->identity.client) != 0)
            continue;
        if (granted && i == 0)
            push_grant(mongo, &claim->nonce, line->event.token);
        else if (granted)
            hf_mongo_waiters_retry(mongo, &claim->nonce,
                                   HF_MONGO_OFFER_MS + i * NEXT_RETRY_MS);
        else
            hf_mongo_waiters_retry(mongo, &claim->nonce, 0);
    }
}

/* ---- Events -------------------------------------------------------------*/

static void report_event_to_watches(struct hf_mongo *mongo,
                                    const struct hf_event *event)
{
    struct hf_push_event push = {.event = *event};
    struct watch *watch = NULL;

    while ((watch = hf_watches_next(&mongo->watches, watch))) {
        if (event->index < watch->next ||
            !hf_watches_match(&watch->entry, event->key))
            continue;
        watch->next = event->index + 1;
        push.watch = watch->entry.number;
        mongo->host->ops->event(mongo->host, &push);
    }
}

static bool is_watched(const struct hf_mongo *mongo, struct hf_key key)
{
    const struct watch *watch = NULL;

    while ((watch = hf_watches_next(&mongo->watches, watch)))
        if (hf_watches_match(&watch->entry, key))
            return true;
    return false;
}

static void schedule_expiry(struct hf_mongo *mongo,
                            const struct hf_mongo_event_line *line)
{
    const struct hf_event *event = &line->event;
    uint32_t span = line->lease_ms;

    if (line->claim_count > 0 && span > HF_MONGO_OFFER_MS)
        span = HF_MONGO_OFFER_MS;
    if (event->kind == HF_EVENT_GRANTED || event->kind == HF_EVENT_RENEWED)
        hf_mongo_expiry_set(mongo, event->key, span);
    else if (event->freed)
        hf_mongo_expiry_remove(mongo, event->key);
}

static void dispatch_change(struct hf_mongo *mongo,
                            const struct hf_mongo_change *change)
{
    uint8_t bytes[HF_MONGO_ESCAPED_SIZE(HF_KEY_MAX)];
    size_t size = strlen(change->key);
    const char *cursor = change->events;
    bool watched, is_new = change->time > mongo->reported_until;
    uint64_t index = change->time;
    struct hf_key key = {bytes, 0};
    struct hf_mongo_event_line line;

    if (size >= sizeof(bytes))
        return; /* longer than any key, so holdfast did not write it */
    key.size = hf_mongo_unescape(bytes, change->key, size);
    watched = is_watched(mongo, key);
    for (; hf_mongo_event_line_read(&cursor, &line); index++) {
        line.event.index = index;
        line.event.key = key;
        if (is_new)
            dispatch_claims(mongo, &line);
        if (is_new && line.event.kind == HF_EVENT_FORCED)
            mongo->host->ops->recheck(mongo->host, line.event.token);
        if (watched && is_new)
            schedule_expiry(mongo, &line);
        if (watched)
            report_event_to_watches(mongo, &line.event);
    }
    if (is_new)
        mongo->reported_until = change->time;
}

static void report_gap_to(struct hf_mongo *mongo, const struct watch *watch,
                          uint64_t index)
{
    struct hf_push_event push = {
        .watch = watch->entry.number,
        .event = {.kind = HF_EVENT_DROPPED, .index = index, .owner = ""},
    };

    mongo->host->ops->event(mongo->host, &push);
}

static void report_gap(struct hf_mongo *mongo, uint64_t time)
{
    struct watch *watch = NULL;

    hf_mongo_waiters_retry_all(mongo);
    while ((watch = hf_watches_next(&mongo->watches, watch))) {
        if (time <= watch->next)
            continue;
        watch->next = time;
        report_gap_to(mongo, watch, time);
    }
}

/* ---- The timer ----------------------------------------------------------*/

void hf_mongo_watch_set_tick(struct hf_mongo *mongo)
{
    hf_time next = hf_mongo_expiry_next(mongo);

    if (hf_heap_top_key(&mongo->retries) < next)
        next = hf_heap_top_key(&mongo->retries);
    hf_timer_set(mongo->host, &mongo->tick, next);
}

static void on_watch_tick(struct hf_timer *timer)
{
    struct hf_mongo *mongo = HF_CONTAINER(timer, struct hf_mongo, tick);

    hf_mongo_expiry_check(mongo);
    hf_mongo_waiters_nudge(mongo);
    hf_mongo_watch_set_tick(mongo);
}

/* ---- The stream ---------------------------------------------------------*/

/* The stream thread measures the idle time, because a client that nobody drives
 * runs no timers. */
void hf_mongo_watch_release_stream(struct hf_mongo *mongo)
{
    if (mongo->stream && mongo->waiters.count == 0 &&
        hf_watches_is_empty(&mongo->watches))
        hf_mongo_stream_release(mongo->stream);
}

static void on_mongo_watch_free(void *entry, void *arg)
{
    (void)entry;
    hf_mongo_watch_release_stream(arg);
}

static void on_changes(void *arg)
{
    struct hf_mongo *mongo = arg;
    struct hf_mongo_change *change;

    mongo->watches.busy = true;
    while ((change = hf_mongo_stream_take(mongo->stream))) {
        if (change->lost)
            report_gap(mongo, change->time);
        else
            dispatch_change(mongo, change);
        free(change);
    }
    mongo->watches.busy = false;
    hf_watches_sweep(&mongo->watches, on_mongo_watch_free, mongo);
    hf_mongo_watch_set_tick(mongo);
}

/* ---- Watches ------------------------------------------------------------*/

/* Schedule checks for the keys that are held now. The lease of a single key
 * that is due already is checked at once. */
static void schedule_held_expiry(struct hf_mongo *mongo,
                                 const struct hf_mongo_query *query,
                                 struct hf_key key)
{
    for (size_t i = 0; i < query->count; i++)
        hf_mongo_expiry_set(mongo, query->infos[i].key,
                            query->infos[i].left_ms);
    if (query->scope == HF_MONGO_ONE && query->expired)
        hf_mongo_expiry_set(mongo, key, 0);
    hf_mongo_watch_set_tick(mongo);
}

/* Returns true if a watch may start at `from`. The oplog may reach further back
 * than HISTORY_S, but scanning more of it would load the server. */
static bool is_in_history(uint64_t from, uint64_t now)
{
    return from >> 32 >= (now >> 32) - HISTORY_S || now >> 32 < HISTORY_S;
}

static enum hf_err add_mongo_watch(struct hf_mongo *mongo,
                                   const struct hf_mongo_query *query,
                                   const struct hf_request *request)
{
    struct hf_key prefix = request->command.key;
    uint64_t next = HF_MONGO_INDEX(query->reply.time) + 1;
    struct watch *watch;

    if (request->from > 0 && is_in_history(request->from, query->reply.time))
        next = request->from;
    if (!hf_mongo_stream_request(mongo->stream, next, true))
        return HF_EUNAVAIL;
    watch = hf_watches_add(&mongo->watches, request, sizeof(*watch));
    if (!watch) {
        hf_mongo_watch_release_stream(mongo);
        return HF_ENOMEM;
    }
    watch->next = next;
    if (request->from > 0 && next != request->from)
        report_gap_to(mongo, watch, next);
    schedule_held_expiry(mongo, query, prefix);
    return HF_OK;
}

/* Add the watch. It starts at the time of the query, or earlier if the request
 * says so, and therefore misses nothing even if the stream opens later. */
static void on_watch_query_done(struct hf_mongo_call *call)
{
    struct hf_mongo *mongo = call->mongo;
    struct hf_request *request = call->request;
    enum hf_err err = call->query.reply.err;

    if (!request) {
        hf_mongo_call_free(call);
        return;
    }
    if (!err && !hf_watches_find(&mongo->watches, request->watch))
        err = add_mongo_watch(mongo, &call->query, request);
    else if (err && *call->query.reply.cause)
        request->answer.cause = strdup(call->query.reply.cause);
    request->answer.result.err = err;
    request->answer.index = HF_MONGO_INDEX(call->query.reply.time);
    hf_mongo_call_answer(call);
}

void hf_mongo_watch_start(struct hf_mongo *mongo, struct hf_request *request)
{
    struct hf_mongo_call *call = hf_mongo_call_new_query(
        mongo, request, request->exact ? HF_MONGO_ONE : HF_MONGO_PREFIX,
        on_watch_query_done);

    if (!call)
        return;
    call->query.whole = false;
    /* An exact watch works without change streams, because hf_wait_free() and
     * hf_wait_held() also poll the key. So do not check that streams are
     * permitted. */
    call->query.watch = !request->exact && mongo->stream;
    hf_mongo_call_send_query(call);
}

void hf_mongo_watch_stop(struct hf_mongo *mongo, uint64_t number)
{
    struct watch *watch = hf_watches_find(&mongo->watches, number);

    if (!watch)
        return;
    hf_watches_remove(&watch->entry);
    hf_watches_sweep(&mongo->watches, on_mongo_watch_free, mongo);
}

/* ---- Opening and closing ------------------------------------------------*/

enum hf_err hf_mongo_watch_open(struct hf_mongo *mongo)
{
    mongo->tick.fire = on_watch_tick;
    if (mongo->host->ops->timer_add(mongo->host, &mongo->tick))
        return HF_ENOMEM;
    mongo->has_tick = true;
    if (hf_mongo_workers_context(mongo->workers)->standalone)
        return HF_OK;
    mongo->stream = hf_mongo_stream_open(mongo->workers, &mongo->identity,
                                         on_changes, mongo);
    return mongo->stream ? HF_OK : HF_ENOMEM;
}

void hf_mongo_watch_close(struct hf_mongo *mongo)
{
    hf_mongo_stream_close(mongo->stream, mongo->host);
    hf_watches_fini(&mongo->watches, NULL, NULL);
    if (mongo->has_tick)
        mongo->host->ops->timer_remove(mongo->host, &mongo->tick);
}
