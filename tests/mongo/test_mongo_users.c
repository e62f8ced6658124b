/* Access control: users, their roles and their passwords. */
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

static int set_up_auth(void **state)
{
    (void)state;
    mongo = (struct hf_test_mongo){.auth = true};
    return 0;
}

/* Start a replica set of one member. The user "clerk" may read and write one
 * database. */
static void need_clerk(void)
{
    const char *json = "{\"createUser\":\"clerk\",\"pwd\":\"hush\","
                       "\"roles\":[\"readWrite\"]}";

    hf_test_mongo_require(&mongo, 1);
    assert_null(
        strstr(hf_test_mongo_command(&mongo, 0, "office", json), "(lost)"));
}

static void clerk_url(char *url, const char *password)
{
    (void)snprintf(url, HF_TEST_MONGO_URL_SIZE,
                   "mongodb://%s127.0.0.1:%d/office", password,
                   mongo.members[0].port);
}

static struct hf_client *open_clerk(void)
{
    char url[HF_TEST_MONGO_URL_SIZE];

    clerk_url(url, "clerk:hush@");
    return hf_test_mongo_open_url(url);
}

/* Wait until a claim for "k" is queued. */
static void await_waiter(struct hf_client *client)
{
    struct hf_info info;
    uint32_t waiters = 0;

    while (waiters == 0) {
        expect_ok(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info));
        waiters = info.waiters;
        hf_info_fini(&info);
    }
}

/* The role that the manual names covers the collection, its index and change
 * streams. */
static void read_write_on_one_database_is_enough(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, 60000, HF_TEST_TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    struct hf_watch *watch = NULL;
    enum hf_err err = HF_ECANCELED;
    sem_t released;

    (void)state;
    need_clerk();
    client = open_clerk();
    other = open_clerk();
    assert_int_equal(sem_init(&released, 0, 0), 0);
    expect_ok(hf_watch_open(other, hf_key_of(""), NULL, on_release, &released,
                            &watch));
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    await_waiter(client);
    expect_ok(hf_release(lock));
    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    expect_ok(err);
    assert_true(is_posted_within(&released, 60));
    expect_ok(hf_release(next));
    hf_future_free(future);
    hf_watch_close(watch);
    hf_lock_free(lock);
    hf_lock_free(next);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    expect_ok(hf_close(other, HF_TEST_TIMEOUT_MS));
}

/* ---- Without change streams ---------------------------------------------*/

/* Start a replica set of one member. The user "porter" may do everything that
 * locks need, but may not open change streams. */
static void need_porter(void)
{
    hf_test_mongo_require(&mongo, 1);
    assert_null(
        strstr(hf_test_mongo_command(
                   &mongo, 0, "office",
                   "{\"createRole\":\"porters\",\"roles\":[],"
                   "\"privileges\":[{\"resource\":"
                   "{\"db\":\"office\",\"collection\":\"\"},\"actions\":"
                   "[\"find\",\"insert\",\"update\",\"remove\","
                   "\"createIndex\"]}]}"),
               "(lost)"));
    assert_null(strstr(
        hf_test_mongo_command(&mongo, 0, "office",
                              "{\"createUser\":\"porter\",\"pwd\":\"hush\","
                              "\"roles\":[\"porters\"]}"),
        "(lost)"));
}

static struct hf_client *open_porter(void)
{
    char url[HF_TEST_MONGO_URL_SIZE];

    clerk_url(url, "porter:hush@");
    return hf_test_mongo_open_url(url);
}

/* A waiter that cannot open a change stream is still granted the key, because
 * it polls its position. */
static void without_change_streams_waiters_are_granted_keys(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, 60000, HF_TEST_TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    need_porter();
    client = open_porter();
    other = open_porter();
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    await_waiter(client);
    expect_ok(hf_release(lock));
    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    expect_ok(err);
    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(next);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    expect_ok(hf_close(other, HF_TEST_TIMEOUT_MS));
}

/* A watch needs change streams, so it is refused. Waiting for a key to become
 * free does not need them. */
