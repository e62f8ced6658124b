/* in_doubt.h - LOCKs of which a copy may still be on its way.
 *
 * Whoever gives such a claim back has the server remember that, so that what
 * comes late takes nothing. */
#ifndef HF_STRATEGY_MONGO_IN_DOUBT_H
#define HF_STRATEGY_MONGO_IN_DOUBT_H

#include "base/dlist.h"
#include "core/command.h"

struct hf_mongo_in_doubt {
    struct hf_dlist list;
    unsigned count;
};

void hf_mongo_in_doubt_init(struct hf_mongo_in_doubt *in_doubt);
void hf_mongo_in_doubt_fini(struct hf_mongo_in_doubt *in_doubt);

bool hf_mongo_in_doubt_has(const struct hf_mongo_in_doubt *in_doubt,
                           const struct hf_nonce *nonce);

/* One more copy is under way. Without memory for it, what comes late holds the
 * key for its lease. */
void hf_mongo_in_doubt_add(struct hf_mongo_in_doubt *in_doubt,
                           const struct hf_nonce *nonce);

/* A copy that nobody waited for any more has been answered after all. */
void hf_mongo_in_doubt_resolve(struct hf_mongo_in_doubt *in_doubt,
                               const struct hf_nonce *nonce);

/* The server remembers that it was given back. */
void hf_mongo_in_doubt_remove(struct hf_mongo_in_doubt *in_doubt,
                              const struct hf_nonce *nonce);

#endif
