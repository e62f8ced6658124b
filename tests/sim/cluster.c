#include "sim/cluster.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/runner.h"

#define TIMEOUT_MS 20000 /* for progress after all faults have ended */

#define TRACE(cluster, ...)                                                    \
    do {                                                                       \
        if ((cluster)->verbose) {                                              \
            printf("%8lld  ", (long long)(cluster)->schedule.now);             \
            printf(__VA_ARGS__);                                               \
            printf("\n");                                                      \
        }                                                                      \
    } while (0)

static uint32_t draw_below(struct sim_cluster *cluster, uint32_t bound)
{
    return hf_random_below(&cluster->random, bound);
}

static bool draw_chance(struct sim_cluster *cluster, uint32_t percent)
{
    return draw_below(cluster, 100) < percent;
}

/* ---- Init and fini ------------------------------------------------------*/

static hf_time on_delivery(void *arg, unsigned from, unsigned to,
                           const uint8_t *data, size_t size)
{
    struct sim_cluster *cluster = arg;
    uint64_t trace = cluster->trace;

    trace = sim_mix(trace, (uint64_t)cluster->schedule.now);
    trace = sim_mix(trace, from * SIM_NODES_MAX + to);
    for (size_t i = 0; i < size; i++)
        trace = sim_mix(trace, data[i]);
    cluster->trace = trace;
    return sim_node_deliver(&cluster->nodes[to], from, data, size);
}

/* Leave out some kinds of faults: a seed with few kinds reaches more situations
 * with each of them. */
static void draw_kinds(struct sim_cluster *cluster)
{
    bool *kinds[] = {
        &cluster->plan.network,   &cluster->plan.cuts,
        &cluster->plan.crashes,   &cluster->plan.stops,
        &cluster->plan.clocks,    &cluster->plan.slow_disk,
        &cluster->plan.snapshots, &cluster->plan.transfers,
    };

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        *kinds[i] &= draw_chance(cluster, 75);
}

/* Configure a node as the plan and the seed say. */
static void configure_node(struct sim_cluster *cluster, struct sim_node *node)
{
    node->schedule = &cluster->schedule;
    node->network = &cluster->network;
    node->random = &cluster->random;
    node->checks = &cluster->checks;
    node->config = (struct hf_engine_config){
        .election_ms = 300,
        .heartbeat_ms = 50,
        .inflight_max = 1 + draw_below(cluster, 64),
        .trailing = draw_below(cluster, 20),
    };
    if (cluster->plan.clocks)
        node->clock_percent = (int)draw_below(cluster, 11) - 5;
    if (cluster->plan.snapshots)
        node->snapshot_every = 1 + draw_below(cluster, 40);
}

void sim_cluster_init(struct sim_cluster *cluster, uint64_t seed,
                      const struct sim_plan *plan)
{
    struct hf_membership members = {.count = plan->nodes};

    *cluster = (struct sim_cluster){.plan = *plan, .count = plan->nodes};
    cluster->schedule.now = 1000;
    cluster->verbose = getenv("HF_SEED") != NULL;
    hf_random_init(&cluster->random, seed * 2 + 1);
    sim_network_init(&cluster->network, &cluster->schedule, &cluster->random);
    if (plan->swarm)
        draw_kinds(cluster);
    cluster->network.odds.quick_ms = 2;
    cluster->network.deliver = on_delivery;
    cluster->network.arg = cluster;
    cluster->checks.nodes = cluster->nodes;
    cluster->checks.count = cluster->count;
    for (unsigned i = 0; i < cluster->count; i++)
        members.voters[i] = i + 1;
    for (unsigned i = 0; i < cluster->count; i++) {
        configure_node(cluster, &cluster->nodes[i]);
        sim_node_init(&cluster->nodes[i], i + 1, &members);
    }
    for (unsigned i = 0; i < cluster->count; i++)
        sim_node_start(&cluster->nodes[i]);
}

void sim_cluster_fini(struct sim_cluster *cluster)
{
    for (unsigned i = 0; i < cluster->count; i++)
        sim_node_fini(&cluster->nodes[i]);
    sim_network_fini(&cluster->network);
    sim_checks_fini(&cluster->checks);
    sim_schedule_fini(&cluster->schedule);
}

/* ---- Clients ------------------------------------------------------------*/

struct sim_node *sim_cluster_leader(struct sim_cluster *cluster)
{
    struct sim_node *leader = NULL;

    for (unsigned i = 0; i < cluster->count; i++) {
        struct sim_node *node = &cluster->nodes[i];

        if (node->is_up && hf_engine_role(&node->engine) == HF_ENGINE_LEADER &&
            (!leader ||
             hf_engine_term(&node->engine) > hf_engine_term(&leader->engine)))
            leader = node;
    }
    return leader;
}

