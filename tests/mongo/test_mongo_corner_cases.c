/* Corner cases with a replica set of one member: late copies, several clients
 * of one lock, server names and signals. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

#define TIMEOUT_MS 60000
#define OFFER_MS 3000 /* as in src/strategy/mongo/op.h */

/* Delay the next findAndModify by four seconds. */
static void delay_one_command(void)
{
    (void)fail_commands(0, "\"findAndModify\"", "{\"times\":1}",
                        "\"blockConnection\":true,\"blockTimeMS\":4000");
}

/* Returns true if exactly one document matches `query`. */
static bool matches_one(const char *query)
{
    char json[256];

    (void)snprintf(json, sizeof(json), "{\"count\":\"locks\",\"query\":%s}",
                   query);
    return strstr(hf_test_mongo_command(&mongo, 0, "holdfast", json),
                  "\"n\" : 1");
}

/* ---- Offers -------------------------------------------------------------*/

/* A waiter confirms its offer even if it waited only for a moment, and its
 * whole ttl is left. So it still holds the lock when an unconfirmed offer would
 * have expired. */
static void a_confirmed_offer_lasts(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, TIMEOUT_MS, TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL, *none = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    require_two_clients(1, &client, &other);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    await_queue_length(1);
    expect_ok(hf_release(lock));
    expect_ok(hf_future_wait(future, TIMEOUT_MS, &err));
    expect_ok(err);

    (void)poll(NULL, 0, OFFER_MS + 500);
    opts.wait_ms = 0;
    expect_err(hf_acquire(client, hf_key_of("k"), &opts, &none), HF_EBUSY);
    assert_true(hf_lock_valid_for(next, 0));
    expect_ok(hf_renew(next, 0));

    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(next);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* ---- Late copies --------------------------------------------------------*/

/* A LOCK of a new key is given up while it is in flight. Its nonce is recorded
 * in a document, which the server deletes later. */
static void canceled_nonces_are_deleted_in_time(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, 300);
    struct hf_client *client;
    struct hf_lock *none = NULL;
    long before;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    before = count_commands("findAndModify");
    delay_one_command();
    expect_err(hf_acquire(client, hf_key_of("k"), &opts, &none), HF_EINDOUBT);
    while (count_commands("findAndModify") <
           before + 2) /* the CANCEL and the late LOCK */
        (void)poll(NULL, 0, 20);
    expect_ok(hf_close(client, TIMEOUT_MS));

    assert_true(matches_one("{\"canceled\":{\"$size\":1}}"));
    assert_true(
        matches_one("{\"canceled\":{\"$size\":1},\"delete_at\":{\"$gt\":"
                    "{\"$date\":\"2020-01-01T00:00:00Z\"}}}"));
}

static void assert_value(struct hf_client *client, const char *wanted)
{
    struct hf_info info;

    expect_ok(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_int_equal(info.value.size, strlen(wanted));
    assert_memory_equal(info.value.data, wanted, info.value.size);
    hf_info_fini(&info);
}

/* The first copy of an UPDATE arrives after an UPDATE by another client, which
 * has adopted the lock. */
static void a_late_update_does_not_overwrite_a_newer_one(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *adopted = NULL;
    uint8_t nonce[HF_NONCE_SIZE];
    long before;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "&socketTimeoutMS=1000");
    other = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    hf_lock_nonce(lock, nonce);
    expect_ok(hf_lock_adopt(other, hf_key_of("k"), nonce, hf_lock_token(lock),
                            &opts, &adopted));
    before = count_commands("findAndModify");
    delay_one_command();
    expect_ok(hf_update(lock, NULL, hf_bytes_of("first")));
    expect_ok(hf_update(adopted, NULL, hf_bytes_of("second")));
    while (count_commands("findAndModify") <
           before + 3) /* two UPDATEs and the late copy */
        (void)poll(NULL, 0, 20);
    assert_value(other, "second");

    hf_lock_free(adopted);
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* ---- Servers ------------------------------------------------------------*/

/* A deadline names the server process, not the host name of the URL. */
static void deadlines_name_the_server_process(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, TIMEOUT_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    char text[128], process[25] = "";
    const char *hello;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    hello = hf_test_mongo_command(&mongo, 0, "admin", "{\"hello\":1}");
    hello = strstr(hello, "\"processId\" : { \"$oid\" : \"");
    assert_non_null(hello);
    (void)sscanf(hello, "\"processId\" : { \"$oid\" : \"%24[0-9a-f]", process);
    (void)snprintf(text, sizeof(text), "mongodb://localhost:%d/holdfast",
                   mongo.members[0].port);
    client = hf_test_mongo_open_url(text);
    assert_true(hf_caps(client) & HF_CAP_FAILOVER_SAFE);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    (void)snprintf(text, sizeof(text), "{\"deadlines.0.server\":\"%s\"}",
                   process);
    assert_true(matches_one(text));
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
}

static void urls_that_hide_the_server_are_refused(void **state)
{
    (void)state;
    expect_refused("mongodb://127.0.0.1:1/?directConnection=true", HF_EINVAL,
                   "directConnection");
    expect_refused("mongodb://127.0.0.1:1/?loadBalanced=true", HF_EUNSUPPORTED,
                   "loadBalanced");
}

/* A direct connection needs ?unsafe=1, and does not promise to survive a
 * failover. */
static void a_direct_connection_promises_less(void **state)
{
    struct hf_client *client;
    char url[128];

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    (void)snprintf(url, sizeof(url),
                   "mongodb://127.0.0.1:%d/?directConnection=true&unsafe=1",
                   mongo.members[0].port);
    client = hf_test_mongo_open_url(url);
    assert_false(hf_caps(client) & HF_CAP_FAILOVER_SAFE);
    assert_true(hf_caps(client) & HF_CAP_FENCE);
    expect_ok(hf_close(client, TIMEOUT_MS));
}

/* ---- Signals ------------------------------------------------------------*/

/* A program that calls sigwait() receives all its signals: no thread of
 * holdfast or libmongoc handles them. */
static void library_threads_block_signals(void **state)
{
    struct timespec limit = {.tv_sec = 60};
    struct hf_client *client;
    sigset_t signals;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &signals, NULL), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    assert_int_equal(sigtimedwait(&signals, NULL, &limit), SIGUSR1);
    expect_ok(hf_close(client, TIMEOUT_MS));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_confirmed_offer_lasts),
        CASE(canceled_nonces_are_deleted_in_time),
        CASE(a_late_update_does_not_overwrite_a_newer_one),
        CASE(deadlines_name_the_server_process),
        CASE(urls_that_hide_the_server_are_refused),
        CASE(a_direct_connection_promises_less),
        CASE(library_threads_block_signals),
    };

    return hf_test_main("mongo corner cases", cases, HF_TEST_COUNT(cases), 4);
}
