#include "base/sha256.h"

#include <string.h>

#define BLOCK 64
#define LENGTH_SIZE 8 /* the length of the input ends the last block */

static const uint32_t constants[BLOCK] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate_right(uint32_t x, unsigned bits)
{
    return x >> bits | x << (32 - bits);
}

static uint32_t load_u32(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 |
           (uint32_t)from[2] << 8 | from[3];
}

static void store_u32(uint8_t *to, uint32_t x)
{
    for (unsigned i = 0; i < 4; i++)
        to[i] = (uint8_t)(x >> (24 - 8 * i));
}

static void expand_block(uint32_t schedule[BLOCK], const uint8_t *block)
{
    for (size_t i = 0; i < 16; i++)
        schedule[i] = load_u32(block + 4 * i);
    for (size_t i = 16; i < BLOCK; i++) {
        uint32_t a = schedule[i - 15], b = schedule[i - 2];

        schedule[i] = schedule[i - 16] + schedule[i - 7] +
                      (rotate_right(a, 7) ^ rotate_right(a, 18) ^ a >> 3) +
                      (rotate_right(b, 17) ^ rotate_right(b, 19) ^ b >> 10);
    }
}

/* FIPS 180-4, section 6.2.2. The names of the variables are those of the
 * standard. */
static void compress_block(uint32_t state[8], const uint8_t *block)
{
    uint32_t schedule[BLOCK];
    uint32_t v[8];

    expand_block(schedule, block);
    memcpy(v, state, sizeof(v));
    for (size_t i = 0; i < BLOCK; i++) {
        uint32_t a = v[0], e = v[4];
        uint32_t t1 =
            v[7] +
            (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)) +
            ((e & v[5]) ^ (~e & v[6])) + constants[i] + schedule[i];
        uint32_t t2 =
            (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) +
            ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));

        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (size_t i = 0; i < 8; i++)
        state[i] += v[i];
}

/* Compress the end of the input, `size` bytes, with its padding: one block, or
 * two if the padding does not fit. */
static void compress_end(uint32_t state[8], const uint8_t *data, size_t size,
                         uint64_t total)
{
    uint8_t blocks[2 * BLOCK] = {0};
    size_t end = size + 1 + LENGTH_SIZE <= BLOCK ? BLOCK : sizeof(blocks);

    if (size > 0)
        memcpy(blocks, data, size);
    blocks[size] = 0x80;
    store_u32(blocks + end - 8, (uint32_t)(total >> 29));
    store_u32(blocks + end - 4, (uint32_t)(total << 3));
    for (size_t i = 0; i < end; i += BLOCK)
        compress_block(state, blocks + i);
}

void hf_sha256(uint8_t hash[HF_SHA256_SIZE], const void *data, size_t size)
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint8_t *bytes = data;
    size_t left = size;

    for (; left >= BLOCK; left -= BLOCK, bytes += BLOCK)
        compress_block(state, bytes);
    compress_end(state, bytes, left, size);
    for (size_t i = 0; i < 8; i++)
        store_u32(hash + 4 * i, state[i]);
}
