/* Which strategies this build has: one explicit list. */
#include <string.h>

#include "strategy/file/file.h"
#include "strategy/memory.h"
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
#ifdef HF_REDIS
    return "memory, file, redis, redis+unix, rediss, redlock";
#else
    return "memory, file";
#endif
}
