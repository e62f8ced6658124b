/* arena_recover.c - detects that the mapping of an arena was lost, and maps the
 * file again. A mapping is lost if a page could not be read or written: the
 * guard (guard.h) then replaces the mapping by zeros.
 *
 * Changes to a lost mapping reach no other client. If the file has its full
 * size, the disk is full or failing: the file is mapped again, and unpublished
 * changes are lost. */
#include <sys/mman.h>
#include <sys/stat.h>

#include "strategy/file/layout.h"

/* The magic number of an open arena is never zero, so a zero shows that the
 * guard has replaced the mapping. */
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
