/* module.h - strategies in a shared object of their own, which comes when a
 * URL asks for it.
 *
 * A library may do a lot as soon as it is loaded: make memory, start another
 * library, print. Who never names its servers shall not have that, nor need
 * it installed. */
#ifndef HF_STRATEGY_MODULE_H
#define HF_STRATEGY_MODULE_H

#include "strategy/strategy.h"

/* What a module exports, as HF_MODULE_SYMBOL and nothing else. */
struct hf_module {
    const char *version; /* HF_VERSION: strategy.h is no promise to others */
    const struct hf_strategy *const *strategies; /* a NULL ends them */
};

#define HF_MODULE_SYMBOL "hf_module"

/* Load the module `file`, once in a process and for good, and find the
 * strategy for `scheme` in it. It is looked for beside the library, then
 * where the system looks for libraries. HF_EUNSUPPORTED. */
enum hf_err hf_module_find(const char *file, const char *scheme,
                           const struct hf_strategy **found,
                           struct hf_error *error);

#endif
