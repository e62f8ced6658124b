/* random.h - chance: nonces that cannot be guessed, jitter, seeds.
 *
 * Drawn from the kernel in blocks, because one draw of sixteen bytes costs
 * more than a lock. With a seed, a stream that repeats itself, for tests. */
#ifndef HF_BASE_RANDOM_H
#define HF_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct hf_random {
    uint64_t seed; /* 0: the kernel */
    size_t unused; /* bytes left at the end of the block */
    uint8_t block[1024];
};

/* `seed` 0 draws from the kernel. */
void hf_random_init(struct hf_random *random, uint64_t seed);

/* HF_ESYSTEM: the kernel has no randomness to give. */
enum hf_err hf_random_bytes(struct hf_random *random, void *bytes, size_t size);

/* A number below `bound`, near enough to uniform for jitter. Where the kernel
 * refuses it is 0. */
uint32_t hf_random_below(struct hf_random *random, uint32_t bound);

#endif
