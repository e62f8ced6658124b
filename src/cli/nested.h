/* nested.h - the locks that are held by the `run`s above this process.
 *
 * HOLDFAST_HELD lists them, each as a token and a hash of its owner. A command
 * that waits for one of these locks would wait for its own end. */
#ifndef CLI_NESTED_H
#define CLI_NESTED_H

#include <holdfast.h>

/* Add a lock to the list in the environment. False: out of memory. */
bool nested_export(uint64_t token, const char *owner);

/* Whether the holder in `info` is on the list. */
bool nested_holds(const struct hf_info *info);

/* Whether there is a list at all. */
bool nested_exists(void);

#endif
