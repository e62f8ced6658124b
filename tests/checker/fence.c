/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "fence.h"

#include <string.h>

static bool may_write(const struct fence *fence, uint64_t token,
                      const char *nonce)
{
    if (token != fence->token)
        return token > fence->token;
    return token && strcmp(nonce, fence->nonce) == 0;
}

bool fence_write(struct fence *fence, uint64_t token, const char *nonce,
                 uint64_t value)
{
    size_t len = strlen(nonce);

    if (len > FENCE_NONCE_MAX || !may_write(fence, token, nonce))
        return false;
    fence->token = token;
    fence->value = value;
    memcpy(fence->nonce, nonce, len + 1);
    return true;
}
