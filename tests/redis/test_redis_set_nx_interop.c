/* Mutual exclusion between holdfast and plain Redis clients, which lock by SET
 * NX PX and release by compare and delete. */
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "redis/one_server.h"

/* Run redis-cli, and return the first line that it prints. */
static const char *cli(const char *args)
{
    static char text[256];
    char command[512];
    FILE *out;

    (void)snprintf(command, sizeof(command), "redis-cli -s %s %s", redis.socket,
                   args);
    out = popen(command, "r");
    assert_non_null(out);
    if (!fgets(text, sizeof(text), out))
        text[0] = '\0';
    (void)pclose(out);
    text[strcspn(text, "\n")] = '\0';
    return text;
}

#define COMPARE_AND_DELETE                                                     \
    "EVAL \"if redis.call('get',KEYS[1])==ARGV[1] then return "                \
    "redis.call('del',KEYS[1]) else return 0 end\" 1 k mine"

static void a_plain_lock_excludes_holdfast(void **state)
{
    struct hf_lock_opts once =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL;
    struct hf_info info;

    (void)state;
    assert_string_equal(cli("SET k mine NX PX 60000"), "OK");
    expect_err(hf_acquire(client, hf_key_of("k"), &once, &lock), HF_EBUSY);
    expect_ok(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_true(info.held);
    assert_in_range(info.left_ms, 1, 60000);
    hf_info_fini(&info);
    assert_string_equal(cli(COMPARE_AND_DELETE), "1");
    expect_ok(hf_acquire(client, hf_key_of("k"), &once, &lock));
    hf_lock_free(lock);
}

static void holdfast_excludes_a_plain_client(void **state)
{
    struct hf_lock *lock = NULL;

    (void)state;
    expect_ok(hf_acquire(client, hf_key_of("k"), NULL, &lock));
    assert_string_equal(cli("SET k mine NX PX 60000"), "");
    assert_string_equal(cli(COMPARE_AND_DELETE), "0");
    assert_true(hf_lock_valid_for(lock, 0));
    expect_ok(hf_release(lock));
    assert_string_equal(cli("SET k mine NX PX 60000"), "OK");
    hf_lock_free(lock);
}

/* A plain client notifies nobody when it releases, so the waiter has to
 * poll. */
static void a_waiter_for_a_plain_lock_is_granted(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, HF_FOREVER, HF_TEST_TIMEOUT_MS);
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    assert_string_equal(cli("SET k mine NX PX 60000"), "OK");
    expect_ok(hf_acquire_start(client, hf_key_of("k"), &opts, &lock, NULL, NULL,
                               &future));
    expect_err(hf_future_wait(future, 200, &err), HF_ETIMEDOUT);
    assert_string_equal(cli(COMPARE_AND_DELETE), "1");
    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    expect_ok(err);
    hf_future_free(future);
    expect_ok(hf_release(lock));
    hf_lock_free(lock);

    /* The waiter is also granted the key if the plain lock expires. */
    assert_string_equal(cli("SET k mine NX PX 300"), "OK");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    hf_lock_free(lock);
}

/* A plain lock without an expiry is held until it is deleted, and holdfast
 * cannot force it. */
static void a_plain_lock_without_expiry_excludes_holdfast(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 300, HF_TEST_TIMEOUT_MS);
    struct hf_lock *none = NULL;
    struct hf_info info;
    enum hf_err err;

    (void)state;
    assert_string_equal(cli("SET k mine NX"), "OK");
    do /* repeat while the result is in doubt */
        err = hf_acquire(client, hf_key_of("k"), &opts, &none);
    while (err == HF_EINDOUBT);
    expect_err(err, HF_ETIMEDOUT);
    expect_ok(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_int_equal(info.left_ms, HF_FOREVER);
    assert_string_equal(info.owner, "another Redis client");
    assert_non_null(strstr(info.note, "no expiry"));
    hf_info_fini(&info);
    opts.wait_ms = 0;
    expect_err(hf_acquire(client, hf_key_of("k"), &opts, &none), HF_EBUSY);
    expect_error_text(client, "without expiry");
    expect_err(hf_force(client, hf_key_of("k"), 1, true), HF_ENOTOWNER);
    assert_string_equal(cli("GET k"), "mine");
}

