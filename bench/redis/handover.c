/* handover.c - how long does it take to hand a lock over?
 *
 * Threads take turns with one key. A hand-over is measured from just before the
 * unlock in one thread until the lock call has returned in another. Each thread
 * has its own client; the threads of Redisson share one. The lower bound is one
 * message, measured from just before PUBLISH until a sleeping subscriber has
 * received it. The polling threads poll every 150 to 300 ms, as is common. The
 * measurement starts when all threads are connected, and after as many
 * hand-overs as there are threads. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "redis/redis.h"

#define HANDOVERS 400       /* in one round */
#define POLLED_HANDOVERS 40 /* when 10 threads poll; each takes about 20 ms */
#define MESSAGES 1000
#define THREADS_MAX 200
#define POLL_MIN_MS 150
#define POLL_MAX_MS 300

enum method {
    MESSAGE,
    HOLDFAST,
    POLLING,
    REDISSON
};

static const struct scene {
    const char *what;
    unsigned threads;
    enum method method;
    unsigned handovers;
    const char *kind; /* Redisson: the kind of lock */
} scenes[] = {
    {"one message", 1, MESSAGE, MESSAGES, NULL},
    {"holdfast", 10, HOLDFAST, HANDOVERS, NULL},
    {"polling", 10, POLLING, POLLED_HANDOVERS, NULL},
    {"Redisson RLock", 10, REDISSON, HANDOVERS, "lock"},
    {"Redisson RFairLock", 10, REDISSON, HANDOVERS, "fair"},
    {"holdfast", 200, HOLDFAST, HANDOVERS, NULL},
    {"polling", 200, POLLING, HANDOVERS, NULL},
    {"Redisson RLock", 200, REDISSON, HANDOVERS, "lock"},
    {"Redisson RFairLock", 200, REDISSON, HANDOVERS, "fair"},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

static struct bench_figures figures[SCENES];

static void add_latencies(struct bench_figures *of, double *micros,
                          size_t count)
{
    bench_sort(micros, count);
    bench_add(&of->p50, bench_quantile(micros, count, 0.5));
    bench_add(&of->p99, bench_quantile(micros, count, 0.99));
}

/* ---- Taking turns -------------------------------------------------------*/

/* Before it releases the lock, a holder stores the time; the next holder stores
 * how long the hand-over took. */
struct baton {
    pthread_barrier_t start; /* passed when all threads are connected */
    atomic_ullong released_at;
    atomic_uint passed;
    unsigned uncounted; /* hand-overs at the start that are not measured */
    unsigned wanted;    /* hand-overs, including the uncounted ones */
    atomic_uint seeds;
    double micros[HANDOVERS];
};

static bool is_finished(const struct baton *baton)
{
    return atomic_load(&baton->passed) >= baton->wanted;
}

static void pass_baton(struct baton *baton)
{
    unsigned long long released_at = atomic_load(&baton->released_at);
    unsigned number = atomic_load(&baton->passed);

    if (number >= baton->uncounted && number < baton->wanted)
        baton->micros[number - baton->uncounted] =
            (double)(bench_now() - released_at) / 1000;
    atomic_store(&baton->passed, number + 1);
    atomic_store(&baton->released_at, bench_now());
}

static void *locking_main(void *arg)
{
    struct baton *baton = arg;
    struct hf_client *client = bench_redis_open();
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    hf_lock_opts_init(&opts);
    opts.idle = true;
    opts.ttl_ms = 60000;
    opts.wait_ms = HF_FOREVER;
    bench_check("hf_lock_new",
                hf_lock_new(client, hf_key_of("baton"), &opts, &lock));
    (void)pthread_barrier_wait(&baton->start);
    while (!is_finished(baton)) {
        bench_check("hf_lock_acquire", hf_lock_acquire(lock));
        pass_baton(baton);
        bench_check("hf_release", hf_release(lock));
    }
    hf_lock_free(lock);
    bench_close(client);
    return NULL;
}

/* The threads start at random times, so that they do not poll in bursts. */
static void *polling_main(void *arg)
{
    struct baton *baton = arg;
    redisContext *context = bench_redis_connect();
    const char *lock[] = {"SET", "polled", "x", "NX", "PX", "60000"};
    const char *unlock[] = {"DEL", "polled"};
    unsigned seed = atomic_fetch_add(&baton->seeds, 1);

    (void)pthread_barrier_wait(&baton->start);
    (void)poll(NULL, 0, rand_r(&seed) % POLL_MAX_MS);
    while (!is_finished(baton)) {
        redisReply *reply = bench_redis_command(context, 6, lock);
        bool is_locked = reply->type == REDIS_REPLY_STATUS;

        freeReplyObject(reply);
        if (is_locked) {
            pass_baton(baton);
            freeReplyObject(bench_redis_command(context, 2, unlock));
        }
        (void)poll(NULL, 0,
                   POLL_MIN_MS +
                       rand_r(&seed) % (POLL_MAX_MS - POLL_MIN_MS + 1));
    }
    redisFree(context);
    return NULL;
}

static void run_baton(const struct scene *scene, struct bench_figures *of)
{
    struct baton *baton = bench_alloc(1, sizeof(*baton));
    pthread_t started[THREADS_MAX];

    baton->uncounted = scene->threads;
    baton->wanted = scene->threads + scene->handovers;
    (void)pthread_barrier_init(&baton->start, NULL, scene->threads);
    for (unsigned i = 0; i < scene->threads; i++) {
        if (pthread_create(
                &started[i], NULL,
                scene->method == POLLING ? polling_main : locking_main, baton))
            bench_fail("cannot start a thread");
    }
    for (unsigned i = 0; i < scene->threads; i++)
        (void)pthread_join(started[i], NULL);
    (void)pthread_barrier_destroy(&baton->start);
    add_latencies(of, baton->micros, scene->handovers);
    free(baton);
}

static void run_redisson(const struct scene *scene, struct bench_figures *of)
{
    double numbers[2];

    bench_peer_order(&bench_redis.redisson, "handover %s %u %u", scene->kind,
                     scene->threads, scene->handovers);
    bench_peer_numbers(&bench_redis.redisson, numbers, 2);
    bench_add(&of->p50, numbers[0]);
    bench_add(&of->p99, numbers[1]);
}

/* ---- One message --------------------------------------------------------*/

struct listener {
    atomic_ullong sent_at;
    atomic_uint received;
    double micros[MESSAGES];
};

static void *listener_main(void *arg)
{
    struct listener *listener = arg;
    redisContext *context = bench_redis_connect();
    const char *subscribe[] = {"SUBSCRIBE", "bench"};
    void *reply;

    freeReplyObject(bench_redis_command(context, 2, subscribe));
    atomic_store(&listener->received, 1);
    for (unsigned i = 0; i < MESSAGES; i++) {
        if (redisGetReply(context, &reply) != REDIS_OK)
            bench_fail("cannot read a message");
        listener->micros[i] =
            (double)(bench_now() - atomic_load(&listener->sent_at)) / 1000;
        freeReplyObject(reply);
        atomic_fetch_add(&listener->received, 1);
    }
    redisFree(context);
    return NULL;
}

static void run_messages(struct bench_figures *of)
{
    struct listener *listener = bench_alloc(1, sizeof(*listener));
    redisContext *context = bench_redis_connect();
    const char *publish[] = {"PUBLISH", "bench", "x"};
    pthread_t thread;

    if (pthread_create(&thread, NULL, listener_main, listener))
        bench_fail("cannot start a thread");
    for (unsigned i = 1; i <= MESSAGES; i++) {
        while (atomic_load(&listener->received) < i)
            sched_yield();
        atomic_store(&listener->sent_at, bench_now());
        freeReplyObject(bench_redis_command(context, 3, publish));
    }
    (void)pthread_join(thread, NULL);
    redisFree(context);
    add_latencies(of, listener->micros, MESSAGES);
    free(listener);
}

/* ---- Scenes -------------------------------------------------------------*/

static bool is_available(const struct scene *scene)
{
    return scene->method != REDISSON || bench_redis.redisson.pid > 0;
}

void bench_handovers_run(struct bench *bench, unsigned round)
{
    for (size_t i = 0; i < SCENES; i++) {
        if (!is_available(&scenes[i]))
            continue;
        bench_progress(bench, round, scenes[i].what);
        if (scenes[i].method == MESSAGE)
            run_messages(&figures[i]);
        else if (scenes[i].method == REDISSON)
            run_redisson(&scenes[i], &figures[i]);
        else
            run_baton(&scenes[i], &figures[i]);
    }
}

void bench_handovers_print(struct bench *bench)
{
    static const struct bench_column columns[] = {
        {"waiters", "waiters", 0}, {"what", "what", BENCH_TEXT},
        {"p50 µs", "p50_us", 0},   {"of a message", "p50_of_message", 2},
        {"p99 µs", "p99_us", 0},   {NULL, NULL, 0},
    };
    struct bench_table table;

    bench_table_init(&table, "Hand-over in Redis", "redis_handover", columns);
    for (size_t i = 0; i < SCENES; i++) {
        if (!is_available(&scenes[i]))
            continue;
        bench_table_number(&table, scenes[i].threads);
        bench_table_text(&table, scenes[i].what);
        bench_table_number(&table, bench_median(&figures[i].p50));
        bench_table_number(&table, bench_median(&figures[i].p50) /
                                       bench_median(&figures[0].p50));
        bench_table_number(&table, bench_median(&figures[i].p99));
    }
    bench_table_print(bench, &table);
}
