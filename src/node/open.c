/* open.c - recover a node from its directory, and start it. */
#include <stdlib.h>

#include "log/directory.h"
#include "log/snapshot_file.h"
#include "node/clients.h"
#include "node/incarnation.h"
#include "node/state.h"

/* ---- Options ------------------------------------------------------------*/

static void set_node_defaults(struct hf_node_opts *opts)
{
    if (opts->election_ms == 0)
        opts->election_ms = HF_NODE_ELECTION_MS;
    if (opts->heartbeat_ms == 0)
        opts->heartbeat_ms = HF_NODE_HEARTBEAT_MS;
    if (opts->history_bytes == 0)
        opts->history_bytes = HF_NODE_HISTORY_BYTES;
    if (opts->table_bytes == 0)
        opts->table_bytes = HF_NODE_TABLE_BYTES;
    if (opts->snapshot_bytes == 0)
        opts->snapshot_bytes = HF_NODE_SNAPSHOT_BYTES;
    if (opts->version == 0)
        opts->version = HF_VERSION_NEWEST;
    if (opts->trailing == 0)
        opts->trailing = HF_NODE_TRAILING;
    if (opts->clients_max == 0 || opts->clients_max > HF_CLIENTS_MAX)
        opts->clients_max = HF_CLIENTS_MAX;
}

static char *copy_text(const char *text)
{
    return strdup(text ? text : "");
}

static enum hf_err copy_members(struct hf_node *node)
{
    const struct hf_node_member *members = node->opts.members;

    for (size_t i = 0; i < node->opts.member_count; i++)
        node->members[i].id = members[i].id;
    node->opts.members = node->members;
    for (size_t i = 0; i < node->opts.member_count; i++) {
        const struct hf_node_member *from = &members[i];
        struct hf_node_member *to = &node->members[i];

        to->peer_address = copy_text(from->peer_address);
        to->client_address = copy_text(from->client_address);
        if (!to->peer_address || !to->client_address)
            return HF_ENOMEM;
    }
    return HF_OK;
}

static struct hf_membership membership_of(const struct hf_node_opts *opts)
{
    struct hf_membership members = {.count = opts->member_count};

    for (size_t i = 0; i < opts->member_count; i++)
        members.voters[i] = opts->members[i].id;
    return members;
}

static enum hf_err check_opts(const struct hf_node_opts *opts,
                              struct hf_error *error)
{
    struct hf_membership members = {0};

    if (opts->member_count <= HF_RAFT_VOTERS_MAX)
        members = membership_of(opts);
    if (!hf_membership_is_valid(&members))
        return hf_error_set(error, HF_EINVAL,
                            "the members of a cluster are 1 to %d nodes, in "
                            "increasing order of their ids",
                            HF_RAFT_VOTERS_MAX);
    if (!hf_membership_has(&members, opts->id))
        return hf_error_set(error, HF_EINVAL, "node %llu is not a member",
                            (unsigned long long)opts->id);
    return HF_OK;
}

/* ---- Recovery -----------------------------------------------------------*/

/* The log begins after the entry `index`. */
static void on_recovered_base(void *arg, uint64_t index, uint64_t term)
{
    struct hf_node *node = arg;

    hf_entries_reset(&node->engine.log, index, term);
}

static enum hf_err on_recovered_entry(void *arg, uint64_t index,
                                      const struct hf_log_entry *entry)
{
    struct hf_node *node = arg;
    struct hf_entry copy = {entry->term, (enum hf_entry_kind)entry->kind,
                            entry->data};

    /* The base is the last entry of a segment that was recycled. A later record
     * may have replaced that entry, and some before it. */
    if (index <= node->engine.log.base_index)
        hf_entries_reset(&node->engine.log, index - 1, 0);
    else if (index <= node->engine.log.last)
        hf_entries_cut(&node->engine.log, index);
    if (index > node->machine.applied)
        hf_compaction_recovered(node, &copy);
    return hf_entries_append(&node->engine.log, &copy, 1);
}

static enum hf_err restore_table(struct hf_node *node,
                                 struct hf_snapshot_file *file,
                                 struct hf_error *error)
{
    size_t size = (size_t)hf_snapshot_file_data_size(file);
    uint64_t index = hf_snapshot_file_meta(file)->index;
    uint8_t *data = malloc(size + 1);
    enum hf_err err;

    if (!data)
        return hf_error_set_code(error, HF_ENOMEM);
    err = hf_snapshot_file_read_data(file, 0, data, size, error);
    if (!err)
        err = hf_versions_check_snapshot(node->opts.version, index,
                                         (struct hf_bytes){data, size}, error);
    if (!err) {
        err = hf_store_restore(node->machine.store, node->now, data, size);
        if (err)
            (void)hf_error_set(error, err, "the snapshot is not usable: %s",
                               hf_err_text(err));
    }
    free(data);
    node->machine.applied = index;
    node->compaction.size = size;
    return err;
}

