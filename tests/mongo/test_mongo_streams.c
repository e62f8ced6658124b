/* What a client hears of changes, over failovers, failures and gaps; and what
 * wakes those who wait. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

#define PATIENCE_MS 60000
#define SEEN_MAX 20000
#define PAIRS_MAX (SEEN_MAX / 2 - 1)
#define WAITERS 10
#define WATCHES 3
#define EXPIRIES 5

enum {
    INTERNAL_ERROR = 1, /* MongoDB's codes */
    FATAL_ERROR = 280,
    HISTORY_LOST = 286,
};

/* ---- Watching -----------------------------------------------------------*/

struct seen {
    atomic_uint count, dropped;
    struct hf_event events[SEEN_MAX]; /* without what they point to */
};

static void see(const struct hf_event *event, void *arg)
{
    struct seen *seen = arg;
    unsigned at = atomic_load(&seen->count);

    if (at >= SEEN_MAX)
        return;
    atomic_fetch_add(&seen->dropped, event->kind == HF_EVENT_DROPPED);
    seen->events[at] = *event;
    atomic_store(&seen->count, at + 1);
}

static struct seen *new_seen(void)
{
    struct seen *seen = calloc(1, sizeof(*seen));

    assert_non_null(seen);
    return seen;
}

/* Who takes a lock and is asked again renews it: that is not looked at. */
static struct hf_watch *watch(struct hf_client *client, const char *prefix,
                              struct seen *seen)
{
    struct hf_watch *made = NULL;
    struct hf_watch_opts opts;

    hf_watch_opts_init(&opts);
    opts.kinds = HF_EVENT_GRANTED | HF_EVENT_RELEASED;
    expect_ok(
        hf_watch_open(client, hf_key_of(prefix), &opts, see, seen, &made));
    return made;
}

static void await_seen(const struct seen *seen, unsigned wanted)
{
    while (atomic_load(&seen->count) < wanted)
        (void)poll(NULL, 0, 5);
}

/* ---- Failures -----------------------------------------------------------*/

/* These commands of clients fail, as `mode` says. Answers how many have failed
 * so far. */
static long refuse(unsigned member, const char *commands, const char *mode,
                   int code)
{
    char data[32];

    (void)snprintf(data, sizeof(data), "\"errorCode\":%d", code);
    return fail_commands(member, commands, mode, data);
}

static void await_failures(unsigned member, long wanted)
{
    char json[128];

    (void)snprintf(json, sizeof(json),
                   "{\"waitForFailPoint\":\"failCommand\","
                   "\"timesEntered\":%ld,\"maxTimeMS\":%d}",
                   wanted, PATIENCE_MS);
    assert_null(
        strstr(hf_test_mongo_say(&mongo, member, "admin", json), "(lost)"));
}

/* ---- Going on -----------------------------------------------------------*/

/* Locks and unlocks one key until it is enough. */
struct series {
    pthread_t thread;
    struct hf_client *client;
    atomic_bool enough;
    atomic_uint pairs;
    unsigned failed;
    uint64_t tokens[PAIRS_MAX];
};

static enum hf_err lock_and_unlock(struct hf_client *client, uint64_t *token)
{
    struct hf_lock_opts opts = hf_test_opts(120000, 0, PATIENCE_MS);
    struct hf_lock *lock = NULL;
    enum hf_err err = hf_acquire(client, hf_key_of("k"), &opts, &lock);

    if (err)
        return err;
    *token = hf_lock_token(lock);
    err = hf_release(lock);
    hf_lock_free(lock);
    return err;
}

static void *run_series(void *arg)
{
    struct series *series = arg;

    while (!series->enough && series->pairs < PAIRS_MAX) {
        if (lock_and_unlock(series->client, &series->tokens[series->pairs]))
            series->failed++;
        else
            series->pairs++;
        (void)poll(NULL, 0, 5); /* leaves the servers some time */
    }
    return NULL;
}

/* Until some more pairs are done, and heard of: whatever comes next meets a
 * stream that works. */
static void go_on(const struct series *series, const struct seen *seen)
{
    unsigned wanted = atomic_load(&series->pairs) + 5;

    while (atomic_load(&series->pairs) < wanted ||
           atomic_load(&seen->count) < wanted * 2) {
        assert_int_equal(atomic_load(&seen->dropped), 0);
        (void)poll(NULL, 0, 5);
    }
}

/* The stream fails where it is, which may be the old primary for a moment, and
 * then is not opened for a while where it goes to, which is the new one. */
