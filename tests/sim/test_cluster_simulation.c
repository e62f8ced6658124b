/* test_cluster_simulation.c - simulations of whole nodes and of applications
 * with the real client library. A seed decides what the applications do, and
 * how network, disks, clocks and processes fail. node_checks.h and app_checks.c
 * list what is checked. At the end, faults stop, each call must return, all
 * keys must become free, and the history of the applications is checked.
 *
 * Only libuv, sockets, threads and the calls of the file system are left out.
 * seeds.h says how to run many seeds, and how to replay one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/runner.h"
#include "lib/seeds.h"
#include "node/state.h"
#include "sim/app_faults.h"
#include "sim/node_checks.h"

#define RUN_MS 30000
/* After the faults end: until all calls return, although an application may
 * first have to notice that its session has ended, which takes 10 s; and how
 * much longer than its lease a grant of an application that died may last. */
#define ANSWER_MS 20000
#define LATE_MS 3000

/* ---- One seed -----------------------------------------------------------*/

/* The state of one run. The callbacks of `nodes` get `apps` as `arg`. */
static struct world {
    struct apps apps;
    struct sim_nodes nodes;
    struct node_faults faults;
    struct app_faults app_faults;
    struct node_checks checks;
    const struct node_faults_plan *plan;
} world;

static struct {
    uint64_t happened[NODE_FAULT_COUNT];
    uint64_t grants, queued, renewals, updates, reads, writes, refused, events,
        overlaps, failed, forced, leaders, installs, snapshots, steps, raised,
        compared, in_order, intrusions, local_reads, compared_reads, votes,
        closed;
} totals;

static void on_start(void *arg, struct sim_node *node)
{
    (void)arg;
    node_checks_on_start(&world.checks, node);
}

static void on_send(void *arg, struct sim_node *node, unsigned to,
                    bool is_first, const void *bytes, size_t size)
{
    (void)arg;
    node_messages_check(&world.checks.messages, node, to, is_first, bytes,
                        size);
}

static void on_turn(void *arg, struct sim_node *node)
{
    (void)arg;
    apps_note_commit(&world.apps, node);
    if (!node_faults_on_turn(&world.faults, node))
        node_checks_on_turn(&world.checks, node);
    if (node->node)
        apps_check_ended(&world.apps, node);
}

static void count_snapshots(const struct hf_node *node)
{
    totals.installs += node->transfers.installed;
    totals.snapshots += node->compaction.count;
}

static void on_down(void *arg, struct sim_node *node)
{
    struct apps *apps = arg;

    node_checks_on_down(&world.checks, node);
    count_snapshots(node->node);
    app_net_on_down(&apps->net, node->number);
}

static void begin_nodes(uint64_t seed)
{
    static const unsigned counts[] = {1, 3, 3, 5};

    sim_nodes_init(&world.nodes, counts[seed % 4], seed);
    world.nodes.segment_size = seed % 5 == 0 ? 65536 : 16384;
    world.nodes.opts.snapshot_bytes = seed % 3 == 0 ? 20000 : 1000;
    world.nodes.opts.trailing = 1 + (uint32_t)(seed % 10);
    world.nodes.on_start = on_start;
    world.nodes.on_turn = on_turn;
    world.nodes.on_send = on_send;
    world.nodes.on_down = on_down;
    world.nodes.clients = &apps_clients_ops;
    world.nodes.arg = &world.apps;
}

static void begin_world(uint64_t seed, const struct node_faults_plan *plan,
                        const struct hf_seeds_size *size)
{
    int32_t drifts[SIM_APPS];

    world.plan = plan;
    begin_nodes(seed);
    node_checks_init(&world.checks);
    apps_init(&world.apps, &world.nodes, seed, (unsigned)size->clients);
    node_faults_init(&world.faults, &world.nodes, plan, (uint32_t)size->faults,
                     seed);
    app_faults_init(&world.app_faults, &world.apps, &world.faults);
    world.apps.node_events = &world.checks.events;
    world.apps.fence_only = plan->clock_ppm > 10000;
    for (unsigned i = 0; i < SIM_APPS; i++)
        drifts[i] = node_faults_draw_drift(&world.faults);
    sim_nodes_start_all(&world.nodes);
    apps_open(&world.apps, drifts);
}

static bool is_quiet(void *arg)
{
    (void)arg;
    return apps_are_idle(&world.apps);
}

static void end_world(void)
{
    world.apps.is_ending = true;
    node_faults_end(&world.faults);
    app_faults_end(&world.app_faults);
    if (!sim_nodes_run(&world.nodes, ANSWER_MS, is_quiet, NULL))
        fail_msg("an application is not answered after the faults have ended");
    node_checks_await_free(&world.nodes, LATE_MS);
    node_checks_equal(&world.checks, &world.nodes);
    if (world.plan->keeps_leader && world.checks.leaders != 1)
        fail_msg("there were %llu leaders",
                 (unsigned long long)world.checks.leaders);
    /* node_events.h has seen each grant that an application has seen. */
    assert_true(world.checks.events.grants >= world.apps.grants);
    apps_check_history(&world.apps);
}

