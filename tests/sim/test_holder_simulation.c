/* test_holder_simulation.c - holders that renew their locks, and one failure.
 *
 * Applications with the real client library hold a lock each, with a ttl of 6 s
 * or more, and renew it. Then one thing fails, for a while or for good: a node,
 * its network or its disk, or the disks of all nodes for a moment. A majority
 * of the nodes still runs and is connected, so no holder may lose its lock.
 * Clocks drift by up to 1 %.
 *
 * seeds.h says how to run many seeds, and how to replay one. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/runner.h"
#include "lib/seeds.h"
#include "sim/apps.h"
#include "sim/node_checks.h"

#define TTL_MIN_MS 6000
#define SETTLE_MS 5000 /* until all hold their locks */
#define RUN_MS 40000
#define DRIFT_PPM 10000
#define HANG_MAX_MS 2500 /* of all disks at once */

static struct world {
    struct apps apps;
    struct sim_nodes nodes;
    struct node_checks checks;
    struct hf_random random;
    struct sim_event failure, heal;
    unsigned victim;  /* the node that fails */
    const char *what; /* what fails; NULL: nothing yet */
    unsigned held;
} world;

static uint64_t happened[16]; /* by failure */

static uint32_t below(uint32_t bound)
{
    return hf_random_below(&world.random, bound);
}

static hf_time now(void)
{
    return world.nodes.schedule.now;
}

/* ---- Holders ------------------------------------------------------------*/

static void on_lock_event(struct hf_lock *lock, enum hf_lock_event event,
                          void *arg)
{
    const struct app *app = arg;

    (void)lock;
    if (event == HF_LOCK_EVENT_LOST)
        fail_msg("%lld ms: application %u has lost its lock (ttl %u ms) after: "
                 "%s (node %u)",
                 (long long)now(), app->number, app->ttl_ms,
                 world.what ? world.what : "nothing", world.victim + 1);
}

static void on_claim_done(enum hf_err err, void *arg)
{
    (void)arg;
    assert_int_equal(err, HF_OK);
    world.held++;
}

/* The only act of an application: acquire a key of its own. */
static void on_act(struct sim_event *event)
{
    struct app *app = HF_CONTAINER(event, struct app, act);
    char key = (char)('A' + app->number);
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    app->ttl_ms = opts.ttl_ms = TTL_MIN_MS + below(3) * 2000;
    opts.renew = true;
    opts.on_event = on_lock_event;
    opts.arg = app;
    opts.idle = true;
    assert_int_equal(
        hf_lock_new(app->client, (struct hf_key){&key, 1}, &opts, &app->lock),
        HF_OK);
    assert_int_equal(hf_lock_acquire_start(app->lock, on_claim_done, app, NULL),
                     HF_OK);
    app_wake(app);
}

/* ---- Failures -----------------------------------------------------------*/

static struct sim_disk *victims_disk(void)
{
    return world.nodes.list[world.victim].disk;
}

static void cut_nodes(void)
{
    for (unsigned i = 0; i < world.nodes.count; i++) {
        if (i == world.victim)
            continue;
        sim_nodes_cut(&world.nodes, world.victim, i);
        sim_nodes_cut(&world.nodes, i, world.victim);
    }
}

static void cut_apps(void)
{
    for (unsigned i = 0; i < world.apps.count; i++)
        app_net_cut(&world.apps.net, i, world.victim, true, true);
}

static void cut_machine(void)
{
    cut_nodes();
    cut_apps();
}

static void cut_input(void)
{
    for (unsigned i = 0; i < world.nodes.count; i++) {
        if (i != world.victim)
            sim_nodes_cut(&world.nodes, i, world.victim);
    }
}

static void cut_pair(void)
{
    unsigned other =
        (world.victim + 1 + below(world.nodes.count - 1)) % world.nodes.count;

    sim_nodes_cut(&world.nodes, world.victim, other);
    sim_nodes_cut(&world.nodes, other, world.victim);
}

static void crash(void)
{
    sim_nodes_crash(&world.nodes, world.victim,
                    (enum sim_crash)below(SIM_CRASH_RANDOM + 1), false);
}

static void crash_silently(void)
{
    sim_nodes_crash(&world.nodes, world.victim,
                    (enum sim_crash)below(SIM_CRASH_RANDOM + 1), true);
}

static void pause_node(void)
{
    sim_nodes_pause(&world.nodes, world.victim, below(20000));
}

static void hang_disk(void)
{
    world.nodes.list[world.victim].disk_hangs_until = now() + below(20000);
}

static void hang_all_disks(void)
{
    hf_time until = now() + below(HANG_MAX_MS);

    for (unsigned i = 0; i < world.nodes.count; i++)
        world.nodes.list[i].disk_hangs_until = until;
}

static void fill_disk(void)
{
    sim_disk_set_capacity(victims_disk(),
                          sim_disk_used(victims_disk()) + below(1 << 17));
}

static void fill_all_disks(void)
{
    for (unsigned i = 0; i < world.nodes.count; i++) {
        struct sim_disk *disk = world.nodes.list[i].disk;

        sim_disk_set_capacity(disk, sim_disk_used(disk) + below(1 << 15));
    }
}

static void break_disk(void)
{
    sim_disk_fail_at(victims_disk(),
                     sim_disk_ops(victims_disk()) + 1 + below(5), -EIO, true);
}

static const struct failure {
    const char *what;
    void (*run)(void);
} failures[] = {
    {"a crash", crash},
    {"a crash of its machine", crash_silently},
    {"a pause", pause_node},
    {"a cut from the other nodes", cut_nodes},
    {"a cut from the applications", cut_apps},
    {"a cut from everything", cut_machine},
    {"a cut from one other node", cut_pair},
    {"a cut of what it receives", cut_input},
    {"a disk that hangs", hang_disk},
    {"a full disk", fill_disk},
    {"a broken disk", break_disk},
    {"disks that hang on all nodes", hang_all_disks},
    {"full disks of all nodes", fill_all_disks},
};

