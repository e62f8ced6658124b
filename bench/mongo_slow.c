/* mongo_slow - what do slow and silent MongoDB servers cost?
 *
 * The first table delays each write on the server (failCommand). It shows how
 * long a lock takes, also as a multiple of the delay, and how many writes the
 * server executes for a pair of lock and unlock.
 *
 * The second table shows pairs of one client that many threads use at once.
 *
 * The third table stops the primary (SIGSTOP), for longer than the ttl, while
 * one client renews locks, and shows how many of them are lost. The set has
 * three members and the default settings of MongoDB; each round takes more than
 * a minute. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "lib/bench.h"
#include "lib/mongo.h"

#define KEPT 100 /* locks that are renewed */
#define KEPT_TTL_MS 30000
#define ELECTION_MS 10000 /* MongoDB's default */
#define THREADS 64
#define ROUND_NS 2000000000ull

static const unsigned delays[] = {0, 200, 700, 2500};

/* ---- Slow writes --------------------------------------------------------*/

/* Delay each write by `ms`, or stop delaying writes if `ms` is UINT32_MAX.
 * Returns the number of writes that were delayed before this call. */
static long delay_writes(struct hf_test_mongo *mongo, unsigned ms)
{
    const char *reply, *count;
    char json[256];

    (void)snprintf(json, sizeof(json),
                   "{\"configureFailPoint\":\"failCommand\",\"mode\":\"%s\","
                   "\"data\":{\"failCommands\":[\"findAndModify\",\"update\"],"
                   "\"blockConnection\":true,\"blockTimeMS\":%u}}",
                   ms == UINT32_MAX ? "off" : "alwaysOn",
                   ms == UINT32_MAX ? 0 : ms);
    reply = hf_test_mongo_command(mongo, 0, "admin", json);
    count = strstr(reply, "\"count\" : ");
    return count ? strtol(count + strlen("\"count\" : "), NULL, 10) : 0;
}

static void lock_slowly(const struct bench *bench, struct hf_test_mongo *mongo,
                        struct hf_client *client, unsigned delay,
                        struct bench_table *table)
{
    struct bench_samples took = {0};
    struct hf_lock_opts opts;
    long before = delay_writes(mongo, delay);

    hf_lock_opts_init(&opts);
    opts.timeout_ms = 60000;
    for (unsigned round = 0; round < bench->rounds; round++) {
        struct hf_lock *lock = NULL;
        uint64_t began = bench_now();

        bench_check("hf_acquire",
                    hf_acquire(client, hf_key_of("slow"), &opts, &lock));
        bench_add(&took, (double)(bench_now() - began) / 1e6);
        bench_check("hf_release", hf_release(lock));
        hf_lock_free(lock);
    }
    bench_table_number(table, delay);
    bench_table_number(table, bench_median(&took));
    bench_table_number(table, delay ? bench_median(&took) / delay : 0);
    bench_table_number(table,
                       (double)(delay_writes(mongo, UINT32_MAX) - before) /
                           bench->rounds);
}

/* ---- One client, many threads -------------------------------------------*/

struct user {
    pthread_t thread;
    struct hf_client *client;
    uint64_t until;
    char key[16];
    unsigned pairs;
};

static void *user_main(void *arg)
{
    struct user *user = arg;

    while (bench_now() < user->until) {
        struct hf_lock *lock = NULL;

        bench_check("hf_acquire", hf_acquire(user->client, hf_key_of(user->key),
                                             NULL, &lock));
        bench_check("hf_release", hf_release(lock));
        hf_lock_free(lock);
        user->pairs++;
    }
    return NULL;
}

static void measure_shared_client(const struct bench *bench,
                                  struct hf_client *client,
                                  struct bench_table *table)
{
    struct bench_samples rate = {0};
    static struct user users[THREADS];

    for (unsigned round = 0; round < bench->rounds; round++) {
        double pairs = 0;

        for (unsigned i = 0; i < THREADS; i++) {
            users[i] = (struct user){.client = client,
                                     .until = bench_now() + ROUND_NS};
            (void)snprintf(users[i].key, sizeof(users[i].key), "u%u", i);
            if (pthread_create(&users[i].thread, NULL, user_main, &users[i]))
                bench_fail("thread");
        }
        for (unsigned i = 0; i < THREADS; i++) {
            (void)pthread_join(users[i].thread, NULL);
            pairs += users[i].pairs;
        }
        bench_add(&rate, pairs / ((double)ROUND_NS / 1e9));
    }
    bench_table_number(table, THREADS);
    bench_table_number(table, bench_median(&rate));
}

