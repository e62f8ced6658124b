#include "sim/node_faults.h"

#include <errno.h>
#include <string.h>

#include "core/command.h"
#include "lib/runner.h"
#include "node/state.h"
#include "sim/wall_clock.h"

const char *const node_fault_names[NODE_FAULT_COUNT] = {
#define NODE_FAULT(name, text) text,
    NODE_FAULTS(NODE_FAULT)
#undef NODE_FAULT
};

uint32_t node_faults_below(struct node_faults *faults, uint32_t bound)
{
    return hf_random_below(&faults->random, bound);
}

static uint32_t below(struct node_faults *faults, uint32_t bound)
{
    return node_faults_below(faults, bound);
}

static bool may_happen(const struct node_faults *faults, enum node_fault fault)
{
    return faults->mask >> fault & 1;
}

static void set_in(struct node_faults *faults, struct sim_event *event,
                   uint32_t ms)
{
    struct sim_schedule *schedule = &faults->nodes->schedule;

    sim_schedule_set(schedule, event, schedule->now + ms);
}

/* Choose the leader half of the time, because faults have the most effect
 * there, and otherwise any node. */
static unsigned choose_node(struct node_faults *faults)
{
    struct sim_node *leader = sim_nodes_leader(faults->nodes);

    if (below(faults, 2) == 0 && leader)
        return leader->number;
    return below(faults, faults->nodes->count);
}

/* ---- Crashes ------------------------------------------------------------*/

/* The machine loses its power, or only the process dies. */
static void crash_node(struct node_faults *faults, unsigned number)
{
    bool is_process = below(faults, 4) == 0;
    uint32_t pattern = below(faults, SIM_CRASH_RANDOM + 1);
    bool silent = below(faults, 3) == 0;

    if (faults->leaving == &faults->nodes->list[number])
        faults->leaving = NULL;
    faults->eio[number] = false;
    sim_nodes_crash(faults->nodes, number,
                    is_process ? SIM_CRASH_PROCESS : (enum sim_crash)pattern,
                    silent && !is_process);
    set_in(faults, &faults->restarts[number].event, 20 + below(faults, 4000));
}

static void crash(struct node_faults *faults)
{
    faults->happened[NODE_FAULT_CRASH]++;
    crash_node(faults, choose_node(faults));
}

static void crash_all(struct node_faults *faults)
{
    if (below(faults, 4) > 0)
        return;
    faults->happened[NODE_FAULT_CRASH_ALL]++;
    for (unsigned i = 0; i < faults->nodes->count; i++)
        crash_node(faults, i);
}

static bool is_disk_failure(const struct sim_node *node)
{
    return node->error.code == HF_ESYSTEM &&
           strstr(node->error.text, strerror(EIO));
}

/* Let the disk fail after some operations. A node that runs must stop then. */
static void set_failing_disk(struct node_faults *faults, unsigned number,
                             uint32_t operations)
{
    struct sim_disk *disk = faults->nodes->list[number].disk;

    faults->eio[number] = true;
    sim_disk_fail_at(disk, sim_disk_ops(disk) + 1 + operations, -EIO,
                     hf_random_below(&faults->turn_random, 2) == 0);
}

/* A disk that fails while a node starts is replaced by one with the same
 * content. A node whose disk is full may need more space to start. */
static void on_start_failed(struct node_faults *faults, struct sim_node *node)
{
    bool is_full =
        node->error.code == HF_ELIMIT && sim_disk_capacity(node->disk) > 0;

    if (!is_full && !(faults->eio[node->number] && is_disk_failure(node)))
        fail_msg("node %u does not start: %s", node->number + 1,
                 node->error.text);
    faults->happened[NODE_FAULT_START] += !is_full;
    faults->eio[node->number] = false;
    if (is_full)
        sim_disk_set_capacity(node->disk, 0);
    sim_disk_crash(node->disk, SIM_CRASH_PROCESS, 0);
    set_in(faults, &faults->restarts[node->number].event, 500);
}

