#include "raft/batch.h"

#include <stdlib.h>

#include "base/assert.h"

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
