#include "lib/cores.h"

#include <sched.h>

#include "lib/bench.h"

void bench_cores_find(size_t cores[2])
{
    int found = 0;
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        bench_fail("cannot read the CPU affinity");
    for (size_t i = 0; i < CPU_SETSIZE && found < 2; i++) {
        if (CPU_ISSET(i, &set))
            cores[found++] = i;
    }
    if (found < 2)
        cores[1] = cores[0];
}

void bench_stay_on(size_t core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof(set), &set) < 0)
        bench_fail("cannot set the CPU affinity");
}
