#include "strategy/redis/keyspace.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

static const char *const shared_names[HF_REDIS_KEYS_SHARED] = {
    [HF_REDIS_KEY_TOKEN] = "hf:token",
    [HF_REDIS_KEY_WATCHED] = "hf:watched",
    [HF_REDIS_KEY_PREFIXES] = "hf:prefixes",
    [HF_REDIS_KEY_EVENTS] = "hf:events",
    [HF_REDIS_KEY_HELD] = "hf:held",
    [HF_REDIS_KEY_ENDS] = "hf:ends",
    [HF_REDIS_KEY_UNTIL] = "hf:until",
    [HF_REDIS_CHANNEL_FORCED] = "hf:forced",
};

enum hf_err hf_redis_keyspace_init(struct hf_redis_keyspace *space,
                                   struct hf_url *url, struct hf_error *error)
{
    const char *prefix = hf_url_param(url, "prefix");

    *space = (struct hf_redis_keyspace){.prefix_size = 0};
    if (prefix && strlen(prefix) > HF_REDIS_SPACE_MAX)
        return hf_error_set(error, HF_EINVAL,
                            "url: prefix: '%s' is longer than %d bytes", prefix,
                            HF_REDIS_SPACE_MAX);
    if (prefix && !strncmp(prefix, "hf:", 3))
        return hf_error_set(error, HF_EINVAL,
                            "url: prefix: '%s': names that begin with 'hf:' "
                            "are reserved; choose another prefix",
                            prefix);
    if (prefix) {
        space->prefix_size = strlen(prefix);
        memcpy(space->prefix, prefix, space->prefix_size);
    }
    for (unsigned i = 0; i < HF_REDIS_KEYS_SHARED; i++)
        (void)snprintf(space->shared[i], sizeof(space->shared[i]), "%s%s",
                       space->prefix, shared_names[i]);
    return HF_OK;
}

size_t hf_redis_keyspace_name(const struct hf_redis_keyspace *space,
                              const char *infix, struct hf_key key,
                              char to[HF_REDIS_KEY_SIZE])
{
    size_t size = strlen(infix);

    hf_copy(to, space->prefix, space->prefix_size);
    hf_copy(to + space->prefix_size, infix, size);
    hf_copy(to + space->prefix_size + size, key.data, key.size);
    return space->prefix_size + size + key.size;
}

bool hf_redis_keyspace_strip(const struct hf_redis_keyspace *space,
                             struct hf_key name, struct hf_key *key)
{
    struct hf_key prefix = {space->prefix, space->prefix_size};

    if (!hf_key_has_prefix(name, prefix))
        return false;
    key->data = (const char *)name.data + prefix.size;
    key->size = name.size - prefix.size;
    return true;
}

bool hf_redis_keyspace_is_reserved(struct hf_key key)
{
    return hf_key_has_prefix(key, (struct hf_key){"hf:", 3});
}
