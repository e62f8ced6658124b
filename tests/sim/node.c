#include "sim/node.h"

#include <stdlib.h>

#include "lib/runner.h"

#define ROUND_RETRY_MS 100

/* ---- Clocks -------------------------------------------------------------*/

static hf_time local_now(const struct sim_node *node)
{
    return node->schedule->now * (100 + node->clock_percent) / 100;
}

/* The simulated time at which the node's clock shows `local` or a little
 * more. */
static hf_time time_of(const struct sim_node *node, hf_time local)
{
    return local * 100 / (100 + node->clock_percent) + 1;
}

/* ---- Sending ------------------------------------------------------------*/

static void free_outgoing(struct sim_outgoing *outgoing)
{
    hf_buf_fini(&outgoing->frame);
    free(outgoing);
}

/* Remove the first frame of the outbox. Returns NULL if there is none, or if it
 * waits for a write after `durable`: frames are sent in order. */
static struct sim_outgoing *take_outgoing(struct sim_node *node,
                                          uint64_t durable)
{
    struct hf_dlist *link = hf_dlist_first(&node->outbox);

    if (!link || HF_CONTAINER(link, struct sim_outgoing, link)->after > durable)
        return NULL;
    return HF_CONTAINER(hf_dlist_take(&node->outbox), struct sim_outgoing,
                        link);
}

void sim_node_send_outbox(struct sim_node *node)
{
    struct sim_outgoing *outgoing;

    for (outgoing = take_outgoing(node, node->durable_write); outgoing;
         outgoing = take_outgoing(node, node->durable_write)) {
        if (outgoing->vote_term > 0)
            sim_checks_vote(node->checks, node, outgoing->vote_term,
                            outgoing->to + 1);
        sim_network_send(node->network, node->number, outgoing->to,
                         outgoing->frame.data, outgoing->frame.size);
        free_outgoing(outgoing);
    }
}

static struct sim_outgoing *new_outgoing(struct sim_node *node, uint64_t to)
{
    struct sim_outgoing *outgoing = calloc(1, sizeof(*outgoing));

    assert_non_null(outgoing);
    outgoing->to = (unsigned)(to - 1);
    outgoing->after = hf_engine_after(&node->engine);
    hf_frames_begin(&node->frames[outgoing->to], node->id,
                    node->storage.incarnation, &outgoing->frame);
    hf_dlist_push_back(&node->outbox, &outgoing->link);
    return outgoing;
}

void sim_node_send(struct sim_node *node, const struct hf_message *message,
                   uint64_t after)
{
    struct sim_outgoing *outgoing = new_outgoing(node, message->peer);

    outgoing->after = after;
    hf_message_encode(&outgoing->frame, message);
    if (message->kind == HF_MESSAGE_VOTE_RESULT &&
        message->vote_result.granted && !message->vote_result.pre_vote)
        outgoing->vote_term = message->term;
}

/* Send a message that the engine did not make, such as a round, to all other
 * voters. */
void sim_node_send_to_voters(struct sim_node *node, struct hf_message message)
{
    for (size_t i = 0; i < node->members.count; i++) {
        message.peer = node->members.voters[i];
        if (message.peer != node->id)
            sim_node_send(node, &message, hf_engine_after(&node->engine));
    }
    sim_node_send_outbox(node);
}

static void send_snapshot(struct sim_node *node, uint64_t peer)
{
    const struct sim_snapshot *snapshot = &node->storage.snapshot;
    struct sim_outgoing *outgoing;

    if (snapshot->index < node->engine.snapshot.index)
        return; /* not durable yet */
    outgoing = new_outgoing(node, peer);
    hf_buf_u8(&outgoing->frame, SIM_NODE_SNAPSHOT);
    hf_buf_u64(&outgoing->frame, hf_engine_term(&node->engine));
    hf_buf_u64(&outgoing->frame, snapshot->index);
    hf_buf_u64(&outgoing->frame, snapshot->term);
    hf_buf_u64(&outgoing->frame, snapshot->hash);
}

/* Send snapshots again until they are acknowledged, as src/node/transfers_out.c
 * does. The library waits much longer before it asks again. */
static void repeat_snapshots(struct sim_node *node)
{
    for (unsigned i = 0; i < node->members.count; i++) {
        if (!node->is_sending[i])
            continue;
        if (hf_engine_role(&node->engine) != HF_ENGINE_LEADER ||
            hf_engine_match(&node->engine, i + 1) >=
                node->engine.snapshot.index)
            node->is_sending[i] = false;
        else
            send_snapshot(node, i + 1);
    }
    sim_node_send_outbox(node);
}

