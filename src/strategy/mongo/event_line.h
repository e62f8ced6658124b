/* event_line.h - one event, as a line of the text that a document has of its last
 * ones: "KIND TOKEN FREED LEASE OWNER", and " CLIENT NONCE" of each claim whose
 * client has to act: GRANTED names the one that is offered the key and the first
 * of each of the next three clients, WITHDRAWN one that was dropped with others of its client. */
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

/* Read the line that follows `at`, and move on. False: there is none. What is no
 * line of ours is read as something harmless. */
bool hf_mongo_event_line_read(const char **at,
                              struct hf_mongo_event_line *line);

#endif
