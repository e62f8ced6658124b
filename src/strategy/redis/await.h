/* await.h - wait for connections before an event loop runs: for hf_open(). */
#ifndef HF_STRATEGY_REDIS_AWAIT_H
#define HF_STRATEGY_REDIS_AWAIT_H

#include "strategy/redis/connection.h"

/* Wait until each connection is up or has failed. Once `enough` are up, the
 * others have a moment left. One that loads its data is tried again. Blocks
 * for at most `timeout_ms`; then each connection that is not up has a failure. */
void hf_redis_await_connections(struct hf_redis_connection *const *connections,
                                unsigned count, unsigned enough,
                                uint32_t timeout_ms);

#endif
