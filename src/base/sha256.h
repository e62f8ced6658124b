/* sha256.h - SHA-256, a one-way hash function (FIPS 180-4).
 *
 * For short inputs that are secret, such as nonces: nobody can compute the
 * input from the hash. Not for maps: siphash.h is several times as fast. */
#ifndef HF_BASE_SHA256_H
#define HF_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define HF_SHA256_SIZE 32

void hf_sha256(uint8_t hash[HF_SHA256_SIZE], const void *data, size_t size);

#endif
