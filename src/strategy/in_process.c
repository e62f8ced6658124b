#include "strategy/in_process.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "strategy/listing.h"

#define EVENTS_PER_TURN 64 /* reported before timers and callbacks run again */

hf_time hf_in_process_now(const struct hf_in_process *local)
{
    return local->host->ops->now(local->host) - local->offset;
}

/* ---- Commands -----------------------------------------------------------*/

/* In line: nobody but those who wait looks at the clock, so each looks when
 * the lease ends, the first on time and the others a little later in turn. Who
 * stands further back looks less often for what it may have missed. */
static uint32_t poll_delay_ms(const struct hf_in_process *local, hf_time now,
                              const struct hf_hold *hold, uint32_t position)
{
    uint32_t turn = position < 4 ? (position - 1) * 10 : 30;
    uint32_t wait =
        hf_time_left(hf_store_deadline(local->store, hold), now) + turn;
    uint32_t poll_ms = local->poll_ms * (position < 10 ? position : 10);

    return poll_ms > 0 && poll_ms < wait ? poll_ms : wait;
}

/* A command that was asked before touches nothing: then a grant is as old as
 * it is, and from when a renewal counts is for the client to say. */
static void set_times(const struct hf_in_process *local, hf_time now,
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
    if (answer->result.position > 0)
        answer->poll_after_ms =
            poll_delay_ms(local, now, hold, answer->result.position);
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

static void serve_command(struct hf_in_process *local, hf_time now,
                          struct hf_request *request)
{
    request->command.session = local->session;
    local->cause = NULL;
    local->ops->run(local, now, &request->command, &request->answer.result);
    if (local->cause)
        request->answer.cause = strdup(local->cause);
    set_times(local, now, request);
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
        .left_ms = hf_time_left(hf_store_deadline(store, hold), now),
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

static void serve_read(const struct hf_store *store, hf_time now,
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

struct watch {
    struct hf_watch_entry entry;
    struct hf_history_cursor cursor;
};

static enum hf_err add_local_watch(struct hf_in_process *local,
                                   const struct hf_request *request)
{
    struct hf_store *store = local->store;
    uint64_t from = request->from ? request->from : store->table.index + 1;
    struct watch *watch;

    if (hf_store_enable_history(store))
        return HF_ENOMEM;
    watch = hf_watches_add(&local->watches, request, sizeof(*watch));
    if (!watch)
        return HF_ENOMEM;
    watch->cursor = hf_history_seek(&store->history, from);
    return HF_OK;
}

/* A repeat finds it in place. The news are what it wants of the past, and its
 * first tick. */
static enum hf_err serve_watch(struct hf_in_process *local,
                               const struct hf_request *request)
{
    enum hf_err err;

    if (hf_watches_find(&local->watches, request->watch))
        return HF_OK;
    err = local->ops->watch(local, request->from);
    if (!err)
        err = add_local_watch(local, request);
    if (err && hf_watches_is_empty(&local->watches))
        local->ops->unwatch(local);
    local->has_reports = true;
    return err;
}

static void serve_unwatch(struct hf_in_process *local, uint64_t number)
{
    struct watch *watch = hf_watches_find(&local->watches, number);

    if (!watch)
        return;
    hf_watches_remove(&watch->entry);
    hf_watches_sweep(&local->watches, NULL, NULL);
    if (hf_watches_is_empty(&local->watches))
        local->ops->unwatch(local);
}

void hf_in_process_reset_cursors(struct hf_in_process *local)
{
    struct watch *watch = NULL;

    while ((watch = hf_watches_next(&local->watches, watch)))
        watch->cursor =
            hf_history_seek(&local->store->history, watch->cursor.index);
}

/* ---- News ---------------------------------------------------------------*/

/* An event for a watch, copied out of the history. */
struct event_copy {
    struct hf_push_event push;
    char owner[HF_NOTE_MAX + 1];
    uint8_t key[HF_KEY_MAX];
};

static bool read_watch(const struct hf_store *store, struct watch *watch,
                       struct event_copy *read)
{
    struct hf_event *event = &read->push.event;

    while (hf_history_read(&store->history, &watch->cursor, event)) {
        if (event->kind != HF_EVENT_DROPPED &&
            !hf_watches_match(&watch->entry, event->key))
            continue;
        read->push.watch = watch->entry.number;
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
static void set_expiry_timer(struct hf_in_process *local, hf_time at)
{
    if (at != HF_NEVER)
        at += local->offset; /* which may be below zero */
    hf_timer_set(local->host, &local->expiry_timer, at);
}

static bool enter_store(struct hf_in_process *local)
{
    local->report_failed = local->ops->enter(local) != HF_OK;
    return !local->report_failed;
}

/* The next event of any watch. The watch that had one goes to the end of the
 * list: each has its turn, also where events come faster than they are read. */
static bool read_watches(struct hf_in_process *local, struct event_copy *event)
{
    struct watch *watch = NULL;

    while ((watch = hf_watches_next(&local->watches, watch))) {
        if (!read_watch(local->store, watch, event))
            continue;
        hf_dlist_remove(&watch->entry.link);
        hf_dlist_push_back(&local->watches.list, &watch->entry.link);
        return true;
    }
    return false;
}

static bool pop_event(struct hf_in_process *local, struct event_copy *event)
{
    hf_time next_expiry;
    bool found;

    if (!enter_store(local))
        return false;
    found = read_watches(local, event);
    next_expiry = hf_store_next_deadline(local->store);
    local->ops->leave(local);
    if (!found)
        set_expiry_timer(local, next_expiry);
    return found;
}

void hf_in_process_note_forced(struct hf_in_process *local, uint64_t token)
{
    local->forced_token = local->forced_token ? HF_ANY_TOKEN : token;
}

static bool pop_grant(struct hf_in_process *local, struct hf_push_grant *push,
                      uint64_t *forced_token)
{
    struct hf_table *table = &local->store->table;
    struct hf_session *session;
    struct hf_grant grant;
    bool found;

    *forced_token = 0;
    if (!enter_store(local))
        return false;
    *forced_token = local->forced_token;
    local->forced_token = 0;
    /* Where processes share the store, another one may have ended it. */
    session = hf_table_find_session(table, local->session);
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
static void report_grants(struct hf_in_process *local)
{
    struct hf_host *host = local->host;
    struct hf_push_grant grant;
    uint64_t forced_token;
    bool found;

    do {
        found = pop_grant(local, &grant, &forced_token);
        if (forced_token)
            host->ops->recheck(host, forced_token);
        if (found)
            host->ops->grant(host, &grant);
    } while (found);
}

/* Report events until there is none, or until `*budget` is spent: false. */
static bool report_events(struct hf_in_process *local, unsigned *budget)
{
    struct event_copy event;

    while (*budget > 0) {
        if (local->report_failed || hf_watches_is_empty(&local->watches) ||
            !pop_event(local, &event))
            return true;
        local->host->ops->event(local->host, &event.push);
        (*budget)--;
    }
    return false;
}

/* Go on in the next turn, after timers and callbacks have had theirs. */
static void post_more_events(struct hf_in_process *local)
{
    struct hf_waker *waker = local->host->ops->post(local->host, &local->more);

    if (waker)
        hf_waker_wake(waker);
}

void hf_in_process_report(struct hf_in_process *local)
{
    unsigned budget = EVENTS_PER_TURN;
    bool all;

    local->is_reporting = true;
    do {
        local->has_reports = false;
        report_grants(local);
        all = report_events(local, &budget);
    } while (local->has_reports && all && !local->report_failed);
    local->is_reporting = false;
    if (local->report_failed)
        local->ops->retry_report(local);
    else if (!all)
        post_more_events(local);
}

/* ---- Requests -----------------------------------------------------------*/

/* Inside. */
static void serve(struct hf_in_process *local, struct hf_request *request)
{
    hf_time now = hf_in_process_now(local);
    struct hf_answer *answer = &request->answer;

    switch (request->kind) {
    case HF_REQUEST_COMMAND:
        serve_command(local, now, request);
        break;
    case HF_REQUEST_READ:
        if (local->ops->reap_holder)
            local->ops->reap_holder(local, request->command.key);
        serve_read(local->store, now, request);
        break;
    case HF_REQUEST_LIST:
        HF_ASSERT(false); /* hf_listing_run() */
        break;
    case HF_REQUEST_WATCH:
        answer->result.err = serve_watch(local, request);
        break;
    case HF_REQUEST_UNWATCH:
        serve_unwatch(local, request->watch);
        break;
    }
    answer->index = local->store->table.index;
}

static enum hf_err enter_and_serve(struct hf_in_process *local,
                                   struct hf_request *request)
{
    enum hf_err err = local->ops->enter(local);

    if (err)
        return err;
    serve(local, request);
    local->ops->leave(local);
    return HF_OK;
}

enum hf_err hf_in_process_submit(struct hf_in_process *local,
                                 struct hf_request *request)
{
    enum hf_err err = request->kind == HF_REQUEST_LIST
                          ? hf_listing_run(local, request)
                          : enter_and_serve(local, request);

    if (err)
        return err;
    local->host->ops->answer(local->host, request);
    if (local->has_reports && !local->is_reporting)
        hf_in_process_report(local);
    return HF_OK;
}

/* ---- Beginning and end --------------------------------------------------*/

static void on_local_expiry(struct hf_timer *timer)
{
    hf_in_process_report(
        HF_CONTAINER(timer, struct hf_in_process, expiry_timer));
}

static void on_more_events(struct hf_post *post)
{
    hf_in_process_report(HF_CONTAINER(post, struct hf_in_process, more));
}

enum hf_err hf_in_process_init(struct hf_in_process *local,
                               struct hf_host *host,
                               const struct hf_in_process_ops *ops)
{
    local->ops = ops;
    local->host = host;
    local->expiry_timer.fire = on_local_expiry;
    local->more.run = on_more_events;
    hf_watches_init(&local->watches);
    return host->ops->timer_add(host, &local->expiry_timer);
}

void hf_in_process_fini(struct hf_in_process *local)
{
    hf_watches_fini(&local->watches, NULL, NULL);
    local->host->ops->unpost(local->host, &local->more);
    local->host->ops->timer_remove(local->host, &local->expiry_timer);
}

uint32_t hf_in_process_caps(const void *self)
{
    (void)self;
    return HF_CAP_FENCE | HF_CAP_FIFO | HF_CAP_PUSH | HF_CAP_STEADY |
           HF_CAP_LINEARIZABLE_READ | HF_CAP_VALUE | HF_CAP_WATCH;
}

enum hf_err hf_in_process_open_session(struct hf_in_process *local)
{
    const char *owner = local->host->ops->owner(local->host);
    const struct hf_command open = {
        .kind = HF_COMMAND_OPEN,
        .note = {owner, strlen(owner)},
    };
    struct hf_result result;

    local->ops->run(local, hf_in_process_now(local), &open, &result);
    if (!result.err)
        local->session = result.session;
    return result.err;
}

enum hf_err hf_in_process_close_session(struct hf_in_process *local,
                                        uint64_t session)
{
    const struct hf_command close = {
        .kind = HF_COMMAND_CLOSE,
        .session = session,
    };
    struct hf_result result;

    local->ops->run(local, hf_in_process_now(local), &close, &result);
    return result.err;
}
