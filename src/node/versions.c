/* versions.c - raise the version of the table when all members know a newer
 * one, and refuse what a newer build has written. */
#include <inttypes.h>

#include "core/snapshot.h"
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

    if (version <= node->machine.store->table.version ||
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

static enum hf_err check_version(uint32_t version, uint32_t known,
                                 const char *what, uint64_t index,
                                 struct hf_error *error)
{
    if (version <= known)
        return HF_OK;
    return hf_error_set(error, HF_EUNSUPPORTED,
                        "%s %" PRIu64
                        " was written by a newer version of holdfast: upgrade "
                        "this node. It has table version %" PRIu32
                        "; this node knows versions up to %" PRIu32 ".",
                        what, index, version, known);
}

enum hf_err hf_versions_check_entry(uint32_t known, uint64_t index,
                                    struct hf_bytes data,
                                    struct hf_error *error)
{
    return check_version(hf_command_version(data.data, data.size), known,
                         "log entry", index, error);
}

enum hf_err hf_versions_check_snapshot(uint32_t known, uint64_t index,
                                       struct hf_bytes data,
                                       struct hf_error *error)
{
    return check_version(hf_snapshot_version(data.data, data.size), known,
                         "the snapshot at entry", index, error);
}
