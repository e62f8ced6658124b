/* handshake.h - the first words to a server: what kind is it, and is the index
 * there? */
#ifndef HF_STRATEGY_MONGO_HANDSHAKE_H
#define HF_STRATEGY_MONGO_HANDSHAKE_H

#include "strategy/mongo/workers.h"

/* Blocks, up to ten seconds. Then the workers knows what kind of server it is.
 * HF_EUNAVAIL, HF_EUNSUPPORTED, HF_EDENIED, HF_ENOMEM. */
enum hf_err hf_mongo_handshake_run(struct hf_mongo_workers *workers,
                                   struct hf_error *error);

#endif
