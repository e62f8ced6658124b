/* fence.h - a cell that rejects writes of former holders.
 *
 * A minimal model of the store that a lock protects: it remembers the largest
 * token that it accepted, and the nonce that came with it.
 *
 * Always true:
 *   1. the tokens it accepts never decrease;
 *   2. it accepts each token from one nonce only. */
#ifndef HF_CHECK_TOOL_FENCE_H
#define HF_CHECK_TOOL_FENCE_H

#include <stdbool.h>
#include <stdint.h>

#define HF_FENCE_NONCE_MAX 64

/* Zero it before use: it has accepted no token then, and its value is 0. */
struct hf_fence {
    uint64_t token;
    char nonce[HF_FENCE_NONCE_MAX + 1];
    uint64_t value;
};

/* Write `value` if `token` is larger than any accepted token, or equal to the
 * largest one and from the same `nonce` (a string of at most HF_FENCE_NONCE_MAX
 * bytes). Returns true if the write is accepted. */
bool hf_fence_write(struct hf_fence *fence, uint64_t token, const char *nonce,
                    uint64_t value);

#endif
