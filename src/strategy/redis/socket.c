#include "strategy/redis/socket.h"

redisContext *hf_redis_socket_open(const struct hf_redis_address *address)
{
    if (address->port == 0)
        return redisConnectUnixNonBlock(address->host);
    return redisConnectNonBlock(address->host, address->port);
}
