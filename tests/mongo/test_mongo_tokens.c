/* Tokens rise over releases, crowds, failovers and clean-up; what is abandoned
 * goes; and a store that compares tokens is never written to by who was late. */
#include <mongoc/mongoc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/mongo_client.h"
#include "lib/runner.h"

#define PATIENCE_MS 60000
#define ACQUIRERS 64
#define GRANTS 5 /* each */
#define FAILOVERS 20
#define FAILOVERS_MIN 5 /* where a sanitizer slows it down */
#define ABANDONED (100000u / hf_test_slowness())
#define WRITERS 4
#define WRITES 6 /* each */

static struct hf_test_mongo mongo;

static int set_up(void **state)
{
    (void)state;
    mongo = (struct hf_test_mongo){.count = 0};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (mongo.count > 0)
        hf_test_mongo_stop(&mongo);
    return 0;
}

/* ---- A crowd ------------------------------------------------------------*/

struct crowd {
    struct hf_client *client;
    pthread_barrier_t *start;
    _Atomic uint64_t *last; /* of the holders, each written while it holds */
    atomic_uint *fallen;
    pthread_t thread;
};

/* Take, look that the token is above all before, give back. */
static void *acquire(void *arg)
{
    struct crowd *one = arg;
    struct hf_lock_opts opts =
        hf_test_mongo_opts(60000, HF_FOREVER, PATIENCE_MS);

    (void)pthread_barrier_wait(one->start);
    for (unsigned i = 0; i < GRANTS;) {
        struct hf_lock *lock = NULL;

        if (hf_lock(one->client, hf_key("k"), &opts, &lock) != HF_OK)
            continue;
        i++;
        if (atomic_exchange(one->last, hf_token(lock)) >= hf_token(lock))
            atomic_fetch_add(one->fallen, 1);
        (void)hf_unlock(lock);
        hf_lock_free(lock);
    }
    return NULL;
}

static void tokens_rise_where_64_take_and_release_at_once(void **state)
{
    struct hf_client *clients[4];
    struct crowd crowd[ACQUIRERS];
    pthread_barrier_t start;
    _Atomic uint64_t last = 0;
    atomic_uint fallen = 0;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    for (unsigned i = 0; i < 4; i++)
        clients[i] = hf_test_mongo_open(&mongo, "");
    assert_int_equal(pthread_barrier_init(&start, NULL, ACQUIRERS), 0);
    for (unsigned i = 0; i < ACQUIRERS; i++) {
        crowd[i] = (struct crowd){
            .client = clients[i % 4],
            .start = &start,
            .last = &last,
            .fallen = &fallen,
        };
        assert_int_equal(
            pthread_create(&crowd[i].thread, NULL, acquire, &crowd[i]), 0);
    }
    for (unsigned i = 0; i < ACQUIRERS; i++)
        assert_int_equal(pthread_join(crowd[i].thread, NULL), 0);
    assert_int_equal(fallen, 0);
    for (unsigned i = 0; i < 4; i++)
        expect_ok(hf_close(clients[i], PATIENCE_MS));
    assert_int_equal(pthread_barrier_destroy(&start), 0);
}

/* ---- Deletion, and another primary ---------------------------------------*/

static long count_documents(const char *query)
{
    char json[256];
    const char *reply, *n;
    int primary = hf_test_mongo_primary(&mongo);

    (void)snprintf(json, sizeof(json), "{\"count\":\"locks\",\"query\":%s}",
                   query);
    assert_true(primary >= 0);
    reply = hf_test_mongo_say(&mongo, (unsigned)primary, "holdfast", json);
    n = strstr(reply, "\"n\" : ");
    return n ? strtol(n + 6, NULL, 10) : -1;
}

/* The server deletes what has been free for long enough, by itself; what was
 * abandoned `client` ends before that, if it is driven. */
static void await_gone(struct hf_client *client, const char *query)
{
    (void)hf_fd(client);
    while (count_documents(query) != 0) {
        expect_ok(hf_process(client));
        (void)poll(NULL, 0, 20);
    }
}

