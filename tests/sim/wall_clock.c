#include "sim/wall_clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t offset_ms;

void sim_wall_clock_jump(int64_t ms)
{
    offset_ms += ms;
}

void sim_wall_clock_reset(void)
{
    offset_ms = 0;
}

/* Replaces the function of libc in the whole program. */
int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    int rc = (int)syscall(SYS_clock_gettime, clock_id, tp);

    if (rc == 0 && clock_id == CLOCK_REALTIME)
        tp->tv_sec += offset_ms / 1000;
    return rc;
}
