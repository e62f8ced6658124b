#include "raft/entries.h"

#include "base/assert.h"
#include "base/limits.h"

#define COLLECT_MIN 16 /* dead batches to free before the ring grows */

/* ---- The ring of slices -------------------------------------------------*/

static struct hf_slice *slice_at(const struct hf_entries *log, size_t i)
{
    return hf_ring_at(&log->slices, sizeof(struct hf_slice), i);
}

/* Let the first slice that is in the log leave it. */
static void retire_first(struct hf_entries *log)
{
    log->bytes -= slice_at(log, log->dead)->batch->size;
    log->dead++;
}

static void drop_last(struct hf_entries *log)
{
    struct hf_batch *batch = slice_at(log, log->slices.count - 1)->batch;

    log->bytes -= batch->size;
    hf_batch_free(batch);
    hf_ring_drop_last(&log->slices);
}

/* The slice that contains `index`, which is in the log. */
static const struct hf_slice *find_slice(const struct hf_entries *log,
                                         uint64_t index)
{
    size_t low = log->dead;
    size_t high = log->slices.count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (slice_at(log, middle)->first <= index)
            low = middle;
        else
            high = middle;
    }
    return slice_at(log, low);
}

/* ---- The log ------------------------------------------------------------*/

void hf_entries_fini(struct hf_entries *log)
{
    hf_entries_reset(log, 0, 0);
    hf_entries_collect(log, SIZE_MAX);
    hf_ring_fini(&log->slices);
    *log = (struct hf_entries){0};
}

size_t hf_entries_bytes_max(const struct hf_entries *log)
{
    return log->bytes_max > 0 ? log->bytes_max : HF_RAFT_LOG_BYTES;
}

bool hf_entries_has_room(const struct hf_entries *log,
                         const struct hf_batch *batch)
{
    size_t max = hf_entries_bytes_max(log);

    return batch->size <= max && log->bytes <= max - batch->size;
}

enum hf_err hf_entries_reserve(struct hf_entries *log)
{
    if (log->slices.count == log->slices.capacity)
        hf_entries_collect(log, COLLECT_MIN);
    return hf_ring_reserve(&log->slices, sizeof(struct hf_slice));
}

void hf_entries_attach(struct hf_entries *log, struct hf_batch *batch,
                       size_t skip)
{
    struct hf_slice *slice;

    HF_ASSERT(skip < batch->count);
    slice = hf_ring_push(&log->slices, sizeof(*slice));
    *slice = (struct hf_slice){
        .batch = batch,
        .first = log->last + 1,
        .skip = skip,
        .count = batch->count - skip,
    };
    log->last += batch->count - skip;
    log->bytes += batch->size;
}

enum hf_err hf_entries_append(struct hf_entries *log,
                              const struct hf_entry *entries, size_t count)
{
    struct hf_batch *batch = hf_batch_new(entries, count);
    enum hf_err err = batch ? hf_entries_reserve(log) : HF_ENOMEM;

    if (err) {
        hf_batch_free(batch);
        return err;
    }
    hf_entries_attach(log, batch, 0);
    return HF_OK;
}

const struct hf_entry *hf_entries_find(const struct hf_entries *log,
                                       uint64_t index)
{
    const struct hf_slice *slice;

    if (index <= log->base_index || index > log->last)
        return NULL;
    slice = find_slice(log, index);
    return &slice->batch->entries[slice->skip + (index - slice->first)];
}

uint64_t hf_entries_term(const struct hf_entries *log, uint64_t index)
{
    const struct hf_entry *entry = hf_entries_find(log, index);

    if (entry)
        return entry->term;
    return index == log->base_index ? log->base_term : 0;
}

uint64_t hf_entries_count_last(const struct hf_entries *log, uint64_t index,
                               uint64_t max, size_t bytes)
{
    uint64_t count = 0;

    while (count < max) {
        const struct hf_entry *entry = hf_entries_find(log, index - count);
        size_t size = entry ? sizeof(*entry) + entry->data.size : 0;

        if (!entry || size > bytes)
            break;
        bytes -= size;
        count++;
    }
    return count;
}

void hf_entries_cut(struct hf_entries *log, uint64_t index)
{
    HF_ASSERT(index > log->base_index);
    while (log->last >= index) {
        struct hf_slice *slice = slice_at(log, log->slices.count - 1);

        if (slice->first < index) {
            slice->count = index - slice->first;
            log->last = index - 1;
        } else {
            log->last = slice->first - 1;
            drop_last(log);
        }
    }
}

void hf_entries_compact(struct hf_entries *log, uint64_t index)
{
    if (index <= log->base_index || index > log->last)
        return;
    log->base_term = hf_entries_term(log, index);
    log->base_index = index;
    while (log->dead < log->slices.count) {
        struct hf_slice *slice = slice_at(log, log->dead);

        if (slice->first + slice->count > index + 1) {
            if (slice->first <= index) {
                slice->skip += index + 1 - slice->first;
                slice->count -= index + 1 - slice->first;
                slice->first = index + 1;
            }
            return;
        }
        retire_first(log);
    }
}

void hf_entries_reset(struct hf_entries *log, uint64_t index, uint64_t term)
{
    while (log->dead < log->slices.count)
        retire_first(log);
    log->base_index = log->last = index;
    log->base_term = term;
}

void hf_entries_collect(struct hf_entries *log, size_t max)
{
    for (; max > 0 && log->dead > 0; max--) {
        hf_batch_free(slice_at(log, 0)->batch);
        hf_ring_drop_first(&log->slices);
        log->dead--;
    }
}

size_t hf_entries_read(const struct hf_entries *log, uint64_t first, size_t max,
                       size_t bytes, struct hf_entry *out)
{
    size_t count = 0;

    while (count < max) {
        const struct hf_entry *entry = hf_entries_find(log, first + count);

        if (!entry || (count > 0 && entry->data.size > bytes))
            break;
        bytes -= entry->data.size < bytes ? entry->data.size : bytes;
        out[count++] = *entry;
    }
    return count;
}
