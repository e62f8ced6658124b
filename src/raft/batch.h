/* batch.h - entries of the replicated log, copied together.
 *
 * A batch is one allocation for n entries and their bytes. */
#ifndef HF_RAFT_BATCH_H
#define HF_RAFT_BATCH_H

#include <stdint.h>

#include "base/bytes.h"

enum hf_entry_kind {
    HF_ENTRY_COMMAND = 1,
    HF_ENTRY_BARRIER, /* the no-op of a new leader */
    HF_ENTRY_CHANGE,  /* the voters, see membership.h */
};

struct hf_entry {
    uint64_t term;
    enum hf_entry_kind kind;
    struct hf_bytes data;
};

struct hf_batch {
    size_t size; /* of the allocation */
    size_t count;
    struct hf_entry entries[]; /* followed by their bytes */
};

/* Copy `count` entries, at least 1. Returns NULL if memory is exhausted. */
struct hf_batch *hf_batch_new(const struct hf_entry *entries, size_t count);
void hf_batch_free(struct hf_batch *batch);

#endif
