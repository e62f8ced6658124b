/* context.h - what every command needs and no command changes: the address, the
 * parsed pipelines and the write concern. Threads share it without a lock. */
#ifndef HF_STRATEGY_MONGO_CONTEXT_H
#define HF_STRATEGY_MONGO_CONTEXT_H

#include "strategy/mongo/address.h"
#include "strategy/mongo/script.h"

struct hf_mongo_context {
    struct hf_mongo_address address;
    bson_t *scripts[HF_MONGO_SCRIPTS];
    bson_t *times;      /* time_variables.json for this kind of server */
    bson_t *write_opts; /* the write concern */
    bool standalone;    /* no cluster time, no change streams */
};

/* Take the content of `address`, and leave `address` empty. */
void hf_mongo_context_init(struct hf_mongo_context *context,
                           struct hf_mongo_address *address);

/* Set the kind of server, once, before the first pipeline is executed. */
void hf_mongo_context_set_standalone(struct hf_mongo_context *context,
                                     bool standalone);
void hf_mongo_context_fini(struct hf_mongo_context *context);

#endif
