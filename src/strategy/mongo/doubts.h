/* doubts.h - LOCKs of which a copy may still be on its way.
 *
 * Whoever gives such a claim back has the server remember that, so that what
 * comes late takes nothing. */
#ifndef HF_STRATEGY_MONGO_DOUBTS_H
#define HF_STRATEGY_MONGO_DOUBTS_H

#include "base/list.h"
#include "core/command.h"

struct hf_mongo_doubts {
    struct hf_list list;
    unsigned count;
};

void hf_mongo_doubts_init(struct hf_mongo_doubts *doubts);
void hf_mongo_doubts_fini(struct hf_mongo_doubts *doubts);

bool hf_mongo_doubts_has(const struct hf_mongo_doubts *doubts,
                         const struct hf_nonce *nonce);

/* One more copy is under way. Without memory for it, what comes late holds the
 * key for its lease. */
void hf_mongo_doubts_add(struct hf_mongo_doubts *doubts,
                         const struct hf_nonce *nonce);

/* A copy that nobody waited for any more has been answered after all. */
void hf_mongo_doubts_settle(struct hf_mongo_doubts *doubts,
                            const struct hf_nonce *nonce);

/* The server remembers that it was given back. */
void hf_mongo_doubts_drop(struct hf_mongo_doubts *doubts,
                          const struct hf_nonce *nonce);

#endif
