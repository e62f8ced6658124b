/* Tokens rise across releases, contention, failovers and deletions; abandoned
 * keys are deleted; and a store that compares tokens refuses late writes. */
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

#define TIMEOUT_MS 60000
#define ACQUIRERS 64
#define ROUNDS 4
#define ROUNDS_RUN ((ROUNDS - 1) / hf_test_slowness() + 1)
#define FAILOVERS 20
#define FAILOVERS_MIN 5 /* when a sanitizer slows the test down */
#define ABANDONED (100000u / hf_test_slowness())
#define WRITERS 4
#define STOPS 3
#define HELD_MAX 65536

/* ---- Contention ---------------------------------------------------------*/

struct crowd {
    struct hf_client *client;
    bool waits;
    pthread_barrier_t *start;
    _Atomic uint64_t *last; /* token of the last holder of each key */
    atomic_uint *not_risen;
    pthread_t thread;
};

/* Acquire the lock of this round, check that its token is larger than the last
 * one, and release it. */
static void acquire_and_check(struct crowd *member, unsigned round)
{
    struct hf_lock_opts opts =
        hf_test_opts(60000, member->waits ? HF_FOREVER : 0, TIMEOUT_MS);
    struct hf_lock *lock = NULL;
    char key[16];

    (void)snprintf(key, sizeof(key), "k%u", round);
    while (recorded_acquire(member->client, hf_key_of(key), &opts, &lock) !=
           HF_OK)
        continue;
    if (atomic_exchange(&member->last[round], hf_lock_token(lock)) >=
        hf_lock_token(lock))
        atomic_fetch_add(member->not_risen, 1);
    (void)recorded_release(member->client, lock);
    hf_lock_free(lock);
}

static void *crowd_main(void *arg)
{
    struct crowd *member = arg;

    for (unsigned round = 0; round < ROUNDS_RUN; round++) {
        (void)pthread_barrier_wait(member->start);
        acquire_and_check(member, round);
    }
    return NULL;
}

/* Half of the clients queue, and the other half retry. Each round uses a new
 * key, so that all clients race to insert its document. */
static void tokens_rise_with_64_concurrent_clients(void **state)
{
    struct crowd crowd[ACQUIRERS];
    pthread_barrier_t start;
    _Atomic uint64_t last[ROUNDS] = {0};
    atomic_uint not_risen = 0;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    recorded_init(false);
    assert_int_equal(pthread_barrier_init(&start, NULL, ACQUIRERS), 0);
    for (unsigned i = 0; i < ACQUIRERS; i++)
        crowd[i] = (struct crowd){
            .client = hf_test_mongo_open(&mongo, ""),
            .waits = i % 2,
            .start = &start,
            .last = last,
            .not_risen = &not_risen,
        };
    for (unsigned i = 0; i < ACQUIRERS; i++)
        assert_int_equal(
            pthread_create(&crowd[i].thread, NULL, crowd_main, &crowd[i]), 0);
    for (unsigned i = 0; i < ACQUIRERS; i++)
        assert_int_equal(pthread_join(crowd[i].thread, NULL), 0);
    assert_int_equal(not_risen, 0);
    for (unsigned i = 0; i < ACQUIRERS; i++)
        expect_ok(recorded_close(crowd[i].client, TIMEOUT_MS));
    assert_int_equal(recorded_check("64 concurrent clients"), 0);
    assert_int_equal(pthread_barrier_destroy(&start), 0);
}

/* ---- Deletions and failovers --------------------------------------------*/

static long count_documents(const char *query)
{
    char json[256];
    const char *reply, *n;
    int primary = hf_test_mongo_primary(&mongo);

    (void)snprintf(json, sizeof(json), "{\"count\":\"locks\",\"query\":%s}",
                   query);
    assert_true(primary >= 0);
    reply = hf_test_mongo_command(&mongo, (unsigned)primary, "holdfast", json);
    n = strstr(reply, "\"n\" : ");
    return n ? strtol(n + 6, NULL, 10) : -1;
}

/* Wait until no document matches. The server deletes only documents of free
 * keys. Leases of abandoned keys are ended before that by the sweeps of
 * `client`, which is driven here. */
static void await_deletion(struct hf_client *client, const char *query)
{
    (void)hf_fd(client);
    while (count_documents(query) != 0) {
        expect_ok(hf_process(client));
        (void)poll(NULL, 0, 20);
    }
}

static void tokens_rise_across_a_deletion(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, TIMEOUT_MS, TIMEOUT_MS);
    struct hf_client *client;
    uint64_t last = 0;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "&keep=1");
    for (unsigned i = 0; i < 3; i++) {
        struct hf_lock *lock = NULL;

        expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
        assert_true(hf_lock_token(lock) > last);
        last = hf_lock_token(lock);
        if (i == 0)
            expect_ok(hf_release(lock));
        else /* let the lease expire, unless it has already */
            (void)hf_lock_detach(lock);
        opts.ttl_ms = 1000;
        hf_lock_free(lock);
        await_deletion(client, "{\"_id\":\"k\"}");
    }
    expect_ok(hf_close(client, TIMEOUT_MS));
}

/* Open a connection with which the test writes its own documents and changes
 * those of locks. */
static mongoc_client_t *new_mongoc_client(void)
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

/* Fail over by a stepdown, or kill the primary and restart it. */
static void fail_over(bool kills)
{
    int victim = hf_test_mongo_primary(&mongo);

    assert_true(victim >= 0);
    if (kills) {
        hf_test_mongo_kill(&mongo, (unsigned)victim);
        assert_true(hf_test_mongo_primary(&mongo) >= 0);
        assert_true(hf_test_mongo_restart(&mongo, (unsigned)victim));
    } else {
        assert_true(hf_test_mongo_step_down(&mongo) >= 0);
    }
}

