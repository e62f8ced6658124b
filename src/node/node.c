#include "node/node.h"

#include "node/state.h"

void hf_node_set_hooks(struct hf_node *node, const struct hf_node_hooks *hooks,
                       void *arg)
{
    node->hooks = *hooks;
    node->hooks_arg = arg;
}

void hf_node_set_time(struct hf_node *node, hf_time now)
{
    if (now > node->now)
        node->now = now;
}

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

/* ---- Followers that are idle --------------------------------------------*/

/* An append contains the commit index. If no append follows within
 * HF_NODE_COMMIT_DELAY_MS, or a read of the follower waits, send the commit
 * index by itself, so that the follower's table is as new as the leader's. A
 * message for each commit would be too much for a busy cluster. */
static void send_commit_to_all(struct hf_node *node)
{
    if (node->commit > node->commit_seen && node->now >= node->send_commit_at)
        node->send_commit_at = hf_time_add(node->now, HF_NODE_COMMIT_DELAY_MS);
    node->commit_seen = node->commit;
    for (size_t i = 0; hf_node_leads(node) && i < node->peers.count; i++) {
        struct hf_peer *peer = &node->peers.list[i];
        bool is_due = peer->awaits_commit || node->now >= node->send_commit_at;
        struct hf_message message;

        if (is_due && peer->link != 0 && !peer->was_appended &&
            hf_engine_send_commit(&node->engine, peer->id, &message))
            hf_peers_send_raft(node, &message);
        peer->awaits_commit = false;
    }
}

/* ---- Leaving ------------------------------------------------------------*/

void hf_node_shutdown(struct hf_node *node)
{
    if (node->is_leaving)
        return;
    node->is_leaving = true;
    node->leave_until = hf_time_add(node->now, node->opts.election_ms);
}

bool hf_node_has_left(const struct hf_node *node)
{
    return node->is_leaving &&
           (node->has_failed || node->leading_term == 0 ||
            node->peers.count == 0 || node->now >= node->leave_until);
}

/* Returns a connected peer that has all entries; NULL if there is none. */
static struct hf_peer *find_successor(struct hf_node *node)
{
    for (size_t i = 0; i < node->peers.count; i++) {
        struct hf_peer *peer = &node->peers.list[i];

        if (peer->link != 0 &&
            hf_engine_match(&node->engine, peer->id) == node->engine.log.last)
            return peer;
    }
    return NULL;
}

static void transfer_leadership(struct hf_node *node)
{
    struct hf_peer *peer;

    if (!node->is_leaving || !hf_node_leads(node))
        return;
    peer = find_successor(node);
    if (peer)
        (void)hf_consensus_step(
            node, (struct hf_engine_event){.kind = HF_ENGINE_TRANSFER,
                                           .peer = peer->id});
}

/* ---- Turns --------------------------------------------------------------*/

/* A TICK fails if memory is short, or if too many writes are not durable yet.
 * Do not repeat it at once, which would keep the processor busy: a turn follows
 * each flush and each message anyway. */
static void tick_engine(struct hf_node *node)
{
    if (node->now >= node->flush_retry)
        node->flush_retry = HF_NEVER;
    if (node->now >= node->upkeep_retry)
        node->upkeep_retry = HF_NEVER;
    if (node->now < node->timeout)
        return;
    if (hf_consensus_step(node,
                          (struct hf_engine_event){.kind = HF_ENGINE_TICK}))
        node->timeout = hf_time_add(node->now, HF_NODE_DISK_RETRY_MS);
}

/* Apply entries before submitting commands: a committed renewal then prevents
 * the EXPIRE of its lease. */
void hf_node_turn(struct hf_node *node, hf_time now)
{
    hf_node_set_time(node, now);
    hf_peers_read(node);
    if (node->has_failed)
        return;
    hf_peers_drop_strangers(node);
    hf_peers_drop_silent(node);
    tick_engine(node);
    hf_apply_entries(node);
    hf_attachments_announce(node);
    hf_requests_dispatch(node);
    hf_proposals_submit(node);
    hf_reads_turn(node);
    transfer_leadership(node);
    send_commit_to_all(node);
    hf_requests_finish(node);
    if (node->hooks.on_turn && !node->has_failed)
        node->hooks.on_turn(node->hooks_arg);
    hf_peers_flush(node);
}

static bool has_entries_to_apply(const struct hf_node *node)
{
    return node->machine.applied < node->commit &&
           hf_entries_find(&node->engine.log, node->machine.applied + 1);
}

/* Returns when this node, as the leader, has something to submit. While it
 * cannot submit, the end of a flush or `retry` causes the next turn. */
static hf_time submit_time(const struct hf_node *node)
{
    if (!hf_proposals_can_submit(node))
        return node->now < node->proposals.retry ? node->proposals.retry
                                                 : HF_NEVER;
    if (!hf_dlist_is_empty(&node->proposals.waiting))
        return node->now;
    return node->in_office
               ? hf_time_min(hf_sessions_deadline(node),
                             hf_state_machine_deadline(&node->machine))
               : HF_NEVER;
}

hf_time hf_node_deadline(const struct hf_node *node)
{
    hf_time deadline = node->timeout;

    if (node->has_failed)
        return HF_NEVER;
    if (has_entries_to_apply(node))
        return node->now;
    if (node->leading_term != 0 && node->send_commit_at > node->now)
        deadline = hf_time_min(deadline, node->send_commit_at);
    deadline = hf_time_min(deadline, node->flush_retry);
    deadline = hf_time_min(deadline, node->upkeep_retry);
    deadline = hf_time_min(deadline, submit_time(node));
    deadline = hf_time_min(deadline, hf_peers_deadline(node));
    deadline = hf_time_min(deadline, hf_requests_deadline(node));
    deadline = hf_time_min(deadline, hf_reads_deadline(node));
    deadline = hf_time_min(deadline, hf_transfers_deadline(node));
    if (node->is_leaving)
        deadline = hf_time_min(deadline, node->leave_until);
    if (node->hooks.deadline)
        deadline = hf_time_min(deadline, node->hooks.deadline(node->hooks_arg));
    return deadline;
}
