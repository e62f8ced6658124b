#include "base/random.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

/* Words generated with one key. This is a multiple of the words in a block,
 * because refill_from_key() checks the counter only once per block. */
#define WORDS_PER_KEY 8192

void hf_random_init(struct hf_random *random, uint64_t seed)
{
    *random = (struct hf_random){.seed = seed};
}

/* SplitMix64 (Steele, Lea, Flood, 2014). */
static uint64_t splitmix64(uint64_t *seed)
{
    uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static void refill_from_seed(struct hf_random *random)
{
    for (size_t i = 0; i < sizeof(random->block); i += sizeof(uint64_t)) {
        uint64_t word = splitmix64(&random->seed);

        memcpy(random->block + i, &word, sizeof(word));
    }
}

/* Replace the key, so that a key that leaks does not reveal the nonces that
 * were generated with earlier keys. */
static enum hf_err change_key(struct hf_random *random)
{
    size_t filled = 0;

    while (filled < sizeof(random->key.bytes)) {
        ssize_t got = getrandom(random->key.bytes + filled,
                                sizeof(random->key.bytes) - filled, 0);

        if (got < 0 && errno != EINTR)
            return HF_ESYSTEM;
        if (got > 0)
            filled += (size_t)got;
    }
    random->counter = 0;
    return HF_OK;
}

static enum hf_err refill_from_key(struct hf_random *random)
{
    if (random->counter % WORDS_PER_KEY == 0) {
        enum hf_err err = change_key(random);

        if (err)
            return err;
    }
    for (size_t i = 0; i < sizeof(random->block); i += sizeof(uint64_t)) {
        uint64_t word;

        random->counter++;
        word =
            hf_siphash(&random->key, &random->counter, sizeof(random->counter));
        memcpy(random->block + i, &word, sizeof(word));
    }
    return HF_OK;
}

static enum hf_err refill_block(struct hf_random *random)
{
    enum hf_err err = HF_OK;

    if (random->seed)
        refill_from_seed(random);
    else
        err = refill_from_key(random);
    if (!err)
        random->unused = sizeof(random->block);
    return err;
}

enum hf_err hf_random_bytes(struct hf_random *random, void *bytes, size_t size)
{
    uint8_t *to = bytes;

    while (size > 0) {
        size_t part = size < random->unused ? size : random->unused;
        uint8_t *from = random->block + sizeof(random->block) - random->unused;

        if (part == 0) {
            enum hf_err err = refill_block(random);

            if (err)
                return err;
            continue;
        }
        memcpy(to, from, part);
        memset(from, 0, part); /* a nonce is a secret; keep no copy */
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
