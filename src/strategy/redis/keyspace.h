/* keyspace.h - the names of keys and channels on the server.
 *
 * With ?prefix=P every name begins with P: the lock K is "PK", its queue
 * "Phf:q:K", the token counter "Phf:token". This lets tenants share a server,
 * and an ACL can restrict each tenant to its prefix. */
#ifndef HF_STRATEGY_REDIS_KEYSPACE_H
#define HF_STRATEGY_REDIS_KEYSPACE_H

#include "base/error.h"
#include "base/url.h"

#define HF_REDIS_SPACE_MAX 64  /* bytes of ?prefix= */
#define HF_REDIS_PREFIX_MAX 24 /* bytes of an infix such as "hf:q:" */

/* The largest size of a name. */
#define HF_REDIS_KEY_SIZE                                                      \
    (HF_REDIS_SPACE_MAX + HF_REDIS_PREFIX_MAX + HF_KEY_MAX)

/* Keys that all locks use; record.lua and watch.lua describe them. */
enum hf_redis_shared {
    HF_REDIS_KEY_TOKEN,
    HF_REDIS_KEY_WATCHED,
    HF_REDIS_KEY_PREFIXES,
    HF_REDIS_KEY_EVENTS,
    HF_REDIS_KEY_HELD,
    HF_REDIS_KEY_ENDS,
    HF_REDIS_KEY_UNTIL,
    HF_REDIS_CHANNEL_FORCED, /* a channel, not a key: see pubsub.c */
    HF_REDIS_KEYS_SHARED
};

struct hf_redis_keyspace {
    char prefix[HF_REDIS_SPACE_MAX + 1];
    size_t prefix_size;
    char shared[HF_REDIS_KEYS_SHARED][HF_REDIS_SPACE_MAX + HF_REDIS_PREFIX_MAX];
};

/* Read ?prefix=. HF_EINVAL: it is too long, or begins with "hf:". */
enum hf_err hf_redis_keyspace_init(struct hf_redis_keyspace *space,
                                   struct hf_url *url, struct hf_error *error);

/* Write the prefix, `infix` (such as "hf:q:", or "") and the key to `to`,
 * without a NUL. Returns the size. */
size_t hf_redis_keyspace_name(const struct hf_redis_keyspace *space,
                              const char *infix, struct hf_key key,
                              char to[HF_REDIS_KEY_SIZE]);

/* Remove the prefix from `name`. `*key` points into `name`. Returns false if
 * the name does not have the prefix. */
bool hf_redis_keyspace_strip(const struct hf_redis_keyspace *space,
                             struct hf_key name, struct hf_key *key);

/* Returns true if a user's key begins with "hf:", the prefix of holdfast's own
 * keys. */
bool hf_redis_keyspace_is_reserved(struct hf_key key);

#endif