static void on_restart(struct sim_event *event)
{
    struct node_faults_restart *restart =
        HF_CONTAINER(event, struct node_faults_restart, event);
    struct node_faults *faults = restart->faults;

    if (may_happen(faults, NODE_FAULT_START) &&
        hf_random_below(&faults->turn_random, 4) == 0)
        set_failing_disk(faults, restart->number,
                         hf_random_below(&faults->turn_random, 80));
    if (!sim_nodes_try_start(faults->nodes, restart->number))
        on_start_failed(faults, &faults->nodes->list[restart->number]);
}

static void leave(struct node_faults *faults)
{
    struct sim_node *node = &faults->nodes->list[choose_node(faults)];

    if (!node->node || faults->leaving)
        return;
    faults->leaving = node;
    faults->happened[NODE_FAULT_LEAVE]++;
    hf_node_shutdown(node->node);
    sim_nodes_wake(faults->nodes, node->number);
}

/* Restart a node as a build that knows one table version more. Once all nodes
 * know it, the table is raised. */
static void upgrade(struct node_faults *faults)
{
    unsigned number = below(faults, faults->nodes->count);
    struct sim_node *node = &faults->nodes->list[number];

    if (node->version != HF_VERSION_FIRST)
        return;
    node->version = 0;
    faults->happened[NODE_FAULT_VERSION]++;
    crash_node(faults, number);
}

/* ---- Network ------------------------------------------------------------*/

/* Cut what the node sends (`out`) or receives (`in`), to or from all other
 * nodes, or only some. */
static void cut_node(struct node_faults *faults, unsigned number, bool out,
                     bool in, bool some)
{
    struct sim_nodes *nodes = faults->nodes;

    for (unsigned i = 0; i < nodes->count; i++) {
        if (i == number || (some && below(faults, 2) == 0))
            continue;
        if (out)
            sim_nodes_cut(nodes, number, i);
        if (in)
            sim_nodes_cut(nodes, i, number);
    }
    set_in(faults, &faults->heal, 50 + below(faults, 4000));
}

static bool has_peers(const struct node_faults *faults)
{
    return faults->nodes->count > 1;
}

static void cut_both_ways(struct node_faults *faults)
{
    unsigned number = choose_node(faults);

    faults->happened[NODE_FAULT_CUT] += has_peers(faults);
    cut_node(faults, number, true, true, below(faults, 3) == 0);
}

static void cut_one_way(struct node_faults *faults)
{
    unsigned number = choose_node(faults);
    bool out = below(faults, 2) == 0;

    faults->happened[NODE_FAULT_ONE_WAY_CUT] += has_peers(faults);
    cut_node(faults, number, out, !out, below(faults, 3) == 0);
}

static void on_heal(struct sim_event *event)
{
    struct node_faults *faults = HF_CONTAINER(event, struct node_faults, heal);

    sim_nodes_heal(faults->nodes);
}

/* Two connections to the leader are not refused soon after one another: a
 * majority could then take it for dead, and elect another one. */
static void reset(struct node_faults *faults)
{
    struct sim_nodes *nodes = faults->nodes;
    struct sim_node *leader = sim_nodes_leader(nodes);
    unsigned from = below(faults, nodes->count);
    unsigned to = below(faults, nodes->count);
    bool to_leader = below(faults, 2) == 0;
    bool refuse = below(faults, 2) == 0;

    if (to_leader && leader)
        to = leader->number;
    if (from == to)
        return;
    faults->happened[NODE_FAULT_RESET]++;
    if (!refuse || nodes->schedule.now < faults->refused_at + 2000) {
        sim_nodes_reset(nodes, from, to);
        return;
    }
    faults->refused_at = nodes->schedule.now;
    sim_nodes_refuse(nodes, from, to);
}

/* ---- Clocks, pauses and disks -------------------------------------------*/

static void pause(struct node_faults *faults)
{
    faults->happened[NODE_FAULT_PAUSE]++;
    sim_nodes_pause(faults->nodes, choose_node(faults), below(faults, 3000));
}

