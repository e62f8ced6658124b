/* model.h - a simple model of the write-ahead log, and a log on a simulated
 * disk that is compared with the model after a crash. */
#ifndef HF_TESTS_LOG_MODEL_H
#define HF_TESTS_LOG_MODEL_H

#include "base/random.h"
#include "log/snapshot_file.h"
#include "log/wal.h"
#include "sim/sim_disk.h"

#define MODEL_ENTRIES_MAX 400
#define MODEL_KEPT 4 /* flushes that run_flushed() remembers */
#define MODEL_SEGMENT_SIZE 8192

/* ---- The model ----------------------------------------------------------*/

struct model_entry {
    uint64_t term;
    uint64_t hash; /* of kind and data */
};

struct model {
    struct hf_log_state state;
    struct hf_log_snapshot base;
    struct model_entry entries[MODEL_ENTRIES_MAX]; /* from base.index + 1 */
    size_t count;
};

void model_add(struct model *model, uint64_t index,
               const struct hf_log_entry *entry);
void model_set_base(struct model *model, uint64_t index, uint64_t term);

/* A visitor that fills a model. */
struct hf_log_visitor model_visitor(struct model *model);

/* Returns why the recovered log is not the expected one, or NULL if it is. The
 * recovered log may begin later, if its first entries were recycled. */
const char *model_compare(const struct model *expected,
                          const struct model *recovered);

/* Do what recovery does with the newest snapshot: a log that contradicts it, or
 * ends before it, is replaced with an empty log after it. */
void model_match_snapshot(struct model *model, struct hf_log_snapshot snapshot);

/* ---- A node's directory on a simulated disk -----------------------------*/

extern const struct hf_log_identity model_identity;

struct run {
    struct sim_disk *sim;
    struct hf_disk *disk; /* NULL while closed */
    struct hf_wal *wal;
    struct hf_wal_recovered recovered;
    struct hf_error error, damaged;
    struct hf_random random;

    struct model now;              /* the log with unflushed appends */
    struct model kept[MODEL_KEPT]; /* see run_flushed() */
    /* Numbers of the last flush that began, and of the last that succeeded. */
    size_t begun, acked;
    bool is_retry;                   /* the last flush found the disk full */
    bool has_stopped;                /* an install failed: a real node stops */
    size_t unflushed;                /* roughly the bytes in the next batch */
    struct hf_log_snapshot snapshot; /* the newest durable one */
    struct hf_log_snapshot snapshot_begun;
};

/* The log as it was when flush `number` began, for the last MODEL_KEPT flushes.
 * Number 0 is the log that run_open() recovered. */
struct model *run_flushed(struct run *run, size_t number);

/* Initialise a directory on a new disk and open it. `seed` decides what
 * run_step() does. */
struct run *run_new(uint64_t seed);
void run_free(struct run *run);

/* Initialise the directory on run->sim without opening it. */
enum hf_err run_init(struct run *run);

/* Open the directory, and check that the log is as it was at the last flush
 * that was acknowledged, or at a later one that had begun. The model continues
 * from what was recovered. Returns an error if the directory, its snapshot or
 * its log cannot be opened. */
enum hf_err run_open(struct run *run);

/* Close the log and the directory without a flush, as if the process ended. */
void run_close(struct run *run);

/* Do one random step: append, vote, flush, maintain, take or install a
 * snapshot, or nothing. Returns false if it failed. */
bool run_step(struct run *run);

/* Do one step. All return false if it failed. run_append() appends `count`
 * entries of `size` random bytes, the first at `index`. run_snapshot() takes a
 * snapshot at the last durable entry, unless there is one already, and compacts
 * all but `trailing` of the entries that it contains. run_install() installs a
 * snapshot at `index`, as if the leader had sent it, and flushes the log. */
bool run_append(struct run *run, uint64_t index, size_t count, size_t size);
bool run_vote(struct run *run, uint64_t term, uint64_t vote);
bool run_flush(struct run *run);
bool run_upkeep(struct run *run); /* until no upkeep is due */
bool run_snapshot(struct run *run, uint64_t trailing);
bool run_install(struct run *run, uint64_t index);

/* Write a snapshot file and remove older ones. The log is neither reset nor
 * compacted. */
bool run_write_snapshot(struct run *run, struct hf_log_snapshot snapshot);

#endif
