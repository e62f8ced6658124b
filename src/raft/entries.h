/* entries.h - the part of the replicated log that is in memory.
 *
 * An entry has an index, a term, a kind and bytes. The log contains the entries
 * after its base without gaps; the base is the last entry that was forgotten,
 * and its term is still known. Entries arrive in batches: one allocation for n
 * entries and their bytes. Cutting the tail and compacting the head only move
 * bounds; a batch is freed when the log contains none of its entries.
 *
 * Pure, and owned by one thread. */
#ifndef HF_RAFT_ENTRIES_H
#define HF_RAFT_ENTRIES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"

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

/* Copies of n entries and their bytes, in one allocation. */
struct hf_batch;

/* Copy `count` entries, at least 1. Returns NULL if memory is exhausted. */
struct hf_batch *hf_batch_new(const struct hf_entry *entries, size_t count);
void hf_batch_free(struct hf_batch *batch);

/* The part of a batch that is in the log. */
struct hf_slice {
    struct hf_batch *batch;
    uint64_t first; /* index of its first entry in the log */
    size_t skip;    /* entries of the batch that come before `first` */
    size_t count;
};

struct hf_entries {
    struct hf_slice *slices; /* a ring, in order of index */
    size_t head, count, capacity;
    uint64_t base_index, base_term; /* 0, 0: the log begins at index 1 */
    uint64_t last;    /* index of the last entry, or of the base */
    size_t bytes;     /* allocated for batches */
    size_t bytes_max; /* 0: HF_RAFT_LOG_BYTES */
};

/* Remove all entries and free the memory. A zeroed struct is an empty log. */
void hf_entries_fini(struct hf_entries *log);

/* Returns true if the log stays within its limit with `batch`. */
bool hf_entries_has_room(const struct hf_entries *log,
                         const struct hf_batch *batch);

/* Ensure that hf_entries_attach() can add one batch. Returns HF_ENOMEM if
 * memory is exhausted. */
enum hf_err hf_entries_reserve(struct hf_entries *log);

/* Append the entries of `batch`, without the first `skip`, after
 * hf_entries_reserve(). The log owns the batch then. */
void hf_entries_attach(struct hf_entries *log, struct hf_batch *batch,
                       size_t skip);

/* Append copies of `entries`. Returns HF_ELIMIT if they do not fit into the
 * log, or HF_ENOMEM; the log is unchanged then. */
enum hf_err hf_entries_append(struct hf_entries *log,
                              const struct hf_entry *entries, size_t count);

/* Returns entry `index`, which is valid until it is cut or compacted, or NULL
 * if the log does not contain it. */
const struct hf_entry *hf_entries_find(const struct hf_entries *log,
                                       uint64_t index);

/* Returns the term of entry `index`, which may be the base, or 0 if it is
 * unknown. */
uint64_t hf_entries_term(const struct hf_entries *log, uint64_t index);

/* Remove the entries from `index` on; `index` is after the base. */
void hf_entries_cut(struct hf_entries *log, uint64_t index);

/* Forget the entries up to `index`, which becomes the base. Does nothing unless
 * the log contains it. */
void hf_entries_compact(struct hf_entries *log, uint64_t index);

/* Remove all entries. The log then begins after the entry `index` of `term`. */
void hf_entries_reset(struct hf_entries *log, uint64_t index, uint64_t term);

/* Copy up to `max` entries from `first` on to `out`, with at most `bytes` bytes
 * of data together, but at least one entry. Returns how many, or 0 if the log
 * does not contain `first`. */
size_t hf_entries_read(const struct hf_entries *log, uint64_t first, size_t max,
                       size_t bytes, struct hf_entry *out);

#endif
