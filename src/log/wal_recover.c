/* wal_recover.c - read the write-ahead log at start.
 *
 * The question at the first record that is not valid is whether the rest was
 * never completely written, or was written and is damaged. A record is written
 * only after the one before it is durable. So if a valid record of the same
 * epoch follows anywhere, the invalid bytes were durable once: the log is
 * damaged, and a node that continued would have forgotten what it has promised.
 * If none follows, the invalid bytes can only be those of the last flush, which
 * was not complete and so never reported as durable. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "log/wal_internal.h"

struct recovery {
    struct hf_wal *wal;
    struct hf_error *error;
    const struct hf_log_visitor *visitor;
    struct hf_log_snapshot snapshot;
    uint8_t *data; /* a whole segment */
    size_t size;
    size_t at;         /* the segment that is being read */
    bool has_overflow; /* more segments than the limit */

    bool started;         /* `state` and `previous` are known */
    bool ended;           /* a segment without records was found */
    size_t tail;          /* the last segment with records */
    uint64_t tail_record; /* where the last record of the tail starts */
    uint64_t tail_offset; /* where the last record of the tail ends */
    struct hf_log_state state;
    uint64_t previous;
    struct hf_log_snapshot base; /* as in struct hf_wal_recovered */
    uint64_t snapshot_term; /* of entry snapshot.index; 0: not in the log */
};

static enum hf_err fail_at(const struct recovery *recovery, size_t segment,
                           uint64_t offset, const char *why)
{
    char name[HF_DISK_NAME];

    hf_segment_name(name, HF_SEGMENT_LOG,
                    recovery->wal->segments[segment].epoch);
    return hf_error_set(recovery->error, HF_EPROTO,
                        "%s/%s: damaged at offset %" PRIu64
                        ": %s. " HF_DISK_LOST,
                        recovery->wal->disk->path, name, offset, why);
}

/* ---- The files ----------------------------------------------------------*/

static void on_segment_name(void *arg, const char *name)
{
    struct recovery *recovery = arg;
    struct hf_wal *wal = recovery->wal;
    uint64_t number;

    if (hf_segment_parse(name, HF_SEGMENT_LOG, &number)) {
        if (wal->segment_count > wal->segments_max)
            recovery->has_overflow = true;
        else
            wal->segments[wal->segment_count++].epoch = number;
    } else if (hf_segment_parse(name, HF_SEGMENT_SPARE, &number)) {
        if (number >= wal->next_spare)
            wal->next_spare = number + 1;
        if (wal->spare_count < HF_WAL_SPARES_MAX)
            wal->spares[wal->spare_count++] = number;
    }
}

static int compare_epochs(const void *a, const void *b)
{
    uint64_t x = ((const struct hf_wal_segment *)a)->epoch;
    uint64_t y = ((const struct hf_wal_segment *)b)->epoch;

    return (x > y) - (x < y);
}

static enum hf_err fail_missing(const struct recovery *recovery, uint64_t epoch)
{
    char name[HF_DISK_NAME];

    hf_segment_name(name, HF_SEGMENT_LOG, epoch);
    return hf_error_set(recovery->error, HF_EPROTO,
                        "%s/%s: this segment of the log is missing. If it was "
                        "moved away, move it back; otherwise: " HF_DISK_LOST,
                        recovery->wal->disk->path, name);
}

static enum hf_err list_segments(struct recovery *recovery)
{
    struct hf_wal *wal = recovery->wal;
    struct hf_disk *disk = wal->disk;
    int rc = disk->ops->list(disk, on_segment_name, recovery);

