/* time.h - instants and spans, in milliseconds.
 *
 * An hf_time is an instant of one machine's CLOCK_BOOTTIME, which keeps running
 * while the machine is suspended and cannot be set. If all clients that compete
 * for a lock run on one machine, they are suspended together; then an hf_time
 * is an instant of CLOCK_MONOTONIC, which stops during suspension. Instants are
 * never sent to another machine; messages carry spans. */
#ifndef HF_BASE_TIME_H
#define HF_BASE_TIME_H

#include <stdint.h>
#include <time.h>

typedef int64_t hf_time;

#define HF_NEVER INT64_MAX

/* The time of `clock`, CLOCK_BOOTTIME or CLOCK_MONOTONIC, rounded down. */
hf_time hf_time_on(clockid_t clock);

/* The time of CLOCK_BOOTTIME. */
hf_time hf_time_now(void);

/* How long this machine has been suspended since it booted: CLOCK_BOOTTIME
 * minus CLOCK_MONOTONIC. It may be too small if this thread is preempted again
 * and again, but is never too large. */
hf_time hf_time_suspended(void);

/* `instant` plus `span`, or HF_NEVER if the sum overflows. */
static inline hf_time hf_time_add(hf_time instant, uint64_t span)
{
    uint64_t sum = (uint64_t)instant + span;

    if (span > (uint64_t)HF_NEVER - (uint64_t)instant)
        return HF_NEVER;
    return (hf_time)sum;
}

/* The earlier one of two instants. */
static inline hf_time hf_time_min(hf_time a, hf_time b)
{
    return a < b ? a : b;
}

/* The span from `now` to `deadline`, at most UINT32_MAX; 0 if the deadline has
 * passed. */
static inline uint32_t hf_time_left(hf_time deadline, hf_time now)
{
    if (deadline <= now)
        return 0;
    if ((uint64_t)deadline - (uint64_t)now > UINT32_MAX)
        return UINT32_MAX;
    return (uint32_t)(deadline - now);
}

#endif
