/* test_pause_simulation.c - nodes that are paused, one after the other, as by
 * SIGSTOP or on an overloaded machine. A majority always runs, so it must have
 * a leader again after a few elections; and once all nodes run, all of them
 * must name the same leader.
 *
 * The kernel accepts connections for a paused node, so its peers may connect,
 * time out and reconnect several times before the node reads anything.
 *
 * seeds.h says how to run many seeds, and how to replay one. HF_UNTIL is in
 * thousandths of a pause. */
#include <stdio.h>

#include "lib/runner.h"
#include "lib/seeds.h"
#include "node/state.h"
#include "sim/lock_clients.h"
#include "sim/node_checks.h"

#define ROUNDS 6
#define PAUSE_MAX_MS 6000

static struct world {
    struct lock_clients clients;
    struct sim_nodes nodes;
    struct node_checks checks;
    struct hf_random random;
    uint32_t agree_ms;
} world;

/* Upper bounds; each seed draws what flushes and messages take. */
struct plan {
    uint32_t flush_min_ms, flush_ms, delay_ms;
    uint32_t agree_ms; /* there must be a leader after this time */
};

/* ---- The world ----------------------------------------------------------*/

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
    node_checks_on_turn(&world.checks, node);
}

static void on_down(void *arg, struct sim_node *node)
{
    node_checks_on_down(&world.checks, node);
    lock_clients_on_down(arg, node);
}

static void begin_world(uint64_t seed, const struct plan *plan,
                        unsigned clients)
{
    sim_nodes_init(&world.nodes, seed % 4 == 0 ? 5 : 3, seed);
    hf_random_init(&world.random, seed * 2 + 31);
    node_checks_init(&world.checks);
    world.agree_ms = plan->agree_ms;
    world.nodes.opts.snapshot_bytes = seed % 3 == 0 ? 20000 : 1000;
    world.nodes.opts.trailing = 1 + (uint32_t)(seed % 10);
    world.nodes.odds.flush_min_ms =
        hf_random_below(&world.random, plan->flush_min_ms + 1);
    world.nodes.odds.flush_ms =
        hf_random_below(&world.random, plan->flush_ms + 1);
    world.nodes.odds.slow_disk_ms = 2 * world.nodes.odds.flush_ms;
    world.nodes.odds.delay_ms =
        hf_random_below(&world.random, plan->delay_ms + 1);
    world.nodes.odds.slow_ms = 4 * world.nodes.odds.delay_ms;
    world.nodes.on_start = on_start;
    world.nodes.on_turn = on_turn;
    world.nodes.on_send = on_send;
    world.nodes.on_down = on_down;
    world.nodes.arg = &world.clients;
    lock_clients_init(&world.clients, &world.nodes, seed, clients);
    sim_nodes_start_all(&world.nodes);
}

/* ---- Leaders ------------------------------------------------------------*/

static bool is_paused(const struct sim_node *node)
{
    return node->paused_until > world.nodes.schedule.now;
}

/* Returns true if all nodes that run name the same leader, which runs. */
static bool agree(void *arg)
{
    uint64_t leader = 0;

    (void)arg;
    for (unsigned i = 0; i < world.nodes.count; i++) {
        const struct sim_node *node = &world.nodes.list[i];

        if (is_paused(node))
            continue;
        if (node->node->leader == 0 ||
            (leader != 0 && node->node->leader != leader))
            return false;
        leader = node->node->leader;
    }
    return !is_paused(&world.nodes.list[leader - 1]);
}

static void await_leader(unsigned round)
{
    if (sim_nodes_run(&world.nodes, world.agree_ms, agree, NULL))
        return;
    for (unsigned i = 0; i < world.nodes.count; i++) {
        struct sim_node *node = &world.nodes.list[i];
        struct hf_node_status status;

        hf_node_status(node->node, &status);
        printf("node %u%s: role %d, term %llu, leader %llu\n", i + 1,
               is_paused(node) ? ", paused" : "", (int)status.role,
               (unsigned long long)status.term,
               (unsigned long long)status.leader);
    }
    fail_msg("round %u: there is no leader that all nodes name", round);
}

