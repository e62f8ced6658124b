#include "raft/writes.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"

void hf_writes_fini(struct hf_writes *writes)
{
    free(writes->ring);
    *writes = (struct hf_writes){0};
}

static struct hf_write *find_write_at(const struct hf_writes *writes, size_t i)
{
    HF_ASSERT(writes->capacity > 0);
    return &writes->ring[(writes->head + i) % writes->capacity];
}

enum hf_err hf_writes_reserve(struct hf_writes *writes)
{
    size_t capacity = writes->capacity > 0 ? writes->capacity * 2 : 16;
    struct hf_write *ring;

    if (writes->count < writes->capacity)
        return HF_OK;
    if (writes->count >= HF_RAFT_WRITES_MAX)
        return HF_ELIMIT;
    ring = malloc(capacity * sizeof(*ring));
    if (!ring)
        return HF_ENOMEM;
    for (size_t i = 0; i < writes->count; i++)
        ring[i] = *find_write_at(writes, i);
    free(writes->ring);
    writes->ring = ring;
    writes->head = 0;
    writes->capacity = capacity;
    return HF_OK;
}

/* The entries from `first` on are replaced. Earlier writes no longer make them
 * durable. */
static void replace_entries(struct hf_writes *writes, uint64_t first)
{
    for (size_t i = writes->count; i > 0; i--) {
        struct hf_write *write = find_write_at(writes, i - 1);

        if (write->last >= first)
            write->last = first - 1;
    }
    writes->last = first - 1;
}

void hf_writes_push(struct hf_writes *writes, const struct hf_write *write,
                    uint64_t first)
{
    HF_ASSERT(writes->count < writes->capacity);
    if (first > 0 && first <= writes->last)
        replace_entries(writes, first);
    if (write->last > writes->last)
        writes->last = write->last;
    writes->count++;
    *find_write_at(writes, writes->count - 1) = *write;
}

uint64_t hf_writes_take(struct hf_writes *writes, uint64_t number,
                        bool *installed)
{
    uint64_t last = 0;

    while (writes->count > 0 && find_write_at(writes, 0)->number <= number) {
        const struct hf_write *write = find_write_at(writes, 0);

        if (write->last > last)
            last = write->last;
        if (write->installs)
            *installed = true;
        writes->head = (writes->head + 1) % writes->capacity;
        writes->count--;
    }
    return last;
}