_Static_assert(HF_TEST_COUNT(failures) <= HF_TEST_COUNT(happened), "counters");

/* End the failure, and restart a node that has crashed. A disk that has failed
 * stays broken. */
static void on_heal(struct sim_event *event)
{
    (void)event;
    sim_nodes_heal(&world.nodes);
    for (unsigned i = 0; i < world.apps.count; i++)
        app_net_heal(&world.apps.net, i);
    for (unsigned i = 0; i < world.nodes.count; i++)
        sim_disk_set_capacity(world.nodes.list[i].disk, 0);
    if (strcmp(world.what, "a broken disk") != 0)
        sim_nodes_start(&world.nodes, world.victim);
}

static void on_failure(struct sim_event *event)
{
    const struct sim_node *leader = sim_nodes_leader(&world.nodes);
    uint32_t kind = below(HF_TEST_COUNT(failures));

    (void)event;
    world.victim =
        leader && below(2) == 0 ? leader->number : below(world.nodes.count);
    world.what = failures[kind].what;
    happened[kind]++;
    failures[kind].run();
    if (below(3) > 0)
        sim_schedule_set(&world.nodes.schedule, &world.heal,
                         now() + 1 + below(below(2) == 0 ? 3000 : 20000));
}

/* ---- One seed -----------------------------------------------------------*/

static void on_start(void *arg, struct sim_node *node)
{
    (void)arg;
    node_checks_on_start(&world.checks, node);
}

/* A node stops by itself when its disk fails: let its process end, too. */
static void on_turn(void *arg, struct sim_node *node)
{
    (void)arg;
    if (node->error.code)
        sim_nodes_crash(&world.nodes, node->number, SIM_CRASH_KEEP, false);
    else
        node_checks_on_turn(&world.checks, node);
}

static void on_down(void *arg, struct sim_node *node)
{
    app_net_on_down(&((struct apps *)arg)->net, node->number);
}

static int32_t draw_drift(void)
{
    return (int32_t)below(2 * DRIFT_PPM + 1) - DRIFT_PPM;
}

static void begin_nodes(uint64_t seed)
{
    sim_nodes_init(&world.nodes, seed % 3 == 0 ? 5 : 3, seed);
    world.nodes.opts.snapshot_bytes = seed % 3 == 0 ? 20000 : 1000;
    world.nodes.opts.trailing = 1 + (uint32_t)(seed % 10);
    world.nodes.odds.delay_ms = 1 + below(20);
    world.nodes.odds.slow_ms = world.nodes.odds.delay_ms + below(100);
    world.nodes.odds.flush_ms = 1 + below(20);
    world.nodes.odds.slow_disk_ms = world.nodes.odds.flush_ms + below(100);
    world.nodes.on_start = on_start;
    world.nodes.on_turn = on_turn;
    world.nodes.on_down = on_down;
    world.nodes.clients = &apps_clients_ops;
    world.nodes.arg = &world.apps;
    for (unsigned i = 0; i < world.nodes.count; i++)
        world.nodes.list[i].drift = draw_drift();
}

static void begin_world(uint64_t seed)
{
    int32_t drifts[SIM_APPS];

    memset(&world, 0, sizeof(world));
    hf_random_init(&world.random, seed * 2 + 31);
    world.failure.fire = on_failure;
    world.heal.fire = on_heal;
    begin_nodes(seed);
    node_checks_init(&world.checks);
    apps_init(&world.apps, &world.nodes, seed, SIM_APPS);
    world.apps.fence_only = true; /* each has a key of its own */
    for (unsigned i = 0; i < SIM_APPS; i++)
        drifts[i] = draw_drift();
    sim_nodes_start_all(&world.nodes);
    apps_open(&world.apps, drifts);
    for (unsigned i = 0; i < world.apps.count; i++)
        world.apps.list[i].act.fire = on_act;
}

static uint64_t run_seed(uint64_t seed, const void *plan)
{
    (void)plan;
    begin_world(seed);
    sim_nodes_run(&world.nodes, SETTLE_MS, NULL, NULL);
    assert_int_equal(world.held, world.apps.count);
    sim_schedule_set(&world.nodes.schedule, &world.failure,
                     now() + 1 + below(TTL_MIN_MS));
    sim_nodes_run(&world.nodes, RUN_MS, NULL, NULL);
    for (unsigned i = 0; i < world.apps.count; i++)
        assert_true(hf_lock_valid_for(world.apps.list[i].lock, 0));
    apps_fini(&world.apps);
    world.nodes.on_down = NULL;
    sim_nodes_fini(&world.nodes);
    node_checks_fini(&world.checks);
    return world.nodes.hash;
}

/* ---- Cases --------------------------------------------------------------*/

#define ENOUGH 200 /* with this many seeds, each failure must happen */

static void one_failure_costs_no_lock(void **state)
{
    struct hf_seeds seeds = {
        .name = __func__,
        .first = 8000001,
        .count = ENOUGH / hf_test_slowness(),
        .run = run_seed,
    };
    struct hf_seeds_done done = hf_seeds_run(&seeds);

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(failures); i++) {
        printf("%llu times %s\n", (unsigned long long)happened[i],
               failures[i].what);
        if (done.count >= ENOUGH)
            assert_true(happened[i] > 0);
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(one_failure_costs_no_lock, hf_seeds_report),
    };

    return hf_test_main("holder-simulation", cases, HF_TEST_COUNT(cases), 0);
}
