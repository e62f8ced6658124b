/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors */
#include "memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *checked(void *memory)
{
    if (!memory) {
        fputs("checker: out of memory\n", stderr);
        exit(2);
    }
    return memory;
}

void *memory_grow(void *list, size_t *room, size_t count, size_t size)
{
    if (count < *room)
        return list;
    size_t wanted = *room ? *room * 2 : 16;
    if (wanted > SIZE_MAX / 2 / size)
        return checked(NULL);
    *room = wanted;
    return checked(realloc(list, wanted * size));
}

void *memory_new(size_t count, size_t size)
{
    return checked(calloc(count ? count : 1, size));
}
