/* Simulations of a raft cluster. A seed decides what clients do, and how
 * network, disks and processes fail. checks.h lists what is checked after every
 * step; at the end, faults stop, and the cluster must make progress.
 *
 * seeds.h says how to run many seeds, and how to replay one, which also prints
 * a trace. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/runner.h"
#include "lib/seeds.h"
#include "sim/cluster.h"

#define RUN_MS 15000
#define KINDS 0x3f /* of faults, see leave_out() */

/* ---- Seeds --------------------------------------------------------------*/

static struct {
    uint64_t leaders, commits, reads, installs, restarts;
} totals;

static void add_totals(const struct sim_checks *checks)
{
    totals.leaders += checks->leaders;
    totals.commits += checks->commits;
    totals.reads += checks->reads;
    totals.installs += checks->installs;
    totals.restarts += checks->restarts;
}

/* Leave out the kinds of faults whose bits are not in `faults`. The nodes have
 * their clocks and snapshots already. */
static void leave_out(struct sim_plan *plan, uint64_t faults)
{
    bool *const kinds[] = {&plan->network, &plan->cuts,      &plan->crashes,
                           &plan->stops,   &plan->slow_disk, &plan->transfers};

    for (size_t i = 0; i < HF_TEST_COUNT(kinds); i++)
        *kinds[i] = *kinds[i] && (faults >> i & 1);
}

/* Run one seed. Returns a hash of all frames that arrived. */
static uint64_t run_seed(uint64_t seed, const void *arg)
{
    const struct sim_plan *plan = arg;
    static struct sim_cluster cluster;
    struct hf_seeds_size size = hf_seeds_size();
    uint64_t trace;

    sim_cluster_init(&cluster, seed, plan);
    leave_out(&cluster.plan, size.faults);
    sim_cluster_torture(&cluster, (uint32_t)size.until_ms);
    /* In every other seed, a minority of the nodes stays down. */
    sim_cluster_heal(&cluster, seed % 2 ? (plan->nodes - 1) / 2 : 0);
    sim_cluster_check_progress(&cluster);
    trace = cluster.trace;
    add_totals(&cluster.checks);
    sim_cluster_fini(&cluster);
    return trace;
}

static void print_totals(uint64_t count, double seconds)
{
    printf("%llu seeds, %.0f per second: %llu leaders, %llu commits, %llu "
           "reads, %llu installed snapshots, %llu starts\n",
           (unsigned long long)count, (double)count / seconds,
           (unsigned long long)totals.leaders,
           (unsigned long long)totals.commits, (unsigned long long)totals.reads,
           (unsigned long long)totals.installs,
           (unsigned long long)totals.restarts);
}

static void run_seeds(const char *name, uint64_t first, unsigned default_count,
                      const struct sim_plan *plan)
{
    unsigned divisor = hf_test_slowness() * hf_test_slowness();
    struct hf_seeds seeds = {.name = name,
                             .first = first,
                             .count = default_count / divisor + 1,
                             .run = run_seed,
                             .plan = plan,
                             .full = {KINDS, RUN_MS, 1}};
    struct hf_seeds_done done = hf_seeds_run(&seeds);

    print_totals(done.count, done.seconds);
}

/* ---- The cases ----------------------------------------------------------*/

static const struct sim_plan three_without_faults = {.nodes = 3};
static const struct sim_plan one_that_crashes = {
    .nodes = 1,
    .crashes = true,
    .slow_disk = true,
    .snapshots = true,
};
static const struct sim_plan three_with_a_faulty_network = {
    .nodes = 3,
    .network = true,
    .cuts = true,
};
static const struct sim_plan three_with_all_faults = {
    .nodes = 3,
    .swarm = true,
    .network = true,
    .cuts = true,
    .crashes = true,
    .stops = true,
    .clocks = true,
    .slow_disk = true,
    .snapshots = true,
    .transfers = true,
};
static const struct sim_plan five_with_all_faults = {
    .nodes = 5,
    .swarm = true,
    .network = true,
    .cuts = true,
    .crashes = true,
    .stops = true,
    .clocks = true,
    .slow_disk = true,
    .snapshots = true,
    .transfers = true,
};
static const struct sim_plan three_with_lost_leaders = {
    .nodes = 3,
    .crashes = true,
    .slow_disk = true,
    .snapshots = true,
};

static void three_nodes_without_faults(void **state)
{
    (void)state;
    run_seeds(__func__, 1, 20, &three_without_faults);
}

static void one_node_that_crashes(void **state)
{
    (void)state;
    run_seeds(__func__, 1000001, 200, &one_that_crashes);
}

static void three_nodes_with_a_faulty_network(void **state)
{
    (void)state;
    run_seeds(__func__, 2000001, 200, &three_with_a_faulty_network);
}

static void three_nodes_with_all_faults(void **state)
{
    (void)state;
    run_seeds(__func__, 3000001, 400, &three_with_all_faults);
}

static void five_nodes_with_all_faults(void **state)
{
    (void)state;
    run_seeds(__func__, 4000001, 200, &five_with_all_faults);
}

static void three_nodes_with_lost_leaders(void **state)
{
    (void)state;
    run_seeds(__func__, 5000001, 200, &three_with_lost_leaders);
}

static const struct hf_seeds reproduced = {
    .first = 6000001,
    .count = 5,
    .run = run_seed,
    .plan = &five_with_all_faults,
    .full = {KINDS, RUN_MS, 1},
};

#define CASE(name) cmocka_unit_test_teardown(name, hf_seeds_report)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(three_nodes_without_faults),
        CASE(one_node_that_crashes),
        CASE(three_nodes_with_a_faulty_network),
        CASE(three_nodes_with_all_faults),
        CASE(five_nodes_with_all_faults),
        CASE(three_nodes_with_lost_leaders),
        HF_SEEDS_REPRODUCED(&reproduced),
    };

    return hf_test_main("raft simulation", cases, HF_TEST_COUNT(cases), 0);
}
