#include "log/wal.h"

#include <stdlib.h>

#include "base/assert.h"
#include "log/wal_internal.h"

/* ---- Batches ------------------------------------------------------------*/

static struct hf_wal_batch *batch_of(struct hf_dlist *link)
{
    return HF_CONTAINER(link, struct hf_wal_batch, link);
}

static struct hf_wal_batch *oldest_batch(const struct hf_wal *wal)
{
    struct hf_dlist *first = hf_dlist_first(&wal->batches);

    return first ? batch_of(first) : NULL;
}

static void free_batch(struct hf_wal_batch *batch)
{
    if (batch)
        hf_buf_fini(&batch->buf);
    free(batch);
}

/* Start an empty batch at the end of the queue. Returns NULL if memory is
 * exhausted. */
static struct hf_wal_batch *start_batch(struct hf_wal *wal)
{
    struct hf_wal_batch *batch = wal->unused;

    if (!batch)
        batch = calloc(1, sizeof(*batch));
    if (!batch)
        return NULL;
    wal->unused = NULL;
    batch->buf.size = 0;
    hf_record_start(&batch->buf);
    if (batch->buf.failed) {
        free_batch(batch);
        return NULL;
    }
    batch->before = wal->appended;
    batch->after = wal->appended;
    batch->lowest = UINT64_MAX;
    batch->highest = 0;
    batch->has_base = false;
    hf_dlist_push_back(&wal->batches, &batch->link);
    wal->filling = batch;
    return batch;
}

/* The batch to append `size` bytes to, or NULL if memory runs out. */
static struct hf_wal_batch *batch_for(struct hf_wal *wal, size_t size)
{
    struct hf_wal_batch *batch = wal->filling;

    if (batch && batch->buf.size + size <= wal->record_max)
        return batch;
    return start_batch(wal);
}

/* Keep one batch for reuse, unless it was unusually large. */
static void finish_batch(struct hf_wal *wal, struct hf_wal_batch *batch)
{
    hf_dlist_remove(&batch->link);
    if (!wal->unused && batch->buf.capacity <= HF_WAL_BATCH_KEPT)
        wal->unused = batch;
    else
        free_batch(batch);
}

/* ---- Appending ----------------------------------------------------------*/

/* Count the bytes that were added since the batch had `size` bytes. If memory
 * ran out, remove them again. */
static enum hf_err commit_append(struct hf_wal *wal, struct hf_wal_batch *batch,
                                 size_t size)
{
    if (batch->buf.failed) {
        batch->buf.failed = false;
        batch->buf.size = size;
        return HF_ENOMEM;
    }
    wal->pending_bytes += batch->buf.size - size;
    batch->after = wal->appended;
    return HF_OK;
}

enum hf_err hf_wal_append_state(struct hf_wal *wal, uint64_t term,
                                uint64_t vote)
{
    struct hf_wal_batch *batch;

    HF_ASSERT(term >= wal->appended.term);
    HF_ASSERT(term > wal->appended.term || wal->appended.vote == 0 ||
              vote == wal->appended.vote);
    if (wal->error.code)
        return HF_ESYSTEM;
    batch = batch_for(wal, 0);
    if (!batch)
        return HF_ENOMEM;
    wal->appended.term = term;
    wal->appended.vote = vote;
    batch->after = wal->appended;
    return HF_OK;
}

static enum hf_err append_chunk(struct hf_wal *wal, struct hf_wal_batch *batch,
                                uint64_t index,
                                const struct hf_log_entry *entries,
                                size_t count)
{
    struct hf_log_state before = wal->appended;
    size_t size = batch->buf.size;
    enum hf_err err;

    hf_record_add_entries(&batch->buf, index, entries, count);
    wal->appended.last_index = index + count - 1;
    wal->appended.last_term = entries[count - 1].term;
    err = commit_append(wal, batch, size);
    if (err) {
        wal->appended = before;
        return err;
    }
    if (index < batch->lowest)
        batch->lowest = index;
    if (wal->appended.last_index > batch->highest)
        batch->highest = wal->appended.last_index;
    return HF_OK;
}

