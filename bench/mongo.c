/* mongo - what does a lock in MongoDB cost, compared with the least that
 * MongoDB can do, and how long does a hand-over take?
 *
 * A pair is hf_acquire() and hf_release() of a key that is not contended. It is
 * compared, in the same round and on the same servers, with a findAndModify
 * that inserts a document and a delete that removes it, with libmongoc alone
 * and the same write concern: a write is complete when it is in the journal of
 * a majority. In the loop of holdfast, each thread has its own client; the
 * threads of the bare loop share a pool of libmongoc.
 *
 * A hand-over is measured from just before hf_release() until hf_acquire() has
 * returned in the next of ten waiters, each with its own client.
 *
 * The replica sets, of one and of three members, run on this machine. Servers,
 * clients and disk share few cores, so only the ratio of the two loops is
 * meaningful. */
#include <mongoc/mongoc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/bench.h"
#include "lib/mongo.h"

#define ROUND_NS 1000000000ull
#define CLIENTS_MAX 64
#define PAIRS_MAX 20000        /* pairs of one client, per round */
#define ROUND_PAIRS_MAX 200000 /* pairs of all clients; more end the program */
#define WAITERS 10
#define HAND_OVERS 200

static const unsigned crowds[] = {1, 16, 64};
#define CROWDS (sizeof(crowds) / sizeof(crowds[0]))

/* ---- Pairs --------------------------------------------------------------*/

struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    mongoc_client_pool_t *pool; /* in the bare loop */
    struct hf_client *client;   /* in the other loop */
    char key[32];
    double *took; /* milliseconds that each pair took */
    size_t count;
};

static void bare_command(mongoc_client_t *client, const bson_t *command)
{
    bson_error_t why;

    if (!mongoc_client_write_command_with_opts(client, "holdfast", command,
                                               NULL, NULL, &why))
        bench_fail(why.message);
}

static void bare_pair(mongoc_client_t *client, const char *key)
{
    bson_t *lock = BCON_NEW(
        "findAndModify", "bare", "query", "{", "_id", BCON_UTF8(key), "}",
        "update", "{", "$set", "{", "owner", "bench", "}", "}", "upsert",
        BCON_BOOL(true), "new", BCON_BOOL(true), "writeConcern", "{", "w",
        "majority", "j", BCON_BOOL(true), "}");
    bson_t *unlock = BCON_NEW("delete", "bare", "deletes", "[", "{", "q", "{",
                              "_id", BCON_UTF8(key), "}", "limit",
                              BCON_INT32(1), "}", "]", "writeConcern", "{", "w",
                              "majority", "j", BCON_BOOL(true), "}");

    bare_command(client, lock);
    bare_command(client, unlock);
    bson_destroy(lock);
    bson_destroy(unlock);
}

static void holdfast_pair(struct hf_client *client, const char *key)
{
    struct hf_lock *lock = NULL;

    bench_check("hf_acquire", hf_acquire(client, hf_key_of(key), NULL, &lock));
    bench_check("hf_release", hf_release(lock));
    hf_lock_free(lock);
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    mongoc_client_t *bare =
        worker->pool ? mongoc_client_pool_pop(worker->pool) : NULL;
    uint64_t now, end;

    if (bare) /* connect before the measurement */
        bare_pair(bare, worker->key);
    (void)pthread_barrier_wait(worker->start);
    now = bench_now();
    end = now + ROUND_NS;
    while (now < end && worker->count < PAIRS_MAX) {
        uint64_t before = now;

        if (bare)
            bare_pair(bare, worker->key);
        else
            holdfast_pair(worker->client, worker->key);
        now = bench_now();
        worker->took[worker->count++] = (double)(now - before) / 1e6;
    }
    if (bare)
        mongoc_client_pool_push(worker->pool, bare);
    return NULL;
}

/* The results of one loop with one number of clients. */
struct figures {
    struct bench_samples rate;
    double *took;
    size_t count;
};

static void run_round(struct worker *workers, unsigned count,
                      struct figures *figures)
{
    pthread_barrier_t start;
    uint64_t began;
    size_t pairs = 0;

