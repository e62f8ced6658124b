/* proposals_check.c - which commands of clients a leader submits.
 *
 * All nodes apply what is in the log, and must do the same with it. So whatever
 * depends on the state of one node, such as the space on its disk, is decided
 * here, before the command is submitted. */
#include "node/state.h"

/* Commands that make the table larger. They are refused while disks are nearly
 * full, the table has reached its limit, or many commands wait. */
static bool needs_space(enum hf_command_kind kind)
{
    return kind == HF_COMMAND_OPEN || kind == HF_COMMAND_LOCK ||
           kind == HF_COMMAND_UPDATE;
}

/* Commands that only a leader proposes, so no node forwards them. */
static bool is_leaders_own(enum hf_command_kind kind)
{
    return kind == HF_COMMAND_EXPIRE || kind == HF_COMMAND_VERSION;
}

/* The version that a command was encoded with is its first byte. */
static uint8_t version_of(struct hf_bytes bytes)
{
    return *(const uint8_t *)bytes.data;
}

/* Returns true if the table is too large for a command of this kind. Sessions
 * are small, and clients need one to unlock or to force a lock: they are
 * accepted a little longer than what fills the table. */
static bool is_table_full(const struct hf_node *node, enum hf_command_kind kind)
{
    size_t max = node->opts.table_bytes;

    if (kind == HF_COMMAND_OPEN)
        max += max / HF_NODE_TABLE_SPARE;
    return needs_space(kind) &&
           hf_table_bytes(&node->machine.store->table) >= max;
}

/* A node that cannot decode a log entry stops, so the command is decoded
 * first. */
static enum hf_err check_format(const struct hf_node *node,
                                struct hf_bytes bytes,
                                struct hf_command *command)
{
    if (bytes.size > HF_RAFT_ENTRY_MAX ||
        bytes.size > hf_wal_entry_max(node->journal.wal))
        return HF_ELIMIT;
    if (hf_command_decode(command, bytes.data, bytes.size))
        return HF_EPROTO;
    if (version_of(bytes) > node->machine.store->table.version)
        return HF_EUNSUPPORTED;
    return is_leaders_own(command->kind) ? HF_EDENIED : HF_OK;
}

/* Returns true if too many commands are unanswered. Those that need space are
 * refused first, so that there is room to unlock and renew. */
static bool are_too_many(const struct hf_proposals *proposals,
                         struct hf_bytes bytes, bool is_growing)
{
    size_t max =
        is_growing ? HF_NODE_PROPOSALS_LOCK_BYTES : HF_NODE_PROPOSALS_BYTES;

    return proposals->count >= HF_NODE_PROPOSALS_MAX ||
           proposals->bytes + hf_proposal_size(bytes) > max;
}

struct hf_node_outcome hf_proposals_check(const struct hf_node *node,
                                          struct hf_bytes bytes)
{
    struct hf_node_outcome outcome = {.age_ms = -1};
    struct hf_command command;
    bool is_growing;

    outcome.err = check_format(node, bytes, &command);
    if (outcome.err)
        return outcome;
    is_growing = needs_space(command.kind);
    outcome.no_space = is_growing && hf_consensus_is_low_on_space(node);
    outcome.is_full = is_table_full(node, command.kind);
    if (outcome.no_space || outcome.is_full ||
        are_too_many(&node->proposals, bytes, is_growing))
        outcome.err = HF_ELIMIT;
    return outcome;
}
