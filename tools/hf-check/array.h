/* array.h - arrays that grow.
 *
 * A checker that runs out of memory has no verdict. These functions then exit
 * with a message and status 2 ("no verdict"), so callers need no error path. */
#ifndef HF_CHECK_TOOL_ARRAY_H
#define HF_CHECK_TOOL_ARRAY_H

#include <stddef.h>

/* Return `list` with room for `count` + 1 members of `size` bytes. `*room` is
 * its current capacity, and is updated. Start with NULL and 0; the caller calls
 * free(). */
void *hf_array_grow(void *list, size_t *room, size_t count, size_t size);

/* Return a zeroed array of `count` members of `size` bytes, at least one. */
void *hf_array_new(size_t count, size_t size);

#endif
