/* clock.h - the machine's clock, which all clients of an arena share, and which
 * stamps the arena's entries.
 *
 * The machine's clock is the monotonic clock without the offset of this time
 * namespace, because a container may have a time namespace of its own. */
#ifndef HF_STRATEGY_FILE_CLOCK_H
#define HF_STRATEGY_FILE_CLOCK_H

#include "base/error.h"
#include "base/time.h"

/* Set `*offset` to what this time namespace adds to the machine's monotonic
 * clock, or to 0 if the kernel has no time namespaces. HF_ESYSTEM: the offset
 * cannot be read. */
enum hf_err hf_clock_offset(hf_time *offset, struct hf_error *error);

/* Set `*now` to the time on the machine's clock. HF_ESYSTEM: the offset cannot
 * be read. */
enum hf_err hf_clock_now(hf_time *now, struct hf_error *error);

#endif
