#include "base/time.h"

#include <time.h>

static int64_t now_ns(clockid_t clock)
{
    struct timespec now;

    /* This cannot fail: Linux has had both clocks since 2.6.39. */
    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

hf_time hf_time_on(clockid_t clock)
{
    return now_ns(clock) / 1000000;
}

hf_time hf_time_now(void)
{
    return hf_time_on(CLOCK_BOOTTIME);
}

/* Round to the nearest millisecond, because the clocks are read one after the
 * other, and the microseconds in between must not change the result. */
hf_time hf_time_suspended(void)
{
    int64_t awake = now_ns(CLOCK_MONOTONIC);

    return (now_ns(CLOCK_BOOTTIME) - awake + 500000) / 1000000;
}