static void fail_stream(void)
{
    unsigned to = primary();
    long before = -1;

    for (unsigned i = 0; i < mongo.count; i++) {
        long failed = refuse(i, "\"getMore\",\"aggregate\"", "{\"times\":3}",
                             INTERNAL_ERROR);

        before = i == to ? failed : before;
    }
    await_failures(to, before + 3);
}

static void kill_primary(const struct series *series, const struct seen *seen)
{
    unsigned victim = primary();

    hf_test_mongo_kill(&mongo, victim);
    go_on(series, seen);
    assert_true(hf_test_mongo_again(&mongo, victim));
}

static void expect_each_once(const struct seen *seen,
                             const struct series *series)
{
    assert_int_equal(series->failed, 0);
    assert_int_equal(seen->dropped, 0);
    assert_int_equal(seen->count, series->pairs * 2);
    for (unsigned i = 0; i < seen->count; i++) {
        const struct hf_event *event = &seen->events[i];

        assert_int_equal(event->kind,
                         i % 2 ? HF_EVENT_RELEASED : HF_EVENT_GRANTED);
        assert_int_equal(event->token, series->tokens[i / 2]);
        assert_true(i == 0 || event->index > seen->events[i - 1].index);
    }
}

/* Whatever happens to the primary, and to the stream: each event is told once,
 * in order, and by the stream, for a watch has no other way to hear of it. */
static void a_watch_goes_on_where_it_ended(void **state)
{
    struct series *series = calloc(1, sizeof(*series));
    struct seen *seen = new_seen();
    struct hf_client *client;
    struct hf_watch *watching;

    (void)state;
    assert_non_null(series);
    hf_test_mongo_need(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    series->client = hf_test_mongo_open(&mongo, "");
    watching = watch(client, "k", seen);
    assert_int_equal(pthread_create(&series->thread, NULL, run_series, series),
                     0);
    go_on(series, seen);
    assert_true(hf_test_mongo_step_down(&mongo) >= 0);
    go_on(series, seen);
    fail_stream();
    go_on(series, seen);
    kill_primary(series, seen);
    go_on(series, seen);

    series->enough = true;
    assert_int_equal(pthread_join(series->thread, NULL), 0);
    await_seen(seen, series->pairs * 2);
    expect_each_once(seen, series);
    hf_watch_close(watching);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(series->client, PATIENCE_MS));
    free(series);
    free(seen);
}

/* The server does not end a stream when it is no primary any more. One that is
 * cut off from the others has no news then, and no failure either: the client
 * has to go where the primary is. */
static void a_watch_follows_the_primary(void **state)
{
    struct seen *seen = new_seen();
    struct hf_client *client, *other;
    struct hf_watch *watching;
    uint64_t tokens[2] = {0};

    (void)state;
    need_network(3);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    watching = watch(client, "k", seen);
    expect_ok(lock_and_unlock(other, &tokens[0]));
    await_seen(seen, 2);
    hf_test_network_cut_server(&network, (int)primary());
    expect_ok(lock_and_unlock(other, &tokens[1]));
    await_seen(seen, 4);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(seen->events[i].token, tokens[i / 2]);
    assert_int_equal(seen->dropped, 0);

    hf_watch_close(watching);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(other, PATIENCE_MS));
    free(seen);
}

/* ---- Gaps ---------------------------------------------------------------*/

static bool was_told(const struct seen *seen, enum hf_event_kind kind,
                     uint64_t token)
{
    unsigned count = atomic_load(&seen->count);

    for (unsigned i = 0; i < count; i++)
        if (seen->events[i].kind == kind && seen->events[i].token == token)
            return true;
    return false;
}

/* A mark has the index of what comes next, and stands for something. */
static void expect_order(const struct seen *seen)
{
    for (unsigned i = 1; i < seen->count; i++) {
        const struct hf_event *last = &seen->events[i - 1],
                              *next = &seen->events[i];

        if (last->kind == HF_EVENT_DROPPED && next->kind != HF_EVENT_DROPPED)
            assert_true(next->index >= last->index);
        else
            assert_true(next->index > last->index);
    }
}

/* The server says that it has forgotten what comes next, `times` in a row. As
 * long as it does not even tell the time, the client cannot begin anew: so what
 * is done until then is lost. */
