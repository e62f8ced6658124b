/* place.h - where and when a file: client is: the directory that its URL
 * means, and what its clock is off by. */
#ifndef HF_STRATEGY_FILE_PLACE_H
#define HF_STRATEGY_FILE_PLACE_H

#include <sys/types.h>

#include "base/error.h"
#include "base/time.h"
#include "base/url.h"

/* The directory, allocated, and the mode to make it with. `file:` alone means
 * one that depends on the user alone, and never on the environment, so that a
 * shell and a cron job meet. */
enum hf_err hf_place_find(struct hf_url *url, char **path, mode_t *mode,
                          struct hf_error *error);

/* What this time namespace adds to the boot-time clock of the machine. */
hf_time hf_place_clock_offset(void);

#endif
