/* baton.h - how long does it take to hand a lock over to the next of ten
 * waiters, and do all waiters get the lock equally often?
 *
 * Eleven threads take turns with one key. A hand-over is measured from just
 * before the unlock in one thread until the lock call has returned in another.
 * Each holder keeps the lock for a moment, so that all others wait. The
 * measurement starts after as many hand-overs as there are threads. */
#ifndef BENCH_BATON_H
#define BENCH_BATON_H

#include <stdbool.h>

#define BENCH_BATON_WAITERS 10
#define BENCH_BATON_HOLD_MS 2

enum {
    BENCH_BATON_THREADS = BENCH_BATON_WAITERS + 1,
    BENCH_BATON_HANDOVERS = 20 * BENCH_BATON_THREADS, /* measured */
    BENCH_BATON_TURNS = 21, /* of a thread, if all have equally many */
};

struct bench_baton;

/* What was measured. */
struct bench_handovers {
    double p50, p99; /* µs */
    double fairness; /* acquisitions of a thread, least / most */
};

/* Run the threads. Each calls `run` with its number and `arg`; `run` connects,
 * calls bench_baton_await_start(), and then takes the lock, calls
 * bench_baton_pass() and releases the lock until bench_baton_is_finished(). */
struct bench_handovers bench_baton_run(void (*run)(struct bench_baton *baton,
                                                   unsigned thread,
                                                   const void *arg),
                                       const void *arg);

/* Wait until all threads are connected. */
void bench_baton_await_start(struct bench_baton *baton);

bool bench_baton_is_finished(const struct bench_baton *baton);

/* The calling thread has just acquired the lock, and releases it next: record
 * the hand-over, and hold the lock for a moment. */
void bench_baton_pass(struct bench_baton *baton, unsigned thread);

/* The `run` of clients of holdfast; `arg` is the URL. Each has its own
 * client. */
void bench_baton_run_client(struct bench_baton *baton, unsigned thread,
                            const void *arg);

#endif
