/* greeting.h - the first words to a server: what kind is it, and is the index
 * there? */
#ifndef HF_STRATEGY_MONGO_GREETING_H
#define HF_STRATEGY_MONGO_GREETING_H

#include "strategy/mongo/crew.h"

/* Blocks, up to ten seconds. Then the crew knows what kind of server it is.
 * HF_EUNAVAIL, HF_EUNSUPPORTED, HF_EDENIED, HF_ENOMEM. */
enum hf_err hf_mongo_greet(struct hf_mongo_crew *crew, struct hf_error *error);

#endif
