/* place.h - what every command needs to know, which does not change: where the
 * locks are, and what is said there. */
#ifndef HF_STRATEGY_MONGO_PLACE_H
#define HF_STRATEGY_MONGO_PLACE_H

#include "strategy/mongo/address.h"
#include "strategy/mongo/script.h"

struct hf_mongo_place {
    struct hf_mongo_address address;
    bson_t *scripts[HF_MONGO_SCRIPTS];
    bson_t *times;      /* variables: those of times.json for this server */
    bson_t *write_opts; /* the concern, without a server */
    bool alone;         /* a standalone server: no cluster time, no stream */
};

/* `address` goes over to the place. */
void hf_mongo_place_init(struct hf_mongo_place *place,
                         struct hf_mongo_address *address);

/* Before the first command: which kind of server it is. */
void hf_mongo_place_set_alone(struct hf_mongo_place *place, bool alone);
void hf_mongo_place_fini(struct hf_mongo_place *place);

#endif
