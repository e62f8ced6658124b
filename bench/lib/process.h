/* process.h - child processes of a benchmark.
 *
 * They synchronize at gates and write their results to shared memory. If a
 * child fails, the benchmark fails and kills the others. */
#ifndef BENCH_PROCESS_H
#define BENCH_PROCESS_H

#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

/* Allocate zeroed memory that is shared with children that are started later.
 * It is never freed. */
void *bench_share(size_t size);

/* Start a child that calls `run(arg)` and exits; at most BENCH_CHILDREN_MAX at
 * a time. It inherits the core of its parent. */
#define BENCH_CHILDREN_MAX 1024

pid_t bench_start(void (*run)(void *arg), void *arg);

/* Fail if a child has failed. */
void bench_check_children(void);

/* Wait until every child has exited. Fail if a child has failed. */
void bench_join_children(void);

/* ---- Gates --------------------------------------------------------------*/

/* A counter in shared memory that processes can wait for. */
struct bench_gate {
    atomic_uint count;
};

/* Increment the counter, and wake the processes that wait for it. */
void bench_gate_open(struct bench_gate *gate);

/* Wait until the gate was opened `count` times. */
void bench_gate_wait(struct bench_gate *gate, unsigned count);

#endif