/* ---- Pauses -------------------------------------------------------------*/

/* Most pauses hit the leader. */
static struct sim_node *choose_node(void)
{
    struct sim_node *leader = sim_nodes_leader(&world.nodes);

    if (leader && hf_random_below(&world.random, 4) > 0)
        return leader;
    return &world.nodes.list[hf_random_below(&world.random, world.nodes.count)];
}

static void reconnect_to(const struct sim_node *node)
{
    unsigned from = hf_random_below(&world.random, world.nodes.count);

    if (from != node->number)
        sim_nodes_reset(&world.nodes, from, node->number);
}

static void pause_one(unsigned round)
{
    struct sim_node *node = choose_node();
    uint32_t ms = hf_random_below(&world.random, PAUSE_MAX_MS);
    unsigned reconnections = hf_random_below(&world.random, 4);

    sim_nodes_pause(&world.nodes, node->number, ms);
    for (unsigned i = 0; i < reconnections; i++) {
        sim_nodes_run(&world.nodes, ms / 8, NULL, NULL);
        reconnect_to(node);
    }
    await_leader(round);
    while (is_paused(node))
        sim_nodes_run(&world.nodes, 10, NULL, NULL);
    /* The next leader may be paused before this node follows it. */
    if (hf_random_below(&world.random, 2) == 0)
        sim_nodes_run(&world.nodes, hf_random_below(&world.random, 1000), NULL,
                      NULL);
    else
        await_leader(round);
}

/* ---- Seeds --------------------------------------------------------------*/

static bool is_quiet(void *arg)
{
    (void)arg;
    return lock_clients_are_idle(&world.clients);
}

static uint64_t run_seed(uint64_t seed, const void *plan)
{
    struct hf_seeds_size size = hf_seeds_size();
    unsigned rounds = (unsigned)(size.until_ms / 1000);

    begin_world(seed, plan, (unsigned)size.clients);
    await_leader(0);
    for (unsigned i = 1; i <= rounds; i++)
        pause_one(i);
    await_leader(rounds + 1);
    world.clients.is_ending = true;
    if (!sim_nodes_run(&world.nodes, 60000, is_quiet, NULL))
        fail_msg("a client is not answered after the pauses have ended");
    sim_nodes_fini(&world.nodes);
    lock_clients_fini(&world.clients);
    node_checks_fini(&world.checks);
    return world.nodes.hash;
}

static void run_seeds(const char *name, uint64_t first, const struct plan *plan)
{
    unsigned divisor = hf_test_slowness() * hf_test_slowness();
    struct hf_seeds seeds = {.name = name,
                             .first = first,
                             .count = 40 / divisor + 1,
                             .run = run_seed,
                             .plan = plan,
                             .full = {0, ROUNDS * 1000, LOCK_CLIENTS_MAX}};
    struct hf_seeds_done done = hf_seeds_run(&seeds);

    printf("%llu seeds, %.1f per second\n", (unsigned long long)done.count,
           (double)done.count / done.seconds);
}

static void pauses_of_nodes_with_fast_disks(void **state)
{
    static const struct plan plan = {
        .flush_ms = 5,
        .delay_ms = 5,
        .agree_ms = 10 * HF_NODE_ELECTION_MS,
    };

    (void)state;
    run_seeds(__func__, 1, &plan);
}

static void pauses_of_nodes_with_slow_disks(void **state)
{
    static const struct plan plan = {
        .flush_min_ms = 4 * HF_NODE_ELECTION_MS,
        .flush_ms = 150,
        .delay_ms = 50,
        .agree_ms = 100 * HF_NODE_ELECTION_MS,
    };

    (void)state;
    run_seeds(__func__, 1000001, &plan);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(pauses_of_nodes_with_fast_disks,
                                  hf_seeds_report),
        cmocka_unit_test_teardown(pauses_of_nodes_with_slow_disks,
                                  hf_seeds_report),
    };

    return hf_test_main("pause-simulation", cases, HF_TEST_COUNT(cases), 0);
}
