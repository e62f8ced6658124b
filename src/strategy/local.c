#include "strategy/local.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "strategy/listing.h"

#define EVENTS_A_TURN 64 /* reported before timers and callbacks run again */

hf_time hf_local_now(const struct hf_local *local)
{
    return local->host->ops->now(local->host) - local->offset;
}

/* ---- Commands -----------------------------------------------------------*/

/* In line: nobody but those who wait looks at the clock, so each looks when
 * the lease ends, the first on time and the others a little later in turn. Who
 * stands further back looks less often for what it may have missed. */
static uint32_t look_again(const struct hf_local *local, hf_time now,
                           const struct hf_hold *hold, uint32_t place)
{
    uint32_t turn = place < 4 ? (place - 1) * 10 : 30;
    uint32_t wait = hf_time_left(hf_store_end(local->store, hold), now) + turn;
    uint32_t look = local->look_ms * (place < 10 ? place : 10);

    return look > 0 && look < wait ? look : wait;
}

/* A command that was asked before touches nothing: then a grant is as old as
 * it is, and from when a renewal counts is for the client to say. */
static void tell_time(const struct hf_local *local, hf_time now,
                      struct hf_request *request)
{
    const struct hf_store *store = local->store;
    const struct hf_command *command = &request->command;
    struct hf_answer *answer = &request->answer;
    const struct hf_hold *hold = store->touched;
    bool again = !hold;
    hf_time since = now;

    if (command->kind != HF_COMMAND_LOCK && command->kind != HF_COMMAND_RENEW)
        return;
    if (again && command->kind == HF_COMMAND_LOCK)
        hold = hf_table_find(&store->table, command->key);
    if (!hold)
        return;
    if (answer->result.place > 0)
        answer->look_again_ms =
            look_again(local, now, hold, answer->result.place);
    if (answer->result.err)
        return;
    if (hold->token == answer->result.token)
        since = hold->since;
    else if (again)
        return;
    answer->anchor = (struct hf_anchor){
        .known = true,
        .sent = since + local->offset,
    };
}

static void run(struct hf_local *local, hf_time now, struct hf_request *request)
{
    request->command.session = local->session;
    local->cause = NULL;
    local->ops->run(local, now, &request->command, &request->answer.result);
    if (local->cause)
        request->answer.cause = strdup(local->cause);
    tell_time(local, now, request);
}

/* ---- Looking ------------------------------------------------------------*/

/* The note is bytes in the table and text outside. */
static enum hf_err copy_info(const struct hf_store *store, hf_time now,
                             const struct hf_hold *hold, struct hf_info *info)
{
    struct hf_bytes bytes = hf_hold_note(hold);
    char note[HF_NOTE_MAX + 1];
    struct hf_info from = {
        .key = hf_hold_key(hold),
        .held = true,
        .forced = hold->forced,
        .token = hold->token,
        .held_ms = hf_time_left(now, hold->since),
        .left_ms = hf_time_left(hf_store_end(store, hold), now),
        .waiters = hold->waiters,
        .value = hf_hold_value(hold),
        .owner = hold->session->label,
        .note = note,
        .index = store->table.index,
    };

    hf_copy(note, bytes.data, bytes.size);
    note[bytes.size] = '\0';
    return hf_info_copy(info, &from);
}

static void read_one(const struct hf_store *store, hf_time now,
                     struct hf_request *request)
{
    struct hf_answer *answer = &request->answer;
    struct hf_key key = request->command.key;
    const struct hf_hold *hold = hf_table_find(&store->table, key);
    struct hf_info none = {
        .key = key,
        .owner = "",
        .note = "",
        .index = store->table.index,
    };
    enum hf_err err;

    answer->infos = calloc(1, sizeof(*answer->infos));
    if (!answer->infos)
        err = HF_ENOMEM;
    else if (hold)
        err = copy_info(store, now, hold, answer->infos);
    else
        err = hf_info_copy(answer->infos, &none);
    answer->count = err ? 0 : 1;
    answer->result.err = err;
}

/* ---- Watching -----------------------------------------------------------*/

/* One watch of one client: the prefix follows. */
struct watch {
    struct hf_list link;
    uint64_t number;
    struct hf_cursor cursor;
    size_t size;
    uint8_t prefix[];
};

static struct watch *watch_of(struct hf_list *link)
{
    return HF_CONTAINER(link, struct watch, link);
}

static struct watch *find(const struct hf_list *watches, uint64_t number)
{
    for (struct hf_list *link = watches->next; link != watches;
         link = link->next) {
        if (watch_of(link)->number == number)
            return watch_of(link);
    }
    return NULL;
}

static void end(struct watch *watch)
{
    hf_list_remove(&watch->link);
    free(watch);
}