/* ---- A primary that stops -----------------------------------------------*/

static unsigned count_lost(struct hf_lock *const *locks)
{
    unsigned lost = 0;

    for (unsigned i = 0; i < KEPT; i++)
        lost += !hf_lock_valid_for(locks[i], 0);
    return lost;
}

static unsigned stop_primary(const struct bench *bench)
{
    struct hf_test_mongo mongo = {.election_ms = ELECTION_MS};
    char url[HF_TEST_MONGO_URL_SIZE], key[16];
    struct bench ours = *bench;
    struct hf_lock *locks[KEPT] = {NULL};
    struct hf_client *client;
    struct hf_lock_opts opts;
    unsigned lost;
    int stopped;

    if (!hf_test_mongo_start(&mongo, 3))
        bench_fail("cannot start mongod");
    hf_test_mongo_url(&mongo, url, "");
    ours.url = url;
    client = bench_open_background(&ours);
    hf_lock_opts_init(&opts);
    opts.ttl_ms = KEPT_TTL_MS;
    opts.renew = true;
    for (unsigned i = 0; i < KEPT; i++) {
        (void)snprintf(key, sizeof(key), "k%u", i);
        bench_check("hf_acquire",
                    hf_acquire(client, hf_key_of(key), &opts, &locks[i]));
    }
    bench_sleep_ms(KEPT_TTL_MS / 3); /* until renewals are spread over time */
    stopped = hf_test_mongo_primary(&mongo);
    hf_test_mongo_signal(&mongo, (unsigned)stopped, SIGSTOP);
    bench_sleep_ms(KEPT_TTL_MS + 2000);
    lost = count_lost(locks);
    hf_test_mongo_signal(&mongo, (unsigned)stopped, SIGCONT);
    for (unsigned i = 0; i < KEPT; i++)
        hf_lock_free(locks[i]);
    (void)hf_close(client, 60000);
    hf_test_mongo_stop(&mongo);
    return lost;
}

/* ---- Main ---------------------------------------------------------------*/

static void measure(struct bench *bench, struct bench_table *slow,
                    struct bench_table *shared)
{
    struct hf_test_mongo mongo = {.election_ms = 30000};
    char url[HF_TEST_MONGO_URL_SIZE];
    struct bench ours = *bench;
    struct hf_client *client;

    if (!hf_test_mongo_start(&mongo, 1))
        bench_fail("cannot start mongod");
    hf_test_mongo_url(&mongo, url, "");
    ours.url = url;
    client = bench_open_background(&ours);
    for (unsigned i = 0; i < sizeof(delays) / sizeof(delays[0]); i++)
        lock_slowly(bench, &mongo, client, delays[i], slow);
    measure_shared_client(bench, client, shared);
    bench_close(client);
    hf_test_mongo_stop(&mongo);
}

int main(int argc, char **argv)
{
    static const struct bench_column slow_columns[] = {
        {"delay of a write, ms", "delay_ms", 0},
        {"lock, ms", "lock_ms", 1},
        {"x delay", "times_delay", 2},
        {"writes a pair", "writes", 1},
        {NULL, NULL, 0},
    };
    static const struct bench_column shared_columns[] = {
        {"threads", "threads", 0},
        {"pairs/s", "pairs_per_s", 0},
        {NULL, NULL, 0},
    };
    static const struct bench_column lost_columns[] = {
        {"locks", "locks", 0},
        {"ttl, s", "ttl_s", 0},
        {"lost", "lost", 0},
        {NULL, NULL, 0},
    };
    static struct bench_table slow, shared, lost;
    struct bench bench = {.name = "mongo_slow", .url = "", .rounds = 3};

    bench_init(&bench, argc, argv);
    if (!hf_test_mongo_is_installed()) {
        (void)fprintf(stderr, "mongo_slow: %s\n", HF_TEST_MONGO_NONE);
        return 0;
    }
    bench_table_init(&slow, "A lock where writes are slow", "mongo_slow",
                     slow_columns);
    bench_table_init(&shared, "Pairs of one client", "mongo_shared",
                     shared_columns);
    bench_table_init(&lost, "Renewed locks whose primary stops, each round",
                     "mongo_stopped", lost_columns);
    measure(&bench, &slow, &shared);
    for (unsigned round = 0; round < bench.rounds; round++) {
        bench_table_number(&lost, KEPT);
        bench_table_number(&lost, KEPT_TTL_MS / 1000.0);
        bench_table_number(&lost, stop_primary(&bench));
    }
    bench_table_print(&bench, &slow);
    bench_table_print(&bench, &shared);
    bench_table_print(&bench, &lost);
    return 0;
}
