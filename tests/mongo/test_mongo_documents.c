/* What the server stores, and where: leases, indexes, databases and
 * collections. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

/* ---- Documents ----------------------------------------------------------*/

/* Check that the ttl is not rounded in the stored lease, which is in
 * milliseconds and includes an allowance for clock drift. */
static void expect_lease(const char *key, unsigned ttl_ms)
{
    char json[512], span[32];
    const char *reply;

    (void)snprintf(
        json, sizeof(json),
        "{\"aggregate\":\"locks\",\"cursor\":{},\"pipeline\":["
        "{\"$match\":{\"_id\":\"%s\"}},"
        "{\"$project\":{\"span\":{\"$subtract\":[{\"$first\":\"$deadlines.until\"},"
        "{\"$first\":\"$deadlines.since\"}]}}}]}",
        key);
    (void)snprintf(span, sizeof(span), "\"span\" : %u }",
                   ttl_ms + ttl_ms / 16 + 50);
    reply = hf_test_mongo_command(&mongo, 0, "holdfast", json);
    if (!strstr(reply, span))
        fail_msg("%s lacks %s", reply, span);
}

/* MS-14: the lease is exact on the fast path, and on the slow path, which a
 * client takes after contention. */
static void leases_are_stored_to_the_millisecond(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600301, 0, HF_TEST_TIMEOUT_MS);
    struct hf_client *client;
    struct hf_lock *held = NULL, *fast = NULL, *slow = NULL, *none = NULL;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("held"), NULL, &held));
    expect_ok(hf_acquire(client, hf_key_of("fast"), &opts, &fast));
    expect_err(hf_acquire(client, hf_key_of("held"), &opts, &none), HF_EBUSY);
    expect_ok(hf_acquire(client, hf_key_of("slow"), &opts, &slow));
    expect_lease("fast", 600301);
    expect_lease("slow", 600301);
    hf_lock_free(held);
    hf_lock_free(fast);
    hf_lock_free(slow);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
}

static void set_format(const char *key, int format)
{
    char json[128];

    (void)snprintf(json, sizeof(json),
                   "{\"update\":\"locks\",\"updates\":[{\"q\":{\"_id\":\"%s\"},"
                   "\"u\":{\"$set\":{\"format\":%d}}}]}",
                   key, format);
    assert_non_null(strstr(hf_test_mongo_command(&mongo, 0, "holdfast", json),
                           "\"nModified\" : 1"));
}

static void expect_newer(struct hf_client *client, enum hf_err err)
{
    struct hf_error error;

    hf_client_error(client, &error);
    expect_err(err, HF_EPROTO);
    if (!strstr(error.text, "format 3 of a newer holdfast"))
        fail_msg("\"%s\" does not name the format", error.text);
}

/* Documents of a newer format are not changed, whether the key is held or free,
 * and the error names the format. */
static void a_newer_format_is_refused(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, HF_TEST_TIMEOUT_MS);
    struct hf_lock *held = NULL, *released = NULL, *none = NULL;
    struct hf_client *client;
    struct hf_info info;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("held"), &opts, &held));
    expect_ok(hf_acquire(client, hf_key_of("free"), &opts, &released));
    expect_ok(hf_release(released));
    set_format("held", 3);
    set_format("free", 3);
    expect_newer(client, hf_acquire(client, hf_key_of("free"), &opts, &none));
    expect_newer(client, hf_acquire(client, hf_key_of("held"), &opts, &none));
    expect_newer(client, hf_renew(held, 0));
    expect_newer(client,
                 hf_read(client, hf_key_of("held"), HF_LINEARIZABLE, &info));
    set_format("held", 2);
    expect_ok(hf_release(held));
    hf_lock_free(held);
    hf_lock_free(released);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
}

static void make_lease_due(const char *key)
{
    char json[256];

    (void)snprintf(json, sizeof(json),
                   "{\"update\":\"locks\",\"updates\":[{\"q\":{\"_id\":\"%s\"},"
                   "\"u\":{\"$set\":{\"deadlines.0.until\":"
                   "{\"$date\":{\"$numberLong\":\"1\"}}}}}]}",
                   key);
    assert_non_null(strstr(hf_test_mongo_command(&mongo, 0, "holdfast", json),
                           "\"nModified\" : 1"));
}

