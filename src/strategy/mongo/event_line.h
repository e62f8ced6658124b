/* event_line.h - one line of the field `events` of a document.
 *
 * "KIND TOKEN FREED LEASE OWNER", then " CLIENT NONCE" for each claim whose
 * client has to act. If the key was only offered, GRANTED names the claim that
 * is offered the key, and the first claim of each of up to three other clients
 * in the queue. If a claim was dropped because its client did not confirm an
 * offer, WITHDRAWN names that claim. All other lines name no claim. */
#ifndef HF_STRATEGY_MONGO_EVENT_LINE_H
#define HF_STRATEGY_MONGO_EVENT_LINE_H

#include "strategy/mongo/op.h"

#define HF_MONGO_EVENT_LINE_CLAIMS 4

struct hf_mongo_claim {
    char client[HF_MONGO_CLIENT_SIZE + 1];
    struct hf_nonce nonce;
};

struct hf_mongo_event_line {
    struct hf_event event; /* without key and index */
    uint32_t lease_ms;
    unsigned claim_count;
    struct hf_mongo_claim claims[HF_MONGO_EVENT_LINE_CLAIMS];
    char owner[HF_MONGO_ESCAPED_SIZE(HF_NOTE_MAX)];
};

/* Read the line after the next newline, and advance `cursor` into it. Returns
 * false if there is no such line. Malformed input is not reported: a number
 * that cannot be parsed is 0 (an unknown kind), and claims are read up to the
 * first malformed one. */
bool hf_mongo_event_line_read(const char **cursor,
                              struct hf_mongo_event_line *line);

#endif
