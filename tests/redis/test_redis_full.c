/* A full server (maxmemory, noeviction): locks can be renewed, released,
 * granted to a waiter, broken and read; new locks are refused. */
#include <poll.h>
#include <string.h>

#include "lib/redis_client.h"
#include "lib/runner.h"

static struct hf_test_redis redis;
static struct hf_client *client, *other;
static struct hf_lock *held;

static int set_up(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, 5000);

    (void)state;
    if (!hf_test_redis_start(&redis, NULL))
        return -1;
    client = hf_test_redis_open(&redis, NULL);
    other = hf_test_redis_open(&redis, NULL);
    return hf_acquire(client, hf_key_of("k"), &opts, &held) ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    hf_lock_free(held);
    (void)hf_close(client, 1000);
    (void)hf_close(other, 1000);
    hf_test_redis_stop(&redis);
    return 0;
}

static void fill_server(void)
{
    assert_string_equal(hf_test_redis_command(&redis, "CONFIG SET maxmemory 1"),
                        "OK");
    assert_non_null(strstr(hf_test_redis_command(&redis, "SET x y"), "OOM"));
}

static struct hf_future *start_waiter(struct hf_lock **lock)
{
    struct hf_lock_opts opts = hf_test_opts(600000, HF_FOREVER, 5000);
    struct hf_future *future = NULL;
    enum hf_err err;

    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, lock, NULL, NULL,
                               &future));
    while (strcmp(hf_test_redis_command(&redis, "ZCARD hf:q:k"), "1") != 0)
        (void)hf_future_wait(future, 10, &err);
    return future;
}

static void a_full_server_renews_and_reads(void **state)
{
    struct hf_info info;

    (void)state;
    fill_server();
    expect_ok(hf_renew(held, 700000));
    expect_ok(hf_read(other, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_true(info.left_ms > 600000);
    hf_info_fini(&info);
    expect_ok(hf_release(held));
}

static void a_full_server_grants_the_next_waiter(void **state)
{
    struct hf_lock *lock = NULL;
    struct hf_future *future = start_waiter(&lock);
    enum hf_err err = HF_OK;

    (void)state;
    fill_server();
    expect_ok(hf_release(held));
    expect_ok(hf_future_wait(future, HF_FOREVER, &err));
    expect_ok(err);
    expect_ok(hf_release(lock));
    hf_future_free(future);
    hf_lock_free(lock);
}

static void a_full_server_lets_a_waiter_withdraw(void **state)
{
    struct hf_lock *lock = NULL;
    struct hf_future *future = start_waiter(&lock);

    (void)state;
    fill_server();
    hf_future_cancel(future);
    while (strcmp(hf_test_redis_command(&redis, "EXISTS hf:q:k"), "0") != 0)
        (void)hf_process(other);
    hf_future_free(future);
    hf_lock_free(lock);
}

static void a_full_server_breaks_a_lock(void **state)
{
    (void)state;
    fill_server();
    expect_ok(hf_force(other, hf_key_of("k"), hf_lock_token(held), false));
    expect_err(hf_renew(held, 700000), HF_EFORCED);
    expect_ok(hf_force(other, hf_key_of("k"), hf_lock_token(held), true));
    assert_string_equal(hf_test_redis_command(&redis, "EXISTS k"), "0");
}

static void a_full_server_releases_a_watched_lock(void **state)
{
    struct hf_info info;

    (void)state;
    expect_err(hf_wait_free(other, hf_key_of("k"), 10, NULL), HF_ETIMEDOUT);
    assert_string_equal(hf_test_redis_command(&redis, "EXISTS hf:watched"),
                        "1");
    fill_server();
    expect_ok(hf_read(other, hf_key_of("k"), HF_LINEARIZABLE, &info));
    hf_info_fini(&info);
    expect_ok(hf_renew(held, 700000));
    expect_ok(hf_release(held));
}

/* Retry while the result is in doubt, because on a busy machine the reply may
 * be late. */
static enum hf_err lock_by_other(const char *key, struct hf_lock_opts *opts)
{
    struct hf_lock *none = NULL;
    enum hf_err err;

    do
        err = hf_acquire(other, hf_key_of(key), opts, &none);
    while (err == HF_EINDOUBT);
    return err;
}

static void a_full_server_refuses_a_new_lock(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 0, 300);

    (void)state;
    fill_server();
    expect_err(lock_by_other("l", &opts), HF_EUNAVAIL);
    expect_error_text(other, "OOM");
    opts.wait_ms = 100;
    expect_err(lock_by_other("k", &opts), HF_EUNAVAIL);
    assert_string_equal(hf_test_redis_command(&redis, "EXISTS hf:q:k"), "0");
}

static void a_full_server_accepts_a_new_client(void **state)
{
    struct hf_client *late;

    (void)state;
    fill_server();
    late = hf_test_redis_open(&redis, NULL);
    expect_ok(hf_force(late, hf_key_of("k"), hf_lock_token(held), true));
    expect_ok(hf_close(late, 1000));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_full_server_renews_and_reads),
        CASE(a_full_server_grants_the_next_waiter),
        CASE(a_full_server_lets_a_waiter_withdraw),
        CASE(a_full_server_breaks_a_lock),
        CASE(a_full_server_releases_a_watched_lock),
        CASE(a_full_server_refuses_a_new_lock),
        CASE(a_full_server_accepts_a_new_client),
    };

    return hf_test_main("redis full", cases, HF_TEST_COUNT(cases), 4);
}