    if (pthread_barrier_init(&start, NULL, count + 1))
        bench_fail("barrier");
    for (unsigned i = 0; i < count; i++) {
        workers[i].start = &start;
        workers[i].count = 0;
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]))
            bench_fail("thread");
    }
    (void)pthread_barrier_wait(&start);
    began = bench_now();
    for (unsigned i = 0; i < count; i++) {
        if (pthread_join(workers[i].thread, NULL))
            bench_fail("join");
        if (pairs + workers[i].count > ROUND_PAIRS_MAX)
            bench_fail("more than ROUND_PAIRS_MAX pairs in a round");
        memcpy(figures->took + figures->count, workers[i].took,
               workers[i].count * sizeof(double));
        figures->count += workers[i].count;
        pairs += workers[i].count;
    }
    bench_add(&figures->rate,
              (double)pairs / ((double)(bench_now() - began) / 1e9));
    (void)pthread_barrier_destroy(&start);
}

static void start_workers(struct worker *workers, unsigned count,
                          const struct bench *bench, const char *url,
                          mongoc_client_pool_t *pool)
{
    struct bench ours = *bench;

    ours.url = url;
    for (unsigned i = 0; i < count; i++) {
        workers[i] = (struct worker){
            .pool = pool,
            .client = pool ? NULL : bench_open(&ours),
            .took = bench_alloc(PAIRS_MAX, sizeof(double)),
        };
        (void)snprintf(workers[i].key, sizeof(workers[i].key), "pairs-%u", i);
    }
}

static void end_workers(struct worker *workers, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (workers[i].client)
            bench_close(workers[i].client);
        free(workers[i].took);
    }
}

static void print_table(struct bench_table *table, unsigned members,
                        unsigned clients, const char *what,
                        struct figures *figures, const struct figures *bare)
{
    double rate = bench_median(&figures->rate);

    bench_sort(figures->took, figures->count);
    bench_table_number(table, members);
    bench_table_number(table, clients);
    bench_table_text(table, what);
    bench_table_number(table, rate);
    bench_table_number(table,
                       bench_quantile(figures->took, figures->count, 0.5));
    bench_table_number(table,
                       bench_quantile(figures->took, figures->count, 0.99));
    bench_table_number(table, bench_median(&bare->rate) / rate);
    free(figures->took);
}

static void measure_pairs(struct bench *bench, struct bench_table *table,
                          unsigned members, unsigned clients, const char *url,
                          mongoc_client_pool_t *pool)
{
    static struct worker bare[CLIENTS_MAX], ours[CLIENTS_MAX];
    size_t room = (size_t)bench->rounds * ROUND_PAIRS_MAX;
    struct figures bare_figures = {.took = bench_alloc(room, sizeof(double))};
    struct figures our_figures = {.took = bench_alloc(room, sizeof(double))};

    start_workers(bare, clients, bench, url, pool);
    start_workers(ours, clients, bench, url, NULL);
    for (unsigned i = 0; i < bench->rounds; i++) {
        bench_progress(bench, i, "pairs");
        run_round(bare, clients, &bare_figures);
        run_round(ours, clients, &our_figures);
    }
    end_workers(bare, clients);
    end_workers(ours, clients);
    print_table(table, members, clients, "bare libmongoc", &bare_figures,
                &bare_figures);
    print_table(table, members, clients, "holdfast", &our_figures,
                &bare_figures);
}

/* ---- Hand-overs ---------------------------------------------------------*/

struct queue {
    const char *url;
    const struct bench *bench;
    _Atomic uint64_t released_at; /* when the last holder began to release */
    atomic_uint handovers;        /* hand-overs so far */
    double took[HAND_OVERS];
};