enum hf_err sim_cluster_submit(struct sim_cluster *cluster,
                               struct sim_node *node)
{
    uint64_t command = ++cluster->commands;

    return sim_node_submit(node, &command, 1);
}

/* Draw a node. Returns NULL if that node is down or stopped. */
static struct sim_node *draw_node(struct sim_cluster *cluster)
{
    struct sim_node *node =
        &cluster->nodes[draw_below(cluster, cluster->count)];

    return node->is_up && node->stopped_until <= cluster->schedule.now ? node
                                                                       : NULL;
}

/* Clients do not know the leader: they ask any node, even a deposed leader. */
static void act_as_client(struct sim_cluster *cluster)
{
    struct sim_node *node = draw_node(cluster);
    uint64_t commands[16];
    size_t count = 1 + draw_below(cluster, 5);

    if (!node)
        return;
    if (draw_chance(cluster, 30)) {
        (void)sim_node_read(node);
        return;
    }
    for (size_t i = 0; i < count; i++)
        commands[i] = ++cluster->commands;
    (void)sim_node_submit(node, commands, count);
}

/* ---- Faults -------------------------------------------------------------*/

/* Draw the node that a fault hits: in 60 percent of the cases the leader, if
 * there is one, and otherwise any node. */
static unsigned draw_victim(struct sim_cluster *cluster)
{
    struct sim_node *leader = sim_cluster_leader(cluster);

    return leader && draw_chance(cluster, 60)
               ? leader->number
               : draw_below(cluster, cluster->count);
}

static void cut_links(struct sim_cluster *cluster)
{
    unsigned victim = draw_victim(cluster);
    unsigned other = draw_below(cluster, cluster->count);
    bool all = draw_chance(cluster, 50);
    bool in = draw_chance(cluster, 70);
    bool out = !in || draw_chance(cluster, 60);

    TRACE(cluster, "cut %s%s of node %u from %s", in ? "in" : "",
          out ? "out" : "", victim + 1, all ? "all" : "one");
    for (unsigned i = 0; i < cluster->count; i++) {
        if (i == victim || (!all && i != other))
            continue;
        cluster->network.is_cut[i][victim] |= in;
        cluster->network.is_cut[victim][i] |= out;
    }
}

static void heal_links(struct sim_cluster *cluster)
{
    TRACE(cluster, "heal links");
    memset(cluster->network.is_cut, 0, sizeof(cluster->network.is_cut));
}

/* In half of the crashes, followers notice that their connections to the dead
 * process are reset, unless they are stopped or the link is cut. */
static void crash_node(struct sim_cluster *cluster, unsigned victim)
{
    bool notice = draw_chance(cluster, 50);

    TRACE(cluster, "crash node %u", victim + 1);
    sim_node_crash(&cluster->nodes[victim]);
    for (unsigned i = 0; notice && i < cluster->count; i++) {
        struct sim_node *node = &cluster->nodes[i];

        if (node->is_up && node->stopped_until <= cluster->schedule.now &&
            !cluster->network.is_cut[victim][i] &&
            hf_engine_leader(&node->engine) == victim + 1)
            sim_node_lose_leader(node);
    }
}

static void crash_or_restart(struct sim_cluster *cluster)
{
    unsigned victim = draw_victim(cluster);

    for (unsigned i = 0; i < cluster->count; i++) {
        if (!cluster->nodes[i].is_up && draw_chance(cluster, 70)) {
            TRACE(cluster, "start node %u", i + 1);
            sim_node_start(&cluster->nodes[i]);
            return;
        }
    }
    if (!cluster->nodes[victim].is_up)
        return;
    crash_node(cluster, victim);
    if (draw_chance(cluster, 40))
        sim_node_start(&cluster->nodes[victim]);
}

static void stop_node(struct sim_cluster *cluster)
{
    struct sim_node *node = &cluster->nodes[draw_victim(cluster)];

    TRACE(cluster, "stop node %u", node->number + 1);
    if (node->is_up)
        node->stopped_until =
            cluster->schedule.now + 1 + draw_below(cluster, 1500);
}

static void transfer_leadership(struct sim_cluster *cluster)
{
    struct sim_node *leader = sim_cluster_leader(cluster);

    if (leader && leader->stopped_until <= cluster->schedule.now)
        (void)sim_node_step(
            leader, (struct hf_engine_event){
                        .kind = HF_ENGINE_TRANSFER,
                        .peer = 1 + draw_below(cluster, cluster->count)});
}

/* A node loses its connection to the leader, which may still run. */
static void reset_connection(struct sim_cluster *cluster)
{
    struct sim_node *node = draw_node(cluster);

    if (node)
        sim_node_lose_leader(node);
}

