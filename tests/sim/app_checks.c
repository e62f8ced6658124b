/* app_checks.c - what must be true of simulated applications.
 *
 * After every turn of a client:
 *   - a key has at most one valid holder, by the holders' own clocks;
 *   - no node has ended the grant of a valid holder, and no renewal extends a
 *     lock that was broken;
 *   - all watches report the same events, in order and without gaps;
 *   - a read, also a local one, returns the state after some event, and is not
 *     older than the last read over the same connection.
 * After every turn of a node, it does not know a claim that has ended, as its
 * application was told: one that was refused, timed out or released.
 * At the end, hf-check examines the history. If clocks are too wrong, two
 * clients may hold a key, and only tokens, the resource and the order of the
 * queue are checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hf-check/check.h"
#include "hf-check/report.h"
#include "lib/runner.h"
#include "node/state.h"
#include "sim/app_history.h"
#include "strategy/raft/raft.h"

/* ---- Times --------------------------------------------------------------*/

uint64_t apps_history_now(struct apps *apps)
{
    uint64_t now = (uint64_t)apps->nodes->schedule.now * 1000000;

    if (now <= apps->last_ns)
        now = apps->last_ns + 1;
    apps->last_ns = now;
    return now;
}

uint64_t apps_history_instant(const struct app *app, hf_time local)
{
    return (uint64_t)app_global(app, local) * 1000000 + 1;
}

/* ---- After every turn ---------------------------------------------------*/

/* A renewal in the background has extended the validity: record it as a renewal
 * that took place just now, because the lock is held now. */
static void record_renewal(struct app *app, hf_time deadline)
{
    struct hf_recorder *recorder = &app->all->recorder;
    size_t op =
        hf_recorder_begin(recorder, &(struct hf_recorder_call){
                                        .kind = HF_OP_RENEW,
                                        .client = app->recorded_as,
                                        .key = app_keys[app->key],
                                        .key_len = strlen(app_keys[app->key]),
                                        .nonce = app->nonce,
                                        .token = app->token,
                                        .now = apps_history_now(app->all),
                                    });

    hf_recorder_end(recorder, op,
                    &(struct hf_recorder_answer){
                        .result = HF_OP_OK,
                        .nonce = app->nonce,
                        .token = app->token,
                        .deadline = apps_history_instant(app, deadline),
                        .now = apps_history_now(app->all),
                    });
    app->deadline = deadline;
    app->all->renewals++;
}

static bool is_valid(const struct app *app)
{
    return app->lock && hf_lock_valid_for(app->lock, 0);
}

static void check_exclusion(struct app *app)
{
    struct apps *apps = app->all;

    for (unsigned i = 0; i < apps->count; i++) {
        const struct app *other = &apps->list[i];

        if (other == app || other->key != app->key || !is_valid(other))
            continue;
        apps->overlaps++;
        if (!apps->fence_only)
            fail_msg("%lld ms: applications %u and %u both hold '%s' (tokens "
                     "%llu and %llu)",
                     (long long)apps->nodes->schedule.now, app->number,
                     other->number, app_keys[app->key],
                     (unsigned long long)hf_lock_token(app->lock),
                     (unsigned long long)hf_lock_token(other->lock));
    }
}

/* The node that has applied most, or NULL. */
static const struct sim_node *newest_node(const struct apps *apps)
{
    const struct sim_node *newest = NULL;

    for (unsigned i = 0; i < apps->nodes->count; i++) {
        const struct sim_node *node = &apps->nodes->list[i];

        if (node->node && (!newest || node->node->machine.applied >
                                          newest->node->machine.applied))
            newest = node;
    }
    return newest;
}

/* The cluster has not ended the grant of a valid holder. A node that has
 * applied less than the grant shows nothing. */
static void check_grant(const struct app *app)
{
    struct apps *apps = app->all;
    const struct sim_node *node = newest_node(apps);
    const struct hf_hold *hold;

    if (!node || apps->fence_only)
        return;
    if (node->node->machine.store->table.token < hf_lock_token(app->lock))
        return;
    hold = hf_table_find(&node->node->machine.store->table,
                         hf_key_of(app_keys[app->key]));
    if (!hold || hold->token != hf_lock_token(app->lock))
        fail_msg("%lld ms: application %u holds '%s' with token %llu, which "
                 "has ended at node %u",
                 (long long)apps->nodes->schedule.now, app->number,
                 app_keys[app->key],
                 (unsigned long long)hf_lock_token(app->lock),
                 node->number + 1);
}

static void check_forced(const struct app *app)
{
    if (hf_lock_token(app->lock) == app->forced_token &&
        hf_lock_deadline(app->lock) > app->forced_until)
        fail_msg("%lld ms: application %u renewed a lock that was broken",
                 (long long)app->all->nodes->schedule.now, app->number);
}

void apps_end_claim(struct apps *apps, unsigned key, const uint8_t *nonce)
{
    struct app_ended *ended = &apps->ended[apps->ended_count++ % APP_ENDED];

    memcpy(ended->nonce.bytes, nonce, sizeof(ended->nonce));
    ended->key = key;
    ended->index = apps->commit;
}

void apps_note_commit(struct apps *apps, const struct sim_node *node)
{
    if (node->node->commit > apps->commit)
        apps->commit = node->node->commit;
}