/* Let the disk of one node, or of all nodes, become slow or fast. */
static void change_disk(struct node_faults *faults)
{
    unsigned chosen = choose_node(faults);
    bool all = below(faults, 4) == 0;
    uint32_t flush_ms = below(faults, 3) == 0 ? 120 : 2;
    uint32_t slow_disk_ms = below(faults, 3) == 0 ? 1500 : 20;

    faults->happened[NODE_FAULT_SLOW_DISK]++;
    for (unsigned i = 0; i < faults->nodes->count; i++) {
        if (!all && i != chosen)
            continue;
        faults->nodes->list[i].flush_ms = flush_ms;
        faults->nodes->list[i].slow_disk_ms = slow_disk_ms;
    }
}

/* Leave a node little space on its disk, or end the limit. */
static void fill_disk(struct node_faults *faults)
{
    struct sim_disk *disk = faults->nodes->list[choose_node(faults)].disk;
    uint32_t left = below(faults, 1 << 17);
    bool is_full = below(faults, 2) > 0;

    faults->happened[NODE_FAULT_FULL_DISK] += is_full;
    sim_disk_set_capacity(disk, is_full ? sim_disk_used(disk) + left : 0);
}

static void fail_disk(struct node_faults *faults)
{
    unsigned number = choose_node(faults);
    struct sim_node *node = &faults->nodes->list[number];

    if (!node->node)
        return;
    set_failing_disk(faults, number, below(faults, 30));
}

static void jump_wall_clock(struct node_faults *faults)
{
    faults->happened[NODE_FAULT_WALL_CLOCK]++;
    sim_wall_clock_jump((int64_t)below(faults, 7200001) - 3600000);
}

/* ---- Aimed faults -------------------------------------------------------*/

/* A leader without peers cannot be cut off. */
static void aim(struct node_faults *faults, enum node_fault fault)
{
    uint32_t direction = below(faults, 3);

    faults->aim = fault;
    faults->aim_cuts = below(faults, 2) == 0 && has_peers(faults);
    faults->aim_out = direction != 0;
    faults->aim_in = direction != 1;
}

static void aim_submit(struct node_faults *faults)
{
    aim(faults, NODE_FAULT_AIMED_SUBMIT);
}

static void aim_flush(struct node_faults *faults)
{
    aim(faults, NODE_FAULT_AIMED_FLUSH);
}

static void aim_commit(struct node_faults *faults)
{
    aim(faults, NODE_FAULT_AIMED_COMMIT);
}

static void aim_answer(struct node_faults *faults)
{
    aim(faults, NODE_FAULT_AIMED_ANSWER);
}

/* Returns true if the leader, whose turn has just ended, has reached the moment
 * of the aimed fault. The turn has sent the answers of what it applied, which
 * hit_leader() loses if the fault is AIMED_COMMIT. */
static bool is_aimed_at(const struct node_faults *faults,
                        const struct sim_node *node)
{
    bool has_new = node->node->engine.log.last > faults->aimed_last;

    switch (faults->aim) {
    case NODE_FAULT_AIMED_SUBMIT:
        return has_new && !node->is_flushing;
    case NODE_FAULT_AIMED_FLUSH:
        return node->is_flushing &&
               node->node->engine.log.last > node->node->commit;
    default:
        return node->node->commit > faults->aimed_commit;
    }
}

static void hit_leader(struct node_faults *faults, struct sim_node *node)
{
    enum node_fault hit = faults->aim;

    faults->aim = 0;
    faults->happened[hit]++;
    if (hit == NODE_FAULT_AIMED_COMMIT && faults->lose_answers)
        faults->lose_answers(faults->arg, node);
    if (faults->aim_cuts)
        cut_node(faults, node->number, faults->aim_out, faults->aim_in, false);
    else
        crash_node(faults, node->number);
}

static void check_aim(struct node_faults *faults, struct sim_node *node)
{
    if (!hf_node_leads(node->node))
        return;
    if (faults->aim && !faults->is_ending && is_aimed_at(faults, node))
        hit_leader(faults, node);
    if (!node->node)
        return;
    faults->aimed_commit = node->node->commit;
    faults->aimed_last = node->node->engine.log.last;
}

