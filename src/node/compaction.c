#include "node/compaction.h"

#include <stdlib.h>

#include "core/snapshot.h"
#include "log/snapshot_file.h"
#include "log/snapshot_writer.h"
#include "node/state.h"

/* Entries that one job applies. The thread of the node copies them, so they are
 * few. */
#define PART_ENTRIES 1024
#define PART_BYTES 262144
#define RETRY_MS 1000
#define ENTRY_OVERHEAD 32 /* bytes of an entry besides its data, roughly */

/* ---- The second table ---------------------------------------------------*/

static void on_compaction_event(void *arg, const struct hf_table_event *event)
{
    (void)arg;
    (void)event;
}

static struct hf_table *new_table(const struct hf_seed *seed)
{
    struct hf_table *table = malloc(sizeof(*table));

    if (table)
        hf_table_init(table, seed, on_compaction_event, NULL);
    return table;
}

static void free_table(struct hf_table *table)
{
    if (table)
        hf_table_fini(table);
    free(table);
}

/* ---- Jobs ---------------------------------------------------------------*/

enum phase {
    PHASE_LOAD,
    PHASE_APPLY,
    PHASE_WRITE,
    PHASE_CLEAN
};

struct compact_job {
    struct hf_node_job job;
    enum phase phase;
    struct hf_disk *disk;
    struct hf_log_cluster cluster;
    struct hf_seed seed;
    struct hf_table *table; /* owned by the job while it runs */
    uint64_t last; /* index. LOAD: of the snapshot; APPLY: of the last entry;
                      CLEAN: remove snapshots before it */
    struct hf_buf entries; /* APPLY: commands, each after its length */
    struct hf_snapshot_meta meta;
    struct hf_buf members; /* `meta.config` points to it */
    uint64_t size;         /* WRITE: bytes of the encoded table */
    enum hf_err err;
    struct hf_error error;
};

static enum hf_err decode_old_snapshot(struct compact_job *job,
                                       struct hf_snapshot_file *file)
{
    size_t size = (size_t)hf_snapshot_file_data_size(file);
    uint8_t *data = malloc(size + 1);
    enum hf_err err;

    if (!data)
        return hf_error_set_code(&job->error, HF_ENOMEM);
    err = hf_snapshot_file_read_data(file, 0, data, size, &job->error);
    if (!err) {
        err = hf_snapshot_decode(job->table, data, size);
        if (err)
            (void)hf_error_set_code(&job->error, err);
    }
    free(data);
    return err;
}

static enum hf_err load_table(struct compact_job *job)
{
    struct hf_snapshot_file *file = NULL;
    enum hf_err err;

    job->table = new_table(&job->seed);
    if (!job->table)
        return hf_error_set_code(&job->error, HF_ENOMEM);
    if (job->last == 0)
        return HF_OK;
    /* Not the newest one: that may be a file which the engine has not installed
     * yet, or has refused. */
    err = hf_snapshot_file_open_at(job->disk, &job->cluster, job->last, &file,
                                   &job->error);
    if (!err)
        err = decode_old_snapshot(job, file);
    hf_snapshot_file_close(file);
    return err;
}

static enum hf_err apply_entries(struct compact_job *job)
{
    struct hf_reader reader = {.data = job->entries.data,
                               .size = job->entries.size};
    enum hf_err err = HF_OK;

    while (reader.size > 0 && !err) {
        struct hf_bytes bytes = hf_reader_bytes(&reader, HF_RAFT_ENTRY_MAX);
        struct hf_command command;
        struct hf_result result;

        err = hf_command_decode(&command, bytes.data, bytes.size);
        if (!err)
            err = hf_table_apply(job->table, &command, &result);
    }
    return err ? hf_error_set_code(&job->error, err) : HF_OK;
}

static enum hf_err write_new_snapshot(struct compact_job *job)
{
    struct hf_snapshot_writer *writer;
    struct hf_buf data = {0};
    enum hf_err err;

    hf_snapshot_encode(job->table, &data);
    if (data.failed)
        return hf_error_set_code(&job->error, HF_ENOMEM);
    err = hf_snapshot_writer_open(job->disk, &job->cluster, &job->meta, &writer,
                                  &job->error);
    if (!err) {
        err = hf_snapshot_writer_add(writer, data.data, data.size, &job->error);
        if (err)
            hf_snapshot_writer_cancel(writer);
        else
            err = hf_snapshot_writer_finish(writer, &job->error);
    }
    job->size = data.size;
    hf_buf_fini(&data);
    return err;
}

static void run_compaction_step(struct hf_node_job *base)
{
    struct compact_job *job = (struct compact_job *)base;

    switch (job->phase) {
    case PHASE_LOAD:
        job->err = load_table(job);
        break;
    case PHASE_APPLY:
        job->err = apply_entries(job);
        break;
    case PHASE_WRITE:
        job->err = write_new_snapshot(job);
        break;
    case PHASE_CLEAN:
        free_table(job->table);
        job->table = NULL;
        if (job->last > 0)
            job->err =
                hf_snapshot_file_remove_old(job->disk, job->last, &job->error);
        break;
    }
    if (job->err || job->phase == PHASE_WRITE) {
        free_table(job->table);
        job->table = NULL;
    }
}

