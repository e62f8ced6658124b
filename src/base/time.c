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

/* A thread may be preempted between the two reads. Because CLOCK_BOOTTIME is
 * read first, such a pause makes the difference too small, never too large: a
 * deadline computed from it is never too late. The greatest of several
 * differences is then the best. It is rounded to the nearest millisecond, so
 * that the microseconds between two reads do not change it. */
hf_time hf_time_suspended(void)
{
    int64_t most = 0;

    for (int i = 0; i < 3; i++) {
        int64_t boot = now_ns(CLOCK_BOOTTIME);
        int64_t span = boot - now_ns(CLOCK_MONOTONIC);

        if (span > most)
            most = span;
    }
    return (most + 500000) / 1000000;
}
