/* pairs.c - how many pairs of lock and unlock are possible per second, and how
 * long does a pair take?
 *
 * Each thread has its own key and connection or client, and executes one pair
 * after another. "One client" has 64 pairs open at a time on one connection.
 * The threads of Redisson share a client with a pool of connections. The bare
 * loop is what many programs do: SET NX PX, and a script that compares and
 * deletes. It has no queue, tokens, renewals or notifications. */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "redis/redis.h"

#define SPAN_MS 500    /* duration of one scene in one round */
#define OUTSTANDING 64 /* pairs open at a time, with one client */
#define SAMPLES 200000 /* latencies kept of one scene */

enum method {
    BARE,
    HOLDFAST,
    ONE_CLIENT,
    REDISSON
};

static const struct scene {
    const char *what;
    unsigned threads;
    enum method method;
    const char *kind; /* Redisson: the kind of lock */
} scenes[] = {
    {"bare hiredis", 1, BARE, NULL},
    {"holdfast", 1, HOLDFAST, NULL},
    {"Redisson RLock", 1, REDISSON, "lock"},
    {"Redisson RFairLock", 1, REDISSON, "fair"},
    {"bare hiredis", 16, BARE, NULL},
    {"holdfast", 16, HOLDFAST, NULL},
    {"Redisson RLock", 16, REDISSON, "lock"},
    {"Redisson RFairLock", 16, REDISSON, "fair"},
    {"bare hiredis", 64, BARE, NULL},
    {"holdfast", 64, HOLDFAST, NULL},
    {"Redisson RLock", 64, REDISSON, "lock"},
    {"Redisson RFairLock", 64, REDISSON, "fair"},
    {"holdfast, one client, 64 at once", 1, ONE_CLIENT, NULL},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

static struct bench_figures figures[SCENES];

struct worker {
    pthread_t thread;
    unsigned number;
    enum method method;
    pthread_barrier_t *start; /* passed when all workers are connected */
    uint64_t until;
    double *micros; /* of each pair */
    size_t pairs, room;
};

static void await_start(struct worker *worker)
{
    (void)pthread_barrier_wait(worker->start);
    worker->until = bench_now() + SPAN_MS * 1000000ull;
}

static void record_latency(struct worker *worker, uint64_t began)
{
    if (worker->pairs < worker->room)
        worker->micros[worker->pairs] = (double)(bench_now() - began) / 1000;
    worker->pairs++;
}

static void run_bare_pairs(struct worker *worker)
{
    static const char script[] =
        "if redis.call('get',KEYS[1])==ARGV[1] then "
        "return redis.call('del',KEYS[1]) else return 0 end";
    redisContext *context = bench_redis_connect();
    const char *load[] = {"SCRIPT", "LOAD", script};
    redisReply *sha = bench_redis_command(context, 3, load);
    char key[32];

    (void)snprintf(key, sizeof(key), "bare-%u", worker->number);
    await_start(worker);
    while (bench_now() < worker->until) {
        const char *lock[] = {"SET", key,  "0123456789abcdef0123456789abcdef",
                              "NX",  "PX", "10000"};
        const char *unlock[] = {"EVALSHA", sha->str, "1", key, lock[2]};
        uint64_t began = bench_now();
        redisReply *locked = bench_redis_command(context, 6, lock);
        redisReply *released = bench_redis_command(context, 5, unlock);

        if (released->integer != 1)
            bench_fail("the bare lock was not held");
        freeReplyObject(locked);
        freeReplyObject(released);
        record_latency(worker, began);
    }
    freeReplyObject(sha);
    redisFree(context);
}

static void run_pairs(struct worker *worker)
{
    struct hf_client *client = bench_redis_open();
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    char key[32];

    (void)snprintf(key, sizeof(key), "own-%u", worker->number);
    hf_lock_opts_init(&opts);
    opts.idle = true;
    bench_check("hf_lock_new",
                hf_lock_new(client, hf_key_of(key), &opts, &lock));
    await_start(worker);
    while (bench_now() < worker->until) {
        uint64_t began = bench_now();

        bench_check("hf_lock_acquire", hf_lock_acquire(lock));
        bench_check("hf_release", hf_release(lock));
        record_latency(worker, began);
    }
    hf_lock_free(lock);
    bench_close(client);
}

/* One of many pairs that are open at a time. */
struct pair {
    struct worker *worker;
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
    record_latency(pair->worker, pair->began);
    if (bench_now() < pair->worker->until)
        start_pair(pair);
    else
        --*pair->open;
}

static void run_open_pairs(struct worker *worker)
{
    struct hf_client *client = bench_redis_open();
    struct pollfd fd = {.fd = hf_fd(client), .events = POLLIN};
    struct pair pairs[OUTSTANDING];
    struct hf_lock_opts opts;
    unsigned open = OUTSTANDING;
    char key[32];

    hf_lock_opts_init(&opts);
    opts.idle = true;
    await_start(worker);
    for (unsigned i = 0; i < OUTSTANDING; i++) {
        (void)snprintf(key, sizeof(key), "many-%u", i);
        pairs[i] = (struct pair){.worker = worker, .open = &open};
        bench_check("hf_lock_new",
                    hf_lock_new(client, hf_key_of(key), &opts, &pairs[i].lock));
        start_pair(&pairs[i]);
    }
    while (open > 0) {
        (void)poll(&fd, 1, -1);
        bench_check("hf_process", hf_process(client));
    }
    for (unsigned i = 0; i < OUTSTANDING; i++)
        hf_lock_free(pairs[i].lock);
    bench_close(client);
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;

    if (worker->method == BARE)
        run_bare_pairs(worker);
    else if (worker->method == HOLDFAST)
        run_pairs(worker);
    else
        run_open_pairs(worker);
    return NULL;
}

static void run_redisson(const struct scene *scene, struct bench_figures *of)
{
    double numbers[3];

    bench_peer_order(&bench_redis.redisson, "pairs %s %u %d", scene->kind,
                     scene->threads, SPAN_MS);
    bench_peer_numbers(&bench_redis.redisson, numbers, 3);
    bench_add(&of->rate, numbers[0]);
    bench_add(&of->p50, numbers[1]);
    bench_add(&of->p99, numbers[2]);
}

static void run_scene(const struct scene *scene, struct bench_figures *of)
{
    struct worker *workers = bench_alloc(scene->threads, sizeof(*workers));
    double *all = bench_alloc(SAMPLES, sizeof(*all));
    pthread_barrier_t start;
    uint64_t began;
    size_t room = SAMPLES / scene->threads, pairs = 0, kept = 0;

    (void)pthread_barrier_init(&start, NULL, scene->threads + 1);
    for (unsigned i = 0; i < scene->threads; i++) {
        workers[i] = (struct worker){
            .number = i,
            .method = scene->method,
            .start = &start,
            .micros = bench_alloc(room, sizeof(double)),
            .room = room,
        };
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]))
            bench_fail("cannot start a thread");
    }
    (void)pthread_barrier_wait(&start);
    began = bench_now();
    for (unsigned i = 0; i < scene->threads; i++) {
        size_t count;

        (void)pthread_join(workers[i].thread, NULL);
        count = workers[i].pairs < room ? workers[i].pairs : room;
        memcpy(all + kept, workers[i].micros, count * sizeof(*all));
        kept += count;
        pairs += workers[i].pairs;
        free(workers[i].micros);
    }
    (void)pthread_barrier_destroy(&start);
    bench_sort(all, kept);
    bench_add(&of->rate,
              (double)pairs / ((double)(bench_now() - began) / 1e9) / 1000);
    bench_add(&of->p50, bench_quantile(all, kept, 0.5));
    bench_add(&of->p99, bench_quantile(all, kept, 0.99));
    free(all);
    free(workers);
}