/* `snapshot->members` points into `file`. The engine copies it when it
 * starts. */
static void describe_snapshot(const struct hf_snapshot_file *file,
                              struct hf_engine_snapshot *snapshot)
{
    const struct hf_snapshot_meta *meta = hf_snapshot_file_meta(file);

    *snapshot = (struct hf_engine_snapshot){
        .index = meta->index,
        .term = meta->term,
        .members_index = meta->config_index,
        .members = meta->config,
    };
}

/* The first entry of a new cluster names the members. Each node writes it into
 * its own log before it starts, and it is the same on all nodes. */
static enum hf_err store_first_entry(struct hf_node *node,
                                     struct hf_engine_loaded *loaded,
                                     struct hf_error *error)
{
    struct hf_membership members = membership_of(&node->opts);
    struct hf_buf data = {0};
    struct hf_wal_flush flush;
    struct hf_log_entry stored;
    struct hf_entry entry;
    enum hf_err err;

    hf_engine_first_entry(&members, &data, &entry);
    err = data.failed ? HF_ENOMEM
                      : hf_entries_append(&node->engine.log, &entry, 1);
    stored = (struct hf_log_entry){entry.term, (uint8_t)entry.kind, entry.data};
    if (!err)
        err = hf_wal_append_state(node->journal.wal, 1, 0);
    if (!err)
        err = hf_wal_append_entries(node->journal.wal, 1, &stored, 1);
    if (!err && !hf_wal_flush_begin(node->journal.wal, &flush))
        err = HF_ENOMEM;
    if (!err) {
        hf_wal_flush_run(&flush);
        err = hf_wal_flush_end(node->journal.wal, &flush);
    }
    hf_buf_fini(&data);
    loaded->term = 1;
    return err ? hf_error_set(error, err,
                              "cannot write the first log entry: %s",
                              hf_err_text(err))
               : HF_OK;
}

static enum hf_err recover_log(struct hf_node *node,
                               const struct hf_log_identity *identity,
                               struct hf_engine_loaded *loaded,
                               struct hf_error *error)
{
    struct hf_wal_opts opts = {
        .identity = *identity,
        .snapshot = {loaded->snapshot.index, loaded->snapshot.term},
    };
    struct hf_log_visitor visitor = {on_recovered_base, on_recovered_entry,
                                     node};
    struct hf_wal_recovered recovered;
    bool is_first_start;
    enum hf_err err = hf_wal_open(node->disk, &opts, &visitor,
                                  &node->journal.wal, &recovered, error);

    if (err)
        return err;
    loaded->term = recovered.state.term;
    loaded->vote = recovered.state.vote;
    is_first_start = recovered.state.last_index == 0;
    err = hf_incarnation_raise(node->disk, is_first_start, &node->incarnation,
                               error);
    if (!err && is_first_start)
        err = store_first_entry(node, loaded, error);
    return err;
}

/* The log names the members of the cluster. Refuse to start with options that
 * name others. */
static enum hf_err check_members(const struct hf_node *node,
                                 struct hf_error *error)
{
    struct hf_membership members = membership_of(&node->opts);

    if (members.count == node->engine.members.count &&
        !memcmp(members.voters, node->engine.members.voters,
                members.count * sizeof(members.voters[0])))
        return HF_OK;
    return hf_error_set(error, HF_EINVAL,
                        "%s/config: the members are not those of the log, "
                        "which cannot be changed yet. Restore the lines "
                        "'member'; they are the same at every node.",
                        node->disk->path);
}

static enum hf_err start_engine(struct hf_node *node,
                                const struct hf_engine_loaded *loaded,
                                struct hf_error *error)
{
    struct hf_engine_update update;
    enum hf_err err =
        hf_engine_start(&node->engine, loaded, node->now, &update);

    if (err)
        return hf_error_set(error, err, "cannot start: %s", hf_err_text(err));
    err = check_members(node, error);
    if (err)
        return err;
    hf_consensus_do_update(node, &update);
    /* After a reset, the log needs its segments until the reset is durable. */
    if (!(update.changes & HF_ENGINE_RESET))
        hf_wal_compact(node->journal.wal, node->engine.log.base_index);
    return HF_OK;
}

/* Complete the reserve before the first command arrives, so that a node whose
 * disk is full knows that from the start. */
static enum hf_err prepare_space(struct hf_node *node, struct hf_error *error)
{
    enum hf_err err;

    hf_compaction_reserve(node);
    err = hf_wal_upkeep_now(node->journal.wal);
    if (err == HF_ELIMIT || err == HF_ENOMEM) {
        node->upkeep_retry = hf_time_add(node->now, HF_NODE_DISK_RETRY_MS);
        return HF_OK;
    }
    if (err)
        hf_wal_error(node->journal.wal, error);
    return err;
}