/* ---- Applying -----------------------------------------------------------*/

static void apply_entry(struct sim_node *node, const struct hf_entry *entry)
{
    const uint8_t *bytes = entry->data.data;

    node->applied++;
    node->hash = sim_mix(node->hash, node->applied);
    node->hash = sim_mix(node->hash, (uint64_t)entry->kind);
    for (size_t i = 0; i < entry->data.size; i++)
        node->hash = sim_mix(node->hash, bytes[i]);
    sim_checks_applied(node->checks, node);
    /* The leader answers the client, so the entry is acknowledged. */
    if (hf_engine_role(&node->engine) == HF_ENGINE_LEADER &&
        entry->term == hf_engine_term(&node->engine) &&
        node->applied > node->checks->acknowledged)
        node->checks->acknowledged = node->applied;
}

void sim_node_answer_reads(struct sim_node *node)
{
    struct hf_read read;

    while (hf_rounds_take(&node->rounds, node->applied, &read))
        sim_checks_read(node->checks, node, read.tag);
}

static void apply_commits(struct sim_node *node, uint64_t commit)
{
    while (node->applied < commit) {
        const struct hf_entry *entry =
            hf_entries_find(&node->engine.log, node->applied + 1);

        assert_non_null(entry);
        apply_entry(node, entry);
    }
    sim_node_answer_reads(node);
}

/* Take a snapshot if `snapshot_every` entries were applied since the last one
 * and are durable, unless a snapshot is being taken or installed. */
static void take_snapshot(struct sim_node *node)
{
    struct sim_write *write;

    if (node->snapshot_every == 0 || node->is_taking ||
        node->engine.installing ||
        node->applied < node->engine.snapshot.index + node->snapshot_every ||
        node->applied > node->engine.durable)
        return;
    node->taking = (struct sim_snapshot){
        node->applied, hf_entries_term(&node->engine.log, node->applied),
        node->hash};
    node->is_taking = true;
    write = sim_storage_write(&node->storage, SIM_WRITE_SNAPSHOT, 0);
    write->snapshot = node->taking;
    sim_storage_flush(&node->storage);
}

/* ---- Updates ------------------------------------------------------------*/

static void store_update(struct sim_node *node,
                         const struct hf_engine_update *update)
{
    struct sim_storage *storage = &node->storage;
    struct sim_write *write;

    if (update->changes & HF_ENGINE_HARD_STATE) {
        write = sim_storage_write(storage, SIM_WRITE_HARD_STATE, update->write);
        write->term = update->term;
        write->vote = update->vote;
    }
    if (update->changes & HF_ENGINE_INSTALL) {
        node->checks->installs++;
        write = sim_storage_write(storage, SIM_WRITE_SNAPSHOT, 0);
        write->snapshot = node->installing;
    }
    if (update->changes & (HF_ENGINE_INSTALL | HF_ENGINE_RESET)) {
        write = sim_storage_write(storage, SIM_WRITE_RESET, update->write);
        write->snapshot.index = node->engine.snapshot.index;
        write->snapshot.term = node->engine.snapshot.term;
    }
    if (update->changes & HF_ENGINE_ENTRIES)
        sim_storage_write_entries(storage, update->write, &node->engine.log,
                                  update->first, update->last);
    sim_storage_flush(storage);
}

static void follow_role(struct sim_node *node,
                        const struct hf_engine_update *update)
{
    bool leads = update->role == HF_ENGINE_LEADER;

    if (node->rounds.term == (leads ? update->term : 0))
        return;
    hf_rounds_lead(&node->rounds, leads ? update->term : 0);
    if (leads)
        sim_checks_leader(node->checks, node);
}

/* Check entries only after the term is durable. Before that, they were not
 * sent, and after a crash other entries may have the same term. */
static void check_entries(struct sim_node *node)
{
    if (hf_engine_after(&node->engine) > 0)
        return;
    if (node->unchecked <= node->engine.log.base_index)
        node->unchecked = node->engine.log.base_index + 1;
    sim_checks_entries(node->checks, node, node->unchecked,
                       node->engine.log.last);
    node->unchecked = node->engine.log.last + 1;
}

