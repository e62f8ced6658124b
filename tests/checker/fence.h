/* fence.h - a cell that refuses writes of holders whose time is over.
 *
 * It stands for the store that a lock protects, as small as that can be: it
 * remembers the largest token it was shown and whose it was.
 *
 * Always true:
 *   1. the tokens it accepts never fall;
 *   2. it accepts one token from one nonce alone. */
#ifndef CHECKER_FENCE_H
#define CHECKER_FENCE_H

#include <stdbool.h>
#include <stdint.h>

#define FENCE_NONCE_MAX 64

/* Starts zeroed: no token accepted, value 0. */
struct fence {
    uint64_t token;
    char nonce[FENCE_NONCE_MAX + 1];
    uint64_t value;
};

/* Write `value` if `token` is larger than any before, or the same from the same
 * `nonce` (a string of at most FENCE_NONCE_MAX bytes). Says whether it did. */
bool fence_write(struct fence *fence, uint64_t token, const char *nonce,
                 uint64_t value);

#endif
