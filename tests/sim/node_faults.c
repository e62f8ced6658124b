#include "sim/node_faults.h"

#include <string.h>

static uint32_t below(struct node_faults *faults, uint32_t bound)
{
    return hf_random_below(&faults->random, bound);
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

    if (leader && below(faults, 2) == 0)
        return leader->number;
    return below(faults, faults->nodes->count);
}

/* ---- Faults -------------------------------------------------------------*/

static void crash(struct node_faults *faults, unsigned number)
{
    bool all = below(faults, 15) == 0;

    for (unsigned i = 0; i < faults->nodes->count; i++) {
        if (!all && i != number)
            continue;
        if (faults->leaving == &faults->nodes->list[i])
            faults->leaving = NULL;
        sim_nodes_crash(faults->nodes, i,
                        (enum sim_crash)below(faults, SIM_CRASH_RANDOM + 1),
                        below(faults, 3) == 0);
        set_in(faults, &faults->restarts[i].event, 20 + below(faults, 4000));
        faults->crashes++;
    }
}

static void on_restart(struct sim_event *event)
{
    struct node_faults_restart *restart =
        HF_CONTAINER(event, struct node_faults_restart, event);

    sim_nodes_start(restart->faults->nodes, restart->number);
}

static void cut(struct node_faults *faults)
{
    struct sim_nodes *nodes = faults->nodes;
    unsigned number = choose_node(faults);
    unsigned kind = below(faults, 4);

    for (unsigned i = 0; i < nodes->count; i++) {
        if (i == number || (kind == 3 && below(faults, 2) == 0))
            continue;
        if (kind != 1)
            sim_nodes_cut(nodes, number, i);
        if (kind != 2)
            sim_nodes_cut(nodes, i, number);
    }
    faults->cuts++;
    set_in(faults, &faults->heal, 50 + below(faults, 4000));
}

static void on_heal(struct sim_event *event)
{
    struct node_faults *faults = HF_CONTAINER(event, struct node_faults, heal);

    sim_nodes_heal(faults->nodes);
}

static void reset(struct node_faults *faults)
{
    unsigned from = choose_node(faults);
    unsigned to = below(faults, faults->nodes->count);

    if (from != to)
        sim_nodes_reset(faults->nodes, from, to);
}

static void change_disk(struct node_faults *faults)
{
    faults->nodes->odds.flush_ms = below(faults, 3) == 0 ? 120 : 2;
    faults->nodes->odds.slow_disk_ms = below(faults, 3) == 0 ? 1500 : 20;
}

/* Leave a node little space on its disk, or end the limit. */
static void fill_disk(struct node_faults *faults)
{
    struct sim_disk *disk = faults->nodes->list[choose_node(faults)].disk;

    sim_disk_set_capacity(disk,
                          below(faults, 2) == 0
                              ? 0
                              : sim_disk_used(disk) + below(faults, 1 << 17));
}

static void leave(struct node_faults *faults)
{
    struct sim_node *node = &faults->nodes->list[choose_node(faults)];

    if (!node->node || faults->leaving)
        return;
    faults->leaving = node;
    hf_node_shutdown(node->node);
    sim_nodes_wake(faults->nodes, node->number);
}

/* A crash during a flush may hit a leader before it can answer its clients. A
 * node that has shut down exits without a power failure, so its disk keeps all
 * that was written. */
void node_faults_on_turn(struct node_faults *faults, struct sim_node *node)
{
    if (faults->leaving == node && hf_node_has_left(node->node)) {
        faults->leaving = NULL;
        sim_nodes_crash(faults->nodes, node->number, SIM_CRASH_KEEP, false);
        set_in(faults, &faults->restarts[node->number].event,
               20 + below(faults, 1000));
    } else if (!faults->is_ending && faults->plan->crashes &&
               node->is_flushing && below(faults, 500) == 0) {
        crash(faults, node->number);
    }
}

static void on_next(struct sim_event *event)
{
    struct node_faults *faults = HF_CONTAINER(event, struct node_faults, next);
    const struct node_faults_plan *plan = faults->plan;

    if (faults->is_ending)
        return;
    switch (below(faults, 8)) {
    case 0:
    case 1:
        if (plan->crashes)
            crash(faults, choose_node(faults));
        break;
    case 2:
        if (plan->cuts)
            cut(faults);
        break;
    case 3:
        if (plan->cuts)
            reset(faults);
        break;
    case 4:
        if (plan->pauses) {
            faults->pauses++;
            sim_nodes_pause(faults->nodes, choose_node(faults),
                            below(faults, 3000));
        }
        break;
    case 5:
        if (plan->full_disks)
            fill_disk(faults);
        break;
    case 6:
        if (plan->leaves)
            leave(faults);
        break;
    default:
        if (plan->slow_disks)
            change_disk(faults);
        break;
    }
    set_in(faults, event, 20 + below(faults, 1500));
}

/* ---- Begin and end ------------------------------------------------------*/

static void draw_odds(struct node_faults *faults)
{
    struct sim_nodes_odds *odds = &faults->nodes->odds;

    if (faults->plan->network) {
        odds->delay_ms = 1 + below(faults, 20);
        odds->slow_ms = odds->delay_ms + below(faults, 300);
    }
    if (faults->plan->disorder) {
        odds->lose = below(faults, 30);
        odds->repeat = below(faults, 30);
        odds->overtake = below(faults, 30);
    }
}

void node_faults_init(struct node_faults *faults, struct sim_nodes *nodes,
                      const struct node_faults_plan *plan, uint64_t seed)
{
    memset(faults, 0, sizeof(*faults));
    faults->nodes = nodes;
    faults->plan = plan;
    hf_random_init(&faults->random, seed * 2 + 4711);
    faults->next.fire = on_next;
    faults->heal.fire = on_heal;
    for (unsigned i = 0; i < SIM_NODES; i++)
        faults->restarts[i] = (struct node_faults_restart){
            .event = {.fire = on_restart}, .faults = faults, .number = i};
    draw_odds(faults);
    for (unsigned i = 0; plan->clocks && i < nodes->count; i++)
        nodes->list[i].drift = (int32_t)below(faults, 20001) - 10000;
    set_in(faults, &faults->next, 500 + below(faults, 1500));
}

void node_faults_end(struct node_faults *faults)
{
    struct sim_nodes *nodes = faults->nodes;

    faults->is_ending = true;
    if (faults->leaving)
        sim_nodes_crash(nodes, faults->leaving->number, SIM_CRASH_KEEP, false);
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
        nodes->list[i].paused_until = nodes->schedule.now;
        sim_nodes_start(nodes, i);
        sim_nodes_wake(nodes, i);
    }
}
