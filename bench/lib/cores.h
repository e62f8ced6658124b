/* cores.h - which core of the machine a thread runs on.
 *
 * Where giver and taker run makes more of a difference to a hand-over than
 * anything else, so a benchmark of one does not leave it to chance. */
#ifndef BENCH_CORES_H
#define BENCH_CORES_H

#include <stddef.h>

/* The first two cores that this process may use; twice the same if there is
 * but one. */
void bench_cores_find(size_t cores[2]);

/* Keep this thread, and what it starts from now on, on `core`. */
void bench_stay_on(size_t core);

#endif
