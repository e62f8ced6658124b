/* workers.h - threads that execute pairs of lock and unlock for a moment.
 *
 * Each worker has its own key, and its own connection or client. */
#ifndef BENCH_WORKERS_H
#define BENCH_WORKERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_SPAN_MS 600 /* how long the workers run */

struct bench_worker {
    unsigned number; /* 0 is the first */
    const void *arg; /* of bench_workers_run() */
    uint64_t until;  /* when to finish */
    uint64_t ended;  /* when the last pair ended */

    /* Private. */
    pthread_t thread;
    void (*run)(struct bench_worker *worker);
    pthread_barrier_t *start;
    double *micros; /* of each pair */
    size_t pairs, room;
};

/* What the workers have done. */
struct bench_pace {
    double rate;     /* pairs per second */
    double p50, p99; /* of the latency of a pair, in µs */
};

/* Run `count` threads that call `run`, which connects, calls
 * bench_worker_await_start(), and executes pairs until
 * bench_worker_is_finished(). */
struct bench_pace bench_workers_run(unsigned count,
                                    void (*run)(struct bench_worker *worker),
                                    const void *arg);

/* Wait until all workers are connected. */
void bench_worker_await_start(struct bench_worker *worker);

/* Returns true if the time of the workers is up. */
bool bench_worker_is_finished(const struct bench_worker *worker);

/* Record a pair that began at `began` and has ended now. */
void bench_worker_record(struct bench_worker *worker, uint64_t began);

/* ---- Workers of holdfast ------------------------------------------------
 *
 * `arg` is a struct bench_client_pairs. bench_client_pairs_run() executes one
 * pair after another; with `at_once`, that many are open at a time on one
 * client. */

#define BENCH_AT_ONCE_MAX 256

struct bench_client_pairs {
    const char *url;
    unsigned at_once; /* 0: one after another */
};

void bench_client_pairs_run(struct bench_worker *worker);

#endif
