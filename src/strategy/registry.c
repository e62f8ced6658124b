/* Which strategies this build has: one explicit list. */
#include <string.h>

#include "strategy/file/file.h"
#include "strategy/memory.h"
#ifdef HF_MONGO
#include "strategy/mongo/mongo.h"
#endif
#ifdef HF_REDIS
#include "strategy/redis/redis.h"
#include "strategy/redis/redlock.h"
#endif
#include "strategy/strategy.h"

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
#ifdef HF_MONGO
    &hf_strategy_mongodb,
    &hf_strategy_mongodb_srv,
#endif
};

const struct hf_strategy *hf_strategy_find(const char *scheme)
{
    for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
        if (!strcmp(strategies[i]->scheme, scheme))
            return strategies[i];
    }
    return NULL;
}

const char *hf_strategy_schemes(void)
{
    return "memory, file"
#ifdef HF_REDIS
           ", redis, redis+unix, rediss, redlock"
#endif
#ifdef HF_MONGO
           ", mongodb, mongodb+srv"
#endif
        ;
}
