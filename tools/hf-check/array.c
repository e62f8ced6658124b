/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "array.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *require_memory(void *memory)
{
    if (!memory) {
        fputs("hf-check: out of memory\n", stderr);
        exit(2);
    }
    return memory;
}

void *hf_array_grow(void *list, size_t *room, size_t count, size_t size)
{
    if (count < *room)
        return list;
    size_t wanted = *room ? *room * 2 : 16;
    if (wanted > SIZE_MAX / 2 / size)
        return require_memory(NULL);
    *room = wanted;
    return require_memory(realloc(list, wanted * size));
}

void *hf_array_new(size_t count, size_t size)
{
    return require_memory(calloc(count ? count : 1, size));
}