static void draw_odds(struct sim_cluster *cluster)
{
    cluster->network.odds = (struct sim_network_odds){
        .lose = draw_below(cluster, 90),
        .repeat = draw_below(cluster, 50),
        .slow = draw_below(cluster, 100),
        .quick_ms = 1 + draw_below(cluster, 10),
        .slow_ms = 50 + draw_below(cluster, 500),
    };
}

/* Some flushes may take longer than an election, so that entries are replaced
 * before they are durable. */
static void draw_disk(struct sim_cluster *cluster)
{
    uint32_t slow_ms = draw_chance(cluster, 30) ? 1000 : 120;

    for (unsigned i = 0; i < cluster->count; i++)
        cluster->nodes[i].storage.flush_ms =
            draw_chance(cluster, 50) ? 2 : 1 + draw_below(cluster, slow_ms);
}

static void inject_fault(struct sim_cluster *cluster)
{
    const struct sim_plan *plan = &cluster->plan;

    switch (draw_below(cluster, 8)) {
    case 0:
    case 1:
        if (plan->cuts)
            cut_links(cluster);
        break;
    case 2:
        heal_links(cluster);
        break;
    case 3:
    case 4:
        if (plan->crashes)
            crash_or_restart(cluster);
        break;
    case 5:
        if (plan->stops)
            stop_node(cluster);
        break;
    case 6:
        if (plan->transfers)
            transfer_leadership(cluster);
        else
            reset_connection(cluster);
        break;
    case 7:
        if (plan->network)
            draw_odds(cluster);
        if (plan->slow_disk)
            draw_disk(cluster);
        break;
    }
}

/* ---- Runs ---------------------------------------------------------------*/

void sim_cluster_run(struct sim_cluster *cluster, uint32_t ms)
{
    hf_time until = cluster->schedule.now + ms;

    while (sim_schedule_step(&cluster->schedule, until))
        ;
}

void sim_cluster_torture(struct sim_cluster *cluster, uint32_t ms)
{
    hf_time until = cluster->schedule.now + ms;
    hf_time fault = cluster->schedule.now + 500;

    while (cluster->schedule.now < until) {
        sim_cluster_run(cluster, 1 + draw_below(cluster, 30));
        act_as_client(cluster);
        if (cluster->schedule.now >= fault) {
            inject_fault(cluster);
            fault = cluster->schedule.now + 1 + draw_below(cluster, 400);
        }
    }
}

void sim_cluster_heal(struct sim_cluster *cluster, unsigned dead)
{
    sim_network_heal(&cluster->network);
    for (unsigned i = 0; i < cluster->count; i++) {
        struct sim_node *node = &cluster->nodes[i];

        node->stopped_until = 0;
        node->storage.flush_ms = 2;
        if (node->is_up && i < dead)
            sim_node_crash(node);
        if (!node->is_up && i >= dead)
            sim_node_start(node);
    }
}

struct sim_node *sim_cluster_await_leader(struct sim_cluster *cluster)
{
    hf_time until = cluster->schedule.now + TIMEOUT_MS;
    struct sim_node *leader = sim_cluster_leader(cluster);

    while (!leader || !hf_engine_can_read(&leader->engine)) {
        if (cluster->schedule.now >= until) {
            printf("%lld ms: no leader although a majority is up\n",
                   (long long)cluster->schedule.now);
            fail();
        }
        sim_cluster_run(cluster, 10);
        leader = sim_cluster_leader(cluster);
    }
    return leader;
}

/* Returns true if all running nodes have applied `index`. */
static bool have_applied(const struct sim_cluster *cluster, uint64_t index)
{
    for (unsigned i = 0; i < cluster->count; i++) {
        if (cluster->nodes[i].is_up && cluster->nodes[i].applied < index)
            return false;
    }
    return true;
}

void sim_cluster_check_progress(struct sim_cluster *cluster)
{
    hf_time until = cluster->schedule.now + TIMEOUT_MS;
    uint64_t reads;
    uint64_t wanted;

    while (sim_cluster_submit(cluster, sim_cluster_await_leader(cluster)))
        sim_cluster_run(cluster, 10);
    wanted = sim_cluster_leader(cluster)->engine.log.last;
    reads = cluster->checks.reads;
    while (!have_applied(cluster, wanted) || cluster->checks.reads == reads) {
        struct sim_node *leader = sim_cluster_leader(cluster);

        if (cluster->schedule.now >= until) {
            printf("%lld ms: entry %llu is not applied everywhere\n",
                   (long long)cluster->schedule.now,
                   (unsigned long long)wanted);
            fail();
        }
        /* Submit again: a leader may be deposed, and its last entry lost. */
        if (leader)
            (void)sim_cluster_submit(cluster, leader);
        if (leader && cluster->checks.reads == reads)
            (void)sim_node_read(leader);
        sim_cluster_run(cluster, 20);
    }
}
