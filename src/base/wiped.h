/* wiped.h - process-wide state that is zero again in a forked child.
 *
 * If fork() copies a mutex that another thread holds, the mutex stays locked in
 * the child forever, because only the forking thread exists there. State that
 * threads share is therefore kept in a page that the kernel fills with zeros in
 * every child (MADV_WIPEONFORK; see docs/decisions/0008). On Linux a zeroed
 * mutex is unlocked and a zeroed condition variable has no waiters; all other
 * state in the page must treat zero as "not initialised". */
#ifndef HF_BASE_WIPED_H
#define HF_BASE_WIPED_H

#include <stddef.h>

/* Returns the state at `*page`, of `size` bytes, at most one page. The first
 * call maps the page, which is never unmapped. Returns NULL and sets errno if
 * mmap() or madvise() failed.
 *
 * Any thread may call this. It takes no lock, so a fork at any point is
 * harmless. */
void *hf_wiped_get(void *_Atomic *page, size_t size);

#endif
