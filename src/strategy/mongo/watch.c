/* watch.c - what is heard of changes: grants for those who wait, events for
 * those who watch. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "strategy/mongo/line.h"
#include "strategy/mongo/mongo.h"

#define NEXT_LOOKS_MS 50 /* one after another */
#define HISTORY_S 3600   /* from so far back events are told */

/* One watch of one client: the prefix follows. */
struct watch {
    struct hf_list link;
    uint64_t number;
    uint64_t next; /* the first index that it has not heard */
    bool exact, gone;
    size_t size;
    uint8_t prefix[];
};

static struct watch *watch_of(struct hf_list *link)
{
    return HF_CONTAINER(link, struct watch, link);
}

static bool covers(const struct watch *watch, struct hf_key key)
{
    struct hf_key prefix = {watch->prefix, watch->size};

    return !watch->gone && (watch->exact ? hf_key_equal(key, prefix)
                                         : hf_key_has_prefix(key, prefix));
}

/* ---- Grants -------------------------------------------------------------*/

bool hf_mongo_hear_grants(struct hf_mongo *mongo, uint64_t time)
{
    return mongo->stream && time > 0 &&
           hf_mongo_stream_want(mongo->stream, time, false) &&
           hf_mongo_stream_is_live(mongo->stream);
}

bool hf_mongo_was_granted(const struct hf_mongo *mongo,
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
    hf_mongo_waiters_drop(mongo, nonce);
}

/* The first claim of a GRANTED is offered the key. The others are next in the
 * queue: if the offer is not taken up, they have to end it, one after another. A
 * claim that was dropped has to join again. */
static void tell_claims(struct hf_mongo *mongo,
                        const struct hf_mongo_line *line)
{
    bool granted = line->event.kind == HF_EVENT_GRANTED;

    for (unsigned i = 0; i < line->claim_count; i++) {
        const struct hf_mongo_claim *claim = &line->claims[i];

        if (strcmp(claim->client, mongo->asker.client) != 0)
            continue;
        if (granted && i == 0)
            push_grant(mongo, &claim->nonce, line->event.token);
        else if (granted)
            hf_mongo_waiters_look(mongo, &claim->nonce,
                                  HF_MONGO_OFFER_MS + i * NEXT_LOOKS_MS);
        else
            hf_mongo_waiters_look(mongo, &claim->nonce, 0);
    }
}

/* ---- Telling ------------------------------------------------------------*/

static void tell_watches(struct hf_mongo *mongo, const struct hf_event *event)
{
    struct hf_push_event push = {.event = *event};

    for (struct hf_list *link = mongo->watches.next; link != &mongo->watches;
         link = link->next) {
        struct watch *watch = watch_of(link);

        if (event->index < watch->next || !covers(watch, event->key))
            continue;
        watch->next = event->index + 1;
        push.watch = watch->number;
        mongo->host->ops->event(mongo->host, &push);
    }
}

static bool is_watched(const struct hf_mongo *mongo, struct hf_key key)
{
    for (struct hf_list *link = mongo->watches.next; link != &mongo->watches;
         link = link->next)
        if (covers(watch_of(link), key))
            return true;
    return false;
}

static void note_due(struct hf_mongo *mongo, const struct hf_mongo_line *line)
{
    const struct hf_event *event = &line->event;
    uint32_t span = line->lease_ms;

    if (line->claim_count > 0 && span > HF_MONGO_OFFER_MS)
        span = HF_MONGO_OFFER_MS;
    if (event->kind == HF_EVENT_GRANTED || event->kind == HF_EVENT_RENEWED)
        hf_mongo_due_set(mongo, event->key, span);
    else if (event->freed)
        hf_mongo_due_drop(mongo, event->key);
}

