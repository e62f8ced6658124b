/* writes.h - which part of the log is durable.
 *
 * Each write that the engine asks for has a number, and writes become durable
 * in that order. A write contains entries up to `last`. If later entries
 * replace some of them before the write is durable, it no longer makes these
 * indexes durable: their new entries are not on the disk yet, and a crash would
 * lose entries that a leader counts as committed. */
#ifndef HF_RAFT_WRITES_H
#define HF_RAFT_WRITES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ring.h"

struct hf_write {
    uint64_t number;
    uint64_t last; /* last index that this write makes durable; 0: none */
    bool installs; /* it installs a snapshot and resets the log */
};

struct hf_writes {
    struct hf_ring ring; /* of struct hf_write */
    uint64_t last;       /* highest index written so far, durable or not */
};

/* Free the memory. A zeroed struct is an empty queue. */
void hf_writes_fini(struct hf_writes *writes);

/* Ensure room for one write more. Returns HF_ELIMIT if HF_RAFT_WRITES_MAX
 * writes are not durable, or HF_ENOMEM. */
enum hf_err hf_writes_reserve(struct hf_writes *writes);

/* Add a write that replaces the entries from `first` on (0: none). The caller
 * has called hf_writes_reserve(). */
void hf_writes_push(struct hf_writes *writes, const struct hf_write *write,
                    uint64_t first);

/* Remove the writes up to `number`, which are durable. Returns the highest
 * index that they made durable and that was not replaced, or 0. Sets
 * `*installed` to true if one of them installed a snapshot, and else leaves it
 * unchanged. */
uint64_t hf_writes_take(struct hf_writes *writes, uint64_t number,
                        bool *installed);

#endif
