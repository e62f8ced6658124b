/* figures.h - the rounds of one scene of a benchmark, beside those of a floor:
 * the least that a program can do. A ratio is that of two measurements of the
 * same round. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include "lib/baton.h"
#include "lib/bench.h"
#include "lib/workers.h"

struct bench_pace_figures {
    struct bench_samples rate, p50, p99;
    struct bench_samples rate_of, p50_of, p99_of; /* of the floor */
};

struct bench_handover_figures {
    struct bench_samples p50, p99, fairness;
    struct bench_samples p50_of, p99_of; /* of the floor */
};

/* Add a round. `floor` has one already; it may be `figures`. */
void bench_pace_add(struct bench_pace_figures *figures,
                    const struct bench_pace_figures *floor,
                    struct bench_pace pace);
void bench_handovers_add(struct bench_handover_figures *figures,
                         const struct bench_handover_figures *floor,
                         struct bench_handovers handovers);

/* Add cells to a row of a table, the medians: the rate, p50 and p99, each with
 * its ratio to the floor; or p50 and p99, each with its ratio, and the
 * fairness. */
void bench_pace_cells(struct bench_table *table,
                      const struct bench_pace_figures *figures);
void bench_handover_cells(struct bench_table *table,
                          const struct bench_handover_figures *figures);

#endif
