/* command.h - commands to the lock table and their results, as structs and as
 * bytes.
 *
 * The encoded form is what a replicated log carries. Decoding is safe for any
 * input: it returns HF_EPROTO for malformed bytes, and a command that it
 * accepts is within all limits and encodes to the same bytes again. Decoded
 * pointers point into the input.
 *
 * Commands and snapshots have a version, which says how they are encoded and
 * what they do. A table is at one version (table->version), and so are all
 * replicas of it. They write nothing newer; when all of them know a newer
 * version, a VERSION command raises it. A replica that reads a version that it
 * does not know cannot continue (HF_EUNSUPPORTED). */
#ifndef HF_CORE_COMMAND_H
#define HF_CORE_COMMAND_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/error.h"

#define HF_VERSION_FIRST 1
#ifndef HF_VERSION_NEWEST   /* a test of upgrades defines a newer one */
#define HF_VERSION_NEWEST 1 /* the newest version that this build knows */
#endif

/* The comments list the members of struct hf_command that a command uses,
 * besides `session`, `sequence` and `done`. */
enum hf_command_kind {
    HF_COMMAND_OPEN = 1, /* nonce, note: open a session with this secret and
                            this label */
    HF_COMMAND_CLOSE,    /* close `session` and withdraw its waiters, unless it
                            has sent a command above `sequence` */
    HF_COMMAND_LOCK,     /* key, nonce, lease_ms, queue, value, note */
    HF_COMMAND_UNLOCK,   /* key, nonce, token */
    HF_COMMAND_RENEW,    /* key, nonce, token, lease_ms */
    HF_COMMAND_UPDATE,   /* key, nonce, token, value, has_expected, expected */
    HF_COMMAND_EXPIRE,   /* key, token, generation */
    HF_COMMAND_CANCEL,   /* key, nonce: withdraw a waiter or release a holder */
    HF_COMMAND_FORCE,    /* key, token, now */
    HF_COMMAND_VERSION,  /* version: raise the version of the table to it */
    HF_COMMAND_KINDS
};

struct hf_command {
    enum hf_command_kind kind;
    bool queue;        /* LOCK: wait in the queue if the key is held */
    bool now;          /* FORCE: end the grant at once, not with its lease */
    bool has_expected; /* UPDATE: only if the value equals `expected` */
    uint8_t version;
    uint32_t lease_ms;
    uint32_t generation;

    /* The session that sends the command, the number of the command within the
     * session, and the lowest number whose result the session may still need.
     * OPEN, CLOSE, EXPIRE and VERSION come from the driver. Of these, only
     * CLOSE has a session; its sequence is the highest that the driver knows
     * of. */
    uint64_t session;
    uint64_t sequence;
    uint64_t done;

    uint64_t token;
    struct hf_nonce nonce; /* of the claim; OPEN: the secret of the session */
    struct hf_key key;
    struct hf_bytes value;
    struct hf_bytes expected;
    struct hf_bytes note;
};

struct hf_result {
    enum hf_err err;
    uint32_t position; /* LOCK, HF_EBUSY: in the queue, from 1; 0: not queued */
    uint32_t generation; /* renewals since the grant */
    uint64_t token;      /* LOCK, CANCEL: the grant's token; 0: none */
    uint64_t session;    /* OPEN: the id of the session */
};

/* Append `command` to `buf`, encoded with `version`, which is at most
 * HF_VERSION_NEWEST. Sets buf->failed if memory runs out. */
void hf_command_encode(const struct hf_command *command, uint8_t version,
                       struct hf_buf *buf);

/* Returns the table version that a replica must know to apply the encoded
 * command: that of its encoding, or the one to which it raises the table. The
 * command may be malformed. */
uint8_t hf_command_version(const void *data, size_t size);

/* Decode the `size` bytes at `data`. HF_EPROTO: they are malformed.
 * HF_EUNSUPPORTED: the version of the command, or the version to which it
 * raises the table, is newer than HF_VERSION_NEWEST. */
enum hf_err hf_command_decode(struct hf_command *command, const void *data,
                              size_t size);

void hf_command_encode_result(const struct hf_result *result,
                              struct hf_buf *buf);
enum hf_err hf_command_decode_result(struct hf_result *result, const void *data,
                                     size_t size);

/* Read a result that is followed by other data. A malformed result sets
 * reader->failed. */
void hf_command_read_result(struct hf_result *result, struct hf_reader *reader);

/* Returns true if the kind of the command is known, and every field is within
 * the limits of that kind. */
bool hf_command_is_valid(const struct hf_command *command);

/* Returns true if a session keeps the results of commands of this kind. */
bool hf_command_is_kept(enum hf_command_kind kind);

#endif