/* Send the commit index to followers to which no append has sent it yet. */
static void send_commits(struct sim_node *node)
{
    struct hf_message message;

    for (size_t i = 0; i < node->members.count; i++) {
        if (hf_engine_send_commit(&node->engine, node->members.voters[i],
                                  &message))
            sim_node_send(node, &message, hf_engine_after(&node->engine));
    }
}

static void obey_update(struct sim_node *node,
                        const struct hf_engine_update *update)
{
    uint64_t applied = node->applied;

    store_update(node, update);
    if (update->changes & HF_ENGINE_ENTRIES && update->first < node->unchecked)
        node->unchecked = update->first;
    check_entries(node);
    for (size_t i = 0; i < update->message_count; i++)
        sim_node_send(node, &update->messages[i], update->after);
    for (size_t i = 0; i < update->snapshot_peer_count; i++)
        node->is_sending[update->snapshot_peers[i] - 1] = true;
    if (update->snapshot_peer_count > 0)
        repeat_snapshots(node);
    send_commits(node);
    sim_node_send_outbox(node);
    follow_role(node, update);
    if (update->changes & HF_ENGINE_RESTORE) {
        node->applied = node->installing.index;
        node->hash = node->installing.hash;
        sim_checks_applied(node->checks, node);
    }
    if (update->commit > 0) {
        sim_checks_commit(node->checks, node, applied, update->commit);
        apply_commits(node, update->commit);
    }
    take_snapshot(node);
    sim_schedule_set(node->schedule, &node->timer,
                     time_of(node, update->timeout));
}

enum hf_err sim_node_step(struct sim_node *node, struct hf_engine_event event)
{
    struct hf_engine_update update;
    enum hf_err err;

    event.now = local_now(node);
    err = hf_engine_step(&node->engine, &event, &update);
    if (err == HF_ESYSTEM)
        print_error("%s\n", node->engine.failure);
    assert_int_not_equal(err, HF_ESYSTEM);
    assert_int_not_equal(err, HF_ENOMEM);
    if (!err)
        obey_update(node, &update);
    return err;
}

/* ---- Timers and flushes -------------------------------------------------*/

/* Returns true if the process is stopped, and moves `event` to the end of the
 * stop. */
static bool is_stopped(struct sim_node *node, struct sim_event *event)
{
    if (node->stopped_until <= node->schedule->now)
        return false;
    sim_schedule_set(node->schedule, event, node->stopped_until);
    return true;
}

static void on_timer(struct sim_event *event)
{
    struct sim_node *node = HF_CONTAINER(event, struct sim_node, timer);

    if (!is_stopped(node, event))
        (void)sim_node_step(node,
                            (struct hf_engine_event){.kind = HF_ENGINE_TICK});
}

void sim_node_start_round(struct sim_node *node, bool again)
{
    uint64_t number = hf_rounds_start(&node->rounds, again);

    if (number > 0)
        sim_node_send_to_voters(node,
                                (struct hf_message){.kind = HF_MESSAGE_ROUND,
                                                    .term = node->rounds.term,
                                                    .round = number});
    sim_node_answer_reads(node);
}

static void on_retry(struct sim_event *event)
{
    struct sim_node *node = HF_CONTAINER(event, struct sim_node, retry);

    if (!is_stopped(node, event)) {
        sim_node_start_round(node, true);
        repeat_snapshots(node);
        sim_schedule_set(node->schedule, event,
                         node->schedule->now + ROUND_RETRY_MS);
    }
}

/* If the node's own snapshot is durable, report it to the engine, which refuses
 * it if a received snapshot has replaced it. */
static void finish_snapshot(struct sim_node *node)
{
    struct sim_write *write;

    if (!node->is_taking || node->storage.snapshot.index < node->taking.index)
        return;
    node->is_taking = false;
    if (sim_node_step(node, (struct hf_engine_event){
                                .kind = HF_ENGINE_SNAPSHOT_TAKEN,
                                .index = node->taking.index}) != HF_OK)
        return;
    write = sim_storage_write(&node->storage, SIM_WRITE_COMPACT, 0);
    write->first = node->engine.log.base_index;
    sim_storage_flush(&node->storage);
}