/* ---- Turns --------------------------------------------------------------*/

/* Returns true if the node has stopped because its disk has failed. A node that
 * stops for another reason, although its disk is going to fail, is an error
 * (node_checks.h). */
static bool has_failing_disk(const struct node_faults *faults,
                             const struct sim_node *node)
{
    return faults->eio[node->number] && is_disk_failure(node);
}

/* A crash during a flush may hit a leader before it can answer its clients. A
 * node that has shut down exits without a power failure, so its disk keeps all
 * that was written. */
bool node_faults_on_turn(struct node_faults *faults, struct sim_node *node)
{
    if (has_failing_disk(faults, node)) {
        faults->happened[NODE_FAULT_EIO]++;
        crash_node(faults, node->number);
    } else if (faults->leaving == node && hf_node_has_left(node->node)) {
        faults->leaving = NULL;
        faults->eio[node->number] = false;
        sim_nodes_crash(faults->nodes, node->number, SIM_CRASH_PROCESS, false);
        set_in(faults, &faults->restarts[node->number].event,
               20 + below(faults, 1000));
    } else if (!faults->is_ending && node->is_flushing &&
               may_happen(faults, NODE_FAULT_CRASH_FLUSH) &&
               hf_random_below(&faults->turn_random, 100) == 0) {
        faults->happened[NODE_FAULT_CRASH_FLUSH]++;
        crash_node(faults, node->number);
    } else {
        check_aim(faults, node);
    }
    return !node->node;
}

static const struct node_faults_action actions[] = {
    {NODE_FAULT_CRASH, crash},
    {NODE_FAULT_CRASH_ALL, crash_all},
    {NODE_FAULT_CUT, cut_both_ways},
    {NODE_FAULT_ONE_WAY_CUT, cut_one_way},
    {NODE_FAULT_RESET, reset},
    {NODE_FAULT_PAUSE, pause},
    {NODE_FAULT_SLOW_DISK, change_disk},
    {NODE_FAULT_FULL_DISK, fill_disk},
    {NODE_FAULT_LEAVE, leave},
    {NODE_FAULT_EIO, fail_disk},
    {NODE_FAULT_VERSION, upgrade},
    {NODE_FAULT_WALL_CLOCK, jump_wall_clock},
    {NODE_FAULT_AIMED_SUBMIT, aim_submit},
    {NODE_FAULT_AIMED_FLUSH, aim_flush},
    {NODE_FAULT_AIMED_COMMIT, aim_commit},
    {NODE_FAULT_AIMED_ANSWER, aim_answer},
};
#define ACTION_COUNT (sizeof(actions) / sizeof(actions[0]))

/* Draw one of all actions, and run it if its fault may happen. Leaving out a
 * kind of fault therefore does not change what is drawn. */
static void on_next(struct sim_event *event)
{
    struct node_faults *faults = HF_CONTAINER(event, struct node_faults, next);
    const struct node_faults_action *action;
    uint32_t draw;

    hf_random_init(&faults->random, faults->seed + ++faults->step * 1000003);
    set_in(faults, event, 20 + below(faults, faults->pace_ms));
    draw = below(faults, ACTION_COUNT + faults->more_count);
    action = draw < ACTION_COUNT ? &actions[draw]
                                 : &faults->more[draw - ACTION_COUNT];
    if (may_happen(faults, action->fault))
        action->run(faults);
}

/* ---- Begin and end ------------------------------------------------------*/

int32_t node_faults_draw_drift(struct node_faults *faults)
{
    uint32_t range = 2 * (uint32_t)faults->clock_ppm + 1;
    int32_t drift = (int32_t)below(faults, range) - faults->clock_ppm;

    if (below(faults, 3) > 0) /* the largest errors are the most interesting */
        drift = drift < 0 ? -faults->clock_ppm : faults->clock_ppm;
    return may_happen(faults, NODE_FAULT_CLOCKS) ? drift : 0;
}

/* Each kind of disorder is missing in every third seed: one may hide another,
 * such as a copy that arrives when the first one was lost. */
