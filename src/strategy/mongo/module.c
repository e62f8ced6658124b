/* module.c - the entry point of the module libholdfast-mongodb. */
#include "strategy/module.h"
#include "strategy/mongo/mongo.h"

static const struct hf_strategy *const strategies[] = {
    &hf_strategy_mongodb,
    &hf_strategy_mongodb_srv,
    NULL,
};

HF_API extern const struct hf_module hf_module;
const struct hf_module hf_module = {HF_VERSION, strategies};
