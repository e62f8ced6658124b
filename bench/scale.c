/* scale - does a lock cost the same if a million others are held, and does
 * joining a queue cost the same if ten thousand others wait?
 *
 * The first table shows pairs of lock and unlock while other keys are held. If
 * the pairs use few keys in turn, everything that they access is in the CPU
 * caches, and the figure shows the cost of the code; with many keys, it shows
 * the cost of memory accesses. A map of mutexes, which is large enough from the
 * start, is measured in the same way.
 *
 * In the second table, a random waiter leaves the queue and a new one joins.
 *
 * There is one thread, which never sleeps; nanoseconds are its CPU time. Each
 * round measures all levels, in ascending order. */
#include <stdlib.h>

#include "lib/bench.h"
#include "lib/mutex_map.h"

#define FEW 64
#define MANY 65536
#define PAIRS 65536 /* pairs measured at a level */
#define MOVES 20000 /* leaves and joins measured at a level */

static const size_t held_levels[] = {0, 1000, 10000, 100000, 1000000};
static const size_t queue_levels[] = {1, 10, 100, 1000, 10000};

#define HELD_LEVELS (sizeof(held_levels) / sizeof(held_levels[0]))
#define QUEUE_LEVELS (sizeof(queue_levels) / sizeof(queue_levels[0]))

#define HELD_MAX 1000000
#define QUEUE_MAX 10000

enum {
    MAP,
    ANOTHER,
    SAME,
    HOLDERS
};

static const char *const few_names[HOLDERS] = {
    "64 keys, map of mutexes",
    "64 keys, others another client's",
    "64 keys, others the same client's",
};
static const char *const many_names[HOLDERS] = {
    "65536 keys, map of mutexes",
    "65536 keys, others another client's",
    "65536 keys, others the same client's",
};

/* One sample per round for each level. */
struct climb {
    struct bench_samples few[HELD_LEVELS], many[HELD_LEVELS];
};

static struct hf_lock_opts long_opts(void)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = 3600 * 1000;
    opts.wait_ms = HF_FOREVER;
    return opts;
}

/* ---- Pairs while other keys are held ------------------------------------*/

/* The CPU time of a pair in nanoseconds. */
static double pair_cost(struct hf_client *client,
                        const struct bench_keys *probes, size_t keys)
{
    struct hf_lock_opts opts = long_opts();
    uint64_t from = bench_thread_cpu();
    struct hf_lock *lock;

    for (size_t i = 0; i < PAIRS; i++) {
        struct hf_key key = bench_key(probes, i % keys);

        bench_check("hf_acquire", hf_acquire(client, key, &opts, &lock));
        bench_check("hf_release", hf_release(lock));
        hf_lock_free(lock);
    }
    return (double)(bench_thread_cpu() - from) / PAIRS;
}

static double pair_cost_map(struct mutex_map *map,
                            const struct bench_keys *probes, size_t keys)
{
    uint64_t from = bench_thread_cpu();

    for (size_t i = 0; i < PAIRS; i++) {
        struct hf_key key = bench_key(probes, i % keys);

        mutex_map_lock(map, key);
        mutex_map_unlock(map, key);
    }
    return (double)(bench_thread_cpu() - from) / PAIRS;
}

/* The keys that are held while pairs are measured. */
struct others {
    struct bench_keys keys;
    struct hf_lock **locks;
    size_t count;
};

static void climb_map(struct others *others, const struct bench_keys *probes,
                      struct climb *climb)
{
    struct mutex_map *map = mutex_map_new(HELD_MAX);

    for (size_t i = 0; i < HELD_LEVELS; i++) {
        for (; others->count < held_levels[i]; others->count++)
            mutex_map_lock(map, bench_key(&others->keys, others->count));
        bench_add(&climb->few[i], pair_cost_map(map, probes, FEW));
        bench_add(&climb->many[i], pair_cost_map(map, probes, MANY));
    }
    while (others->count > 0)
        mutex_map_unlock(map, bench_key(&others->keys, --others->count));
    mutex_map_free(map);
}

static void climb_held(const struct bench *bench, bool same,
                       struct others *others, const struct bench_keys *probes,
                       struct climb *climb)
{
    struct hf_client *client = bench_open(bench);
    struct hf_client *holder = same ? client : bench_open(bench);
    struct hf_lock_opts opts = long_opts();

    for (size_t i = 0; i < HELD_LEVELS; i++) {
        for (; others->count < held_levels[i]; others->count++)
            bench_check("hf_acquire",
                        hf_acquire(holder,
                                   bench_key(&others->keys, others->count),
                                   &opts, &others->locks[others->count]));
        bench_add(&climb->few[i], pair_cost(client, probes, FEW));
        bench_add(&climb->many[i], pair_cost(client, probes, MANY));
    }
    while (others->count > 0)
        hf_lock_free(others->locks[--others->count]);
    bench_close(client);
    if (!same)
        bench_close(holder);
}

static void print_levels(struct bench_table *table, const char *name,
                         const struct bench_samples *samples)
{
    for (size_t i = 0; i < HELD_LEVELS; i++) {
        bench_table_text(table, name);
        bench_table_number(table, (double)held_levels[i]);
        bench_table_number(table, bench_median(&samples[i]));
        bench_table_number(table, bench_least(&samples[i]));
        bench_table_number(table, bench_most(&samples[i]));
        bench_table_number(table, bench_median(&samples[i]) /
                                      bench_median(&samples[0]));
    }
}

