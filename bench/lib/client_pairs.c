/* client_pairs.c - workers that are clients of holdfast. */
#include <poll.h>
#include <stdio.h>

#include "lib/bench.h"
#include "lib/workers.h"

static struct hf_client *open_client(const struct bench_worker *worker)
{
    const struct bench_client_pairs *pairs = worker->arg;
    struct bench bench = {.url = pairs->url};

    return bench_open(&bench);
}

static struct hf_lock *new_lock(struct hf_client *client, unsigned number)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    char key[32];

    (void)snprintf(key, sizeof(key), "own-%u", number);
    hf_lock_opts_init(&opts);
    opts.idle = true;
    bench_check("hf_lock_new",
                hf_lock_new(client, hf_key_of(key), &opts, &lock));
    return lock;
}

/* ---- One after another --------------------------------------------------*/

static void run_in_turn(struct bench_worker *worker)
{
    struct hf_client *client = open_client(worker);
    struct hf_lock *lock = new_lock(client, worker->number);

    bench_worker_await_start(worker);
    while (!bench_worker_is_finished(worker)) {
        uint64_t began = bench_now();

        bench_check("hf_lock_acquire", hf_lock_acquire(lock));
        bench_check("hf_release", hf_release(lock));
        bench_worker_record(worker, began);
    }
    hf_lock_free(lock);
    bench_close(client);
}

/* ---- Many at once -------------------------------------------------------*/

struct pair {
    struct bench_worker *worker;
    struct hf_lock *lock;
    unsigned *open;
    uint64_t began;
};

static void on_released(enum hf_err err, void *arg);

static void on_locked(enum hf_err err, void *arg)
{
    struct pair *pair = arg;

    bench_check("hf_lock_acquire", err);
    bench_check("hf_release",
                hf_release_start(pair->lock, on_released, pair, NULL));
}

static void start_pair(struct pair *pair)
{
    pair->began = bench_now();
    bench_check("hf_lock_acquire",
                hf_lock_acquire_start(pair->lock, on_locked, pair, NULL));
}

static void on_released(enum hf_err err, void *arg)
{
    struct pair *pair = arg;

    bench_check("hf_release", err);
    bench_worker_record(pair->worker, pair->began);
    if (bench_worker_is_finished(pair->worker))
        --*pair->open;
    else
        start_pair(pair);
}

static void run_at_once(struct bench_worker *worker, unsigned count)
{
    struct hf_client *client = open_client(worker);
    struct pollfd fd = {.fd = hf_fd(client), .events = POLLIN};
    struct pair pairs[BENCH_AT_ONCE_MAX];
    unsigned open = count;

    for (unsigned i = 0; i < count; i++)
        pairs[i] = (struct pair){
            .worker = worker, .open = &open, .lock = new_lock(client, i)};
    bench_worker_await_start(worker);
    for (unsigned i = 0; i < count; i++)
        start_pair(&pairs[i]);
    while (open > 0) {
        (void)poll(&fd, 1, -1);
        bench_check("hf_process", hf_process(client));
    }
    for (unsigned i = 0; i < count; i++)
        hf_lock_free(pairs[i].lock);
    bench_close(client);
}

void bench_client_pairs_run(struct bench_worker *worker)
{
    const struct bench_client_pairs *pairs = worker->arg;

    if (pairs->at_once > 0)
        run_at_once(worker, pairs->at_once);
    else
        run_in_turn(worker);
}
