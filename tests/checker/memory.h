/* memory.h - arrays that grow.
 *
 * A checker that is out of memory has no verdict to give, and a test that
 * asked for one cannot go on: these stop the program with a message and exit
 * status 2 ("no verdict"), so that no caller needs a path for it. */
#ifndef CHECKER_MEMORY_H
#define CHECKER_MEMORY_H

#include <stddef.h>

/* Return `list` with room for `count` + 1 members of `size` bytes. `*room` is
 * how many it had room for, and is updated. Start with NULL and 0; free() it
 * in the end. */
void *memory_grow(void *list, size_t *room, size_t count, size_t size);

/* Return zeroed room for `count` members of `size` bytes, at least one. */
void *memory_new(size_t count, size_t size);

#endif
