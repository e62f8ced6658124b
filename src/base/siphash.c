#include "base/siphash.h"

#include <string.h>

struct state {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotate(uint64_t x, int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

/* Load a little-endian number on any machine, because snapshots contain hashes
 * as checksums, and every machine must compute the same hash. */
static inline uint64_t load_le64(const uint8_t *bytes)
{
    uint64_t x;

    memcpy(&x, bytes, sizeof(x));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap64(x);
#endif
    return x;
}

static inline void round_once(struct state *s)
{
    s->v0 += s->v1;
    s->v1 = rotate(s->v1, 13) ^ s->v0;
    s->v0 = rotate(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = rotate(s->v1, 17) ^ s->v2;
    s->v2 = rotate(s->v2, 32);
}

static inline void absorb(struct state *s, uint64_t word)
{
    s->v3 ^= word;
    round_once(s);
    round_once(s);
    s->v0 ^= word;
}

uint64_t hf_siphash(const struct hf_seed *seed, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    uint64_t k0 = load_le64(seed->bytes);
    uint64_t k1 = load_le64(seed->bytes + 8);
    struct state s = {
        k0 ^ UINT64_C(0x736f6d6570736575),
        k1 ^ UINT64_C(0x646f72616e646f6d),
        k0 ^ UINT64_C(0x6c7967656e657261),
        k1 ^ UINT64_C(0x7465646279746573),
    };
    uint64_t last = (uint64_t)size << 56;
    size_t whole = size & ~(size_t)7;

    for (size_t i = 0; i < whole; i += 8)
        absorb(&s, load_le64(bytes + i));
    for (size_t i = whole; i < size; i++)
        last |= (uint64_t)bytes[i] << (8 * (i - whole));
    absorb(&s, last);
    s.v2 ^= 0xff;
    for (int i = 0; i < 4; i++)
        round_once(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
