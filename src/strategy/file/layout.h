/* layout.h - the layout of the arena file, and what the files that implement the
 * arena share: arena.c (the ring, the snapshots), word.c, slot.c, token_file.c,
 * arena_file.c, arena_open.c, share.c. */
#ifndef HF_STRATEGY_FILE_LAYOUT_H
#define HF_STRATEGY_FILE_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>

#include "strategy/file/arena.h"

#define HF_ARENA_RING (UINT64_C(32) << 20) /* at most: it grows in place */
#define HF_ARENA_RING_FIRST (UINT64_C(1) << 20)
#define HF_ARENA_HALF (UINT64_C(64) << 20)
#define HF_ARENA_HALF_FIRST (UINT64_C(256) << 10)

struct hf_arena_half {
    uint64_t position; /* in the ring: it holds all before that */
    uint64_t size;
    uint8_t bytes[HF_ARENA_HALF];
};

/* The part that never changes. In all versions from 3 on, the label and the next
 * members of the header, up to idle_at, are at the offsets that they have
 * here. */
struct hf_arena_label {
    uint64_t magic;
    uint32_t version;
    uint32_t size;  /* of the file */
    char boot[36];  /* boot id at the time of its creation */
    uint32_t inode; /* of the file, folded: a copy has another; 0: not known */
    uint64_t first_token;
};

struct hf_arena_header {
    struct hf_arena_label label;
    _Alignas(64) _Atomic uint64_t word; /* word.h */
    _Atomic int64_t stamped;            /* time of the last command */
    _Atomic int64_t idle_at;            /* all leases have ended by then */
    _Alignas(64) _Atomic uint64_t tail; /* of the entries that are published */
    _Atomic uint64_t head;              /* entries before this are gone */
    _Atomic uint64_t snapshot;          /* its number: the half is its parity */
    _Atomic uint64_t ring_room; /* bytes of the ring in use, a power of two */
    _Atomic uint64_t half_room; /* bytes of each half that the disk has */
    _Atomic uint64_t token_reserve; /* token_file.c */
    _Atomic uint32_t slots;         /* that were ever used */

    _Alignas(64) struct hf_arena_slot slot[HF_ARENA_SLOTS];
    _Alignas(64) uint8_t ring[HF_ARENA_RING];
    _Alignas(64) struct hf_arena_half half[2];
};

/* Programs of 32 and of 64 bits share an arena. */
#define HF_ARENA_RING_AT (192 + HF_ARENA_SLOTS * sizeof(struct hf_arena_slot))
_Static_assert(sizeof(struct hf_arena_label) == 64 &&
                   offsetof(struct hf_arena_label, boot) == 16 &&
                   offsetof(struct hf_arena_label, inode) == 52 &&
                   offsetof(struct hf_arena_label, first_token) == 56,
               "the label is the same everywhere");
_Static_assert(sizeof(struct hf_arena_slot) == 32 &&
                   offsetof(struct hf_arena_slot, turn) == 24,
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
               "what follows the header is the same everywhere");

/* Report errno, about the file `name`, or about the directory if that is "". */
enum hf_err hf_arena_fail(const struct hf_arena *arena, struct hf_error *error,
                          const char *name, const char *what);

/* Allocate disk blocks for the ring and the header before it, or for both
 * halves, so that a full disk is an error here and not a SIGBUS on a later
 * write. Returns 0, or an errno. */
int hf_arena_allocate_ring(int file, uint64_t size);
int hf_arena_allocate_halves(int file, uint64_t size);

/* With the file "lock" locked, open the arena, or create one. It counts as in use
 * until its descriptor is closed. */
enum hf_err hf_arena_file_open(struct hf_arena *arena, struct hf_error *error);

/* Refuse what is in the place of a file of ours: not a plain file, or one that
 * has a second name elsewhere. HF_EPROTO. */
enum hf_err hf_arena_check_plain(const struct hf_arena *arena, int file,
                                 const char *name, struct hf_error *error);

/* Take a free slot, and create the FIFO through which others wake us. */
enum hf_err hf_slot_take(struct hf_arena *arena, struct hf_error *error);
void hf_slot_give(struct hf_arena *arena);

/* Whether the mapping has become zeros (guard.h). */
bool hf_arena_is_lost(const struct hf_arena *arena);

/* Map it again. False: the file is not whole. */
bool hf_arena_recover(struct hf_arena *arena);

/* ---- Files in a directory that others can write to (share.c) --------------
 *
 * Open `name`, which exists, without following a link or waiting. */
int hf_share_open(int directory, const char *name, int flags);

/* Make `name`, which must not exist, for reading and writing, with the group and
 * the mode of the directory, whatever the umask. */
int hf_share_create(int directory, const char *name);

/* Give a file that we have made the group and the mode of the directory. */
void hf_share_file(int directory, int file);

/* Whether it is a plain file with no other name; a FIFO. */
bool hf_share_is_plain(int file);
bool hf_share_is_fifo(int file);

/* The name of a file of this user, to be renamed to `of` when it is whole. */
#define HF_SHARE_NAME 32
void hf_share_temporary_name(char name[HF_SHARE_NAME], const char *of);

/* Whether we may rename a file over this one. */
bool hf_share_can_replace(int directory, int file);

/* Read the token mark; 0 if there is no such file. HF_EPROTO: the file has no
 * number in it. */
#define HF_TOKEN_FILE_MAX (UINT64_MAX / 2) /* larger tokens are never used */
enum hf_err hf_token_file_read(int directory, uint64_t *token);
bool hf_token_file_is_missing(int directory);

/* Replace it by a `*mark` ahead of `token`: tokens up to it may be used then.
 * HF_ESYSTEM: see errno. */
enum hf_err hf_token_file_raise(int directory, uint64_t token,
                                uint64_t *saved_token);

/* Where tokens start if no earlier one is known. */
uint64_t hf_token_file_from_clock(void);

#endif
