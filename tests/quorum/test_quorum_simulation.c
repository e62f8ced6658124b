/* Simulations of a quorum of masters and of applications that use it. A seed
 * decides what the applications do, and how network, masters and clients fail.
 * checks.h lists what must be true.
 *
 *   HF_SEEDS=N             run N seeds per case
 *   HF_TORTURE_SECONDS=N   run new seeds for N seconds per case
 *   HF_SEED=N              run this seed only */
#include <stdio.h>

#include "lib/runner.h"
#include "lib/seeds.h"
#include "quorum/apps.h"

#define RUN_MS 20000
#define END_MS 30000 /* until everything that has begun is complete */
#define CLIENTS 4

/* ---- Faults -------------------------------------------------------------*/

/* Kinds of faults, a bit each. */
enum fault {
    FAULT_BREAK,     /* a connection breaks */
    FAULT_CUT,       /* the messages of a connection wait */
    FAULT_PARTITION, /* one master is cut off from some clients */
    FAULT_CRASH,     /* a master restarts, and has lost what it knew */
    FAULT_KILL,  /* a client dies, in the middle of an operation if it can */
    FAULT_STOP,  /* a process stands still, and wakes up late */
    FAULT_FORCE, /* an operator breaks a lock */
    FAULT_RACE,  /* not a fault: idle applications want one key at once */
    FAULT_KINDS,
};

#define BIT(fault) (UINT64_C(1) << (fault))
#define NETWORK                                                                \
    (BIT(FAULT_BREAK) | BIT(FAULT_CUT) | BIT(FAULT_PARTITION) |                \
     BIT(FAULT_KILL) | BIT(FAULT_RACE))
#define EVERYTHING (BIT(FAULT_KINDS) - 1)

struct plan {
    unsigned masters;
    unsigned keys;
    uint64_t faults;
    uint32_t fault_ms; /* a fault about this often */
    uint32_t late_ms;  /* maximum delay of requests of a broken connection */
    bool drift;        /* clocks run at different rates, within 1 % */
};

struct faults {
    struct sim_event event;
    const struct plan *plan;
    struct sim_quorum *quorum;
    struct sim_apps *apps;
};

static struct sim_client *some_client(struct sim_quorum *quorum)
{
    return &quorum->clients[sim_quorum_below(quorum, quorum->client_count)];
}

static struct sim_master *some_master(struct sim_quorum *quorum)
{
    return &quorum->masters[sim_quorum_below(quorum, quorum->master_count)];
}

static void break_link(struct faults *faults)
{
    struct sim_quorum *quorum = faults->quorum;

    sim_link_break(&some_client(quorum)->links[some_master(quorum)->index]);
}

static void cut_link(struct faults *faults)
{
    struct sim_quorum *quorum = faults->quorum;
    struct sim_link *link =
        &some_client(quorum)->links[some_master(quorum)->index];

    link->is_cut = !link->is_cut;
}

static void heal_links(struct sim_quorum *quorum)
{
    for (unsigned i = 0; i < quorum->client_count; i++) {
        for (unsigned j = 0; j < quorum->master_count; j++)
            quorum->clients[i].links[j].is_cut = false;
    }
}

/* Exactly one master is cut off, from all clients or from some. */
static void cut_master(struct faults *faults)
{
    struct sim_quorum *quorum = faults->quorum;
    unsigned master = some_master(quorum)->index;
    bool all = sim_quorum_below(quorum, 2) == 0;

    heal_links(quorum);
    if (sim_quorum_below(quorum, 3) == 0)
        return;
    for (unsigned i = 0; i < quorum->client_count; i++)
        quorum->clients[i].links[master].is_cut =
            all || sim_quorum_below(quorum, 2) == 0;
}

static unsigned masters_down(const struct sim_quorum *quorum)
{
    unsigned count = 0;

    for (unsigned i = 0; i < quorum->master_count; i++)
        count += !quorum->masters[i].is_up;
    return count;
}

