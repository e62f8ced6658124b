/* wal.h - the write-ahead log of a raft node: term, vote and entries.
 *
 * The owner, one thread, appends to a batch in memory. A flush makes a batch
 * durable, as one record (record.h), while the owner fills the next batch:
 *
 *     hf_wal_append_entries(wal, index, entries, count);     owner
 *     if (hf_wal_flush_begin(wal, &flush)) {                 owner
 *         hf_wal_flush_run(&flush);                          any thread
 *         err = hf_wal_flush_end(wal, &flush);               owner
 *         durable = hf_wal_durable(wal);
 *     }
 *
 * A *record* is what one flush writes, valid as a whole or not at all. The
 * files of the log are *segments*; the number of a segment is its *epoch*,
 * which is never used twice. The *base* is the entry after which the log
 * begins. The *reserve* is files that are kept written, so that a full disk
 * does not stop releases and snapshots.
 *
 * In the same way, *upkeep* prepares the next segment, recycles old ones and
 * keeps space in reserve. One flush and one upkeep may run at the same time, in
 * two threads. Only hf_wal_open(), hf_wal_flush_run() and hf_wal_upkeep_run()
 * read, write or sync files.
 *
 * Always true:
 *   1. what hf_wal_durable() has reported survives any crash, until it is
 *      replaced by a later append;
 *   2. after a crash the log is as it was at the end of some record that was
 *      flushed or being flushed;
 *   3. a record is written after the one before it is durable, so damage in
 *      front of a valid record is never a torn write, and hf_wal_open()
 *      refuses it;
 *   4. after a write error other than a full disk, or a failed sync, the log
 *      is dead: nothing is written or reported as durable any more. */
#ifndef HF_LOG_WAL_H
#define HF_LOG_WAL_H

#include "log/disk.h"
#include "log/identity.h"
#include "log/record.h"

struct hf_wal;

/* A snapshot: the state after entry `index`. */
struct hf_log_snapshot {
    uint64_t index; /* 0: there is no snapshot */
    uint64_t term;
};

struct hf_wal_opts {
    struct hf_log_identity identity;
    struct hf_log_snapshot snapshot; /* the newest valid one */
    unsigned segments_max;           /* 0: HF_WAL_SEGMENTS_MAX */
};

/* What hf_wal_open() found, besides the entries. */
struct hf_wal_recovered {
    struct hf_log_state state;
    struct hf_log_snapshot base; /* the log begins after this entry; the term
                                    is 0 if it is not known */
    bool discarded; /* the log was reset to begin after the snapshot: its
                       entries were older, or contradicted the snapshot */
};

/* Open the log and pass its content to `visitor`. Blocks.
 *
 * A torn record at the end is cut off. If the log does not contain the entry of
 * the snapshot, and does not begin after exactly this entry, then a crash came
 * between installing the snapshot and resetting the log: the reset is done now.
 * What was recovered is durable when this returns.
 *
 * HF_EPROTO        the log is damaged, or a file is missing; `*error` says
 *                  which, and where the damage is if that is known
 * HF_EINVAL        a file of another cluster or node
 * HF_EUNSUPPORTED  a file of a newer version
 * HF_ELIMIT        the disk is full, or there are too many segments
 * HF_ESYSTEM, HF_ENOMEM, and the first error of the visitor */
enum hf_err hf_wal_open(struct hf_disk *disk, const struct hf_wal_opts *opts,
                        const struct hf_log_visitor *visitor,
                        struct hf_wal **wal, struct hf_wal_recovered *recovered,
                        struct hf_error *error);

/* Close the files, without flushing. Every upkeep must have ended, and no
 * thread may be inside hf_wal_flush_run(). Accepts NULL. */
void hf_wal_close(struct hf_wal *wal);

/* ---- Appending ----------------------------------------------------------
 *
 * HF_ELIMIT   an entry is longer than hf_wal_entry_max(), or more than
 *             HF_WAL_PENDING_MAX bytes would wait for a flush; nothing was
 *             appended
 * HF_ENOMEM   a part of the entries may have been appended: the node must stop
 * HF_ESYSTEM  the log is dead */

/* Set term and vote; a vote of 0 is none. The term never decreases, and a vote
 * does not change within a term. */
enum hf_err hf_wal_append_state(struct hf_wal *wal, uint64_t term,
                                uint64_t vote);

/* Remove all entries from `index` on, and append copies of `entries`, at least
 * one. `index` is at most the last index + 1. */
enum hf_err hf_wal_append_entries(struct hf_wal *wal, uint64_t index,
                                  const struct hf_log_entry *entries,
                                  size_t count);

/* Remove all entries. The log continues after `snapshot`, which must be durable
 * already. */
enum hf_err hf_wal_append_base(struct hf_wal *wal,
                               struct hf_log_snapshot snapshot);

size_t hf_wal_entry_max(const struct hf_wal *wal);

/* ---- Flushing -----------------------------------------------------------*/

struct hf_wal_flush {
    struct hf_disk_file *file;
    uint64_t offset;
    uint8_t *data;
    size_t size;
    struct hf_record record; /* hf_wal_flush_run() computes its checksum */
    struct hf_seed secret;
    bool in_next;          /* this record is the first of the next segment */
    int write_rc, sync_rc; /* results of hf_wal_flush_run() */
};

