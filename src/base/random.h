/* random.h - random bytes for nonces, hash seeds and jitter.
 *
 * SipHash, a pseudo-random function, generates blocks of bytes from a key that
 * comes from the kernel and is replaced after a few thousand words. The bytes
 * do not come from the kernel directly, because reading 16 bytes from the
 * kernel costs more than acquiring a lock, and reading blocks costs twice as
 * much as generating them. If there is a seed, SplitMix64 generates a
 * reproducible stream from it, for tests. */
#ifndef HF_BASE_RANDOM_H
#define HF_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/siphash.h"

struct hf_random {
    uint64_t seed; /* 0: use `key` */
    struct hf_seed key;
    uint64_t counter; /* words generated with this key */
    size_t unused;    /* bytes left at the end of the block */
    uint8_t block[1024];
};

/* If `seed` is 0, the bytes are secret and generated with keys from the
 * kernel; otherwise they are reproducible and depend only on `seed`. */
void hf_random_init(struct hf_random *random, uint64_t seed);

/* Fill `bytes`. Returns HF_ESYSTEM if getrandom() failed. */
enum hf_err hf_random_bytes(struct hf_random *random, void *bytes, size_t size);

/* A number below `bound`, uniform enough for jitter. Returns 0 if getrandom()
 * failed. */
uint32_t hf_random_below(struct hf_random *random, uint32_t bound);

#endif
