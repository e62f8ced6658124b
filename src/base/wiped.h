/* wiped.h - state of the whole process that a forked child starts over.
 *
 * fork() copies a mutex as it is: one that another thread holds stays locked
 * in the child for ever, because only the forking thread exists there. State
 * that threads share therefore lives in a page that the kernel replaces with
 * zeros in every child (MADV_WIPEONFORK, as for docs/decisions/0008). On Linux
 * zeros are an unlocked mutex and a condition without waiters; everything else
 * in the page must treat zeros as "not used yet". */
#ifndef HF_BASE_WIPED_H
#define HF_BASE_WIPED_H

#include <stddef.h>

/* Return the state behind `*page`, `size` bytes at most a page, which the
 * first call maps. It is never unmapped. NULL: the kernel refuses; see errno.
 *
 * Any thread. Takes no lock itself, so a fork at any point is harmless. */
void *hf_wiped_get(void *_Atomic *page, size_t size);

#endif