static void add_totals(void)
{
    const struct apps *apps = &world.apps;

    world.faults.happened[NODE_FAULT_SESSION_END] = apps->sessions_lost;
    for (unsigned i = 0; i < NODE_FAULT_COUNT; i++)
        totals.happened[i] += world.faults.happened[i];
    for (unsigned i = 0; i < world.nodes.count; i++)
        count_snapshots(world.nodes.list[i].node);
    totals.grants += apps->grants;
    totals.forced += apps->forced;
    totals.queued += apps->queued;
    totals.in_order += apps->in_order;
    totals.renewals += apps->renewals;
    totals.updates += apps->updates;
    totals.reads += apps->reads;
    totals.writes += apps->writes;
    totals.refused += apps->refused;
    totals.events += apps->events_seen;
    totals.overlaps += apps->overlaps;
    totals.failed += apps->failed;
    totals.intrusions += apps->intrusions;
    totals.local_reads += apps->local_reads;
    totals.compared_reads += apps->compared_reads;
    totals.leaders += world.checks.leaders;
    totals.compared += world.checks.compared;
    totals.votes += world.checks.messages.votes;
    totals.closed += world.checks.sessions.closed;
    totals.steps += world.nodes.schedule.fired;
    totals.raised += world.nodes.list[0].node->machine.store->table.version > 1;
}

/* Run one seed. Returns a hash of everything that was sent. */
static uint64_t run_seed(uint64_t seed, const void *plan)
{
    struct hf_seeds_size size = hf_seeds_size();

    begin_world(seed, plan, &size);
    sim_nodes_run(&world.nodes, (uint32_t)size.until_ms, NULL, NULL);
    end_world();
    add_totals();
    apps_fini(&world.apps);
    world.nodes.on_down = NULL;
    sim_nodes_fini(&world.nodes);
    node_checks_fini(&world.checks);
    return world.nodes.hash;
}

/* ---- Cases --------------------------------------------------------------*/

#define SHOW(name) (unsigned long long)totals.name

static void print_totals(const struct hf_seeds_done *done, uint32_t faults)
{
    printf("%llu seeds, %.1f per second; %llu events, %llu leaders, %llu "
           "snapshots, %llu installed, %llu tables raised, %llu compared, %llu "
           "sessions closed\n",
           (unsigned long long)done->count, (double)done->count / done->seconds,
           SHOW(steps), SHOW(leaders), SHOW(snapshots), SHOW(installs),
           SHOW(raised), SHOW(compared), SHOW(closed));
    printf("%llu grants, %llu queued, %llu renewals, %llu updates, %llu reads "
           "(%llu local), %llu watched; %llu calls failed, %llu locks broken; "
           "%llu fenced writes, %llu refused, %llu times two holders; %llu "
           "intrusions refused\n",
           SHOW(grants), SHOW(queued), SHOW(renewals), SHOW(updates),
           SHOW(reads), SHOW(local_reads), SHOW(events), SHOW(failed),
           SHOW(forced), SHOW(writes), SHOW(refused), SHOW(overlaps),
           SHOW(intrusions));
    for (unsigned i = 0; i < NODE_FAULT_COUNT; i++) {
        if (faults >> i & 1)
            printf("%llu %s\n", SHOW(happened[i]), node_fault_names[i]);
    }
}

/* Each fault of the plan must have happened, or the plan tests less than it
 * says. */
static void check_faults(uint32_t faults)
{
    for (unsigned i = 0; i < NODE_FAULT_COUNT; i++) {
        if (faults >> i & 1 && totals.happened[i] == 0)
            fail_msg("over all seeds: no %s", node_fault_names[i]);
    }
    assert_true(totals.grants > 0);
    assert_true(totals.events > 0);
    assert_true(totals.compared > 0);
    assert_true(totals.votes > 0);
    assert_true(!(faults & NODE_FAULT_BIT(SESSION_END)) || totals.closed > 0);
    assert_true(totals.in_order > 0);
    assert_true(totals.intrusions > 0);
    assert_true(totals.local_reads > 0);
    assert_true(totals.compared_reads > 0);
    assert_true(totals.forced > 0);
    assert_true(!(faults & NODE_FAULT_BIT(VERSION)) || totals.raised > 0);
    /* Otherwise the promise about bad clocks would not be put to the test. */
    assert_true(!world.apps.fence_only || totals.overlaps > 0);
}

static struct hf_seeds seeds_of(const char *name, uint64_t first,
                                unsigned count,
                                const struct node_faults_plan *plan)
{
    return (struct hf_seeds){
        .name = name,
        .first = first,
        .count = count,
        .run = run_seed,
        .plan = plan,
        .full = {plan->faults, RUN_MS, SIM_APPS},
    };
}

