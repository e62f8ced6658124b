/* handshake.h - check the kind of server, and create the TTL index. */
#ifndef HF_STRATEGY_MONGO_HANDSHAKE_H
#define HF_STRATEGY_MONGO_HANDSHAKE_H

#include "strategy/mongo/workers.h"

/* Check that the server is supported, create the TTL index, and record in
 * `workers` whether the server is standalone. Blocks for up to ten seconds. Can
 * fail with HF_EUNAVAIL, HF_EUNSUPPORTED, HF_EDENIED, HF_EINVAL, HF_EPROTO or
 * HF_ENOMEM. */
enum hf_err hf_mongo_handshake_run(struct hf_mongo_workers *workers,
                                   struct hf_error *error);

/* Create the TTL index if it does not exist. With the index, the server deletes
 * documents whose date in `delete_at` has passed. Later sweeps call this again,
 * because dropping the collection drops the index, too. Returns false, with the
 * cause in `fault`, if that failed. Blocks; any thread. */
bool hf_mongo_handshake_create_index(mongoc_client_t *client,
                                     const struct hf_mongo_context *context,
                                     bson_error_t *fault);

#endif