static size_t entry_size(const struct hf_log_entry *entry)
{
    return HF_RECORD_ENTRY + entry->data.size;
}

/* How many of the entries fit into `room` bytes. */
static size_t count_fitting(const struct hf_log_entry *entries, size_t count,
                            size_t room)
{
    size_t size = HF_RECORD_ITEM;
    size_t fitting = 0;

    while (fitting < count && size + entry_size(&entries[fitting]) <= room)
        size += entry_size(&entries[fitting++]);
    return fitting;
}

static enum hf_err check_entries(const struct hf_wal *wal,
                                 const struct hf_log_entry *entries,
                                 size_t count)
{
    size_t size = wal->pending_bytes;

    for (size_t i = 0; i < count; i++) {
        HF_ASSERT(entries[i].term > 0);
        if (entries[i].data.size > hf_wal_entry_max(wal))
            return HF_ELIMIT;
        size += HF_RECORD_ITEM + entry_size(&entries[i]);
        if (size > HF_WAL_PENDING_MAX)
            return HF_ELIMIT;
    }
    return wal->error.code ? HF_ESYSTEM : HF_OK;
}

enum hf_err hf_wal_append_entries(struct hf_wal *wal, uint64_t index,
                                  const struct hf_log_entry *entries,
                                  size_t count)
{
    enum hf_err err = check_entries(wal, entries, count);

    HF_ASSERT(index > 0);
    HF_ASSERT(index - 1 <= wal->appended.last_index);
    HF_ASSERT(count > 0);
    while (!err && count > 0) {
        size_t least = HF_RECORD_ITEM + entry_size(entries);
        struct hf_wal_batch *batch = batch_for(wal, least);
        size_t fitting;

        if (!batch)
            return HF_ENOMEM;
        fitting =
            count_fitting(entries, count, wal->record_max - batch->buf.size);
        err = append_chunk(wal, batch, index, entries, fitting);
        index += fitting;
        entries += fitting;
        count -= fitting;
    }
    return err;
}

enum hf_err hf_wal_append_base(struct hf_wal *wal,
                               struct hf_log_snapshot snapshot)
{
    struct hf_wal_batch *batch;
    size_t size;

    if (wal->error.code)
        return HF_ESYSTEM;
    batch = batch_for(wal, HF_RECORD_BASE);
    if (!batch)
        return HF_ENOMEM;
    size = batch->buf.size;
    hf_record_add_base(&batch->buf, snapshot.index, snapshot.term);
    if (batch->buf.failed)
        return commit_append(wal, batch, size);
    wal->appended.last_index = snapshot.index;
    wal->appended.last_term = snapshot.term;
    batch->lowest = 1;
    batch->highest = snapshot.index;
    batch->has_base = true;
    return commit_append(wal, batch, size);
}

size_t hf_wal_entry_max(const struct hf_wal *wal)
{
    return wal->record_max - HF_RECORD_HEADER - HF_RECORD_ITEM -
           HF_RECORD_ENTRY;
}

/* ---- Flushing -----------------------------------------------------------*/

bool hf_wal_is_pending(const struct hf_wal *wal)
{
    return !hf_dlist_is_empty(&wal->batches);
}

/* Write the padding after the record, and set `*padded` to the size with it.
 * The size of the batch stays without padding, because it is what the header
 * says. Returns false if memory is exhausted. */
static bool pad_batch(struct hf_wal_batch *batch, size_t *padded)
{
    size_t size = batch->buf.size;
    bool failed;

    hf_record_pad(&batch->buf);
    *padded = batch->buf.size;
    failed = batch->buf.failed;
    batch->buf.size = size;
    batch->buf.failed = false;
    return !failed;
}

/* The header of a batch, without its checksum. */
static struct hf_record describe_batch(const struct hf_wal *wal,
                                       const struct hf_wal_batch *batch,
                                       uint64_t epoch)
{
    struct hf_record record = {
        .size = (uint32_t)batch->buf.size,
        .epoch = epoch,
        .previous = wal->previous,
        .state = batch->after,
    };

    record.state.last_index = batch->before.last_index;
    record.state.last_term = batch->before.last_term;
    return record;
}