#define ENOUGH 200 /* with this many seeds, each fault must happen */
#define LEAST 15   /* minimum per case: over 100 seeds in all cases together */

static unsigned seed_count(unsigned default_count)
{
    unsigned divisor = hf_test_slowness() * hf_test_slowness();
    unsigned count = default_count / divisor + 1;

    return count < LEAST ? LEAST : count;
}

static void run_seeds(const char *name, uint64_t first, unsigned default_count,
                      const struct node_faults_plan *plan)
{
    struct hf_seeds seeds =
        seeds_of(name, first, seed_count(default_count), plan);
    struct hf_seeds_done done = hf_seeds_run(&seeds);

    print_totals(&done, plan->faults);
    if (done.count >= ENOUGH)
        check_faults(plan->faults);
}

#define BIT NODE_FAULT_BIT
#define AIMED                                                                  \
    (BIT(AIMED_SUBMIT) | BIT(AIMED_FLUSH) | BIT(AIMED_COMMIT) |                \
     BIT(AIMED_ANSWER))

static const struct node_faults_plan no_faults = {0};
static const struct node_faults_plan network = {
    .faults = BIT(DELAY) | BIT(DISORDER) | BIT(CUT) | BIT(ONE_WAY_CUT) |
              BIT(RESET) | BIT(APP_CUT) | BIT(APP_RESET) | BIT(SESSION_END)};
static const struct node_faults_plan resets = {
    .faults = BIT(RESET) | BIT(APP_RESET), .keeps_leader = true};
static const struct node_faults_plan aimed = {.faults = AIMED | BIT(DELAY) |
                                                        BIT(DISORDER)};
static const struct node_faults_plan disks = {
    .faults = BIT(CRASH) | BIT(CRASH_ALL) | BIT(CRASH_FLUSH) | BIT(SLOW_DISK) |
              BIT(FULL_DISK) | BIT(EIO) | BIT(START) | BIT(LEAVE) |
              BIT(VERSION)};
static const struct node_faults_plan clocks = {
    .faults = BIT(PAUSE) | BIT(CLOCKS) | BIT(WALL_CLOCK) | BIT(APP_PAUSE) |
              BIT(APP_CUT) | BIT(APP_DEATH) | BIT(CRASH),
    .clock_ppm = 10000};
static const struct node_faults_plan bad_clocks = {
    .faults = BIT(DELAY) | BIT(CLOCKS) | BIT(PAUSE) | BIT(APP_PAUSE) |
              BIT(CRASH) | BIT(CUT) | BIT(WALL_CLOCK),
    .clock_ppm = 50000,
    .swarm = true};
static const struct node_faults_plan all_faults = {
    .faults = NODE_FAULTS_ALL, .clock_ppm = 10000, .swarm = true};

static void without_faults(void **state)
{
    (void)state;
    run_seeds(__func__, 1, 20, &no_faults);
}

static void with_a_faulty_network(void **state)
{
    (void)state;
    run_seeds(__func__, 1000001, 60, &network);
}

static void resets_depose_no_leader(void **state)
{
    (void)state;
    run_seeds(__func__, 8000001, 40, &resets);
}

static void with_faults_aimed_at_the_leader(void **state)
{
    (void)state;
    run_seeds(__func__, 2000001, 60, &aimed);
}

static void with_faulty_disks(void **state)
{
    (void)state;
    run_seeds(__func__, 3000001, 60, &disks);
}

static void with_pauses_and_drifting_clocks(void **state)
{
    (void)state;
    run_seeds(__func__, 4000001, 60, &clocks);
}

static void the_fence_holds_with_bad_clocks(void **state)
{
    (void)state;
    run_seeds(__func__, 5000001, 60, &bad_clocks);
}

static void with_all_faults(void **state)
{
    (void)state;
    run_seeds(__func__, 6000001, 100, &all_faults);
}

static const struct hf_seeds reproduced = {
    .first = 7000001,
    .count = 4,
    .run = run_seed,
    .plan = &all_faults,
    .full = {NODE_FAULTS_ALL, RUN_MS, SIM_APPS},
};

#define CASE(name) cmocka_unit_test_teardown(name, hf_seeds_report)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(without_faults),
        CASE(with_a_faulty_network),
        CASE(resets_depose_no_leader),
        CASE(with_faults_aimed_at_the_leader),
        CASE(with_faulty_disks),
        CASE(with_pauses_and_drifting_clocks),
        CASE(the_fence_holds_with_bad_clocks),
        CASE(with_all_faults),
        HF_SEEDS_REPRODUCED(&reproduced),
    };

    return hf_test_main("cluster-simulation", cases, HF_TEST_COUNT(cases), 0);
}
