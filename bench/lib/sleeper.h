/* sleeper.h - whether a thread sleeps, by what the kernel says of it: one that
 * was caught on its way to bed would flatter the figure of its waking. */
#ifndef BENCH_SLEEPER_H
#define BENCH_SLEEPER_H

#include <stdbool.h>
#include <sys/types.h>

struct bench_sleeper {
    int state; /* a descriptor of /proc/.../stat */
};

/* `id` is the kernel's, of a thread or of a process with one thread. */
void bench_sleeper_open(struct bench_sleeper *sleeper, pid_t id);
void bench_sleeper_close(struct bench_sleeper *sleeper);

bool bench_sleeps(const struct bench_sleeper *sleeper);

#endif