static void lose(struct hf_client *client, uint64_t lost[3], unsigned times,
                 int code)
{
    char mode[32];
    long before =
        refuse(0, "\"getMore\",\"aggregate\",\"ping\"", "\"alwaysOn\"", code);

    await_failures(0, before + 2);
    for (unsigned i = 0; i < 3; i++)
        expect_ok(lock_and_unlock(client, &lost[i]));
    (void)snprintf(mode, sizeof(mode), "{\"times\":%u}", times);
    before = refuse(0, "\"aggregate\"", mode, code);
    await_failures(0, before + times);
}

/* But for the last event, which is the newest when the stream begins anew. */
static void expect_lost(const struct seen *seen, const uint64_t lost[3])
{
    for (unsigned i = 0; i < 3; i++) {
        assert_false(was_told(seen, HF_EVENT_GRANTED, lost[i]));
        assert_false(i < 2 && was_told(seen, HF_EVENT_RELEASED, lost[i]));
    }
}

/* What is done next may be lost, too: until something is heard again. */
static void find_back(struct hf_client *client, const struct seen *seen)
{
    uint64_t token = 0;

    do {
        expect_ok(lock_and_unlock(client, &token));
        for (unsigned i = 0; i < 100; i++)
            if (!was_told(seen, HF_EVENT_RELEASED, token))
                (void)poll(NULL, 0, 5);
    } while (!was_told(seen, HF_EVENT_RELEASED, token));
}

static void lost_history_leaves_a_mark(void **state)
{
    struct seen *seen = new_seen();
    struct hf_client *client, *other;
    struct hf_watch *watching;
    uint64_t lost[3] = {0};
    unsigned told;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    watching = watch(client, "k", seen);
    find_back(other, seen);
    told = seen->count;
    assert_int_equal(seen->dropped, 0);

    lose(other, lost, 1, HISTORY_LOST);
    await_seen(seen, told + 1);
    assert_int_equal(seen->events[told].kind, HF_EVENT_DROPPED);
    find_back(other, seen);
    assert_int_equal(seen->dropped, 1);
    expect_lost(seen, lost);

    lose(other, lost, 3, FATAL_ERROR);
    find_back(other, seen);
    assert_in_range(seen->dropped, 2, 4);
    expect_lost(seen, lost);
    expect_order(seen);

    hf_watch_close(watching);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(other, PATIENCE_MS));
    free(seen);
}

/* ---- One stream ---------------------------------------------------------*/

/* How many cursors the server keeps open: the fewest of several looks, for
 * other work of its own may open one for a moment. */
static long count_cursors(void)
{
    long fewest = -1;

    for (unsigned i = 0; i < 20; i++) {
        const char *reply =
            hf_test_mongo_say(&mongo, 0, "admin", "{\"serverStatus\":1}");
        const char *open = strstr(reply, "\"cursor\" : {");
        long count;

        open = open ? strstr(open, "\"open\" : {") : NULL;
        count = find_number(open, "\"total\" : ");
        assert_true(count >= 0);
        if (fewest < 0 || count < fewest)
            fewest = count;
    }
    return fewest;
}

static void a_client_has_one_stream(void **state)
{
    static const char *const prefixes[WATCHES] = {"", "k", "k"};
    struct hf_lock_opts opts = hf_test_opts(60000, HF_FOREVER, PATIENCE_MS);
    struct hf_lock *held = NULL, *locks[WAITERS] = {NULL};
    struct hf_future *futures[WAITERS] = {NULL};
    struct hf_watch *watching[WATCHES];
    struct seen *seen[WATCHES];
    struct hf_client *client, *other;
    enum hf_err err = HF_ECANCELED;
    uint64_t token;
    long before;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    other = hf_test_mongo_open(&mongo, "");
    client = hf_test_mongo_open(&mongo, "");
    before = count_cursors();
    expect_ok(hf_acquire(other, hf_key_of("held"), &opts, &held));
    for (unsigned i = 0; i < WAITERS; i++)
        expect_ok(hf_acquire_start(client, hf_key_of("held"), &opts, &locks[i],
                                   NULL, NULL, &futures[i]));
    await_line(WAITERS);
    for (unsigned i = 0; i < WATCHES; i++) {
        seen[i] = new_seen();
        watching[i] = watch(client, prefixes[i], seen[i]);
    }
    expect_ok(lock_and_unlock(other, &token));
    for (unsigned i = 0; i < WATCHES; i++)
        await_seen(seen[i], 2);
    assert_int_equal(count_cursors(), before + 1);

    expect_ok(hf_release(held));
    for (unsigned i = 0; i < WAITERS; i++) {
        expect_ok(hf_future_wait(futures[i], PATIENCE_MS, &err));
        expect_ok(err);
        expect_ok(hf_release(locks[i]));
        hf_future_free(futures[i]);
        hf_lock_free(locks[i]);
    }
    for (unsigned i = 0; i < WATCHES; i++)
        hf_watch_close(watching[i]);
    hf_lock_free(held);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(other, PATIENCE_MS));
    for (unsigned i = 0; i < WATCHES; i++)
        free(seen[i]);
}

