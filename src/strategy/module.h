/* module.h - load strategies from a shared object when a URL needs them.
 *
 * A library may allocate memory, load other libraries or print messages as soon
 * as it is loaded. Programs that do not use its servers should not load it, nor
 * need it installed. */
#ifndef HF_STRATEGY_MODULE_H
#define HF_STRATEGY_MODULE_H

#include "strategy/strategy.h"

/* The only symbol that a module exports; its name is HF_MODULE_SYMBOL. */
struct hf_module {
    const char *version; /* must be HF_VERSION, because strategy.h may change */
    const struct hf_strategy *const *strategies; /* NULL-terminated */
};

#define HF_MODULE_SYMBOL "hf_module"

/* Load the module `file` and find the strategy for `scheme` in it. The
 * library's directory is searched first, then the system's library path. A
 * module is loaded once and never unloaded. Can fail with HF_EUNSUPPORTED. */
enum hf_err hf_module_find(const char *file, const char *scheme,
                           const struct hf_strategy **found,
                           struct hf_error *error);

#endif
