#include "lib/workers.h"

#include <stdlib.h>
#include <string.h>

#include "lib/bench.h"

#define SAMPLES 400000 /* latencies kept of all workers */

void bench_worker_await_start(struct bench_worker *worker)
{
    (void)pthread_barrier_wait(worker->start);
    worker->until = bench_now() + BENCH_SPAN_MS * 1000000ull;
}

bool bench_worker_is_finished(const struct bench_worker *worker)
{
    return bench_now() >= worker->until;
}

void bench_worker_record(struct bench_worker *worker, uint64_t began)
{
    worker->ended = bench_now();
    if (worker->pairs < worker->room)
        worker->micros[worker->pairs] = (double)(worker->ended - began) / 1000;
    worker->pairs++;
}

static void *worker_main(void *arg)
{
    struct bench_worker *worker = arg;

    worker->run(worker);
    return NULL;
}

static void start_worker(struct bench_worker *worker)
{
    worker->micros = bench_alloc(worker->room, sizeof(double));
    if (pthread_create(&worker->thread, NULL, worker_main, worker))
        bench_fail("cannot start a thread");
}

/* Wait for the workers, and put their latencies together. */
static struct bench_pace join_workers(struct bench_worker *workers,
                                      unsigned count, uint64_t began)
{
    double *all = bench_alloc(SAMPLES, sizeof(*all));
    size_t pairs = 0, kept = 0;
    uint64_t ended = 0;
    struct bench_pace pace;

    for (unsigned i = 0; i < count; i++) {
        struct bench_worker *worker = &workers[i];
        size_t samples;

        (void)pthread_join(worker->thread, NULL);
        samples = worker->pairs < worker->room ? worker->pairs : worker->room;
        memcpy(all + kept, worker->micros, samples * sizeof(*all));
        kept += samples;
        pairs += worker->pairs;
        ended = worker->ended > ended ? worker->ended : ended;
        free(worker->micros);
    }
    bench_sort(all, kept);
    pace.rate = (double)pairs / ((double)(ended - began) / 1e9);
    pace.p50 = bench_quantile(all, kept, 0.5);
    pace.p99 = bench_quantile(all, kept, 0.99);
    free(all);
    return pace;
}

struct bench_pace bench_workers_run(unsigned count,
                                    void (*run)(struct bench_worker *worker),
                                    const void *arg)
{
    struct bench_worker *workers = bench_alloc(count, sizeof(*workers));
    pthread_barrier_t start;
    struct bench_pace pace;

    (void)pthread_barrier_init(&start, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        workers[i] = (struct bench_worker){.number = i,
                                           .arg = arg,
                                           .run = run,
                                           .start = &start,
                                           .room = SAMPLES / count};
        start_worker(&workers[i]);
    }
    (void)pthread_barrier_wait(&start);
    pace = join_workers(workers, count, bench_now());
    (void)pthread_barrier_destroy(&start);
    free(workers);
    return pace;
}