    if (rc)
        return hf_disk_error(recovery->error, disk, "", "cannot list", rc);
    if (recovery->has_overflow)
        return hf_error_set(recovery->error, HF_ELIMIT,
                            "%s: more than %zu segments", disk->path,
                            wal->segments_max);
    if (wal->segment_count == 0)
        return fail_missing(recovery, 1);
    qsort(wal->segments, wal->segment_count, sizeof(wal->segments[0]),
          compare_epochs);
    for (size_t i = 1; i < wal->segment_count; i++) {
        uint64_t epoch = wal->segments[i - 1].epoch + 1;

        if (wal->segments[i].epoch != epoch)
            return fail_missing(recovery, epoch);
    }
    return HF_OK;
}

/* Remove spare files that have a wrong size or cannot be opened. */
static void check_spares(struct hf_wal *wal)
{
    struct hf_disk *disk = wal->disk;
    size_t kept = 0;

    for (size_t i = 0; i < wal->spare_count; i++) {
        struct hf_disk_file *file = NULL;
        char name[HF_DISK_NAME];
        uint64_t size;

        hf_segment_name(name, HF_SEGMENT_SPARE, wal->spares[i]);
        if (!disk->ops->open(disk, name, &file) &&
            !disk->ops->size(file, &size) && size == wal->identity.segment_size)
            wal->spares[kept++] = wal->spares[i];
        else
            (void)disk->ops->remove(disk, name);
        hf_disk_close(file);
    }
    wal->spare_count = kept;
}

static int open_segment(struct hf_wal *wal, size_t i,
                        struct hf_disk_file **file, char name[HF_DISK_NAME])
{
    hf_segment_name(name, HF_SEGMENT_LOG, wal->segments[i].epoch);
    return wal->disk->ops->open(wal->disk, name, file);
}

static enum hf_err read_segment(struct recovery *recovery, size_t i)
{
    struct hf_wal *wal = recovery->wal;
    struct hf_disk_file *file = NULL;
    char name[HF_DISK_NAME];
    uint64_t size = 0;
    ssize_t got = 0;
    enum hf_err err;
    int rc = open_segment(wal, i, &file, name);

    if (!rc)
        rc = wal->disk->ops->size(file, &size);
    if (!rc && size >= recovery->size)
        got = hf_disk_read(file, 0, recovery->data, recovery->size);
    if (!rc && got < 0)
        rc = (int)got;
    if (rc)
        err = hf_disk_error(recovery->error, wal->disk, name,
                            "cannot read the log", rc);
    else
        err = hf_segment_check(file, recovery->data, size, &wal->identity,
                               wal->segments[i].epoch, recovery->error);
    hf_disk_close(file);
    return err;
}

/* ---- The records --------------------------------------------------------*/

static void recover_base(void *arg, uint64_t index, uint64_t term)
{
    struct recovery *recovery = arg;

    recovery->base = (struct hf_log_snapshot){index, term};
    recovery->snapshot_term = 0;
    for (size_t i = 0; i <= recovery->at; i++)
        recovery->wal->segments[i].highest = 0;
    recovery->wal->segments[recovery->at].highest = index;
    recovery->visitor->base(recovery->visitor->arg, index, term);
}

static enum hf_err recover_entry(void *arg, uint64_t index,
                                 const struct hf_log_entry *entry)
{
    struct recovery *recovery = arg;
    struct hf_wal_segment *segment = &recovery->wal->segments[recovery->at];

    if (index <= recovery->base.index)
        recovery->base = (struct hf_log_snapshot){index - 1, 0};
    if (index <= recovery->snapshot.index)
        recovery->snapshot_term =
            index == recovery->snapshot.index ? entry->term : 0;
    if (index > segment->highest)
        segment->highest = index;
    return recovery->visitor->entry(recovery->visitor->arg, index, entry);
}

/* Start from the first record of the oldest segment: its header has the last
 * entry before it, and the term and vote. */
static void start_state(struct recovery *recovery,
                        const struct hf_record *record)
{
    recovery->started = true;
    recovery->previous = record->previous;
    recovery->state = record->state;
    recover_base(recovery, record->state.last_index, record->state.last_term);
}