/* MS-05: tokens rise even if the clocks of the members are hours apart, which
 * needs libfaketime. After a failover the wall clock may be behind, and only
 * the increment of the cluster time advances. The document is deleted each
 * time, so that the server does not know the last token. */
static void tokens_rise_across_failovers_and_deletions(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, 0, TIMEOUT_MS);
    unsigned failovers = FAILOVERS / hf_test_slowness();
    struct hf_client *client;
    mongoc_client_t *mongoc;
    uint64_t last = 0;

    (void)state;
    set_clocks_apart();
    hf_test_mongo_require(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    mongoc = new_mongoc_client();
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
    expect_ok(hf_close(client, TIMEOUT_MS));
}

/* ---- Abandoned keys -----------------------------------------------------*/

/* Copy the document of a lock to many other keys, as if their client had
 * died. */
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
        strstr(hf_test_mongo_command(&mongo, 0, "holdfast", json), "(lost)"));
}

static void abandoned_keys_are_deleted(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(1000, TIMEOUT_MS, TIMEOUT_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    uint64_t token;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "&keep=4");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    token = hf_lock_token(lock);
    abandon_many();
    assert_true(count_documents("{}") > ABANDONED);
    await_deletion(client, "{}");

    hf_lock_free(lock);
    lock = NULL;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    assert_true(hf_lock_token(lock) > token);
    hf_lock_free(lock);
    (void)hf_close(client, 1000);
}

/* ---- A fenced store -----------------------------------------------------*/

/* State that the writers share. Each writer takes a position in `tokens`, and
 * stores its token there if its lock is still valid afterwards. So the tokens
 * are in the order of the grants. */
struct shared {
    atomic_uint at_work;      /* writers with stops left to do */
    _Atomic uint64_t newest;  /* the largest token that the store accepted */
    _Atomic uint64_t stopped; /* token of the writer that stopped last */
    atomic_uint late;         /* refused writes of stopped writers */
    atomic_uint too_late;     /* accepted writes of stopped writers */
    atomic_uint taken;        /* accepted writes of valid holders */
    atomic_uint refused;      /* refused writes of valid holders */
    atomic_uint lost;         /* newer writes that the plain store lost */
    atomic_uint held;
    uint64_t tokens[HELD_MAX];
};

struct writer {
    struct shared *shared;
    struct hf_client *client;
    mongoc_client_t *mongoc;
};

/* Set the token of the cell that `query` matches, and return its old token.
 * Returns -1 if no cell matches. */
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

/* Write unless the cell has a larger token. Returns true if the write was
 * accepted. */
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

/* Write unconditionally. If the cell had a larger token, count that a newer
 * write was lost. */
static void write_plainly(const struct writer *writer, uint64_t token)
{
    int64_t before =
        write_cell(writer->mongoc, BCON_NEW("_id", "plain"), token);

    if (before > (int64_t)token)
        atomic_fetch_add(&writer->shared->lost, 1);
}

/* Record the holder's token. If the lock is still valid after the position was
 * taken, it was held at that moment. */
static void note_holder(struct shared *shared, const struct hf_lock *lock)
{
    unsigned at = atomic_fetch_add(&shared->held, 1);

    if (at < HELD_MAX && hf_lock_valid_for(lock, 0))
        shared->tokens[at] = hf_lock_token(lock);
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

/* Acquire the lock, write once, and release the lock. */
static void write_locked(const struct writer *writer,
                         void (*write)(const struct writer *writer,
                                       const struct hf_lock *lock))
{
    struct hf_lock_opts opts = hf_test_opts(300, HF_FOREVER, TIMEOUT_MS);
    struct hf_lock *lock = NULL;

    while (hf_acquire(writer->client, hf_key_of("k"), &opts, &lock))
        continue; /* the lease may expire before the call returns */
    note_holder(writer->shared, lock);
    write(writer, lock);
    (void)hf_release(lock);
    hf_lock_free(lock);
}

/* The first writer stops itself STOPS times while it holds the lock. The others
 * write until it is done. */
static _Noreturn void writer_main(struct shared *shared, unsigned number)
{
    struct writer writer = {.shared = shared};
    char url[HF_TEST_MONGO_URL_SIZE];

    hf_test_mongo_url(&mongo, url, "");
    if (hf_open(url, NULL, &writer.client))
        _exit(3);
    writer.mongoc = new_mongoc_client();
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
    mongoc_client_t *mongoc = new_mongoc_client();
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

/* Until all writers have exited, continue a stopped writer after three times
 * its lease, once the next holder has written. */
static void continue_stopped_writers(const struct shared *shared,
                                     const pid_t *pids)
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
                expect_rising(shared); /* otherwise this loop would never end */
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

/* Tokens rise with each holder. So a store that compares them accepts every
 * write of a holder, and refuses every late write. A store that does not
 * compare them loses a write each time. */
static void a_fenced_store_refuses_late_writes(void **state)
{
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[WRITERS];

    (void)state;
    assert_true(shared != MAP_FAILED);
    hf_test_mongo_require(&mongo, 1);
    make_cells();
    shared->at_work = 1;
    for (unsigned i = 0; i < WRITERS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            writer_main(shared, i);
    }
    continue_stopped_writers(shared, pids);
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
        CASE(tokens_rise_with_64_concurrent_clients),
        CASE(tokens_rise_across_a_deletion),
        CASE(tokens_rise_across_failovers_and_deletions),
        CASE(abandoned_keys_are_deleted),
        CASE(a_fenced_store_refuses_late_writes),
    };

    return hf_test_main("mongo tokens", cases, HF_TEST_COUNT(cases), 4);
}
