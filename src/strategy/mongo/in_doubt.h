/* in_doubt.h - LOCKs whose outcome is unknown: a copy may still reach a server.
 *
 * When such a claim is released or withdrawn, the server records its nonce in
 * `canceled`, so that a late copy is refused. */
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

/* Record that one more copy of the LOCK may reach a server. If memory is
 * exhausted, the copy is not recorded, and if there are too many nonces, the
 * oldest is forgotten: if such a copy arrives late, it may hold the key until
 * its lease expires. */
void hf_mongo_in_doubt_add(struct hf_mongo_in_doubt *in_doubt,
                           const struct hf_nonce *nonce);

/* Record that a copy that was given up has been answered after all. */
void hf_mongo_in_doubt_resolve(struct hf_mongo_in_doubt *in_doubt,
                               const struct hf_nonce *nonce);

/* Forget the nonce, because the server has recorded it in `canceled`, and late
 * copies do no harm. */
void hf_mongo_in_doubt_remove(struct hf_mongo_in_doubt *in_doubt,
                              const struct hf_nonce *nonce);

#endif
