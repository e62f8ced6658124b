#include "quorum/apps.h"

#include <string.h>

#include "client/drift.h"
#include "lib/runner.h"
#include "quorum/checks.h"

static hf_time now_of(const struct sim_app *app)
{
    return sim_clock_now(app->client->quorum, &app->client->clock);
}

struct hf_key sim_apps_key(unsigned index)
{
    static const char names[SIM_KEYS_MAX][2] = {"a", "b", "c"};

    return (struct hf_key){names[index], 1};
}

bool sim_app_is_valid(const struct sim_app *app)
{
    return app->state == SIM_APP_HOLDS && app->valid_until > now_of(app);
}

/* ---- Timers -------------------------------------------------------------*/

static void arm_tick(struct sim_app *app)
{
    struct sim_quorum *quorum = app->client->quorum;
    hf_time at =
        app->coordinator ? hf_coordinator_deadline(app->coordinator) : HF_NEVER;

    at = sim_clock_when(quorum, &app->client->clock, at);
    if (at == HF_NEVER)
        sim_schedule_cancel(&quorum->schedule, &app->tick);
    else
        sim_schedule_set(&quorum->schedule, &app->tick, at);
}

static void set_app_timer(struct sim_app *app, uint32_t ms)
{
    sim_schedule_set(&app->client->quorum->schedule, &app->timer,
                     app->client->quorum->schedule.now + ms);
}

/* ---- Claims -------------------------------------------------------------*/

static void free_claim(struct sim_app *app)
{
    hf_coordinator_free(app->coordinator);
    app->coordinator = NULL;
    app->state = SIM_APP_IDLE;
    app->valid_until = 0;
    app->updates = false;
    sim_schedule_cancel(&app->client->quorum->schedule, &app->tick);
}

static void note_release(const struct sim_app *app)
{
    struct sim_apps *apps = app->apps;

    if (!sim_app_is_valid(app))
        return;
    apps->released[app->key].at = apps->quorum->schedule.now;
    apps->released[app->key].order = apps->order;
}

void sim_app_end(struct sim_app *app)
{
    note_release(app);
    app->valid_until = 0;
    app->updates = false;
    app->state = SIM_APP_ENDS;
    app->give_up_at = app->client->quorum->schedule.now + 10000;
    hf_coordinator_end(app->coordinator, now_of(app));
    arm_tick(app);
}

static void on_send(void *arg, struct hf_coordinator *coordinator,
                    unsigned master, const struct hf_quorum_request *request)
{
    struct sim_app *app = arg;

    sim_client_send(app->client, master, &coordinator->id, request);
}

/* A claim that was queued when the key was released has got it. */
static void note_handover(const struct sim_app *app)
{
    struct sim_apps *apps = app->apps;
    struct sim_stats *stats = &apps->stats;
    hf_time released = apps->released[app->key].at;
    uint64_t ms = (uint64_t)(apps->quorum->schedule.now - released);

    apps->released[app->key].at = 0;
    if (released == 0 || app->queued_order == 0 ||
        app->queued_order > apps->released[app->key].order)
        return;
    stats->handovers++;
    stats->handover_ms += ms;
    if (ms > stats->handover_max_ms)
        stats->handover_max_ms = ms;
}

static void on_granted(struct sim_app *app,
                       const struct hf_coordinator_event *event)
{
    struct hf_anchor anchor = {
        .known = true,
        .sent = event->sent,
        .age_ms = event->age_ms,
    };
    struct sim_quorum *quorum = app->client->quorum;

    assert_true(event->commits >= event->needed);
    app->state = SIM_APP_HOLDS;
    app->token = event->token;
    app->valid_until = hf_drift_valid_until(
        hf_drift_lease_base(&anchor, event->sent), now_of(app), app->ttl_ms);
    app->granted_at = quorum->schedule.now;
    app->release_at = quorum->schedule.now + sim_quorum_below(quorum, 1500);
    app->renew_at = quorum->schedule.now;
    if (app->valid_until >= now_of(app) + app->ttl_ms)
        app->renew_at += app->ttl_ms / 3; /* otherwise at once */
    note_handover(app);
    if (sim_app_is_valid(app)) {
        sim_check_granted(app->apps, app);
        app->apps->stats.grants++;
    }
    set_app_timer(app, 1);
}

