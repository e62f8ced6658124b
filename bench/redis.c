/* redis - what does a lock in Redis cost, next to a bare hiredis loop against
 * the same server, and how long does a hand-over take, next to one message?
 *
 * The bare loop is what most programs write: SET NX PX, and a script that
 * compares and deletes. It has no line, no token, no renewal, nobody to wake.
 * A server is started for the purpose; a URL is not looked at.
 *
 * Pairs: each thread has a connection, or a client, and a key of its own, and
 * does one pair after another; "one client" keeps 64 pairs under way on a
 * single connection. Hand-over: threads take turns with one key; from just
 * before the unlock in one until the lock has returned in another. The floor
 * is one message: from before PUBLISH until a sleeping subscriber has it. Those
 * who poll look every 150 to 300 ms, as was the custom. */
#include <hiredis/hiredis.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "../tests/lib/redis.h"
#include "lib/bench.h"

#define SPAN_MS 500    /* of one case in one round */
#define OUTSTANDING 64 /* on one connection */
#define SAMPLES 200000 /* kept of a case */
#define HANDOVERS 400  /* a round */
#define POLLED_HANDOVERS 6
#define MESSAGES 1000
#define THREADS_MAX 200

static struct hf_test_redis redis;
static char url[64];

/* ---- Pairs --------------------------------------------------------------*/

enum how {
    BARE,
    HOLDFAST,
    ONE_CLIENT
};

static const struct scene {
    const char *what;
    unsigned threads;
    enum how how;
} scenes[] = {
    {"bare hiredis", 1, BARE},
    {"holdfast", 1, HOLDFAST},
    {"bare hiredis", 16, BARE},
    {"holdfast", 16, HOLDFAST},
    {"bare hiredis", 64, BARE},
    {"holdfast", 64, HOLDFAST},
    {"holdfast, one client, 64 at once", 1, ONE_CLIENT},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

struct worker {
    pthread_t thread;
    unsigned number;
    enum how how;
    pthread_barrier_t *start; /* all are connected */
    uint64_t until;
    double *micros; /* of each pair */
    size_t pairs, room;
};

static void await_start(struct worker *worker)
{
    (void)pthread_barrier_wait(worker->start);
    worker->until = bench_now() + SPAN_MS * 1000000ull;
}

static void note(struct worker *worker, uint64_t began)
{
    if (worker->pairs < worker->room)
        worker->micros[worker->pairs] = (double)(bench_now() - began) / 1000;
    worker->pairs++;
}

static redisContext *connect_bare(void)
{
    redisContext *context = redisConnect("127.0.0.1", redis.port);

    if (!context || context->err)
        bench_fail("cannot connect");
    return context;
}

static redisReply *say(redisContext *context, int argc, const char **argv)
{
    redisReply *reply = redisCommandArgv(context, argc, argv, NULL);

    if (!reply || reply->type == REDIS_REPLY_ERROR)
        bench_fail("the server refuses");
    return reply;
}

static void work_bare(struct worker *worker)
{
    static const char script[] =
        "if redis.call('get',KEYS[1])==ARGV[1] then "
        "return redis.call('del',KEYS[1]) else return 0 end";
    redisContext *context = connect_bare();
    const char *load[] = {"SCRIPT", "LOAD", script};
    redisReply *sha = say(context, 3, load);
    char key[32];

    (void)snprintf(key, sizeof(key), "bare-%u", worker->number);
    await_start(worker);
    while (bench_now() < worker->until) {
        const char *lock[] = {"SET", key,  "0123456789abcdef0123456789abcdef",
                              "NX",  "PX", "10000"};
        const char *unlock[] = {"EVALSHA", sha->str, "1", key, lock[2]};
        uint64_t began = bench_now();
        redisReply *taken = say(context, 6, lock);
        redisReply *given = say(context, 5, unlock);

        if (given->integer != 1)
            bench_fail("the bare lock was not held");
        freeReplyObject(taken);
        freeReplyObject(given);
        note(worker, began);
    }
    freeReplyObject(sha);
    redisFree(context);
}

static struct hf_client *open_client(void)
{
    struct hf_client *client;

    bench_check("hf_open", hf_open(url, NULL, &client));
    return client;
}

static void work_holdfast(struct worker *worker)
{
    struct hf_client *client = open_client();
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    char key[32];

    (void)snprintf(key, sizeof(key), "own-%u", worker->number);
    hf_lock_opts_init(&opts);
    opts.idle = true;
    bench_check("hf_lock_new", hf_lock_new(client, hf_key(key), &opts, &lock));
    await_start(worker);
    while (bench_now() < worker->until) {
        uint64_t began = bench_now();

        bench_check("hf_claim", hf_claim(lock));
        bench_check("hf_unlock", hf_unlock(lock));
        note(worker, began);
    }
    hf_lock_free(lock);
    bench_close(client);
}

/* One of many pairs that are under way. */
struct pair {
    struct worker *worker;
    struct hf_lock *lock;
    unsigned *open;
    uint64_t began;
};

static void given(enum hf_err err, void *arg);

static void taken(enum hf_err err, void *arg)
{
    struct pair *pair = arg;

    bench_check("hf_claim", err);
    bench_check("hf_unlock", hf_unlock_start(pair->lock, given, pair, NULL));
}

static void take(struct pair *pair)
{
    pair->began = bench_now();
    bench_check("hf_claim", hf_claim_start(pair->lock, taken, pair, NULL));
}

static void given(enum hf_err err, void *arg)
{
    struct pair *pair = arg;

    bench_check("hf_unlock", err);
    note(pair->worker, pair->began);
    if (bench_now() < pair->worker->until)
        take(pair);
    else
        --*pair->open;
}

static void work_many(struct worker *worker)
{
    struct hf_client *client = open_client();
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
                    hf_lock_new(client, hf_key(key), &opts, &pairs[i].lock));
        take(&pairs[i]);
    }
    while (open > 0) {
        (void)poll(&fd, 1, -1);
        bench_check("hf_process", hf_process(client));
    }
    for (unsigned i = 0; i < OUTSTANDING; i++)
        hf_lock_free(pairs[i].lock);
    bench_close(client);
}

