/* protocol.h - the values in messages of the client protocol: claims, and the
 * bytes of an hf_info and an hf_event. The commands are in wire/verb.h, the
 * errors in wire/code.h.
 *
 * holdfast-protocol(7) is the manual of the protocol. The node and the strategy
 * raft: both use this layer, so that each message has one definition. The
 * messages of MUX mode are in wire/mux.h. */
#ifndef HF_WIRE_PROTOCOL_H
#define HF_WIRE_PROTOCOL_H

#include "base/limits.h"
#include "wire/code.h"
#include "wire/verb.h"

#define HF_PROTOCOL_VERSION 1

/* Nodes and clients accept messages up to these limits. */
#define HF_PROTOCOL_LIMITS                                                     \
    ((struct hf_resp_limits){HF_RESP_ELEMENTS_MAX, HF_RESP_FRAME_MAX})

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

const char *hf_protocol_claim_name(enum hf_claim_state state);

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
