#include "sim/nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "lib/runner.h"
#include "log/directory.h"
#include "sim/conns.h"

static const struct hf_seed no_secret = {"simulated"};

/* Where clients connect. */
static const char *const addresses[SIM_NODES] = {
    "127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003", "127.0.0.1:7004",
    "127.0.0.1:7005"};

/* ---- Time ---------------------------------------------------------------*/

hf_time sim_node_now(const struct sim_node *node)
{
    hf_time now = node->nodes->schedule.now;

    return node->ahead + now + now * node->drift / 1000000;
}

/* About the simulated time at which the node's clock shows `local`; always
 * later than now. */
static hf_time global_time(const struct sim_node *node, hf_time local)
{
    hf_time at;

    if (local == HF_NEVER)
        return HF_NEVER / (1 << 21);
    at = local - node->ahead;
    at -= at * node->drift / 1000000;
    return at > node->nodes->schedule.now ? at : node->nodes->schedule.now + 1;
}

static hf_time duration(struct sim_nodes *nodes, uint32_t usual, uint32_t slow,
                        uint32_t one_in)
{
    bool is_slow = hf_random_below(&nodes->random, one_in) == 0;

    return (hf_time)hf_random_below(&nodes->random,
                                    (is_slow ? slow : usual) + 1);
}

/* ---- Turns and disks ----------------------------------------------------*/

void sim_nodes_wake(struct sim_nodes *nodes, unsigned number)
{
    struct sim_node *node = &nodes->list[number];

    if (node->node)
        sim_schedule_set(&nodes->schedule, &node->turn, nodes->schedule.now);
}

static bool is_paused(struct sim_node *node, struct sim_event *event)
{
    struct sim_schedule *schedule = &node->nodes->schedule;

    if (schedule->now >= node->paused_until)
        return false;
    sim_schedule_set(schedule, event, node->paused_until);
    return true;
}

static hf_time flush_duration(const struct sim_node *node)
{
    const struct sim_nodes_odds *odds = &node->nodes->odds;

    return odds->flush_min_ms +
           duration(
               node->nodes, node->flush_ms ? node->flush_ms : odds->flush_ms,
               node->slow_disk_ms ? node->slow_disk_ms : odds->slow_disk_ms,
               50);
}

/* The same for the end of a flush, if the disk of the node hangs. */
static bool is_hanging(struct sim_node *node, struct sim_event *event)
{
    struct sim_schedule *schedule = &node->nodes->schedule;

    if (schedule->now >= node->disk_hangs_until)
        return false;
    sim_schedule_set(schedule, event, node->disk_hangs_until);
    return true;
}

static void start_disk_work(struct sim_node *node)
{
    struct sim_nodes *nodes = node->nodes;
    struct sim_schedule *schedule = &nodes->schedule;
    const struct sim_nodes_odds *odds = &nodes->odds;

    if (!node->is_flushing && hf_node_flush_begin(node->node, &node->flush)) {
        node->is_flushing = true;
        sim_schedule_set(schedule, &node->flush_end,
                         schedule->now + flush_duration(node));
    }
    if (!node->has_upkeep && hf_node_upkeep_begin(node->node, &node->upkeep)) {
        node->has_upkeep = true;
        sim_schedule_set(schedule, &node->upkeep_end,
                         schedule->now +
                             duration(nodes, odds->job_ms, odds->job_ms, 50));
    }
    if (!node->job && (node->job = hf_node_job_begin(node->node)))
        sim_schedule_set(schedule, &node->job_end,
                         schedule->now +
                             duration(nodes, odds->job_ms, odds->job_ms, 50));
}

static void on_turn(struct sim_event *event)
{
    struct sim_node *node = HF_CONTAINER(event, struct sim_node, turn);

    if (!node->node || is_paused(node, event))
        return;
    hf_node_turn(node->node, sim_node_now(node));
    if (node->nodes->on_turn)
        node->nodes->on_turn(node->nodes->arg, node);
    if (!node->node)
        return;
    start_disk_work(node);
    sim_schedule_set(&node->nodes->schedule, &node->turn,
                     global_time(node, hf_node_deadline(node->node)));
}

static void on_flush_end(struct sim_event *event)
{
    struct sim_node *node = HF_CONTAINER(event, struct sim_node, flush_end);

    if (is_paused(node, event) || is_hanging(node, event))
        return;
    hf_wal_flush_run(&node->flush);
    node->is_flushing = false;
    hf_node_set_time(node->node, sim_node_now(node));
    hf_node_flush_end(node->node, &node->flush);
    sim_nodes_wake(node->nodes, node->number);
}

