/* Rare turns of a MongoDB replica set of one: copies that come late, several
 * clients at one lock, names and signals. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

#define PATIENCE_MS 60000
#define OFFER_MS 3000 /* a key is offered for so long */

/* The server keeps the next findAndModify back for two seconds. */
static void hold_back_one(void)
{
    (void)fail_commands(0, "\"findAndModify\"", "{\"times\":1}",
                        "\"blockConnection\":true,\"blockTimeMS\":4000");
}

/* Whether a document is so. */
static bool finds(const char *query)
{
    char json[256];

    (void)snprintf(json, sizeof(json), "{\"count\":\"locks\",\"query\":%s}",
                   query);
    return strstr(hf_test_mongo_say(&mongo, 0, "holdfast", json), "\"n\" : 1");
}

/* ---- Offers -------------------------------------------------------------*/

/* Who has waited for a moment only, and knows its whole ttl before it, takes the
 * offer up all the same: when that would have ended, it holds. */
static void an_offer_that_was_taken_up_lasts(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, PATIENCE_MS, PATIENCE_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL, *none = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    await_line(1);
    expect_ok(hf_release(lock));
    expect_ok(hf_future_wait(future, PATIENCE_MS, &err));
    expect_ok(err);

    (void)poll(NULL, 0, OFFER_MS + 500);
    opts.wait_ms = 0;
    expect_err(hf_acquire(client, hf_key_of("k"), &opts, &none), HF_EBUSY);
    assert_true(hf_lock_valid_for(next, 0));
    expect_ok(hf_renew(next, 0));

    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(next);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(other, PATIENCE_MS));
}

/* ---- Late copies --------------------------------------------------------*/

/* A LOCK of a new key is given up on while it is on its way. That it was is
 * written down, in a document that the server deletes by and by. */
static void what_was_withdrawn_is_forgotten_in_time(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, 300);
    struct hf_client *client;
    struct hf_lock *none = NULL;
    long before;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    before = begun();
    hold_back_one();
    expect_err(hf_acquire(client, hf_key_of("k"), &opts, &none), HF_EINDOUBT);
    while (begun() < before + 2) /* the CANCEL, and what came late */
        (void)poll(NULL, 0, 20);
    expect_ok(hf_close(client, PATIENCE_MS));

    assert_true(finds("{\"canceled\":{\"$size\":1}}"));
    assert_true(finds("{\"canceled\":{\"$size\":1},\"delete_at\":{\"$gt\":"
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

/* The first copy of an update comes after another client, which has adopted the
 * lock, has made one of its own. */
static void a_late_update_changes_nothing_of_another_s(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, PATIENCE_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *adopted = NULL;
    uint8_t nonce[HF_NONCE_SIZE];
    long before;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "&socketTimeoutMS=1000");
    other = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    hf_lock_nonce(lock, nonce);
    expect_ok(hf_lock_adopt(other, hf_key_of("k"), nonce, hf_lock_token(lock),
                            &opts, &adopted));
    before = begun();
    hold_back_one();
    expect_ok(hf_update(lock, NULL, hf_bytes_of("first")));
    expect_ok(hf_update(adopted, NULL, hf_bytes_of("second")));
    while (begun() < before + 3) /* both, and the late one */
        (void)poll(NULL, 0, 20);
    assert_value(other, "second");

    hf_lock_free(adopted);
    hf_lock_free(lock);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(other, PATIENCE_MS));
}

/* ---- Names --------------------------------------------------------------*/

/* A server's clock is named after its process, whatever the URL calls it. */
static void a_clock_is_a_process(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, PATIENCE_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    char text[128], process[25] = "";
    const char *hello;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    hello = hf_test_mongo_say(&mongo, 0, "admin", "{\"hello\":1}");
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
    assert_true(finds(text));
    hf_lock_free(lock);
    expect_ok(hf_close(client, PATIENCE_MS));
}

static void a_url_that_hides_who_answers_is_refused(void **state)
{
    (void)state;
    expect_refused("mongodb://127.0.0.1:1/?directConnection=true", HF_EINVAL,
                   "directConnection");
    expect_refused("mongodb://127.0.0.1:1/?loadBalanced=true", HF_EUNSUPPORTED,
                   "loadBalanced");
}

/* What one member alone says must be asked for, and does not outlive it. */
static void one_member_alone_promises_less(void **state)
{
    struct hf_client *client;
    char url[128];

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    (void)snprintf(url, sizeof(url),
                   "mongodb://127.0.0.1:%d/?directConnection=true&unsafe=1",
                   mongo.members[0].port);
    client = hf_test_mongo_open_url(url);
    assert_false(hf_caps(client) & HF_CAP_FAILOVER_SAFE);
    assert_true(hf_caps(client) & HF_CAP_FENCE);
    expect_ok(hf_close(client, PATIENCE_MS));
}

/* ---- Signals ------------------------------------------------------------*/

/* A program that takes its signals by sigwait() has them all: none ends it by
 * way of a thread of ours, or of libmongoc's. */
static void signals_are_for_the_program(void **state)
{
    struct timespec limit = {.tv_sec = 60};
    struct hf_client *client;
    sigset_t signals;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &signals, NULL), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    assert_int_equal(sigtimedwait(&signals, NULL, &limit), SIGUSR1);
    expect_ok(hf_close(client, PATIENCE_MS));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(an_offer_that_was_taken_up_lasts),
        CASE(what_was_withdrawn_is_forgotten_in_time),
        CASE(a_late_update_changes_nothing_of_another_s),
        CASE(a_clock_is_a_process),
        CASE(a_url_that_hides_who_answers_is_refused),
        CASE(one_member_alone_promises_less),
        CASE(signals_are_for_the_program),
    };

    return hf_test_main("mongo corners", cases, HF_TEST_COUNT(cases), 4);
}
