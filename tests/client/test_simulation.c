/* Simulations of several clients of one store. A seed decides what the clients
 * do, which faults the network has, and when clients are stopped, disconnected
 * or closed. The invariants are checked after every turn, and the history is
 * checked at the end of each run.
 *
 *   HF_SEEDS=N             run N seeds per case
 *   HF_TORTURE_SECONDS=N   run new seeds for N seconds per case
 *   HF_SEED=N              run this seed only, and print a trace */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/workload.h"
#include "lib/seeds.h"

/* ---- One seed -----------------------------------------------------------*/

static bool is_quiet(const struct sim *sim)
{
    if (sim->started != sim->completed)
        return false;
    for (unsigned i = 0; i < sim->client_count; i++) {
        if (!sim->closed[i] && !hf_dlist_is_empty(&sim->clients[i]->calls))
            return false;
    }
    return true;
}

static void end_sim(struct sim *sim)
{
    uint32_t lease = (TTL_MAX_MS + TTL_MAX_MS / 16 + 50) * 52 / 50;
    hf_time until = sim->world.now + lease + ANSWERS_MS;

    sim_heal(sim);
    while (!is_quiet(sim) && hf_world_step(&sim->world, until))
        ;
    REQUIRE(sim, sim->started == sim->completed, "%llu calls did not complete",
            (unsigned long long)(sim->started - sim->completed));
    REQUIRE(sim, is_quiet(sim), "a client still has open requests");
    for (unsigned i = 0; i < sim->client_count; i++) {
        if (!sim->closed[i]) {
            for (unsigned j = 0; j < CLAIMS_PER_CLIENT; j++)
                if (sim->claims[i * CLAIMS_PER_CLIENT + j].lock)
                    sim_free_handle(&sim->claims[i * CLAIMS_PER_CLIENT + j]);
        }
    }
    /* Locks of closed clients end when their leases expire. */
    hf_world_run(&sim->world, hf_time_left(until, sim->world.now) + 1);
    sim_check_nothing_is_left(sim);
    for (unsigned i = 0; i < sim->client_count; i++)
        REQUIRE(sim,
                sim->closed[i] ||
                    hf_world_close(&sim->world, sim->clients[i]) == HF_OK,
                "the close of an idle client is in doubt");
}

static void begin_sim(struct sim *sim, uint64_t seed, const struct plan *plan)
{
    memset(sim, 0, sizeof(*sim));
    sim->seed = seed;
    sim->plan = plan;
    sim->verbose = getenv("HF_SEED") != NULL;
    hf_random_init(&sim->random, seed * 2 + 12345);
    hf_world_init(&sim->world, seed);
    /* Check FIFO order only if no waiter can miss its grant. If a push is lost
     * or a client is stopped, the grant may expire, and the claim then enters
     * the queue again at its end. So does a claim whose session is closed. */
    hf_recorder_init(&sim->recorder,
                     !plan->network && !plan->stops && !plan->sessions);
    /* Without LOOKUP, waiters are checked by repeating LOCK. A strategy that
     * reports closed sessions must serve LOOKUP. */
    sim->world.without_lookup = !plan->sessions && sim_chance(sim, 40);
    sim->client_count = 2 + sim_below(sim, CLIENTS_MAX - 1);
    sim->key_count = 1 + sim_below(sim, KEYS_MAX);
    sim_draw_faults(sim);
    for (unsigned i = 0; i < sim->client_count; i++) {
        sim->clients[i] = hf_world_open(&sim->world);
        hf_faulty_odds(hf_faulty_of(sim->clients[i]), &sim->odds);
        sim->next_action[i] = sim->world.now + sim_below(sim, 100);
    }
    for (unsigned i = 0; i < CLIENTS_MAX * CLAIMS_PER_CLIENT; i++) {
        sim->claims[i].sim = sim;
        sim->claims[i].client = i / CLAIMS_PER_CLIENT;
    }
    sim->world.observe = sim_observe;
    sim->world.observe_arg = sim;
}

