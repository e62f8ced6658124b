/* A server that is full (maxmemory, noeviction): what is held is renewed, given
 * back, handed over, broken and shown; what is new is refused. */
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

static void fill(void)
{
    assert_string_equal(hf_test_redis_say(&redis, "CONFIG SET maxmemory 1"),
                        "OK");
    assert_non_null(strstr(hf_test_redis_say(&redis, "SET x y"), "OOM"));
}

static struct hf_future *wait_for_k(struct hf_lock **lock)
{
    struct hf_lock_opts opts = hf_test_opts(600000, HF_FOREVER, 5000);
    struct hf_future *future = NULL;
    enum hf_err err;

    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, lock, NULL, NULL,
                               &future));
    while (strcmp(hf_test_redis_say(&redis, "ZCARD hf:q:k"), "1") != 0)
        (void)hf_future_wait(future, 10, &err);
    return future;
}

static void a_lock_is_renewed_and_shown(void **state)
{
    struct hf_info info;

    (void)state;
    fill();
    expect_ok(hf_renew(held, 700000));
    expect_ok(hf_read(other, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_true(info.left_ms > 600000);
    hf_info_fini(&info);
    expect_ok(hf_release(held));
}

static void a_waiter_is_handed_the_key(void **state)
{
    struct hf_lock *lock = NULL;
    struct hf_future *future = wait_for_k(&lock);
    enum hf_err err = HF_OK;

    (void)state;
    fill();
    expect_ok(hf_release(held));
    expect_ok(hf_future_wait(future, HF_FOREVER, &err));
    expect_ok(err);
    expect_ok(hf_release(lock));
    hf_future_free(future);
    hf_lock_free(lock);
}

static void a_waiter_can_give_up(void **state)
{
    struct hf_lock *lock = NULL;
    struct hf_future *future = wait_for_k(&lock);

    (void)state;
    fill();
    hf_future_cancel(future);
    while (strcmp(hf_test_redis_say(&redis, "EXISTS hf:q:k"), "0") != 0)
        (void)hf_process(other);
    hf_future_free(future);
    hf_lock_free(lock);
}

static void a_lock_is_broken(void **state)
{
    (void)state;
    fill();
    expect_ok(hf_force(other, hf_key_of("k"), hf_lock_token(held), false));
    expect_err(hf_renew(held, 700000), HF_EFORCED);
    expect_ok(hf_force(other, hf_key_of("k"), hf_lock_token(held), true));
    assert_string_equal(hf_test_redis_say(&redis, "EXISTS k"), "0");
}

static void a_watched_lock_is_given_back(void **state)
{
    struct hf_info info;

    (void)state;
    expect_err(hf_wait_free(other, hf_key_of("k"), 10, NULL), HF_ETIMEDOUT);
    assert_string_equal(hf_test_redis_say(&redis, "EXISTS hf:watched"), "1");
    fill();
    expect_ok(hf_read(other, hf_key_of("k"), HF_LINEARIZABLE, &info));
    hf_info_fini(&info);
    expect_ok(hf_renew(held, 700000));
    expect_ok(hf_release(held));
}

/* An answer may be under way when the time is over: then it is in doubt. */
static enum hf_err lock_by_other(const char *key, struct hf_lock_opts *opts)
{
    struct hf_lock *none = NULL;
    enum hf_err err;

    do
        err = hf_acquire(other, hf_key_of(key), opts, &none);
    while (err == HF_EINDOUBT);
    return err;
}

static void a_new_lock_is_refused(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 0, 300);

    (void)state;
    fill();
    expect_err(lock_by_other("l", &opts), HF_EUNAVAIL);
    expect_word(other, "OOM");
    opts.wait_ms = 100;
    expect_err(lock_by_other("k", &opts), HF_EUNAVAIL);
    assert_string_equal(hf_test_redis_say(&redis, "EXISTS hf:q:k"), "0");
}

static void a_new_client_is_let_in(void **state)
{
    struct hf_client *late;

    (void)state;
    fill();
    late = hf_test_redis_open(&redis, NULL);
    expect_ok(hf_force(late, hf_key_of("k"), hf_lock_token(held), true));
    expect_ok(hf_close(late, 1000));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_lock_is_renewed_and_shown),  CASE(a_waiter_is_handed_the_key),
        CASE(a_waiter_can_give_up),         CASE(a_lock_is_broken),
        CASE(a_watched_lock_is_given_back), CASE(a_new_lock_is_refused),
        CASE(a_new_client_is_let_in),
    };

    return hf_test_main("redis full", cases, HF_TEST_COUNT(cases), 4);
}
