/* in_process_events.c - watches, and reports of grants and events to the host,
 * for the clients of in_process.h. */
#include "strategy/in_process.h"

#include <string.h>

#define EVENTS_PER_TURN 64 /* events reported before timers and callbacks run */

/* ---- Watches ------------------------------------------------------------*/

struct watch {
    struct hf_watch_entry entry;
    struct hf_history_cursor cursor;
};

/* The history starts with the first watch, not with the store: most stores are
 * never watched, every client of file: has a store of its own, and events cost
 * time and memory. */
static enum hf_err add_local_watch(struct hf_in_process *local,
                                   const struct hf_request *request)
{
    struct hf_store *store = local->store;
    uint64_t from = request->from ? request->from : store->table.index + 1;
    struct watch *watch;

    if (hf_store_enable_history(store, HF_HISTORY_BYTES))
        return HF_ENOMEM;
    watch = hf_watches_add(&local->watches, request, sizeof(*watch));
    if (!watch)
        return HF_ENOMEM;
    watch->cursor = hf_history_seek(&store->history, from);
    return HF_OK;
}

/* Add a watch and request a report, because the watch may start in the past,
 * and because reporting sets the expiry timer. */
enum hf_err hf_in_process_watch(struct hf_in_process *local,
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

void hf_in_process_unwatch(struct hf_in_process *local, uint64_t number)
{
    struct watch *watch = hf_watches_find(&local->watches, number);

    if (!watch)
        return;
    hf_watches_remove(&watch->entry);
    hf_watches_sweep(&local->watches, NULL, NULL);
    if (hf_watches_is_empty(&local->watches))
        local->ops->unwatch(local);
}

/* ---- Reporting ----------------------------------------------------------*/

/* An event for a watch, with copies of its key and owner, because the history
 * may change when the client leaves the store. */
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

/* Set the timer to the next deadline of a lease. A client with a watch expires
 * leases on time, even if there are no waiters. It is notified of every event
 * that may change the next deadline, and then sets the timer again. */
static void set_expiry_timer(struct hf_in_process *local, hf_time at)
{
    if (at != HF_NEVER)
        at += local->offset; /* not hf_time_add(): offset may be negative */
    hf_timer_set(local->host, &local->expiry_timer, at);
}

static bool enter_store(struct hf_in_process *local)
{
    local->report_failed = local->ops->enter(local) != HF_OK;
    return !local->report_failed;
}

/* Read the next event of any watch. Returns false if there is none. A watch
 * that had an event moves to the end of the list: otherwise, if events arrived
 * faster than they are reported, the first watch would starve the others. */
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

/* ---- Grants -------------------------------------------------------------*/

static struct hf_table_waiter *granted_at(struct hf_dlist *link)
{
    return HF_CONTAINER(link, struct hf_table_waiter, in_queue);
}

static void note_grant(struct hf_in_process *local,
                       const struct hf_table_event *event)
{
    struct hf_table_waiter *waiter = hf_table_take_waiter(event);

    waiter->since = event->hold->since;
    event->hold->waiter_taken = true;
    hf_dlist_push_back(&local->grants, &waiter->in_queue);
}

void hf_in_process_drop_grants(struct hf_in_process *local)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&local->grants)))
        hf_table_waiter_free(granted_at(link));
}

/* Drop the grant with `token`, if it is not reported yet, because it has ended.
 * The list is ordered by token. */
static void drop_grant(struct hf_in_process *local, uint64_t token)
{
    struct hf_dlist *link = local->grants.next;

    while (link != &local->grants && granted_at(link)->token < token)
        link = link->next;
    if (link == &local->grants || granted_at(link)->token != token)
        return;
    hf_dlist_remove(link);
    hf_table_waiter_free(granted_at(link));
}

bool hf_in_process_note_event(struct hf_in_process *local,
                              const struct hf_table_event *event)
{
    uint64_t token = event->hold->token;
    bool broken = event->kind == HF_EVENT_FORCED;

    if (event->waited)
        note_grant(local, event);
    else if (event->ends && event->hold->waiter_taken)
        drop_grant(local, token);
    if (broken)
        local->forced_token = local->forced_token ? HF_ANY_TOKEN : token;
    return event->waited || broken;
}

static bool pop_grant(struct hf_in_process *local, struct hf_push_grant *push,
                      uint64_t *forced_token)
{
    struct hf_dlist *link;

    *forced_token = 0;
    if (!enter_store(local))
        return false;
    *forced_token = local->forced_token;
    local->forced_token = 0;
    link = hf_dlist_take(&local->grants);
    local->ops->leave(local);
    if (!link)
        return false;
    *push = (struct hf_push_grant){
        .nonce = granted_at(link)->nonce,
        .token = granted_at(link)->token,
        .anchor = {.known = true,
                   .sent = granted_at(link)->since + local->offset},
    };
    hf_table_waiter_free(granted_at(link));
    return true;
}

/* Report grants and forced locks. This needs no limit per turn, because there
 * is at most one grant per waiting claim. */
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

/* Report events. Returns false if `*budget` is used up, because there may be
 * more events. */
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

/* Report the remaining events in the next turn, after timers and callbacks have
 * run. */
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
