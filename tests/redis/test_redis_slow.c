/* Slow servers: each LOCK is sent once, a list continues while it makes
 * progress, and a read without a reply is not in doubt. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/delay.h"
#include "lib/redis_client.h"
#include "lib/runner.h"

#define LOCKS 40

static struct hf_test_redis redis;
static struct hf_client *client;

static int tear_down(void **state)
{
    (void)state;
    if (client)
        (void)hf_close(client, 1000);
    hf_test_redis_stop(&redis);
    return 0;
}

/* The number of scripts that the server has executed by EVALSHA. */
static long count_scripts(void)
{
    static const char name[] = "cmdstat_evalsha:calls=";
    const char *line =
        strstr(hf_test_redis_command(&redis, "INFO commandstats"), name);

    return line ? strtol(line + strlen(name), NULL, 10) : 0;
}

static void a_stalled_server_receives_each_lock_once(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, 60000);
    struct hf_future *futures[LOCKS];
    struct hf_lock *locks[LOCKS];
    enum hf_err err;
    char key[16];
    long before;

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    client = hf_test_redis_open(&redis, NULL);
    before = count_scripts();
    (void)kill(redis.pid, SIGSTOP);
    for (unsigned i = 0; i < LOCKS; i++) {
        (void)snprintf(key, sizeof(key), "k%u", i);
        locks[i] = NULL;
        expect_ok(hf_acquire_start(client, hf_key_of(key), &opts, &locks[i],
                                   NULL, NULL, &futures[i]));
        /* Start the LOCKs in separate turns, so that they are not batched. */
        expect_err(hf_future_wait(futures[i], 50, &err), HF_ETIMEDOUT);
    }
    (void)kill(redis.pid, SIGCONT);
    for (unsigned i = 0; i < LOCKS; i++) {
        expect_ok(hf_future_wait(futures[i], 60000, &err));
        expect_ok(err);
    }
    assert_int_equal(count_scripts() - before, LOCKS);
    for (unsigned i = 0; i < LOCKS; i++) {
        hf_future_free(futures[i]);
        hf_lock_free(locks[i]);
    }
}

/* ---- Lists --------------------------------------------------------------*/

static bool count_one(const struct hf_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return true;
}

static long long bytes_sent(void)
{
    static const char name[] = "total_net_output_bytes:";
    const char *line =
        strstr(hf_test_redis_command(&redis, "INFO stats"), name);

    assert_non_null(line);
    return strtoll(line + strlen(name), NULL, 10);
}

static void a_list_fetches_only_locks(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, 20000);
    struct hf_lock *lock = NULL;
    unsigned count = 0;
    long long before;

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    (void)hf_test_redis_command(&redis, "DEBUG POPULATE 200000 foreign 100");
    client = hf_test_redis_open(&redis, NULL);
    expect_ok(hf_acquire(client, hf_key_of("lock"), &opts, &lock));
    before = bytes_sent();
    expect_ok(hf_list(client, hf_key_of(""), count_one, &count));
    assert_int_equal(count, 1);
    assert_true(bytes_sent() - before < 100000);
    hf_lock_free(lock);
}

/* The list takes 60 round trips of 150 ms, which is longer than the 5 s limit
 * for one call. */
static void a_list_continues_while_it_makes_progress(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, 20000);
    struct hf_lock *lock = NULL;
    char url[HF_TEST_URL_SIZE];
    unsigned count = 0;
    int port;

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    (void)hf_test_redis_command(&redis, "DEBUG POPULATE 60000 foreign 8");
    assert_true(hf_test_delay_start(redis.port, 150, &port) > 0);
    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%d", port);
    expect_ok(hf_open(url, NULL, &client));
    expect_ok(hf_acquire(client, hf_key_of("lock"), &opts, &lock));
    expect_ok(hf_list(client, hf_key_of(""), count_one, &count));
    assert_int_equal(count, 1);
    hf_lock_free(lock);
}

/* A read changes nothing, so it cannot be in doubt. */
static void a_read_without_a_reply_is_not_in_doubt(void **state)
{
    struct hf_info info;
    unsigned count = 0;

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    client = hf_test_redis_open(&redis, NULL);
    (void)kill(redis.pid, SIGSTOP);
    expect_err(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info),
               HF_EUNAVAIL);
    expect_err(hf_list(client, hf_key_of(""), count_one, &count), HF_EUNAVAIL);
    (void)kill(redis.pid, SIGCONT);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_teardown(name, tear_down)
        CASE(a_stalled_server_receives_each_lock_once),
        CASE(a_list_fetches_only_locks),
        CASE(a_list_continues_while_it_makes_progress),
        CASE(a_read_without_a_reply_is_not_in_doubt),
    };

    return hf_test_main("redis slow", cases, HF_TEST_COUNT(cases), 4);
}