static void tokens_rise_over_a_deletion(void **state)
{
    struct hf_lock_opts opts = hf_test_mongo_opts(1000, 0, PATIENCE_MS);
    struct hf_client *client;
    uint64_t last = 0;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "&keep=1");
    for (unsigned i = 0; i < 3; i++) {
        struct hf_lock *lock = NULL;

        expect_ok(hf_lock(client, hf_key("k"), &opts, &lock));
        assert_true(hf_token(lock) > last);
        last = hf_token(lock);
        if (i == 0) /* and once by its lease alone */
            expect_ok(hf_unlock(lock));
        else
            expect_ok(hf_lock_leave(lock));
        hf_lock_free(lock);
        await_gone(client, "{\"_id\":\"k\"}");
    }
    expect_ok(hf_close(client, PATIENCE_MS));
}

static void tokens_rise_over_failovers_and_deletions(void **state)
{
    struct hf_lock_opts opts = hf_test_mongo_opts(60000, 0, PATIENCE_MS);
    unsigned failovers = FAILOVERS / hf_test_slowness();
    struct hf_client *client;
    uint64_t last = 0;

    (void)state;
    hf_test_mongo_need(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "&keep=1");
    for (unsigned i = 0; i < failovers || i < FAILOVERS_MIN; i++) {
        for (unsigned j = 0; j < 3; j++) {
            struct hf_lock *lock = NULL;

            expect_ok(hf_lock(client, hf_key("k"), &opts, &lock));
            assert_true(hf_token(lock) > last);
            last = hf_token(lock);
            expect_ok(hf_unlock(lock));
            hf_lock_free(lock);
        }
        if (i % 5 == 4)
            await_gone(client, "{\"_id\":\"k\"}");
        assert_true(hf_test_mongo_step_down(&mongo) >= 0);
    }
    expect_ok(hf_close(client, PATIENCE_MS));
}

/* ---- What is abandoned ----------------------------------------------------*/

/* As a client would leave them that died: made by one real lock, copied by the
 * server under the names of many. */
static void abandon_many(void)
{
    const char *copy =
        "{\"aggregate\":\"locks\",\"cursor\":{},\"pipeline\":["
        "{\"$match\":{\"_id\":\"k\"}},"
        "{\"$set\":{\"number\":{\"$range\":[0,%u]}}},"
        "{\"$unwind\":\"$number\"},"
        "{\"$set\":{\"_id\":{\"$concat\":[\"k\",{\"$toString\":\"$number\"}]}}"
        "},{\"$unset\":\"number\"},{\"$merge\":{\"into\":\"locks\"}}]}";
    char json[512];

    (void)snprintf(json, sizeof(json), copy, ABANDONED);
    assert_null(
        strstr(hf_test_mongo_say(&mongo, 0, "holdfast", json), "(lost)"));
}

static void abandoned_keys_are_gone_after_their_time(void **state)
{
    struct hf_lock_opts opts = hf_test_mongo_opts(1000, 0, PATIENCE_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    uint64_t token;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "&keep=4");
    expect_ok(hf_lock(client, hf_key("k"), &opts, &lock));
    token = hf_token(lock);
    abandon_many();
    assert_true(count_documents("{}") > ABANDONED);
    await_gone(client, "{}");

    hf_lock_free(lock);
    lock = NULL;
    expect_ok(hf_lock(client, hf_key("k"), &opts, &lock));
    assert_true(hf_token(lock) > token);
    hf_lock_free(lock);
    (void)hf_close(client, 1000);
}

/* ---- A fenced store --------------------------------------------------------*/

/* What the writers share: who writes next waits for who was stopped. */
struct shared {
    atomic_uint writes;
    atomic_uint late; /* writes that the store refused */
};

/* Write `value` under a token, into the same MongoDB: only over a smaller
 * token. Answers whether it was taken. */
static bool write_fenced(mongoc_client_t *mongoc, uint64_t token,
                         unsigned value)
{
    mongoc_collection_t *cells =
        mongoc_client_get_collection(mongoc, "holdfast", "cells");
    bson_t *query = BCON_NEW("_id", "cell", "token", "{", "$lte",
                             BCON_INT64((int64_t)token), "}");
    bson_t *update = BCON_NEW("$set", "{", "token", BCON_INT64((int64_t)token),
                              "value", BCON_INT32((int32_t)value), "}", "$push",
                              "{", "all", BCON_INT64((int64_t)token), "}");
    bson_t reply;
    bson_iter_t at;
    bool taken = false;

    if (mongoc_collection_update_one(cells, query, update, NULL, &reply, NULL))
        taken = bson_iter_init_find(&at, &reply, "modifiedCount") &&
                bson_iter_as_int64(&at) == 1;
    bson_destroy(&reply);
    bson_destroy(query);
    bson_destroy(update);
    mongoc_collection_destroy(cells);
    return taken;
}

