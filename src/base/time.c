#include "base/time.h"

#include <time.h>

hf_time hf_time_now(void)
{
    struct timespec now;

    /* Cannot fail: the clock exists since Linux 2.6.39. */
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (hf_time)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
