/* Commands of a lost connection. The server may read such a command late, but
 * must not execute it after the commands of the next connection. A command that
 * the client repeats takes effect once, and its answer is correct. */
#include <stdio.h>
#include <string.h>

#include "lib/proxy.h"
#include "lib/redis_client.h"
#include "lib/runner.h"

static struct hf_test_redis redis;
static struct hf_test_proxy proxy;
static struct hf_client *client;

static int set_up(void **state)
{
    char url[HF_TEST_URL_SIZE];

    (void)state;
    if (!hf_test_redis_start(&redis, NULL) ||
        !hf_test_proxy_start(&proxy, redis.port))
        return -1;
    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%d", proxy.port);
    return hf_open(url, NULL, &client) == HF_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    (void)hf_close(client, 1000);
    hf_test_redis_stop(&redis);
    return 0;
}

/* The proxy holds back a LOCK, and the connection is lost, as are the next
 * `connections_between` connections. On the connection after these, the client
 * takes the lock and releases it. Then the proxy delivers the first LOCK, which
 * the server must not execute. */
static void expect_no_late_lock(int connections_between)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL;
    enum hf_err err = HF_ECANCELED;

    hf_test_proxy_hold_back(&proxy);
    expect_ok(hf_acquire_start(client, hf_key_of("k"), &opts, &lock, NULL, NULL,
                               &future));
    hf_test_proxy_drop_client(&proxy, connections_between);
    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    expect_ok(err);
    expect_ok(hf_release(lock));

    assert_false(hf_test_proxy_deliver(&proxy));
    assert_string_equal(hf_test_redis_command(&redis, "EXISTS k"), "0");
    hf_future_free(future);
    hf_lock_free(lock);
}

static void a_lock_of_a_lost_connection_is_not_executed_late(void **state)
{
    (void)state;
    expect_no_late_lock(0);
}

/* The connections in between are lost during their handshake. */
static void a_lock_is_not_executed_late_after_more_reconnects(void **state)
{
    (void)state;
    expect_no_late_lock(2);
}

/* ---- A repeated UNLOCK --------------------------------------------------*/

static struct hf_lock *take_lock(const char *key)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL;

    expect_ok(hf_acquire(client, hf_key_of(key), &opts, &lock));
    return lock;
}

/* The first UNLOCK never reaches the server, because its connection is lost.
 * The client repeats the UNLOCK on the next connection. */
static enum hf_err unlock_twice(struct hf_lock *lock)
{
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    hf_test_proxy_hold_back(&proxy);
    expect_ok(hf_release_start(lock, NULL, NULL, &future));
    hf_test_proxy_drop_client(&proxy, 0);
    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    hf_future_free(future);
    hf_lock_free(lock);
    return err;
}

static void a_repeated_unlock_releases_the_lock(void **state)
{
    (void)state;
    expect_ok(unlock_twice(take_lock("k")));
    assert_string_equal(hf_test_redis_command(&redis, "EXISTS k"), "0");
}

static void a_repeated_unlock_reports_a_broken_lock(void **state)
{
    struct hf_lock *lock = take_lock("k");

    (void)state;
    expect_ok(hf_force(client, hf_key_of("k"), hf_lock_token(lock), true));
    expect_err(unlock_twice(lock), HF_EEXPIRED);
}

/* Another claim holds the lock with this token, so no copy of the UNLOCK can
 * have released it. */
static void a_repeated_unlock_reports_another_holder(void **state)
{
    static const uint8_t bogus[HF_NONCE_SIZE] = {"no such nonce"};
    struct hf_lock *lock = take_lock("k"), *forged = NULL;

    (void)state;
    expect_ok(hf_lock_adopt(client, hf_key_of("k"), bogus, hf_lock_token(lock),
                            NULL, &forged));
    expect_err(unlock_twice(forged), HF_ENOTOWNER);
    hf_lock_free(lock);
}

/* The lock does not exist any more, and it is unknown whether the first UNLOCK
 * released it. */
static void a_repeated_unlock_of_a_missing_lock_is_in_doubt(void **state)
{
    struct hf_lock *lock = take_lock("k");

    (void)state;
    assert_string_equal(hf_test_redis_command(&redis, "FLUSHALL"), "OK");
    expect_err(unlock_twice(lock), HF_EINDOUBT);
}

/* ---- A repeat after a lost reply ----------------------------------------*/

static void an_unlock_without_a_reply_is_in_doubt(void **state)
{
    struct hf_lock *lock = take_lock("k");

    (void)state;
    hf_test_proxy_drop_replies(&proxy);
    expect_err(hf_release(lock), HF_EINDOUBT);
    assert_string_equal(hf_test_redis_command(&redis, "EXISTS k"), "0");
    hf_lock_free(lock);
}

static void an_update_without_a_reply_is_applied_once(void **state)
{
    struct hf_bytes empty = hf_bytes_of("");
    struct hf_lock *lock = take_lock("k");
    struct hf_info info;

    (void)state;
    hf_test_proxy_drop_replies(&proxy);
    expect_ok(hf_update(lock, &empty, hf_bytes_of("b")));
    expect_ok(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_int_equal(info.value.size, 1);
    assert_memory_equal(info.value.data, "b", 1);
    hf_info_fini(&info);
    expect_err(hf_update(lock, &empty, hf_bytes_of("c")), HF_EMISMATCH);
    hf_lock_free(lock);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_lock_of_a_lost_connection_is_not_executed_late),
        CASE(a_lock_is_not_executed_late_after_more_reconnects),
        CASE(a_repeated_unlock_releases_the_lock),
        CASE(a_repeated_unlock_reports_a_broken_lock),
        CASE(a_repeated_unlock_reports_another_holder),
        CASE(a_repeated_unlock_of_a_missing_lock_is_in_doubt),
        CASE(an_unlock_without_a_reply_is_in_doubt),
        CASE(an_update_without_a_reply_is_applied_once),
    };

    return hf_test_main("redis late messages", cases, HF_TEST_COUNT(cases), 2);
}