static mongoc_client_t *connect_plainly(void)
{
    char url[HF_TEST_MONGO_URL_SIZE];

    (void)snprintf(url, sizeof(url),
                   "mongodb://127.0.0.1:%d/?replicaSet=test&w=majority",
                   mongo.members[0].port);
    return mongoc_client_new(url);
}

/* Each second time it is stopped, while it holds the lock, for three leases. */
static _Noreturn void be_a_writer(struct shared *shared)
{
    struct hf_lock_opts opts = hf_test_mongo_opts(300, HF_FOREVER, PATIENCE_MS);
    struct hf_client *client = NULL;
    mongoc_client_t *mongoc;
    char url[HF_TEST_MONGO_URL_SIZE];

    hf_test_mongo_url(&mongo, url, "");
    if (hf_open(url, NULL, &client))
        _exit(3);
    mongoc = connect_plainly();
    for (unsigned i = 0; i < WRITES; i++) {
        struct hf_lock *lock = NULL;

        while (hf_lock(client, hf_key("k"), &opts, &lock))
            continue; /* on a busy machine the lease may end too soon */
        if (i % 2)
            (void)raise(SIGSTOP);
        if (!write_fenced(mongoc, hf_token(lock), i))
            atomic_fetch_add(&shared->late, 1);
        atomic_fetch_add(&shared->writes, 1);
        (void)hf_unlock(lock);
        hf_lock_free(lock);
    }
    _exit(0);
}

static void write_first(void)
{
    mongoc_client_t *mongoc = connect_plainly();
    mongoc_collection_t *cells =
        mongoc_client_get_collection(mongoc, "holdfast", "cells");
    bson_t *first =
        BCON_NEW("_id", "cell", "token", BCON_INT64(0), "all", "[", "]");

    assert_true(mongoc_collection_insert_one(cells, first, NULL, NULL, NULL));
    bson_destroy(first);
    mongoc_collection_destroy(cells);
    mongoc_client_destroy(mongoc);
}

/* The tokens in the order in which they were written never fall. */
static unsigned expect_rising(void)
{
    const char *all =
        strstr(hf_test_mongo_say(&mongo, 0, "holdfast", "{\"find\":\"cells\"}"),
               "\"all\" : [");
    unsigned long long last = 0, token;
    unsigned count = 0;
    char *end;

    assert_non_null(all);
    for (all += strlen("\"all\" : ["); *all != ']'; count++) {
        token = strtoull(all + strspn(all, " ,"), &end, 10);
        assert_true(token >= last);
        last = token;
        all = end + strspn(end, " ");
    }
    return count;
}

/* Let those who stopped themselves go on after three leases. */
static void wake_the_stopped(const pid_t *pids)
{
    unsigned ended = 0;

    while (ended < WRITERS) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, WUNTRACED);

        assert_true(pid > 0);
        if (WIFSTOPPED(status)) {
            (void)poll(NULL, 0, 3 * 368);
            (void)kill(pid, SIGCONT);
            continue;
        }
        for (unsigned i = 0; i < WRITERS; i++)
            if (pids[i] == pid) {
                assert_int_equal(status, 0);
                ended++;
            }
    }
}

static void a_fenced_store_refuses_who_was_late(void **state)
{
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[WRITERS];
    unsigned taken;

    (void)state;
    assert_true(shared != MAP_FAILED);
    hf_test_mongo_need(&mongo, 1);
    write_first();
    for (unsigned i = 0; i < WRITERS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            be_a_writer(shared);
    }
    wake_the_stopped(pids);
    taken = expect_rising();
    assert_int_equal(taken + shared->late, WRITERS * WRITES);
    assert_true(shared->late > 0); /* or nobody was late, and nothing tested */
    (void)munmap(shared, sizeof(*shared));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(tokens_rise_where_64_take_and_release_at_once),
        CASE(tokens_rise_over_a_deletion),
        CASE(tokens_rise_over_failovers_and_deletions),
        CASE(abandoned_keys_are_gone_after_their_time),
        CASE(a_fenced_store_refuses_who_was_late),
    };

    return hf_test_main("mongo tokens", cases, HF_TEST_COUNT(cases), 4);
}
