/* keyspace.h - what keys and channels are called on the server.
 *
 * With ?prefix=P everything of a client is below P: the lock K is P K, its
 * queue P hf:q: K, the shared keys P hf:token and so on. So tenants share a
 * server without meeting, and an ACL can confine each to its own. */
#ifndef HF_STRATEGY_REDIS_KEYSPACE_H
#define HF_STRATEGY_REDIS_KEYSPACE_H

#include "base/error.h"
#include "base/url.h"

#define HF_REDIS_SPACE_MAX 64  /* bytes of ?prefix= */
#define HF_REDIS_PREFIX_MAX 24 /* of what is put between it and the key */

/* Of a name, with room for a byte before it. */
#define HF_REDIS_KEY_SIZE                                                      \
    (HF_REDIS_SPACE_MAX + HF_REDIS_PREFIX_MAX + HF_KEY_MAX)

/* Keys that all locks share: see record.lua and watch.lua. */
enum hf_redis_shared {
    HF_REDIS_KEY_TOKEN,
    HF_REDIS_KEY_WATCHED,
    HF_REDIS_KEY_PREFIXES,
    HF_REDIS_KEY_EVENTS,
    HF_REDIS_KEY_HELD,
    HF_REDIS_KEY_ENDS,
    HF_REDIS_KEY_UNTIL,
    HF_REDIS_CHANNEL_FORCED, /* not a key: see pubsub.c */
    HF_REDIS_KEYS_SHARED
};

struct hf_redis_keyspace {
    char prefix[HF_REDIS_SPACE_MAX + 1];
    size_t prefix_size;
    char shared[HF_REDIS_KEYS_SHARED][HF_REDIS_SPACE_MAX + HF_REDIS_PREFIX_MAX];
};

/* HF_EINVAL: the prefix is too long, or is one of holdfast's own. */
enum hf_err hf_redis_keyspace_init(struct hf_redis_keyspace *space,
                                   struct hf_url *url, struct hf_error *error);

/* Write the name of `key`, with `infix` ("hf:q:", or "") before it. Returns its
 * size. */
size_t hf_redis_keyspace_name(const struct hf_redis_keyspace *space,
                              const char *infix, struct hf_key key,
                              char to[HF_REDIS_KEY_SIZE]);

/* The user's key that is called `name`; false if it is not in this space. */
bool hf_redis_keyspace_strip(const struct hf_redis_keyspace *space,
                             struct hf_key name, struct hf_key *key);

/* Return true if a user's key begins with "hf:", the prefix of holdfast's own
 * keys. */
bool hf_redis_keyspace_is_reserved(struct hf_key key);

#endif