static void tell_change(struct hf_mongo *mongo,
                        const struct hf_mongo_change *change)
{
    uint8_t bytes[HF_MONGO_TEXT_SIZE(HF_KEY_MAX)];
    size_t size = strlen(change->key);
    const char *at = change->events;
    bool watched, is_new = change->time > mongo->heard;
    uint64_t index = change->time;
    struct hf_key key = {bytes, 0};
    struct hf_mongo_line line;

    if (size >= sizeof(bytes))
        return; /* no key of ours */
    key.size = hf_mongo_unescape(bytes, change->key, size);
    watched = is_watched(mongo, key);
    for (; hf_mongo_line_read(&at, &line); index++) {
        line.event.index = index;
        line.event.key = key;
        if (is_new)
            tell_claims(mongo, &line);
        if (is_new && line.event.kind == HF_EVENT_FORCED)
            mongo->host->ops->recheck(mongo->host, line.event.token);
        if (watched && is_new)
            note_due(mongo, &line);
        if (watched)
            tell_watches(mongo, &line.event);
    }
    if (is_new)
        mongo->heard = change->time;
}

static void tell_lost_to(struct hf_mongo *mongo, const struct watch *watch,
                         uint64_t index)
{
    struct hf_push_event push = {
        .watch = watch->number,
        .event = {.kind = HF_EVENT_DROPPED, .index = index, .owner = ""},
    };

    mongo->host->ops->event(mongo->host, &push);
}

static void tell_lost(struct hf_mongo *mongo, uint64_t time)
{
    hf_mongo_waiters_look_all(mongo);
    for (struct hf_list *link = mongo->watches.next; link != &mongo->watches;
         link = link->next) {
        struct watch *watch = watch_of(link);

        if (watch->gone || time <= watch->next)
            continue;
        watch->next = time;
        tell_lost_to(mongo, watch, time);
    }
}

/* ---- Time ---------------------------------------------------------------*/

void hf_mongo_set_tick(struct hf_mongo *mongo)
{
    hf_time at = hf_mongo_due_next(mongo);

    if (hf_heap_top_key(&mongo->looks) < at)
        at = hf_heap_top_key(&mongo->looks);
    hf_timer_set(mongo->host, &mongo->tick, at);
}

static void on_tick(struct hf_timer *timer)
{
    struct hf_mongo *mongo = HF_CONTAINER(timer, struct hf_mongo, tick);

    hf_mongo_due_look(mongo);
    hf_mongo_waiters_nudge(mongo);
    hf_mongo_set_tick(mongo);
}

/* ---- News ---------------------------------------------------------------*/

/* The stream has a clock of its own: a client that nobody drives has none. */
void hf_mongo_watch_rest(struct hf_mongo *mongo)
{
    if (mongo->stream && mongo->waiters.count == 0 &&
        hf_list_empty(&mongo->watches))
        hf_mongo_stream_rest(mongo->stream);
}

static void free_gone(struct hf_mongo *mongo)
{
    struct hf_list *link, *next;

    for (link = mongo->watches.next; link != &mongo->watches; link = next) {
        next = link->next;
        if (!watch_of(link)->gone)
            continue;
        hf_list_remove(link);
        free(watch_of(link));
        hf_mongo_watch_rest(mongo);
    }
}

static void heard(void *arg)
{
    struct hf_mongo *mongo = arg;
    struct hf_mongo_change *change;

    mongo->telling = true;
    while ((change = hf_mongo_stream_take(mongo->stream))) {
        if (change->lost)
            tell_lost(mongo, change->time);
        else
            tell_change(mongo, change);
        free(change);
    }
    mongo->telling = false;
    free_gone(mongo);
    hf_mongo_set_tick(mongo);
}

/* ---- Watching -----------------------------------------------------------*/

static struct watch *find(const struct hf_mongo *mongo, uint64_t wanted)
{
    for (struct hf_list *link = mongo->watches.next; link != &mongo->watches;
         link = link->next)
        if (watch_of(link)->number == wanted && !watch_of(link)->gone)
            return watch_of(link);
    return NULL;
}

/* What is held now ends by and by; what is over is to be ended at once. */
static void note_held(struct hf_mongo *mongo, const struct hf_mongo_look *look,
                      struct hf_key key)
{
    for (size_t i = 0; i < look->count; i++)
        hf_mongo_due_set(mongo, look->infos[i].key, look->infos[i].left_ms);
    if (look->scope == HF_MONGO_ONE && look->over)
        hf_mongo_due_set(mongo, key, 0);
    hf_mongo_set_tick(mongo);
}

