/* arena.h - a mapped file that the processes of one machine share: a lock word,
 * a log of entries, two snapshots, and a *slot* for each client.
 *
 *     header | slots | ring of entries | snapshot half 0 | snapshot half 1
 *
 * The arena carries bytes and knows nothing about locks. A client writes the
 * log and the snapshots only in the critical section, between hf_arena_lock()
 * and hf_arena_unlock(), and each change takes effect by a single store. A
 * process that is killed at any instruction has published either all of its
 * change or nothing.
 *
 * Always true:
 *   1. entries before the tail are complete, and do not change while the ring
 *      holds them;
 *   2. the current snapshot covers everything before its position, and the
 *      ring has every entry after that;
 *   3. the client in the critical section is alive, or the next client takes
 *      over from it: each client keeps an open file description lock on the
 *      byte of its slot, which the kernel drops with the process; if a child
 *      has inherited the lock, hf_slot_is_alive() checks the process itself. */
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

#define HF_ARENA_SLOTS 1024 /* clients that can be open at a time */

struct hf_arena_header;

struct hf_arena {
    char *path;     /* absolute path of the directory */
    dev_t root_dev; /* device of "/" when the path was resolved */
    ino_t root_ino;
    /* Keeps a shared flock, so that no client replaces the arena and
     * systemd-tmpfiles does not remove the directory. */
    int directory;
    bool token_file_missing; /* the file "token" has to be written again */
    int file;
    int fifo;      /* our FIFO, readable when another client wakes us */
    int inherited; /* copy of `file` for executed programs; or -1 */
    struct hf_arena_header *header;
    size_t size;
    uint64_t first_token; /* tokens of an empty arena start above this */
    unsigned slot;
    struct hf_word_attempt attempt; /* the last attempt to lock the arena */
    int woken_fifo;                 /* FIFO of the last client we woke; or -1 */
    uint64_t woken_session; /* session of the client that reads woken_fifo */
    uint64_t pending; /* where the next entry goes; the tail once published */

    /* Values of the header as of hf_arena_lock(), with our own changes. They
     * are copied because a hostile process may overwrite the shared header at
     * any time. */
    uint64_t head;
    uint64_t tail;
    uint64_t ring_room;
    uint64_t half_room;
    uint64_t read_snapshot; /* snapshot number at hf_arena_begin_read() */
};

/* Open the arena in the directory `path`. Creates it if there is none, and
 * replaces one of another boot, version or directory if no client uses it and
 * no lease runs. A new directory gets the mode `mode`; an existing one must
 * not let other users write unless `mode` does. The error text names the
 * file. */
enum hf_err hf_arena_open(struct hf_arena *arena, const char *path, mode_t mode,
                          struct hf_error *error);
void hf_arena_close(struct hf_arena *arena);

enum hf_arena_access {
    HF_ARENA_LOCKED,     /* in the critical section until hf_arena_unlock() */
    HF_ARENA_BUSY,       /* other clients stay in the critical section */
    HF_ARENA_UNWRITABLE, /* the disk may be full; a later call may succeed */
    HF_ARENA_BAD_HEADER, /* the header has values that holdfast never writes */
};

/* Enter the critical section. If the arena is busy, `*pid` is the process that
 * stays in the critical section, or 0 if several clients keep entering it. */
enum hf_arena_access hf_arena_lock(struct hf_arena *arena, pid_t *pid);
void hf_arena_unlock(struct hf_arena *arena);

/* Check that the path still leads to our directory and arena, and set
 * `token_file_missing`. HF_EPROTO: the directory or the arena was removed,
 * renamed or replaced, or the arena was truncated; the text says which. Makes
 * several system calls, so call it rarely. */
enum hf_err hf_arena_check(struct hf_arena *arena, struct hf_error *error);

/* ---- In the critical section --------------------------------------------*/

enum hf_arena_entry {
    HF_ARENA_ENTRY_READ,
    HF_ARENA_ENTRY_NONE,    /* the position is the end of the log */
    HF_ARENA_ENTRY_GONE,    /* the entry was overwritten; read the snapshot */
    HF_ARENA_ENTRY_DAMAGED, /* the bytes at the position are not an entry */
};

/* Read the entry at `*position`, and move `*position` past it. `*bytes` is
 * borrowed. */
enum hf_arena_entry hf_arena_read(const struct hf_arena *arena,
                                  uint64_t *position, hf_time *stamp,
                                  struct hf_bytes *bytes);

/* Returns true if the entry at `position` was not overwritten yet. */
bool hf_arena_has_entry(const struct hf_arena *arena, uint64_t position);

/* Append an entry. Other clients do not see it until it is published.
 * HF_ELIMIT: the log is full; a new snapshot empties it. */
enum hf_err hf_arena_write(struct hf_arena *arena, hf_time stamp,
                           struct hf_bytes bytes);

/* Record that a command at `now` may start leases of up to `lease_ms`. Call it
 * before the command is published. */
void hf_arena_record_lease(struct hf_arena *arena, hf_time now,
                           uint32_t lease_ms);

/* Record that no key is held. Call it after the command that released the last
 * key is published. */
void hf_arena_record_idle(struct hf_arena *arena, hf_time now);

