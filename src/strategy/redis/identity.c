#include "strategy/redis/identity.h"

#include <stdio.h>

#include "base/hex.h"

enum hf_err hf_redis_identity_init(struct hf_redis_identity *identity,
                                   struct hf_host *host,
                                   const struct hf_redis_keyspace *space)
{
    uint8_t bytes[HF_REDIS_ID_SIZE / 2];
    enum hf_err err =
        hf_random_bytes(host->ops->random(host), bytes, sizeof(bytes));

    if (err)
        return err;
    identity->owner = host->ops->owner(host);
    hf_hex_encode(identity->id, bytes, sizeof(bytes));
    (void)snprintf(identity->channel, sizeof(identity->channel), "%shf:c:%s",
                   space->prefix, identity->id);
    return HF_OK;
}