bool hf_wal_flush_begin(struct hf_wal *wal, struct hf_wal_flush *flush)
{
    struct hf_wal_batch *batch = oldest_batch(wal);
    uint64_t epoch = hf_wal_next_epoch(wal) - 1;
    size_t padded;
    bool fits;

    if (!batch || wal->flushing || wal->error.code)
        return false;
    fits = hf_record_padded(batch->buf.size) <=
           wal->identity.segment_size - wal->offset;
    wal->is_starved = !fits && !wal->next;
    if (wal->is_starved || !pad_batch(batch, &padded))
        return false;
    *flush = (struct hf_wal_flush){
        .file = fits ? wal->file : wal->next,
        .offset = fits ? wal->offset : HF_SEGMENT_START,
        .data = batch->buf.data,
        .size = padded,
        .record = describe_batch(wal, batch, fits ? epoch : epoch + 1),
        .secret = wal->identity.secret,
        .in_next = !fits,
    };
    /* From now on the batch belongs to the flush. */
    if (batch == wal->filling)
        wal->filling = NULL;
    wal->flushing = true;
    return true;
}

void hf_wal_flush_run(struct hf_wal_flush *flush)
{
    struct hf_disk_file *file = flush->file;

    hf_record_seal(flush->data, flush->size, &flush->record, &flush->secret);
    flush->write_rc =
        hf_disk_write(file, flush->offset, flush->data, flush->size);
    if (!flush->write_rc)
        flush->sync_rc = file->disk->ops->sync(file);
}

/* A record was written to the next segment, which becomes the current one. */
static void switch_segment(struct hf_wal *wal)
{
    struct hf_wal_segment segment = {.epoch = hf_wal_next_epoch(wal)};

    HF_ASSERT(wal->segment_count < wal->segments_max);
    wal->segments[wal->segment_count++] = segment;
    hf_disk_close(wal->file);
    wal->file = wal->next;
    wal->next = NULL;
}

static void settle_batch(struct hf_wal *wal, const struct hf_wal_flush *flush)
{
    struct hf_wal_batch *batch = oldest_batch(wal);
    struct hf_wal_segment *segment;

    if (flush->in_next)
        switch_segment(wal);
    wal->offset = flush->offset + flush->size;
    wal->previous = flush->record.checksum;
    wal->durable = batch->after;
    /* A base removes the entries of all segments. */
    for (size_t i = 0; batch->has_base && i < wal->segment_count; i++)
        wal->segments[i].highest = 0;
    segment = &wal->segments[wal->segment_count - 1];
    if (batch->highest > segment->highest)
        segment->highest = batch->highest;
    wal->pending_bytes -= batch->buf.size - HF_RECORD_HEADER;
    finish_batch(wal, batch);
}

enum hf_err hf_wal_die(struct hf_wal *wal, const char *name, const char *what,
                       int rc)
{
    if (!wal->error.code)
        (void)hf_disk_error(&wal->error, wal->disk, name, what, rc);
    /* Other codes stand for what can be tried again. */
    wal->error.code = HF_ESYSTEM;
    return HF_ESYSTEM;
}

enum hf_err hf_wal_flush_end(struct hf_wal *wal,
                             const struct hf_wal_flush *flush)
{
    HF_ASSERT(wal->flushing);
    wal->flushing = false;
    if (hf_disk_is_full(flush->write_rc)) {
        wal->is_full = true;
        return HF_ELIMIT;
    }
    if (flush->write_rc)
        return hf_wal_die(wal, flush->file->name, "cannot write the log",
                          flush->write_rc);
    /* The log is dead even if the disk was full: after a failed sync the kernel
     * may regard pages as clean that it has not written. */
    if (flush->sync_rc)
        return hf_wal_die(wal, flush->file->name, "cannot sync the log",
                          flush->sync_rc);
    wal->is_full = false;
    settle_batch(wal, flush);
    return HF_OK;
}