/* ---- The end of a job ---------------------------------------------------*/

/* Let a job free `table`, because that takes long; or free it here, if another
 * table waits for such a job. */
static void discard_table(struct hf_compaction *compaction,
                          struct hf_table *table)
{
    if (compaction->trash)
        free_table(table);
    else
        compaction->trash = table;
}

static void give_up(struct hf_node *node)
{
    struct hf_compaction *compaction = &node->compaction;

    compaction->target = 0;
    compaction->retry = hf_time_add(node->now, RETRY_MS);
}

static void on_snapshot_written(struct hf_node *node,
                                const struct compact_job *job)
{
    struct hf_compaction *compaction = &node->compaction;
    uint64_t index = job->meta.index;

    compaction->target = 0;
    compaction->count++;
    compaction->size = job->size;
    compaction->bytes -= compaction->target_bytes;
    hf_wal_reserve_return(node->journal.wal);
    if (hf_consensus_step(
            node, (struct hf_engine_event){.kind = HF_ENGINE_SNAPSHOT_TAKEN,
                                           .index = index}))
        return; /* another snapshot is newer or being installed, memory is
                   short, or the node has failed */
    compaction->obsolete = index;
    hf_wal_compact(node->journal.wal, node->engine.log.base_index);
}

/* If the disk is full, or memory is short, try again later. After any other
 * error the disk or the log is damaged: the node stops. */
static void on_failed(struct hf_node *node, const struct compact_job *job)
{
    if (job->phase == PHASE_WRITE)
        hf_wal_reserve_return(node->journal.wal);
    if (job->err == HF_ELIMIT || job->err == HF_ENOMEM)
        give_up(node);
    else
        hf_node_fail(node, &job->error);
}

static void end_job(struct hf_node *node, struct hf_node_job *base)
{
    struct compact_job *job = (struct compact_job *)base;
    struct hf_compaction *compaction = &node->compaction;
    bool is_restarted = compaction->target != job->meta.index;

    if (is_restarted && job->phase != PHASE_CLEAN)
        discard_table(compaction, job->table);
    else if (job->phase != PHASE_CLEAN)
        compaction->table = job->table;
    if (job->err)
        on_failed(node, job);
    else if (job->phase == PHASE_CLEAN && job->last == compaction->obsolete)
        compaction->obsolete = 0;
    else if (is_restarted && job->phase == PHASE_WRITE)
        hf_wal_reserve_return(node->journal.wal);
    else if (!is_restarted && job->phase == PHASE_WRITE)
        on_snapshot_written(node, job);
    else if (!is_restarted)
        compaction->applied = job->last;
    hf_buf_fini(&job->entries);
    hf_buf_fini(&job->members);
    free(job);
}

/* ---- Counting entries ---------------------------------------------------*/

void hf_compaction_recovered(struct hf_node *node, const struct hf_entry *entry)
{
    node->compaction.backlog += entry->data.size + ENTRY_OVERHEAD;
}

void hf_compaction_applied(struct hf_node *node, const struct hf_entry *entry)
{
    struct hf_compaction *compaction = &node->compaction;
    size_t size = entry->data.size + ENTRY_OVERHEAD;

    compaction->bytes += size;
    compaction->backlog -=
        compaction->backlog < size ? compaction->backlog : size;
}

/* ---- Space --------------------------------------------------------------*/

/* The last snapshot and the reserve have room for two snapshots of the table as
 * it is now. The next snapshot is written into the reserve, and what it leaves,
 * with the space of the last one, is the reserve for the one after that. So on
 * a full disk there is always space for one more, if the table does not grow.
 * After a start, the table grows by entries that were accepted before. */
void hf_compaction_reserve(struct hf_node *node)
{
    uint64_t last = node->compaction.size;
    uint64_t next = hf_snapshot_size_max(&node->machine.store->table) +
                    node->compaction.backlog;

    hf_wal_reserve(node->journal.wal, last < next ? 2 * next - last : next);
}

/* ---- The start of a job -------------------------------------------------*/

/* Returns after how many bytes of log entries the next snapshot is made. A
 * large snapshot is made less often. But the log in memory has a limit: a
 * quarter of it may be kept before a snapshot, a quarter may follow until the
 * next one is started, and the rest is for entries that arrive while that one
 * is being made. */
static uint64_t least_bytes(const struct hf_node *node)
{
    uint64_t least = node->compaction.size > node->opts.snapshot_bytes
                         ? node->compaction.size
                         : node->opts.snapshot_bytes;
    uint64_t most = hf_entries_bytes_max(&node->engine.log) / 4;

    return least < most ? least : most;
}

