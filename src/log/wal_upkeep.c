/* wal_upkeep.c - the slow work of the write-ahead log: segments and space. */
#include <errno.h>

#include "base/assert.h"
#include "log/wal_internal.h"

/* ---- Choosing a task ----------------------------------------------------*/

static bool can_free(const struct hf_wal *wal)
{
    return wal->segment_count > 1 &&
           wal->segments[0].highest <= wal->compact_to;
}

/* On a full disk, one spare file is enough. */
static bool has_surplus(const struct hf_wal *wal)
{
    return wal->is_low && wal->spare_count > 1;
}

static bool can_prepare(const struct hf_wal *wal)
{
    return !wal->next && wal->segment_count < wal->segments_max;
}

static bool needs_reserve(const struct hf_wal *wal)
{
    return !wal->reserve_is_lent && wal->reserve < wal->reserve_wanted;
}

/* Freeing comes first, because it makes space for the other tasks. */
static bool choose_task(const struct hf_wal *wal, enum hf_wal_task *task)
{
    if (can_free(wal))
        *task = HF_WAL_FREE;
    else if (has_surplus(wal))
        *task = HF_WAL_DROP;
    else if (can_prepare(wal))
        *task = HF_WAL_PREPARE;
    else if (wal->spare_count == 0)
        *task = HF_WAL_SPARE;
    else if (needs_reserve(wal))
        *task = HF_WAL_RESERVE;
    else
        return false;
    return true;
}

static void name_last_spare(const struct hf_wal *wal, char name[HF_DISK_NAME])
{
    hf_segment_name(name, HF_SEGMENT_SPARE, wal->spares[wal->spare_count - 1]);
}

static void describe_free(const struct hf_wal *wal,
                          struct hf_wal_upkeep *upkeep)
{
    hf_segment_name(upkeep->from, HF_SEGMENT_LOG, wal->segments[0].epoch);
    if (wal->spare_count < HF_WAL_SPARES_MAX)
        hf_segment_name(upkeep->to, HF_SEGMENT_SPARE, wal->next_spare);
}

static void describe_task(const struct hf_wal *wal,
                          struct hf_wal_upkeep *upkeep)
{
    switch (upkeep->task) {
    case HF_WAL_FREE:
        describe_free(wal, upkeep);
        break;
    case HF_WAL_DROP:
        name_last_spare(wal, upkeep->from);
        break;
    case HF_WAL_PREPARE:
        upkeep->epoch = hf_wal_next_epoch(wal);
        hf_segment_name(upkeep->to, HF_SEGMENT_LOG, upkeep->epoch);
        if (wal->spare_count > 0)
            name_last_spare(wal, upkeep->from);
        break;
    case HF_WAL_SPARE:
        hf_segment_name(upkeep->to, HF_SEGMENT_SPARE, wal->next_spare);
        break;
    case HF_WAL_RESERVE:
        upkeep->least = wal->reserve_wanted;
        /* More, so that a growing table does not need this for each entry. */
        upkeep->size = upkeep->least + upkeep->least / 8;
        break;
    }
}

bool hf_wal_upkeep_begin(struct hf_wal *wal, struct hf_wal_upkeep *upkeep)
{
    enum hf_wal_task task;

    if (wal->upkeep_runs || wal->error.code)
        return false;
    if (!choose_task(wal, &task)) {
        wal->is_low = false;
        return false;
    }
    *upkeep = (struct hf_wal_upkeep){
        .disk = wal->disk,
        .identity = wal->identity,
        .task = task,
    };
    describe_task(wal, upkeep);
    wal->upkeep_task = task;
    wal->upkeep_runs = true;
    return true;
}

/* ---- Running a task -----------------------------------------------------*/

/* Extend the reserve to upkeep->size; to upkeep->least if the disk has no more
 * space; if not even that fits, fail, but take what snapshots need before
 * others do. */
static int extend_reserve(struct hf_wal_upkeep *upkeep)
{
    struct hf_disk *disk = upkeep->disk;
    struct hf_disk_file *file;
    int rc = disk->ops->open(disk, HF_WAL_RESERVE_FILE, &file);

    if (rc == -ENOENT)
        rc = disk->ops->create(disk, HF_WAL_RESERVE_FILE, &file);
    if (rc)
        return rc;
    rc = disk->ops->prewrite(file, upkeep->size);
    if (hf_disk_is_full(rc)) {
        upkeep->size = upkeep->least;
        rc = disk->ops->prewrite(file, upkeep->size);
    }
    if (hf_disk_is_full(rc) && upkeep->least > upkeep->identity.segment_size)
        (void)disk->ops->prewrite(file, upkeep->least -
                                            upkeep->identity.segment_size);
    if (!rc)
        rc = disk->ops->sync(file);
    hf_disk_close(file);
    return rc ? rc : disk->ops->sync_directory(disk);
}

/* The directory is synced after every single change, so that a crash never
 * leaves a gap between segments. */
