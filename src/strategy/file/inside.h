/* inside.h - the critical section of a file: client. One client at a time is
 * inside the arena: it applies what the others have written to the log, expires
 * leases that are due and runs its command. After leaving, it wakes the clients
 * that the command concerns. */
#ifndef HF_STRATEGY_FILE_INSIDE_H
#define HF_STRATEGY_FILE_INSIDE_H

#include "strategy/file/arena.h"
#include "strategy/file/deaths.h"
#include "strategy/file/replica.h"
#include "strategy/local.h"

#define HF_FILE_RINGS 16 /* clients woken by one request; others ask again */

/* One open client: its slot in the arena, and its own copy of the table. */
struct hf_file {
    struct hf_local local;
    struct hf_arena arena;
    struct hf_replica replica;
    hf_time checked;
    bool broken;  /* the files were damaged, removed or replaced */
    pid_t inside; /* the process that kept us out; 0: several of them */
    struct hf_error failure;

    struct hf_list open; /* requests that could not go inside yet */
    struct hf_timer retry;
    struct hf_fd bell;
    struct hf_deaths deaths;
    bool acting; /* events come from our own command: wake the others */
    unsigned rings[HF_FILE_RINGS]; /* slots to wake after leaving */
    unsigned ring_count;
    bool ring_watchers;
};

extern const struct hf_local_ops hf_file_local_ops;

/* The replica calls this for each event of its table. */
hf_table_event_fn hf_file_on_event;

static inline struct hf_arena_slot *hf_file_slot(const struct hf_file *file)
{
    return hf_arena_slot(&file->arena, file->arena.slot);
}

/* The slot of a session, or HF_ARENA_SLOTS. */
unsigned hf_file_slot_of(const struct hf_file *file, uint64_t session);

/* Enter the critical section without updating the table. HF_EBUSY: another
 * client does not leave it; HF_EPROTO: the files are damaged. `failure` has the
 * text. */
enum hf_err hf_file_take_word(struct hf_file *file);

/* Enter the critical section, and bring the table up to date. */
enum hf_err hf_file_enter(struct hf_local *local);
void hf_file_leave(struct hf_local *local);

/* Retry the requests that found the critical section busy. */
void hf_file_retry_soon(struct hf_file *file);

#endif
