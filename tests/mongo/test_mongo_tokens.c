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

#include "lib/mongo_case.h"
#include "lib/recorded.h"
#include "lib/runner.h"

#define PATIENCE_MS 60000
#define ACQUIRERS 64
#define ROUNDS 4
#define FAILOVERS 20
#define FAILOVERS_MIN 5 /* where a sanitizer slows it down */
#define ABANDONED (100000u / hf_test_slowness())
#define WRITERS 4
#define STOPS 3
#define HELD_MAX 65536

/* ---- A crowd ------------------------------------------------------------*/

struct crowd {
    struct hf_client *client;
    bool waits;
    pthread_barrier_t *start;
    _Atomic uint64_t *last; /* of each key, written by whoever holds it */
    atomic_uint *fallen;
    pthread_t thread;
};

/* Take, look that the token is above all before, give back. */
static void acquire(struct crowd *one, unsigned round)
{
    struct hf_lock_opts opts =
        hf_test_opts(60000, one->waits ? HF_FOREVER : 0, PATIENCE_MS);
    struct hf_lock *lock = NULL;
    char key[16];

    (void)snprintf(key, sizeof(key), "k%u", round);
    while (recorded_lock(one->client, hf_key_of(key), &opts, &lock) != HF_OK)
        continue;
    if (atomic_exchange(&one->last[round], hf_lock_token(lock)) >=
        hf_lock_token(lock))
        atomic_fetch_add(one->fallen, 1);
    (void)recorded_unlock(one->client, lock);
    hf_lock_free(lock);
}

static void *be_in_a_crowd(void *arg)
{
    struct crowd *one = arg;

    for (unsigned round = 0; round < ROUNDS; round++) {
        (void)pthread_barrier_wait(one->start);
        acquire(one, round);
    }
    return NULL;
}

/* Each a client of its own; half of them stand in line, half try again and
 * again. Each round has a key that nobody had before, so that all race to make
 * its document. */
static void tokens_rise_where_64_take_and_release_at_once(void **state)
{
    struct crowd crowd[ACQUIRERS];
    pthread_barrier_t start;
    _Atomic uint64_t last[ROUNDS] = {0};
    atomic_uint fallen = 0;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    recorded_init(false);
    assert_int_equal(pthread_barrier_init(&start, NULL, ACQUIRERS), 0);
    for (unsigned i = 0; i < ACQUIRERS; i++)
        crowd[i] = (struct crowd){
            .client = hf_test_mongo_open(&mongo, ""),
            .waits = i % 2,
            .start = &start,
            .last = last,
            .fallen = &fallen,
        };
    for (unsigned i = 0; i < ACQUIRERS; i++)
        assert_int_equal(
            pthread_create(&crowd[i].thread, NULL, be_in_a_crowd, &crowd[i]),
            0);
    for (unsigned i = 0; i < ACQUIRERS; i++)
        assert_int_equal(pthread_join(crowd[i].thread, NULL), 0);
    assert_int_equal(fallen, 0);
    for (unsigned i = 0; i < ACQUIRERS; i++)
        expect_ok(recorded_close(crowd[i].client, PATIENCE_MS));
    assert_int_equal(recorded_check("64 take and release at once"), 0);
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
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, PATIENCE_MS, PATIENCE_MS);
    struct hf_client *client;
    uint64_t last = 0;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "&keep=1");
    for (unsigned i = 0; i < 3; i++) {
        struct hf_lock *lock = NULL;

        expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
        assert_true(hf_lock_token(lock) > last);
        last = hf_lock_token(lock);
        if (i == 0)
            expect_ok(hf_release(lock));
        else /* and by its lease alone, which may have ended already */
            (void)hf_lock_detach(lock);
        opts.ttl_ms = 1000;
        hf_lock_free(lock);
        await_gone(client, "{\"_id\":\"k\"}");
    }
    expect_ok(hf_close(client, PATIENCE_MS));
}

/* For the test's own documents, and what it does to those of the locks. */
static mongoc_client_t *connect_plainly(void)
{
    char url[HF_TEST_MONGO_URL_SIZE];

    (void)snprintf(url, sizeof(url),
                   "mongodb://127.0.0.1:%d/?directConnection=false&w=majority",
                   mongo.members[0].port);
    return mongoc_client_new(url);
}

static void delete_document(mongoc_client_t *mongoc)
{
    mongoc_collection_t *locks =
        mongoc_client_get_collection(mongoc, "holdfast", "locks");
    bson_t *query = BCON_NEW("_id", "k");

    while (!mongoc_collection_delete_one(locks, query, NULL, NULL, NULL))
        (void)poll(NULL, 0, 20);
    bson_destroy(query);
    mongoc_collection_destroy(locks);
}

