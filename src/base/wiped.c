#include "base/wiped.h"

#include <stdatomic.h>
#include <sys/mman.h>

static void *map_wiped(size_t size)
{
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return NULL;
    if (madvise(page, size, MADV_WIPEONFORK)) {
        (void)munmap(page, size);
        return NULL;
    }
    return page;
}

void *hf_wiped_get(void *_Atomic *page, size_t size)
{
    void *known = atomic_load(page);
    void *mapped;

    if (known)
        return known;
    mapped = map_wiped(size);
    if (!mapped)
        return NULL;
    if (atomic_compare_exchange_strong(page, &known, mapped))
        return mapped;
    (void)munmap(mapped, size); /* another thread has mapped a page first */
    return known;
}
