/* layout.h - the layout of the arena file, and the functions that the files of
 * the arena share: arena.c (ring and snapshots), word.c, slot.c, token_file.c,
 * arena_file.c, arena_open.c, arena_recover.c and share.c. */
#ifndef HF_STRATEGY_FILE_LAYOUT_H
#define HF_STRATEGY_FILE_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>

#include "strategy/file/arena.h"

#define HF_ARENA_RING                                                          \
    (UINT64_C(32) << 20) /* maximum size of the ring, which grows in place */
#define HF_ARENA_RING_FIRST (UINT64_C(1) << 20)
#define HF_ARENA_HALF (UINT64_C(64) << 20)
#define HF_ARENA_HALF_FIRST (UINT64_C(256) << 10)

struct hf_arena_half {
    uint64_t position; /* the snapshot covers all entries before this */
    uint64_t size;
    uint8_t bytes[HF_ARENA_HALF];
};

/* The part of the header that never changes. Since version 3, the label and the
 * header's members up to `idle_at` have kept the offsets that they have here,
 * so that any later version can read them. */
struct hf_arena_label {
    uint64_t magic;
    uint32_t version;
    uint32_t size;  /* of the file */
    char boot[36];  /* boot id when the file was created */
    uint32_t inode; /* folded inode number, differs in a copy; 0: unknown */
    uint64_t first_token;
};

struct hf_arena_header {
    struct hf_arena_label label;
    _Alignas(64) _Atomic uint64_t word; /* word.h */
    _Atomic int64_t stamped;            /* time of the last command */
    _Atomic int64_t idle_at; /* time by which every lease has expired */
    _Alignas(64) _Atomic uint64_t tail; /* end of the published entries */
    _Atomic uint64_t head;      /* start of the oldest entry in the ring */
    _Atomic uint64_t snapshot;  /* number n; the snapshot is in half[n % 2] */
    _Atomic uint64_t ring_room; /* size of the ring in bytes, a power of two */
    _Atomic uint64_t
        half_room; /* bytes of each half that are allocated on disk */
    _Atomic uint64_t token_reserve; /* no token above this is granted */
    _Atomic uint32_t slots;         /* highest slot ever used, plus one */

    _Alignas(64) struct hf_slot slot[HF_ARENA_SLOTS];
    _Alignas(64) uint8_t ring[HF_ARENA_RING];
    _Alignas(64) struct hf_arena_half half[2];
};

/* 32-bit and 64-bit programs share an arena, so the offsets must not depend on
 * the word size. */
#define HF_ARENA_RING_AT (192 + HF_ARENA_SLOTS * sizeof(struct hf_slot))
_Static_assert(sizeof(struct hf_arena_label) == 64 &&
                   offsetof(struct hf_arena_label, boot) == 16 &&
                   offsetof(struct hf_arena_label, inode) == 52 &&
                   offsetof(struct hf_arena_label, first_token) == 56,
               "the label is the same everywhere");
_Static_assert(sizeof(struct hf_slot) == 32 &&
                   offsetof(struct hf_slot, tag) == 24,
               "slots are the same everywhere");
_Static_assert(offsetof(struct hf_arena_header, word) == 64 &&
                   offsetof(struct hf_arena_header, stamped) == 72 &&
                   offsetof(struct hf_arena_header, idle_at) == 80 &&
                   offsetof(struct hf_arena_header, tail) == 128 &&
                   offsetof(struct hf_arena_header, token_reserve) == 168 &&
                   offsetof(struct hf_arena_header, slot) == 192,
               "the header is the same everywhere");
_Static_assert(offsetof(struct hf_arena_header, ring) == HF_ARENA_RING_AT &&
                   offsetof(struct hf_arena_header, half) ==
                       HF_ARENA_RING_AT + HF_ARENA_RING &&
                   offsetof(struct hf_arena_half, bytes) == 16 &&
                   sizeof(struct hf_arena_half) == 16 + HF_ARENA_HALF,
               "the ring and the halves are the same everywhere");

/* Set `error` from errno: `what` failed for the file `name`, or for the
 * directory if `name` is "". */
enum hf_err hf_arena_fail(const struct hf_arena *arena, struct hf_error *error,
                          const char *name, const char *what);

/* Allocate disk blocks for `size` bytes of the ring and for the header before
 * it, so that a full disk is an error here and not a SIGBUS on a later write.
 * Returns 0, or an errno. */
int hf_arena_allocate_ring(int file, uint64_t size);

/* Like hf_arena_allocate_ring(), for `size` bytes of each of the two halves. */
int hf_arena_allocate_halves(int file, uint64_t size);

/* Open the existing arena, or create one. Call it with the file "lock" locked.
 * Other clients see the arena as in use until `arena->file` is closed. */
enum hf_err hf_arena_file_open(struct hf_arena *arena, struct hf_error *error);

/* Returns HF_EPROTO if `file` is not a regular file, or if it has a second hard
 * link. */
enum hf_err hf_arena_check_plain(const struct hf_arena *arena, int file,
                                 const char *name, struct hf_error *error);

/* Take a free slot, and open the FIFO through which other clients wake this
 * client. hf_slot_give() unlocks the slot. */
enum hf_err hf_slot_take(struct hf_arena *arena, struct hf_error *error);
void hf_slot_give(struct hf_arena *arena);

/* Returns true if the guard has replaced the mapping by zeros (guard.h). */
bool hf_arena_is_lost(const struct hf_arena *arena);

/* Map the file again. Returns false if the file was truncated or cannot be
 * mapped. */
bool hf_arena_recover(struct hf_arena *arena);

/* ---- Files in a directory that other users can write to (share.c) ---------
 *
 * Open the existing file `name`. Does not follow symbolic links and does not
 * block. */
int hf_share_open(int directory, const char *name, int flags);

/* Create `name` for reading and writing; it must not exist. The file gets the
 * group and the mode of the directory, whatever the umask. */
int hf_share_create(int directory, const char *name);

/* Give a file that we created the group and the mode of the directory. */
void hf_share_file(int directory, int file);

/* Returns true if `file` is a regular file without a second hard link. */
bool hf_share_is_plain(int file);
bool hf_share_is_fifo(int file);

/* Set `name` to a temporary name for the file `of`. The name differs from user
 * to user. A new file is written under this name and renamed to `of` when it is
 * complete. */
#define HF_SHARE_NAME 32
void hf_share_temporary_name(char name[HF_SHARE_NAME], const char *of);

/* Returns true if we may rename another file over `file`. */
bool hf_share_can_replace(int directory, int file);

/* Read the file "token". `*token` is 0 if there is no such file. HF_EPROTO:
 * the file does not contain a number; HF_ESYSTEM: see errno. */
#define HF_TOKEN_FILE_MAX (UINT64_MAX / 2) /* larger tokens are never granted */
enum hf_err hf_token_file_read(int directory, uint64_t *token);
bool hf_token_file_is_missing(int directory);

/* Write a number larger than `token` to the file "token", and return it in
 * `*saved_token`: tokens up to it may then be granted. HF_ELIMIT: `token` is
 * too large; HF_ESYSTEM: see errno. */
enum hf_err hf_token_file_raise(int directory, uint64_t token,
                                uint64_t *saved_token);

/* Where tokens start if no earlier token is known. */
uint64_t hf_token_file_from_clock(void);

#endif
