#include "sim/app_faults.h"

#include <string.h>

/* A session ends when it was not attached for 10 s. */
#define SESSION_MS 10000

static struct app_faults *faults_of(const struct node_faults *nodes)
{
    return nodes->arg;
}

static unsigned choose_app(struct node_faults *nodes)
{
    return node_faults_below(nodes, faults_of(nodes)->apps->count);
}

/* Choose an application that waits for a reply, if there is one: others do not
 * notice most faults. */
static unsigned choose_busy_app(struct node_faults *nodes)
{
    const struct apps *apps = faults_of(nodes)->apps;
    unsigned first = choose_app(nodes);

    for (unsigned i = 0; i < apps->count; i++) {
        if (apps->list[(first + i) % apps->count].open_calls > 0)
            return (first + i) % apps->count;
    }
    return first;
}

/* Choose an application whose lock outlives its session, if there is one: then
 * it matters whether a command is executed again in the next session. */
static unsigned choose_lasting_app(struct node_faults *nodes)
{
    const struct apps *apps = faults_of(nodes)->apps;
    unsigned first = choose_busy_app(nodes);

    for (unsigned i = 0; i < apps->count; i++) {
        const struct app *app = &apps->list[(first + i) % apps->count];

        if (app->is_held && app->ttl_ms == APP_LONG_TTL_MS)
            return app->number;
    }
    return first;
}

static void on_heal(struct sim_event *event)
{
    struct app_faults_due *due =
        HF_CONTAINER(event, struct app_faults_due, heal);

    app_net_heal(&due->apps->net, due->number);
}

static void on_lose(struct sim_event *event)
{
    struct app_faults_due *due =
        HF_CONTAINER(event, struct app_faults_due, lose);
    struct apps *apps = due->apps;

    app_net_reset(&apps->net, due->number, false);
    if (due->pause_ms > 0) {
        app_net_heal(&apps->net, due->number);
        apps_pause(apps, due->number, due->pause_ms);
        return;
    }
    for (unsigned i = 0; i < apps->nodes->count; i++)
        app_net_cut(&apps->net, due->number, i, true, true);
}

static void cut_off(struct node_faults *nodes, unsigned app, bool to, bool from,
                    uint32_t ms)
{
    struct app_faults *faults = faults_of(nodes);
    struct sim_schedule *schedule = &nodes->nodes->schedule;

    for (unsigned i = 0; i < nodes->nodes->count; i++)
        app_net_cut(&faults->apps->net, app, i, to, from);
    sim_schedule_set(schedule, &faults->due[app].heal, schedule->now + ms);
}

/* Returns true if another fault would end the one that end_session() began. */
static bool is_ending_session(const struct node_faults *nodes, unsigned app)
{
    return nodes->nodes->schedule.now < faults_of(nodes)->due[app].until;
}

static void cut_app(struct node_faults *nodes)
{
    unsigned direction = node_faults_below(nodes, 3);
    unsigned app = choose_busy_app(nodes);

    if (is_ending_session(nodes, app))
        return;
    nodes->happened[NODE_FAULT_APP_CUT]++;
    cut_off(nodes, app, direction != 0, direction != 1,
            50 + node_faults_below(nodes, 4000));
}

static void reset_app(struct node_faults *nodes)
{
    unsigned app = choose_app(nodes);

    nodes->happened[NODE_FAULT_APP_RESET]++;
    app_net_reset(&faults_of(nodes)->apps->net, app,
                  node_faults_below(nodes, 3) == 0);
}

static void pause_app(struct node_faults *nodes)
{
    unsigned app = choose_busy_app(nodes);
    uint32_t longest = node_faults_below(nodes, 2) == 0 ? 600 : 5000;

    if (is_ending_session(nodes, app))
        return;
    nodes->happened[NODE_FAULT_APP_PAUSE]++;
    apps_pause(faults_of(nodes)->apps, app,
               50 + node_faults_below(nodes, longest));
}

static void kill_app(struct node_faults *nodes)
{
    unsigned app = choose_app(nodes);

    nodes->happened[NODE_FAULT_APP_DEATH]++;
    apps_kill(faults_of(nodes)->apps, app, node_faults_below(nodes, 3) == 0);
}

/* Pause an application, or cut it off, for longer than its session is kept. The
 * fault begins with the replies, so that some commands are executed although
 * their replies never arrive. An application that is cut off gives them up when
 * it reaches no node; one that was paused finds that its session is gone. The
 * fault is counted when the application notices, see apps.sessions_lost. */
static void end_session(struct node_faults *nodes)
{
    struct app_faults *faults = faults_of(nodes);
    struct sim_schedule *schedule = &nodes->nodes->schedule;
    unsigned app = choose_lasting_app(nodes);
    uint32_t ms = SESSION_MS + 500 + node_faults_below(nodes, 4000);
    bool pauses = node_faults_below(nodes, 2) == 0;

    if (is_ending_session(nodes, app))
        return;
    faults->due[app].until = schedule->now + ms;
    cut_off(nodes, app, false, true, ms);
    faults->due[app].pause_ms = pauses ? ms : 0;
    sim_schedule_set(schedule, &faults->due[app].lose,
                     schedule->now + 1 + node_faults_below(nodes, 1000));
}

static const struct node_faults_action actions[] = {
    {NODE_FAULT_APP_CUT, cut_app},
    {NODE_FAULT_APP_RESET, reset_app},
    {NODE_FAULT_APP_PAUSE, pause_app},
    {NODE_FAULT_APP_DEATH, kill_app},
    /* Twice, to be drawn more often: a session that nobody uses ends without
     * effect. */
    {NODE_FAULT_SESSION_END, end_session},
    {NODE_FAULT_SESSION_END, end_session},
};

static void lose_answers(void *arg, struct sim_node *node)
{
    app_net_lose(&((struct app_faults *)arg)->apps->net, node->number);
}

void app_faults_init(struct app_faults *faults, struct apps *apps,
                     struct node_faults *nodes)
{
    memset(faults, 0, sizeof(*faults));
    faults->apps = apps;
    for (unsigned i = 0; i < SIM_APPS; i++)
        faults->due[i] = (struct app_faults_due){.heal = {.fire = on_heal},
                                                 .lose = {.fire = on_lose},
                                                 .apps = apps,
                                                 .number = i};
    nodes->more = actions;
    nodes->more_count = sizeof(actions) / sizeof(actions[0]);
    nodes->lose_answers = lose_answers;
    nodes->arg = faults;
}

void app_faults_end(struct app_faults *faults)
{
    struct apps *apps = faults->apps;

    for (unsigned i = 0; i < apps->count; i++) {
        sim_schedule_cancel(&apps->nodes->schedule, &faults->due[i].heal);
        sim_schedule_cancel(&apps->nodes->schedule, &faults->due[i].lose);
        app_net_heal(&apps->net, i);
        apps->net.paused_until[i] = apps->nodes->schedule.now;
        app_wake(&apps->list[i]);
    }
}
