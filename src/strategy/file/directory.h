/* directory.h - the directory that a file: URL names. */
#ifndef HF_STRATEGY_FILE_DIRECTORY_H
#define HF_STRATEGY_FILE_DIRECTORY_H

#include <sys/statfs.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/url.h"

/* Advice for error messages about a directory that cannot be written. */
#define HF_DIRECTORY_ADVICE                                                    \
    "; choose another directory with --url file:DIR or HOLDFAST_URL, or make " \
    "this one writable (in a systemd unit: ReadWritePaths=)"

/* Find the directory of the URL, allocated, and the mode to create it with.
 *
 * `file:` without a path means a directory that depends on the user and never
 * on the environment, so that a shell and a cron job use the same one. It is
 * below the home directory in the password database, or in /var/tmp if there is
 * no home, or if it does not exist or is on a network file system. A home that
 * exists but cannot be written is an error: a fallback would be a second store,
 * in which the same key could have a second holder. */
enum hf_err hf_directory_find(struct hf_url *url, char **path, mode_t *mode,
                              struct hf_error *error);

/* The name of a file system that several machines may share, or NULL. Such a
 * directory is refused, because clients share memory through one kernel. */
const char *hf_directory_network_name(const struct statfs *fs);

#endif
