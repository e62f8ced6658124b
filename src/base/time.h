/* time.h - instants and spans, in milliseconds.
 *
 * An hf_time is an instant of one machine's boot-time clock, which counts
 * through suspension and which no one can set; or, where all who compete for a
 * lock are suspended together, of its monotonic clock, which stands still then. It
 * never travels: what is sent is a span. */
#ifndef HF_BASE_TIME_H
#define HF_BASE_TIME_H

#include <stdint.h>
#include <time.h>

typedef int64_t hf_time;

#define HF_NEVER INT64_MAX

/* A clock, CLOCK_BOOTTIME or CLOCK_MONOTONIC, rounded down; and the first. */
hf_time hf_time_on(clockid_t clock);
hf_time hf_time_now(void);

/* How long this machine has been suspended since it was started: what the first
 * is ahead of the second. */
hf_time hf_time_suspended(void);

/* `span` after `instant`; HF_NEVER rather than an overflow. */
static inline hf_time hf_time_add(hf_time instant, uint64_t span)
{
    uint64_t sum = (uint64_t)instant + span;

    if (span > (uint64_t)HF_NEVER - (uint64_t)instant)
        return HF_NEVER;
    return (hf_time)sum;
}

/* From `now` until `deadline`: 0 if it has come, at most UINT32_MAX. */
static inline uint32_t hf_time_left(hf_time deadline, hf_time now)
{
    if (deadline <= now)
        return 0;
    if ((uint64_t)deadline - (uint64_t)now > UINT32_MAX)
        return UINT32_MAX;
    return (uint32_t)(deadline - now);
}

#endif
