/* cores.h - choose the core on which a thread runs.
 *
 * The time of a hand-over depends above all on whether the two threads share a
 * core, so the benchmarks choose the cores. */
#ifndef BENCH_CORES_H
#define BENCH_CORES_H

#include <stddef.h>

/* Find the first two cores that this process may use; both are the same if
 * there is only one. */
void bench_cores_find(size_t cores[2]);

/* Keep this thread, and threads and processes that it starts later, on
 * `core`. */
void bench_stay_on(size_t core);

#endif