/* By a stepdown; or the primary is killed and comes back. */
static void fail_over(bool killing)
{
    int victim = hf_test_mongo_primary(&mongo);

    assert_true(victim >= 0);
    if (killing) {
        hf_test_mongo_kill(&mongo, (unsigned)victim);
        assert_true(hf_test_mongo_primary(&mongo) >= 0);
        assert_true(hf_test_mongo_again(&mongo, (unsigned)victim));
    } else {
        assert_true(hf_test_mongo_step_down(&mongo) >= 0);
    }
}

/* MS-05. Clocks are an hour apart, where they can be set: the time of the cluster
 * then stands still but for its increment, and wall clocks go back. The
 * document is gone each time, so that the last token is not known from it. */
static void tokens_rise_over_failovers_and_deletions(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, 0, PATIENCE_MS);
    unsigned failovers = FAILOVERS / hf_test_slowness();
    struct hf_client *client;
    mongoc_client_t *mongoc;
    uint64_t last = 0;

    (void)state;
    set_clocks_apart();
    hf_test_mongo_need(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    mongoc = connect_plainly();
    for (unsigned i = 0; i < failovers || i < FAILOVERS_MIN; i++) {
        for (unsigned j = 0; j < 2; j++) {
            struct hf_lock *lock = NULL;

            expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
            assert_true(hf_lock_token(lock) > last);
            last = hf_lock_token(lock);
            expect_ok(hf_release(lock));
            hf_lock_free(lock);
            delete_document(mongoc);
        }
        fail_over(i % 6 == 2);
    }
    mongoc_client_destroy(mongoc);
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
    struct hf_lock_opts opts = hf_test_opts(1000, PATIENCE_MS, PATIENCE_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    uint64_t token;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "&keep=4");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    token = hf_lock_token(lock);
    abandon_many();
    assert_true(count_documents("{}") > ABANDONED);
    await_gone(client, "{}");

    hf_lock_free(lock);
    lock = NULL;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    assert_true(hf_lock_token(lock) > token);
    hf_lock_free(lock);
    (void)hf_close(client, 1000);
}

/* ---- A fenced store --------------------------------------------------------*/

/* What the writers share. Who holds the lock for sure writes its token down in
 * `tokens`: the order there is that in which they held it. */
struct shared {
    atomic_uint at_work;      /* writers that are stopped now and then */
    _Atomic uint64_t newest;  /* token of all writes that the store took */
    _Atomic uint64_t stopped; /* token of who stopped last */
    atomic_uint late;         /* writes of those who were stopped: refused */
    atomic_uint too_late;     /* and taken */
    atomic_uint taken;        /* writes of those who held the lock for sure */
    atomic_uint refused;      /* and refused */
    atomic_uint lost; /* newer writes that a store without a fence had */
    atomic_uint held;
    uint64_t tokens[HELD_MAX];
};

struct writer {
    struct shared *shared;
    struct hf_client *client;
    mongoc_client_t *mongoc;
};

/* Set the token of a cell that `query` finds, and answer the one that it had; or
 * -1, where it finds none. */
static int64_t write_cell(mongoc_client_t *mongoc, bson_t *query,
                          uint64_t token)
{
    mongoc_collection_t *cells =
        mongoc_client_get_collection(mongoc, "holdfast", "cells");
    bson_t *update =
        BCON_NEW("$set", "{", "token", BCON_INT64((int64_t)token), "}");
    int64_t before = -1;
    bson_iter_t at, found;
    bson_t reply;

    if (mongoc_collection_find_and_modify(cells, query, NULL, update, NULL,
                                          false, false, false, &reply, NULL) &&
        bson_iter_init(&at, &reply) &&
        bson_iter_find_descendant(&at, "value.token", &found))
        before = bson_iter_as_int64(&found);
    bson_destroy(&reply);
    bson_destroy(query);
    bson_destroy(update);
    mongoc_collection_destroy(cells);
    return before;
}

/* Over a token that is no larger. Answers whether it was taken. */
static bool write_fenced(const struct writer *writer, uint64_t token)
{
    bson_t *query = BCON_NEW("_id", "fenced", "token", "{", "$lte",
                             BCON_INT64((int64_t)token), "}");
    uint64_t newest = atomic_load(&writer->shared->newest);

    if (write_cell(writer->mongoc, query, token) < 0)
        return false;
    while (newest < token && !atomic_compare_exchange_weak(
                                 &writer->shared->newest, &newest, token))
        continue;
    return true;
}

/* Over whatever there is: it is counted if that was newer. */
static void write_plainly(const struct writer *writer, uint64_t token)
{
    int64_t before =
        write_cell(writer->mongoc, BCON_NEW("_id", "plain"), token);

    if (before > (int64_t)token)
        atomic_fetch_add(&writer->shared->lost, 1);
}