static void on_resumed(struct sim_event *event)
{
    struct sim_node *node = HF_CONTAINER(event, struct sim_node, flushed);
    uint64_t number = node->flushed_write;

    if (is_stopped(node, event))
        return;
    if (number > node->durable_write) {
        node->durable_write = number;
        (void)sim_node_step(
            node, (struct hf_engine_event){.kind = HF_ENGINE_PERSISTED,
                                           .write = number});
        sim_node_send_outbox(node);
    }
    finish_snapshot(node);
}

static void on_flushed(void *arg, uint64_t number)
{
    struct sim_node *node = arg;

    if (number > node->flushed_write)
        node->flushed_write = number;
    on_resumed(&node->flushed);
}

/* ---- Start and crash ----------------------------------------------------*/

void sim_node_init(struct sim_node *node, uint64_t id,
                   const struct hf_membership *members)
{
    struct hf_buf data = {0};
    struct hf_entry first;

    node->id = id;
    node->number = (unsigned)(id - 1);
    node->members = *members;
    node->config.id = id;
    node->timer.fire = on_timer;
    node->retry.fire = on_retry;
    node->flushed.fire = on_resumed;
    hf_dlist_init(&node->outbox);
    sim_storage_init(&node->storage, node->schedule, node->random);
    node->storage.on_flushed = on_flushed;
    node->storage.arg = node;
    hf_engine_first_entry(members, &data, &first);
    node->storage.term = 1;
    assert_int_equal(hf_entries_append(&node->storage.log, &first, 1), HF_OK);
    hf_buf_fini(&data);
}

static void load_log(struct sim_node *node)
{
    const struct hf_entries *log = &node->storage.log;

    hf_entries_reset(&node->engine.log, log->base_index, log->base_term);
    for (uint64_t i = log->base_index + 1; i <= log->last; i++)
        assert_int_equal(
            hf_entries_append(&node->engine.log, hf_entries_find(log, i), 1),
            HF_OK);
}

static void forget_state(struct sim_node *node)
{
    memset(node->frames, 0, sizeof(node->frames));
    memset(node->is_sending, 0, sizeof(node->is_sending));
    node->durable_write = node->flushed_write = 0;
    node->unchecked = 0;
    node->is_taking = false;
    node->applied = node->storage.snapshot.index;
    node->hash = node->storage.snapshot.hash;
    node->stopped_until = 0;
    hf_rounds_init(&node->rounds, node->id, &node->members);
    hf_lost_init(&node->lost, node->id, &node->members,
                 node->config.election_ms);
}

void sim_node_start(struct sim_node *node)
{
    struct hf_buf members = {0};
    struct hf_engine_loaded loaded = {
        node->storage.term, node->storage.vote, {0}};
    struct hf_engine_update update;

    node->storage.incarnation++; /* durable before anything is sent */
    node->config.seed = hf_random_below(node->random, 1000000);
    forget_state(node);
    assert_int_equal(hf_engine_init(&node->engine, &node->config), HF_OK);
    load_log(node);
    hf_membership_encode(&members, &node->members);
    loaded.snapshot = (struct hf_engine_snapshot){
        .index = node->storage.snapshot.index,
        .term = node->storage.snapshot.term,
        .members_index = 1,
        .members = {members.data, members.size},
    };
    assert_int_equal(
        hf_engine_start(&node->engine, &loaded, local_now(node), &update),
        HF_OK);
    hf_buf_fini(&members);
    node->is_up = true;
    node->checks->restarts++;
    obey_update(node, &update);
    sim_schedule_set(node->schedule, &node->retry,
                     node->schedule->now + ROUND_RETRY_MS);
}

static void drop_outbox(struct sim_node *node)
{
    struct sim_outgoing *outgoing;

    for (outgoing = take_outgoing(node, UINT64_MAX); outgoing;
         outgoing = take_outgoing(node, UINT64_MAX))
        free_outgoing(outgoing);
}

static void stop_node(struct sim_node *node)
{
    if (!node->is_up)
        return;
    node->is_up = false;
    sim_schedule_cancel(node->schedule, &node->timer);
    sim_schedule_cancel(node->schedule, &node->retry);
    sim_schedule_cancel(node->schedule, &node->flushed);
    drop_outbox(node);
    hf_rounds_fini(&node->rounds);
    hf_engine_fini(&node->engine);
}

void sim_node_crash(struct sim_node *node)
{
    stop_node(node);
    sim_storage_crash(&node->storage);
}

void sim_node_fini(struct sim_node *node)
{
    stop_node(node);
    sim_storage_fini(&node->storage);
}
