/* storage.h - the simulated disk of one raft node, at the level of records.
 *
 * Writes are queued, and become durable in order when a flush ends. A crash
 * keeps a random part of the queue from its beginning, and loses the rest. Torn
 * sectors are not simulated here, but in sim_disk.h. */
#ifndef HF_TESTS_SIM_STORAGE_H
#define HF_TESTS_SIM_STORAGE_H

#include "base/dlist.h"
#include "base/random.h"
#include "raft/engine.h"
#include "sim/schedule.h"

/* A snapshot of the state machine, which is a hash of what was applied. */
struct sim_snapshot {
    uint64_t index, term;
    uint64_t hash;
};

enum sim_write_kind {
    SIM_WRITE_HARD_STATE,
    SIM_WRITE_ENTRIES,
    SIM_WRITE_SNAPSHOT, /* a snapshot file */
    SIM_WRITE_RESET,    /* the log begins after the snapshot */
    SIM_WRITE_COMPACT,  /* the log forgets entries */
};

struct sim_write {
    struct hf_dlist link;
    enum sim_write_kind kind;
    uint64_t number; /* of the engine's write; 0: none */
    uint64_t term, vote;
    uint64_t first; /* ENTRIES: cut from here on; COMPACT: forget up to here */
    struct hf_entries entries;
    struct sim_snapshot snapshot;
};

struct sim_storage {
    struct sim_schedule *schedule;
    struct hf_random *random;
    uint32_t flush_ms; /* the longest flush */
    struct hf_dlist queue;
    size_t flushing; /* queued writes in the running flush; 0: no flush */
    struct sim_event flushed;
    void (*on_flushed)(void *arg, uint64_t number);
    void *arg;
    /* What is durable. */
    uint64_t term, vote;
    uint64_t incarnation;
    struct hf_entries log;
    struct sim_snapshot snapshot;
};

void sim_storage_init(struct sim_storage *storage,
                      struct sim_schedule *schedule, struct hf_random *random);
void sim_storage_fini(struct sim_storage *storage);

/* Queue a write. The caller fills in the members of its kind. */
struct sim_write *sim_storage_write(struct sim_storage *storage,
                                    enum sim_write_kind kind, uint64_t number);

/* Queue the entries first..last of `log`, as the engine's write `number`. */
void sim_storage_write_entries(struct sim_storage *storage, uint64_t number,
                               const struct hf_entries *log, uint64_t first,
                               uint64_t last);

/* Flush what is queued, now or after the flush that is running. */
void sim_storage_flush(struct sim_storage *storage);

/* The process dies: lose a part of what is queued. */
void sim_storage_crash(struct sim_storage *storage);

/* Returns true if entry (index, term), or a snapshot that contains it, is
 * durable. */
bool sim_storage_has(const struct sim_storage *storage, uint64_t index,
                     uint64_t term);

#endif