struct hf_log_state hf_wal_durable(const struct hf_wal *wal)
{
    struct hf_log_state state = wal->durable;

    for (struct hf_dlist *link = wal->batches.next; link != &wal->batches;
         link = link->next) {
        uint64_t lowest = batch_of(link)->lowest;

        if (lowest - 1 < state.last_index)
            state.last_index = lowest - 1;
    }
    return state;
}

void hf_wal_error(const struct hf_wal *wal, struct hf_error *error)
{
    *error = wal->error;
}

/* ---- Opening and closing ------------------------------------------------*/

static struct hf_wal *new_wal(struct hf_disk *disk,
                              const struct hf_wal_opts *opts)
{
    struct hf_wal *wal = calloc(1, sizeof(*wal));

    if (!wal)
        return NULL;
    wal->disk = disk;
    wal->identity = opts->identity;
    wal->record_max = (size_t)opts->identity.segment_size / 4;
    wal->segments_max =
        opts->segments_max ? opts->segments_max : HF_WAL_SEGMENTS_MAX;
    /* One more than the limit, because recovery also finds the next segment. */
    wal->segments = calloc(wal->segments_max + 1, sizeof(*wal->segments));
    hf_dlist_init(&wal->batches);
    if (wal->segments)
        return wal;
    free(wal);
    return NULL;
}

/* Flush the oldest batch, in this thread. */
static enum hf_err flush_now(struct hf_wal *wal, struct hf_error *error)
{
    struct hf_wal_flush flush;
    enum hf_err err;

    if (!hf_wal_flush_begin(wal, &flush))
        return hf_error_set_code(error, wal->is_low ? HF_ELIMIT : HF_ENOMEM);
    hf_wal_flush_run(&flush);
    err = hf_wal_flush_end(wal, &flush);
    if (err)
        (void)hf_disk_error(error, wal->disk, flush.file->name,
                            "cannot write the log",
                            flush.write_rc ? flush.write_rc : flush.sync_rc);
    return err;
}

static enum hf_err open_wal(struct hf_wal *wal, const struct hf_wal_opts *opts,
                            const struct hf_log_visitor *visitor,
                            struct hf_wal_recovered *recovered,
                            struct hf_error *error)
{
    enum hf_err err = hf_wal_recover(wal, opts, visitor, recovered, error);

    if (err)
        return err;
    wal->appended = wal->durable;
    err = hf_wal_upkeep_now(wal);
    if (wal->error.code) {
        hf_wal_error(wal, error);
        return err;
    }
    if (!recovered->discarded)
        return HF_OK;
    err = hf_wal_append_base(wal, opts->snapshot);
    if (!err)
        err = flush_now(wal, error);
    if (err)
        return err;
    visitor->base(visitor->arg, opts->snapshot.index, opts->snapshot.term);
    recovered->base = opts->snapshot;
    recovered->state = wal->durable;
    return HF_OK;
}

enum hf_err hf_wal_open(struct hf_disk *disk, const struct hf_wal_opts *opts,
                        const struct hf_log_visitor *visitor,
                        struct hf_wal **wal, struct hf_wal_recovered *recovered,
                        struct hf_error *error)
{
    struct hf_wal *opened = new_wal(disk, opts);
    struct hf_wal_recovered found = {0};
    enum hf_err err;

    if (!opened)
        return hf_error_set_code(error, HF_ENOMEM);
    err = open_wal(opened, opts, visitor, &found, error);
    if (err) {
        hf_wal_close(opened);
        return err;
    }
    *wal = opened;
    *recovered = found;
    return HF_OK;
}

void hf_wal_close(struct hf_wal *wal)
{
    struct hf_dlist *link;

    if (!wal)
        return;
    HF_ASSERT(!wal->upkeep_runs);
    while ((link = hf_dlist_take(&wal->batches)))
        free_batch(batch_of(link));
    free_batch(wal->unused);
    hf_disk_close(wal->file);
    hf_disk_close(wal->next);
    free(wal->segments);
    free(wal);
}