static enum hf_err add_watch(struct hf_local *local,
                             const struct hf_request *request)
{
    struct hf_store *store = local->store;
    struct hf_key prefix = request->command.key;
    uint64_t next = store->table.index + 1;
    struct watch *watch = malloc(sizeof(*watch) + prefix.size);

    if (!watch)
        return HF_ENOMEM;
    if (hf_store_keep_history(store)) {
        free(watch);
        return HF_ENOMEM;
    }
    *watch = (struct watch){.number = request->watch, .size = prefix.size};
    hf_copy(watch->prefix, prefix.data, prefix.size);
    watch->cursor =
        hf_history_from(&store->history, request->from ? request->from : next);
    hf_list_push_back(&local->watches, &watch->link);
    return HF_OK;
}

/* A repeat finds it in place. The news are what it wants of the past, and its
 * first tick. */
static enum hf_err watch(struct hf_local *local,
                         const struct hf_request *request)
{
    enum hf_err err;

    if (find(&local->watches, request->watch))
        return HF_OK;
    err = local->ops->watch(local, request->from);
    if (!err)
        err = add_watch(local, request);
    if (err && hf_list_empty(&local->watches))
        local->ops->unwatch(local);
    local->news = true;
    return err;
}

static void unwatch(struct hf_local *local, uint64_t number)
{
    struct watch *watch = find(&local->watches, number);

    if (!watch)
        return;
    end(watch);
    if (hf_list_empty(&local->watches))
        local->ops->unwatch(local);
}

void hf_local_rewatch(struct hf_local *local)
{
    for (struct hf_list *link = local->watches.next; link != &local->watches;
         link = link->next)
        watch_of(link)->cursor = hf_history_from(&local->store->history,
                                                 watch_of(link)->cursor.index);
}

/* ---- News ---------------------------------------------------------------*/

/* An event for a watch, copied out of the history. */
struct told_event {
    struct hf_push_event push;
    char owner[HF_NOTE_MAX + 1];
    uint8_t key[HF_KEY_MAX];
};

static bool read_watch(const struct hf_store *store, struct watch *watch,
                       struct told_event *read)
{
    struct hf_key prefix = {watch->prefix, watch->size};
    struct hf_event *event = &read->push.event;

    while (hf_history_read(&store->history, &watch->cursor, event)) {
        if (event->kind != HF_EVENT_DROPPED &&
            !hf_key_has_prefix(event->key, prefix))
            continue;
        read->push.watch = watch->number;
        hf_copy(read->owner, event->owner, strlen(event->owner) + 1);
        hf_copy(read->key, event->key.data, event->key.size);
        event->owner = read->owner;
        event->key.data = read->key;
        return true;
    }
    return false;
}

/* Who watches sees to it that leases end on time, also where nobody waits for
 * them. Each event that may bring the next end nearer wakes it anyway. */
static void set_tick(struct hf_local *local, hf_time at)
{
    if (at != HF_NEVER)
        at += local->offset; /* which may be below zero */
    hf_timer_set(local->host, &local->tick, at);
}

static bool go_in(struct hf_local *local)
{
    local->late = local->ops->enter(local) != HF_OK;
    return !local->late;
}

/* The next event of any watch. The watch that had one goes to the end of the
 * list: each has its turn, also where events come faster than they are read. */
static bool read_watches(struct hf_local *local, struct told_event *event)
{
    for (struct hf_list *link = local->watches.next; link != &local->watches;
         link = link->next) {
        if (!read_watch(local->store, watch_of(link), event))
            continue;
        hf_list_remove(link);
        hf_list_push_back(&local->watches, link);
        return true;
    }
    return false;
}

static bool next_event(struct hf_local *local, struct told_event *event)
{
    hf_time tick;
    bool found;

    if (!go_in(local))
        return false;
    found = read_watches(local, event);
    tick = hf_store_next(local->store);
    local->ops->leave(local);
    if (!found)
        set_tick(local, tick);
    return found;
}

void hf_local_note_broken(struct hf_local *local, uint64_t token)
{
    local->broken = local->broken ? HF_ANY_TOKEN : token;
}

static bool next_grant(struct hf_local *local, struct hf_push_grant *push,
                       uint64_t *broken)
{
    struct hf_table *table = &local->store->table;
    struct hf_session *session;
    struct hf_grant grant;
    bool found;

    *broken = 0;
    if (!go_in(local))
        return false;
    *broken = local->broken;
    local->broken = 0;
    /* Where processes share the store, another one may have ended it. */
    session = hf_table_session(table, local->session);
    found = session && hf_table_take_grant(table, session, &grant);
    if (found)
        *push = (struct hf_push_grant){
            .nonce = grant.nonce,
            .token = grant.token,
            .generation = grant.generation,
            .anchor = {.known = true,
                       .sent = grant.hold->since + local->offset},
        };
    local->ops->leave(local);
    return found;
}

/* Grants are all reported: there is at most one for each claim that waits. So
 * are locks that were broken. */