static void print_held(struct bench *bench, const struct climb *climbs)
{
    static const struct bench_column columns[] = {
        {"pairs of", "what", BENCH_TEXT},
        {"others", "others", 0},
        {"ns a pair", "ns", 0},
        {"least", "ns_least", 0},
        {"most", "ns_most", 0},
        {"of the first", "ratio", 2},
        {NULL, NULL, 0},
    };
    static struct bench_table table;

    bench_table_init(&table, "A pair while others are held", "held", columns);
    for (size_t i = 0; i < HOLDERS; i++)
        print_levels(&table, few_names[i], climbs[i].few);
    for (size_t i = 0; i < HOLDERS; i++)
        print_levels(&table, many_names[i], climbs[i].many);
    bench_table_print(bench, &table);
}

static void measure_held(struct bench *bench)
{
    static struct climb climbs[HOLDERS];
    struct others others = {
        .locks = bench_alloc(HELD_MAX, sizeof(struct hf_lock *))};
    struct bench_keys probes;

    bench_keys_init(&others.keys, "held", HELD_MAX);
    bench_keys_init(&probes, "probe", MANY);
    for (unsigned round = 0; round < bench->rounds; round++) {
        bench_progress(bench, round, "a map of mutexes");
        climb_map(&others, &probes, &climbs[MAP]);
        bench_progress(bench, round, "another client holds the others");
        climb_held(bench, false, &others, &probes, &climbs[ANOTHER]);
        bench_progress(bench, round, "the same client holds the others");
        climb_held(bench, true, &others, &probes, &climbs[SAME]);
    }
    print_held(bench, climbs);
    bench_keys_fini(&probes);
    bench_keys_fini(&others.keys);
    free(others.locks);
}

/* ---- Leaving and joining a queue ----------------------------------------*/

struct waiter {
    struct hf_lock *lock; /* never set, because the claim is not granted */
    struct hf_future *future;
};

static void join_queue(struct hf_client *client, struct waiter *waiter)
{
    struct hf_lock_opts opts = long_opts();

    bench_check("hf_acquire_start",
                hf_acquire_start(client, hf_key_of("queue"), &opts,
                                 &waiter->lock, NULL, NULL, &waiter->future));
}

static void leave_queue(struct waiter *waiter)
{
    enum hf_err err;

    hf_future_cancel(waiter->future);
    bench_check("hf_future_wait",
                hf_future_wait(waiter->future, HF_FOREVER, &err));
    if (err != HF_ECANCELED)
        bench_fail("a waiter was granted a key that is held");
    hf_future_free(waiter->future);
}

/* A random number below `bound`; its quality does not matter. */
static size_t random_below(uint64_t *state, size_t bound)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (size_t)(*state >> 33) % bound;
}

static double move_cost(struct hf_client *client, struct waiter *queue,
                        size_t count)
{
    uint64_t random = count;
    uint64_t from = bench_thread_cpu();

    for (size_t i = 0; i < MOVES; i++) {
        struct waiter *waiter = &queue[random_below(&random, count)];

        leave_queue(waiter);
        join_queue(client, waiter);
    }
    return (double)(bench_thread_cpu() - from) / MOVES;
}

static void climb_queue(const struct bench *bench, struct waiter *queue,
                        struct bench_samples *samples)
{
    struct hf_client *holder = bench_open(bench);
    struct hf_client *client = bench_open(bench);
    struct hf_lock_opts opts = long_opts();
    struct hf_lock *held;
    size_t count = 0;

    bench_check("hf_acquire",
                hf_acquire(holder, hf_key_of("queue"), &opts, &held));
    for (size_t i = 0; i < QUEUE_LEVELS; i++) {
        for (; count < queue_levels[i]; count++)
            join_queue(client, &queue[count]);
        bench_add(&samples[i], move_cost(client, queue, count));
    }
    while (count > 0)
        leave_queue(&queue[--count]);
    hf_lock_free(held);
    bench_close(client);
    bench_close(holder);
}

static void measure_queue(struct bench *bench)
{
    static const struct bench_column columns[] = {
        {"waiters", "waiters", 0},    {"ns a leave and join", "ns", 0},
        {"least", "ns_least", 0},     {"most", "ns_most", 0},
        {"of the first", "ratio", 2}, {NULL, NULL, 0},
    };
    static struct bench_samples samples[QUEUE_LEVELS];
    static struct bench_table table;
    static struct waiter queue[QUEUE_MAX];

    for (unsigned round = 0; round < bench->rounds; round++) {
        bench_progress(bench, round, "waiters");
        climb_queue(bench, queue, samples);
    }
    bench_table_init(&table,
                     "One waiter leaves the queue of a key, another joins",
                     "queue", columns);
    for (size_t i = 0; i < QUEUE_LEVELS; i++) {
        bench_table_number(&table, (double)queue_levels[i]);
        bench_table_number(&table, bench_median(&samples[i]));
        bench_table_number(&table, bench_least(&samples[i]));
        bench_table_number(&table, bench_most(&samples[i]));
        bench_table_number(&table, bench_median(&samples[i]) /
                                       bench_median(&samples[0]));
    }
    bench_table_print(bench, &table);
}

int main(int argc, char **argv)
{
    struct bench bench = {.name = "scale", .url = "memory:bench", .rounds = 5};

    bench_init(&bench, argc, argv);
    measure_held(&bench);
    measure_queue(&bench);
    return 0;
}
