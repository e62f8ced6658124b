/* A module as test_module.c wants it: of the release VERSION, with one
 * strategy, which nobody opens. */
#include "strategy/module.h"

static const struct hf_strategy strategy = {.scheme = "odd"};
static const struct hf_strategy *const strategies[] = {&strategy, NULL};

HF_API extern const struct hf_module hf_module;
const struct hf_module hf_module = {VERSION, strategies};
