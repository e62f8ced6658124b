/* flock.h - hints for users who type an option of flock(1). */
#ifndef CLI_FLOCK_H
#define CLI_FLOCK_H

#include <stddef.h>

/* What to use instead of the option `name` of `size` bytes, such as "s" or
 * "shared". Returns NULL if flock has no such option, or if holdfast has the
 * same option. */
const char *flock_hint(const char *name, size_t size);

#endif
