/* socket.h - the socket of a connection to a Redis server. */
#ifndef HF_STRATEGY_REDIS_SOCKET_H
#define HF_STRATEGY_REDIS_SOCKET_H

#include <hiredis/hiredis.h>

#include "strategy/redis/address.h"

/* Start connecting. Returns NULL if out of memory; for other failures the
 * context has `err`. */
redisContext *hf_redis_socket_open(const struct hf_redis_address *address);

#endif
