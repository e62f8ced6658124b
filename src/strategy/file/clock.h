/* clock.h - the clock of the machine, which all clients of an arena share. The
 * entries of an arena are stamped with it.
 *
 * It is the monotonic clock without the offset of this time namespace: a
 * container may have a namespace of its own. */
#ifndef HF_STRATEGY_FILE_CLOCK_H
#define HF_STRATEGY_FILE_CLOCK_H

#include "base/error.h"
#include "base/time.h"

/* What this time namespace adds to the monotonic clock of the machine: 0 if the
 * kernel has no time namespaces. HF_ESYSTEM: the offset cannot be read. */
enum hf_err hf_clock_offset(hf_time *offset, struct hf_error *error);

/* The time on the clock of the machine. HF_ESYSTEM, as above. */
enum hf_err hf_clock_now(hf_time *now, struct hf_error *error);

#endif
