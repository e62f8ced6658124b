#include "raft/writes.h"

#include "base/limits.h"

void hf_writes_fini(struct hf_writes *writes)
{
    hf_ring_fini(&writes->ring);
    *writes = (struct hf_writes){0};
}

static struct hf_write *find_write_at(const struct hf_writes *writes, size_t i)
{
    return hf_ring_at(&writes->ring, sizeof(struct hf_write), i);
}

enum hf_err hf_writes_reserve(struct hf_writes *writes)
{
    if (writes->ring.count >= HF_RAFT_WRITES_MAX)
        return HF_ELIMIT;
    return hf_ring_reserve(&writes->ring, sizeof(struct hf_write));
}

/* The entries from `first` on are replaced. Earlier writes no longer make them
 * durable. */
static void replace_entries(struct hf_writes *writes, uint64_t first)
{
    for (size_t i = writes->ring.count; i > 0; i--) {
        struct hf_write *write = find_write_at(writes, i - 1);

        if (write->last >= first)
            write->last = first - 1;
    }
    writes->last = first - 1;
}

void hf_writes_push(struct hf_writes *writes, const struct hf_write *write,
                    uint64_t first)
{
    struct hf_write *pushed;

    if (first > 0 && first <= writes->last)
        replace_entries(writes, first);
    if (write->last > writes->last)
        writes->last = write->last;
    pushed = hf_ring_push(&writes->ring, sizeof(*pushed));
    *pushed = *write;
}

uint64_t hf_writes_take(struct hf_writes *writes, uint64_t number,
                        bool *installed)
{
    uint64_t last = 0;

    while (writes->ring.count > 0 &&
           find_write_at(writes, 0)->number <= number) {
        const struct hf_write *write = find_write_at(writes, 0);

        if (write->last > last)
            last = write->last;
        if (write->installs)
            *installed = true;
        hf_ring_drop_first(&writes->ring);
    }
    return last;
}