static void on_renewed(struct sim_app *app,
                       const struct hf_coordinator_event *event)
{
    hf_time until = hf_drift_valid_until(event->sent, now_of(app), app->ttl_ms);

    assert_true(event->commits >= event->needed);
    if (!sim_app_is_valid(app))
        return; /* a loss is final */
    if (until > app->valid_until)
        app->valid_until = until;
    sim_check_renewed(app->apps, app);
    app->apps->stats.renewals++;
}

static void on_event(void *arg, struct hf_coordinator *coordinator,
                     const struct hf_coordinator_event *event)
{
    struct sim_app *app = arg;

    (void)coordinator;
    switch (event->kind) {
    case HF_COORDINATOR_GRANTED:
        on_granted(app, event);
        break;
    case HF_COORDINATOR_RENEWED:
        on_renewed(app, event);
        break;
    case HF_COORDINATOR_QUEUED:
        app->queued_order = ++app->apps->order;
        app->apps->stats.waits++;
        break;
    case HF_COORDINATOR_UPDATED:
        app->updates = false;
        app->value = app->expected + 1;
        app->apps->stats.updates++;
        break;
    case HF_COORDINATOR_MISMATCH:
        fail_msg("the value of token %llu is not that of its holder",
                 (unsigned long long)app->token);
        break;
    case HF_COORDINATOR_FORCED:
        app->is_forced = true; /* held until the lease expires */
        break;
    case HF_COORDINATOR_LOST:
        if (sim_app_is_valid(app))
            fail_msg("lost while valid: token %llu",
                     (unsigned long long)app->token);
        app->valid_until = 0;
        app->apps->stats.losses++;
        set_app_timer(app, 0);
        break;
    case HF_COORDINATOR_BUSY:
    case HF_COORDINATOR_REFUSED:
        app->apps->stats.refusals++;
        app->state = SIM_APP_ENDS;
        app->give_up_at = app->client->quorum->schedule.now + 10000;
        break;
    case HF_COORDINATOR_ENDED:
        sim_check_ended(app->apps, app);
        break;
    }
}

static const struct hf_coordinator_ops app_ops = {
    .send = on_send,
    .event = on_event,
};

void sim_app_lock(struct sim_app *app, unsigned key, bool queue)
{
    struct sim_quorum *quorum = app->client->quorum;
    struct hf_nonce nonce;
    uint32_t value = 0;
    struct hf_claim_data data = {.value = {&value, sizeof(value)}};

    assert_int_equal(hf_random_bytes(&quorum->random, &nonce, sizeof(nonce)),
                     HF_OK);
    app->key = key;
    app->ttl_ms = 300 + sim_quorum_below(quorum, 2500);
    app->value = 0;
    app->is_forced = false;
    app->locked_at = quorum->schedule.now;
    app->locked_order = ++app->apps->order;
    app->queued_order = 0;
    app->coordinator =
        hf_coordinator_new(&app->client->common, &app_ops, app,
                           sim_apps_key(app->key), &nonce, &data);
    assert_non_null(app->coordinator);
    app->state = SIM_APP_CLAIMS;
    app->give_up_at =
        quorum->schedule.now + 200 + sim_quorum_below(quorum, 5000);
    hf_coordinator_lock(app->coordinator, now_of(app),
                        hf_drift_lease_ms(app->ttl_ms), queue);
    arm_tick(app);
}

/* ---- The application ----------------------------------------------------*/