static void on_upkeep_end(struct sim_event *event)
{
    struct sim_node *node = HF_CONTAINER(event, struct sim_node, upkeep_end);

    if (is_paused(node, event))
        return;
    hf_wal_upkeep_run(&node->upkeep);
    node->has_upkeep = false;
    hf_node_set_time(node->node, sim_node_now(node));
    hf_node_upkeep_end(node->node, &node->upkeep);
    sim_nodes_wake(node->nodes, node->number);
}

static void on_job_end(struct sim_event *event)
{
    struct sim_node *node = HF_CONTAINER(event, struct sim_node, job_end);
    struct hf_node_job *job = node->job;

    if (is_paused(node, event))
        return;
    hf_node_job_run(job);
    node->job = NULL;
    hf_node_set_time(node->node, sim_node_now(node));
    hf_node_job_end(node->node, job);
    sim_nodes_wake(node->nodes, node->number);
}

/* ---- Services -----------------------------------------------------------*/

static void send_link(void *arg, uint64_t link, const void *bytes, size_t size)
{
    struct sim_node *node = arg;

    sim_conns_send(node->nodes, link, bytes, size);
}

static void close_link(void *arg, uint64_t link, const char *why)
{
    struct sim_node *node = arg;

    node->refused = why;
    sim_conns_close(node->nodes, link);
}

static void on_stop(void *arg, const struct hf_error *error)
{
    struct sim_node *node = arg;

    if (!node->is_crashing)
        node->error = *error;
}

static void send_client(void *arg, uint64_t conn, const void *bytes,
                        size_t size)
{
    struct sim_node *node = arg;

    if (node->nodes->clients)
        node->nodes->clients->send(node->nodes->arg, node, conn, bytes, size);
}

static void close_client(void *arg, uint64_t conn)
{
    struct sim_node *node = arg;

    if (node->nodes->clients)
        node->nodes->clients->close(node->nodes->arg, node, conn);
}

static void pause_client(void *arg, uint64_t conn, bool stop)
{
    struct sim_node *node = arg;

    if (node->nodes->clients)
        node->nodes->clients->pause(node->nodes->arg, node, conn, stop);
}

static const struct hf_node_ops ops = {
    .send_link = send_link,
    .close_link = close_link,
    .send_client = send_client,
    .close_client = close_client,
    .pause_client = pause_client,
    .stop = on_stop,
};

/* ---- Start and crash ----------------------------------------------------*/

static void init_directory(struct sim_node *node)
{
    struct hf_log_identity identity = {
        .cluster = node->nodes->opts.cluster,
        .node = node->number + 1,
        .secret = no_secret,
        .segment_size = node->nodes->segment_size,
    };
    struct hf_disk *disk = sim_disk_attach(node->disk);
    struct hf_error error = {0};

    if (hf_log_directory_init(disk, &identity, &error))
        fail_msg("%s", error.text);
    disk->ops->close_directory(disk);
}

bool sim_nodes_try_start(struct sim_nodes *nodes, unsigned number)
{
    struct sim_node *node = &nodes->list[number];
    struct hf_node_opts opts = nodes->opts;

    if (node->node)
        return true;
    if (!sim_disk_has(node->disk, HF_IDENTITY_FILE))
        init_directory(node);
    opts.id = number + 1;
    if (node->version)
        opts.version = node->version;
    (void)hf_random_bytes(&nodes->random, &opts.seed, sizeof(opts.seed));
    node->error = (struct hf_error){0};
    node->attached = sim_disk_attach(node->disk);
    if (hf_node_open(&opts, &ops, node, node->attached, sim_node_now(node),
                     &node->node, &node->error)) {
        node->attached->ops->close_directory(node->attached);
        return false;
    }
    if (nodes->on_start)
        nodes->on_start(nodes->arg, node);
    sim_conns_start(nodes, number);
    sim_nodes_wake(nodes, number);
    return true;
}

void sim_nodes_start(struct sim_nodes *nodes, unsigned number)
{
    if (!sim_nodes_try_start(nodes, number))
        fail_msg("node %u does not start: %s", number + 1,
                 nodes->list[number].error.text);
}

void sim_nodes_start_all(struct sim_nodes *nodes)
{
    for (unsigned i = 0; i < nodes->count; i++)
        sim_nodes_start(nodes, i);
}

/* Let the power fail after a few changes of the disk, so that a flush, upkeep
 * or job that is running may be written in part. */