static enum hf_err replay_record(struct recovery *recovery, uint64_t offset,
                                 const struct hf_record *record)
{
    const struct hf_log_visitor visitor = {recover_base, recover_entry,
                                           recovery};
    enum hf_err err;

    if (!recovery->started)
        start_state(recovery, record);
    if (record->previous != recovery->previous)
        return fail_at(recovery, recovery->tail, recovery->tail_offset,
                       "records are missing before the next one");
    err = hf_record_replay(recovery->data + offset, record, &recovery->state,
                           &visitor);
    if (err == HF_EPROTO)
        return fail_at(recovery, recovery->at, offset,
                       "the record contradicts the one before it");
    if (err)
        return hf_error_set_code(recovery->error, err);
    recovery->previous = record->checksum;
    return HF_OK;
}

static bool check_record(const struct recovery *recovery, uint64_t offset,
                         struct hf_record *record)
{
    const struct hf_wal *wal = recovery->wal;

    return hf_record_check(recovery->data + offset, recovery->size - offset,
                           wal->segments[recovery->at].epoch,
                           &wal->identity.secret, record);
}

/* Returns true if a valid record of this segment starts at `offset` or
 * later. */
static bool has_record_behind(const struct recovery *recovery, uint64_t offset)
{
    struct hf_record record;

    while (offset < recovery->size) {
        if (check_record(recovery, offset, &record))
            return true;
        offset += HF_RECORD_SECTOR;
    }
    return false;
}

static enum hf_err replay_segment(struct recovery *recovery, size_t i)
{
    uint64_t offset = HF_SEGMENT_START;
    struct hf_record record;
    enum hf_err err;

    recovery->at = i;
    while (offset < recovery->size && check_record(recovery, offset, &record)) {
        if (recovery->ended)
            return fail_at(recovery, i - 1, HF_SEGMENT_START,
                           "the segment has no records, but a later one does");
        err = replay_record(recovery, offset, &record);
        if (err)
            return err;
        recovery->tail = i;
        recovery->tail_record = offset;
        offset += hf_record_padded(record.size);
        recovery->tail_offset = offset;
    }
    if (has_record_behind(recovery, offset))
        return fail_at(recovery, i, offset, "a valid record follows");
    recovery->ended = offset == HF_SEGMENT_START;
    return HF_OK;
}

static enum hf_err replay_segments(struct recovery *recovery)
{
    struct hf_wal *wal = recovery->wal;
    enum hf_err err = HF_OK;

    /* If the oldest segment has epoch 1, the log was empty before it, so the
     * initial state is known. If not, older segments were removed, and the
     * first record says after which entry the log begins. */
    recovery->started = wal->segments[0].epoch == 1;
    recovery->tail_record = HF_SEGMENT_START;
    recovery->tail_offset = HF_SEGMENT_START;
    for (size_t i = 0; i < wal->segment_count && !err; i++) {
        err = read_segment(recovery, i);
        if (!err)
            err = replay_segment(recovery, i);
    }
    if (!err && !recovery->started)
        err = fail_missing(recovery, wal->segments[0].epoch - 1);
    if (!err && recovery->tail + 2 < wal->segment_count)
        err = fail_at(recovery, recovery->tail + 1, HF_SEGMENT_START,
                      "the segment has no records, but there is a later one");
    return err;
}

/* ---- The end of the log -------------------------------------------------*/

/* Write the last record once more. It counts as durable from now on, but it may
 * be in the page cache only. If the previous process failed to sync the record,
 * the kernel may even regard its pages as clean, and would not write them. All
 * earlier records were synced. */
static int rewrite_last(const struct recovery *recovery,
                        struct hf_disk_file *file)
{
    uint64_t from = recovery->tail_record;
    size_t size = (size_t)(recovery->tail_offset - from);
    ssize_t got = hf_disk_read(file, from, recovery->data, size);