/* Whatever the server keeps, nobody is told what is older than this: to look for
 * it is too much to ask of a server that has other work. */
static bool is_kept(uint64_t from, uint64_t now)
{
    return from >> 32 >= (now >> 32) - HISTORY_S || now >> 32 < HISTORY_S;
}

static enum hf_err add_watch(struct hf_mongo *mongo,
                             const struct hf_mongo_look *look,
                             const struct hf_request *request)
{
    struct hf_key prefix = request->command.key;
    struct watch *watch = malloc(sizeof(*watch) + prefix.size);
    uint64_t next = HF_MONGO_INDEX(look->reply.time) + 1;

    if (!watch)
        return HF_ENOMEM;
    if (request->from > 0 && is_kept(request->from, look->reply.time))
        next = request->from;
    if (!hf_mongo_stream_want(mongo->stream, next, true)) {
        free(watch);
        return HF_EUNAVAIL;
    }
    *watch = (struct watch){
        .number = request->watch,
        .next = next,
        .exact = request->exact,
        .size = prefix.size,
    };
    hf_copy(watch->prefix, prefix.data, prefix.size);
    hf_list_push_back(&mongo->watches, &watch->link);
    if (request->from > 0 && next != request->from)
        tell_lost_to(mongo, watch, next);
    note_held(mongo, look, prefix);
    return HF_OK;
}

/* From that time on nothing is missed, be the stream open yet or not. */
static void watch_began(struct hf_mongo_call *call)
{
    struct hf_mongo *mongo = call->mongo;
    struct hf_request *request = call->request;
    enum hf_err err = call->look.reply.err;

    if (!request) {
        hf_mongo_call_free(call);
        return;
    }
    if (!err && !find(mongo, request->watch))
        err = add_watch(mongo, &call->look, request);
    else if (err && *call->look.reply.cause)
        request->answer.cause = strdup(call->look.reply.cause);
    request->answer.result.err = err;
    request->answer.index = HF_MONGO_INDEX(call->look.reply.time);
    hf_mongo_answer(call);
}

void hf_mongo_watch(struct hf_mongo *mongo, struct hf_request *request)
{
    struct hf_mongo_call *call = hf_mongo_look_new(
        mongo, request, request->exact ? HF_MONGO_ONE : HF_MONGO_PREFIX,
        watch_began);

    if (!call)
        return;
    call->look.whole = false;
    /* A wait for one key reads it now and then: it can do without a stream. */
    call->look.watch = !request->exact && mongo->stream;
    hf_mongo_send_look(call);
}

void hf_mongo_unwatch(struct hf_mongo *mongo, uint64_t wanted)
{
    struct watch *watch = find(mongo, wanted);

    if (!watch)
        return;
    watch->gone = true;
    if (!mongo->telling)
        free_gone(mongo);
}

/* ---- Beginning and end --------------------------------------------------*/

enum hf_err hf_mongo_watch_open(struct hf_mongo *mongo)
{
    mongo->tick.fire = on_tick;
    if (mongo->host->ops->timer_add(mongo->host, &mongo->tick))
        return HF_ENOMEM;
    mongo->ticks = true;
    if (hf_mongo_crew_place(mongo->crew)->alone)
        return HF_OK;
    mongo->stream =
        hf_mongo_stream_open(mongo->crew, &mongo->asker, heard, mongo);
    return mongo->stream ? HF_OK : HF_ENOMEM;
}

void hf_mongo_watch_close(struct hf_mongo *mongo)
{
    struct hf_list *link;

    hf_mongo_stream_close(mongo->stream, mongo->host);
    while ((link = hf_list_take(&mongo->watches)))
        free(watch_of(link));
    if (mongo->ticks)
        mongo->host->ops->timer_remove(mongo->host, &mongo->tick);
}
