/* Races of claims for a key, and clients that die between the phases of a
 * claim, in a simulated quorum without other faults.
 *
 *   HF_SEEDS=N             run N seeds per case
 *   HF_TORTURE_SECONDS=N   run new seeds for N seconds per case
 *   HF_SEED=N              run this seed only */
#include <stdio.h>

#include "lib/runner.h"
#include "lib/seeds.h"
#include "quorum/checks.h"

#define CLIENTS 6

struct plan {
    unsigned masters;
    unsigned down; /* masters that are down */
};

static struct sim_quorum quorum;
static struct sim_apps apps;

static uint32_t below(uint32_t bound)
{
    return sim_quorum_below(&quorum, bound);
}

static void start(uint64_t seed, const struct plan *plan, unsigned count)
{
    sim_quorum_init(&quorum, &(struct sim_quorum_opts){.seed = seed,
                                                       .masters = plan->masters,
                                                       .clients = CLIENTS});
    sim_apps_init(&apps, &quorum,
                  &(struct sim_apps_opts){
                      .count = count, .keys = 1, .is_scripted = true});
    for (unsigned i = 0; i < plan->down; i++)
        sim_master_crash(&quorum.masters[i]);
    sim_quorum_run(&quorum, 100);
}

/* Nothing is pending at the masters that are up. */
static void stop(void)
{
    sim_quorum_run(&quorum, 2 * SIM_LEASE_MAX_MS);
    for (unsigned i = 0; i < apps.count; i++)
        assert_int_equal(apps.list[i].state, SIM_APP_IDLE);
    for (unsigned i = 0; i < quorum.master_count; i++) {
        if (!quorum.masters[i].is_up)
            sim_master_start(&quorum.masters[i]);
    }
    sim_check_nothing_is_left(&quorum);
    sim_apps_fini(&apps);
    sim_quorum_fini(&quorum);
}

static struct sim_app *find_holder(void)
{
    for (unsigned i = 0; i < apps.count; i++) {
        if (apps.list[i].state == SIM_APP_HOLDS)
            return &apps.list[i];
    }
    return NULL;
}

static bool has_state(enum sim_app_state state)
{
    for (unsigned i = 0; i < apps.count; i++) {
        if (apps.list[i].state == state)
            return true;
    }
    return false;
}

static void run_seeds(const char *name, uint64_t first, hf_seeds_fn *run,
                      const struct plan *plan)
{
    unsigned divisor = hf_test_slowness() * hf_test_slowness();
    struct hf_seeds seeds = {
        .name = name,
        .first = first,
        .count = 1000 / divisor + 1,
        .run = run,
        .plan = plan,
    };

    (void)hf_seeds_run(&seeds);
}

/* ---- Races --------------------------------------------------------------*/

static struct {
    uint64_t races, ms, max_ms;
} race_totals;

/* 2 to 10 claims start within `spread` milliseconds. */
static void start_race(bool queue)
{
    uint32_t spread = below(2) * 3;

    for (unsigned i = 0; i < apps.count; i++) {
        sim_app_lock(&apps.list[i], 0, queue);
        sim_quorum_run(&quorum, below(spread + 1));
    }
}

static void note_winner(void)
{
    uint64_t ms = (uint64_t)(quorum.schedule.now - apps.list[0].locked_at);

    race_totals.races++;
    race_totals.ms += ms;
    if (ms > race_totals.max_ms)
        race_totals.max_ms = ms;
}

/* Claims that do not wait: one of them wins, the others are busy. */
static uint64_t race_of_tries(uint64_t seed, const void *plan)
{
    struct sim_app *winner;

    start(seed, plan, 2 + (unsigned)(seed % 9));
    start_race(false);
    for (unsigned i = 0; i < 1000 && !find_holder(); i++)
        sim_quorum_run(&quorum, 1);
    winner = find_holder();
    assert_non_null(winner);
    note_winner();
    while (has_state(SIM_APP_CLAIMS))
        sim_quorum_run(&quorum, 1);
    assert_true(find_holder() == winner);
    sim_app_end(winner);
    stop();
    return quorum.trace;
}

/* Claims that wait: each of them is granted the key in turn. */
static uint64_t race_of_waiters(uint64_t seed, const void *plan)
{
    start(seed, plan, 2 + (unsigned)(seed % 9));
    start_race(true);
    for (unsigned i = 0; i < apps.count; i++) {
        for (unsigned j = 0; j < 2000 && !find_holder(); j++)
            sim_quorum_run(&quorum, 1);
        assert_non_null(find_holder());
        if (i == 0)
            note_winner();
        sim_quorum_run(&quorum, below(30));
        sim_app_end(find_holder());
    }
    assert_false(has_state(SIM_APP_CLAIMS));
    stop();
    return quorum.trace;
}

static void print_races(void)
{
    printf("%llu races, %.1f ms until a winner on average, at most %llu ms\n",
           (unsigned long long)race_totals.races,
           (double)race_totals.ms / (double)race_totals.races,
           (unsigned long long)race_totals.max_ms);
}

/* LK-08, LK-09 */
static void a_race_always_has_a_winner(void **state)
{
    static const struct plan plan = {.masters = 3};

    (void)state;
    run_seeds("a_race_always_has_a_winner", 1, race_of_tries, &plan);
    print_races();
}

static void a_race_at_five_masters_has_a_winner(void **state)
{
    static const struct plan plan = {.masters = 5};

    (void)state;
    run_seeds("a_race_at_five_masters_has_a_winner", 1, race_of_tries, &plan);
    print_races();
}

/* LK-06, LK-09 */
static void a_race_has_a_winner_while_a_master_is_down(void **state)
{
    static const struct plan plan = {.masters = 3, .down = 1};

    (void)state;
    run_seeds("a_race_has_a_winner_while_a_master_is_down", 1, race_of_tries,
              &plan);
    print_races();
}

