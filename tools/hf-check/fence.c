/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "fence.h"

#include <string.h>

static bool can_write(const struct hf_fence *fence, uint64_t token,
                      const char *nonce)
{
    if (token != fence->token)
        return token > fence->token;
    return token && strcmp(nonce, fence->nonce) == 0;
}

bool hf_fence_write(struct hf_fence *fence, uint64_t token, const char *nonce,
                    uint64_t value)
{
    size_t len = strlen(nonce);

    if (len > HF_FENCE_NONCE_MAX || !can_write(fence, token, nonce))
        return false;
    fence->token = token;
    fence->value = value;
    memcpy(fence->nonce, nonce, len + 1);
    return true;
}