void hf_wal_upkeep_run(struct hf_wal_upkeep *upkeep)
{
    struct hf_disk *disk = upkeep->disk;

    switch (upkeep->task) {
    case HF_WAL_FREE:
        upkeep->rc = *upkeep->to
                         ? hf_disk_rename(disk, upkeep->from, upkeep->to)
                         : hf_disk_remove(disk, upkeep->from);
        break;
    case HF_WAL_DROP:
        upkeep->rc = hf_disk_remove(disk, upkeep->from);
        break;
    case HF_WAL_PREPARE:
        upkeep->rc = hf_segment_prepare(disk, &upkeep->identity, upkeep->epoch,
                                        *upkeep->from ? upkeep->from : NULL,
                                        &upkeep->file);
        break;
    case HF_WAL_SPARE:
        upkeep->rc = hf_segment_make_spare(disk, upkeep->identity.segment_size,
                                           upkeep->to);
        break;
    case HF_WAL_RESERVE:
        upkeep->rc = extend_reserve(upkeep);
        break;
    }
}

/* ---- Ending a task ------------------------------------------------------*/

static void add_spare(struct hf_wal *wal)
{
    HF_ASSERT(wal->spare_count < HF_WAL_SPARES_MAX);
    wal->spares[wal->spare_count++] = wal->next_spare++;
}

static void forget_oldest(struct hf_wal *wal)
{
    HF_ASSERT(wal->segment_count > 1);
    wal->segment_count--;
    memmove(wal->segments, wal->segments + 1,
            wal->segment_count * sizeof(wal->segments[0]));
}

static void settle_task(struct hf_wal *wal, const struct hf_wal_upkeep *upkeep)
{
    switch (upkeep->task) {
    case HF_WAL_FREE:
        forget_oldest(wal);
        if (*upkeep->to)
            add_spare(wal);
        break;
    case HF_WAL_DROP:
        wal->spare_count--;
        break;
    case HF_WAL_PREPARE:
        wal->next = upkeep->file;
        wal->is_starved = false;
        if (*upkeep->from)
            wal->spare_count--;
        break;
    case HF_WAL_SPARE:
        add_spare(wal);
        break;
    case HF_WAL_RESERVE:
        wal->reserve = upkeep->size;
        break;
    }
}

enum hf_err hf_wal_upkeep_end(struct hf_wal *wal,
                              const struct hf_wal_upkeep *upkeep)
{
    const char *name = *upkeep->to ? upkeep->to : upkeep->from;

    HF_ASSERT(wal->upkeep_runs);
    wal->upkeep_runs = false;
    if (hf_disk_is_full(upkeep->rc)) {
        wal->is_low = true;
        return HF_ELIMIT;
    }
    if (hf_disk_is_short(upkeep->rc))
        return HF_ENOMEM;
    if (upkeep->rc)
        return hf_wal_die(wal, *name ? name : HF_WAL_RESERVE_FILE,
                          "cannot maintain the log", upkeep->rc);
    settle_task(wal, upkeep);
    return HF_OK;
}

enum hf_err hf_wal_upkeep_now(struct hf_wal *wal)
{
    struct hf_wal_upkeep upkeep;
    enum hf_err err = HF_OK;

    while (!err && hf_wal_upkeep_begin(wal, &upkeep)) {
        hf_wal_upkeep_run(&upkeep);
        err = hf_wal_upkeep_end(wal, &upkeep);
    }
    return err;
}

void hf_wal_compact(struct hf_wal *wal, uint64_t index)
{
    if (index > wal->compact_to)
        wal->compact_to = index;
}

uint64_t hf_wal_oldest_end(const struct hf_wal *wal)
{
    return wal->segment_count > 1 ? wal->segments[0].highest : 0;
}

size_t hf_wal_segment_count(const struct hf_wal *wal)
{
    return wal->segment_count + (wal->next ? 1 : 0) + wal->spare_count;
}

/* ---- Space --------------------------------------------------------------*/

enum hf_wal_space hf_wal_space(const struct hf_wal *wal)
{
    /* Reaching the limit on segments is like a full disk. Space is low while at
     * most two more are allowed, as many as are in reserve on a full disk. */
    bool is_low = wal->is_low || wal->segment_count + 2 >= wal->segments_max;

    if (wal->is_full || (is_low && wal->is_starved))
        return HF_WAL_SPACE_NONE;
    return is_low ? HF_WAL_SPACE_LOW : HF_WAL_SPACE_OK;
}

void hf_wal_reserve(struct hf_wal *wal, uint64_t size)
{
    uint64_t wanted = size + wal->identity.segment_size;

    wal->reserve_wanted =
        wanted > HF_WAL_RESERVE_MIN ? wanted : HF_WAL_RESERVE_MIN;
}

bool hf_wal_reserve_lend(struct hf_wal *wal)
{
    if (wal->upkeep_runs && wal->upkeep_task == HF_WAL_RESERVE)
        return false;
    wal->reserve_is_lent = true;
    wal->reserve = 0;
    return true;
}

void hf_wal_reserve_return(struct hf_wal *wal)
{
    wal->reserve_is_lent = false;
}