/* LK-08 */
static void waiters_that_race_are_all_served(void **state)
{
    static const struct plan plan = {.masters = 3};

    (void)state;
    run_seeds("waiters_that_race_are_all_served", 1, race_of_waiters, &plan);
    print_races();
}

static void waiters_that_race_at_five_masters_are_all_served(void **state)
{
    static const struct plan plan = {.masters = 5, .down = 1};

    (void)state;
    run_seeds("waiters_that_race_at_five_masters_are_all_served", 1,
              race_of_waiters, &plan);
    print_races();
}

/* ---- Clients that die ---------------------------------------------------*/

/* The machine of the client vanishes: nobody closes its connections. */
static void vanish(struct sim_client *client)
{
    for (unsigned i = 0; i < quorum.master_count; i++)
        client->links[i].is_cut = true;
    client->stopped_until = quorum.schedule.now + 1000000;
}

/* The masters notice that a client is dead. */
static void reap(struct sim_client *client)
{
    for (unsigned i = 0; i < quorum.master_count; i++)
        client->links[i].is_cut = false;
    client->stopped_until = 0;
    sim_apps_kill(&apps, client);
}

/* Returns true if the claim `id` was granted the key, as all masters see it. */
static bool is_granted(const struct hf_claim_id *id)
{
    struct hf_report list[HF_QUORUM_MASTERS_MAX];
    struct hf_reports reports = {.quorum = hf_quorum_of(quorum.master_count)};
    struct hf_verdict verdict;

    for (unsigned i = 0; i < quorum.master_count; i++) {
        if (!quorum.masters[i].is_up)
            continue;
        hf_master_report(&quorum.masters[i].master, sim_apps_key(0), false,
                         &list[i]);
        reports.list[i] = &list[i];
    }
    verdict = hf_verdict_of(&reports, NULL);
    return verdict.kind != HF_VERDICT_FREE &&
           hf_claim_id_equal(&verdict.holder, id);
}

/* Application 0 dies a few milliseconds after its ASK, or after the holder,
 * application 1, has released the key for which it waits. */
static struct hf_claim_id let_claim_die(bool waits)
{
    struct sim_app *app = &apps.list[0];
    struct hf_claim_id id;

    if (waits) {
        sim_app_lock(&apps.list[1], 0, false);
        sim_quorum_run(&quorum, 50);
        assert_int_equal(apps.list[1].state, SIM_APP_HOLDS);
    }
    sim_app_lock(app, 0, true);
    id = app->coordinator->id;
    if (waits) {
        sim_quorum_run(&quorum, below(600));
        sim_app_lock(&apps.list[2], 0, true);
        sim_quorum_run(&quorum, 20);
        sim_app_end(&apps.list[1]);
    }
    sim_quorum_run(&quorum, below(16));
    if (below(2) == 0)
        vanish(app->client);
    else
        sim_apps_kill(&apps, app->client);
    return id;
}

static uint64_t dead_client(uint64_t seed, const void *plan)
{
    bool waits = seed % 2 == 0;
    struct sim_app *next;
    struct hf_claim_id dead;
    hf_time since;

    start(seed, plan, 3);
    dead = let_claim_die(waits);
    since = quorum.schedule.now;
    next = &apps.list[2];
    if (!waits) {
        sim_quorum_run(&quorum, below(400));
        since = quorum.schedule.now;
        sim_app_lock(next, 0, true);
    }
    sim_quorum_run(&quorum, 10); /* what the dead client had sent arrives */
    if (!is_granted(&dead)) {
        while (next->state == SIM_APP_CLAIMS &&
               quorum.schedule.now < since + 1000)
            sim_quorum_run(&quorum, 1);
        assert_int_equal(next->state, SIM_APP_HOLDS);
    } else {
        sim_quorum_run(&quorum, SIM_LEASE_MAX_MS + 1000);
        assert_int_equal(next->state, SIM_APP_HOLDS);
    }
    sim_app_end(next);
    reap(apps.list[0].client);
    stop();
    return quorum.trace;
}

/* LK-23 */
static void a_client_that_dies_blocks_a_key_briefly(void **state)
{
    static const struct plan plan = {.masters = 3};

    (void)state;
    run_seeds("a_client_that_dies_blocks_a_key_briefly", 1, dead_client, &plan);
}

static void a_client_of_five_masters_that_dies_blocks_a_key_briefly(
    void **state)
{
    static const struct plan plan = {.masters = 5};

    (void)state;
    run_seeds("a_client_of_five_masters_that_dies_blocks_a_key_briefly", 1,
              dead_client, &plan);
}

/* A master is down: then no vote is fast. */
static void a_client_that_dies_blocks_a_key_briefly_without_a_master(
    void **state)
{
    static const struct plan plan = {.masters = 3, .down = 1};

    (void)state;
    run_seeds("a_client_that_dies_blocks_a_key_briefly_without_a_master", 1,
              dead_client, &plan);
}

#define CASE(name) cmocka_unit_test_teardown(name, hf_seeds_report)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_race_always_has_a_winner),
        CASE(a_race_at_five_masters_has_a_winner),
        CASE(a_race_has_a_winner_while_a_master_is_down),
        CASE(waiters_that_race_are_all_served),
        CASE(waiters_that_race_at_five_masters_are_all_served),
        CASE(a_client_that_dies_blocks_a_key_briefly),
        CASE(a_client_of_five_masters_that_dies_blocks_a_key_briefly),
        CASE(a_client_that_dies_blocks_a_key_briefly_without_a_master),
    };

    return hf_test_main("quorum-races", cases, HF_TEST_COUNT(cases), 2);
}