void apps_check_ended(const struct apps *apps, const struct sim_node *node)
{
    const struct hf_table *table = &node->node->machine.store->table;

    for (unsigned i = 0; i < APP_ENDED && i < apps->ended_count; i++) {
        const struct app_ended *ended = &apps->ended[i];

        if (node->node->machine.applied < ended->index)
            continue;
        if (hf_table_lookup(table, hf_key_of(app_keys[ended->key]),
                            &ended->nonce)
                .state != HF_LOOKUP_UNKNOWN)
            fail_msg("%lld ms: node %u still knows an ended claim on '%s'",
                     (long long)apps->nodes->schedule.now, node->number + 1,
                     app_keys[ended->key]);
    }
}

static void check_session(struct app *app)
{
    const struct hf_raft *raft = app->client->self;

    if (app->session > 0 && raft->session.id != app->session)
        app->all->sessions_lost++;
    app->session = raft->session.id;
}

void app_observe(struct app *app)
{
    check_session(app);
    if (!is_valid(app))
        return;
    check_exclusion(app);
    check_grant(app);
    check_forced(app);
    if (app->is_held && !app->is_releasing &&
        hf_lock_deadline(app->lock) > app->deadline)
        record_renewal(app, hf_lock_deadline(app->lock));
}

/* ---- Events -------------------------------------------------------------*/

static struct app_event *find_event(struct apps *apps, uint64_t index)
{
    size_t capacity = apps->event_capacity ? apps->event_capacity : 1024;

    while (capacity <= index)
        capacity *= 2;
    if (capacity > apps->event_capacity) {
        apps->events = realloc(apps->events, capacity * sizeof(*apps->events));
        assert_non_null(apps->events);
        memset(apps->events + apps->event_capacity, 0,
               (capacity - apps->event_capacity) * sizeof(*apps->events));
        apps->event_capacity = capacity;
    }
    return &apps->events[index];
}

void app_on_event(const struct hf_event *event, void *arg)
{
    struct app *app = arg;
    struct app_event *known;
    uint64_t hash = event->token * 31 + event->freed;

    if (event->kind == HF_EVENT_DROPPED) {
        app->next_event = event->index;
        return;
    }
    app->all->events_seen++;
    if (app->next_event > 0 && event->index != app->next_event)
        fail_msg("application %u got event %llu, expected %llu", app->number,
                 (unsigned long long)event->index,
                 (unsigned long long)app->next_event);
    app->next_event = event->index + 1;
    for (size_t i = 0; i < event->key.size; i++)
        hash = hash * 257 + ((const uint8_t *)event->key.data)[i];
    known = find_event(app->all, event->index);
    if (known->kind &&
        (known->kind != (uint32_t)event->kind || known->hash != hash))
        fail_msg("two watches got different events %llu",
                 (unsigned long long)event->index);
    *known = (struct app_event){(uint32_t)event->kind, hash};
}

/* ---- Reads --------------------------------------------------------------*/

uint64_t app_link_of(const struct app *app)
{
    const struct hf_raft *raft = app->client->self;
    const struct app_link *link = raft->current->link.stream.handle;

    return link ? link->number : 0;
}

static void compare_read(struct app *app, const struct hf_info *info)
{
    uint64_t holder;

    if (!node_events_find_holder(app->all->node_events, info->key, info->index,
                                 &holder))
        return;
    app->all->compared_reads++;
    if (holder != (info->held ? info->token : 0))
        fail_msg("application %u reads token %llu after event %llu, and the "
                 "holder was %llu",
                 app->number, (unsigned long long)info->token,
                 (unsigned long long)info->index, (unsigned long long)holder);
}

/* A node that restarts may know less than before, and another node may know
 * less, but a node does not go back while it runs. If the connection is still
 * that over which the read was sent, the reply came over it. */
void app_check_read(struct app *app, uint64_t link, const struct hf_info *info)
{
    compare_read(app, info);
    if (link == 0 || link != app_link_of(app))
        return;
    if (link == app->read_link && info->index < app->read_index)
        fail_msg("application %u reads event %llu after %llu", app->number,
                 (unsigned long long)info->index,
                 (unsigned long long)app->read_index);
    app->read_link = link;
    app->read_index = info->index;
}

/* ---- At the end ---------------------------------------------------------*/

static bool is_promised(const struct apps *apps, enum hf_check_kind kind)
{
    return !apps->fence_only || kind == HF_CHECK_TOKEN_REPEATED ||
           kind == HF_CHECK_TOKEN_ORDER || kind == HF_CHECK_FENCE_ORDER ||
           kind == HF_CHECK_FENCE_SHARED || kind == HF_CHECK_FIFO;
}

void apps_check_history(struct apps *apps)
{
    const struct hf_check_history *history =
        hf_recorder_history(&apps->recorder);
    struct hf_check_report report;
    size_t count = 0;

    hf_check_run(history, &report);
    for (size_t i = 0; i < report.violation_count && i < HF_CHECK_LIST_MAX; i++)
        count += is_promised(apps, report.violations[i].kind);
    if (count == 0)
        return;
    hf_report_text(history, &report, "simulation", stdout);
    (void)fflush(stdout);
    fail();
}
