/* arena_recover.c - an arena that was lost while it was in use: a page of it could not
 * be written or read, and the guard has put zeros in place of the mapping.
 *
 * What the client does from then on reaches nobody. If the file is whole, the
 * disk is full or failing: the file is mapped again, and what was not published
 * by then was not done. */
#include <sys/mman.h>
#include <sys/stat.h>

#include "strategy/file/layout.h"

/* The label is never zero in a file that was opened. */
bool hf_arena_is_lost(const struct hf_arena *arena)
{
    const volatile uint64_t *magic = &arena->header->label.magic;

    return *magic == 0;
}

bool hf_arena_recover(struct hf_arena *arena)
{
    struct stat st;

    if (fstat(arena->file, &st) || (uint64_t)st.st_size < arena->size)
        return false;
    return mmap(arena->header, arena->size, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_FIXED, arena->file, 0) != MAP_FAILED;
}
