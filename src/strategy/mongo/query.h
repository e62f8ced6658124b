/* query.h - reading and listing, on the clock of the server that is asked. */
#ifndef HF_STRATEGY_MONGO_QUERY_H
#define HF_STRATEGY_MONGO_QUERY_H

#include "strategy/mongo/op.h"

enum hf_mongo_scope {
    HF_MONGO_ONE,    /* the key itself */
    HF_MONGO_PREFIX, /* what begins with it and is held */
};

struct hf_mongo_query {
    enum hf_mongo_scope scope;
    bool local; /* what the server knows; may be undone */
    bool whole; /* with values */
    bool watch; /* HF_EDENIED where the user may not open change streams */
    char *key;  /* as text */
    char client[HF_MONGO_CLIENT_SIZE + 1];

    /* What came of it. */
    struct hf_mongo_reply reply; /* err, cause and time */
    struct hf_info *infos;       /* held ones; the caller frees them */
    size_t count;
    bool expired; /* ONE: its lease has ended, and nobody ended it yet */
};

/* HF_ENOMEM. */
enum hf_err hf_mongo_query_init(struct hf_mongo_query *query, struct hf_key key,
                                enum hf_mongo_scope scope);
void hf_mongo_query_fini(struct hf_mongo_query *query);

/* In a worker thread. */
void hf_mongo_query_run(struct hf_mongo_query *query, mongoc_client_t *client,
                        const struct hf_mongo_context *context);

/* How much of the lease of `key` is left, by the clock of `server`. False: it
 * is not known. */
bool hf_mongo_query_left_ms(const char *key, mongoc_client_t *client,
                            const struct hf_mongo_context *context,
                            const mongoc_server_description_t *server,
                            uint32_t *left_ms);

#endif
