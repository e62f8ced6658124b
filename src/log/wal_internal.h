/* wal_internal.h - what the sources of the write-ahead log share.
 *
 *     segments[0] ... segments[count - 1]     next           spare files
 *     oldest          current, written at     prepared,
 *                     `offset`                without records
 */
#ifndef HF_LOG_WAL_INTERNAL_H
#define HF_LOG_WAL_INTERNAL_H

#include "base/dlist.h"
#include "base/limits.h"
#include "log/segment.h"
#include "log/wal.h"

/* One record, while it is being filled, or waits for a flush. */
struct hf_wal_batch {
    struct hf_dlist link;
    struct hf_buf buf;
    struct hf_log_state before; /* only last_index and last_term are used */
    struct hf_log_state after;
    uint64_t lowest;  /* older entries from this index on, durable or not,
                         are replaced by this batch; UINT64_MAX: none */
    uint64_t highest; /* highest index of an entry or a base; 0: none */
    bool has_base;
};

struct hf_wal_segment {
    uint64_t epoch;
    uint64_t highest; /* highest index in it; 0: none that is needed */
};

struct hf_wal {
    struct hf_disk *disk;
    struct hf_log_identity identity;
    size_t record_max;

    struct hf_wal_segment *segments;
    size_t segment_count;
    size_t segments_max;
    struct hf_disk_file *file; /* the current segment */
    uint64_t offset;           /* where the next record starts */
    uint64_t previous;         /* checksum of the last durable record */
    struct hf_disk_file *next; /* NULL: not prepared */

    struct hf_dlist batches;      /* oldest first */
    struct hf_wal_batch *filling; /* appends go here; NULL: to a new batch */
    struct hf_wal_batch *unused;  /* kept for reuse, or NULL */
    size_t pending_bytes;
    struct hf_log_state appended;
    struct hf_log_state durable;
    bool flushing;

    uint64_t compact_to;
    uint64_t spares[HF_WAL_SPARES_MAX]; /* numbers of spare files */
    size_t spare_count;
    uint64_t next_spare;
    uint64_t reserve, reserve_wanted; /* bytes */
    bool reserve_is_lent;
    bool upkeep_runs;
    enum hf_wal_task upkeep_task;
    bool is_low;           /* upkeep found the disk full, and has work left */
    bool is_starved;       /* the next record waits for the next segment */
    bool is_full;          /* the last flush found the disk full */
    struct hf_error error; /* HF_OK: not dead */
};

/* The epoch of the next segment. */
static inline uint64_t hf_wal_next_epoch(const struct hf_wal *wal)
{
    return wal->segments[wal->segment_count - 1].epoch + 1;
}

/* Mark the log as dead because an operation on the file `name` failed with
 * `rc`. `what` is for the error message. Returns HF_ESYSTEM. */
enum hf_err hf_wal_die(struct hf_wal *wal, const char *name, const char *what,
                       int rc);

/* Read all segments. Sets the members of `wal` that describe segments, spare
 * files and what is durable. Returns the errors of hf_wal_open(). */
enum hf_err hf_wal_recover(struct hf_wal *wal, const struct hf_wal_opts *opts,
                           const struct hf_log_visitor *visitor,
                           struct hf_wal_recovered *recovered,
                           struct hf_error *error);

#endif