static void without_change_streams_a_watch_is_refused(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, 0, HF_TEST_TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL;
    struct hf_watch *watch = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;
    struct hf_error error;

    (void)state;
    need_porter();
    client = open_porter();
    other = open_porter();
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_err(
        hf_watch_open(other, hf_key_of(""), NULL, on_release, NULL, &watch),
        HF_EDENIED);
    hf_client_error(other, &error);
    assert_non_null(strstr(error.text, "not authorized"));
    expect_ok(hf_wait_free_start(other, hf_key_of("k"), 60000, NULL, NULL, NULL,
                                 &future));
    expect_err(hf_future_wait(future, 1000, &err), HF_ETIMEDOUT);
    expect_ok(hf_release(lock));
    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    expect_ok(err);
    hf_future_free(future);
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    expect_ok(hf_close(other, HF_TEST_TIMEOUT_MS));
}

/* ---- Passwords ----------------------------------------------------------*/

static void expect_login_refused(const char *password, const char *word)
{
    char url[HF_TEST_MONGO_URL_SIZE];

    clerk_url(url, password);
    expect_refused(url, HF_EDENIED, word);
}

static void a_wrong_password_is_reported_at_once(void **state)
{
    (void)state;
    need_clerk();
    expect_login_refused("clerk:shout@", "uthentication");
    expect_login_refused("nobody:shout@", "uthentication");
    expect_login_refused("", "requires authentication");
}

/* The server or the network fails during a login. That says nothing about the
 * password, so the login is retried. */
static void an_interrupted_login_is_retried(void **state)
{
    static const char *const faults[] = {
        "\"closeConnection\":true",
        "\"errorCode\":11600", /* InterruptedAtShutdown */
    };
    char url[HF_TEST_MONGO_URL_SIZE];

    (void)state;
    need_clerk();
    clerk_url(url, "clerk:hush@");
    for (size_t i = 0; i < HF_TEST_COUNT(faults); i++) {
        struct hf_client *client = NULL;
        long before =
            fail_commands(0, "\"saslContinue\"", "{\"times\":1}", faults[i]);

        expect_ok(hf_open(url, NULL, &client));
        assert_int_equal(
            fail_commands(0, "\"saslContinue\"", "\"off\"", faults[i]) - before,
            1);
        expect_ok(hf_close(client, 10000));
    }
}

/* ---- Dropped users ------------------------------------------------------*/

static void expect_denied(struct hf_client *client, enum hf_err err)
{
    struct hf_error error;

    expect_err(err, HF_EDENIED);
    hf_client_error(client, &error);
    if (!strstr(error.text, "uthentication"))
        fail_msg("\"%s\" does not say why", error.text);
}

/* Once the user is dropped, each call is denied. A waiter that gives up is in
 * doubt, because its claim could not be withdrawn. */
static void calls_of_a_dropped_user_are_denied(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, 0, HF_TEST_TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_OK;
    struct hf_info info;

    (void)state;
    need_clerk();
    client = open_clerk();
    other = open_clerk();
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    opts.wait_ms = HF_FOREVER;
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    await_waiter(client);
    assert_null(strstr(
        hf_test_mongo_command(&mongo, 0, "office", "{\"dropUser\":\"clerk\"}"),
        "(lost)"));

    expect_denied(client, hf_acquire(client, hf_key_of("new"), &opts, &next));
    expect_denied(client,
                  hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info));
    expect_denied(client, hf_renew(lock, 0));
    /* A denied renewal does not end the lock. */
    assert_true(hf_lock_valid_for(lock, 0));
    expect_denied(client, hf_release(lock));
    hf_future_cancel(future);
    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    expect_err(err, HF_EINDOUBT);
    assert_null(next);
    hf_future_free(future);
    hf_lock_free(lock);
    (void)hf_close(client, 1000);
    (void)hf_close(other, 1000);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up_auth, tear_down)
        CASE(read_write_on_one_database_is_enough),
        CASE(without_change_streams_waiters_are_granted_keys),
        CASE(without_change_streams_a_watch_is_refused),
        CASE(a_wrong_password_is_reported_at_once),
        CASE(an_interrupted_login_is_retried),
        CASE(calls_of_a_dropped_user_are_denied),
    };

    return hf_test_main("mongo users", cases, HF_TEST_COUNT(cases), 3);
}
