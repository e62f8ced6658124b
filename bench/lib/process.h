/* process.h - processes that do a part of a benchmark together.
 *
 * They meet at gates and leave what they find in shared memory. A child that
 * fails ends the program, and children end with it, so that nobody waits for
 * a figure that never comes. */
#ifndef BENCH_PROCESS_H
#define BENCH_PROCESS_H

#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

/* Memory that children started later share; zeroed, kept until the end. */
void *bench_share(size_t size);

/* Start a child that does `run(arg)` and ends; at most BENCH_CHILDREN_MAX live
 * at a time. It starts on the core of its parent. */
#define BENCH_CHILDREN_MAX 1024

pid_t bench_start(void (*run)(void *arg), void *arg);

/* Fail if a child has failed. */
void bench_check_children(void);

/* Wait until every child has ended, and the same. */
void bench_join_children(void);

/* ---- Gates --------------------------------------------------------------*/

/* Counts up, in shared memory, from zero. */
struct bench_gate {
    atomic_uint count;
};

/* Count one more, and wake who waits for it. */
void bench_gate_open(struct bench_gate *gate);

/* Wait until it was opened `count` times. */
void bench_gate_wait(struct bench_gate *gate, unsigned count);

#endif
