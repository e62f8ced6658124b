/* arena.h - one mapped file that the processes of a machine share: a lock
 * word, a log of entries, two places for a snapshot, a slot for each client.
 *
 *     header | slots | ring of entries | snapshot half 0 | snapshot half 1
 *
 * It carries bytes and knows nothing of locks. Everything is written *inside*,
 * between enter and leave, by one process at a time, and takes effect by one
 * store: who is killed at any instruction has published all or nothing.
 *
 * Always true:
 *   1. entries up to the tail are whole, and do not change while they are kept;
 *   2. the snapshot that is named holds everything before its position, and
 *      the ring everything after it;
 *   3. who is inside is alive, or the next who looks takes its place: a client
 *      keeps a lock of its open file description on its slot's byte, and the
 *      kernel drops that with the process. */
#ifndef HF_STRATEGY_FILE_ARENA_H
#define HF_STRATEGY_FILE_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/time.h"
#include "strategy/file/word.h"

#define HF_ARENA_SLOTS 1024 /* clients at a time */

struct hf_arena_header;

struct hf_arena {
    char *path;     /* of the directory, absolute */
    dev_t root_dev; /* of the file system that the path begins in */
    ino_t root_ino;
    int directory;           /* and a shared flock on it, against sweepers */
    bool token_file_missing; /* the file `token`: to be made again */
    int file;
    int fifo;      /* others ring here: readable */
    int inherited; /* `file` for programs that this process executes; or -1 */
    struct hf_arena_header *header;
    size_t size;
    uint64_t first_token; /* where tokens go on in a fresh arena */
    unsigned slot;
    struct hf_word_attempt attempt; /* the last one to go inside */
    int peer_fifo;                  /* FIFO of the last client we woke; or -1 */
    uint64_t peer_session;          /* whose it is */
    uint64_t pending; /* where the next entry goes; published up to the tail */

    /* The header as it was when we went inside, with our own changes: another
     * process may overwrite it at any time. */
    uint64_t head;
    uint64_t tail;
    uint64_t ring_room;
    uint64_t half_room;
    uint64_t read_snapshot; /* the number at hf_arena_begin_read() */
};

/* Open the arena in `path`, or make it: anew after a reboot. `mode` is that of
 * the directory. The text names the file. */
enum hf_err hf_arena_open(struct hf_arena *arena, const char *path, mode_t mode,
                          struct hf_error *error);
void hf_arena_close(struct hf_arena *arena);

/* Go inside. HF_EBUSY: process `*pid` is, and lives, or if that is 0, others
 * come and go all the time. HF_EUNAVAIL: the file cannot be written, as if the
 * disk is full; later, perhaps. HF_EPROTO: the header is not what we write
 * there. */
enum hf_err hf_arena_lock(struct hf_arena *arena, pid_t *pid);
void hf_arena_unlock(struct hf_arena *arena);

/* Whether the directory and the arena are still those that a client would open
 * now, and whether the token mark is there. HF_EPROTO: they were removed, renamed or replaced; the text says which.
 * Costs system calls: ask now and then. */
enum hf_err hf_arena_check(struct hf_arena *arena, struct hf_error *error);

/* ---- Inside ---------------------------------------------------------------*/

enum hf_arena_entry {
    HF_ARENA_ENTRY_READ,
    HF_ARENA_ENTRY_NONE,    /* this is the end of the log */
    HF_ARENA_ENTRY_GONE,    /* overwritten: read the snapshot */
    HF_ARENA_ENTRY_DAMAGED, /* it cannot be an entry */
};

/* Read the entry at `*position`. Its bytes are borrowed, and `*position` moves
 * past it. */
enum hf_arena_entry hf_arena_read(const struct hf_arena *arena,
                                  uint64_t *position, hf_time *stamp,
                                  struct hf_bytes *bytes);

/* Whether the ring still has what comes at `position`. */
bool hf_arena_has_entry(const struct hf_arena *arena, uint64_t position);

/* Write an entry after the last one. HF_ELIMIT: the ring is full, a snapshot
 * makes room. Nobody sees it until it is published. */
enum hf_err hf_arena_write(struct hf_arena *arena, hf_time stamp,
                           struct hf_bytes bytes);

/* Record that a command at `now` may begin leases of at most `lease_ms`, before
 * it is published. */
void hf_arena_record_lease(struct hf_arena *arena, hf_time now,
                           uint32_t lease_ms);