static void interrupt_disk_work(struct sim_node *node)
{
    struct sim_nodes *nodes = node->nodes;
    struct sim_schedule *schedule = &nodes->schedule;

    sim_disk_power_off_at(node->disk, sim_disk_changes(node->disk) + 1 +
                                          hf_random_below(&nodes->random, 4));
    if (node->is_flushing) {
        hf_wal_flush_run(&node->flush);
        hf_node_flush_end(node->node, &node->flush);
    }
    if (node->has_upkeep) {
        hf_wal_upkeep_run(&node->upkeep);
        hf_node_upkeep_end(node->node, &node->upkeep);
    }
    if (node->job) {
        hf_node_job_run(node->job);
        hf_node_job_end(node->node, node->job);
    }
    node->is_flushing = node->has_upkeep = false;
    node->job = NULL;
    sim_schedule_cancel(schedule, &node->flush_end);
    sim_schedule_cancel(schedule, &node->upkeep_end);
    sim_schedule_cancel(schedule, &node->job_end);
    sim_schedule_cancel(schedule, &node->turn);
}

void sim_nodes_crash(struct sim_nodes *nodes, unsigned number,
                     enum sim_crash pattern, bool silent)
{
    struct sim_node *node = &nodes->list[number];
    uint64_t seed = hf_random_below(&nodes->random, UINT32_MAX);

    if (!node->node)
        return;
    node->is_crashing = true;
    if (nodes->on_down)
        nodes->on_down(nodes->arg, node);
    interrupt_disk_work(node);
    hf_node_close(node->node);
    node->node = NULL;
    node->is_crashing = false;
    node->attached->ops->close_directory(node->attached);
    sim_disk_crash(node->disk, pattern, seed);
    sim_conns_stop(nodes, number, silent);
}

void sim_nodes_pause(struct sim_nodes *nodes, unsigned number, uint32_t ms)
{
    nodes->list[number].paused_until = nodes->schedule.now + ms;
}

/* ---- Init and fini ------------------------------------------------------*/

static void init_node(struct sim_nodes *nodes, unsigned number)
{
    struct sim_node *node = &nodes->list[number];
    node->nodes = nodes;
    node->number = number;
    node->disk = sim_disk_new();
    node->ahead = 1000 + hf_random_below(&nodes->random, 1000000);
    node->turn.fire = on_turn;
    node->flush_end.fire = on_flush_end;
    node->upkeep_end.fire = on_upkeep_end;
    node->job_end.fire = on_job_end;
    nodes->members[number] =
        (struct hf_node_member){number + 1, "peer", addresses[number]};
}

void sim_nodes_init(struct sim_nodes *nodes, unsigned count, uint64_t seed)
{
    memset(nodes, 0, sizeof(*nodes));
    nodes->count = count;
    nodes->segment_size = 65536;
    hf_random_init(&nodes->random, seed * 2 + 1);
    nodes->odds = (struct sim_nodes_odds){
        .delay_ms = 2,
        .slow_ms = 5,
        .flush_ms = 2,
        .slow_disk_ms = 5,
        .job_ms = 5,
    };
    nodes->opts = (struct hf_node_opts){
        .members = nodes->members,
        .member_count = count,
        .history_bytes = 65536,
    };
    for (unsigned i = 0; i < count; i++)
        init_node(nodes, i);
    sim_conns_init(nodes);
}

void sim_nodes_fini(struct sim_nodes *nodes)
{
    for (unsigned i = 0; i < nodes->count; i++) {
        sim_nodes_crash(nodes, i, SIM_CRASH_KEEP, true);
        sim_disk_free(nodes->list[i].disk);
    }
    sim_conns_fini(nodes);
    sim_schedule_fini(&nodes->schedule);
}

/* ---- Running ------------------------------------------------------------*/

bool sim_nodes_run(struct sim_nodes *nodes, uint32_t ms,
                   bool (*done)(void *arg), void *arg)
{
    hf_time until = nodes->schedule.now + ms;

    while (!done || !done(arg)) {
        if (!sim_schedule_step(&nodes->schedule, until))
            return done && done(arg);
    }
    return true;
}

struct sim_node *sim_nodes_leader(struct sim_nodes *nodes)
{
    struct sim_node *leader = NULL;
    uint64_t term = 0;

    for (unsigned i = 0; i < nodes->count; i++) {
        struct hf_node_status status;

        if (!nodes->list[i].node)
            continue;
        hf_node_status(nodes->list[i].node, &status);
        if (status.role == HF_NODE_LEADER && status.term > term) {
            term = status.term;
            leader = &nodes->list[i];
        }
    }
    return leader;
}
