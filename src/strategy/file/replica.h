/* replica.h - a client's own copy of the lock table, fed by the arena's log.
 *
 * Every client applies the same commands with the same stamps, so all copies
 * agree. All but init, fini and read_ahead are called inside (arena.h).
 *
 * Always true: the copy is the table after every entry up to `position`, or it
 * is stale and will be read anew before anything else. */
#ifndef HF_STRATEGY_FILE_REPLICA_H
#define HF_STRATEGY_FILE_REPLICA_H

#include "core/store.h"
#include "strategy/file/arena.h"

struct hf_replica {
    struct hf_arena *arena;
    struct hf_store store;
    struct hf_seed seed;
    hf_table_event_fn *event;
    void *arg;
    uint64_t session;      /* whose copy this is */
    uint64_t granted;      /* the other session that a command granted to */
    uint64_t position;     /* in the log: applied up to here */
    size_t snapshot_size;  /* at most, if it were taken now */
    struct hf_buf scratch; /* for the entry being written */
    bool stale;
    bool keeps_history; /* of events since the snapshot, for watches */
    bool reloaded;      /* the store is another one: cleared by the owner */
    bool updated;       /* from the log or a snapshot: cleared by the owner */
    const char *damage; /* after HF_EPROTO: what is wrong with the arena */
};

void hf_replica_init(struct hf_replica *replica, struct hf_arena *arena,
                     const struct hf_seed *seed, hf_table_event_fn *event,
                     void *arg);
void hf_replica_fini(struct hf_replica *replica);

/* Outside: if the copy is far behind, bring it nearly up to date, so that little
 * is left to do inside, where others wait. Does what it can: whatever is in the
 * way, hf_replica_catch_up() does the rest or says what is wrong. */
void hf_replica_read_ahead(struct hf_replica *replica);

/* Apply what the others have written. HF_ENOMEM, HF_EPROTO. */
enum hf_err hf_replica_catch_up(struct hf_replica *replica);

/* The same from the snapshot on, so that the history goes back to it. */
enum hf_err hf_replica_reload_history(struct hf_replica *replica);

/* Write a command, apply it and publish it; or answer why not, and nothing has
 * changed: HF_ENOMEM, HF_ELIMIT if the arena has no room, HF_EUNAVAIL if it
 * cannot be written. */
void hf_replica_run(struct hf_replica *replica, hf_time now,
                    const struct hf_command *command, struct hf_result *result);

#endif
