/* identity.h - the identity of a client: its owner label, id and channel, which
 * are the same on all of its connections. */
#ifndef HF_STRATEGY_REDIS_IDENTITY_H
#define HF_STRATEGY_REDIS_IDENTITY_H

#include "strategy/redis/keyspace.h"
#include "strategy/strategy.h"

#define HF_REDIS_ID_SIZE 16 /* hex digits of a client id */
#define HF_REDIS_CHANNEL_SIZE                                                  \
    (HF_REDIS_SPACE_MAX + HF_REDIS_PREFIX_MAX + HF_REDIS_ID_SIZE)

struct hf_redis_identity {
    const char *owner; /* borrowed from the host */
    char id[HF_REDIS_ID_SIZE + 1];

    /* The pub/sub channel on which this client receives its grants. The key of
     * its heartbeat has the same name. */
    char channel[HF_REDIS_CHANNEL_SIZE];

    /* redlock: the prefix of the channels that announce releases; the key
     * follows it. NULL: releases are not announced. */
    const char *announce;
};

/* Draw a random id, and derive the channel from it. Does not change `announce`.
 * HF_ESYSTEM: no randomness available. */
enum hf_err hf_redis_identity_init(struct hf_redis_identity *identity,
                                   struct hf_host *host,
                                   const struct hf_redis_keyspace *space);

#endif
