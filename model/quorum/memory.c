#include "memory.h"

#include <stdio.h>
#include <stdlib.h>

static void *check_memory(void *memory)
{
    if (!memory) {
        perror("the states do not fit into memory; use smaller bounds");
        exit(2);
    }
    return memory;
}

void *hf_memory_resize(void *memory, size_t count, size_t size)
{
    return check_memory(reallocarray(memory, count, size));
}

void *hf_memory_zeroed(size_t count, size_t size)
{
    return check_memory(calloc(count, size));
}