static bool has_vote(const struct sim_master *master)
{
    struct hf_master_summary summary = {0};

    if (master->is_up)
        hf_master_summarize(&master->master, &summary);
    return summary.votes > 0;
}

/* Preferably a master that has given its vote. */
static void crash_master(struct faults *faults)
{
    struct sim_quorum *quorum = faults->quorum;
    struct sim_master *master = some_master(quorum);

    for (unsigned i = 0; i < 3 && !has_vote(master); i++)
        master = some_master(quorum);
    if (!master->is_up) {
        sim_master_start(master);
    } else if (masters_down(quorum) == 0 || sim_quorum_below(quorum, 4) == 0) {
        sim_master_crash(master);
        if (sim_quorum_below(quorum, 2) == 0)
            sim_master_start(master);
    }
}

static bool is_between_phases(const struct sim_app *app)
{
    return app->coordinator &&
           (app->coordinator->state == HF_COORDINATOR_ASK ||
            app->coordinator->state == HF_COORDINATOR_PREPARE ||
            app->coordinator->state == HF_COORDINATOR_COMMIT);
}

static void kill_client(struct faults *faults)
{
    struct sim_apps *apps = faults->apps;
    struct sim_client *client = some_client(faults->quorum);

    for (unsigned i = 0; i < apps->count; i++) {
        if (is_between_phases(&apps->list[i]))
            client = apps->list[i].client;
    }
    sim_apps_kill(apps, client);
}

static void stop_process(struct faults *faults)
{
    struct sim_quorum *quorum = faults->quorum;
    uint32_t most = sim_quorum_below(quorum, 8) == 0 ? 10000 : 2000;
    hf_time until = quorum->schedule.now + 10 + sim_quorum_below(quorum, most);

    if (sim_quorum_below(quorum, 2) == 0)
        some_client(quorum)->stopped_until = until;
    else
        some_master(quorum)->stopped_until = until;
}

static void force_lock(struct faults *faults)
{
    struct sim_apps *apps = faults->apps;

    for (unsigned i = 0; i < apps->count; i++) {
        const struct sim_app *app = &apps->list[i];
        struct hf_claim_id nobody = {{0}};
        struct hf_quorum_request request = {
            .kind = HF_QUORUM_FORCE,
            .key = sim_apps_key(app->key),
            .token = app->token,
        };

        if (!sim_app_is_valid(app))
            continue;
        for (unsigned j = 0; j < faults->quorum->master_count; j++)
            sim_client_send(app->client, j, &nobody, &request);
        return;
    }
}

static void start_race(struct faults *faults)
{
    for (unsigned i = 0; i < faults->apps->count; i++) {
        if (faults->apps->list[i].state == SIM_APP_IDLE)
            sim_app_lock(&faults->apps->list[i], 0,
                         sim_quorum_below(faults->quorum, 2) == 0);
    }
}

static void (*const fault_functions[FAULT_KINDS])(struct faults *faults) = {
    [FAULT_BREAK] = break_link,     [FAULT_CUT] = cut_link,
    [FAULT_PARTITION] = cut_master, [FAULT_CRASH] = crash_master,
    [FAULT_KILL] = kill_client,     [FAULT_STOP] = stop_process,
    [FAULT_FORCE] = force_lock,     [FAULT_RACE] = start_race,
};

static void on_fault(struct sim_event *event)
{
    struct faults *faults = HF_CONTAINER(event, struct faults, event);
    struct sim_quorum *quorum = faults->quorum;
    unsigned fault = sim_quorum_below(quorum, FAULT_KINDS);

    if (hf_seeds_size().faults >> fault & 1)
        fault_functions[fault](faults);
    sim_schedule_set(&quorum->schedule, event,
                     quorum->schedule.now + 1 +
                         sim_quorum_below(quorum, 2 * faults->plan->fault_ms));
}