static void *work(void *arg)
{
    struct worker *worker = arg;

    if (worker->how == BARE)
        work_bare(worker);
    else if (worker->how == HOLDFAST)
        work_holdfast(worker);
    else
        work_many(worker);
    return NULL;
}

struct figures {
    struct bench_samples rate, p50, p99;
};

static void run_scene(const struct scene *scene, struct figures *figures)
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
            .how = scene->how,
            .start = &start,
            .micros = bench_alloc(room, sizeof(double)),
            .room = room,
        };
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
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
    bench_add(&figures->rate,
              (double)pairs / ((double)(bench_now() - began) / 1e9) / 1000);
    bench_add(&figures->p50, bench_quantile(all, kept, 0.5));
    bench_add(&figures->p99, bench_quantile(all, kept, 0.99));
    free(all);
    free(workers);
}

static void tell_pairs(struct bench *bench, const struct figures *figures)
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
        if (scenes[i].how == BARE)
            bare = i;
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

/* ---- Hand-over ----------------------------------------------------------*/

/* The thread that gives notes when; the one that takes, how long it took. */
struct baton {
    atomic_ullong given;
    atomic_uint passed, wanted;
    double micros[HANDOVERS];
    atomic_uint waiting;
    bool polls;
};

static void pass_on(struct baton *baton)
{
    unsigned long long given_at = atomic_load(&baton->given);
    unsigned number = atomic_load(&baton->passed);

    if (given_at > 0 && number < baton->wanted) {
        baton->micros[number] = (double)(bench_now() - given_at) / 1000;
        atomic_store(&baton->passed, number + 1);
    }
    atomic_store(&baton->given, bench_now());
}

static void *take_turns(void *arg)
{
    struct baton *baton = arg;
    struct hf_client *client = open_client();
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    hf_lock_opts_init(&opts);
    opts.idle = true;
    opts.ttl_ms = 60000;
    opts.wait_ms = HF_FOREVER;
    bench_check("hf_lock_new",
                hf_lock_new(client, hf_key("baton"), &opts, &lock));
    atomic_fetch_add(&baton->waiting, 1);
    while (atomic_load(&baton->passed) < baton->wanted) {
        bench_check("hf_claim", hf_claim(lock));
        pass_on(baton);
        bench_check("hf_unlock", hf_unlock(lock));
    }
    hf_lock_free(lock);
    bench_close(client);
    return NULL;
}

static void *take_turns_by_polling(void *arg)
{
    struct baton *baton = arg;
    redisContext *context = connect_bare();
    const char *lock[] = {"SET", "polled", "x", "NX", "PX", "60000"};
    const char *unlock[] = {"DEL", "polled"};
    unsigned seed = (unsigned)(uintptr_t)context;

    atomic_fetch_add(&baton->waiting, 1);
    while (atomic_load(&baton->passed) < baton->wanted) {
        redisReply *reply = say(context, 6, lock);
        bool taken_it = reply->type == REDIS_REPLY_STATUS;

        freeReplyObject(reply);
        if (taken_it) {
            pass_on(baton);
            freeReplyObject(say(context, 2, unlock));
        }
        (void)poll(NULL, 0, 150 + rand_r(&seed) % 151);
    }
    redisFree(context);
    return NULL;
}

static void run_baton(unsigned threads, bool polls, unsigned handovers,
                      struct figures *figures)
{
    struct baton *baton = bench_alloc(1, sizeof(*baton));
    pthread_t started[THREADS_MAX];