/* Returns true if something waits for a flush. */
bool hf_wal_is_pending(const struct hf_wal *wal);

/* Start a flush of the oldest batch. Returns false if there is nothing to
 * flush, a flush is running, the log is dead, memory is exhausted, or the batch
 * needs the next segment, which upkeep has not prepared yet. */
bool hf_wal_flush_begin(struct hf_wal *wal, struct hf_wal_flush *flush);

/* Compute the checksum, write and sync. Any thread may call this. */
void hf_wal_flush_run(struct hf_wal_flush *flush);

/* End a flush that has run.
 *
 * HF_OK      the batch is durable; see hf_wal_durable()
 * HF_ELIMIT  the disk is full; the batch still waits, so try again later
 * Otherwise the log is dead, and the node must stop: hf_wal_error(). */
enum hf_err hf_wal_flush_end(struct hf_wal *wal,
                             const struct hf_wal_flush *flush);

/* What is durable. `last_index` is the highest index whose durable entry was
 * not replaced by a later append, which may not be durable yet; `last_term` is
 * meaningful only if no such append is pending. */
struct hf_log_state hf_wal_durable(const struct hf_wal *wal);

/* Set `*error` to the reason why the log is dead; its code is HF_OK if the log
 * is not dead. */
void hf_wal_error(const struct hf_wal *wal, struct hf_error *error);

/* ---- Upkeep -------------------------------------------------------------*/

enum hf_wal_task {
    HF_WAL_FREE,    /* recycle or remove the oldest segment */
    HF_WAL_DROP,    /* remove a spare segment, on a full disk */
    HF_WAL_PREPARE, /* prepare the next segment */
    HF_WAL_SPARE,   /* make a spare segment */
    HF_WAL_RESERVE, /* keep space for the next snapshot */
};

struct hf_wal_upkeep {
    struct hf_disk *disk;
    struct hf_log_identity identity;
    enum hf_wal_task task;
    uint64_t epoch;
    uint64_t size, least;    /* RESERVE: bytes; `least` if the disk is full */
    char from[HF_DISK_NAME]; /* the file to rename or remove; empty: none */
    char to[HF_DISK_NAME];   /* the name of the result; empty: none */
    struct hf_disk_file *file;
    int rc;
};

/* Choose a task and start it. Returns false if there is nothing to do, an
 * upkeep is running, or the log is dead. If the last task ended with HF_ELIMIT
 * or HF_ENOMEM, the same one may be chosen again, so call this after a pause
 * then, not at once. */
bool hf_wal_upkeep_begin(struct hf_wal *wal, struct hf_wal_upkeep *upkeep);

/* Do the task. Any thread may call this. It may write a whole segment or the
 * reserve, and so take long. */
void hf_wal_upkeep_run(struct hf_wal_upkeep *upkeep);

/* End a task that has run. Returns HF_OK, HF_ELIMIT if the disk is full, or
 * HF_ENOMEM if memory or descriptors are exhausted; the task can be tried
 * again. Otherwise the log is dead, and the node must stop: hf_wal_error(). */
enum hf_err hf_wal_upkeep_end(struct hf_wal *wal,
                              const struct hf_wal_upkeep *upkeep);

/* Run upkeep in this thread until nothing is left to do. Returns the errors of
 * hf_wal_upkeep_end(). */
enum hf_err hf_wal_upkeep_now(struct hf_wal *wal);

/* Entries up to `index` are no longer needed: they are in a durable snapshot,
 * and no follower is expected to ask for them. Upkeep recycles or removes the
 * oldest segments, except the current one, while they contain no other
 * entries. */
void hf_wal_compact(struct hf_wal *wal, uint64_t index);

/* The index up to which entries must be compacted before upkeep can free the
 * oldest segment; 0 if the current segment is the only one. */
uint64_t hf_wal_oldest_end(const struct hf_wal *wal);

/* The number of segments, the next and spare ones included. */
size_t hf_wal_segment_count(const struct hf_wal *wal);

/* ---- Space --------------------------------------------------------------
 *
 * In reserve are the next segment, a spare one, and the file
 * HF_WAL_RESERVE_FILE, which the next snapshot overwrites in place. */

#define HF_WAL_RESERVE_FILE "reserve"

enum hf_wal_space {
    HF_WAL_SPACE_OK,
    HF_WAL_SPACE_LOW,  /* accept only work that releases something */
    HF_WAL_SPACE_NONE, /* nothing can be written now */
};

enum hf_wal_space hf_wal_space(const struct hf_wal *wal);

/* Keep `size` bytes in reserve for snapshots, and the size of a segment more,
 * for what the table grows by before upkeep finds the disk full; at least
 * HF_WAL_RESERVE_MIN bytes. Upkeep extends the reserve, and never shortens
 * it. */
void hf_wal_reserve(struct hf_wal *wal, uint64_t size);

/* Stop upkeep of the reserve until hf_wal_reserve_return(), because a snapshot
 * is about to be written into it. Returns false if upkeep is working on the
 * reserve: try again when that upkeep has ended. */
bool hf_wal_reserve_lend(struct hf_wal *wal);
void hf_wal_reserve_return(struct hf_wal *wal);

#endif