/* Until a command ends a lease that is due, a renewal that began earlier may
 * still extend it. So a linearizable read ends it before it reports the key as
 * free; a local read changes nothing. */
static void a_linearizable_read_ends_a_lease_that_is_due(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, HF_TEST_TIMEOUT_MS);
    const char *held = "{\"count\":\"locks\",\"query\":{\"_id\":\"k\","
                       "\"nonce\":{\"$exists\":true}}}";
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL;
    struct hf_info info;

    (void)state;
    require_two_clients(1, &client, &other);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    make_lease_due("k");
    expect_ok(hf_read(other, hf_key_of("k"), HF_LOCAL, &info));
    assert_false(info.held);
    hf_info_fini(&info);
    assert_non_null(strstr(hf_test_mongo_command(&mongo, 0, "holdfast", held),
                           "\"n\" : 1"));

    expect_ok(hf_read(other, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_false(info.held);
    hf_info_fini(&info);
    assert_non_null(strstr(hf_test_mongo_command(&mongo, 0, "holdfast", held),
                           "\"n\" : 0"));

    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    expect_ok(hf_close(other, HF_TEST_TIMEOUT_MS));
}

/* Before a client reports HF_EBUSY, it writes to a document of its own, as
 * proof that the server is the primary. The server deletes that document soon,
 * because many clients call only once. */
static void proof_documents_are_deleted_soon(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, HF_TEST_TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *none = NULL;

    (void)state;
    require_two_clients(1, &client, &other);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_err(hf_acquire(other, hf_key_of("k"), &opts, &none), HF_EBUSY);
    assert_non_null(
        strstr(hf_test_mongo_command(
                   &mongo, 0, "holdfast",
                   "{\"find\":\"locks\",\"filter\":{\"_id\":"
                   "{\"$ne\":\"k\"},\"$expr\":{\"$lt\":[\"$delete_at\","
                   "{\"$add\":[\"$$NOW\",120000]}]}}}"),
               "\"reads\" : 1"));
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    expect_ok(hf_close(other, HF_TEST_TIMEOUT_MS));
}

/* Dropping the collection drops its index, too. An open client creates the
 * index again. */
static void a_dropped_collection_gets_its_index_back(void **state)
{
    char url[HF_TEST_MONGO_URL_SIZE];
    struct hf_client *client = NULL;
    struct hf_client_opts opts;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    hf_test_mongo_url(&mongo, url, "&keep=1");
    hf_client_opts_init(&opts);
    opts.background = true;
    expect_ok(hf_open(url, &opts, &client));
    (void)hf_test_mongo_command(&mongo, 0, "holdfast", "{\"drop\":\"locks\"}");
    while (!strstr(hf_test_mongo_command(&mongo, 0, "holdfast",
                                         "{\"listIndexes\":\"locks\"}"),
                   "expireAfterSeconds"))
        (void)poll(NULL, 0, 20);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
}

/* ---- Databases, collections and indexes ---------------------------------*/

static unsigned count_word(const char *text, const char *word)
{
    unsigned count = 0;

    for (; (text = strstr(text, word)); text += strlen(word))
        count++;
    return count;
}

/* In each round, many clients at once open a database that does not exist
 * yet. */
#define OPENERS 12
#define ROUNDS 4

struct opener {
    pthread_t thread;
    pthread_barrier_t *start;
    char url[HF_TEST_MONGO_URL_SIZE];
    struct hf_client *client;
    struct hf_error error;
    enum hf_err err;
};

static void *opener_main(void *arg)
{
    struct opener *opener = arg;
    struct hf_client_opts opts;

    hf_client_opts_init(&opts);
    opts.error = &opener->error;
    (void)pthread_barrier_wait(opener->start);
    opener->err = hf_open(opener->url, &opts, &opener->client);
    return NULL;
}

static void open_together(const char *database)
{
    struct opener openers[OPENERS] = {0};
    pthread_barrier_t start;
    char option[64];

    (void)snprintf(option, sizeof(option), "&database=%s", database);
    assert_int_equal(pthread_barrier_init(&start, NULL, OPENERS), 0);
    for (unsigned i = 0; i < OPENERS; i++) {
        openers[i].start = &start;
        hf_test_mongo_url(&mongo, openers[i].url, option);
        assert_int_equal(
            pthread_create(&openers[i].thread, NULL, opener_main, &openers[i]),
            0);
    }
    for (unsigned i = 0; i < OPENERS; i++)
        assert_int_equal(pthread_join(openers[i].thread, NULL), 0);
    for (unsigned i = 0; i < OPENERS; i++) {
        if (openers[i].err)
            fail_msg("%s", openers[i].error.text);
        expect_ok(hf_close(openers[i].client, 10000));
    }
    (void)pthread_barrier_destroy(&start);
}

static void concurrent_opens_create_one_index(void **state)
{
    char database[16];

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    for (unsigned i = 0; i < ROUNDS; i++) {
        const char *indexes;

        (void)snprintf(database, sizeof(database), "fresh%u", i);
        open_together(database);
        indexes = hf_test_mongo_command(&mongo, 0, database,
                                        "{\"listIndexes\":\"locks\"}");
        assert_int_equal(count_word(indexes, "\"name\" : "), 2);
        assert_int_equal(count_word(indexes, "\"name\" : \"_id_\""), 1);
        assert_int_equal(count_word(indexes, "\"name\" : \"delete_at\", "
                                             "\"expireAfterSeconds\" : 0"),
                         1);
    }
}

/* Ends of URLs, and the database and collection that they select. */
static const struct {
    const char *path, *database, *collection;
} targets[] = {
    {"", "holdfast", "locks"},
    {"path", "path", "locks"},
    {"?collection=other", "holdfast", "other"},
    {"?database=option", "option", "locks"},
    {"path?database=both", "both", "locks"},
    {"path?collection=a.b", "path", "a.b"},
    {"path?database=all&collection=three", "all", "three"},
};

static bool has_document(unsigned target, unsigned number)
{
    char json[128];
    const char *reply;

    (void)snprintf(json, sizeof(json),
                   "{\"count\":\"%s\",\"query\":{\"_id\":\"k%u\"}}",
                   targets[target].collection, number);
    reply = hf_test_mongo_command(&mongo, 0, targets[target].database, json);
    if (strstr(reply, "\"n\" : 1,"))
        return true;
    if (!strstr(reply, "\"n\" : 0,"))
        fail_msg("%s", reply);
    return false;
}

static void locks_are_stored_where_the_url_says(void **state)
{
    char url[HF_TEST_MONGO_URL_SIZE], name[16];

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    for (unsigned i = 0; i < HF_TEST_COUNT(targets); i++) {
        struct hf_client *client;
        struct hf_lock *lock = NULL;

        (void)snprintf(name, sizeof(name), "k%u", i);
        (void)snprintf(url, sizeof(url), "mongodb://127.0.0.1:%d/%s",
                       mongo.members[0].port, targets[i].path);
        client = hf_test_mongo_open_url(url);
        expect_ok(hf_acquire(client, hf_key_of(name), NULL, &lock));
        for (unsigned target = 0; target < HF_TEST_COUNT(targets); target++)
            assert_int_equal(has_document(target, i), target == i);
        hf_lock_free(lock);
        expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(leases_are_stored_to_the_millisecond),
        CASE(a_newer_format_is_refused),
        CASE(a_linearizable_read_ends_a_lease_that_is_due),
        CASE(proof_documents_are_deleted_soon),
        CASE(a_dropped_collection_gets_its_index_back),
        CASE(concurrent_opens_create_one_index),
        CASE(locks_are_stored_where_the_url_says),
    };

    return hf_test_main("mongo documents", cases, HF_TEST_COUNT(cases), 4);
}