/* Run one seed. Returns a hash of everything that happened, to compare runs. */
static uint64_t run_seed(uint64_t seed, const void *plan)
{
    static struct sim sim;

    begin_sim(&sim, seed, plan);
    sim_run(&sim, 8000);
    end_sim(&sim);
    sim_check_history(&sim);
    hf_recorder_fini(&sim.recorder);
    hf_world_fini(&sim.world);
    return sim.world.trace;
}

/* ---- The cases ----------------------------------------------------------*/

static void run_seeds(const char *name, uint64_t first, unsigned default_count,
                      const struct plan *plan)
{
    /* The build without sanitizers covers many seeds; a build with sanitizers
     * needs fewer to find memory errors. */
    unsigned slowness = hf_test_slowness();
    unsigned divisor = slowness * slowness * slowness;
    struct hf_seeds seeds = {.name = name,
                             .first = first,
                             .count = default_count / divisor + 1,
                             .run = run_seed,
                             .plan = plan};
    struct hf_seeds_done done = hf_seeds_run(&seeds);

    printf("%llu seeds, %.0f per second\n", (unsigned long long)done.count,
           (double)done.count / done.seconds);
}

static const struct plan no_faults = {0};
static const struct plan network = {.network = true};
static const struct plan stops = {.stops = true, .closes = true};
static const struct plan clocks = {.network = true, .clocks = true};
static const struct plan transfers = {.network = true, .transfers = true};
static const struct plan loses_data = {
    .network = true,
    .cuts = true,
    .loses_data = true,
};
static const struct plan sessions = {.sessions = true, .closes = true};
static const struct plan sessions_and_faults = {
    .network = true,
    .clocks = true,
    .stops = true,
    .cuts = true,
    .closes = true,
    .transfers = true,
    .sessions = true,
};
static const struct plan all_faults = {
    .network = true,
    .clocks = true,
    .stops = true,
    .cuts = true,
    .closes = true,
    .transfers = true,
};

static void without_faults(void **state)
{
    (void)state;
    run_seeds(__func__, 1, 2000, &no_faults);
}

static void with_a_faulty_network(void **state)
{
    (void)state;
    run_seeds(__func__, 1000001, 5000, &network);
}

static void with_stopped_processes(void **state)
{
    (void)state;
    run_seeds(__func__, 2000001, 5000, &stops);
}

static void with_drifting_clocks(void **state)
{
    (void)state;
    run_seeds(__func__, 3000001, 5000, &clocks);
}

static void with_detached_and_adopted_locks(void **state)
{
    (void)state;
    run_seeds(__func__, 6000001, 4000, &transfers);
}

static void with_a_server_that_loses_its_data(void **state)
{
    (void)state;
    run_seeds(__func__, 7000001, 4000, &loses_data);
}

static void with_closed_sessions(void **state)
{
    (void)state;
    run_seeds(__func__, 8000001, 5000, &sessions);
}

static void with_closed_sessions_and_all_faults(void **state)
{
    (void)state;
    run_seeds(__func__, 9000001, 10000, &sessions_and_faults);
}

static void with_all_faults(void **state)
{
    (void)state;
    run_seeds(__func__, 4000001, 10000, &all_faults);
}

static const struct hf_seeds reproduced = {
    .first = 5000001, .count = 20, .run = run_seed, .plan = &all_faults};

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(without_faults, hf_seeds_report),
        cmocka_unit_test_teardown(with_a_faulty_network, hf_seeds_report),
        cmocka_unit_test_teardown(with_stopped_processes, hf_seeds_report),
        cmocka_unit_test_teardown(with_drifting_clocks, hf_seeds_report),
        cmocka_unit_test_teardown(with_detached_and_adopted_locks,
                                  hf_seeds_report),
        cmocka_unit_test_teardown(with_a_server_that_loses_its_data,
                                  hf_seeds_report),
        cmocka_unit_test_teardown(with_closed_sessions, hf_seeds_report),
        cmocka_unit_test_teardown(with_closed_sessions_and_all_faults,
                                  hf_seeds_report),
        cmocka_unit_test_teardown(with_all_faults, hf_seeds_report),
        HF_SEEDS_REPRODUCED(&reproduced),
    };

    return hf_test_main("simulation", cases, HF_TEST_COUNT(cases), 0);
}
