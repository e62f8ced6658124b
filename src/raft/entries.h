/* entries.h - the part of the replicated log that is in memory.
 *
 * An entry has an index, a term, a kind and bytes. The log contains the entries
 * after its base without gaps; the base is the last entry that was forgotten,
 * and its term is still known. Entries arrive in batches: one allocation for n
 * entries and their bytes. Cutting the tail and compacting the head only move
 * bounds. The batches that compaction removes from the log are dead, and are
 * freed a few at a time (hf_entries_collect()), because freeing all of them at
 * once would take long.
 *
 * Pure, and owned by one thread. */
#ifndef HF_RAFT_ENTRIES_H
#define HF_RAFT_ENTRIES_H

#include <stdbool.h>

#include "base/ring.h"
#include "raft/batch.h"

/* The part of a batch that is in the log. */
struct hf_slice {
    struct hf_batch *batch;
    uint64_t first; /* index of its first entry in the log */
    size_t skip;    /* entries of the batch that come before `first` */
    size_t count;
};

struct hf_entries {
    struct hf_ring
        slices;  /* of struct hf_slice: the dead ones, then by index */
    size_t dead; /* how many of the first slices are not in the log any more */
    uint64_t base_index, base_term; /* 0, 0: the log begins at index 1 */
    uint64_t last;    /* index of the last entry, or of the base */
    size_t bytes;     /* allocated for batches, without the dead ones */
    size_t bytes_max; /* see hf_entries_bytes_max(); 0: HF_RAFT_LOG_BYTES */
};

/* Remove all entries and free the memory. A zeroed struct is an empty log. */
void hf_entries_fini(struct hf_entries *log);

/* The limit on log->bytes beyond which a leader accepts no commands. */
size_t hf_entries_bytes_max(const struct hf_entries *log);

/* Returns true if the log stays within its limit with `batch`. Only a leader
 * that appends commands asks, because followers must store what it accepts. */
bool hf_entries_has_room(const struct hf_entries *log,
                         const struct hf_batch *batch);

/* Ensure that hf_entries_attach() can add one batch. Returns HF_ENOMEM if
 * memory is exhausted. */
enum hf_err hf_entries_reserve(struct hf_entries *log);

/* Append the entries of `batch`, without the first `skip`, after
 * hf_entries_reserve(). The log owns the batch then. */
void hf_entries_attach(struct hf_entries *log, struct hf_batch *batch,
                       size_t skip);

/* Append copies of `entries`, whatever the limit. Returns HF_ENOMEM if memory
 * is exhausted; the log is unchanged then. */
enum hf_err hf_entries_append(struct hf_entries *log,
                              const struct hf_entry *entries, size_t count);

/* Returns entry `index`, which is valid until it is cut or compacted, or NULL
 * if the log does not contain it. */
const struct hf_entry *hf_entries_find(const struct hf_entries *log,
                                       uint64_t index);

/* Returns the term of entry `index`, which may be the base, or 0 if it is
 * unknown. */
uint64_t hf_entries_term(const struct hf_entries *log, uint64_t index);

/* Returns how many entries that end with `index` take at most `bytes` bytes of
 * memory together, but at most `max`. */
uint64_t hf_entries_count_last(const struct hf_entries *log, uint64_t index,
                               uint64_t max, size_t bytes);

/* Remove the entries from `index` on; `index` is after the base. */
void hf_entries_cut(struct hf_entries *log, uint64_t index);

/* Forget the entries up to `index`, which becomes the base. Does nothing unless
 * the log contains it. hf_entries_collect() frees them. */
void hf_entries_compact(struct hf_entries *log, uint64_t index);

/* Remove all entries. The log then begins after the entry `index` of `term`.
 * hf_entries_collect() frees the entries. */
void hf_entries_reset(struct hf_entries *log, uint64_t index, uint64_t term);

/* Free up to `max` batches that are not in the log any more. */
void hf_entries_collect(struct hf_entries *log, size_t max);

/* Copy up to `max` entries from `first` on to `out`, with at most `bytes` bytes
 * of data together, but at least one entry. Returns how many, or 0 if the log
 * does not contain `first`. */
size_t hf_entries_read(const struct hf_entries *log, uint64_t first, size_t max,
                       size_t bytes, struct hf_entry *out);

#endif
