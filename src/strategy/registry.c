/* Which strategies this build has: one explicit list. */
#include <string.h>

#include "strategy/file/file.h"
#include "strategy/memory.h"
#include "strategy/module.h"
#ifdef HF_REDIS
#include "strategy/redis/redis.h"
#include "strategy/redlock/redlock.h"
#endif

static const struct hf_strategy *const strategies[] = {
    &hf_strategy_memory,
    &hf_strategy_file,
#ifdef HF_REDIS
    /* One for each way to reach a server, and one for several servers. */
    &hf_strategy_redis,
    &hf_strategy_redis_unix,
    &hf_strategy_rediss,
    &hf_strategy_redlock,
#endif
};

/* And those that come when they are asked for. */
static const struct {
    const char *scheme;
    const char *module;
} modules[] = {
#ifdef HF_MONGO_MODULE
    {"mongodb", HF_MONGO_MODULE},
    {"mongodb+srv", HF_MONGO_MODULE},
#endif
    {NULL, NULL},
};

static const char schemes[] = "memory, file"
#ifdef HF_REDIS
                              ", redis, redis+unix, rediss, redlock"
#endif
#ifdef HF_MONGO_MODULE
                              ", mongodb, mongodb+srv"
#endif
    ;

enum hf_err hf_registry_find(const char *scheme,
                             const struct hf_strategy **found,
                             struct hf_error *error)
{
    for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
        if (!strcmp(strategies[i]->scheme, scheme)) {
            *found = strategies[i];
            return HF_OK;
        }
    }
    for (size_t i = 0; modules[i].scheme; i++) {
        if (!strcmp(modules[i].scheme, scheme))
            return hf_module_find(modules[i].module, scheme, found, error);
    }
    return hf_error_set(error, HF_EUNSUPPORTED,
                        "url: no strategy '%s:' in this build, which has %s",
                        scheme, schemes);
}
