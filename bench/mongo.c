/* mongo - how much does a lock in MongoDB cost next to the least that MongoDB
 * itself can do, and how soon is it handed on?
 *
 * A pair is hf_acquire() and hf_release() of a key that nobody else wants. Next to
 * it, in the same round and on the same servers: a findAndModify that inserts a
 * document and a delete that removes it, by libmongoc alone, with the same
 * concerns: a majority has both, in its journal. A client is a thread with a
 * client of its own; the bare loop's threads share libmongoc's pool.
 *
 * A hand-over is from just before hf_release() until hf_acquire() has returned in
 * the next of ten that stand in line, each a client of its own.
 *
 * A replica set of one, and of three, on this machine, started here: with the
 * servers, the clients and the disk on few cores, the figures say how the two
 * loops compare and little else. */
#include <mongoc/mongoc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/bench.h"
#include "lib/mongo.h"

#define ROUND_NS 1000000000ull
#define CLIENTS_MAX 64
#define PAIRS_MAX 20000        /* of one client, a round */
#define ROUND_PAIRS_MAX 200000 /* of all of them: no server does as many */
#define WAITERS 10
#define HAND_OVERS 200

static const unsigned crowds[] = {1, 16, 64};
#define CROWDS (sizeof(crowds) / sizeof(crowds[0]))

/* ---- Pairs --------------------------------------------------------------*/

struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    mongoc_client_pool_t *pool; /* the bare loop's */
    struct hf_client *client;   /* or ours */
    char key[32];
    double *took; /* milliseconds, of each pair */
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
    bson_t *take = BCON_NEW(
        "findAndModify", "bare", "query", "{", "_id", BCON_UTF8(key), "}",
        "update", "{", "$set", "{", "owner", "bench", "}", "}", "upsert",
        BCON_BOOL(true), "new", BCON_BOOL(true), "writeConcern", "{", "w",
        "majority", "j", BCON_BOOL(true), "}");
    bson_t *give = BCON_NEW("delete", "bare", "deletes", "[", "{", "q", "{",
                            "_id", BCON_UTF8(key), "}", "limit", BCON_INT32(1),
                            "}", "]", "writeConcern", "{", "w", "majority", "j",
                            BCON_BOOL(true), "}");

    bare_command(client, take);
    bare_command(client, give);
    bson_destroy(take);
    bson_destroy(give);
}

static void our_pair(struct hf_client *client, const char *key)
{
    struct hf_lock *lock = NULL;

    bench_check("lock", hf_acquire(client, hf_key_of(key), NULL, &lock));
    bench_check("unlock", hf_release(lock));
    hf_lock_free(lock);
}

static void *run(void *arg)
{
    struct worker *worker = arg;
    mongoc_client_t *bare =
        worker->pool ? mongoc_client_pool_pop(worker->pool) : NULL;
    uint64_t now, end;

    if (bare) /* connect */
        bare_pair(bare, worker->key);
    (void)pthread_barrier_wait(worker->start);
    now = bench_now();
    end = now + ROUND_NS;
    while (now < end && worker->count < PAIRS_MAX) {
        uint64_t before = now;

        if (bare)
            bare_pair(bare, worker->key);
        else
            our_pair(worker->client, worker->key);
        now = bench_now();
        worker->took[worker->count++] = (double)(now - before) / 1e6;
    }
    if (bare)
        mongoc_client_pool_push(worker->pool, bare);
    return NULL;
}

