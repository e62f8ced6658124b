/* nested.h - detect a command that would wait for itself.
 *
 * HOLDFAST_HELD lists the locks of the `run` processes among our ancestors,
 * each as a token and a hash of its owner. Such a `run` keeps its lock until we
 * end, so waiting for that lock would be a deadlock. */
#ifndef CLI_NESTED_H
#define CLI_NESTED_H

#include <holdfast.h>

/* Add a lock to the list in the environment. Returns false if memory is
 * exhausted. */
bool nested_export(uint64_t token, const char *owner);

/* Returns true if the holder in `info` is on the list. */
bool nested_holds(const struct hf_info *info);

/* Returns true if there is a list at all. */
bool nested_exists(void);

#endif