/* Record that nothing is held, after that was published. */
void hf_arena_record_idle(struct hf_arena *arena, hf_time now);

/* Take back the entries that are not published. */
void hf_arena_discard(struct hf_arena *arena);

/* False: they could not be written, and are taken back. */
bool hf_arena_publish(struct hf_arena *arena);

/* The snapshot in force, borrowed, and where the ring goes on after it. No
 * bytes: everything began empty. */
struct hf_bytes hf_arena_snapshot(const struct hf_arena *arena,
                                  uint64_t *position);

/* Put a snapshot of everything published in force. HF_ELIMIT: too large, or
 * the disk is full; not so below a size that was reserved. */
enum hf_err hf_arena_set_snapshot(struct hf_arena *arena,
                                  struct hf_bytes bytes);
enum hf_err hf_arena_reserve_snapshot(struct hf_arena *arena, size_t size);

/* ---- Reading outside ------------------------------------------------------
 *
 * A client that is far behind reads the snapshot and the log without the arena
 * lock, so that nobody has to wait for it: begin, hf_arena_snapshot() or
 * hf_arena_read(), then end. What was read may have been overwritten meanwhile;
 * it counts only if end answers true.
 *
 * begin answers false if the header cannot be used as it is now: it is being
 * changed, or it is damaged. */
bool hf_arena_begin_read(struct hf_arena *arena);
bool hf_arena_end_read(const struct hf_arena *arena);

/* ---- Slots --------------------------------------------------------------*/

/* What a client says of itself; session 0: the slot was never used. */
struct hf_arena_slot {
    uint64_t session;
    uint64_t pid_namespace; /* the arena's, as is the pid */
    int32_t pid;
    uint16_t watches;          /* it wants to be rung for every command */
    _Atomic uint16_t detached; /* what it holds may outlive it */
    _Atomic uint64_t turn;     /* the last of this slot, of all its clients */
};

/* Borrowed; session and watches are to be written only inside. `detached` is set
 * by its client at any time, and by others inside. */
struct hf_arena_slot *hf_slot_at(const struct hf_arena *arena, unsigned slot);

/* The slots that were ever used: below this number. */
unsigned hf_slot_count(const struct hf_arena *arena);

/* Whether the process of its client is running: not one that has ended and is
 * not reaped yet, even if a child that it has forked keeps its slot locked. Our
 * own always is. Costs several system calls, one of them slow. */
bool hf_slot_is_alive(const struct hf_arena *arena, unsigned slot);

/* The same in two steps, besides hf_slot_is_locked(), for a caller that keeps the
 * pidfd: opening one takes longer than all else that a hand-over needs.
 *
 * open_process answers a pidfd, or -1: the process has been reaped, it is in
 * another pid namespace, or no descriptor is free. has_ended takes either; if it
 * cannot know, it answers false. */
int hf_arena_open_process(const struct hf_arena *arena, unsigned slot);
bool hf_arena_has_ended(const struct hf_arena *arena, unsigned slot, int pidfd);

/* Whether its client is there, or a process that inherited its lock. Outside
 * too. Our own always is. */
bool hf_slot_is_locked(const struct hf_arena *arena, unsigned slot);

/* Let the programs that this process executes keep the lock of our slot.
 * HF_ESYSTEM: no descriptor is free; hf_arena_close() is still to be called. */
enum hf_err hf_slot_inherit(struct hf_arena *arena, struct hf_error *error);

/* Make its client look. Outside, for speed. */
void hf_slot_wake(struct hf_arena *arena, unsigned slot);

/* Forget that we were rung. */
void hf_slot_clear_wakes(const struct hf_arena *arena);

/* ---- Tokens ---------------------------------------------------------------
 *
 * Tokens up to the reserve may be used: it is on the disk, and survives all
 * else. */
bool hf_token_file_covers(const struct hf_arena *arena, uint64_t token);

/* Outside, for it syncs the disk: raise the reserve past `token`. HF_EBUSY:
 * another client is doing so; HF_ESYSTEM, and errno. */
enum hf_err hf_token_file_reserve(struct hf_arena *arena, uint64_t token);

/* The same ahead of time, if less than half of the reserve is left after `token`,
 * or the mark is missing. */
enum hf_err hf_token_file_refill(struct hf_arena *arena, uint64_t token);

#endif