    if (got < 0)
        return (int)got;
    return hf_disk_write(file, from, recovery->data, size);
}

/* Overwrite the start of a torn record, so that it can never become valid
 * again, whatever the disk does; and sync. */
static int cut_file(struct hf_disk_file *file, uint64_t offset, uint64_t size)
{
    static const uint8_t zeros[HF_RECORD_SECTOR];
    int rc = 0;

    if (offset < size)
        rc = hf_disk_write(file, offset, zeros, sizeof(zeros));
    return rc ? rc : file->disk->ops->sync(file);
}

static enum hf_err open_tail(struct recovery *recovery)
{
    struct hf_wal *wal = recovery->wal;
    size_t tail = recovery->tail;
    char name[HF_DISK_NAME];
    int rc = open_segment(wal, tail, &wal->file, name);

    if (!rc)
        rc = rewrite_last(recovery, wal->file);
    if (!rc)
        rc = cut_file(wal->file, recovery->tail_offset, recovery->size);
    if (!rc && tail + 1 < wal->segment_count) {
        rc = open_segment(wal, tail + 1, &wal->next, name);
        if (!rc)
            rc = cut_file(wal->next, HF_SEGMENT_START, recovery->size);
    }
    if (!rc)
        rc = wal->disk->ops->sync_directory(wal->disk);
    if (rc)
        return hf_disk_error(recovery->error, wal->disk, name,
                             "cannot write the log", rc);
    wal->segment_count = tail + 1;
    wal->offset = recovery->tail_offset;
    wal->previous = recovery->previous;
    wal->durable = recovery->state;
    return HF_OK;
}

/* Decide whether the entries continue the snapshot. They do if the log contains
 * its last entry, or begins after exactly this entry. If the log begins later,
 * something is missing. Otherwise the snapshot was installed, and a crash came
 * before the log was reset. */
static enum hf_err match_snapshot(struct recovery *recovery, bool *discard)
{
    const struct hf_log_snapshot *snapshot = &recovery->snapshot;
    const struct hf_log_snapshot *base = &recovery->base;
    bool is_base = base->index == snapshot->index;

    *discard = false;
    if (base->index > snapshot->index ||
        (is_base && base->term == 0 && snapshot->index > 0))
        return hf_error_set(
            recovery->error, HF_EPROTO,
            "%s: the log begins after entry %" PRIu64
            ", but the newest valid snapshot ends at entry %" PRIu64
            ": a snapshot or a segment is missing. If it was moved away, move "
            "it back; otherwise: " HF_DISK_LOST,
            recovery->wal->disk->path, base->index, snapshot->index);
    *discard =
        snapshot->term != (is_base ? base->term : recovery->snapshot_term);
    return HF_OK;
}

static enum hf_err run_recovery(struct recovery *recovery,
                                struct hf_wal_recovered *recovered)
{
    enum hf_err err = list_segments(recovery);

    if (!err)
        err = replay_segments(recovery);
    if (!err)
        err = match_snapshot(recovery, &recovered->discarded);
    if (!err)
        err = open_tail(recovery);
    if (err)
        return err;
    check_spares(recovery->wal);
    recovered->state = recovery->state;
    recovered->base = recovery->base;
    return HF_OK;
}

enum hf_err hf_wal_recover(struct hf_wal *wal, const struct hf_wal_opts *opts,
                           const struct hf_log_visitor *visitor,
                           struct hf_wal_recovered *recovered,
                           struct hf_error *error)
{
    struct recovery recovery = {
        .wal = wal,
        .error = error,
        .visitor = visitor,
        .snapshot = opts->snapshot,
        .size = (size_t)opts->identity.segment_size,
    };
    enum hf_err err;

    recovery.data = malloc(recovery.size);
    if (!recovery.data)
        return hf_error_set_code(error, HF_ENOMEM);
    err = run_recovery(&recovery, recovered);
    free(recovery.data);
    return err;
}