static void heal(struct sim_quorum *quorum)
{
    for (unsigned i = 0; i < quorum->master_count; i++) {
        if (!quorum->masters[i].is_up)
            sim_master_start(&quorum->masters[i]);
    }
    heal_links(quorum);
}

/* ---- Seeds --------------------------------------------------------------*/

static struct sim_stats totals;

static void add_totals(const struct sim_stats *stats)
{
    totals.grants += stats->grants;
    totals.waits += stats->waits;
    totals.renewals += stats->renewals;
    totals.updates += stats->updates;
    totals.losses += stats->losses;
    totals.reads += stats->reads;
    totals.undecided += stats->undecided;
    totals.handovers += stats->handovers;
    totals.handover_ms += stats->handover_ms;
    if (stats->handover_max_ms > totals.handover_max_ms)
        totals.handover_max_ms = stats->handover_max_ms;
}

static void draw_network(struct sim_quorum *quorum, const struct plan *plan)
{
    quorum->late_ms = plan->late_ms;
    quorum->mark_ms = sim_quorum_below(quorum, 2) * 30;
    if (plan->faults && sim_quorum_below(quorum, 2) == 0)
        quorum->delay_max_ms = 1 + sim_quorum_below(quorum, 40);
    for (unsigned i = 0; i < quorum->client_count; i++)
        quorum->clients[i].common.patience_ms = 4 * quorum->delay_max_ms;
}

static uint64_t run_seed(uint64_t seed, const void *arg)
{
    const struct plan *plan = arg;
    static struct sim_quorum quorum;
    static struct sim_apps apps;
    struct faults faults = {
        .event = {.fire = on_fault},
        .plan = plan,
        .quorum = &quorum,
        .apps = &apps,
    };
    struct sim_apps_opts opts = {
        .keys = plan->keys,
        .is_fair = (plan->faults & ~BIT(FAULT_RACE)) == 0,
    };

    sim_quorum_init(&quorum, &(struct sim_quorum_opts){.seed = seed,
                                                       .masters = plan->masters,
                                                       .clients = CLIENTS,
                                                       .drift = plan->drift});
    draw_network(&quorum, plan);
    opts.count = 2 + sim_quorum_below(&quorum, 7);
    if (opts.count > hf_seeds_size().clients)
        opts.count = (unsigned)hf_seeds_size().clients;
    sim_apps_init(&apps, &quorum, &opts);
    sim_schedule_set(&quorum.schedule, &faults.event, plan->fault_ms);
    sim_quorum_run(&quorum, (hf_time)hf_seeds_size().until_ms);
    sim_schedule_cancel(&quorum.schedule, &faults.event);
    heal(&quorum);
    apps.is_ending = true;
    sim_quorum_run(&quorum, END_MS);
    sim_apps_check_end(&apps);
    add_totals(&apps.stats);
    sim_apps_fini(&apps);
    sim_quorum_fini(&quorum);
    return quorum.trace;
}

static struct hf_seeds seeds_of(const char *name, uint64_t first,
                                const struct plan *plan)
{
    unsigned divisor = hf_test_slowness() * hf_test_slowness();

    return (struct hf_seeds){
        .name = name,
        .first = first,
        .count = 100 / divisor + 1,
        .run = run_seed,
        .plan = plan,
        .full = {.faults = plan->faults, .until_ms = RUN_MS, .clients = 8},
    };
}

static void run_seeds(const char *name, uint64_t first, const struct plan *plan)
{
    struct hf_seeds seeds = seeds_of(name, first, plan);
    struct hf_seeds_done done = hf_seeds_run(&seeds);
    double handovers = totals.handovers > 0 ? (double)totals.handovers : 1;

    printf("%llu seeds, %.0f per second: %llu grants, %llu waits, %llu "
           "renewals, %llu updates, %llu losses, %llu reads, %llu undecided; "
           "%llu handovers, %.1f ms on average, at most %llu ms\n",
           (unsigned long long)done.count, (double)done.count / done.seconds,
           (unsigned long long)totals.grants, (unsigned long long)totals.waits,
           (unsigned long long)totals.renewals,
           (unsigned long long)totals.updates,
           (unsigned long long)totals.losses, (unsigned long long)totals.reads,
           (unsigned long long)totals.undecided,
           (unsigned long long)totals.handovers,
           (double)totals.handover_ms / handovers,
           (unsigned long long)totals.handover_max_ms);
}

