/* Several clients of one store, thousands of times, each time from a seed: how
 * they are used, what the network does to them, when they are stopped, cut off
 * or closed. What must be true is asked after every turn, and of the whole
 * history at the end.
 *
 *   HF_SEEDS=N   run N seeds a case, not the usual number
 *   HF_TORTURE_SECONDS=N   run seeds that nobody has seen, for so long
 *   HF_SEED=N    run this one alone, and tell what happens */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/workload.h"

static const char *running_case = "";
static char replay[200]; /* the seed that runs, for whoever fails */

/* ---- Saying what went wrong ---------------------------------------------*/

/* Beforehand: where it is said, in a signal handler, little may be called. */
static void now_runs(uint64_t seed)
{
    (void)snprintf(replay, sizeof(replay),
                   "\nseed %llu; to replay it:\n"
                   "    HF_SEED=%llu test_simulation --serial %s\n",
                   (unsigned long long)seed, (unsigned long long)seed,
                   running_case);
}

static void say_seed(void)
{
    if (write(STDERR_FILENO, replay, strlen(replay)) < 0)
        return;
}

static void on_crash(int number)
{
    say_seed();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* Called by the sanitizers' runtime, where there is one. */
void __asan_on_error(void);
void __asan_on_error(void)
{
    say_seed();
}

/* ---- One seed -----------------------------------------------------------*/

static bool is_quiet(const struct sim *sim)
{
    if (sim->started != sim->answered)
        return false;
    for (unsigned i = 0; i < sim->client_count; i++) {
        if (!sim->closed[i] && !hf_dlist_is_empty(&sim->clients[i]->calls))
            return false;
    }
    return true;
}

static void end(struct sim *sim)
{
    uint32_t lease = (TTL_MAX_MS + TTL_MAX_MS / 16 + 50) * 52 / 50;
    hf_time until = sim->world.now + lease + ANSWERS_MS;

    sim_heal(sim);
    while (!is_quiet(sim) && hf_world_step(&sim->world, until))
        ;
    DEMAND(sim, sim->started == sim->answered, "%llu calls were not answered",
           (unsigned long long)(sim->started - sim->answered));
    DEMAND(sim, is_quiet(sim), "something is still being asked");
    for (unsigned i = 0; i < sim->client_count; i++) {
        if (!sim->closed[i]) {
            for (unsigned j = 0; j < CLAIMS_A_CLIENT; j++)
                if (sim->claims[i * CLAIMS_A_CLIENT + j].lock)
                    sim_free_handle(&sim->claims[i * CLAIMS_A_CLIENT + j]);
        }
    }
    /* What a closed client held ends with its lease. */
    hf_world_run(&sim->world, hf_time_left(until, sim->world.now) + 1);
    sim_check_nothing_is_left(sim);
    for (unsigned i = 0; i < sim->client_count; i++)
        DEMAND(sim,
               sim->closed[i] ||
                   hf_world_close(&sim->world, sim->clients[i]) == HF_OK,
               "closing an idle client is in doubt");
}

static void begin(struct sim *sim, uint64_t seed, const struct plan *plan)
{
    memset(sim, 0, sizeof(*sim));
    sim->seed = seed;
    sim->plan = plan;
    sim->talk = getenv("HF_SEED") != NULL;
    hf_random_init(&sim->random, seed * 2 + 12345);
    hf_world_init(&sim->world, seed);
    /* Who misses its turn, because a push was lost or it was stopped itself,
     * goes to the end of the line. */
    hf_recorder_init(&sim->recorder, !plan->network && !plan->stops);
    sim->client_count = 2 + sim_below(sim, CLIENTS_MAX - 1);
    sim->key_count = 1 + sim_below(sim, KEYS_MAX);
    sim_draw_trouble(sim);
    for (unsigned i = 0; i < sim->client_count; i++) {
        sim->clients[i] = hf_world_open(&sim->world);
        hf_faulty_odds(hf_faulty_of(sim->clients[i]), &sim->odds);
        sim->next_action[i] = sim->world.now + sim_below(sim, 100);
    }
    for (unsigned i = 0; i < CLIENTS_MAX * CLAIMS_A_CLIENT; i++) {
        sim->claims[i].sim = sim;
        sim->claims[i].client = i / CLAIMS_A_CLIENT;
    }
    sim->world.observe = sim_observe;
    sim->world.observe_arg = sim;
}

/* Returns the hash of all that happened. */
static uint64_t run_seed(uint64_t seed, const struct plan *plan)
{
    static struct sim sim;

    now_runs(seed);
    begin(&sim, seed, plan);
    sim_run(&sim, 8000);
    end(&sim);
    sim_check_history(&sim);
    hf_recorder_fini(&sim.recorder);
    hf_world_fini(&sim.world);
    replay[0] = '\0';
    return sim.world.trace;
}

/* ---- The cases ----------------------------------------------------------*/

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : otherwise;
}

