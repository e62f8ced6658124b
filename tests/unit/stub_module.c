/* A module for test_module.c. It belongs to release VERSION, and has one
 * strategy, which no test opens. */
#include "strategy/module.h"

static const struct hf_strategy strategy = {.scheme = "odd"};
static const struct hf_strategy *const strategies[] = {&strategy, NULL};

HF_API extern const struct hf_module hf_module;
const struct hf_module hf_module = {VERSION, strategies};
