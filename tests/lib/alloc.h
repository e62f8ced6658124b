/* alloc.h - counts what is allocated, and makes the n-th allocation fail.
 *
 * For programs linked with
 *
 *     -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=strdup
 *
 * which sends the calls of the program and of the static library here; what
 * libc and shared libraries allocate for themselves is not seen. A block that
 * they allocated and the program frees makes the counts too low, so count the
 * calls of a case, not of a program. Any thread. */
#ifndef HF_TESTS_LIB_ALLOC_H
#define HF_TESTS_LIB_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* Blocks and bytes that are allocated now. Bytes are counted as the allocator
 * rounds them. */
long hf_alloc_blocks(void);
long hf_alloc_bytes(void);

/* Allocations asked for so far, whether they were had or not. */
unsigned long hf_alloc_calls(void);

/* Let `count` allocations fail, beginning with the `nth` from now on, 1 for
 * the next one. The last word counts; a count of 0 lets none fail. */
void hf_alloc_fail(unsigned long nth, unsigned long count);

/* Stop failing; whether any has failed since the last hf_alloc_fail(). */
bool hf_alloc_failed(void);

#endif