    baton->wanted = handovers;
    for (unsigned i = 0; i < threads; i++) {
        if (pthread_create(&started[i], NULL,
                           polls ? take_turns_by_polling : take_turns, baton))
            bench_fail("cannot start a thread");
    }
    for (unsigned i = 0; i < threads; i++)
        (void)pthread_join(started[i], NULL);
    bench_sort(baton->micros, handovers);
    bench_add(&figures->p50, bench_quantile(baton->micros, handovers, 0.5));
    bench_add(&figures->p99, bench_quantile(baton->micros, handovers, 0.99));
    free(baton);
}

struct listener {
    atomic_ullong said;
    atomic_uint heard;
    double micros[MESSAGES];
};

static void *listen_for_messages(void *arg)
{
    struct listener *listener = arg;
    redisContext *context = connect_bare();
    const char *subscribe[] = {"SUBSCRIBE", "bench"};
    void *reply;

    freeReplyObject(say(context, 2, subscribe));
    atomic_store(&listener->heard, 1);
    for (unsigned i = 0; i < MESSAGES; i++) {
        if (redisGetReply(context, &reply) != REDIS_OK)
            bench_fail("cannot hear");
        listener->micros[i] =
            (double)(bench_now() - atomic_load(&listener->said)) / 1000;
        freeReplyObject(reply);
        atomic_fetch_add(&listener->heard, 1);
    }
    redisFree(context);
    return NULL;
}

static void run_messages(struct figures *figures)
{
    struct listener *listener = bench_alloc(1, sizeof(*listener));
    redisContext *context = connect_bare();
    const char *publish[] = {"PUBLISH", "bench", "x"};
    pthread_t thread;

    if (pthread_create(&thread, NULL, listen_for_messages, listener))
        bench_fail("cannot start a thread");
    for (unsigned i = 1; i <= MESSAGES; i++) {
        while (atomic_load(&listener->heard) < i)
            sched_yield();
        atomic_store(&listener->said, bench_now());
        freeReplyObject(say(context, 3, publish));
    }
    (void)pthread_join(thread, NULL);
    redisFree(context);
    bench_sort(listener->micros, MESSAGES);
    bench_add(&figures->p50, bench_quantile(listener->micros, MESSAGES, 0.5));
    bench_add(&figures->p99, bench_quantile(listener->micros, MESSAGES, 0.99));
    free(listener);
}

static const struct {
    const char *what;
    unsigned threads;
    bool polls;
    unsigned handovers;
} turns[] = {
    {"one message", 1, false, 0},
    {"holdfast", 10, false, HANDOVERS},
    {"holdfast", 200, false, HANDOVERS},
    {"polling", 10, true, POLLED_HANDOVERS},
};

#define TURNS (sizeof(turns) / sizeof(turns[0]))

static void tell_turns(struct bench *bench, const struct figures *figures)
{
    static const struct bench_column columns[] = {
        {"waiters", "waiters", 0}, {"what", "what", BENCH_TEXT},
        {"p50 µs", "p50_us", 0},   {"of a message", "p50_of_message", 2},
        {"p99 µs", "p99_us", 0},   {NULL, NULL, 0},
    };
    struct bench_table table;

    bench_table_init(&table, "Hand-over in Redis", "redis_handover", columns);
    for (size_t i = 0; i < TURNS; i++) {
        bench_table_number(&table, turns[i].threads);
        bench_table_text(&table, turns[i].what);
        bench_table_number(&table, bench_median(&figures[i].p50));
        bench_table_number(&table, bench_median(&figures[i].p50) /
                                       bench_median(&figures[0].p50));
        bench_table_number(&table, bench_median(&figures[i].p99));
    }
    bench_table_print(bench, &table);
}

int main(int argc, char **argv)
{
    struct bench bench = {.name = "redis", .url = "redis:", .rounds = 5};
    static struct figures pairs[SCENES], handovers[TURNS];

    bench_init(&bench, argc, argv);
    if (!hf_test_redis_start(&redis, NULL))
        bench_fail("redis-server cannot be started");
    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%d", redis.port);
    for (unsigned round = 0; round < bench.rounds; round++) {
        for (size_t i = 0; i < SCENES; i++) {
            bench_progress(&bench, round, scenes[i].what);
            run_scene(&scenes[i], &pairs[i]);
        }
        for (size_t i = 0; i < TURNS; i++) {
            bench_progress(&bench, round, turns[i].what);
            if (turns[i].handovers == 0)
                run_messages(&handovers[i]);
            else
                run_baton(turns[i].threads, turns[i].polls, turns[i].handovers,
                          &handovers[i]);
        }
    }
    tell_pairs(&bench, pairs);
    tell_turns(&bench, handovers);
    hf_test_redis_stop(&redis);
    return 0;
}
