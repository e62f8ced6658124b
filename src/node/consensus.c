/* consensus.c - step the engine, and do what its updates ask for. */
#include <stdlib.h>

#include "node/state.h"

void hf_node_fail(struct hf_node *node, const struct hf_error *error)
{
    if (node->has_failed)
        return;
    node->has_failed = true;
    node->ops->stop(node->arg, error);
}

void hf_node_fail_code(struct hf_node *node, enum hf_err code, const char *what)
{
    struct hf_error error;

    (void)hf_error_set(&error, code, "%s: %s", what, hf_err_text(code));
    hf_node_fail(node, &error);
}

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
    node->in_office = false;
    for (size_t i = 0; i < node->peers.count; i++)
        hf_transfers_stop(node, &node->peers.list[i]);
    hf_proposals_reset(node);
    hf_reads_lead(node, term);
    hf_sessions_reset(node);
    if (term != 0)
        node->elections++;
}

static void on_new_leader(struct hf_node *node, uint64_t leader)
{
    node->leader = leader;
    node->attachments.is_announced = false;
    hf_requests_resend(node);
    if (node->hooks.on_leader)
        node->hooks.on_leader(node->hooks_arg, leader);
}

static void update_role(struct hf_node *node,
                        const struct hf_engine_update *update)
{
    uint64_t term = update->role == HF_ENGINE_LEADER ? update->term : 0;
    bool is_other_term = term != node->leading_term;

    if (is_other_term)
        on_leading(node, term);
    if (is_other_term || update->leader != node->leader)
        on_new_leader(node, update->leader);
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

void hf_node_do_update(struct hf_node *node,
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

enum hf_err hf_node_step(struct hf_node *node, struct hf_engine_event event)
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
    hf_node_do_update(node, &update);
    return node->has_failed ? HF_ESYSTEM : HF_OK;
}

/* ---- Flushes ------------------------------------------------------------*/

bool hf_node_flush_begin(struct hf_node *node, struct hf_wal_flush *flush)
{
    if (node->has_failed ||
        (node->disk_retry != HF_NEVER && node->now < node->disk_retry))
        return false;
    return hf_wal_flush_begin(node->journal.wal, flush);
}

/* HF_ELIMIT: the disk is full, and nothing is written until `disk_retry`. After
 * any other error the node stops. Returns true if there was no error. */
static bool check_disk(struct hf_node *node, enum hf_err err)
{
    struct hf_error error;

    if (err == HF_ELIMIT)
        node->disk_retry = hf_time_add(node->now, HF_NODE_DISK_RETRY_MS);
    if (err && err != HF_ELIMIT) {
        hf_wal_error(node->journal.wal, &error);
        hf_node_fail(node, &error);
    }
    return err == HF_OK;
}

void hf_node_flush_end(struct hf_node *node, const struct hf_wal_flush *flush)
{
    if (!check_disk(node, hf_wal_flush_end(node->journal.wal, flush)))
        return;
    node->flushes++;
    if (!hf_journal_settle(&node->journal))
        return;
    release_messages(node);
    (void)hf_node_step(
        node, (struct hf_engine_event){.kind = HF_ENGINE_PERSISTED,
                                       .write = node->journal.durable});
}

bool hf_node_upkeep_begin(struct hf_node *node, struct hf_wal_upkeep *upkeep)
{
    if (node->has_failed ||
        (node->disk_retry != HF_NEVER && node->now < node->disk_retry))
        return false;
    return hf_wal_upkeep_begin(node->journal.wal, upkeep);
}

void hf_node_upkeep_end(struct hf_node *node,
                        const struct hf_wal_upkeep *upkeep)
{
    (void)check_disk(node, hf_wal_upkeep_end(node->journal.wal, upkeep));
}

bool hf_node_is_low_on_space(const struct hf_node *node)
{
    size_t with_space = 0;

    if (hf_wal_space(node->journal.wal) != HF_WAL_SPACE_OK)
        return true;
    for (size_t i = 0; i < node->peers.count; i++)
        with_space += !node->peers.list[i].low_space;
    return with_space + 1 <= node->opts.member_count / 2;
}