/* Returns true if the disk is nearly full and a snapshot would free a segment
 * of the write-ahead log. Waiting for least_bytes() could be too late: records
 * are padded, so small commands take much more space on the disk than their
 * size. */
static bool would_free_segment(const struct hf_node *node)
{
    const struct hf_wal *wal = node->journal.wal;
    uint64_t end = hf_wal_oldest_end(wal);
    uint64_t index = end + node->opts.trailing;

    return hf_wal_space(wal) != HF_WAL_SPACE_OK &&
           end > node->engine.log.base_index &&
           node->engine.snapshot.index < index &&
           node->machine.applied >= index;
}

static bool is_compaction_wanted(const struct hf_node *node)
{
    const struct hf_compaction *compaction = &node->compaction;

    return (compaction->bytes >= least_bytes(node) ||
            would_free_segment(node)) &&
           node->now >= compaction->retry && !node->engine.installing &&
           node->machine.applied > node->engine.snapshot.index &&
           node->engine.durable > node->engine.snapshot.index;
}

static void choose_target(struct hf_node *node)
{
    struct hf_compaction *compaction = &node->compaction;
    uint64_t durable = node->engine.durable;

    compaction->target =
        node->machine.applied < durable ? node->machine.applied : durable;
    compaction->target_bytes = compaction->bytes;
    compaction->applied = 0;
}

/* Copy the next entries for an APPLY. Returns false if memory is short, or the
 * log does not have them any more. */
static bool copy_entries(struct hf_node *node, struct compact_job *job)
{
    uint64_t index = node->compaction.applied;

    for (unsigned i = 0; i < PART_ENTRIES && index < node->compaction.target &&
                         job->entries.size < PART_BYTES;
         i++) {
        const struct hf_entry *entry =
            hf_entries_find(&node->engine.log, ++index);

        if (!entry)
            return false;
        if (entry->kind == HF_ENTRY_COMMAND)
            hf_buf_bytes(&job->entries, entry->data.data, entry->data.size);
    }
    job->last = index;
    return !job->entries.failed;
}

static bool describe_target(struct hf_node *node, struct compact_job *job)
{
    const struct hf_engine_snapshot *snapshot = &node->engine.snapshot;

    hf_buf_raw(&job->members, snapshot->members.data, snapshot->members.size);
    job->meta = (struct hf_snapshot_meta){
        .index = node->compaction.target,
        .term = hf_entries_term(&node->engine.log, node->compaction.target),
        .config_index = snapshot->members_index,
        .config = {job->members.data, job->members.size},
    };
    return !job->members.failed;
}

static bool fill_job(struct hf_node *node, struct compact_job *job)
{
    struct hf_compaction *compaction = &node->compaction;

    if (compaction->trash ||
        (compaction->target == 0 && compaction->obsolete > 0)) {
        job->phase = PHASE_CLEAN;
        job->last = compaction->target == 0 ? compaction->obsolete : 0;
        job->table = compaction->trash;
        compaction->trash = NULL;
        return true;
    }
    if (compaction->target == 0)
        choose_target(node);
    if (!describe_target(node, job))
        return false;
    if (!compaction->table) {
        job->phase = PHASE_LOAD;
        job->last = node->engine.snapshot.index;
        return true;
    }
    job->table = compaction->table;
    if (compaction->applied < compaction->target) {
        job->phase = PHASE_APPLY;
        return copy_entries(node, job);
    }
    job->phase = PHASE_WRITE;
    return hf_wal_reserve_lend(node->journal.wal);
}

struct hf_node_job *hf_compaction_job(struct hf_node *node)
{
    struct compact_job *job;

    if (node->engine.installing)
        return NULL; /* hf_compaction_restart() follows */
    if (node->compaction.target == 0 && node->compaction.obsolete == 0 &&
        !node->compaction.trash && !is_compaction_wanted(node))
        return NULL;
    job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    job->job = (struct hf_node_job){run_compaction_step, end_job};
    job->disk = node->disk;
    job->cluster = node->opts.cluster;
    job->seed = node->opts.seed;
    if (fill_job(node, job)) {
        if (job->phase != PHASE_CLEAN)
            node->compaction.table = NULL;
        return &job->job;
    }
    hf_buf_fini(&job->entries);
    hf_buf_fini(&job->members);
    free(job);
    return NULL;
}

void hf_compaction_restart(struct hf_node *node, uint64_t size)
{
    struct hf_compaction *compaction = &node->compaction;

    discard_table(compaction, compaction->table);
    compaction->table = NULL;
    compaction->target = 0;
    compaction->bytes = compaction->backlog = 0;
    compaction->size = size;
    compaction->obsolete = node->engine.snapshot.index;
}

void hf_compaction_fini(struct hf_node *node)
{
    free_table(node->compaction.table);
    free_table(node->compaction.trash);
}
