#include "lib/figures.h"

static double last_of(const struct bench_samples *samples)
{
    return samples->at[samples->count - 1];
}

/* Add `sample`, and its ratio to that of the floor in the same round. */
static void add_ratio(struct bench_samples *samples,
                      struct bench_samples *ratios,
                      const struct bench_samples *floor, double sample)
{
    bench_add(samples, sample);
    bench_add(ratios, sample / last_of(floor));
}

void bench_pace_add(struct bench_pace_figures *figures,
                    const struct bench_pace_figures *floor,
                    struct bench_pace pace)
{
    add_ratio(&figures->rate, &figures->rate_of, &floor->rate, pace.rate);
    add_ratio(&figures->p50, &figures->p50_of, &floor->p50, pace.p50);
    add_ratio(&figures->p99, &figures->p99_of, &floor->p99, pace.p99);
}

void bench_handovers_add(struct bench_handover_figures *figures,
                         const struct bench_handover_figures *floor,
                         struct bench_handovers handovers)
{
    add_ratio(&figures->p50, &figures->p50_of, &floor->p50, handovers.p50);
    add_ratio(&figures->p99, &figures->p99_of, &floor->p99, handovers.p99);
    bench_add(&figures->fairness, handovers.fairness);
}

void bench_pace_cells(struct bench_table *table,
                      const struct bench_pace_figures *figures)
{
    bench_table_number(table, bench_median(&figures->rate));
    bench_table_number(table, bench_median(&figures->rate_of));
    bench_table_number(table, bench_median(&figures->p50));
    bench_table_number(table, bench_median(&figures->p50_of));
    bench_table_number(table, bench_median(&figures->p99));
    bench_table_number(table, bench_median(&figures->p99_of));
}

void bench_handover_cells(struct bench_table *table,
                          const struct bench_handover_figures *figures)
{
    bench_table_number(table, bench_median(&figures->p50));
    bench_table_number(table, bench_median(&figures->p50_of));
    bench_table_number(table, bench_median(&figures->p99));
    bench_table_number(table, bench_median(&figures->p99_of));
    bench_table_number(table, bench_median(&figures->fairness));
}
