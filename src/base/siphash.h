/* siphash.h - SipHash-2-4, a keyed hash function.
 *
 * Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012). The input
 * comes from users, so keep the seed secret: an attacker who does not know it
 * cannot choose keys that collide. */
#ifndef HF_BASE_SIPHASH_H
#define HF_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct hf_seed {
    uint8_t bytes[16];
};

uint64_t hf_siphash(const struct hf_seed *seed, const void *data, size_t size);

#endif
