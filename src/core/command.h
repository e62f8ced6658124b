/* command.h - what goes into the lock table, and what comes out, as structs
 * and as bytes.
 *
 * The bytes are what a replicated log carries. Decoding survives any input: it
 * answers HF_EPROTO, and whatever it accepts is within its limits and encodes
 * to the same bytes again. Decoded pointers point into the input. */
#ifndef HF_CORE_COMMAND_H
#define HF_CORE_COMMAND_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/error.h"

enum hf_command_kind {
    HF_COMMAND_OPEN = 1, /* begin a session; `note` is its owner's label */
    HF_COMMAND_CLOSE,    /* end `session`: its waiters are withdrawn */
    HF_COMMAND_LOCK,     /* key nonce lease_ms queue value note */
    HF_COMMAND_UNLOCK,   /* key nonce token */
    HF_COMMAND_RENEW,    /* key nonce token lease_ms */
    HF_COMMAND_UPDATE,   /* key nonce token value, has_expected expected */
    HF_COMMAND_EXPIRE,   /* key token generation */
    HF_COMMAND_CANCEL,   /* key nonce: a waiter leaves, a holder unlocks */
    HF_COMMAND_FORCE,    /* key token now */
    HF_COMMAND_KINDS
};

struct hf_command {
    enum hf_command_kind kind;
    bool queue;        /* LOCK: queue if the key is held */
    bool now;          /* FORCE: pass it on, do not let it run out */
    bool has_expected; /* UPDATE: only if the value is `expected` */
    uint32_t lease_ms;
    uint32_t generation;

    /* Who asks: numbered by `sequence`, and awaiting no answer below `done`.
     * OPEN and EXPIRE belong to no session: they are the driver's. */
    uint64_t session;
    uint64_t sequence;
    uint64_t done;

    uint64_t token;
    struct hf_nonce nonce;
    struct hf_key key;
    struct hf_bytes value;
    struct hf_bytes expected;
    struct hf_bytes note;
};

struct hf_result {
    enum hf_err err;
    uint32_t position;   /* LOCK, HF_EBUSY: in line, 1 is the next; 0: not */
    uint32_t generation; /* of the lease: renewals since the grant */
    uint64_t token;      /* LOCK, CANCEL: of the grant; 0: none */
    uint64_t session;    /* OPEN */
};

/* A failed `buf` says that memory ran out. */
void hf_command_encode(const struct hf_command *command, struct hf_buf *buf);
enum hf_err hf_command_decode(struct hf_command *command, const void *data,
                              size_t size);

void hf_command_encode_result(const struct hf_result *result,
                              struct hf_buf *buf);
enum hf_err hf_command_decode_result(struct hf_result *result, const void *data,
                                     size_t size);

/* The same in the middle of other bytes; a bad result fails the reader. */
void hf_command_read_result(struct hf_result *result, struct hf_reader *reader);

/* Whether every field is within its limits for its kind. */
bool hf_command_is_valid(const struct hf_command *command);

#endif
