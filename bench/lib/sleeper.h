/* sleeper.h - whether the kernel has put a thread to sleep.
 *
 * A hand-over to a thread that is not asleep yet would be measured as too fast,
 * so the benchmarks wait until the thread sleeps. */
#ifndef BENCH_SLEEPER_H
#define BENCH_SLEEPER_H

#include <stdbool.h>
#include <sys/types.h>

struct bench_sleeper {
    int state; /* descriptor of /proc/ID/stat */
};

/* `id` is the id of a thread, or of a process with one thread. */
void bench_sleeper_open(struct bench_sleeper *sleeper, pid_t id);
void bench_sleeper_close(struct bench_sleeper *sleeper);

bool bench_sleeps(const struct bench_sleeper *sleeper);

#endif
