/* nested.h - the locks of the `run`s that have started this command.
 *
 * HOLDFAST_HELD lists them: a token and a hash of the owner each. To wait for
 * one of them is to wait for oneself. */
#ifndef CLI_NESTED_H
#define CLI_NESTED_H

#include <holdfast.h>

/* Add the lock with this token and owner to the list in the environment. False:
 * out of memory. */
bool nested_export(uint64_t token, const char *owner);

/* Whether the list has the holder of a key. */
bool nested_holds(const struct hf_info *info);

/* Whether there is a list at all. */
bool nested_exists(void);

#endif
