/* directory.h - where and when a file: client is: the directory that its URL
 * means, and what its clock is off by. */
#ifndef HF_STRATEGY_FILE_DIRECTORY_H
#define HF_STRATEGY_FILE_DIRECTORY_H

#include <sys/statfs.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/time.h"
#include "base/url.h"

/* What to do about a directory that cannot be written, for error messages. */
#define HF_DIRECTORY_ADVICE                                                    \
    "; choose another directory with --url file:DIR or HOLDFAST_URL, or make " \
    "this one writable (in a systemd unit: ReadWritePaths=)"

/* The directory, allocated, and the mode to make it with. `file:` alone means
 * one that depends on the user alone, and never on the environment, so that a
 * shell and a cron job meet: below the home that the password database names,
 * or in /var/tmp if it names none, or one that does not exist or is on a
 * network. A home that exists and cannot be written is an error: another
 * directory would be a second store, and have a second holder. */
enum hf_err hf_directory_find(struct hf_url *url, char **path, mode_t *mode,
                              struct hf_error *error);

/* The name of a file system that other machines may share, or NULL: locks are
 * shared through the memory of one kernel. */
const char *hf_directory_network_name(const struct statfs *fs);

/* What this time namespace adds to the monotonic clock of the machine: 0 if the
 * kernel has no time namespaces. HF_ESYSTEM: it cannot be read. */
enum hf_err hf_file_clock_offset(hf_time *offset, struct hf_error *error);

/* The time by the machine's clock, by which the entries of an arena are
 * stamped. */
enum hf_err hf_file_clock_now(hf_time *now, struct hf_error *error);

#endif
