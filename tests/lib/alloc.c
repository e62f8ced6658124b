#include "lib/alloc.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The linker's names: __wrap_f is called in place of f, __real_f is f. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t number, size_t size);
void *__real_realloc(void *block, size_t size);
void __real_free(void *block);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t number, size_t size);
void *__wrap_realloc(void *block, size_t size);
void __wrap_free(void *block);
char *__wrap_strdup(const char *text);

static atomic_long blocks;
static atomic_long bytes;
static atomic_ulong calls;
static atomic_ulong fail_from; /* number of the first call to fail; 0: none */
static atomic_ulong fail_to;
static atomic_bool failed;

long hf_alloc_blocks(void)
{
    return atomic_load(&blocks);
}

long hf_alloc_bytes(void)
{
    return atomic_load(&bytes);
}

unsigned long hf_alloc_calls(void)
{
    return atomic_load(&calls);
}

void hf_alloc_fail(unsigned long nth, unsigned long count)
{
    unsigned long from = atomic_load(&calls) + nth;

    atomic_store(&failed, false);
    atomic_store(&fail_from, 0);
    atomic_store(&fail_to, from + count);
    atomic_store(&fail_from, count > 0 ? from : 0);
}

bool hf_alloc_failed(void)
{
    atomic_store(&fail_from, 0);
    return atomic_load(&failed);
}

/* Count a call. Returns true if the call has to fail. */
static bool must_fail(void)
{
    unsigned long call = atomic_fetch_add(&calls, 1) + 1;
    unsigned long from = atomic_load(&fail_from);

    if (from == 0 || call < from || call >= atomic_load(&fail_to))
        return false;
    atomic_store(&failed, true);
    errno = ENOMEM;
    return true;
}

static void *count_block(void *block)
{
    if (block) {
        atomic_fetch_add(&blocks, 1);
        atomic_fetch_add(&bytes, (long)malloc_usable_size(block));
    }
    return block;
}

static void uncount_block(void *block)
{
    if (block) {
        atomic_fetch_sub(&blocks, 1);
        atomic_fetch_sub(&bytes, (long)malloc_usable_size(block));
    }
}

void *__wrap_malloc(size_t size)
{
    return must_fail() ? NULL : count_block(__real_malloc(size));
}

void *__wrap_calloc(size_t number, size_t size)
{
    return must_fail() ? NULL : count_block(__real_calloc(number, size));
}

/* A failed realloc leaves the old block allocated and counted. */
void *__wrap_realloc(void *block, size_t size)
{
    size_t old = block ? malloc_usable_size(block) : 0;
    void *new;

    if (must_fail())
        return NULL;
    new = __real_realloc(block, size);
    if (!new)
        return NULL;
    atomic_fetch_add(&blocks, block ? 0 : 1);
    atomic_fetch_add(&bytes, (long)malloc_usable_size(new) - (long)old);
    return new;
}

void __wrap_free(void *block)
{
    uncount_block(block);
    __real_free(block);
}

char *__wrap_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = __wrap_malloc(size);

    return copy ? memcpy(copy, text, size) : NULL;
}