/* ---- The cases ----------------------------------------------------------*/

static void check_without_faults(void)
{
    assert_true(totals.grants > 0 && totals.waits > 0 && totals.updates > 0);
    assert_true(totals.reads > 0);
    assert_int_equal(totals.losses, 0);
    assert_int_equal(totals.undecided, 0);
}

static void without_faults(void **state)
{
    static const struct plan plan = {
        .masters = 3, .keys = 3, .faults = BIT(FAULT_RACE), .fault_ms = 500};

    (void)state;
    run_seeds("without_faults", 1, &plan);
    check_without_faults();
}

static void without_faults_of_five_masters(void **state)
{
    static const struct plan plan = {
        .masters = 5, .keys = 1, .faults = BIT(FAULT_RACE), .fault_ms = 500};

    (void)state;
    run_seeds("without_faults_of_five_masters", 500000, &plan);
    check_without_faults();
}

static void with_broken_connections(void **state)
{
    static const struct plan plan = {.masters = 3,
                                     .keys = 2,
                                     .faults = NETWORK,
                                     .fault_ms = 100,
                                     .late_ms = 3000};

    (void)state;
    run_seeds("with_broken_connections", 1000000, &plan);
}

static void with_restarts(void **state)
{
    static const struct plan plan = {
        .masters = 3,
        .keys = 2,
        .faults = BIT(FAULT_CRASH) | BIT(FAULT_RACE) | BIT(FAULT_STOP),
        .fault_ms = 300};

    (void)state;
    run_seeds("with_restarts", 2000000, &plan);
}

static void with_all_faults(void **state)
{
    static const struct plan plan = {.masters = 3,
                                     .keys = 1,
                                     .faults = EVERYTHING,
                                     .fault_ms = 150,
                                     .late_ms = 8000,
                                     .drift = true};

    (void)state;
    run_seeds("with_all_faults", 3000000, &plan);
}

static void with_five_masters(void **state)
{
    static const struct plan plan = {.masters = 5,
                                     .keys = 1,
                                     .faults = EVERYTHING,
                                     .fault_ms = 150,
                                     .late_ms = 8000,
                                     .drift = true};

    (void)state;
    run_seeds("with_five_masters", 4000000, &plan);
}

int main(void)
{
    static const struct plan plan = {.masters = 3,
                                     .keys = 2,
                                     .faults = EVERYTHING,
                                     .fault_ms = 150,
                                     .late_ms = 8000,
                                     .drift = true};
    static const struct hf_seeds repeated = {
        .name = "a_seed_reproduces_its_trace",
        .first = 5000000,
        .count = 5,
        .run = run_seed,
        .plan = &plan,
        .full = {.faults = EVERYTHING, .until_ms = RUN_MS, .clients = 8},
    };
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(without_faults, hf_seeds_report),
        cmocka_unit_test_teardown(without_faults_of_five_masters,
                                  hf_seeds_report),
        cmocka_unit_test_teardown(with_broken_connections, hf_seeds_report),
        cmocka_unit_test_teardown(with_restarts, hf_seeds_report),
        cmocka_unit_test_teardown(with_all_faults, hf_seeds_report),
        cmocka_unit_test_teardown(with_five_masters, hf_seeds_report),
        HF_SEEDS_REPRODUCED(&repeated),
    };

    return hf_test_main("quorum-simulation", cases, HF_TEST_COUNT(cases), 2);
}
