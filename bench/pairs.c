/* pairs - how many pairs of lock and unlock per second does the API do,
 * compared with a map of mutexes?
 *
 * A pair is hf_acquire(), hf_release() and hf_lock_free(); or hf_lock_acquire()
 * and hf_release() with a handle that is kept. Either each thread has keys that
 * no other thread uses, or all threads use one key. With one key, holdfast
 * serves the threads in the order of their arrival, with a sleep and a wake-up
 * for each, while a mutex lets a running thread take it again and again. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "lib/bench.h"
#include "lib/mutex_map.h"

#define KEYS 64 /* keys per thread, used in turn */
#define THREADS_MAX 4
#define ROUND_MS 150

enum method {
    MAP,
    NEW_HANDLE,
    KEPT_HANDLE
};

struct scene {
    const char *keys;
    const char *what;
    unsigned threads;
    bool one_key;
    enum method method;
    bool one_client;
};

static const struct scene scenes[] = {
    {"own", "map of mutexes", 1, false, MAP, false},
    {"own", "new handle", 1, false, NEW_HANDLE, false},
    {"own", "kept handle", 1, false, KEPT_HANDLE, false},

    {"own", "map of mutexes", 4, false, MAP, false},
    {"own", "new handle, a client each", 4, false, NEW_HANDLE, false},
    {"own", "kept handle, a client each", 4, false, KEPT_HANDLE, false},
    {"own", "new handle, one client", 4, false, NEW_HANDLE, true},
    {"own", "kept handle, one client", 4, false, KEPT_HANDLE, true},

    {"one", "map of mutexes", 4, true, MAP, false},
    {"one", "new handle, a client each", 4, true, NEW_HANDLE, false},
    {"one", "kept handle, a client each", 4, true, KEPT_HANDLE, false},
    {"one", "new handle, one client", 4, true, NEW_HANDLE, true},
    {"one", "kept handle, one client", 4, true, KEPT_HANDLE, true},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

/* Shared by the threads of a round. */
struct round {
    struct mutex_map *map;
    struct hf_lock_opts opts;
    pthread_barrier_t start;
    atomic_bool stop;
};

struct worker {
    struct round *round;
    const struct scene *scene;
    struct hf_client *client;
    pthread_t thread;
    struct bench_keys keys;
    uint64_t pairs;
};

static bool is_stopped(struct worker *worker)
{
    return atomic_load_explicit(&worker->round->stop, memory_order_relaxed);
}

static uint64_t run_map(struct worker *worker)
{
    struct mutex_map *map = worker->round->map;
    uint64_t i;

    for (i = 0; !is_stopped(worker); i++) {
        struct hf_key key = bench_key(&worker->keys, i % worker->keys.count);

        mutex_map_lock(map, key);
        mutex_map_unlock(map, key);
    }
    return i;
}

static uint64_t run_new(struct worker *worker)
{
    struct hf_lock *lock;
    uint64_t i;

    for (i = 0; !is_stopped(worker); i++) {
        struct hf_key key = bench_key(&worker->keys, i % worker->keys.count);

        bench_check("hf_acquire", hf_acquire(worker->client, key,
                                             &worker->round->opts, &lock));
        bench_check("hf_release", hf_release(lock));
        hf_lock_free(lock);
    }
    return i;
}

static uint64_t run_kept(struct worker *worker, struct hf_lock **locks)
{
    uint64_t i;

    for (i = 0; !is_stopped(worker); i++) {
        struct hf_lock *lock = locks[i % worker->keys.count];

        bench_check("hf_lock_acquire", hf_lock_acquire(lock));
        bench_check("hf_release", hf_release(lock));
    }
    return i;
}

static void make_handles(struct worker *worker, struct hf_lock **locks)
{
    struct hf_lock_opts opts = worker->round->opts;

    opts.idle = true;
    for (size_t i = 0; i < worker->keys.count; i++)
        bench_check("hf_lock_new",
                    hf_lock_new(worker->client, bench_key(&worker->keys, i),
                                &opts, &locks[i]));
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct hf_lock *locks[KEYS] = {NULL};

    if (worker->scene->method == KEPT_HANDLE)
        make_handles(worker, locks);
    pthread_barrier_wait(&worker->round->start);
    if (worker->scene->method == MAP)
        worker->pairs = run_map(worker);
    else if (worker->scene->method == NEW_HANDLE)
        worker->pairs = run_new(worker);
    else
        worker->pairs = run_kept(worker, locks);
    for (size_t i = 0; i < KEYS; i++)
        hf_lock_free(locks[i]);
    return NULL;
}

static void start_workers(const struct bench *bench, struct round *round,
                          const struct scene *scene, struct worker *workers)
{
    static const char *const names[THREADS_MAX] = {"a", "b", "c", "d"};

    for (unsigned i = 0; i < scene->threads; i++) {
        struct worker *worker = &workers[i];

        *worker = (struct worker){.round = round, .scene = scene};
        bench_keys_init(&worker->keys, scene->one_key ? "all" : names[i],
                        scene->one_key ? 1 : KEYS);
        if (scene->method != MAP)
            worker->client = scene->one_client && i > 0 ? workers[0].client
                                                        : bench_open(bench);
        if (pthread_create(&worker->thread, NULL, worker_main, worker))
            bench_fail("cannot start a thread");
    }
}

static void join_workers(const struct scene *scene, struct worker *workers)
{
    for (unsigned i = 0; i < scene->threads; i++)
        pthread_join(workers[i].thread, NULL);
    for (unsigned i = 0; i < scene->threads; i++) {
        bench_keys_fini(&workers[i].keys);
        if (scene->method != MAP && (i == 0 || !scene->one_client))
            bench_close(workers[i].client);
    }
}

struct figures {
    struct bench_samples rate; /* pairs per second */
    struct bench_samples cpu;  /* nanoseconds of CPU time per pair */
};

static void measure(const struct bench *bench, const struct scene *scene,
                    struct figures *figures)
{
    struct worker workers[THREADS_MAX] = {{.pairs = 0}};
    struct round round = {.map = mutex_map_new(4096)};
    uint64_t pairs = 0;
    uint64_t from, cpu_from, cpu;
    double seconds;

    hf_lock_opts_init(&round.opts);
    round.opts.wait_ms = HF_FOREVER;
    pthread_barrier_init(&round.start, NULL, scene->threads + 1);
    start_workers(bench, &round, scene, workers);
    pthread_barrier_wait(&round.start);
    from = bench_now();
    cpu_from = bench_process_cpu();
    bench_sleep_ms(ROUND_MS);
    atomic_store(&round.stop, true);
    seconds = (double)(bench_now() - from) / 1e9;
    cpu = bench_process_cpu() - cpu_from;
    join_workers(scene, workers);
    for (unsigned i = 0; i < scene->threads; i++)
        pairs += workers[i].pairs;
    pthread_barrier_destroy(&round.start);
    mutex_map_free(round.map);
    bench_add(&figures->rate, (double)pairs / seconds);
    bench_add(&figures->cpu, (double)cpu / (double)pairs);
}

static void print_table(struct bench *bench, const struct figures *figures)
{
    static const struct bench_column columns[] = {
        {"threads", "threads", 0},
        {"keys", "keys", BENCH_TEXT},
        {"what", "what", BENCH_TEXT},
        {"1000 pairs/s", "kpairs", 1},
        {"least", "kpairs_least", 1},
        {"most", "kpairs_most", 1},
        {"of the map", "of_map", 3},
        {"CPU ns a pair", "cpu_ns", 0},
        {NULL, NULL, 0},
    };
    static struct bench_table table;
    double map = NAN;

    bench_table_init(&table, "Pairs of lock and unlock", "pairs", columns);
    for (size_t i = 0; i < SCENES; i++) {
        double median = bench_median(&figures[i].rate);

        if (scenes[i].method == MAP)
            map = median;
        bench_table_number(&table, scenes[i].threads);
        bench_table_text(&table, scenes[i].keys);
        bench_table_text(&table, scenes[i].what);
        bench_table_number(&table, median / 1e3);
        bench_table_number(&table, bench_least(&figures[i].rate) / 1e3);
        bench_table_number(&table, bench_most(&figures[i].rate) / 1e3);
        bench_table_number(&table, median / map);
        bench_table_number(&table, bench_median(&figures[i].cpu));
    }
    bench_table_print(bench, &table);
}

int main(int argc, char **argv)
{
    struct bench bench = {.name = "pairs", .url = "memory:bench", .rounds = 11};
    static struct figures figures[SCENES];

    bench_init(&bench, argc, argv);
    for (unsigned round = 0; round < bench.rounds; round++) {
        for (size_t i = 0; i < SCENES; i++) {
            bench_progress(&bench, round, scenes[i].what);
            measure(&bench, &scenes[i], &figures[i]);
        }
    }
    print_table(&bench, figures);
    return 0;
}
