/* flock.h - what to write instead of an option of flock(1). */
#ifndef CLI_FLOCK_H
#define CLI_FLOCK_H

#include <stddef.h>

/* A hint for the option `name` of `size` bytes, "s" or "shared"; NULL if flock
 * has no such option, or holdfast has it too. */
const char *flock_hint(const char *name, size_t size);

#endif