/* The application waits no longer for the masters that have not confirmed its
 * END: they are cut off, or this process stood still. They have to forget the
 * claim all the same, so the connections to them are closed (coordinator.h).
 * The client of holdfast never gives up; it closes connections that are
 * silent. */
static void abandon_end(struct sim_app *app)
{
    const struct hf_coordinator *c = app->coordinator;

    for (unsigned i = 0; i < app->client->quorum->master_count; i++) {
        if (!(c->replied >> i & 1) || c->replies[i].kind != HF_QUORUM_ENDED)
            sim_link_break(&app->client->links[i]);
    }
    free_claim(app);
}

static void start_update(struct sim_app *app)
{
    uint32_t value = app->value + 1;
    struct hf_bytes expected = {&app->value, sizeof(app->value)};

    app->updates = true;
    app->expected = app->value;
    assert_int_equal(
        hf_coordinator_update(app->coordinator, now_of(app), &expected,
                              (struct hf_bytes){&value, sizeof(value)}),
        HF_OK);
}

static void continue_hold(struct sim_app *app)
{
    struct sim_quorum *quorum = app->client->quorum;
    hf_time now = quorum->schedule.now;

    bool is_over = now >= app->release_at || app->apps->is_ending;

    if (!sim_app_is_valid(app) || (is_over && !app->apps->is_scripted)) {
        sim_app_end(app);
    } else if (now >= app->renew_at && !app->is_forced) {
        app->renew_at = now + app->ttl_ms / 3;
        hf_coordinator_renew(app->coordinator, now_of(app),
                             hf_drift_lease_ms(app->ttl_ms));
    } else if (!app->updates && sim_quorum_below(quorum, 20) == 0) {
        start_update(app);
    }
    set_app_timer(app, 10 + sim_quorum_below(quorum, 30));
}

static void continue_app(struct sim_app *app)
{
    struct sim_quorum *quorum = app->client->quorum;
    hf_time now = quorum->schedule.now;

    switch (app->state) {
    case SIM_APP_IDLE:
        if (!app->apps->is_ending && !app->apps->is_scripted)
            sim_app_lock(app, sim_quorum_below(quorum, app->apps->keys),
                         sim_quorum_below(quorum, 4) > 0);
        set_app_timer(app, 10);
        break;
    case SIM_APP_CLAIMS:
        if (!app->apps->is_scripted &&
            (now >= app->give_up_at || app->apps->is_ending))
            sim_app_end(app);
        set_app_timer(app, 10);
        break;
    case SIM_APP_HOLDS:
        continue_hold(app);
        break;
    case SIM_APP_ENDS:
        if (app->coordinator->state == HF_COORDINATOR_DONE)
            free_claim(app);
        else if (now >= app->give_up_at)
            abandon_end(app);
        set_app_timer(app, sim_quorum_below(quorum, 300));
        break;
    }
}

static void on_app_timer(struct sim_event *event)
{
    struct sim_app *app = HF_CONTAINER(event, struct sim_app, timer);
    struct sim_quorum *quorum = app->client->quorum;

    if (app->client->stopped_until > quorum->schedule.now) {
        sim_schedule_set(&quorum->schedule, event, app->client->stopped_until);
        return;
    }
    continue_app(app);
    arm_tick(app);
}

static void on_app_tick(struct sim_event *event)
{
    struct sim_app *app = HF_CONTAINER(event, struct sim_app, tick);
    struct sim_quorum *quorum = app->client->quorum;

    if (app->client->stopped_until > quorum->schedule.now) {
        sim_schedule_set(&quorum->schedule, event, app->client->stopped_until);
        return;
    }
    if (app->coordinator)
        hf_coordinator_tick(app->coordinator, now_of(app));
    arm_tick(app);
}

/* ---- Messages -----------------------------------------------------------*/

