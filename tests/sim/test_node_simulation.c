/* test_node_simulation.c - simulations of whole nodes and their clients. A seed
 * decides what clients do, and how network, disks, clocks and processes fail.
 * node_checks.h lists what is checked. At the end, faults stop, each client
 * must be answered, all keys must become free, and the history of the clients
 * is checked.
 *
 *   HF_SEEDS=N             run N seeds per case
 *   HF_TORTURE_SECONDS=N   run new seeds for N seconds per case
 *   HF_SEED=N              run this seed only */
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

static void on_turn(void *arg, struct sim_node *node)
{
    (void)arg;
    node_checks_on_turn(&world.checks, node);
    node_faults_on_turn(&world.faults, node);
}

static void on_down(void *arg, struct sim_node *node)
{
    totals.installs += node->node->transfers.installed;
    totals.snapshots += node->node->compaction.count;
    lock_clients_on_down(arg, node);
}

static void begin_world(uint64_t seed, const struct node_faults_plan *plan)
{
    static const unsigned counts[] = {1, 3, 3, 5};
    unsigned count = counts[seed % 4];

    sim_nodes_init(&world.nodes, count, seed);
    node_checks_init(&world.checks);
    world.nodes.opts.snapshot_bytes = seed % 3 == 0 ? 20000 : 1000;
    world.nodes.opts.trailing = 1 + (uint32_t)(seed % 10);
    world.nodes.on_start = on_start;
    world.nodes.on_turn = on_turn;
    world.nodes.on_down = on_down;
    world.nodes.arg = &world.clients;
    lock_clients_init(&world.clients, &world.nodes, seed);
    node_faults_init(&world.faults, &world.nodes, plan, seed);
    for (unsigned i = 0; plan->clocks && i < world.clients.count; i++)
        world.clients.list[i].drift =
            (int32_t)hf_random_below(&world.faults.random, 20001) - 10000;
    sim_nodes_start_all(&world.nodes);
}

static bool is_quiet(void *arg)
{
    (void)arg;
    return lock_clients_are_idle(&world.clients);
}

static bool is_equal(void *arg)
{
    uint64_t applied = world.nodes.list[0].node->replica.applied;

    (void)arg;
    for (unsigned i = 0; i < world.nodes.count; i++) {
        const struct hf_node *node = world.nodes.list[i].node;

        if (node->replica.applied != applied ||
            node->engine.log.last != applied)
            return false;
    }
    return true;
}

/* Returns true if no key is held and all nodes have applied the same
 * entries. */
static bool is_empty(void *arg)
{
    const struct hf_table *table =
        &world.nodes.list[0].node->replica.store->table;

    return table->holds.count == 0 && is_equal(arg);
}

static void end_world(void)
{
    world.clients.is_ending = true;
    node_faults_end(&world.faults);
    if (!sim_nodes_run(&world.nodes, 60000, is_quiet, NULL))
        fail_msg("a client is not answered after the faults have ended");
    if (!sim_nodes_run(&world.nodes, 60000, is_empty, NULL))
        fail_msg("a key is held for ever");
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
    totals.crashes += world.faults.crashes;
    totals.cuts += world.faults.cuts;
    totals.pauses += world.faults.pauses;
    totals.leaders += world.checks.leaders;
    totals.steps += world.nodes.schedule.fired;
}

/* Run one seed. Returns a hash of everything that was sent. */
static uint64_t run_seed(uint64_t seed, const void *plan)
{
    begin_world(seed, plan);
    sim_nodes_run(&world.nodes, RUN_MS, NULL, NULL);
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
    struct hf_seeds seeds = {.name = name,
                             .first = first,
                             .count = default_count / divisor + 1,
                             .run = run_seed,
                             .plan = plan};
    struct hf_seeds_done done = hf_seeds_run(&seeds);

    print_totals(done.count, done.seconds);
}

static const struct node_faults_plan no_faults = {0};
static const struct node_faults_plan network = {.network = true, .cuts = true};
static const struct node_faults_plan crashes = {
    .crashes = true, .slow_disks = true, .leaves = true};
static const struct node_faults_plan full_disks = {.full_disks = true,
                                                   .crashes = true};
static const struct node_faults_plan pauses = {.pauses = true, .clocks = true};
static const struct node_faults_plan all_faults = {
    .network = true,
    .disorder = true,
    .cuts = true,
    .crashes = true,
    .pauses = true,
    .slow_disks = true,
    .full_disks = true,
    .clocks = true,
    .leaves = true,
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
    .first = 5000001, .count = 4, .run = run_seed, .plan = &all_faults};

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
