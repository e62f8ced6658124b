/* test_node_simulation.c - simulations of whole nodes and their clients. A seed
 * decides what clients do, and how network, disks, clocks and processes fail.
 * node_checks.h lists what is checked. At the end, faults stop, each client
 * must be answered, all keys must become free, and the history of the clients
 * is checked.
 *
 * seeds.h says how to run many seeds, and how to replay one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/runner.h"
#include "lib/seeds.h"
#include "node/state.h"
#include "sim/lock_history.h"
#include "sim/node_checks.h"
#include "sim/node_faults.h"

#define RUN_MS 20000
/* After the faults end: until each client is answered, and how much longer than
 * its lease the grant of a client that has given up may last. */
#define ANSWER_MS 20000
#define LATE_MS 3000

/* ---- One seed -----------------------------------------------------------*/

/* The state of one run. The callbacks of `nodes` get `clients` as `arg`. */
static struct world {
    struct lock_clients clients;
    struct sim_nodes nodes;
    struct node_faults faults;
    struct node_checks checks;
} world;

static struct {
    uint64_t grants, handovers, anchors, renewals, reads, crashes, cuts, pauses,
        leaders, installs, snapshots, steps;
} totals;

static void on_start(void *arg, struct sim_node *node)
{
    lock_clients_on_start(arg, node);
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
    if (!node_faults_on_turn(&world.faults, node))
        node_checks_on_turn(&world.checks, node);
}

static void on_down(void *arg, struct sim_node *node)
{
    node_checks_on_down(&world.checks, node);
    totals.installs += node->node->transfers.installed;
    totals.snapshots += node->node->compaction.count;
    lock_clients_on_down(arg, node);
}

static void begin_world(uint64_t seed, const struct node_faults_plan *plan,
                        const struct hf_seeds_size *size)
{
    static const unsigned counts[] = {1, 3, 3, 5};
    unsigned count = counts[seed % 4];

    sim_nodes_init(&world.nodes, count, seed);
    node_checks_init(&world.checks);
    world.nodes.opts.snapshot_bytes = seed % 3 == 0 ? 20000 : 1000;
    world.nodes.opts.trailing = 1 + (uint32_t)(seed % 10);
    world.nodes.on_start = on_start;
    world.nodes.on_turn = on_turn;
    world.nodes.on_send = on_send;
    world.nodes.on_down = on_down;
    world.nodes.arg = &world.clients;
    lock_clients_init(&world.clients, &world.nodes, seed,
                      (unsigned)size->clients);
    node_faults_init(&world.faults, &world.nodes, plan, (uint32_t)size->faults,
                     seed);
    for (unsigned i = 0; i < world.clients.count; i++)
        world.clients.list[i].drift = node_faults_draw_drift(&world.faults);
    sim_nodes_start_all(&world.nodes);
}

static bool is_quiet(void *arg)
{
    (void)arg;
    return lock_clients_are_idle(&world.clients);
}

static void end_world(void)
{
    world.clients.is_ending = true;
    node_faults_end(&world.faults);
    if (!sim_nodes_run(&world.nodes, ANSWER_MS, is_quiet, NULL))
        fail_msg("a client is not answered after the faults have ended");
    node_checks_await_free(&world.nodes, LATE_MS);
    node_checks_equal(&world.checks, &world.nodes);
    lock_history_check(&world.clients);
}

static void add_totals(void)
{
    totals.grants += world.clients.grants;
    totals.handovers += world.clients.handovers;
    totals.anchors += world.clients.anchors;
    totals.renewals += world.clients.renewals;
    totals.reads += world.clients.reads;
    totals.crashes += world.faults.happened[NODE_FAULT_CRASH];
    totals.cuts += world.faults.happened[NODE_FAULT_CUT];
    totals.pauses += world.faults.happened[NODE_FAULT_PAUSE];
    totals.leaders += world.checks.leaders;
    totals.steps += world.nodes.schedule.fired;
}

/* Run one seed. Returns a hash of everything that was sent. */
static uint64_t run_seed(uint64_t seed, const void *plan)
{
    struct hf_seeds_size size = hf_seeds_size();

    begin_world(seed, plan, &size);
    sim_nodes_run(&world.nodes, (uint32_t)size.until_ms, NULL, NULL);
    end_world();
    add_totals();
    sim_nodes_fini(&world.nodes);
    lock_clients_fini(&world.clients);
    node_checks_fini(&world.checks);
    return world.nodes.hash;
}

