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

/* ---- Followers that are idle --------------------------------------------*/

/* A follower learns with the next append what is committed. If no append is
 * sent to it in this turn, send the commit index alone, so that its table is as
 * new as the leader's. */
static void tell_commit_to_all(struct hf_node *node)
{
    for (size_t i = 0; hf_node_leads(node) && i < node->peers.count; i++) {
        struct hf_peer *peer = &node->peers.list[i];
        struct hf_message message;

        if (peer->link != 0 && !peer->was_appended &&
            hf_engine_send_commit(&node->engine, peer->id, &message))
            hf_peers_send_raft(node, &message);
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

static void transfer(struct hf_node *node)
{
    struct hf_peer *peer;

    if (!node->is_leaving || !hf_node_leads(node))
        return;
    peer = find_successor(node);
    if (peer)
        (void)hf_node_step(node,
                           (struct hf_engine_event){.kind = HF_ENGINE_TRANSFER,
                                                    .peer = peer->id});
}

/* ---- Turns --------------------------------------------------------------*/

static void tick(struct hf_node *node)
{
    if (node->disk_retry != HF_NEVER && node->now >= node->disk_retry)
        node->disk_retry = HF_NEVER;
    if (node->now >= node->timeout)
        (void)hf_node_step(node,
                           (struct hf_engine_event){.kind = HF_ENGINE_TICK});
}

/* Apply entries before submitting commands: a committed renewal then prevents
 * the EXPIRE of its lease. */
void hf_node_turn(struct hf_node *node, hf_time now)
{
    hf_node_set_time(node, now);
    hf_peers_read(node);
    if (node->has_failed)
        return;
    tick(node);
    hf_node_apply(node);
    hf_attachments_announce(node);
    hf_requests_dispatch(node);
    hf_proposals_submit(node);
    hf_reads_turn(node);
    transfer(node);
    tell_commit_to_all(node);
    hf_requests_finish(node);
    if (node->hooks.on_turn && !node->has_failed)
        node->hooks.on_turn(node->hooks_arg);
    hf_peers_flush(node);
}

static hf_time earlier_of(hf_time a, hf_time b)
{
    return a < b ? a : b;
}

static bool has_work(const struct hf_node *node)
{
    if (node->replica.applied < node->commit &&
        hf_entries_find(&node->engine.log, node->replica.applied + 1))
        return true;
    return node->leading_term != 0 && !node->is_leaving &&
           node->proposals.retry == HF_NEVER &&
           node->journal.pending_bytes <= HF_NODE_PENDING_MAX &&
           !hf_dlist_is_empty(&node->proposals.waiting);
}

hf_time hf_node_deadline(const struct hf_node *node)
{
    hf_time deadline = node->timeout;

    if (node->has_failed)
        return HF_NEVER;
    if (has_work(node))
        return node->now;
    deadline = earlier_of(deadline, node->disk_retry);
    deadline = earlier_of(deadline, node->proposals.retry);
    deadline = earlier_of(deadline, hf_requests_deadline(node));
    deadline = earlier_of(deadline, hf_reads_deadline(node));
    deadline = earlier_of(deadline, hf_transfers_deadline(node));
    if (node->in_office) {
        deadline = earlier_of(deadline, hf_sessions_deadline(node));
        deadline =
            earlier_of(deadline, hf_node_replica_deadline(&node->replica));
    }
    if (node->is_leaving)
        deadline = earlier_of(deadline, node->leave_until);
    if (node->hooks.deadline)
        deadline = earlier_of(deadline, node->hooks.deadline(node->hooks_arg));
    return deadline;
}
