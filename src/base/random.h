/* random.h - chance: nonces that cannot be guessed, jitter, seeds.
 *
 * Made in blocks by SipHash, a pseudo-random function, from a key that the
 * kernel gives and that is changed now and then: one draw of sixteen bytes from
 * the kernel costs more than a lock, and in blocks still twice what this does.
 * With a seed, a stream that repeats itself, for tests. */
#ifndef HF_BASE_RANDOM_H
#define HF_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/siphash.h"

struct hf_random {
    uint64_t seed; /* 0: keyed by the kernel */
    struct hf_seed key;
    uint64_t counter; /* words made with this key */
    size_t unused;    /* bytes left at the end of the block */
    uint8_t block[1024];
};

/* With `seed` 0 the kernel gives the key. */
void hf_random_init(struct hf_random *random, uint64_t seed);

/* HF_ESYSTEM: the kernel has no randomness to give. */
enum hf_err hf_random_bytes(struct hf_random *random, void *bytes, size_t size);

/* A number below `bound`, near enough to uniform for jitter. Where the kernel
 * refuses it is 0. */
uint32_t hf_random_below(struct hf_random *random, uint32_t bound);

#endif
