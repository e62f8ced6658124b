/* apply.c - apply committed entries, and report what they have done. */
#include "node/state.h"

/* ---- Grants -------------------------------------------------------------*/

static void push_grant_to(struct hf_node *node, uint64_t origin,
                          const struct hf_node_grant *grant)
{
    struct hf_peer *peer = hf_peers_find(node, origin);

    if (origin == node->opts.id)
        hf_attachments_push(node, grant);
    if (!peer)
        return;
    hf_packet_encode_push(hf_peers_message(node), grant);
    (void)hf_peers_send(node, peer, HF_PACKET_PUSH);
}

/* At the leader: send the grant to the nodes that have the client, which may
 * include this one. The client ignores a grant that it knows already. */
static void push_applied_grant(struct hf_node *node,
                               const struct hf_node_grant *grant)
{
    uint32_t origins = hf_sessions_origins(node, grant->session);

    for (size_t i = 0; i < node->opts.member_count; i++) {
        if (origins & (UINT32_C(1) << i))
            push_grant_to(node, node->members[i].id, grant);
    }
}

/* The time from applying the LOCK, at `noted`, to submitting the entry `index`
 * that grants the key, on the clock of this node; -1 if one of the two times is
 * unknown, or if the entry was submitted first. The time when this node applies
 * the grant would be too late: other nodes may have applied it before, but none
 * before it was submitted. */
static int64_t age_of(const struct hf_node *node, uint64_t index, uint64_t term,
                      hf_time noted)
{
    hf_time submitted;

    if (noted == HF_NEVER || term != node->leading_term)
        return -1;
    submitted = hf_proposals_submitted_at(node, index);
    return submitted == HF_NEVER || submitted < noted ? -1 : submitted - noted;
}

/* The leader reports each grant to the nodes that have the client, with the
 * age. Such a node reports the grant itself, without the age, only if it
 * applies it before the leader's report arrives. */
static void report_applied_grants(struct hf_node *node, uint64_t index,
                                  uint64_t term)
{
    struct hf_node_grant grant;
    hf_time noted;

    while (hf_state_machine_take_grant(&node->machine, &grant, &noted)) {
        grant.age_ms = age_of(node, index, term, noted);
        if (hf_node_leads(node))
            push_applied_grant(node, &grant);
        else if (grant.token > node->attachments.pushed)
            hf_attachments_push(node, &grant);
    }
}

/* ---- Entries ------------------------------------------------------------*/

static bool decode_entry(struct hf_node *node, uint64_t index,
                         const struct hf_entry *entry,
                         struct hf_command *command)
{
    struct hf_error error;
    enum hf_err err =
        hf_versions_check_entry(node->opts.version, index, entry->data, &error);

    if (!err) {
        err = hf_command_decode(command, entry->data.data, entry->data.size);
        if (!err)
            return true;
        (void)hf_error_set(&error, err, "log entry %llu cannot be decoded: %s",
                           (unsigned long long)index, hf_err_text(err));
    }
    hf_node_fail(node, &error);
    return false;
}

static void apply_command(struct hf_node *node, uint64_t index,
                          const struct hf_entry *entry)
{
    struct hf_command command;
    struct hf_result result;

    if (!decode_entry(node, index, entry, &command))
        return;
    if (hf_state_machine_apply(&node->machine, node->now, &command, &result)) {
        hf_node_fail_code(node, HF_ENOMEM, "cannot apply a command");
        return;
    }
    hf_sessions_applied(node, &command, &result);
    report_applied_grants(node, index, entry->term);
    if (node->machine.forced_session != 0)
        hf_attachments_push_forced(node, node->machine.forced_session,
                                   node->machine.forced_token);
    if (entry->term == node->leading_term)
        hf_proposals_applied(node, index, &result);
}

void hf_apply_entries(struct hf_node *node)
{
    struct hf_state_machine *machine = &node->machine;
    uint64_t before = machine->applied;

    for (unsigned i = 0; i < HF_NODE_APPLY_MAX &&
                         machine->applied < node->commit && !node->has_failed;
         i++) {
        uint64_t index = machine->applied + 1;
        const struct hf_entry *entry =
            hf_entries_find(&node->engine.log, index);

        if (!entry)
            break; /* a snapshot is being installed */
        if (entry->kind == HF_ENTRY_COMMAND)
            apply_command(node, index, entry);
        machine->applied = index;
        hf_compaction_applied(node, entry);
        if (entry->term == node->leading_term)
            node->in_office = true;
    }
    if (machine->applied > before && node->hooks.on_applied)
        node->hooks.on_applied(node->hooks_arg);
}