/* Another program turns the key into a hash, which is never released. */
static void a_waiter_fails_if_its_key_changes_its_type(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, HF_FOREVER, HF_TEST_TIMEOUT_MS);
    struct hf_future *locking, *freeing;
    struct hf_lock *none = NULL;
    struct hf_error error;
    enum hf_err err = HF_OK;

    (void)state;
    assert_string_equal(cli("SET k mine NX"), "OK");
    expect_ok(hf_acquire_start(client, hf_key_of("k"), &opts, &none, NULL, NULL,
                               &locking));
    expect_ok(hf_wait_free_start(client, hf_key_of("k"), HF_FOREVER, NULL, NULL,
                                 NULL, &freeing));
    expect_err(hf_future_wait(locking, 300, &err), HF_ETIMEDOUT);
    assert_string_equal(cli("EVAL \"redis.call('DEL', 'k') "
                            "return redis.call('HSET', 'k', 'a', 'b')\" 0"),
                        "1");
    expect_ok(hf_future_wait(locking, HF_TEST_TIMEOUT_MS, &err));
    expect_err(err, HF_EINVAL);
    hf_future_error(locking, &error);
    assert_non_null(strstr(error.text, "'k' holds a hash"));
    expect_ok(hf_future_wait(freeing, HF_TEST_TIMEOUT_MS, &err));
    expect_err(err, HF_EINVAL);
    hf_future_error(freeing, &error);
    assert_non_null(strstr(error.text, "'k' holds a hash"));
    hf_future_free(locking);
    hf_future_free(freeing);
    while (strcmp(cli("EXISTS hf:q:k"), "0") != 0)
        (void)poll(NULL, 0, 10);
}

/* An operator deletes the key, and a plain client takes it. */
static void a_deleted_lock_is_lost(void **state)
{
    struct hf_lock *lock = NULL;

    (void)state;
    expect_ok(hf_acquire(client, hf_key_of("k"), NULL, &lock));
    assert_string_equal(cli("DEL k"), "1");
    assert_string_equal(cli("SET k mine NX PX 60000"), "OK");
    expect_err(hf_renew(lock, 0), HF_EEXPIRED);
    expect_err(hf_release(lock), HF_EEXPIRED);
    assert_string_equal(cli("GET k"), "mine");
    hf_lock_free(lock);
}

/* A plain client has overwritten the lock. */
static void a_late_unlock_does_not_release_another_lock(void **state)
{
    struct hf_lock *lock = NULL;

    (void)state;
    expect_ok(hf_acquire(client, hf_key_of("k"), NULL, &lock));
    assert_string_equal(cli("SET k mine PX 60000"), "OK");
    expect_err(hf_release(lock), HF_EEXPIRED);
    assert_string_equal(cli("GET k"), "mine");
    hf_lock_free(lock);
}

static bool count_key(const struct hf_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return true;
}

static void plain_strings_are_not_listed(void **state)
{
    struct hf_lock *lock = NULL;
    unsigned count = 0;

    (void)state;
    assert_string_equal(cli("SET plain mine PX 60000"), "OK");
    assert_string_equal(cli("HSET hash a b"), "1");
    expect_ok(hf_acquire(client, hf_key_of("k"), NULL, &lock));
    expect_ok(hf_list(client, hf_key_of(""), count_key, &count));
    assert_int_equal(count, 1);
    hf_lock_free(lock);
}

/* The key expires later than its lease requires, because an operator has
 * prolonged its expiry, or the server's clock was set back. */
static void a_lock_with_a_prolonged_ttl_can_be_renewed(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 0, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL;
    struct hf_info info;

    (void)state;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    assert_string_equal(cli("PEXPIRE k 100000"), "1");
    expect_ok(hf_renew(lock, 200000));
    expect_ok(hf_update(lock, NULL, (struct hf_bytes){"v", 1}));
    expect_ok(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_int_equal(info.token, hf_lock_token(lock));
    hf_info_fini(&info);
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
}

static void a_waiter_can_withdraw_after_its_key_changed_type(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, HF_TEST_TIMEOUT_MS, HF_TEST_TIMEOUT_MS);
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL;
    enum hf_err err = HF_OK;

    (void)state;
    assert_string_equal(cli("SET k mine"), "OK");
    expect_ok(hf_acquire_start(client, hf_key_of("k"), &opts, &lock, NULL, NULL,
                               &future));
    while (strcmp(cli("ZCARD hf:q:k"), "1") != 0)
        (void)hf_future_wait(future, 10, &err);
    (void)cli("EVAL \"redis.call('DEL', 'k') redis.call('HSET', 'k', 'f', "
              "'v')\" 0");
    hf_future_free(future);
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    assert_string_equal(cli("ZCARD hf:q:k"), "0");
    client = hf_test_redis_open(&redis, NULL);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_plain_lock_excludes_holdfast),
        CASE(holdfast_excludes_a_plain_client),
        CASE(a_waiter_for_a_plain_lock_is_granted),
        CASE(a_plain_lock_without_expiry_excludes_holdfast),
        CASE(a_waiter_fails_if_its_key_changes_its_type),
        CASE(a_deleted_lock_is_lost),
        CASE(a_late_unlock_does_not_release_another_lock),
        CASE(plain_strings_are_not_listed),
        CASE(a_lock_with_a_prolonged_ttl_can_be_renewed),
        CASE(a_waiter_can_withdraw_after_its_key_changed_type),
    };

    return hf_test_main("redis set nx interop", cases, HF_TEST_COUNT(cases), 4);
}
