#include "sim/apps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/runner.h"
#include "strategy/raft/raft.h"

/* The clocks of clients start later than any real clock, so that no timerfd of
 * a client ever fires. */
#define START INT64_C(1000000000000)

const char *const app_keys[APP_KEYS] = {"a", "b", "c"};

static struct app *opening; /* hf_strategy.open has no argument for it */

uint32_t app_below(struct app *app, uint32_t bound)
{
    return hf_random_below(&app->all->random, bound);
}

/* ---- Time ---------------------------------------------------------------*/

hf_time app_now(const struct app *app)
{
    hf_time now = app->all->nodes->schedule.now;

    return app->ahead + now + now * app->drift / 1000000;
}

hf_time app_global(const struct app *app, hf_time local)
{
    hf_time at = (local - app->ahead) * 1000000 / (1000000 + app->drift);

    while (at > 0 && app->ahead + at + at * app->drift / 1000000 >= local)
        at--;
    while (app->ahead + at + at * app->drift / 1000000 < local)
        at++;
    return at;
}

static hf_time clock_of(void *arg)
{
    return app_now(arg);
}

static struct sim_schedule *schedule_of(const struct app *app)
{
    return &app->all->nodes->schedule;
}

/* ---- Transport ----------------------------------------------------------*/

static struct app *app_of(struct hf_net_transport *transport)
{
    return HF_CONTAINER(transport, struct app, transport);
}

static enum hf_err app_connect(struct hf_net_transport *transport,
                               struct hf_net_stream *stream,
                               struct hf_net_address *address,
                               struct hf_error *error)
{
    struct app *app = app_of(transport);

    if (app->is_closing)
        return hf_error_set(error, HF_EUNAVAIL, "no network");
    app_net_connect(&app->all->net, app->number, address->port - 7001u, stream);
    return HF_OK;
}

static bool app_send(struct hf_net_transport *transport,
                     struct hf_net_stream *stream, const void *data,
                     size_t size)
{
    if (!app_of(transport)->is_closing)
        app_net_write(stream, data, size);
    return true;
}

static void app_disconnect(struct hf_net_transport *transport,
                           struct hf_net_stream *stream)
{
    (void)transport;
    app_net_close(stream);
}

static const struct hf_net_transport_ops transport_ops = {
    .connect = app_connect,
    .write = app_send,
    .close = app_disconnect,
};

static void on_post(struct hf_post *post)
{
    struct app *app = HF_CONTAINER(post, struct app, post);

    app_net_deliver(&app->all->net, app->number);
}

static void on_arrival(void *arg, unsigned number)
{
    struct apps *apps = arg;
    struct app *app = &apps->list[number];
    struct hf_waker *waker = app->host->ops->post(app->host, &app->post);

    if (waker)
        hf_waker_unref(waker); /* app_wake() drives the client instead */
    app_wake(app);
}

/* ---- Turns of a client --------------------------------------------------*/

void app_wake(struct app *app)
{
    sim_schedule_set(schedule_of(app), &app->process, schedule_of(app)->now);
}

static bool is_paused(struct app *app, struct sim_event *event)
{
    hf_time until = app->all->net.paused_until[app->number];

    if (schedule_of(app)->now >= until)
        return false;
    sim_schedule_set(schedule_of(app), event, until);
    return true;
}

static void schedule_process(struct app *app)
{
    const struct hf_client *client = app->client;
    hf_time next = hf_loop_next_timer(client);
    hf_time now = schedule_of(app)->now;

    if (!hf_dlist_is_empty(&client->loop.posts) ||
        !hf_dlist_is_empty(&client->loop.callbacks) ||
        !hf_dlist_is_empty(&client->loop.answered))
        sim_schedule_set(schedule_of(app), &app->process, now);
    else if (next != HF_NEVER)
        sim_schedule_set(schedule_of(app), &app->process,
                         app_global(app, next));
}

static void on_process(struct sim_event *event)
{
    struct app *app = HF_CONTAINER(event, struct app, process);

    if (is_paused(app, event))
        return;
    assert_int_equal(hf_process(app->client), HF_OK);
    app_observe(app);
    schedule_process(app);
}

/* ---- Acting -------------------------------------------------------------*/

/* A lock with a long ttl is held for a while, and updated often. */
static void use_lock(struct app *app)
{
    bool is_lasting = app->ttl_ms == APP_LONG_TTL_MS;
    uint32_t draw = app_below(app, 12);
    bool releases = is_lasting ? draw == 11 : draw < 5;

    if (draw == 0 && (!is_lasting || app_below(app, 2) == 0))
        app_drop(app);
    else if (releases)
        app_release(app);
    else if (draw < 8 && !is_lasting)
        app_renew(app);
    else if (draw < 11)
        app_update(app);
}

static void act_as_holder(struct app *app)
{
    app_write(app);
    if (app->is_releasing)
        return;
    if (!hf_lock_valid_for(app->lock, 0))
        app_drop(app);
    else if (app->all->is_ending)
        app_release(app);
    else if (!app->is_idle)
        use_lock(app);
}

static void on_act(struct sim_event *event)
{
    struct app *app = HF_CONTAINER(event, struct app, act);

    if (is_paused(app, event))
        return;
    if (app->is_held)
        act_as_holder(app);
    else if (app->is_claiming && app_below(app, 40) == 0)
        app_drop(app);
    else if (!app->lock && !app->all->is_ending)
        app_claim(app);
    if (!app->all->is_ending && app_below(app, 2) == 0)
        app_read(app);
    if (!app->all->is_ending && app_below(app, 16) == 0)
        app_intrude(app);
    sim_schedule_set(schedule_of(app), &app->act,
                     schedule_of(app)->now + 1 + app_below(app, 400));
    app_wake(app);
}

