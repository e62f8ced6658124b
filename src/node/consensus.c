/* consensus.c - step the engine, and do what its updates ask for. */
#include <stdlib.h>

#include "node/state.h"

/* ---- Messages -----------------------------------------------------------*/

static void send_messages(struct hf_node *node,
                          const struct hf_engine_update *update)
{
    for (size_t i = 0; i < update->message_count; i++) {
        const struct hf_message *message = &update->messages[i];

        if (update->after > node->journal.durable)
            (void)hf_outbox_add(&node->outbox, update->after, message);
        else
            hf_peers_send_raft(node, message);
    }
}

void hf_consensus_send(struct hf_node *node, const struct hf_message *message)
{
    uint64_t after = hf_engine_after(&node->engine);

    if (after > node->journal.durable)
        (void)hf_outbox_add(&node->outbox, after, message);
    else
        hf_peers_send_raft(node, message);
}

/* Send the messages that waited for writes which are durable now. */
static void release_messages(struct hf_node *node)
{
    struct hf_outbox_message *kept;

    while ((kept = hf_outbox_take(&node->outbox, node->journal.durable))) {
        struct hf_reader reader = {.data = kept->bytes, .size = kept->size};
        struct hf_message message;

        if (!hf_message_decode(&reader, &message)) {
            message.peer = kept->peer;
            hf_peers_send_raft(node, &message);
            hf_message_fini(&message);
        }
        free(kept);
    }
}

/* ---- Roles --------------------------------------------------------------*/

static void on_leading(struct hf_node *node, uint64_t term)
{
    node->leading_term = term;
    node->leading_since = node->now;
    node->in_office = false;
    for (size_t i = 0; i < node->peers.count; i++)
        hf_transfers_stop(node, &node->peers.list[i]);
    hf_proposals_reset(node);
    hf_reads_lead(node, term);
    hf_sessions_reset(node);
    if (term != 0)
        node->elections++;
}

static void on_new_leader(struct hf_node *node, uint64_t leader, uint64_t term)
{
    node->leader = leader;
    node->leader_term = term;
    node->attachments.is_announced = false;
    hf_requests_resend(node);
    if (node->hooks.on_leader)
        node->hooks.on_leader(node->hooks_arg, leader);
}

/* The same leader in a new term counts as new: like any other, it has forgotten
 * what this node has reported and asked for. */
static bool is_new_leader(const struct hf_node *node,
                          const struct hf_engine_update *update)
{
    return update->leader != node->leader ||
           (update->leader != 0 && update->term != node->leader_term);
}

static void update_role(struct hf_node *node,
                        const struct hf_engine_update *update)
{
    uint64_t term = update->role == HF_ENGINE_LEADER ? update->term : 0;
    bool is_other_term = term != node->leading_term;

    if (is_other_term)
        on_leading(node, term);
    if (is_other_term || is_new_leader(node, update))
        on_new_leader(node, update->leader, update->term);
}

static void start_transfers(struct hf_node *node,
                            const struct hf_engine_update *update)
{
    for (size_t i = 0; i < update->snapshot_peer_count; i++) {
        struct hf_peer *peer = hf_peers_find(node, update->snapshot_peers[i]);

        if (peer)
            hf_transfers_start(node, peer);
    }
}

/* ---- Steps --------------------------------------------------------------*/

void hf_consensus_do_update(struct hf_node *node,
                            const struct hf_engine_update *update)
{
    enum hf_err err = hf_journal_store(&node->journal, &node->engine.log,
                                       &node->engine.snapshot, update);

    if (err) {
        hf_node_fail_code(node, err, "cannot append to the log");
        return;
    }
    node->timeout = update->timeout;
    node->submitted = update->submitted;
    if (update->commit > node->commit)
        node->commit = update->commit;
    send_messages(node, update);
    if (update->changes & HF_ENGINE_RESTORE)
        hf_transfers_install(node);
    update_role(node, update);
    start_transfers(node, update);
}

enum hf_err hf_consensus_step(struct hf_node *node,
                              struct hf_engine_event event)
{
    struct hf_engine_update update;
    struct hf_error error;
    enum hf_err err;

    if (node->has_failed)
        return HF_ESYSTEM;
    event.now = node->now;
    err = hf_engine_step(&node->engine, &event, &update);
    if (err == HF_ESYSTEM) {
        (void)hf_error_set(&error, err, "consensus failed: %s",
                           node->engine.failure);
        hf_node_fail(node, &error);
    }
    if (err)
        return err;
    hf_consensus_do_update(node, &update);
    return node->has_failed ? HF_ESYSTEM : HF_OK;
}

/* ---- Flushes ------------------------------------------------------------*/

/* Flushes and upkeep are delayed independently of each other: on a full disk,
 * flushes go on from the reserve while upkeep finds no space to refill it. */
static bool is_too_early(const struct hf_node *node, hf_time retry)
{
    return retry != HF_NEVER && node->now < retry;
}

bool hf_node_flush_begin(struct hf_node *node, struct hf_wal_flush *flush)
{
    if (node->has_failed || is_too_early(node, node->flush_retry))
        return false;
    return hf_wal_flush_begin(node->journal.wal, flush);
}

/* HF_ELIMIT or HF_ENOMEM: the disk is full, or memory or descriptors are short,
 * so set `*retry` to when to try again. After any other error the node stops.
 * Returns true if there was no error. */
static bool check_disk(struct hf_node *node, enum hf_err err, hf_time *retry)
{
    struct hf_error error;

    if (err == HF_ELIMIT || err == HF_ENOMEM) {
        *retry = hf_time_add(node->now, HF_NODE_DISK_RETRY_MS);
    } else if (err) {
        hf_wal_error(node->journal.wal, &error);
        hf_node_fail(node, &error);
    }
    return err == HF_OK;
}

void hf_node_flush_end(struct hf_node *node, const struct hf_wal_flush *flush)
{
    if (!check_disk(node, hf_wal_flush_end(node->journal.wal, flush),
                    &node->flush_retry))
        return;
    node->flushes++;
    if (!hf_journal_settle(&node->journal))
        return;
    release_messages(node);
    (void)hf_consensus_step(
        node, (struct hf_engine_event){.kind = HF_ENGINE_PERSISTED,
                                       .write = node->journal.durable});
}

bool hf_node_upkeep_begin(struct hf_node *node, struct hf_wal_upkeep *upkeep)
{
    if (node->has_failed || is_too_early(node, node->upkeep_retry))
        return false;
    hf_compaction_reserve(node);
    return hf_wal_upkeep_begin(node->journal.wal, upkeep);
}

void hf_node_upkeep_end(struct hf_node *node,
                        const struct hf_wal_upkeep *upkeep)
{
    (void)check_disk(node, hf_wal_upkeep_end(node->journal.wal, upkeep),
                     &node->upkeep_retry);
}

bool hf_consensus_is_low_on_space(const struct hf_node *node)
{
    size_t with_space = 0;

    if (hf_wal_space(node->journal.wal) != HF_WAL_SPACE_OK)
        return true;
    for (size_t i = 0; i < node->peers.count; i++)
        with_space += !node->peers.list[i].low_space;
    return with_space + 1 <= node->opts.member_count / 2;
}
