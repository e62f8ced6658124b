/* Simulations of a raft cluster. A seed decides what clients do, and how
 * network, disks and processes fail. checks.h lists what is checked after every
 * step; at the end, faults stop, and the cluster must make progress.
 *
 *   HF_SEEDS=N             run N seeds per case
 *   HF_TORTURE_SECONDS=N   run new seeds for N seconds per case
 *   HF_SEED=N              run this seed only, and print a trace */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/runner.h"
#include "sim/cluster.h"

static const char *running_case = "";
static char replay[200]; /* how to replay the seed that is running */

/* ---- Reporting the seed of a failure ------------------------------------*/

/* The text is formatted before the run, because a signal handler prints it. */
static void set_running_seed(uint64_t seed)
{
    (void)snprintf(replay, sizeof(replay),
                   "\nto replay: HF_SEED=%llu test_raft_simulation --serial "
                   "%s\n",
                   (unsigned long long)seed, running_case);
}

static void print_seed(void)
{
    if (write(STDERR_FILENO, replay, strlen(replay)) < 0)
        return;
}

static void on_crash(int number)
{
    print_seed();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* Called by AddressSanitizer when it finds an error. */
void __asan_on_error(void);
void __asan_on_error(void)
{
    print_seed();
}

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

/* Run one seed. Returns a hash of all frames that arrived. */
static uint64_t run_seed(uint64_t seed, const struct sim_plan *plan)
{
    static struct sim_cluster cluster;
    uint64_t trace;

    set_running_seed(seed);
    sim_cluster_init(&cluster, seed, plan);
    sim_cluster_torture(&cluster, 15000);
    /* In every other seed, a minority of the nodes stays down. */
    sim_cluster_heal(&cluster, seed % 2 ? (plan->nodes - 1) / 2 : 0);
    sim_cluster_check_progress(&cluster);
    trace = cluster.trace;
    add_totals(&cluster.checks);
    sim_cluster_fini(&cluster);
    replay[0] = '\0';
    return trace;
}

static uint64_t number_from_env(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : otherwise;
}

static double clock_seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
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
    uint64_t count = number_from_env("HF_SEEDS", default_count / divisor + 1);
    uint64_t limit = number_from_env("HF_TORTURE_SECONDS", 0);
    double started = clock_seconds();

    running_case = name;
    (void)signal(SIGABRT, on_crash);
    (void)signal(SIGSEGV, on_crash);
    (void)signal(SIGILL, on_crash); /* HF_ASSERT */
    if (getenv("HF_SEED")) {
        (void)run_seed(number_from_env("HF_SEED", 1), plan);
        return;
    }
    if (limit > 0) {
        first = (uint64_t)time(NULL) * 1000000; /* seeds that were never run */
        count = UINT64_MAX - first;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (limit > 0 && clock_seconds() - started > (double)limit)
            count = i + 1; /* this seed is the last one */
        (void)run_seed(first + i, plan);
    }
    print_totals(count, clock_seconds() - started);
}

static int print_seed_of_failure(void **state)
{
    (void)state;
    print_seed();
    return 0;
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

static void a_seed_reproduces_its_trace(void **state)
{
    (void)state;
    running_case = __func__;
    for (uint64_t seed = 6000001; seed < 6000006; seed++)
        assert_true(run_seed(seed, &five_with_all_faults) ==
                    run_seed(seed, &five_with_all_faults));
    assert_true(run_seed(6000001, &five_with_all_faults) !=
                run_seed(6000002, &five_with_all_faults));
}

#define CASE(name) cmocka_unit_test_teardown(name, print_seed_of_failure)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(three_nodes_without_faults),
        CASE(one_node_that_crashes),
        CASE(three_nodes_with_a_faulty_network),
        CASE(three_nodes_with_all_faults),
        CASE(five_nodes_with_all_faults),
        CASE(three_nodes_with_lost_leaders),
        CASE(a_seed_reproduces_its_trace),
    };

    return hf_test_main("raft simulation", cases, HF_TEST_COUNT(cases), 0);
}
