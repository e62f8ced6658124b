/* bytes.h - copy and compare keys, values and nonces; store numbers. */
#ifndef HF_BASE_BYTES_H
#define HF_BASE_BYTES_H

#include <string.h>

#include "holdfast.h"

struct hf_nonce {
    uint8_t bytes[HF_NONCE_SIZE];
};

/* memcpy(), except that `from` may be NULL if `size` is 0. */
static inline void hf_copy(void *to, const void *from, size_t size)
{
    if (size > 0)
        memcpy(to, from, size);
}

/* Store a number, the least significant byte first. */
static inline void hf_bytes_put_u32(uint8_t *to, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(x >> (8 * i));
}

static inline void hf_bytes_put_u64(uint8_t *to, uint64_t x)
{
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(x >> (8 * i));
}

static inline bool hf_bytes_equal(struct hf_bytes a, struct hf_bytes b)
{
    return a.size == b.size && (a.size == 0 || !memcmp(a.data, b.data, a.size));
}

static inline bool hf_key_equal(struct hf_key a, struct hf_key b)
{
    return a.size == b.size && !memcmp(a.data, b.data, a.size);
}

static inline bool hf_key_has_prefix(struct hf_key key, struct hf_key prefix)
{
    return key.size >= prefix.size &&
           (prefix.size == 0 || !memcmp(key.data, prefix.data, prefix.size));
}

/* Compare in byte order. A key sorts before every longer key that begins with
 * it. */
static inline int hf_key_compare(struct hf_key a, struct hf_key b)
{
    size_t common = a.size < b.size ? a.size : b.size;
    int order = common > 0 ? memcmp(a.data, b.data, common) : 0;

    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

/* Compare in constant time, because a nonce is a secret, and the time of a
 * comparison must not reveal where two nonces differ. */
static inline bool hf_nonce_equal(const struct hf_nonce *a,
                                  const struct hf_nonce *b)
{
    unsigned difference = 0;

    for (size_t i = 0; i < sizeof(a->bytes); i++)
        difference |= (unsigned)(a->bytes[i] ^ b->bytes[i]);
    return difference == 0;
}

/* Use the first bytes of a nonce as its hash. Use it only for a map of nonces
 * that this client drew itself, which are random: other clients could choose
 * nonces that collide. */
static inline uint64_t hf_nonce_own_hash(const struct hf_nonce *nonce)
{
    uint64_t hash;

    memcpy(&hash, nonce->bytes, sizeof(hash));
    return hash;
}

#endif
