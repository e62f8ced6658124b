/* session.h - what makes a repeated command happen once.
 *
 * A client numbers its commands and says with each below which number it
 * awaits nothing any more. Results from there up are kept and answer repeats;
 * what is below is refused, so a late duplicate of a LOCK whose UNLOCK is done
 * makes no ghost. A LOCK that comes after any later command of the same
 * nonce is refused for the same reason.
 *
 * A waiting LOCK is answered "in line", and its kept result is overwritten by
 * its grant. What a session waits for, and what it was granted after a wait
 * without having been told yet, is linked here. */
#ifndef HF_CORE_SESSION_H
#define HF_CORE_SESSION_H

#include "base/dlist.h"
#include "base/limits.h"
#include "base/map.h"
#include "core/command.h"

struct hf_session_result {
    uint64_t sequence; /* 0: empty */
    enum hf_command_kind kind;
    struct hf_nonce nonce;
    struct hf_result result;
};

struct hf_session {
    struct hf_map_link link;  /* in the table, by id */
    struct hf_dlist in_table; /* in the order of ids */
    uint64_t id;
    uint64_t done;    /* nothing below is awaited */
    uint64_t highest; /* sequence seen */
    struct hf_session_result
        *results; /* by sequence modulo capacity, a power of two */
    uint32_t capacity;
    uint32_t holds; /* keys held: an ended session lives as long as these */
    bool ended;
    struct hf_dlist waiting; /* claims, by the sequence of their last LOCK */
    struct hf_dlist
        granted; /* claims granted after a wait, unreported, by token */
    uint8_t label_size;
    char label[];
};

_Static_assert(HF_FITS(HF_NOTE_MAX, uint8_t), "label_size holds any label's");
_Static_assert(HF_FITS(2 * HF_WINDOW_MAX, uint32_t), "capacity, any window's");
_Static_assert(HF_FITS(HF_HOLDS_MAX, uint32_t), "holds, all of a table's");

/* NULL: out of memory. */
struct hf_session *hf_session_new(uint64_t id, struct hf_bytes label);
void hf_session_free(struct hf_session *session);

enum hf_admission {
    HF_ADMISSION_NEW,      /* apply it; there is room to keep its result */
    HF_ADMISSION_ANSWERED, /* do not apply it */
    HF_ADMISSION_NO_MEMORY,
};

/* Decide whether to apply a command. A command that is not applied is answered
 * with the result kept of an earlier copy, or refused: HF_ECANCELED if it is
 * below `done` or was overtaken, HF_ELIMIT if too many commands are awaited.
 * `result` is written only then. A new command has changed nothing yet, because
 * it may still fail. */
enum hf_admission hf_session_admit(struct hf_session *session,
                                   const struct hf_command *command,
                                   struct hf_result *result);

/* Keep the result of a command that was admitted, and forget what is below its
 * `done`. */
void hf_session_keep(struct hf_session *session,
                     const struct hf_command *command,
                     const struct hf_result *result);

/* The result kept under `sequence`, or NULL. */
struct hf_session_result *hf_session_find(const struct hf_session *session,
                                          uint64_t sequence);

/* Make room for results from `done` up to `sequence`. All that is kept stays,
 * also below `done`, until hf_session_keep() needs its place. */
enum hf_err hf_session_reserve(struct hf_session *session, uint64_t done,
                               uint64_t sequence);

#endif
