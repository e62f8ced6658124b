/* A lock on three servers. Some servers are killed, stopped or flushed. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "redis/three_servers.h"

static void expect_a_lock(struct hf_client *by, const char *key)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL;

    expect_ok(hf_acquire(by, hf_key_of(key), &opts, &lock));
    assert_true(hf_lock_valid_for(lock, 0));
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
}

/* Wait until EXISTS `key` returns `exists` on all servers. That may take longer
 * than hf_acquire() or hf_release(), which return when a majority has
 * replied. */
static void await_everywhere(const char *key, const char *exists)
{
    for (size_t i = 0; i < 3; i++) {
        while (strcmp(hf_test_redis_command(&servers[i], "EXISTS %s", key),
                      exists) != 0)
            (void)poll(NULL, 0, 5);
    }
}

static void one_server_may_be_down(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *none = NULL;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
        await_everywhere("k", "1");
        hf_test_redis_kill(&servers[i]);
        expect_err(hf_acquire(other, hf_key_of("k"), &opts, &none), HF_EBUSY);
        expect_ok(hf_renew(lock, 0));
        expect_a_lock(other, "l");
        expect_ok(hf_release(lock));
        hf_lock_free(lock);
        expect_a_lock(other, "k");
        assert_true(hf_test_redis_restart(&servers[i], true));
        /* Reconnect to all three servers before the next server is killed. */
        (void)hf_close(client, 1000);
        (void)hf_close(other, 1000);
        client = open_client();
        other = open_client();
    }
}

static void nothing_is_granted_without_a_majority(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 0, 500);
    struct hf_lock *none = NULL;

    (void)state;
    hf_test_redis_kill(&servers[0]);
    hf_test_redis_kill(&servers[2]);
    (void)hf_acquire(client, hf_key_of("k"), &opts, &none);
    expect_err(hf_acquire(client, hf_key_of("l"), &opts, &none), HF_EUNAVAIL);
    assert_null(none);
    assert_true(hf_test_redis_restart(&servers[0], true));
    expect_a_lock(client, "l");
}

/* A plain client holds the key on two servers, so that only one server grants
 * the LOCK. */
static void the_grants_of_a_minority_are_canceled(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_lock *none = NULL;

    (void)state;
    (void)hf_test_redis_command(&servers[1], "SET k other NX PX 60000");
    (void)hf_test_redis_command(&servers[2], "SET k other NX PX 60000");
    expect_err(hf_acquire(client, hf_key_of("k"), &opts, &none), HF_EBUSY);
    while (strcmp(hf_test_redis_command(&servers[0], "EXISTS k"), "0") != 0)
        (void)poll(NULL, 0, 5);
    (void)hf_test_redis_command(&servers[1], "DEL k");
    /* The plain lock is left on one server only, so it does not exclude
     * anybody. */
    expect_a_lock(client, "k");
}

static void a_release_reaches_all_servers(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL;

    (void)state;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    while (strcmp(hf_test_redis_command(&servers[2], "EXISTS k"), "1") != 0)
        (void)poll(NULL, 0, 5);
    expect_ok(hf_release(lock));
    await_everywhere("k", "0");
    hf_lock_free(lock);
}

/* A hanging server accepts connections, but does not answer. */
static void a_hanging_server_does_not_block_a_lock(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        (void)kill(servers[i].pid, SIGSTOP);
        expect_a_lock(client, "k");
        (void)kill(servers[i].pid, SIGCONT);
        assert_string_equal(hf_test_redis_command(&servers[i], "PING"), "PONG");
    }
}

/* Take and release a lock while the first `count` servers sleep, for so long
 * that the LOCK is repeated. */
static void expect_a_lock_despite_sleep(size_t count, uint32_t sleep_ms)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL;
    enum hf_err err = HF_ECANCELED;

    for (size_t i = 0; i < count; i++)
        (void)kill(servers[i].pid, SIGSTOP);
    expect_ok(hf_acquire_start(client, hf_key_of("k"), &opts, &lock, NULL, NULL,
                               &future));
    expect_err(hf_future_wait(future, sleep_ms, &err), HF_ETIMEDOUT);
    for (size_t i = 0; i < count; i++)
        (void)kill(servers[i].pid, SIGCONT);

    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    expect_ok(err);
    expect_ok(hf_release(lock));
    await_everywhere("k", "0");
    hf_future_free(future);
    hf_lock_free(lock);
}

/* The LOCK is sent to one server after the other. When the servers wake up,
 * each grants it with a token of its own. The client must not take these grants
 * for a lock of another client. */
static void slow_servers_are_not_mistaken_for_a_holder(void **state)
{
    (void)state;
    expect_a_lock_despite_sleep(3, 3500);
}

/* The second server wakes up and grants the LOCK of an abandoned attempt. The
 * next attempt gets its token from the first server, so the client has to
 * cancel the second server's grant. */
static void the_grant_of_an_abandoned_attempt_is_canceled(void **state)
{
    (void)state;
    expect_a_lock_despite_sleep(2, 1950);
}

static void a_release_wakes_a_waiter(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, HF_FOREVER, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
        expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL,
                                   NULL, &future));
        expect_err(hf_future_wait(future, 30, &err), HF_ETIMEDOUT);
        expect_ok(hf_release(lock));
        expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
        expect_ok(err);
        expect_ok(hf_release(next));
        hf_future_free(future);
        hf_lock_free(lock);
        hf_lock_free(next);
    }
}

