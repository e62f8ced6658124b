/* aims.h - the figures that a benchmark should reach, and a table that says
 * which of them this run reaches. */
#ifndef BENCH_AIMS_H
#define BENCH_AIMS_H

#include "lib/bench.h"

struct bench_range {
    double figure, least, most; /* `least`, `most`: NAN if measured once */
};

/* The median, the least and the most of the rounds. */
struct bench_range bench_range_of(const struct bench_samples *samples);

/* Compare a figure of this run with an aim. */
void bench_aim_at_most(const char *what, double limit,
                       struct bench_range range);
void bench_aim_at_least(const char *what, double limit,
                        struct bench_range range);

/* Print the table of all aims, if there are any. */
void bench_aims_print(struct bench *bench);

#endif
