/* Neither a lock that was left behind on one of three servers nor a hanging
 * server excludes anybody. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/time.h"
#include "redis/three_servers.h"

#define LONG_MS 600000 /* a ttl longer than a case lasts */

static int set_up_on_disk(void **state)
{
    static const char *const options[] = {"--appendonly", "yes",
                                          "--appendfsync", "always", NULL};

    (void)state;
    return start_servers(options);
}

static struct hf_lock *take_lock(struct hf_client *by, const char *key)
{
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, HF_FOREVER, 20000);
    struct hf_lock *lock = NULL;

    expect_ok(hf_acquire(by, hf_key_of(key), &opts, &lock));
    assert_true(hf_lock_valid_for(lock, 0));
    return lock;
}

static void release_lock(struct hf_lock *lock)
{
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
}

/* Wait until `key` is on all servers ("1"), or on none ("0"). */
static void await_everywhere(const char *key, const char *exists)
{
    for (size_t i = 0; i < 3; i++) {
        while (strcmp(hf_test_redis_command(&servers[i], "EXISTS %s", key),
                      exists) != 0)
            (void)poll(NULL, 0, 5);
    }
}

static void await_nothing_left(const char *key)
{
    await_everywhere(key, "0");
}

/* Leave a lock on one server, with a lease that is longer than the case
 * lasts. */
static void leave_a_lock_on(struct hf_test_redis *server, const char *key)
{
    struct hf_client *alone = hf_test_redis_open(server, NULL);
    struct hf_lock *lock = take_lock(alone, key);

    hf_lock_detach(lock);
    hf_lock_free(lock);
    (void)hf_close(alone, 1000);
}

static void a_hold_on_a_minority_excludes_nobody(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, 0, 20000);
    struct hf_lock *none = NULL;
    uint64_t last = 0;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        char key[8];

        (void)snprintf(key, sizeof(key), "k%zu", i);
        leave_a_lock_on(&servers[i], key);
        for (unsigned round = 0; round < 3; round++) {
            struct hf_lock *lock = take_lock(client, key);

            expect_err(hf_acquire(other, hf_key_of(key), &opts, &none),
                       HF_EBUSY);
            assert_true(hf_lock_token(lock) > last);
            last = hf_lock_token(lock);
            release_lock(lock);
        }
    }
    /* Locks that are left on two servers exclude others, because the key is not
     * free on a majority. */
    leave_a_lock_on(&servers[1], "k0");
    expect_err(hf_acquire(other, hf_key_of("k0"), &opts, &none), HF_EBUSY);
}

/* A server is down when the lock is released, and comes back with its data, so
 * it still holds the lock. */
static void a_pending_cancel_is_sent_when_the_server_returns(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct hf_lock *lock = take_lock(client, "k");

        await_everywhere("k", "1");
        hf_test_redis_kill(&servers[i]);
        release_lock(lock);
        assert_true(hf_test_redis_restart(&servers[i], true));
        /* Each call drives the client, which then sends the CANCEL. */
        while (strcmp(hf_test_redis_command(&servers[i], "EXISTS k"), "0") != 0)
            release_lock(take_lock(client, "other"));
        await_nothing_left("k");
    }
}

static void a_server_that_hung_keeps_no_lock(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        (void)kill(servers[i].pid, SIGSTOP);
        for (unsigned round = 0; round < 20; round++)
            release_lock(take_lock(client, "k"));
        (void)kill(servers[i].pid, SIGCONT);
        while (strcmp(hf_test_redis_command(&servers[i], "EXISTS k"), "0") != 0)
            release_lock(take_lock(client, "other"));
        await_nothing_left("k");
    }
}

/* ---- A hanging server ---------------------------------------------------*/

static void unlock_once(void)
{
    struct hf_lock *lock = take_lock(client, "k");

    release_lock(lock);
}

static void open_once(void)
{
    (void)hf_close(open_client(), 1000);
}

static void read_once(void)
{
    struct hf_info info;

    expect_ok(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info));
    hf_info_fini(&info);
}

static bool list_none(const struct hf_info *info, void *arg)
{
    (void)arg;
    (void)info;
    return true;
}

static void list_once(void)
{
    expect_ok(hf_list(client, hf_key_of("k"), list_none, NULL));
}

/* Expect at least one of many attempts to take less than `ms`. If each attempt
 * waited for the hanging server, all would take longer. */
