/* protocol.h - the words of the client protocol: commands, errors, and the
 * bytes of an hf_info and an hf_event.
 *
 * holdfast-protocol(7) is the manual of the protocol. The node and the strategy
 * raft: both use this layer, so that each message has one definition. The
 * messages of MUX mode are in wire/mux.h. */
#ifndef HF_WIRE_PROTOCOL_H
#define HF_WIRE_PROTOCOL_H

#include "base/limits.h"
#include "wire/resp.h"

#define HF_PROTOCOL_VERSION 1

/* Nodes and clients accept messages up to these limits. */
#define HF_PROTOCOL_LIMITS                                                     \
    ((struct hf_resp_limits){HF_RESP_ELEMENTS_MAX, HF_RESP_FRAME_MAX})

/* ---- Commands -----------------------------------------------------------
 *
 * Columns: the name; the least and the most words after it in plain mode; the
 * same in MUX mode. -1: the mode does not have the command. The request id of
 * MUX mode, which is before the name, does not count. */
#define HF_VERBS(X)                                                            \
    X(DO, -1, -1, 2, 2) /* first, because it is the most frequent one */       \
    X(PING, 0, 1, 0, 0)                                                        \
    X(ECHO, 1, 1, -1, -1)                                                      \
    X(QUIT, 0, 0, -1, -1)                                                      \
    X(COMMAND, 0, HF_RESP_ELEMENTS_MAX, -1, -1)                                \
    X(HELLO, 1, 2, -1, -1)                                                     \
    X(INFO, 0, 1, -1, -1)                                                      \
    X(STATUS, 0, 0, 0, 0)                                                      \
    X(LOCK, 2, 10, -1, -1)                                                     \
    X(UNLOCK, 3, 3, -1, -1)                                                    \
    X(RENEW, 4, 4, -1, -1)                                                     \
    X(UPDATE, 4, 6, -1, -1)                                                    \
    X(CANCEL, 2, 2, -1, -1)                                                    \
    X(FORCE, 2, 3, -1, -1)                                                     \
    X(READ, 1, 2, 2, 2)                                                        \
    X(LIST, 0, 5, 2, 2)                                                        \
    X(LOOKUP, 2, 2, 3, 3)                                                      \
    X(WATCH, 1, 3, 4, 4)                                                       \
    X(UNWATCH, 0, 0, 1, 1)                                                     \
    X(OPEN, -1, -1, 2, 2)                                                      \
    X(ATTACH, -1, -1, 2, 2)                                                    \
    X(DETACH, -1, -1, 0, 0)

enum hf_verb {
#define HF_VERB(name, ...) HF_VERB_##name,
    HF_VERBS(HF_VERB)
#undef HF_VERB
    HF_VERB_COUNT /* also means: no such command */
};

struct hf_verb_words {
    int min; /* -1: the mode does not have the command */
    int max;
};

const char *hf_verb_name(enum hf_verb verb);
enum hf_verb hf_verb_find(const struct hf_resp_value *name);
struct hf_verb_words hf_verb_words(enum hf_verb verb, bool is_mux);

/* ---- Errors -------------------------------------------------------------
 *
 * An error is a code and a text. The code is the name of an hf_err without
 * "HF_E". Two codes have no hf_err of their own: GONE (the session of an ATTACH
 * does not exist) is HF_ECLOSED, and NOSPACE (a disk is full) is HF_ELIMIT. */
#define HF_CODE_NOSPACE "NOSPACE"

const char *hf_code_name(enum hf_err err);

/* The hf_err of a code; HF_EPROTO if the code is unknown. */
enum hf_err hf_code_find(struct hf_bytes code);

/* Write the error reply "-CODE text". If `text` is NULL, it is
 * hf_err_text(err). */
void hf_code_write(struct hf_buf *buf, enum hf_err err, const char *text);

/* Read an error value: returns its code and sets `*text`, which points into the
 * value. Returns HF_EPROTO and no text if the value is not an error. */
enum hf_err hf_code_read(const struct hf_resp_value *value,
                         struct hf_bytes *text);

/* ---- States of a key, events -------------------------------------------*/

/* The state of a claim, as LOOKUP returns it. */
#define HF_CLAIMS(X)                                                           \
    X(UNKNOWN, "unknown") /* no claim has this nonce, or it has ended */       \
    X(QUEUED, "queued")                                                        \
    X(HELD, "held")

enum hf_claim_state {
#define HF_CLAIM(name, text) HF_CLAIM_##name,
    HF_CLAIMS(HF_CLAIM)
#undef HF_CLAIM
    HF_CLAIM_COUNT
};

const char *hf_claim_name(enum hf_claim_state state);

/* The encoded form of an info and an event. Decoding accepts any input and
 * returns HF_EPROTO if the input is malformed. Decoded pointers point into the
 * input, where strings end with a NUL. info->storage is NULL. */
void hf_protocol_encode_info(const struct hf_info *info, struct hf_buf *buf);
enum hf_err hf_protocol_decode_info(struct hf_info *info,
                                    struct hf_bytes bytes);
void hf_protocol_encode_event(const struct hf_event *event, struct hf_buf *buf);
enum hf_err hf_protocol_decode_event(struct hf_event *event,
                                     struct hf_bytes bytes);

#endif
