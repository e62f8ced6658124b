#include "node/state.h"

static void fill_member(const struct hf_node *node, size_t i,
                        struct hf_node_status_member *member)
{
    uint64_t last = node->engine.log.last;
    uint64_t match = hf_engine_match(&node->engine, node->members[i].id);

    *member = (struct hf_node_status_member){
        .id = node->members[i].id,
        .peer_address = node->members[i].peer_address,
        .client_address = node->members[i].client_address,
        .connected = node->members[i].id == node->opts.id,
    };
    if (hf_node_leads(node) && !member->connected)
        member->lag = last > match ? last - match : 0;
    for (size_t j = 0; j < node->peers.count; j++) {
        if (node->peers.list[j].id == member->id)
            member->connected = node->peers.list[j].link != 0;
    }
}

/* Terms never decrease in a log, so the first entry decides. Such an entry is
 * committed together with the first entry of the term, not by itself. */
static bool has_uncommitted_earlier_term(const struct hf_node *node)
{
    const struct hf_entries *log = &node->engine.log;
    uint64_t index = node->commit + 1;

    if (index <= log->base_index)
        index = log->base_index + 1;
    return index <= log->last &&
           hf_entries_term(log, index) < hf_engine_term(&node->engine);
}

void hf_node_status(const struct hf_node *node, struct hf_node_status *status)
{
    const struct hf_table *table = &node->machine.store->table;

    *status = (struct hf_node_status){
        .id = node->opts.id,
        .role = (enum hf_node_role)hf_engine_role(&node->engine),
        .term = hf_engine_term(&node->engine),
        .leader = node->leader,
        .commit = node->commit,
        .applied = node->machine.applied,
        .first = node->engine.log.base_index + 1,
        .last = node->engine.log.last,
        .uncommitted_earlier_term = has_uncommitted_earlier_term(node),
        .snapshot = node->engine.snapshot.index,
        .version = table->version,
        .low_space = hf_consensus_is_low_on_space(node),
        .holds = table->holds.count,
        .sessions = table->sessions.count,
        .requests = node->requests.count,
        .table_bytes = hf_table_bytes(table),
        .table_bytes_max = node->opts.table_bytes,
        .applied_commands = node->machine.commands,
        .forwarded = node->forwarded,
        .flushes = node->flushes,
        .elections = node->elections,
        .snapshots = node->compaction.count,
        .links_refused = node->peers.refused,
        .member_count = node->opts.member_count,
    };
    for (size_t i = 0; i < node->opts.member_count; i++)
        fill_member(node, i, &status->members[i]);
}