static uint32_t draw_odd(struct node_faults *faults)
{
    return below(faults, 3) == 0 ? 0 : 1 + below(faults, 30);
}

static void draw_odds(struct node_faults *faults)
{
    struct sim_nodes_odds *odds = &faults->nodes->odds;
    uint32_t delay = 1 + below(faults, 20), slow = delay + below(faults, 300);
    uint32_t lose = draw_odd(faults), repeat = draw_odd(faults),
             overtake = draw_odd(faults);

    if (may_happen(faults, NODE_FAULT_DELAY)) {
        faults->happened[NODE_FAULT_DELAY]++;
        odds->delay_ms = delay;
        odds->slow_ms = slow;
    }
    if (may_happen(faults, NODE_FAULT_DISORDER)) {
        faults->happened[NODE_FAULT_DISORDER]++;
        odds->lose = lose;
        odds->repeat = repeat;
        odds->overtake = overtake;
    }
}

/* Returns about half of the kinds of faults. With all of them at once, many
 * hide others: a session, for example, ends only if a leader stays in office
 * for long enough. */
static uint32_t draw_swarm(struct node_faults *faults)
{
    uint32_t swarm = 0;

    for (unsigned i = 0; i < NODE_FAULT_COUNT; i++)
        swarm |= below(faults, 2) << i;
    return swarm;
}

void node_faults_init(struct node_faults *faults, struct sim_nodes *nodes,
                      const struct node_faults_plan *plan, uint32_t allowed,
                      uint64_t seed)
{
    static const uint32_t paces[] = {300, 800, 800, 3000};

    memset(faults, 0, sizeof(*faults));
    sim_wall_clock_reset();
    faults->nodes = nodes;
    faults->mask = plan->faults & allowed;
    faults->clock_ppm = plan->clock_ppm;
    faults->seed = seed * 2 + 4711;
    hf_random_init(&faults->random, faults->seed);
    faults->pace_ms = paces[below(faults, 4)];
    if (plan->swarm)
        faults->mask &= draw_swarm(faults);
    hf_random_init(&faults->turn_random, faults->seed + 1);
    faults->next.fire = on_next;
    faults->heal.fire = on_heal;
    for (unsigned i = 0; i < SIM_NODES; i++)
        faults->restarts[i] = (struct node_faults_restart){
            .event = {.fire = on_restart}, .faults = faults, .number = i};
    draw_odds(faults);
    for (unsigned i = 0; i < nodes->count; i++) {
        nodes->list[i].drift = node_faults_draw_drift(faults);
        if (may_happen(faults, NODE_FAULT_VERSION))
            nodes->list[i].version = HF_VERSION_FIRST;
        faults->happened[NODE_FAULT_CLOCKS] += nodes->list[i].drift != 0;
    }
    set_in(faults, &faults->next, 500 + below(faults, 1500));
}

void node_faults_end(struct node_faults *faults)
{
    struct sim_nodes *nodes = faults->nodes;

    faults->is_ending = true;
    if (faults->leaving)
        sim_nodes_crash(nodes, faults->leaving->number, SIM_CRASH_PROCESS,
                        false);
    faults->leaving = NULL;
    sim_schedule_cancel(&nodes->schedule, &faults->next);
    sim_schedule_cancel(&nodes->schedule, &faults->heal);
    sim_nodes_heal(nodes);
    nodes->odds = (struct sim_nodes_odds){
        .delay_ms = 5,
        .slow_ms = 20,
        .flush_ms = 5,
        .slow_disk_ms = 20,
        .job_ms = 20,
    };
    for (unsigned i = 0; i < nodes->count; i++) {
        sim_schedule_cancel(&nodes->schedule, &faults->restarts[i].event);
        sim_disk_set_capacity(nodes->list[i].disk, 0);
        sim_disk_fail_at(nodes->list[i].disk, 0, 0, false);
        nodes->list[i].paused_until = nodes->schedule.now;
        nodes->list[i].flush_ms = nodes->list[i].slow_disk_ms = 0;
        sim_nodes_start(nodes, i);
        sim_nodes_wake(nodes, i);
    }
}
