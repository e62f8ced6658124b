/* socket.h - the socket of a connection. */
#ifndef HF_STRATEGY_REDIS_SOCKET_H
#define HF_STRATEGY_REDIS_SOCKET_H

#include <hiredis/hiredis.h>

#include "strategy/redis/address.h"

/* Begin to connect. NULL: out of memory; else `err` may be set. */
redisContext *hf_redis_socket_open(const struct hf_redis_address *address);

/* Have the kernel report a peer that is gone: by what was sent and not
 * acknowledged, and by probes where nothing is sent. */
void hf_redis_socket_detect_loss(int fd);

#endif