static enum hf_err open_snapshot(struct hf_node *node,
                                 struct hf_snapshot_file **file,
                                 struct hf_error *error)
{
    struct hf_error damaged;
    struct hf_error why = {0};
    enum hf_err err = hf_snapshot_file_open(node->disk, &node->opts.cluster,
                                            file, &damaged, &why);

    if (err == HF_EPROTO || err == HF_EINVAL)
        return hf_error_set(error, err, "%s. " HF_DISK_LOST, why.text);
    if (err)
        *error = why;
    return err;
}

static enum hf_err recover_all(struct hf_node *node, struct hf_error *error)
{
    struct hf_engine_loaded loaded = {0};
    struct hf_log_identity identity;
    struct hf_snapshot_file *file = NULL;
    enum hf_err err = hf_log_directory_open(node->disk, &node->opts.cluster,
                                            node->opts.id, &identity, error);

    if (!err)
        err = open_snapshot(node, &file, error);
    if (!err && file) {
        describe_snapshot(file, &loaded.snapshot);
        err = restore_table(node, file, error);
    }
    if (!err)
        err = recover_log(node, &identity, &loaded, error);
    if (!err)
        err = start_engine(node, &loaded, error);
    if (!err)
        err = prepare_space(node, error);
    hf_snapshot_file_close(file);
    return err;
}

/* ---- Open and close -----------------------------------------------------*/

static enum hf_err init_parts(struct hf_node *node, struct hf_error *error)
{
    struct hf_membership members = membership_of(&node->opts);
    struct hf_engine_config config = {
        .id = node->opts.id,
        .election_ms = node->opts.election_ms,
        .heartbeat_ms = node->opts.heartbeat_ms,
        .inflight_max = HF_NODE_INFLIGHT_MAX,
        .trailing = node->opts.trailing,
    };
    enum hf_err err = copy_members(node);

    memcpy(&config.seed, node->opts.seed.bytes, sizeof(config.seed));
    hf_outbox_init(&node->outbox);
    hf_requests_init(&node->requests);
    hf_proposals_init(&node->proposals);
    hf_attachments_init(&node->attachments);
    hf_sessions_init(&node->sessions);
    hf_peers_init(node);
    hf_reads_init(node);
    hf_lost_init(&node->lost, node->opts.id, &members, node->opts.election_ms);
    if (!err)
        err = hf_state_machine_init(&node->machine, &node->opts.seed,
                                    node->opts.history_bytes);
    if (!err)
        err = hf_engine_init(&node->engine, &config);
    node->engine.log.bytes_max = node->opts.log_bytes;
    if (err == HF_EUNSUPPORTED)
        return hf_error_set(error, err,
                            "cannot start: the libraft of this machine is not "
                            "version 0.22, for which this program was built. "
                            "Install libraft 0.22 ('scripts/deps build'), or "
                            "rebuild where it is installed.");
    return err ? hf_error_set(error, err, "cannot start: %s", hf_err_text(err))
               : HF_OK;
}

enum hf_err hf_node_open(const struct hf_node_opts *opts,
                         const struct hf_node_ops *ops, void *arg,
                         struct hf_disk *disk, hf_time now,
                         struct hf_node **node, struct hf_error *error)
{
    enum hf_err err = check_opts(opts, error);
    struct hf_node *opened;

    if (err)
        return err;
    opened = calloc(1, sizeof(*opened));
    if (!opened)
        return hf_error_set_code(error, HF_ENOMEM);
    opened->opts = *opts;
    opened->ops = ops;
    opened->arg = arg;
    opened->disk = disk;
    opened->now = now;
    opened->flush_retry = opened->upkeep_retry = HF_NEVER;
    set_node_defaults(&opened->opts);
    err = init_parts(opened, error);
    if (!err)
        err = recover_all(opened, error);
    if (!err && hf_clients_open(opened))
        err = hf_error_set_code(error, HF_ENOMEM);
    if (err)
        hf_node_close(opened);
    else
        *node = opened;
    return err;
}

void hf_node_close(struct hf_node *node)
{
    if (!node)
        return;
    hf_clients_free(node->clients);
    hf_transfers_fini(node);
    hf_compaction_fini(node);
    hf_journal_fini(&node->journal);
    hf_outbox_fini(&node->outbox);
    hf_requests_fini(&node->requests);
    hf_proposals_fini(&node->proposals);
    hf_attachments_fini(&node->attachments);
    hf_sessions_fini(&node->sessions);
    hf_reads_fini(&node->reads);
    hf_peers_fini(&node->peers);
    hf_state_machine_fini(&node->machine);
    hf_engine_fini(&node->engine);
    for (size_t i = 0; i < node->opts.member_count; i++) {
        free((char *)(uintptr_t)node->members[i].peer_address);
        free((char *)(uintptr_t)node->members[i].client_address);
    }
    free(node);
}
