#include "base/random.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

void hf_random_init(struct hf_random *random, uint64_t seed)
{
    random->seed = seed;
    random->unused = 0;
}

/* SplitMix64 (Steele, Lea, Flood, 2014). */
static uint64_t next(uint64_t *seed)
{
    uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static void refill_from_seed(struct hf_random *random)
{
    for (size_t i = 0; i < sizeof(random->block); i += sizeof(uint64_t)) {
        uint64_t word = next(&random->seed);

        memcpy(random->block + i, &word, sizeof(word));
    }
}

static enum hf_err refill(struct hf_random *random)
{
    size_t filled = 0;

    if (random->seed) {
        refill_from_seed(random);
        filled = sizeof(random->block);
    }
    while (filled < sizeof(random->block)) {
        ssize_t got = getrandom(random->block + filled,
                                sizeof(random->block) - filled, 0);

        if (got < 0 && errno != EINTR)
            return HF_ESYSTEM;
        if (got > 0)
            filled += (size_t)got;
    }
    random->unused = sizeof(random->block);
    return HF_OK;
}

enum hf_err hf_random_bytes(struct hf_random *random, void *bytes, size_t size)
{
    uint8_t *to = bytes;

    while (size > 0) {
        size_t part = size < random->unused ? size : random->unused;
        uint8_t *from = random->block + sizeof(random->block) - random->unused;

        if (part == 0) {
            enum hf_err err = refill(random);

            if (err)
                return err;
            continue;
        }
        memcpy(to, from, part);
        memset(from, 0, part); /* a nonce is a secret: keep no second copy */
        random->unused -= part;
        to += part;
        size -= part;
    }
    return HF_OK;
}

uint32_t hf_random_below(struct hf_random *random, uint32_t bound)
{
    uint32_t x = 0;

    if (hf_random_bytes(random, &x, sizeof(x)))
        return 0;
    return (uint32_t)(((uint64_t)x * bound) >> 32);
}
