#include "raft/entries.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"

struct hf_batch {
    size_t size; /* of the allocation */
    size_t count;
    struct hf_entry entries[]; /* followed by their bytes */
};

/* ---- Batches ------------------------------------------------------------*/

struct hf_batch *hf_batch_new(const struct hf_entry *entries, size_t count)
{
    size_t size = sizeof(struct hf_batch) + count * sizeof(struct hf_entry);
    struct hf_batch *batch;
    uint8_t *bytes;

    HF_ASSERT(count > 0);
    for (size_t i = 0; i < count; i++)
        size += entries[i].data.size;
    batch = malloc(size);
    if (!batch)
        return NULL;
    batch->size = size;
    batch->count = count;
    bytes = (uint8_t *)&batch->entries[count];
    for (size_t i = 0; i < count; i++) {
        batch->entries[i] = entries[i];
        batch->entries[i].data.data = bytes;
        hf_copy(bytes, entries[i].data.data, entries[i].data.size);
        bytes += entries[i].data.size;
    }
    return batch;
}

void hf_batch_free(struct hf_batch *batch)
{
    free(batch);
}

/* ---- The ring of slices -------------------------------------------------*/

static struct hf_slice *slice_at(const struct hf_entries *log, size_t i)
{
    return &log->slices[(log->head + i) % log->capacity];
}

static enum hf_err grow_slices(struct hf_entries *log)
{
    size_t capacity = log->capacity > 0 ? log->capacity * 2 : 16;
    struct hf_slice *slices = malloc(capacity * sizeof(*slices));

    if (!slices)
        return HF_ENOMEM;
    for (size_t i = 0; i < log->count; i++)
        slices[i] = *slice_at(log, i);
    free(log->slices);
    log->slices = slices;
    log->head = 0;
    log->capacity = capacity;
    return HF_OK;
}

static void drop_batch(struct hf_entries *log, struct hf_slice *slice)
{
    log->bytes -= slice->batch->size;
    hf_batch_free(slice->batch);
    log->count--;
}

/* The slice that contains `index`, which is in the log. */
static const struct hf_slice *find_slice(const struct hf_entries *log,
                                         uint64_t index)
{
    size_t low = 0;
    size_t high = log->count;

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
    free(log->slices);
    *log = (struct hf_entries){0};
}

bool hf_entries_has_room(const struct hf_entries *log,
                         const struct hf_batch *batch)
{
    size_t max = log->bytes_max > 0 ? log->bytes_max : HF_RAFT_LOG_BYTES;

    return batch->size <= max && log->bytes <= max - batch->size;
}

enum hf_err hf_entries_reserve(struct hf_entries *log)
{
    return log->count == log->capacity ? grow_slices(log) : HF_OK;
}

void hf_entries_attach(struct hf_entries *log, struct hf_batch *batch,
                       size_t skip)
{
    HF_ASSERT(log->count < log->capacity);
    HF_ASSERT(skip < batch->count);
    *slice_at(log, log->count) = (struct hf_slice){
        .batch = batch,
        .first = log->last + 1,
        .skip = skip,
        .count = batch->count - skip,
    };
    log->count++;
    log->last += batch->count - skip;
    log->bytes += batch->size;
}

enum hf_err hf_entries_append(struct hf_entries *log,
                              const struct hf_entry *entries, size_t count)
{
    struct hf_batch *batch = hf_batch_new(entries, count);
    enum hf_err err = batch ? hf_entries_reserve(log) : HF_ENOMEM;

    if (!err && !hf_entries_has_room(log, batch))
        err = HF_ELIMIT;
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

void hf_entries_cut(struct hf_entries *log, uint64_t index)
{
    HF_ASSERT(index > log->base_index);
    while (log->last >= index) {
        struct hf_slice *slice = slice_at(log, log->count - 1);

        if (slice->first < index) {
            slice->count = index - slice->first;
            log->last = index - 1;
        } else {
            log->last = slice->first - 1;
            drop_batch(log, slice);
        }
    }
}

void hf_entries_compact(struct hf_entries *log, uint64_t index)
{
    if (index <= log->base_index || index > log->last)
        return;
    log->base_term = hf_entries_term(log, index);
    log->base_index = index;
    while (log->count > 0) {
        struct hf_slice *slice = slice_at(log, 0);

        if (slice->first + slice->count > index + 1) {
            if (slice->first <= index) {
                slice->skip += index + 1 - slice->first;
                slice->count -= index + 1 - slice->first;
                slice->first = index + 1;
            }
            return;
        }
        log->head = (log->head + 1) % log->capacity;
        drop_batch(log, slice);
    }
}

void hf_entries_reset(struct hf_entries *log, uint64_t index, uint64_t term)
{
    while (log->count > 0)
        drop_batch(log, slice_at(log, log->count - 1));
    log->base_index = log->last = index;
    log->base_term = term;
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
