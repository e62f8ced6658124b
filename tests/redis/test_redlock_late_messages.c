/* What is left on one of three servers, and a server that hangs: neither keeps
 * anybody out. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/time.h"
#include "redis/three_servers.h"

#define LONG_MS 600000 /* longer than a case may last */

static int set_up_on_disk(void **state)
{
    static const char *const options[] = {"--appendonly", "yes",
                                          "--appendfsync", "always", NULL};

    (void)state;
    return start_servers(options);
}

static struct hf_lock *take(struct hf_client *by, const char *key)
{
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, HF_FOREVER, 20000);
    struct hf_lock *lock = NULL;

    expect_ok(hf_acquire(by, hf_key_of(key), &opts, &lock));
    assert_true(hf_lock_valid_for(lock, 0));
    return lock;
}

static void give_back(struct hf_lock *lock)
{
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
}

/* Wait until `key` is on all servers ("1"), or on none ("0"). */
static void await_everywhere(const char *key, const char *exists)
{
    for (size_t i = 0; i < 3; i++) {
        while (strcmp(hf_test_redis_say(&servers[i], "EXISTS %s", key),
                      exists) != 0)
            (void)poll(NULL, 0, 5);
    }
}

static void await_nothing_left(const char *key)
{
    await_everywhere(key, "0");
}

/* Hold `key` on one server alone, for longer than the case lasts. */
static void leave_a_ghost(struct hf_test_redis *server, const char *key)
{
    struct hf_client *alone = hf_test_redis_open(server, NULL);
    struct hf_lock *lock = take(alone, key);

    hf_lock_detach(lock);
    hf_lock_free(lock);
    (void)hf_close(alone, 1000);
}

static void a_hold_on_one_server_alone_keeps_nobody_out(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, 0, 20000);
    struct hf_lock *none = NULL;
    uint64_t last = 0;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        char key[8];

        (void)snprintf(key, sizeof(key), "k%zu", i);
        leave_a_ghost(&servers[i], key);
        for (unsigned round = 0; round < 3; round++) {
            struct hf_lock *lock = take(client, key);

            expect_err(hf_acquire(other, hf_key_of(key), &opts, &none),
                       HF_EBUSY);
            assert_true(hf_lock_token(lock) > last);
            last = hf_lock_token(lock);
            give_back(lock);
        }
    }
    /* On two it is a majority's. */
    leave_a_ghost(&servers[1], "k0");
    expect_err(hf_acquire(other, hf_key_of("k0"), &opts, &none), HF_EBUSY);
}

/* The server is away when the lock is given back, and returns with its data. */
static void what_is_owed_to_a_server_is_done_when_it_returns(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct hf_lock *lock = take(client, "k");

        await_everywhere("k", "1");
        hf_test_redis_kill(&servers[i]);
        give_back(lock);
        assert_true(hf_test_redis_again(&servers[i], true));
        /* The client is driven by its calls. */
        while (strcmp(hf_test_redis_say(&servers[i], "EXISTS k"), "0") != 0)
            give_back(take(client, "other"));
        await_nothing_left("k");
    }
}

static void one_that_hung_keeps_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        (void)kill(servers[i].pid, SIGSTOP);
        for (unsigned round = 0; round < 20; round++)
            give_back(take(client, "k"));
        (void)kill(servers[i].pid, SIGCONT);
        while (strcmp(hf_test_redis_say(&servers[i], "EXISTS k"), "0") != 0)
            give_back(take(client, "other"));
        await_nothing_left("k");
    }
}

/* ---- A server that hangs ------------------------------------------------*/

static void unlock_once(void)
{
    struct hf_lock *lock = take(client, "k");

    give_back(lock);
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

/* One of several tries takes less than `ms`: all take at least that, where
 * each waits for the server that hangs. */
static void expect_not_held_up(void (*once)(void), int64_t ms)
{
    for (unsigned round = 0; round < 40; round++) {
        hf_time before = hf_time_now();

        once();
        if (hf_time_now() - before < ms)
            return;
    }
    fail_msg("each try has waited for the server that hangs");
}

static void a_server_that_hangs_holds_up_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        (void)kill(servers[i].pid, SIGSTOP);
        expect_not_held_up(unlock_once, 140);
        expect_not_held_up(open_once, 4500);
        expect_not_held_up(read_once, 140);
        expect_not_held_up(list_once, 140);
        (void)kill(servers[i].pid, SIGCONT);
        assert_string_equal(hf_test_redis_say(&servers[i], "PING"), "PONG");
        unlock_once();
    }
}

/* ---- Others -------------------------------------------------------------*/

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

static void a_list_shows_what_a_majority_holds(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct hf_lock *lock = take(client, "k");
        uint64_t token = 0;

        await_everywhere("k", "1");
        (void)hf_test_redis_say(&servers[i], "DEL k");
        leave_a_ghost(&servers[i], "k");
        expect_ok(hf_list(other, hf_key_of("k"), note_token, &token));
        assert_true(token == hf_lock_token(lock));
        give_back(lock);
        (void)hf_test_redis_say(&servers[i], "DEL k");
    }
}

/* A lock is given back while its waiter connects to hear of that. Where it went
 * unnoticed the waiter asks again after 250 ms or more. */
static bool is_woken_by_a_release_while_it_subscribes(void)
{
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, HF_FOREVER, 60000);
    struct hf_client *waiter = open_client();
    struct hf_lock *lock = take(client, "k"), *next = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;
    hf_time before;

    opts.idle = true;
    expect_ok(hf_lock_new(waiter, hf_key_of("k"), &opts, &next));
    expect_ok(hf_lock_acquire_start(next, NULL, NULL, &future));
    while (hf_lock_position(next) == 0)
        expect_err(hf_future_wait(future, 0, &err), HF_ETIMEDOUT);
    give_back(lock);
    before = hf_time_now();
    expect_ok(hf_future_wait(future, 60000, &err));
    expect_ok(err);
    before = hf_time_now() - before;
    give_back(next);
    hf_future_free(future);
    (void)hf_close(waiter, 1000);
    return before < 200;
}

static void a_release_while_it_subscribes_is_noticed(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 40; round++) {
        if (is_woken_by_a_release_while_it_subscribes())
            return;
    }
    fail_msg("no waiter has noticed it");
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_hold_on_one_server_alone_keeps_nobody_out),
        cmocka_unit_test_setup_teardown(
            what_is_owed_to_a_server_is_done_when_it_returns, set_up_on_disk,
            tear_down),
        CASE(one_that_hung_keeps_nothing),
        CASE(a_server_that_hangs_holds_up_nothing),
        CASE(the_same_server_does_not_vote_twice),
        CASE(a_list_shows_what_a_majority_holds),
        CASE(a_release_while_it_subscribes_is_noticed),
    };

    return hf_test_main("redlock ghosts", cases, HF_TEST_COUNT(cases), 4);
}