/* What came of one loop with one number of clients. */
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
        if (pthread_create(&workers[i].thread, NULL, run, &workers[i]))
            bench_fail("thread");
    }
    (void)pthread_barrier_wait(&start);
    began = bench_now();
    for (unsigned i = 0; i < count; i++) {
        if (pthread_join(workers[i].thread, NULL))
            bench_fail("join");
        if (pairs + workers[i].count > ROUND_PAIRS_MAX)
            bench_fail("too fast to be kept");
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

static void tell(struct bench_table *table, unsigned members, unsigned clients,
                 const char *what, struct figures *figures,
                 const struct figures *bare)
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

static void compare(struct bench *bench, struct bench_table *table,
                    unsigned members, unsigned clients, const char *url,
                    mongoc_client_pool_t *pool)
{
    static struct worker bare[CLIENTS_MAX], ours[CLIENTS_MAX];
    size_t room = (size_t)bench->rounds * ROUND_PAIRS_MAX;
    struct figures of_bare = {.took = bench_alloc(room, sizeof(double))};
    struct figures of_ours = {.took = bench_alloc(room, sizeof(double))};

    start_workers(bare, clients, bench, url, pool);
    start_workers(ours, clients, bench, url, NULL);
    for (unsigned i = 0; i < bench->rounds; i++) {
        bench_progress(bench, i, "pairs");
        run_round(bare, clients, &of_bare);
        run_round(ours, clients, &of_ours);
    }
    end_workers(bare, clients);
    end_workers(ours, clients);
    tell(table, members, clients, "bare libmongoc", &of_bare, &of_bare);
    tell(table, members, clients, "holdfast", &of_ours, &of_bare);
}

/* ---- Hand-overs ---------------------------------------------------------*/

struct line {
    const char *url;
    const struct bench *bench;
    _Atomic uint64_t given; /* when the last holder began to give it back */
    atomic_uint taken;      /* hand-overs so far */
    double took[HAND_OVERS];
};

static void *stand_in_line(void *arg)
{
    struct line *line = arg;
    struct bench ours = *line->bench;
    struct hf_client *client;
    struct hf_lock_opts opts;

    ours.url = line->url;
    client = bench_open(&ours);
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 60000;
    opts.wait_ms = HF_FOREVER;
    while (atomic_load(&line->taken) < HAND_OVERS) {
        struct hf_lock *lock = NULL;
        uint64_t given;
        unsigned number;

        bench_check("lock",
                    hf_acquire(client, hf_key_of("line"), &opts, &lock));
        given = atomic_exchange(&line->given, 0);
        number = given ? atomic_fetch_add(&line->taken, 1) : HAND_OVERS;
        if (number < HAND_OVERS)
            line->took[number] = (double)(bench_now() - given) / 1e6;
        bench_sleep_ms(5); /* those behind are in line again */
        atomic_store(&line->given, bench_now());
        bench_check("unlock", hf_release(lock));
        hf_lock_free(lock);
    }
    bench_close(client);
    return NULL;
}

static void hand_over(const struct bench *bench, struct bench_table *table,
                      unsigned members, const char *url)
{
    struct line *line = bench_alloc(1, sizeof(*line));
    pthread_t threads[WAITERS + 1];

    line->url = url;
    line->bench = bench;
    for (unsigned i = 0; i <= WAITERS; i++)
        if (pthread_create(&threads[i], NULL, stand_in_line, line))
            bench_fail("thread");
    for (unsigned i = 0; i <= WAITERS; i++)
        if (pthread_join(threads[i], NULL))
            bench_fail("join");
    bench_sort(line->took, HAND_OVERS);
    bench_table_number(table, members);
    bench_table_number(table, bench_quantile(line->took, HAND_OVERS, 0.5));
    bench_table_number(table, bench_quantile(line->took, HAND_OVERS, 0.99));
    free(line);
}

/* ---- All of it ----------------------------------------------------------*/

static void measure(struct bench *bench, unsigned members,
                    struct bench_table *pairs, struct bench_table *handed)
{
    struct hf_test_mongo mongo = {.election_ms = 30000}; /* none is wanted */
    char url[HF_TEST_MONGO_URL_SIZE];
    mongoc_client_pool_t *pool;
    mongoc_uri_t *uri;

    if (!hf_test_mongo_start(&mongo, members))
        bench_fail("mongod cannot be started");
    hf_test_mongo_url(&mongo, url, "");
    uri = mongoc_uri_new(url);
    pool = mongoc_client_pool_new(uri);
    for (unsigned i = 0; i < CROWDS; i++)
        compare(bench, pairs, members, crowds[i], url, pool);
    hand_over(bench, handed, members, url);
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
    static const struct bench_column handed_columns[] = {
        {"members", "members", 0},
        {"p50 ms", "p50_ms", 2},
        {"p99 ms", "p99_ms", 2},
        {NULL, NULL, 0},
    };
    static struct bench_table pairs, handed;
    struct bench bench = {.name = "mongo", .url = "", .rounds = 5};

    bench_init(&bench, argc, argv);
    if (!hf_test_mongo_found()) {
        (void)fprintf(stderr, "mongo: %s\n", HF_TEST_MONGO_NONE);
        return 0;
    }
    bench_table_init(&pairs, "A pair of lock and unlock", "mongo_pairs",
                     pair_columns);
    bench_table_init(&handed, "A hand-over, with ten in line",
                     "mongo_handovers", handed_columns);
    measure(&bench, 1, &pairs, &handed);
    measure(&bench, 3, &pairs, &handed);
    bench_table_print(&bench, &pairs);
    bench_table_print(&bench, &handed);
    return 0;
}
