/* memory.h - memory:NAME, locks for the threads of one process.
 *
 * Clients that name the same store share one lock table. It lives as long as
 * somebody has it open, and tokens restart with it. */
#ifndef HF_STRATEGY_MEMORY_H
#define HF_STRATEGY_MEMORY_H

#include "strategy/strategy.h"

extern const struct hf_strategy hf_strategy_memory;

#endif
