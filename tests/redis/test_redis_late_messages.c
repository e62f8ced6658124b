/* What a lost connection had sent. If the server reads it late, it must not come
 * true after what the next connection has sent; if it is sent again, it happens
 * once, and the answer is the truth. */
#include <stdio.h>
#include <string.h>

#include "lib/proxy.h"
#include "lib/redis_client.h"
#include "lib/runner.h"

#define LONG_MS 600000 /* longer than a case may last */

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

/* A LOCK is kept on its way, its connection is lost, and the next one takes
 * the lock and gives it back. Then the first LOCK arrives. */
static void expect_no_ghost(int connections_between)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_PATIENCE_MS);
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL;
    enum hf_err err = HF_ECANCELED;

    hf_test_proxy_keep(&proxy);
    expect_ok(hf_acquire_start(client, hf_key_of("k"), &opts, &lock, NULL, NULL,
                               &future));
    hf_test_proxy_lose(&proxy, connections_between);
    expect_ok(hf_future_wait(future, HF_TEST_PATIENCE_MS, &err));
    expect_ok(err);
    expect_ok(hf_release(lock));

    assert_false(hf_test_proxy_say(&proxy));
    assert_string_equal(hf_test_redis_say(&redis, "EXISTS k"), "0");
    hf_future_free(future);
    hf_lock_free(lock);
}

static void a_late_lock_does_not_come_true(void **state)
{
    (void)state;
    expect_no_ghost(0);
}

/* Those between have said nothing but greetings, and were lost amid them. */
static void a_late_lock_of_the_last_but_one_does_not_either(void **state)
{
    (void)state;
    expect_no_ghost(2);
}

/* ---- An UNLOCK that is sent again ---------------------------------------*/

static struct hf_lock *take(const char *key)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_PATIENCE_MS);
    struct hf_lock *lock = NULL;

    expect_ok(hf_acquire(client, hf_key_of(key), &opts, &lock));
    return lock;
}

/* The first copy never arrives, and the connection is lost. */
static enum hf_err unlock_twice(struct hf_lock *lock)
{
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    hf_test_proxy_keep(&proxy);
    expect_ok(hf_release_start(lock, NULL, NULL, &future));
    hf_test_proxy_lose(&proxy, 0);
    expect_ok(hf_future_wait(future, HF_TEST_PATIENCE_MS, &err));
    hf_future_free(future);
    hf_lock_free(lock);
    return err;
}

static void a_second_unlock_finds_what_it_holds(void **state)
{
    (void)state;
    expect_ok(unlock_twice(take("k")));
    assert_string_equal(hf_test_redis_say(&redis, "EXISTS k"), "0");
}

static void a_second_unlock_finds_a_broken_lock(void **state)
{
    struct hf_lock *lock = take("k");

    (void)state;
    expect_ok(hf_force(client, hf_key_of("k"), hf_lock_token(lock), true));
    expect_err(unlock_twice(lock), HF_EEXPIRED);
}

/* The same grant lasts, and was never this claim's: no copy has ended it. */
static void a_second_unlock_finds_another_holder(void **state)
{
    static const uint8_t bogus[HF_NONCE_SIZE] = {"no such nonce"};
    struct hf_lock *lock = take("k"), *forged = NULL;

    (void)state;
    expect_ok(hf_lock_adopt(client, hf_key_of("k"), bogus, hf_lock_token(lock),
                            NULL, &forged));
    expect_err(unlock_twice(forged), HF_ENOTOWNER);
    hf_lock_free(lock);
}

/* Nobody knows whether the first copy ended it. */
static void a_second_unlock_that_finds_nothing_is_in_doubt(void **state)
{
    struct hf_lock *lock = take("k");

    (void)state;
    assert_string_equal(hf_test_redis_say(&redis, "FLUSHALL"), "OK");
    expect_err(unlock_twice(lock), HF_EINDOUBT);
}

/* ---- Both copies arrive -------------------------------------------------*/

static void an_unlock_whose_answer_is_lost_is_in_doubt(void **state)
{
    struct hf_lock *lock = take("k");

    (void)state;
    hf_test_proxy_deafen(&proxy);
    expect_err(hf_release(lock), HF_EINDOUBT);
    assert_string_equal(hf_test_redis_say(&redis, "EXISTS k"), "0");
    hf_lock_free(lock);
}

static void an_update_whose_answer_is_lost_is_done_once(void **state)
{
    struct hf_bytes empty = hf_bytes_of("");
    struct hf_lock *lock = take("k");
    struct hf_info info;

    (void)state;
    hf_test_proxy_deafen(&proxy);
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
        CASE(a_late_lock_does_not_come_true),
        CASE(a_late_lock_of_the_last_but_one_does_not_either),
        CASE(a_second_unlock_finds_what_it_holds),
        CASE(a_second_unlock_finds_a_broken_lock),
        CASE(a_second_unlock_finds_another_holder),
        CASE(a_second_unlock_that_finds_nothing_is_in_doubt),
        CASE(an_unlock_whose_answer_is_lost_is_in_doubt),
        CASE(an_update_whose_answer_is_lost_is_done_once),
    };

    return hf_test_main("redis ghosts", cases, HF_TEST_COUNT(cases), 2);
}
