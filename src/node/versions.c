/* versions.c - raise the version of the table when all members know a newer
 * one. */
#include "node/state.h"

/* Returns the highest version that all members know; 0 if a member has not
 * announced one yet. */
static uint32_t known_to_all(const struct hf_node *node)
{
    uint32_t version = node->opts.version;

    for (size_t i = 0; i < node->peers.count; i++) {
        if (node->peers.list[i].version < version)
            version = node->peers.list[i].version;
    }
    return version;
}

bool hf_versions_raise(struct hf_node *node, struct hf_command *command)
{
    uint32_t version = known_to_all(node);

    if (version <= node->replica.store->table.version ||
        (node->version_term == node->leading_term &&
         node->version_proposed >= version))
        return false;
    node->version_term = node->leading_term;
    node->version_proposed = (uint8_t)version;
    *command = (struct hf_command){
        .kind = HF_COMMAND_VERSION,
        .version = (uint8_t)version,
    };
    return true;
}
