/* Background work of clients: change streams, sweeps and checks of leases.
 * Corrupt documents do not stop it, and it does not load a server that refuses
 * it. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "lib/mongo_queue.h"
#include "lib/runner.h"

#define TIMEOUT_MS 60000
#define UNAUTHORIZED 13 /* MongoDB's code */

/* ---- Refused commands ---------------------------------------------------*/

/* Commands that the server refuses while a case runs. */
struct refusal {
    const char *commands;
    char error[32];
    long before; /* commands refused before begin_refusal() */
    int64_t began;
};

static void begin_refusal(struct refusal *refusal, const char *commands)
{
    refusal->commands = commands;
    (void)snprintf(refusal->error, sizeof(refusal->error), "\"errorCode\":%d",
                   UNAUTHORIZED);
    refusal->before =
        fail_commands(0, commands, "\"alwaysOn\"", refusal->error);
    refusal->began = now_ms();
}

/* Wait for 10 seconds, and expect that the client sends on average at most one
 * command in two seconds, apart from the first few. */
static void expect_few_refused(const struct refusal *refusal)
{
    long refused;

    (void)poll(NULL, 0, 10000);
    refused = fail_commands(0, refusal->commands, "\"off\"", refusal->error) -
              refusal->before;
    assert_true(refused > 0);
    if (refused > (now_ms() - refusal->began) / 2000 + 3)
        fail_msg("%s: %ld were refused", refusal->commands, refused);
}

/* While the server refuses change streams, a waiting client asks for one only
 * rarely. After that it is granted the key. */
static void a_refused_stream_backs_off(void **state)
{
    struct queued queued = {NULL, NULL};
    struct hf_client *client, *other;
    struct refusal refusal;
    struct hf_lock *lock;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    other = open_driven();
    lock = hold_key(client);
    join_queue(other, &queued, "");
    await_queue_length(1);
    begin_refusal(&refusal, "\"aggregate\",\"getMore\"");
    expect_few_refused(&refusal);
    expect_ok(hf_release(lock));
    await_grant(&queued);
    hf_lock_free(queued.lock);
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

static void a_refused_sweep_backs_off(void **state)
{
    struct refusal refusal;
    struct hf_client *client;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    begin_refusal(&refusal, "\"update\""); /* refuse even the first sweep */
    client = open_driven();
    expect_few_refused(&refusal);
    expect_ok(hf_close(client, TIMEOUT_MS));
}

/* ---- Corrupt documents --------------------------------------------------*/

/* Acquire a key with a lease of a second, and detach it. */
static void abandon_key(struct hf_client *client, const char *key)
{
    struct hf_lock_opts opts = hf_test_opts(1000, 0, TIMEOUT_MS);
    struct hf_lock *lock = acquire_with_retries(client, key, &opts);

    expect_ok(hf_lock_detach(lock));
    hf_lock_free(lock);
}

static void set_fields(const char *key, const char *fields)
{
    char json[256];

    (void)snprintf(json, sizeof(json),
                   "{\"update\":\"locks\",\"updates\":"
                   "[{\"q\":{\"_id\":\"%s\"},\"u\":{\"$set\":{%s}}}]}",
                   key, fields);
    assert_non_null(strstr(hf_test_mongo_command(&mongo, 0, "holdfast", json),
                           "\"nModified\" : 1"));
}

static bool is_held(const char *key)
{
    char json[128];

    (void)snprintf(json, sizeof(json),
                   "{\"count\":\"locks\",\"query\":"
                   "{\"_id\":\"%s\",\"nonce\":{\"$exists\":true}}}",
                   key);
    return strstr(hf_test_mongo_command(&mongo, 0, "holdfast", json),
                  "\"n\" : 1") != NULL;
}

/* Some keys have corrupt queues, and their leases are due before the lease of
 * the good key. The sweep still ends the lease of the good key. */
static void a_sweep_skips_corrupt_documents(void **state)
{
    static const char *const queues[] = {
        "[7]",
        "[{\"nonce\":3}]",
        "[{\"nonce\":\"n\",\"owner\":\"o\",\"client\":\"c\",\"lease\":\"l\"}]",
    };
    char name[16], fields[128];
    struct hf_client *client;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "&keep=1");
    for (size_t i = 0; i < HF_TEST_COUNT(queues); i++) {
        (void)snprintf(name, sizeof(name), "bad%zu", i);
        (void)snprintf(fields, sizeof(fields), "\"queue\":%s", queues[i]);
        abandon_key(client, name);
        set_fields(name, fields);
    }
    abandon_key(client, "good");
    while (is_held("good"))
        expect_err(hf_wait_held(client, hf_key_of("none"), 100, NULL),
                   HF_ETIMEDOUT);
    expect_ok(hf_close(client, TIMEOUT_MS));
}

static void ignore_event(const struct hf_event *event, void *arg)
{
    (void)event;
    (void)arg;
}

/* A watcher checks a lease when it is due. Expect that the corrupt `fields` do
 * not make it repeat the check all the time. */
static void expect_few_checks(const char *fields)
{
    struct hf_client *client = hf_test_mongo_open(&mongo, "");
    struct hf_client *other = open_driven();
    struct hf_watch *watch = NULL;
    int64_t began;
    long before, checks;

    expect_ok(
        hf_watch_open(other, hf_key_of("k"), NULL, ignore_event, NULL, &watch));
    abandon_key(client, "k");
    set_fields("k", fields);
    (void)poll(NULL, 0, 2000);
    before = count_commands("findAndModify");
    began = now_ms();
    (void)poll(NULL, 0, 4000);
    checks = count_commands("findAndModify") - before;
    if (checks > (now_ms() - began) / 1000 + 3)
        fail_msg("%s: %ld checks", fields, checks);
    hf_watch_close(watch);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

static void a_watcher_does_not_poll_a_free_key(void **state)
{
    (void)state;
    hf_test_mongo_require(&mongo, 1);
    expect_few_checks("\"nonce\":null");
}

static void a_watcher_seldom_polls_a_corrupt_lease(void **state)
{
    (void)state;
    hf_test_mongo_require(&mongo, 1);
    expect_few_checks(
        "\"deadlines.0.until\":{\"$timestamp\":{\"t\":1,\"i\":1}}");
}

/* A document has lost its deadlines. The server then counts the whole lease
 * from now on, as a new primary does. */
static void a_lease_without_deadlines_ends(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, 20000, TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL;

    (void)state;
    require_two_clients(1, &client, &other);
    abandon_key(client, "k");
    set_fields("k", "\"deadlines\":null");
    expect_ok(hf_acquire(other, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_refused_stream_backs_off),
        CASE(a_refused_sweep_backs_off),
        CASE(a_sweep_skips_corrupt_documents),
        CASE(a_watcher_does_not_poll_a_free_key),
        CASE(a_lease_without_deadlines_ends),
        CASE(a_watcher_seldom_polls_a_corrupt_lease),
    };

    return hf_test_main("mongo upkeep", cases, HF_TEST_COUNT(cases), 4);
}