static double seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void run_seeds(const char *name, uint64_t first, unsigned usual,
                      const struct plan *plan)
{
    /* What comes of it, the plain build sees; a sanitizer sees how. */
    unsigned fewer = hf_test_slowness() * hf_test_slowness();
    uint64_t count = number_from("HF_SEEDS", usual / fewer + 1);
    uint64_t limit = number_from("HF_TORTURE_SECONDS", 0);
    double began = seconds();

    running_case = name;
    (void)signal(SIGABRT, on_crash);
    (void)signal(SIGSEGV, on_crash);
    if (getenv("HF_SEED")) {
        (void)run_seed(number_from("HF_SEED", 1), plan);
        return;
    }
    if (limit > 0) {
        first = (uint64_t)time(NULL) * 1000000; /* never the same again */
        count = UINT64_MAX - first;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (limit > 0 && seconds() - began > (double)limit)
            count = i + 1; /* the last one */
        (void)run_seed(first + i, plan);
    }
    printf("%llu seeds, %.0f a second\n", (unsigned long long)count,
           (double)count / (seconds() - began));
}

static int say_seed_of_failure(void **state)
{
    (void)state;
    say_seed();
    return 0;
}

static const struct plan quiet = {0};
static const struct plan network = {.network = true};
static const struct plan stops = {.stops = true, .closes = true};
static const struct plan clocks = {.network = true, .clocks = true};
static const struct plan transfers = {.network = true, .transfers = true};
static const struct plan forgets = {
    .network = true,
    .cuts = true,
    .forgets = true,
};
static const struct plan all = {
    .network = true,
    .clocks = true,
    .stops = true,
    .cuts = true,
    .closes = true,
    .transfers = true,
};

static void on_a_quiet_day(void **state)
{
    (void)state;
    run_seeds(__func__, 1, 2000, &quiet);
}

static void over_a_bad_network(void **state)
{
    (void)state;
    run_seeds(__func__, 1000001, 5000, &network);
}

static void with_processes_that_stop(void **state)
{
    (void)state;
    run_seeds(__func__, 2000001, 5000, &stops);
}

static void with_clocks_that_drift(void **state)
{
    (void)state;
    run_seeds(__func__, 3000001, 5000, &clocks);
}

static void with_locks_that_change_hands(void **state)
{
    (void)state;
    run_seeds(__func__, 6000001, 4000, &transfers);
}

static void with_a_server_that_forgets(void **state)
{
    (void)state;
    run_seeds(__func__, 7000001, 4000, &forgets);
}

static void with_everything_at_once(void **state)
{
    (void)state;
    run_seeds(__func__, 4000001, 10000, &all);
}

static void a_seed_gives_the_same_trace_twice(void **state)
{
    (void)state;
    running_case = __func__;
    for (uint64_t seed = 5000001; seed < 5000021; seed++)
        assert_true(run_seed(seed, &all) == run_seed(seed, &all));
    assert_true(run_seed(5000001, &all) != run_seed(5000002, &all));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(on_a_quiet_day, say_seed_of_failure),
        cmocka_unit_test_teardown(over_a_bad_network, say_seed_of_failure),
        cmocka_unit_test_teardown(with_processes_that_stop,
                                  say_seed_of_failure),
        cmocka_unit_test_teardown(with_clocks_that_drift, say_seed_of_failure),
        cmocka_unit_test_teardown(with_locks_that_change_hands,
                                  say_seed_of_failure),
        cmocka_unit_test_teardown(with_a_server_that_forgets,
                                  say_seed_of_failure),
        cmocka_unit_test_teardown(with_everything_at_once, say_seed_of_failure),
        cmocka_unit_test_teardown(a_seed_gives_the_same_trace_twice,
                                  say_seed_of_failure),
    };

    return hf_test_main("simulation", cases, HF_TEST_COUNT(cases), 0);
}
