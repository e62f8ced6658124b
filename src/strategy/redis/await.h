/* await.h - wait for connections without an event loop, for hf_open(). */
#ifndef HF_STRATEGY_REDIS_AWAIT_H
#define HF_STRATEGY_REDIS_AWAIT_H

#include "strategy/redis/connection.h"

/* Wait until each connection is up or has failed. Once `enough` of them are up,
 * the others get a quarter of a second more. A server that is still loading its
 * data is retried. Blocks for at most `timeout_ms`. Afterwards each connection
 * that is not up has a `failure`. */
void hf_redis_await_connections(struct hf_redis_connection *const *connections,
                                unsigned count, unsigned enough,
                                uint32_t timeout_ms);

#endif
