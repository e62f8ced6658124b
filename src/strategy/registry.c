/* registry.c - the strategies of this build: one list.
 *
 * A strategy joins with one line here (CONTRIBUTING.md): X(NAME) if the library
 * contains hf_strategy_NAME, or a row with its scheme and its module. */
#include <stdio.h>
#include <string.h>

#include "strategy/module.h"

#ifdef HF_REDIS
#define REDIS_STRATEGIES(X) X(redis) X(redis_unix) X(rediss) X(redlock)
#else
#define REDIS_STRATEGIES(X)
#endif

#define STRATEGIES(X)                                                          \
    X(memory)                                                                  \
    X(file)                                                                    \
    X(raft)                                                                    \
    X(quorum)                                                                  \
    REDIS_STRATEGIES(X)

#define DECLARE(name) extern const struct hf_strategy hf_strategy_##name;
STRATEGIES(DECLARE)
#undef DECLARE

static const struct row {
    const struct hf_strategy *strategy; /* NULL: the strategy is in `module` */
    const char *scheme;
    const char *module;
} rows[] = {
#define ROW(name) {.strategy = &hf_strategy_##name},
    STRATEGIES(ROW)
#undef ROW
#ifdef HF_MONGO_MODULE
        {.scheme = "mongodb", .module = HF_MONGO_MODULE},
    {.scheme = "mongodb+srv", .module = HF_MONGO_MODULE},
#endif
};
#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

static const char *scheme_of(const struct row *row)
{
    return row->strategy ? row->strategy->scheme : row->scheme;
}

static enum hf_err fail_unknown(const char *scheme, struct hf_error *error)
{
    char known[256] = "";

    for (size_t i = 0; i < ROW_COUNT; i++) {
        size_t size = strlen(known);

        (void)snprintf(known + size, sizeof(known) - size, "%s%s",
                       i > 0 ? ", " : "", scheme_of(&rows[i]));
    }
    return hf_error_set(error, HF_EUNSUPPORTED,
                        "url: no strategy '%s:' in this build, which has %s",
                        scheme, known);
}

enum hf_err hf_registry_find(const char *scheme,
                             const struct hf_strategy **found,
                             struct hf_error *error)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (strcmp(scheme_of(&rows[i]), scheme) != 0)
            continue;
        if (!rows[i].strategy)
            return hf_module_find(rows[i].module, scheme, found, error);
        *found = rows[i].strategy;
        return HF_OK;
    }
    return fail_unknown(scheme, error);
}
