/* alloc.h - counts allocations, and makes the n-th one fail.
 *
 * For programs linked with
 *
 *     -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=strdup
 *
 * which redirects the calls of the program and of the static library.
 * Allocations inside libc and shared libraries are not counted. A block that
 * libc allocates and the program frees is subtracted, so the counts may become
 * negative: compare the counts before and after a case, not with 0. Any thread
 * may call these functions. */
#ifndef HF_TESTS_LIB_ALLOC_H
#define HF_TESTS_LIB_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* Blocks and bytes allocated now. A block counts with its usable size. */
long hf_alloc_blocks(void);
long hf_alloc_bytes(void);

/* Allocations requested so far, including failed ones. */
unsigned long hf_alloc_calls(void);

/* Make `count` allocations fail, starting with the `nth` from now on; 1 is the
 * next one. Replaces an earlier request; a count of 0 cancels it. */
void hf_alloc_fail(unsigned long nth, unsigned long count);

/* Stop failing. Returns true if an allocation has failed since
 * hf_alloc_fail(). */
bool hf_alloc_failed(void);

#endif