/* ---- Open and close -----------------------------------------------------*/

static enum hf_err open_strategy(void *self, struct hf_url *url,
                                 struct hf_host *host, struct hf_error *error)
{
    opening->host = host;
    return hf_raft_open_with(self, url, host, &opening->transport, error);
}

static void format_url(const struct app *app, char *url, size_t size)
{
    size_t used = (size_t)snprintf(url, size, "raft://");

    for (unsigned i = 0; i < app->all->nodes->count; i++)
        used += (size_t)snprintf(url + used, size - used, "%s127.0.0.1:%u",
                                 i ? "," : "", 7001 + i);
    if (app->number % 3 == 2)
        (void)snprintf(url + used, size - used, "?route=any");
}

static void open_app(struct app *app)
{
    static struct hf_strategy strategy;
    struct hf_env env = {
        .clock = clock_of,
        .strategy = &strategy,
        .seed = 1 + app_below(app, UINT32_MAX),
        .arg = app,
    };
    struct hf_client_opts opts;
    char url[200];

    strategy = hf_strategy_raft;
    strategy.open = open_strategy;
    format_url(app, url, sizeof(url));
    hf_client_opts_init(&opts);
    opts.owner = "app";
    app->recorded_as = ++app->all->last_recorded_as;
    app->lives++;
    opening = app;
    assert_int_equal(hf_client_open(url, &opts, &env, &app->client), HF_OK);
    if (app_below(app, 2) == 0)
        app_watch(app);
    sim_schedule_set(schedule_of(app), &app->act,
                     schedule_of(app)->now + app_below(app, 500));
    app_wake(app);
}

/* Close the client without letting it send anything. */
static void close_app(struct app *app)
{
    app->is_closing = true;
    if (app->watch)
        hf_watch_close(app->watch);
    if (app->lock)
        hf_lock_free(app->lock);
    if (app->forged)
        hf_lock_free(app->forged);
    app->watch = NULL;
    app->lock = app->forged = NULL;
    app->is_claiming = app->is_held = app->is_releasing = false;
    (void)hf_close(app->client, 0);
    app->is_closing = false;
    app->session = 0;
    sim_schedule_cancel(schedule_of(app), &app->process);
    sim_schedule_cancel(schedule_of(app), &app->act);
}

void apps_kill(struct apps *apps, unsigned number, bool silent)
{
    struct app *app = &apps->list[number];

    if (app->all->net.paused_until[number] > schedule_of(app)->now)
        return;
    hf_recorder_death(&apps->recorder, app->recorded_as, ++apps->last_ns);
    app_net_reset(&apps->net, number, silent);
    close_app(app);
    open_app(app);
}

void apps_pause(struct apps *apps, unsigned number, uint32_t ms)
{
    apps->net.paused_until[number] = apps->nodes->schedule.now + ms;
}

bool apps_are_idle(const struct apps *apps)
{
    for (unsigned i = 0; i < apps->count; i++) {
        if (apps->list[i].lock || apps->list[i].open_calls > 0)
            return false;
    }
    return true;
}

/* ---- Init and fini ------------------------------------------------------*/

static void on_node_send(void *arg, struct sim_node *node, uint64_t conn,
                         const void *bytes, size_t size)
{
    (void)node;
    app_net_on_send(&((struct apps *)arg)->net, conn, bytes, size);
}

static void on_node_close(void *arg, struct sim_node *node, uint64_t conn)
{
    (void)node;
    app_net_on_close(&((struct apps *)arg)->net, conn);
}

static void on_node_pause(void *arg, struct sim_node *node, uint64_t conn,
                          bool stop)
{
    (void)node;
    app_net_on_pause(&((struct apps *)arg)->net, conn, stop);
}

const struct sim_clients_ops apps_clients_ops = {
    .send = on_node_send,
    .close = on_node_close,
    .pause = on_node_pause,
};

void apps_init(struct apps *apps, struct sim_nodes *nodes, uint64_t seed,
               unsigned count)
{
    memset(apps, 0, sizeof(*apps));
    apps->nodes = nodes;
    app_net_init(&apps->net, nodes, seed);
    apps->net.on_arrival = on_arrival;
    apps->net.arg = apps;
    hf_random_init(&apps->random, seed * 2 + 777);
    hf_recorder_init(&apps->recorder, true);
    apps->count = 2 + hf_random_below(&apps->random, SIM_APPS - 1);
    if (apps->count > count)
        apps->count = count;
    apps->key_count = 1 + hf_random_below(&apps->random, APP_KEYS);
}

void apps_open(struct apps *apps, const int32_t *drifts)
{
    for (unsigned i = 0; i < apps->count; i++) {
        struct app *app = &apps->list[i];

        app->all = apps;
        app->number = i;
        app->ahead = START + app_below(app, 1000000);
        app->drift = drifts[i];
        app->transport.ops = &transport_ops;
        app->post.run = on_post;
        app->process.fire = on_process;
        app->act.fire = on_act;
        open_app(app);
    }
}

void apps_fini(struct apps *apps)
{
    for (unsigned i = 0; i < apps->count; i++)
        close_app(&apps->list[i]);
    app_net_fini(&apps->net);
    hf_recorder_fini(&apps->recorder);
    free(apps->events);
}
