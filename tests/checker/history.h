/* history.h - what clients asked of a lock service and what they were told.
 *
 * A history is a set of operations, each with the instants at which it was
 * invoked and answered, and a few events: deaths, locks reported lost, notes of
 * the nemesis. docs/history.md describes the same in its written form.
 *
 * All instants are nanoseconds of one clock. HISTORY_NEVER stands for an
 * instant that was not given: no answer, no deadline, never queued. It is the
 * largest number, so that "later than anything" needs no special case.
 *
 * Nothing here knows what is right: that is check.h. */
#ifndef CHECKER_HISTORY_H
#define CHECKER_HISTORY_H

#include "words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define HISTORY_NEVER UINT64_MAX
#define HISTORY_TIME_MAX ((uint64_t)INT64_MAX)
#define HISTORY_TEXT_MAX 1024  /* bytes of a key, a cell, a note, ... */
#define HISTORY_NONCE_MAX 64   /* hexadecimal digits */
#define HISTORY_LINE_MAX 16384 /* bytes of a written line */

enum history_kind {
    HISTORY_LOCK,
    HISTORY_UNLOCK,
    HISTORY_RENEW,
    HISTORY_UPDATE,
    HISTORY_READ,
    HISTORY_WRITE,
    HISTORY_FORCE,
    HISTORY_KINDS
};

/* Unknown is first, so that an operation that nobody ended is unknown. */
enum history_result {
    HISTORY_UNKNOWN,
    HISTORY_OK,
    HISTORY_FAIL,
    HISTORY_RESULTS
};

/* What a failure says about the key. */
enum history_error {
    HISTORY_ERROR_NONE,
    HISTORY_ERROR_BUSY,  /* HF_EBUSY: another holds it */
    HISTORY_ERROR_ENDED, /* HF_EEXPIRED, HF_ENOTOWNER, HF_ENOTHELD */
    HISTORY_ERROR_OTHER  /* nothing: the operation had no effect */
};

struct history_op {
    uint64_t id; /* unique among the operations of its client */
    uint64_t invoke;
    uint64_t answer;   /* "return" in writing */
    uint64_t token;    /* 0 if not given */
    uint64_t deadline; /* end of the validity it confirmed */
    uint64_t queued;   /* when the caller was told that it waits in line */
    uint64_t lease;    /* shortest time the server keeps it; 0 if not given */
    uint64_t value;    /* of a write */
    uint32_t client;
    uint32_t key, nonce, cell, error_name; /* words; 0 if not given */
    uint8_t kind, result, error;           /* enums above */
    bool answered;                         /* a result was recorded */
    bool fenced;                           /* of a write: the cell compares */
};

struct history_death {
    uint64_t time;
    uint32_t client;
};

/* The library told `client` that its lock is lost: valid no longer. */
struct history_lost {
    uint64_t time, token;
    uint32_t client, key;
};

struct history_note {
    uint64_t time;
    uint32_t text;
};

struct history {
    struct words words;
    struct history_op *ops;
    size_t op_count, op_room;
    struct history_death *deaths;
    size_t death_count, death_room;
    struct history_lost *losts;
    size_t lost_count, lost_room;
    struct history_note *notes;
    size_t note_count, note_room;
    bool fifo; /* the service promises to grant in order of arrival */
};

/* Where a written history is wrong, and how. */
struct history_fault {
    size_t line; /* from 1; 0 if it is not about one line */
    char text[160];
};

void history_init(struct history *h, bool fifo);
void history_fini(struct history *h);

/* An operation with nothing given but these; fill in the rest. */
struct history_op history_op(enum history_kind kind, uint32_t client,
                             uint64_t invoke);

/* Append a copy; the index of the operation is returned. */
size_t history_add(struct history *h, const struct history_op *op);
void history_add_death(struct history *h, struct history_death death);
void history_add_lost(struct history *h, struct history_lost lost);
void history_add_note(struct history *h, struct history_note note);

/* Set error and error_name from a name such as "HF_EBUSY". */
void history_set_error(struct history *h, struct history_op *op,
                       const char *name, size_t len);

/* Why `op` cannot be part of any history, or NULL if it can. */
const char *history_op_fault(const struct history_op *op);

/* When each client died, sorted by client, for history_find_death(). The
 * recorded instant is one before the kill was sent, so that nobody is thought
 * to live on; who acted after it died no earlier than its last act. The caller
 * frees the list. */
struct history_death *history_deaths(const struct history *h, size_t *count);

/* The death of `client`, or NULL. */
struct history_death *history_find_death(struct history_death *deaths,
                                         size_t count, uint32_t client);

const char *history_kind_name(enum history_kind kind);
const char *history_result_name(enum history_result result);

/* Append the operations and events written on `in` to `h`, which history_init()
 * made. 0, or -1 and `*fault`; then `h` holds what came before the fault.
 * Survives any input. */
int history_read(struct history *h, FILE *in, struct history_fault *fault);

/* Lines of the written form, each with its newline and a terminating zero.
 * `text` has room for HISTORY_LINE_MAX bytes; the length is returned. */
size_t history_write_header(const struct history *h, char *text);
size_t history_write_op(const struct history *h, const struct history_op *op,
                        char *text);
size_t history_write_death(const struct history_death *death, char *text);
size_t history_write_lost(const struct history *h,
                          const struct history_lost *lost, char *text);
size_t history_write_note(const struct history *h,
                          const struct history_note *note, char *text);

/* Write all of `h`. 0, or -1 with errno. */
int history_write(const struct history *h, FILE *out);

/* Write `word` as a JSON string with its quotes to `text`, which has room for
 * 6 * HISTORY_TEXT_MAX + 3 bytes. Every byte is told apart: what is not
 * printable ASCII becomes \u00XX. The length is returned. */
size_t history_quote(const struct history *h, uint32_t word, char *text);

#endif