static void on_receive(struct sim_client *client, unsigned master,
                       const struct hf_claim_id *id,
                       const struct hf_quorum_reply *reply)
{
    struct sim_apps *apps = client->receive_arg;

    if (sim_reader_receive(&apps->readers[client->index], master, id, reply))
        return;
    for (unsigned i = 0; i < apps->count; i++) {
        struct sim_app *app = &apps->list[i];

        if (app->client != client || !app->coordinator ||
            !hf_claim_id_equal(&app->coordinator->id, id))
            continue;
        hf_coordinator_receive(app->coordinator, now_of(app), master, reply);
        arm_tick(app);
    }
}

static void on_connected(struct sim_client *client, unsigned master, bool is_up)
{
    struct sim_apps *apps = client->receive_arg;

    for (unsigned i = 0; i < apps->count; i++) {
        struct sim_app *app = &apps->list[i];

        if (app->client != client || !app->coordinator)
            continue;
        if (is_up)
            hf_coordinator_connect(app->coordinator, now_of(app), master);
        else
            hf_coordinator_disconnect(app->coordinator, now_of(app), master);
        arm_tick(app);
    }
}

/* ---- All applications ---------------------------------------------------*/

static void init_app(struct sim_apps *apps, unsigned index)
{
    struct sim_app *app = &apps->list[index];

    app->apps = apps;
    app->client = &apps->quorum->clients[index % apps->quorum->client_count];
    app->timer.fire = on_app_timer;
    app->tick.fire = on_app_tick;
    set_app_timer(app, sim_quorum_below(apps->quorum, 20));
}

void sim_apps_init(struct sim_apps *apps, struct sim_quorum *quorum,
                   const struct sim_apps_opts *opts)
{
    *apps = (struct sim_apps){
        .quorum = quorum,
        .count = opts->count,
        .keys = opts->keys,
        .is_scripted = opts->is_scripted,
        .is_fair = opts->is_fair,
    };
    for (unsigned i = 0; i < quorum->client_count; i++) {
        quorum->clients[i].receive_arg = apps;
        quorum->clients[i].receive = on_receive;
        quorum->clients[i].connected = on_connected;
        sim_reader_init(&apps->readers[i], apps, &quorum->clients[i]);
    }
    for (unsigned i = 0; i < opts->count; i++)
        init_app(apps, i);
    sim_check_masters(apps);
}

void sim_apps_fini(struct sim_apps *apps)
{
    for (unsigned i = 0; i < apps->count; i++) {
        free_claim(&apps->list[i]);
        sim_schedule_cancel(&apps->quorum->schedule, &apps->list[i].timer);
    }
}

/* The next process of the client knows nothing. */
void sim_apps_kill(struct sim_apps *apps, struct sim_client *client)
{
    for (unsigned i = 0; i < apps->count; i++) {
        if (apps->list[i].client == client)
            free_claim(&apps->list[i]);
    }
    sim_reader_stop(&apps->readers[client->index]);
    for (unsigned i = 0; i < apps->quorum->master_count; i++)
        sim_link_break(&client->links[i]);
    client->common.highest = 0;
}

/* ---- The end ------------------------------------------------------------*/

/* One application acquires each key in turn. */
static void check_progress(struct sim_apps *apps)
{
    struct sim_app *app = &apps->list[0];

    apps->is_scripted = true;
    for (unsigned key = 0; key < apps->keys; key++) {
        sim_app_lock(app, key, false);
        for (unsigned i = 0; i < 1000 && app->state == SIM_APP_CLAIMS; i++)
            sim_quorum_run(apps->quorum, 1);
        assert_int_equal(app->state, SIM_APP_HOLDS);
        free_claim(app);
    }
}

void sim_apps_check_end(struct sim_apps *apps)
{
    struct sim_quorum *quorum = apps->quorum;

    apps->is_ending = true;
    sim_quorum_run(quorum, 3L * SIM_LEASE_MAX_MS);
    for (unsigned i = 0; i < apps->count; i++)
        assert_int_equal(apps->list[i].state, SIM_APP_IDLE);
    sim_check_nothing_is_left(quorum);
    check_progress(apps);
}
