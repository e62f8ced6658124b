/* memory.h - memory:NAME, locks for the threads of one process.
 *
 * Clients with the same NAME share one store, which is freed when its last
 * client is closed. A new store continues with the tokens of freed stores, so
 * the tokens of a key always increase. */
#ifndef HF_STRATEGY_MEMORY_H
#define HF_STRATEGY_MEMORY_H

#include "strategy/strategy.h"

extern const struct hf_strategy hf_strategy_memory;

#endif
