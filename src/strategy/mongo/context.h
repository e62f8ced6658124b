/* context.h - what every command needs to know, which does not change: where the
 * locks are, and what is said there. */
#ifndef HF_STRATEGY_MONGO_CONTEXT_H
#define HF_STRATEGY_MONGO_CONTEXT_H

#include "strategy/mongo/address.h"
#include "strategy/mongo/script.h"

struct hf_mongo_context {
    struct hf_mongo_address address;
    bson_t *scripts[HF_MONGO_SCRIPTS];
    bson_t *times; /* variables: those of time_variables.json for this server */
    bson_t *write_opts; /* the concern, without a server */
    bool standalone;    /* a standalone server: no cluster time, no stream */
};

/* `address` goes over to the place. */
void hf_mongo_context_init(struct hf_mongo_context *context,
                           struct hf_mongo_address *address);

/* Before the first command: which kind of server it is. */
void hf_mongo_context_set_standalone(struct hf_mongo_context *context,
                                     bool standalone);
void hf_mongo_context_fini(struct hf_mongo_context *context);

#endif