/* ---- Cases --------------------------------------------------------------*/

static void print_totals(uint64_t count, double seconds)
{
    printf(
        "%llu seeds, %.1f per second; %llu events, %llu leaders, %llu "
        "crashes, %llu cuts, %llu pauses; %llu grants, %llu handovers, %llu "
        "with age, %llu renewals, %llu reads; %llu snapshots, %llu "
        "installed\n",
        (unsigned long long)count, (double)count / seconds,
        (unsigned long long)totals.steps, (unsigned long long)totals.leaders,
        (unsigned long long)totals.crashes, (unsigned long long)totals.cuts,
        (unsigned long long)totals.pauses, (unsigned long long)totals.grants,
        (unsigned long long)totals.handovers,
        (unsigned long long)totals.anchors, (unsigned long long)totals.renewals,
        (unsigned long long)totals.reads, (unsigned long long)totals.snapshots,
        (unsigned long long)totals.installs);
}

static void run_seeds(const char *name, uint64_t first, unsigned default_count,
                      const struct node_faults_plan *plan)
{
    unsigned divisor = hf_test_slowness() * hf_test_slowness();
    struct hf_seeds seeds = {
        .name = name,
        .first = first,
        .count = default_count / divisor + 1,
        .run = run_seed,
        .plan = plan,
        .full = {NODE_FAULTS_ALL, RUN_MS, LOCK_CLIENTS_MAX}};
    struct hf_seeds_done done = hf_seeds_run(&seeds);

    print_totals(done.count, done.seconds);
}

#define BIT NODE_FAULT_BIT
#define CRASHES (BIT(CRASH) | BIT(CRASH_ALL) | BIT(CRASH_FLUSH))
#define CUTS (BIT(CUT) | BIT(ONE_WAY_CUT) | BIT(RESET))

static const struct node_faults_plan no_faults = {0};
static const struct node_faults_plan network = {.faults = BIT(DELAY) |
                                                          BIT(DISORDER) | CUTS};
static const struct node_faults_plan crashes = {
    .faults = CRASHES | BIT(SLOW_DISK) | BIT(LEAVE)};
static const struct node_faults_plan full_disks = {.faults = BIT(FULL_DISK) |
                                                             CRASHES};
static const struct node_faults_plan pauses = {
    .faults = BIT(PAUSE) | BIT(CLOCKS), .clock_ppm = 10000};
static const struct node_faults_plan all_faults = {
    .faults = BIT(DELAY) | BIT(DISORDER) | CUTS | CRASHES | BIT(PAUSE) |
              BIT(SLOW_DISK) | BIT(FULL_DISK) | BIT(CLOCKS) | BIT(LEAVE) |
              BIT(EIO) | BIT(START),
    .clock_ppm = 10000,
};

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

static void with_crashes(void **state)
{
    (void)state;
    run_seeds(__func__, 2000001, 60, &crashes);
}

static void with_full_disks(void **state)
{
    (void)state;
    run_seeds(__func__, 6000001, 60, &full_disks);
}

static void with_pauses_and_drifting_clocks(void **state)
{
    (void)state;
    run_seeds(__func__, 3000001, 60, &pauses);
}

static void with_all_faults(void **state)
{
    (void)state;
    run_seeds(__func__, 4000001, 100, &all_faults);
}

static const struct hf_seeds reproduced = {
    .first = 5000001,
    .count = 4,
    .run = run_seed,
    .plan = &all_faults,
    .full = {NODE_FAULTS_ALL, RUN_MS, LOCK_CLIENTS_MAX},
};

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(without_faults, hf_seeds_report),
        cmocka_unit_test_teardown(with_a_faulty_network, hf_seeds_report),
        cmocka_unit_test_teardown(with_crashes, hf_seeds_report),
        cmocka_unit_test_teardown(with_full_disks, hf_seeds_report),
        cmocka_unit_test_teardown(with_pauses_and_drifting_clocks,
                                  hf_seeds_report),
        cmocka_unit_test_teardown(with_all_faults, hf_seeds_report),
        HF_SEEDS_REPRODUCED(&reproduced),
    };

    return hf_test_main("node-simulation", cases, HF_TEST_COUNT(cases), 0);
}
