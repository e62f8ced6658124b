/* query.h - READ and LIST: decode documents into infos. How much is left of a
 * lease is computed by the clock of the server that answers. */
#ifndef HF_STRATEGY_MONGO_QUERY_H
#define HF_STRATEGY_MONGO_QUERY_H

#include "strategy/mongo/op.h"

enum hf_mongo_scope {
    HF_MONGO_ONE,    /* only the key itself */
    HF_MONGO_PREFIX, /* all held keys that begin with the key */
};

struct hf_mongo_query {
    enum hf_mongo_scope scope;
    bool local; /* read concern "local": a failover may undo what was read */
    bool whole; /* include values */
    bool watch; /* also check that change streams are permitted */
    char *key;  /* escaped */

    /* The id of this client, for hf_mongo_server_prove_primary(). */
    char client[HF_MONGO_CLIENT_SIZE + 1];

    /* Results. */
    struct hf_mongo_reply reply; /* only err, cause and time are used */
    struct hf_info *infos; /* held keys; hf_mongo_query_fini() frees them */
    size_t count;
    bool expired; /* ONE: the lease is due, and no command has ended it yet */
};

/* Can fail with HF_ENOMEM. */
enum hf_err hf_mongo_query_init(struct hf_mongo_query *query, struct hf_key key,
                                enum hf_mongo_scope scope);
void hf_mongo_query_fini(struct hf_mongo_query *query);

/* Execute the query. Blocks; for worker threads. */
void hf_mongo_query_run(struct hf_mongo_query *query, mongoc_client_t *client,
                        const struct hf_mongo_context *context);

/* The same for a linearizable READ. If the lease is due, end it with `expire`,
 * from hf_mongo_op_init_expire(), before the key is reported as free. */
void hf_mongo_query_run_linearizable(struct hf_mongo_query *query,
                                     const struct hf_mongo_op *expire,
                                     mongoc_client_t *client,
                                     const struct hf_mongo_context *context);

/* Read what is left of the lease of `key`, which is escaped, by the clock of
 * `server`; 0 if the lease is due. Returns false if that is unknown. Blocks;
 * for worker threads. */
bool hf_mongo_query_left_ms(const char *key, mongoc_client_t *client,
                            const struct hf_mongo_context *context,
                            const mongoc_server_description_t *server,
                            uint32_t *left_ms);

#endif