/* Discard the entries that are not published. */
void hf_arena_discard(struct hf_arena *arena);

/* Publish the entries written so far. Returns false if the file could not be
 * written; the entries are discarded then. */
bool hf_arena_publish(struct hf_arena *arena);

/* The current snapshot, borrowed, and the position in the ring after it. An
 * empty snapshot means that the log starts from an empty table. */
struct hf_bytes hf_arena_snapshot(const struct hf_arena *arena,
                                  uint64_t *position);

/* Replace the current snapshot by one that covers every published entry.
 * HF_ELIMIT: the snapshot is too large, or the disk is full. Cannot fail if
 * hf_arena_reserve_snapshot() has reserved its size. */
enum hf_err hf_arena_set_snapshot(struct hf_arena *arena,
                                  struct hf_bytes bytes);
/* Allocate disk blocks for a snapshot of `size` bytes. HF_ELIMIT: `size` is
 * too large, or the disk is full. */
enum hf_err hf_arena_reserve_snapshot(struct hf_arena *arena, size_t size);

/* ---- Reading without the arena lock ---------------------------------------
 *
 * A client that is far behind reads the snapshot and the log without the arena
 * lock, so that it does not delay other clients: hf_arena_begin_read(),
 * hf_arena_snapshot() or hf_arena_read(), then hf_arena_end_read(). Another
 * client may overwrite the data meanwhile, so the data is valid only if
 * hf_arena_end_read() returns true.
 *
 * hf_arena_begin_read() returns false if the header is inconsistent: another
 * client is changing it, or it is damaged. */
bool hf_arena_begin_read(struct hf_arena *arena);
bool hf_arena_end_read(const struct hf_arena *arena);

/* ---- Slots --------------------------------------------------------------*/

/* What other clients know about a client. If `session` is 0, the slot is
 * unused. */
struct hf_slot {
    uint64_t session;
    uint64_t pid_namespace; /* pid namespace of the process; 0: unknown */
    int32_t pid;
    uint16_t watches; /* if not 0, wake this client after every command */
    _Atomic uint16_t detached; /* if not 0, its locks may outlive its process */
    _Atomic uint64_t tag;      /* last tag that this slot has used (word.h) */
};

/* The slot number `slot`, borrowed. `session` and `watches` are written only in
 * the critical section. `detached` is set by the client of the slot at any
 * time, and by other clients in the critical section. */
struct hf_slot *hf_slot_at(const struct hf_arena *arena, unsigned slot);

/* One above the highest number of a slot that was ever used. */
unsigned hf_slot_count(const struct hf_arena *arena);

/* Returns true if the process of the slot's client is running, or if that
 * cannot be checked, and for our own slot. A zombie is not running, even if
 * one of its children keeps the slot locked. Makes several system calls, one
 * of them slow. */
bool hf_slot_is_alive(const struct hf_arena *arena, unsigned slot);

/* hf_slot_is_alive() in steps, for a caller that has checked
 * hf_slot_is_locked() and keeps the pidfd. Opening a pidfd takes longer than
 * everything else that handing a key over needs.
 *
 * hf_slot_open_process() returns a pidfd, or -1 if the process has been reaped,
 * is in another pid namespace, or no descriptor is free.
 * hf_slot_has_process_ended() accepts -1, and returns false if it cannot tell
 * whether the process has ended. */
int hf_slot_open_process(const struct hf_arena *arena, unsigned slot);
bool hf_slot_has_process_ended(const struct hf_arena *arena, unsigned slot,
                               int pidfd);

/* Returns true if the client of the slot, or a process that inherited its
 * descriptor, keeps the slot locked. Also returns true for our own slot, and if
 * the lock cannot be checked. Can be called without the arena lock. */
bool hf_slot_is_locked(const struct hf_arena *arena, unsigned slot);

/* Let programs that this process executes inherit the lock on our slot.
 * HF_ESYSTEM: no descriptor is free; the arena stays open. */
enum hf_err hf_slot_inherit(struct hf_arena *arena, struct hf_error *error);

/* Wake the client of the slot. Call it after hf_arena_unlock(), because it
 * makes system calls. */
void hf_slot_wake(struct hf_arena *arena, unsigned slot);

/* Discard the wake-ups received so far. */
void hf_slot_clear_wakes(const struct hf_arena *arena);

/* ---- Tokens ---------------------------------------------------------------
 *
 * Tokens up to the reserve may be granted. The file "token" has the same
 * number, so it survives the loss of the arena. hf_token_file_covers() returns
 * true if `token` is not above the reserve. */
bool hf_token_file_covers(const struct hf_arena *arena, uint64_t token);

/* Raise the reserve above `token`. Call it without the arena lock, because it
 * waits for the disk. Does nothing if another client is raising the reserve, so
 * check hf_token_file_covers() again. HF_ELIMIT: `token` is too large;
 * HF_ESYSTEM: see errno. */
enum hf_err hf_token_file_reserve(struct hf_arena *arena, uint64_t token);

/* Raise the reserve ahead of time if it is nearly used up at `token`, or if
 * the file "token" is missing. The errors are those of
 * hf_token_file_reserve(). */
enum hf_err hf_token_file_refill(struct hf_arena *arena, uint64_t token);

#endif
