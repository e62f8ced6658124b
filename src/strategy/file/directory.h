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

/* Set `*path` to the directory that the URL names, which the caller frees, and
 * `*mode` to the mode to create it with.
 *
 * `file:` without a path means a directory that depends on the user and never
 * on the environment, so that a shell and a cron job use the same one. It is
 * below the home directory in the password database, or in /var/tmp if the user
 * has no home there, or if the home does not exist or is on a network file
 * system. A home that exists but cannot be written is an error: a fallback
 * would be a second store, in which the same key could have a second holder. */
enum hf_err hf_directory_find(struct hf_url *url, char **path, mode_t *mode,
                              struct hf_error *error);

/* If several machines may share the file system `fs`, return its name,
 * otherwise NULL. A directory on such a file system is refused, because clients
 * share memory through one kernel. */
const char *hf_directory_network_name(const struct statfs *fs);

#endif