static void expect_not_delayed(void (*once)(void), int64_t ms)
{
    for (unsigned round = 0; round < 40; round++) {
        hf_time before = hf_time_now();

        once();
        if (hf_time_now() - before < ms)
            return;
    }
    fail_msg("each attempt has waited for the hanging server");
}

static void a_hanging_server_does_not_delay_calls(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        (void)kill(servers[i].pid, SIGSTOP);
        expect_not_delayed(unlock_once, 140);
        expect_not_delayed(open_once, 4500);
        expect_not_delayed(read_once, 140);
        expect_not_delayed(list_once, 140);
        (void)kill(servers[i].pid, SIGCONT);
        assert_string_equal(hf_test_redis_command(&servers[i], "PING"), "PONG");
        unlock_once();
    }
}

/* ---- Other cases --------------------------------------------------------*/

static void expect_refusal(const char *refused, const char *word)
{
    struct hf_error error = {.text = ""};
    struct hf_client *none = NULL;
    struct hf_client_opts opts;

    hf_client_opts_init(&opts);
    opts.error = &error;
    expect_err(hf_open(refused, &opts, &none), HF_EINVAL);
    if (!strstr(error.text, word))
        fail_msg("'%s' does not name '%s'", error.text, word);
}

static void the_same_server_does_not_vote_twice(void **state)
{
    char text[HF_TEST_URL_SIZE];

    (void)state;
    (void)snprintf(text, sizeof(text),
                   "redlock://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d",
                   servers[0].port, servers[1].port, servers[0].port);
    expect_refusal(text, "twice");
    (void)snprintf(text, sizeof(text),
                   "redlock://127.0.0.1:%d,127.0.0.1:%d,127.1:%d",
                   servers[0].port, servers[1].port, servers[0].port);
    expect_refusal(text, "same server");
}

static bool note_token(const struct hf_info *info, void *arg)
{
    *(uint64_t *)arg = info->token;
    return true;
}

static void a_list_shows_the_locks_of_a_majority(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct hf_lock *lock = take_lock(client, "k");
        uint64_t token = 0;

        await_everywhere("k", "1");
        (void)hf_test_redis_command(&servers[i], "DEL k");
        leave_a_lock_on(&servers[i], "k");
        expect_ok(hf_list(other, hf_key_of("k"), note_token, &token));
        assert_true(token == hf_lock_token(lock));
        release_lock(lock);
        (void)hf_test_redis_command(&servers[i], "DEL k");
    }
}

/* Release a lock while a waiter subscribes to the announcement of releases.
 * Returns true if the waiter gets the lock soon: a waiter that missed the
 * release polls after 250 ms or later. */
static bool is_woken_by_a_release_while_it_subscribes(void)
{
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, HF_FOREVER, 60000);
    struct hf_client *waiter = open_client();
    struct hf_lock *lock = take_lock(client, "k"), *next = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;
    hf_time before;

    opts.idle = true;
    expect_ok(hf_lock_new(waiter, hf_key_of("k"), &opts, &next));
    expect_ok(hf_lock_acquire_start(next, NULL, NULL, &future));
    while (hf_lock_position(next) == 0)
        expect_err(hf_future_wait(future, 0, &err), HF_ETIMEDOUT);
    release_lock(lock);
    before = hf_time_now();
    expect_ok(hf_future_wait(future, 60000, &err));
    expect_ok(err);
    before = hf_time_now() - before;
    release_lock(next);
    hf_future_free(future);
    (void)hf_close(waiter, 1000);
    return before < 200;
}

static void a_release_during_the_subscription_is_noticed(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 40; round++) {
        if (is_woken_by_a_release_while_it_subscribes())
            return;
    }
    fail_msg("no waiter has noticed the release");
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_hold_on_a_minority_excludes_nobody),
        cmocka_unit_test_setup_teardown(
            a_pending_cancel_is_sent_when_the_server_returns, set_up_on_disk,
            tear_down),
        CASE(a_server_that_hung_keeps_no_lock),
        CASE(a_hanging_server_does_not_delay_calls),
        CASE(the_same_server_does_not_vote_twice),
        CASE(a_list_shows_the_locks_of_a_majority),
        CASE(a_release_during_the_subscription_is_noticed),
    };

    return hf_test_main("redlock late messages", cases, HF_TEST_COUNT(cases),
                        4);
}