/* ---- Leases that end ----------------------------------------------------*/

struct waiter {
    struct hf_lock *held, *lock;
    struct hf_future *future;
    int64_t began;
    _Atomic int64_t took;
};

static void granted(enum hf_err err, void *arg)
{
    struct waiter *waiter = arg;

    waiter->took = err ? INT64_MAX : now_ms() - waiter->began;
}

static int compare(const void *left, const void *right)
{
    const int64_t *one = left, *two = right;

    return (*one > *two) - (*one < *two);
}

/* How long those wait for whom others left locked: the quickest of four. */
static int64_t wait_for_expiries(struct hf_client *client,
                                 struct hf_client *other, unsigned round)
{
    struct hf_lock_opts brief = hf_test_opts(1300, PATIENCE_MS, PATIENCE_MS);
    struct hf_lock_opts waits = hf_test_opts(60000, HF_FOREVER, PATIENCE_MS);
    struct waiter waiters[EXPIRIES];
    int64_t took[EXPIRIES];
    char key[16];

    for (unsigned i = 0; i < EXPIRIES; i++) {
        struct waiter *waiter = &waiters[i];

        *waiter = (struct waiter){.took = 0};
        (void)snprintf(key, sizeof(key), "k%u-%u", round, i);
        expect_ok(hf_acquire(other, hf_key_of(key), &brief, &waiter->held));
        waiter->began = now_ms();
        expect_ok(hf_acquire_start(client, hf_key_of(key), &waits,
                                   &waiter->lock, granted, waiter,
                                   &waiter->future));
    }
    for (unsigned i = 0; i < EXPIRIES; i++) {
        enum hf_err err = HF_ECANCELED;

        expect_ok(hf_future_wait(waiters[i].future, PATIENCE_MS, &err));
        expect_ok(err);
        while (waiters[i].took == 0)
            (void)poll(NULL, 0, 1);
        took[i] = waiters[i].took;
        assert_false(hf_lock_valid_for(waiters[i].held, 0));
        expect_ok(hf_release(waiters[i].lock));
        hf_future_free(waiters[i].future);
        hf_lock_free(waiters[i].lock);
        hf_lock_free(waiters[i].held);
    }
    qsort(took, EXPIRIES, sizeof(took[0]), compare);
    return took[EXPIRIES / 4];
}

/* Who only looked once a second, as all do who wait, would look before the lease
 * ends, and then not before two seconds have passed. On a busy machine it may
 * take as long: but not each time. */
static void who_waits_is_there_when_a_lease_ends(void **state)
{
    struct hf_client *client, *other;
    int64_t took = INT64_MAX;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    for (unsigned round = 0; took >= 1950; round++)
        took = wait_for_expiries(client, other, round);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(other, PATIENCE_MS));
}

/* Its lease is so long that no renewal is due while the case runs. */
static void a_holder_that_watches_loses_a_broken_lock_at_once(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(86400000, 0, PATIENCE_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL;
    struct seen *seen = new_seen();
    struct hf_watch *watching;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    other = hf_test_mongo_open(&mongo, "");
    client = hf_test_mongo_open(&mongo, "");
    watching = watch(client, "", seen);
    opts.renew = true;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    await_seen(seen, 1);
    expect_ok(hf_force(other, hf_key_of("k"), hf_lock_token(lock), true));
    while (hf_lock_state(lock) != HF_LOCK_LOST)
        (void)poll(NULL, 0, 5);
    assert_false(hf_lock_valid_for(lock, 0));
    hf_watch_close(watching);
    hf_lock_free(lock);
    (void)hf_close(client, PATIENCE_MS);
    (void)hf_close(other, PATIENCE_MS);
    free(seen);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_watch_goes_on_where_it_ended),
        CASE(a_watch_follows_the_primary),
        CASE(lost_history_leaves_a_mark),
        CASE(a_client_has_one_stream),
        CASE(who_waits_is_there_when_a_lease_ends),
        CASE(a_holder_that_watches_loses_a_broken_lock_at_once),
    };

    return hf_test_main("mongo streams", cases, HF_TEST_COUNT(cases), 4);
}