/* Who is valid afterwards held the lock at that moment, and nobody else did. */
static void note_holder(struct shared *shared, const struct hf_lock *lock)
{
    unsigned place = atomic_fetch_add(&shared->held, 1);

    if (place < HELD_MAX && hf_lock_valid_for(lock, 0))
        shared->tokens[place] = hf_lock_token(lock);
}

static void write_on_time(const struct writer *writer,
                          const struct hf_lock *lock)
{
    struct shared *shared = writer->shared;
    bool taken;

    write_plainly(writer, hf_lock_token(lock));
    taken = write_fenced(writer, hf_lock_token(lock));
    if (hf_lock_valid_for(lock, 0))
        atomic_fetch_add(taken ? &shared->taken : &shared->refused, 1);
}

static void write_late(const struct writer *writer, const struct hf_lock *lock)
{
    struct shared *shared = writer->shared;
    bool taken;

    atomic_store(&shared->stopped, hf_lock_token(lock));
    (void)raise(SIGSTOP);
    taken = write_fenced(writer, hf_lock_token(lock));
    atomic_fetch_add(taken ? &shared->too_late : &shared->late, 1);
    write_plainly(writer, hf_lock_token(lock));
}

/* Once, under the lock. */
static void write_locked(const struct writer *writer,
                         void (*write)(const struct writer *writer,
                                       const struct hf_lock *lock))
{
    struct hf_lock_opts opts = hf_test_opts(300, HF_FOREVER, PATIENCE_MS);
    struct hf_lock *lock = NULL;

    while (hf_acquire(writer->client, hf_key_of("k"), &opts, &lock))
        continue; /* on a busy machine the lease may end too soon */
    note_holder(writer->shared, lock);
    write(writer, lock);
    (void)hf_release(lock);
    hf_lock_free(lock);
}

/* The first is stopped each time, the others write for as long as it does. */
static _Noreturn void be_a_writer(struct shared *shared, unsigned number)
{
    struct writer writer = {.shared = shared};
    char url[HF_TEST_MONGO_URL_SIZE];

    hf_test_mongo_url(&mongo, url, "");
    if (hf_open(url, NULL, &writer.client))
        _exit(3);
    writer.mongoc = connect_plainly();
    if (number == 0) {
        for (unsigned i = 0; i < STOPS; i++)
            write_locked(&writer, write_late);
        atomic_fetch_sub(&shared->at_work, 1);
    }
    while (number > 0 && atomic_load(&shared->at_work) > 0)
        write_locked(&writer, write_on_time);
    _exit(0);
}

static void make_cells(void)
{
    static const char *const names[] = {"fenced", "plain"};
    mongoc_client_t *mongoc = connect_plainly();
    mongoc_collection_t *cells =
        mongoc_client_get_collection(mongoc, "holdfast", "cells");

    for (unsigned i = 0; i < 2; i++) {
        bson_t *first =
            BCON_NEW("_id", BCON_UTF8(names[i]), "token", BCON_INT64(0));

        assert_true(
            mongoc_collection_insert_one(cells, first, NULL, NULL, NULL));
        bson_destroy(first);
    }
    mongoc_collection_destroy(cells);
    mongoc_client_destroy(mongoc);
}

static void expect_rising(const struct shared *shared)
{
    uint64_t last = 0;

    for (unsigned i = 0; i < shared->held && i < HELD_MAX; i++) {
        if (shared->tokens[i] == 0)
            continue;
        assert_true(shared->tokens[i] > last);
        last = shared->tokens[i];
    }
}

/* Let who stopped itself go on after three leases, and when who had the lock
 * next has written. */
static void wake_the_stopped(const struct shared *shared, const pid_t *pids)
{
    unsigned ended = 0;

    while (ended < WRITERS) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, WUNTRACED);

        assert_true(pid > 0);
        if (WIFSTOPPED(status)) {
            (void)poll(NULL, 0, 3 * 368);
            while (atomic_load(&shared->newest) <=
                   atomic_load(&shared->stopped)) {
                expect_rising(shared); /* or this never ends */
                (void)poll(NULL, 0, 5);
            }
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

/* Each holder has a larger token than the one before; so a store that compares
 * them takes each write of who holds the lock, and none of who was late. One
 * that does not loses something each time. */
static void a_fenced_store_refuses_who_was_late(void **state)
{
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[WRITERS];

    (void)state;
    assert_true(shared != MAP_FAILED);
    hf_test_mongo_need(&mongo, 1);
    make_cells();
    shared->at_work = 1;
    for (unsigned i = 0; i < WRITERS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            be_a_writer(shared, i);
    }
    wake_the_stopped(shared, pids);
    expect_rising(shared);
    assert_true(shared->taken > 0);
    assert_int_equal(shared->refused, 0);
    assert_int_equal(shared->late, STOPS);
    assert_int_equal(shared->too_late, 0);
    assert_true(shared->lost >= STOPS);
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