/* One server forgets the lock, and the other two still hold it. When a second
 * server forgets it, the lock is lost. */
static void a_flushed_minority_grants_nothing(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *none = NULL;

    (void)state;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    await_everywhere("k", "1");
    (void)hf_test_redis_command(&servers[0], "FLUSHALL");
    for (unsigned i = 0; i < 5; i++)
        expect_err(hf_acquire(other, hf_key_of("k"), &opts, &none), HF_EBUSY);
    expect_ok(hf_renew(lock, 0));
    (void)hf_test_redis_command(&servers[1], "FLUSHALL");
    expect_err(hf_renew(lock, 0), HF_EEXPIRED);
    hf_lock_free(lock);
}

/* ---- Broken locks -------------------------------------------------------
 *
 * The lease is so long that no renewal is due while a case runs. */

static struct hf_lock *take_renewed_lock(void)
{
    struct hf_lock_opts opts = hf_test_opts(86400000, 0, HF_TEST_TIMEOUT_MS);
    struct hf_lock *lock = NULL;

    opts.renew = true;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    await_everywhere("k", "1");
    return lock;
}

static void await_subscription(void)
{
    for (size_t i = 0; i < 3; i++) {
        while (!strstr(
            hf_test_redis_command(&servers[i], "PUBSUB NUMSUB hf:forced"), "1"))
            (void)poll(NULL, 0, 5);
    }
}

static void await_loss(const struct hf_lock *lock)
{
    while (hf_lock_state(lock) != HF_LOCK_LOST)
        (void)poll(NULL, 0, 1);
    assert_false(hf_lock_valid_for(lock, 0));
}

static void a_broken_lock_is_lost_at_once(void **state)
{
    struct hf_lock *lock = take_renewed_lock();

    (void)state;
    await_subscription();
    expect_ok(hf_force(other, hf_key_of("k"), hf_lock_token(lock), true));
    await_loss(lock);
    hf_lock_free(lock);
}

/* The lock is broken before the holder opens its pub/sub connections. */
static void a_holder_checks_its_locks_when_it_subscribes(void **state)
{
    struct hf_lock *lock = take_renewed_lock();

    (void)state;
    expect_ok(hf_force(other, hf_key_of("k"), hf_lock_token(lock), true));
    await_loss(lock);
    hf_lock_free(lock);
}

static void report_broken(size_t server, const struct hf_lock *lock)
{
    (void)hf_test_redis_command(&servers[server], "DEL k");
    (void)hf_test_redis_command(&servers[server], "PUBLISH hf:forced %llu",
                                (unsigned long long)hf_lock_token(lock));
}

/* After the report of one server, the holder renews the lock, and the other two
 * servers confirm the renewal. The report of a second server ends the lock. */
static void the_report_of_one_server_does_not_end_a_lock(void **state)
{
    struct hf_lock *lock = take_renewed_lock();
    int64_t before;

    (void)state;
    await_subscription();
    expect_ok(hf_renew(lock, 0));
    before = hf_lock_deadline(lock);
    (void)poll(NULL, 0, 2); /* so that the next deadline is later */
    report_broken(0, lock);
    while (hf_lock_deadline(lock) <= before && hf_lock_valid_for(lock, 0))
        (void)poll(NULL, 0, 1);
    assert_true(hf_lock_valid_for(lock, 0));
    report_broken(1, lock);
    await_loss(lock);
    hf_lock_free(lock);
}

static void missing_capabilities_are_not_declared(void **state)
{
    struct hf_client *none = NULL;
    struct hf_watch *watch = NULL;
    char text[HF_TEST_URL_SIZE + 32];

    (void)state;
    assert_int_equal(hf_caps(client), HF_CAP_FLEET);
    (void)snprintf(text, sizeof(text), "%s?require=fence", url);
    expect_err(hf_open(text, NULL, &none), HF_EUNSUPPORTED);
    expect_err(hf_open("redlock://127.0.0.1:1", NULL, &none), HF_EINVAL);
    expect_err(hf_open("redlock://a,b,c,d", NULL, &none), HF_EINVAL);
    expect_err(hf_watch_open(client, hf_key_of("k"), NULL, NULL, NULL, &watch),
               HF_EINVAL);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(one_server_may_be_down),
        CASE(nothing_is_granted_without_a_majority),
        CASE(the_grants_of_a_minority_are_canceled),
        CASE(a_release_reaches_all_servers),
        CASE(a_hanging_server_does_not_block_a_lock),
        CASE(slow_servers_are_not_mistaken_for_a_holder),
        CASE(the_grant_of_an_abandoned_attempt_is_canceled),
        CASE(a_release_wakes_a_waiter),
        CASE(a_flushed_minority_grants_nothing),
        CASE(a_broken_lock_is_lost_at_once),
        CASE(a_holder_checks_its_locks_when_it_subscribes),
        CASE(the_report_of_one_server_does_not_end_a_lock),
        CASE(missing_capabilities_are_not_declared),
    };

    return hf_test_main("redlock", cases, HF_TEST_COUNT(cases), 4);
}
