#include "lib/baton.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "lib/bench.h"

struct bench_baton {
    void (*run)(struct bench_baton *baton, unsigned thread, const void *arg);
    const void *arg;
    pthread_barrier_t start;
    atomic_ullong released_at;
    atomic_uint passed, numbers;
    unsigned taken[BENCH_BATON_THREADS];
    double micros[BENCH_BATON_HANDOVERS];
};

bool bench_baton_is_finished(const struct bench_baton *baton)
{
    return atomic_load(&baton->passed) >=
           BENCH_BATON_HANDOVERS + BENCH_BATON_THREADS;
}

void bench_baton_pass(struct bench_baton *baton, unsigned thread)
{
    unsigned long long now = bench_now();
    unsigned number = atomic_load(&baton->passed);

    if (number >= BENCH_BATON_THREADS && !bench_baton_is_finished(baton)) {
        baton->micros[number - BENCH_BATON_THREADS] =
            (double)(now - atomic_load(&baton->released_at)) / 1000;
        baton->taken[thread]++;
    }
    bench_sleep_ms(BENCH_BATON_HOLD_MS);
    atomic_store(&baton->passed, number + 1);
    atomic_store(&baton->released_at, bench_now());
}

void bench_baton_await_start(struct bench_baton *baton)
{
    (void)pthread_barrier_wait(&baton->start);
}

void bench_baton_run_client(struct bench_baton *baton, unsigned thread,
                            const void *arg)
{
    struct bench bench = {.url = arg};
    struct hf_client *client = bench_open(&bench);
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    hf_lock_opts_init(&opts);
    opts.idle = true;
    opts.ttl_ms = 60000;
    opts.wait_ms = HF_FOREVER;
    bench_check("hf_lock_new",
                hf_lock_new(client, hf_key_of("baton"), &opts, &lock));
    bench_baton_await_start(baton);
    while (!bench_baton_is_finished(baton)) {
        bench_check("hf_lock_acquire", hf_lock_acquire(lock));
        bench_baton_pass(baton, thread);
        bench_check("hf_release", hf_release(lock));
    }
    hf_lock_free(lock);
    bench_close(client);
}

/* ---- Threads ------------------------------------------------------------*/

static void *baton_main(void *arg)
{
    struct bench_baton *baton = arg;

    baton->run(baton, atomic_fetch_add(&baton->numbers, 1), baton->arg);
    return NULL;
}

static double measure_fairness(const unsigned *taken)
{
    unsigned least = taken[0], most = taken[0];

    for (unsigned i = 1; i < BENCH_BATON_THREADS; i++) {
        least = taken[i] < least ? taken[i] : least;
        most = taken[i] > most ? taken[i] : most;
    }
    return (double)least / (double)most;
}

static void run_threads(struct bench_baton *baton)
{
    pthread_t threads[BENCH_BATON_THREADS];

    (void)pthread_barrier_init(&baton->start, NULL, BENCH_BATON_THREADS);
    for (unsigned i = 0; i < BENCH_BATON_THREADS; i++)
        if (pthread_create(&threads[i], NULL, baton_main, baton))
            bench_fail("cannot start a thread");
    for (unsigned i = 0; i < BENCH_BATON_THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    (void)pthread_barrier_destroy(&baton->start);
}

struct bench_handovers bench_baton_run(void (*run)(struct bench_baton *baton,
                                                   unsigned thread,
                                                   const void *arg),
                                       const void *arg)
{
    struct bench_baton *baton = bench_alloc(1, sizeof(*baton));
    struct bench_handovers handovers;

    baton->run = run;
    baton->arg = arg;
    run_threads(baton);
    bench_sort(baton->micros, BENCH_BATON_HANDOVERS);
    handovers = (struct bench_handovers){
        bench_quantile(baton->micros, BENCH_BATON_HANDOVERS, 0.5),
        bench_quantile(baton->micros, BENCH_BATON_HANDOVERS, 0.99),
        measure_fairness(baton->taken),
    };
    free(baton);
    return handovers;
}
