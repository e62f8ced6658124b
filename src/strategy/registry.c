/* Which strategies this build has: one explicit list. */
#include <string.h>

#include "strategy/file/file.h"
#include "strategy/memory.h"
#include "strategy/strategy.h"

static const struct hf_strategy *const strategies[] = {
    &hf_strategy_memory,
    &hf_strategy_file,
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
    return "memory, file";
}
