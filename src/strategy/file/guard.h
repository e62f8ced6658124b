/* guard.h - mapped files that somebody may cut short.
 *
 * Touching a page that is no longer in its file raises SIGBUS. A guarded
 * mapping becomes empty memory instead: who reads it finds zeros, and tells
 * from them that the file is gone. Signals that are about other memory go to
 * whoever handled them before.
 *
 * It is the one signal that this library handles, from the first guarded
 * mapping on. A program that handles SIGBUS itself, later, takes this away. */
#ifndef HF_STRATEGY_FILE_GUARD_H
#define HF_STRATEGY_FILE_GUARD_H

#include <signal.h>

#include "base/error.h"

#define HF_GUARDS_MAX 256 /* mappings at a time */

/* HF_ELIMIT: there are too many. */
enum hf_err hf_guard_add(void *start, size_t size);
void hf_guard_remove(void *start);

/* Where a program may not make files that large (ulimit -f), making one raises
 * SIGXFSZ, which would end the program. Between these two it is an error, EFBIG,
 * and no signal. They may be nested. errno is kept. */
void hf_guard_block_sigxfsz(sigset_t *mask);
void hf_guard_restore_sigxfsz(const sigset_t *mask);

#endif
