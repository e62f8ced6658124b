/* redis_far - how many round trips does a lock in a distant Redis server take?
 *
 * The benchmark starts a server, and a proxy that delays each byte by half a
 * round trip. The client is connected before the measurement, and the key is
 * not contended. The lower bound is one round trip for a lock and one for an
 * unlock. */
#include <signal.h>
#include <sys/wait.h>

#include "lib/bench.h"
#include "lib/delay.h"
#include "lib/redis.h"

#define PAIRS 5 /* per round */

static const uint32_t round_trips[] = {20, 100, 300};
#define CASES (sizeof(round_trips) / sizeof(round_trips[0]))

static struct bench_samples lock_ms[CASES], unlock_ms[CASES];

static void run_pairs(struct hf_client *client, size_t at)
{
    struct hf_lock *lock = NULL;
    uint64_t before, held, after;

    for (unsigned i = 0; i < PAIRS; i++) {
        before = bench_now();
        bench_check("hf_acquire",
                    hf_acquire(client, hf_key_of("k"), NULL, &lock));
        held = bench_now();
        bench_check("hf_release", hf_release(lock));
        after = bench_now();
        hf_lock_free(lock);
        bench_add(&lock_ms[at], (double)(held - before) / 1e6);
        bench_add(&unlock_ms[at], (double)(after - held) / 1e6);
    }
}

static void run_case(struct hf_test_redis *server, size_t at)
{
    struct hf_client *client = NULL;
    char url[64];
    pid_t proxy;
    int port;

    proxy = hf_test_delay_start(server->port, round_trips[at], &port);
    if (proxy < 0)
        bench_fail("cannot start the proxy");
    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%d", port);
    bench_check("hf_open", hf_open(url, NULL, &client));
    run_pairs(client, at);
    (void)hf_close(client, 2000);
    (void)kill(proxy, SIGKILL);
    (void)waitpid(proxy, NULL, 0);
}

static void print_table(struct bench *bench)
{
    static const struct bench_column columns[] = {
        {"round trip ms", "round_trip_ms", 0},    {"lock ms", "lock_ms", 1},
        {"round trips", "lock_round_trips", 2},   {"unlock ms", "unlock_ms", 1},
        {"round trips", "unlock_round_trips", 2}, {NULL, NULL, 0},
    };
    struct bench_table table;

    bench_table_init(&table, "A lock in a distant Redis server", "redis_far",
                     columns);
    for (size_t i = 0; i < CASES; i++) {
        double lock = bench_median(&lock_ms[i]);
        double unlock = bench_median(&unlock_ms[i]);

        bench_table_number(&table, round_trips[i]);
        bench_table_number(&table, lock);
        bench_table_number(&table, lock / round_trips[i]);
        bench_table_number(&table, unlock);
        bench_table_number(&table, unlock / round_trips[i]);
    }
    bench_table_print(bench, &table);
}

int main(int argc, char **argv)
{
    struct bench bench = {.name = "redis_far", .url = "redis:", .rounds = 3};
    struct hf_test_redis server;

    bench_init(&bench, argc, argv);
    if (bench.rounds > BENCH_ROUNDS_MAX / PAIRS)
        bench.rounds = BENCH_ROUNDS_MAX / PAIRS;
    if (!hf_test_redis_start(&server, NULL))
        bench_fail("cannot start redis-server");
    for (unsigned round = 0; round < bench.rounds; round++) {
        for (size_t i = 0; i < CASES; i++) {
            bench_progress(&bench, round, "far");
            run_case(&server, i);
        }
    }
    print_table(&bench);
    hf_test_redis_stop(&server);
    return 0;
}