static void report_grants(struct hf_local *local)
{
    struct hf_host *host = local->host;
    struct hf_push_grant grant;
    uint64_t broken;
    bool found;

    do {
        found = next_grant(local, &grant, &broken);
        if (broken)
            host->ops->recheck(host, broken);
        if (found)
            host->ops->grant(host, &grant);
    } while (found);
}

/* Report events until there is none, or until `*budget` is spent: false. */
static bool report_events(struct hf_local *local, unsigned *budget)
{
    struct told_event event;

    while (*budget > 0) {
        if (local->late || hf_list_empty(&local->watches) ||
            !next_event(local, &event))
            return true;
        local->host->ops->event(local->host, &event.push);
        (*budget)--;
    }
    return false;
}

/* Go on in the next turn, after timers and callbacks have had theirs. */
static void continue_later(struct hf_local *local)
{
    struct hf_waker *waker = local->host->ops->post(local->host, &local->more);

    if (waker)
        hf_waker_ring(waker);
}

void hf_local_tell_news(struct hf_local *local)
{
    unsigned budget = EVENTS_A_TURN;
    bool all;

    local->telling = true;
    do {
        local->news = false;
        report_grants(local);
        all = report_events(local, &budget);
    } while (local->news && all && !local->late);
    local->telling = false;
    if (local->late)
        local->ops->later(local);
    else if (!all)
        continue_later(local);
}

/* ---- Requests -----------------------------------------------------------*/

/* Inside. */
static void serve(struct hf_local *local, struct hf_request *request)
{
    hf_time now = hf_local_now(local);
    struct hf_answer *answer = &request->answer;

    switch (request->kind) {
    case HF_REQUEST_COMMAND:
        run(local, now, request);
        break;
    case HF_REQUEST_READ:
        if (local->ops->settle)
            local->ops->settle(local, request->command.key);
        read_one(local->store, now, request);
        break;
    case HF_REQUEST_LIST:
        HF_ASSERT(false); /* hf_local_list() */
        break;
    case HF_REQUEST_WATCH:
        answer->result.err = watch(local, request);
        break;
    case HF_REQUEST_UNWATCH:
        unwatch(local, request->watch);
        break;
    }
    answer->index = local->store->table.index;
}

static enum hf_err go_in_and_serve(struct hf_local *local,
                                   struct hf_request *request)
{
    enum hf_err err = local->ops->enter(local);

    if (err)
        return err;
    serve(local, request);
    local->ops->leave(local);
    return HF_OK;
}

enum hf_err hf_local_submit(struct hf_local *local, struct hf_request *request)
{
    enum hf_err err = request->kind == HF_REQUEST_LIST
                          ? hf_local_list(local, request)
                          : go_in_and_serve(local, request);

    if (err)
        return err;
    local->host->ops->answer(local->host, request);
    if (local->news && !local->telling)
        hf_local_tell_news(local);
    return HF_OK;
}

/* ---- Beginning and end --------------------------------------------------*/

static void on_tick(struct hf_timer *timer)
{
    hf_local_tell_news(HF_CONTAINER(timer, struct hf_local, tick));
}

static void on_more(struct hf_post *post)
{
    hf_local_tell_news(HF_CONTAINER(post, struct hf_local, more));
}

enum hf_err hf_local_init(struct hf_local *local, struct hf_host *host,
                          const struct hf_local_ops *ops)
{
    local->ops = ops;
    local->host = host;
    local->tick.fire = on_tick;
    local->more.run = on_more;
    hf_list_init(&local->watches);
    return host->ops->timer_add(host, &local->tick);
}

void hf_local_fini(struct hf_local *local)
{
    struct hf_list *link;

    while ((link = hf_list_take(&local->watches)))
        free(watch_of(link));
    local->host->ops->unpost(local->host, &local->more);
    local->host->ops->timer_remove(local->host, &local->tick);
}

uint32_t hf_local_caps(const void *self)
{
    (void)self;
    return HF_CAP_FENCE | HF_CAP_FIFO | HF_CAP_PUSH | HF_CAP_STEADY |
           HF_CAP_LINEARIZABLE_READ | HF_CAP_VALUE | HF_CAP_WATCH;
}

enum hf_err hf_local_open_session(struct hf_local *local)
{
    const char *owner = local->host->ops->owner(local->host);
    const struct hf_command open = {
        .kind = HF_COMMAND_OPEN,
        .note = {owner, strlen(owner)},
    };
    struct hf_result result;

    local->ops->run(local, hf_local_now(local), &open, &result);
    if (!result.err)
        local->session = result.session;
    return result.err;
}

enum hf_err hf_local_end_session(struct hf_local *local, uint64_t session)
{
    const struct hf_command close = {
        .kind = HF_COMMAND_CLOSE,
        .session = session,
    };
    struct hf_result result;

    local->ops->run(local, hf_local_now(local), &close, &result);
    return result.err;
}
