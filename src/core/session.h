/* session.h - apply each command once, even if it is sent repeatedly.
 *
 * A client numbers its commands. Each command carries `done`, the lowest number
 * whose result the client may still need. The session keeps the results from
 * `done` on and answers repeated commands with them. It refuses commands below
 * `done`, so that a late copy of a LOCK cannot acquire the key again after its
 * UNLOCK. For the same reason it refuses a LOCK that arrives after a later
 * command, other than a LOCK, of the same nonce.
 *
 * An idle session keeps the result of its last command, and memory for a few
 * more: less than 1 KiB in all.
 *
 * A LOCK that has to wait returns its position in the queue; when it is
 * granted, the grant overwrites the kept result. A session has a list of its
 * waiters, which a CLOSE withdraws. */
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
    struct hf_map_link link;      /* in table->sessions */
    struct hf_map_link by_secret; /* in table->secrets while it is open */
    struct hf_dlist in_table;     /* in the order of ids */
    uint64_t id;
    struct hf_nonce secret; /* drawn by the client; zero if closed */
    uint64_t done;    /* results below this sequence are not needed any more */
    uint64_t highest; /* the highest sequence received */
    struct hf_session_result *results; /* at sequence modulo capacity */
    uint32_t capacity;                 /* a power of two */
    uint32_t holds; /* keys held; a closed session exists until it is 0 */
    bool ended;     /* closed */
    struct hf_dlist waiting; /* waiters, by the sequence of their last LOCK */
    uint32_t waiters;        /* number of waiters in `waiting` */
    uint8_t label_size;
    char label[];
};

_Static_assert(HF_FITS(HF_NOTE_MAX, uint8_t), "label_size is too small");
_Static_assert(HF_FITS(2 * HF_WINDOW_MAX, uint32_t), "capacity is too small");
_Static_assert(HF_FITS(HF_HOLDS_MAX, uint32_t), "holds is too small");

/* Returns NULL if memory is exhausted. */
struct hf_session *hf_session_new(uint64_t id, const struct hf_nonce *secret,
                                  struct hf_bytes label);
void hf_session_free(struct hf_session *session);

/* Mark the session as closed, and forget its secret and its results. */
void hf_session_end(struct hf_session *session);

enum hf_admission {
    HF_ADMISSION_NEW, /* apply the command; there is room to keep its result */
    HF_ADMISSION_ANSWERED, /* do not apply the command; `result` answers it */
    HF_ADMISSION_NO_MEMORY,
};

/* Decide whether to apply a command. A repeated command gets the kept result.
 * A command is refused with HF_ECANCELED if it is below `done` or a LOCK that
 * arrives late, and with HF_ELIMIT if it is HF_WINDOW_MAX or more above
 * `done`. A new command leaves the session unchanged, because it may still
 * fail. */
enum hf_admission hf_session_admit(struct hf_session *session,
                                   const struct hf_command *command,
                                   struct hf_result *result);

/* Keep the result of an admitted command, and drop the results below its
 * `done`. */
void hf_session_keep(struct hf_session *session,
                     const struct hf_command *command,
                     const struct hf_result *result);

/* The result kept under `sequence`, or NULL. */
struct hf_session_result *hf_session_find(const struct hf_session *session,
                                          uint64_t sequence);

/* Make room for results from `done` to `sequence`. Existing results, even
 * those below `done`, stay until hf_session_keep() overwrites their slot. Can
 * fail with HF_ENOMEM. */
enum hf_err hf_session_reserve(struct hf_session *session, uint64_t done,
                               uint64_t sequence);

#endif
