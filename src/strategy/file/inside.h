/* inside.h - what one client of file: does inside the arena, where only one is
 * at a time: it catches up with the others, ends leases that are due, runs its
 * command, and on the way out rings those who are to hear of it. */
#ifndef HF_STRATEGY_FILE_INSIDE_H
#define HF_STRATEGY_FILE_INSIDE_H

#include "strategy/file/arena.h"
#include "strategy/file/deaths.h"
#include "strategy/file/replica.h"
#include "strategy/local.h"

#define HF_FILE_RINGS 16 /* clients rung for one request; more are watchers */

/* One open client: its place in the arena, and its own copy of the table. */
struct hf_file {
    struct hf_local local;
    struct hf_arena arena;
    struct hf_replica replica;
    hf_time checked;
    bool broken;  /* the files are not what they were */
    pid_t inside; /* who was, when we could not go in; 0: many */
    struct hf_error failure;

    struct hf_list open; /* requests that could not go inside yet */
    struct hf_timer retry;
    struct hf_fd bell;
    struct hf_deaths deaths;
    bool acting; /* what happens is our doing: others are rung */
    unsigned rings[HF_FILE_RINGS]; /* slots to be rung on the way out */
    unsigned ring_count;
    bool ring_watchers;
};

extern const struct hf_local_ops hf_file_local_ops;

/* For the replica: something has happened in its table. */
hf_table_event_fn hf_file_on_event;

static inline struct hf_arena_slot *hf_file_slot(const struct hf_file *file)
{
    return hf_arena_slot(&file->arena, file->arena.slot);
}

/* The slot of a session, or HF_ARENA_SLOTS. */
unsigned hf_file_slot_of(const struct hf_file *file, uint64_t session);

/* Go inside, whatever the table is like. HF_EBUSY: another is there and does
 * not leave; HF_EPROTO: the files are damaged. `failure` says what is wrong. */
enum hf_err hf_file_take_word(struct hf_file *file);

/* Go inside, and have the table as it ought to be at this instant. */
enum hf_err hf_file_enter(struct hf_local *local);
void hf_file_leave(struct hf_local *local);

/* Another is inside, and slow. */
void hf_file_retry_soon(struct hf_file *file);

#endif