static bool is_available(const struct scene *scene)
{
    return scene->method != REDISSON || bench_redis.redisson.pid > 0;
}

void bench_pairs_run(struct bench *bench, unsigned round)
{
    for (size_t i = 0; i < SCENES; i++) {
        if (!is_available(&scenes[i]))
            continue;
        bench_progress(bench, round, scenes[i].what);
        if (scenes[i].method == REDISSON)
            run_redisson(&scenes[i], &figures[i]);
        else
            run_scene(&scenes[i], &figures[i]);
    }
}

void bench_pairs_print(struct bench *bench)
{
    static const struct bench_column columns[] = {
        {"clients", "clients", 0},   {"what", "what", BENCH_TEXT},
        {"1000 pairs/s", "rate", 1}, {"of bare", "rate_of_bare", 2},
        {"p50 µs", "p50_us", 0},     {"of bare", "p50_of_bare", 2},
        {"p99 µs", "p99_us", 0},     {NULL, NULL, 0},
    };
    struct bench_table table;
    size_t bare = 0;

    bench_table_init(&table, "Pairs of lock and unlock in Redis", "redis_pairs",
                     columns);
    for (size_t i = 0; i < SCENES; i++) {
        if (scenes[i].method == BARE)
            bare = i;
        if (!is_available(&scenes[i]))
            continue;
        bench_table_number(&table, scenes[i].threads);
        bench_table_text(&table, scenes[i].what);
        bench_table_number(&table, bench_median(&figures[i].rate));
        bench_table_number(&table, bench_median(&figures[i].rate) /
                                       bench_median(&figures[bare].rate));
        bench_table_number(&table, bench_median(&figures[i].p50));
        bench_table_number(&table, bench_median(&figures[i].p50) /
                                       bench_median(&figures[bare].p50));
        bench_table_number(&table, bench_median(&figures[i].p99));
    }
    bench_table_print(bench, &table);
}
