/* guard.h - protects the program if a mapped file is truncated or the disk is
 * full.
 *
 * Touching a page that is beyond the end of its file, or that the disk has no
 * room for, raises SIGBUS. A guarded mapping then becomes zeroed anonymous
 * memory, and its user recognizes the loss by the zeros. A SIGBUS about other
 * memory goes to the previous handler.
 *
 * SIGBUS is the only signal that this library handles, from the first guarded
 * mapping on. A program that installs its own SIGBUS handler later removes the
 * protection. */
#ifndef HF_STRATEGY_FILE_GUARD_H
#define HF_STRATEGY_FILE_GUARD_H

#include <signal.h>

#include "base/error.h"

#define HF_GUARDS_MAX 256 /* mappings guarded at a time */

/* Guard a mapping. HF_ELIMIT: HF_GUARDS_MAX mappings are guarded already. */
enum hf_err hf_guard_add(void *start, size_t size);
void hf_guard_remove(void *start);

/* hf_guard_block_sigxfsz() blocks SIGXFSZ and saves the old signal mask in
 * `*mask`, which hf_guard_restore_sigxfsz() restores. Growing a file beyond
 * the limit of the process (ulimit -f) raises SIGXFSZ, which would terminate
 * the program. Between these two calls, growing the file fails with EFBIG
 * instead. The calls may be nested. errno is preserved. */
void hf_guard_block_sigxfsz(sigset_t *mask);
void hf_guard_restore_sigxfsz(const sigset_t *mask);

#endif
