/* replica.h - a client's own copy of the lock table, updated from the arena's
 * log.
 *
 * Every client applies the same commands with the same stamps, so all replicas
 * agree. All functions except init, fini and read_ahead are called in the
 * critical section (arena.h).
 *
 * Always true: the replica is the table after every entry before `position`, or
 * it is stale and is loaded again before any other use. */
#ifndef HF_STRATEGY_FILE_REPLICA_H
#define HF_STRATEGY_FILE_REPLICA_H

#include "core/store.h"
#include "strategy/file/arena.h"

struct hf_replica {
    struct hf_arena *arena;
    struct hf_store store;
    uint64_t position;     /* log position: every entry before it is applied */
    size_t snapshot_size;  /* upper bound for the size of a snapshot */
    struct hf_buf scratch; /* copy of the entry being read or written */
    bool stale;
    bool reloaded; /* the store was loaded again: events may be missing or come
                      a second time; the owner clears it */
    bool updated;  /* entries of others were applied; the owner clears it */
    const char *damage; /* after HF_EPROTO: what is wrong with the arena */
};

void hf_replica_init(struct hf_replica *replica, struct hf_arena *arena,
                     const struct hf_seed *seed, hf_table_event_fn *event,
                     void *arg);
void hf_replica_fini(struct hf_replica *replica);

/* Call it without the arena lock. If the replica is far behind, bring it nearly
 * up to date, so that little work is left for the critical section. Errors are
 * ignored here, because hf_replica_catch_up() meets them again and reports
 * them. */
void hf_replica_read_ahead(struct hf_replica *replica);

/* Apply the entries of the other clients. Can fail with HF_ENOMEM, or with
 * HF_EPROTO if the arena is damaged, as `damage` says. */
enum hf_err hf_replica_catch_up(struct hf_replica *replica);

/* Load the snapshot and apply all entries after it, so that the history goes
 * back to the snapshot. The errors are those of hf_replica_catch_up(). */
enum hf_err hf_replica_reload_history(struct hf_replica *replica);

/* Write a command to the log, apply it and publish it. If that fails, nothing
 * has changed, and the result says why: HF_ENOMEM, HF_ELIMIT if the arena is
 * full, HF_EUNAVAIL if it cannot be written. */
void hf_replica_run(struct hf_replica *replica, hf_time now,
                    const struct hf_command *command, struct hf_result *result);

#endif