static void *waiter_main(void *arg)
{
    struct queue *queue = arg;
    struct bench ours = *queue->bench;
    struct hf_client *client;
    struct hf_lock_opts opts;

    ours.url = queue->url;
    client = bench_open(&ours);
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 60000;
    opts.wait_ms = HF_FOREVER;
    while (atomic_load(&queue->handovers) < HAND_OVERS) {
        struct hf_lock *lock = NULL;
        uint64_t released_at;
        unsigned number;

        bench_check("hf_acquire",
                    hf_acquire(client, hf_key_of("queue"), &opts, &lock));
        released_at = atomic_exchange(&queue->released_at, 0);
        number =
            released_at ? atomic_fetch_add(&queue->handovers, 1) : HAND_OVERS;
        if (number < HAND_OVERS)
            queue->took[number] = (double)(bench_now() - released_at) / 1e6;
        bench_sleep_ms(5); /* until all others are queued again */
        atomic_store(&queue->released_at, bench_now());
        bench_check("hf_release", hf_release(lock));
        hf_lock_free(lock);
    }
    bench_close(client);
    return NULL;
}

static void measure_handovers(const struct bench *bench,
                              struct bench_table *table, unsigned members,
                              const char *url)
{
    struct queue *queue = bench_alloc(1, sizeof(*queue));
    pthread_t threads[WAITERS + 1];

    queue->url = url;
    queue->bench = bench;
    for (unsigned i = 0; i <= WAITERS; i++)
        if (pthread_create(&threads[i], NULL, waiter_main, queue))
            bench_fail("thread");
    for (unsigned i = 0; i <= WAITERS; i++)
        if (pthread_join(threads[i], NULL))
            bench_fail("join");
    bench_sort(queue->took, HAND_OVERS);
    bench_table_number(table, members);
    bench_table_number(table, bench_quantile(queue->took, HAND_OVERS, 0.5));
    bench_table_number(table, bench_quantile(queue->took, HAND_OVERS, 0.99));
    free(queue);
}

/* ---- Main ---------------------------------------------------------------*/

static void measure(struct bench *bench, unsigned members,
                    struct bench_table *pairs, struct bench_table *handovers)
{
    struct hf_test_mongo mongo = {.election_ms = 30000}; /* avoid elections */
    char url[HF_TEST_MONGO_URL_SIZE];
    mongoc_client_pool_t *pool;
    mongoc_uri_t *uri;

    if (!hf_test_mongo_start(&mongo, members))
        bench_fail("cannot start mongod");
    hf_test_mongo_url(&mongo, url, "");
    uri = mongoc_uri_new(url);
    pool = mongoc_client_pool_new(uri);
    for (unsigned i = 0; i < CROWDS; i++)
        measure_pairs(bench, pairs, members, crowds[i], url, pool);
    measure_handovers(bench, handovers, members, url);
    mongoc_client_pool_destroy(pool);
    mongoc_uri_destroy(uri);
    hf_test_mongo_stop(&mongo);
}

int main(int argc, char **argv)
{
    static const struct bench_column pair_columns[] = {
        {"members", "members", 0},    {"clients", "clients", 0},
        {"loop", "loop", BENCH_TEXT}, {"pairs/s", "pairs_per_s", 0},
        {"p50 ms", "p50_ms", 2},      {"p99 ms", "p99_ms", 2},
        {"x bare", "times_bare", 2},  {NULL, NULL, 0},
    };
    static const struct bench_column handover_columns[] = {
        {"members", "members", 0},
        {"p50 ms", "p50_ms", 2},
        {"p99 ms", "p99_ms", 2},
        {NULL, NULL, 0},
    };
    static struct bench_table pairs, handovers;
    struct bench bench = {.name = "mongo", .url = "", .rounds = 5};

    bench_init(&bench, argc, argv);
    if (!hf_test_mongo_is_installed()) {
        (void)fprintf(stderr, "mongo: %s\n", HF_TEST_MONGO_NONE);
        return 0;
    }
    bench_table_init(&pairs, "A pair of lock and unlock", "mongo_pairs",
                     pair_columns);
    bench_table_init(&handovers, "A hand-over, with ten waiters",
                     "mongo_handovers", handover_columns);
    measure(&bench, 1, &pairs, &handovers);
    measure(&bench, 3, &pairs, &handovers);
    bench_table_print(&bench, &pairs);
    bench_table_print(&bench, &handovers);
    return 0;
}
