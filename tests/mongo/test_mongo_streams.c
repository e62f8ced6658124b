/* Change streams: events across failovers, failures and gaps, and grants to
 * waiters. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

#define TIMEOUT_MS 60000
#define LOG_MAX 20000
#define PAIRS_MAX (LOG_MAX / 2 - 1)
#define WAITERS 10
#define WATCHES 3
#define EXPIRIES 5

enum {
    INTERNAL_ERROR = 1, /* MongoDB's codes */
    FATAL_ERROR = 280,
    HISTORY_LOST = 286,
};

/* ---- Watching -----------------------------------------------------------*/

struct log {
    atomic_uint count, dropped;
    struct hf_event events[LOG_MAX]; /* key and owner are dangling pointers */
};

static void record_event(const struct hf_event *event, void *arg)
{
    struct log *log = arg;
    unsigned at = atomic_load(&log->count);

    if (at >= LOG_MAX)
        return;
    atomic_fetch_add(&log->dropped, event->kind == HF_EVENT_DROPPED);
    log->events[at] = *event;
    atomic_store(&log->count, at + 1);
}

static struct log *new_log(void)
{
    struct log *log = calloc(1, sizeof(*log));

    assert_non_null(log);
    return log;
}

/* Watch grants and releases, but not renewals, because the confirmation of an
 * offer counts as a renewal. */
static struct hf_watch *open_watch(struct hf_client *client, const char *prefix,
                                   struct log *log)
{
    struct hf_watch *opened = NULL;
    struct hf_watch_opts opts;

    hf_watch_opts_init(&opts);
    opts.kinds = HF_EVENT_GRANTED | HF_EVENT_RELEASED;
    expect_ok(hf_watch_open(client, hf_key_of(prefix), &opts, record_event, log,
                            &opened));
    return opened;
}

static void await_logged(const struct log *log, unsigned wanted)
{
    while (atomic_load(&log->count) < wanted)
        (void)poll(NULL, 0, 5);
}

/* ---- Failures -----------------------------------------------------------*/

/* Make `commands` fail with `code` at `member`; see fail_commands() for `mode`.
 * Returns how many have failed so far. */
static long fail_with_code(unsigned member, const char *commands,
                           const char *mode, int code)
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
                   wanted, TIMEOUT_MS);
    assert_null(
        strstr(hf_test_mongo_command(&mongo, member, "admin", json), "(lost)"));
}

/* ---- Resuming -----------------------------------------------------------*/

/* A thread that locks and unlocks one key until `enough` is set, or until
 * PAIRS_MAX pairs have succeeded. */
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
    struct hf_lock_opts opts = hf_test_opts(120000, 0, TIMEOUT_MS);
    struct hf_lock *lock = NULL;
    enum hf_err err = hf_acquire(client, hf_key_of("k"), &opts, &lock);

    if (err)
        return err;
    *token = hf_lock_token(lock);
    err = hf_release(lock);
    hf_lock_free(lock);
    return err;
}

static void *series_main(void *arg)
{
    struct series *series = arg;

    while (!series->enough && series->pairs < PAIRS_MAX) {
        if (lock_and_unlock(series->client, &series->tokens[series->pairs]))
            series->failed++;
        else
            series->pairs++;
        (void)poll(NULL, 0, 5); /* leave CPU time to the servers */
    }
    return NULL;
}

/* Wait until some more pairs are executed and reported, so that the stream
 * works before the next fault. */
static void await_progress(const struct series *series, const struct log *log)
{
    unsigned wanted = atomic_load(&series->pairs) + 5;

    while (atomic_load(&series->pairs) < wanted ||
           atomic_load(&log->count) < wanted * 2) {
        assert_int_equal(atomic_load(&log->dropped), 0);
        (void)poll(NULL, 0, 5);
    }
}

/* Make the stream fail at every member: at the old primary, where it may still
 * be open, and at the new primary. */
static void fail_stream(void)
{
    unsigned to = primary();
    long before = -1;

    for (unsigned i = 0; i < mongo.count; i++) {
        long failed = fail_with_code(i, "\"getMore\",\"aggregate\"",
                                     "{\"times\":3}", INTERNAL_ERROR);

        before = i == to ? failed : before;
    }
    await_failures(to, before + 3);
}

static void kill_primary(const struct series *series, const struct log *log)
{
    unsigned victim = primary();

    hf_test_mongo_kill(&mongo, victim);
    await_progress(series, log);
    assert_true(hf_test_mongo_restart(&mongo, victim));
}

static void expect_each_once(const struct log *log, const struct series *series)
{
    assert_int_equal(series->failed, 0);
    assert_int_equal(log->dropped, 0);
    assert_int_equal(log->count, series->pairs * 2);
    for (unsigned i = 0; i < log->count; i++) {
        const struct hf_event *event = &log->events[i];

        assert_int_equal(event->kind,
                         i % 2 ? HF_EVENT_RELEASED : HF_EVENT_GRANTED);
        assert_int_equal(event->token, series->tokens[i / 2]);
        assert_true(i == 0 || event->index > log->events[i - 1].index);
    }
}

/* Whatever happens to the primary and to the stream, each event is reported
 * exactly once, in order. */
static void a_watch_resumes_without_loss(void **state)
{
    struct series *series = calloc(1, sizeof(*series));
    struct log *log = new_log();
    struct hf_client *client;
    struct hf_watch *watch;

    (void)state;
    assert_non_null(series);
    hf_test_mongo_require(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    series->client = hf_test_mongo_open(&mongo, "");
    watch = open_watch(client, "k", log);
    assert_int_equal(pthread_create(&series->thread, NULL, series_main, series),
                     0);
    await_progress(series, log);
    assert_true(hf_test_mongo_step_down(&mongo) >= 0);
    await_progress(series, log);
    fail_stream();
    await_progress(series, log);
    kill_primary(series, log);
    await_progress(series, log);

    series->enough = true;
    assert_int_equal(pthread_join(series->thread, NULL), 0);
    await_logged(log, series->pairs * 2);
    expect_each_once(log, series);
    hf_watch_close(watch);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(series->client, TIMEOUT_MS));
    free(series);
    free(log);
}

/* A server does not end a stream when it steps down. If that server is
 * isolated, the stream neither delivers anything nor fails, so the client has
 * to move to the new primary. */
static void a_watch_follows_the_primary(void **state)
{
    struct log *log = new_log();
    struct hf_client *client, *other;
    struct hf_watch *watch;
    uint64_t tokens[2] = {0};

    (void)state;
    require_network(3);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    watch = open_watch(client, "k", log);
    expect_ok(lock_and_unlock(other, &tokens[0]));
    await_logged(log, 2);
    hf_test_network_cut_server(&network, (int)primary());
    expect_ok(lock_and_unlock(other, &tokens[1]));
    await_logged(log, 4);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(log->events[i].token, tokens[i / 2]);
    assert_int_equal(log->dropped, 0);

    hf_watch_close(watch);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
    free(log);
}

/* ---- Gaps ---------------------------------------------------------------*/

static bool is_logged(const struct log *log, enum hf_event_kind kind,
                      uint64_t token)
{
    unsigned count = atomic_load(&log->count);

    for (unsigned i = 0; i < count; i++)
        if (log->events[i].kind == kind && log->events[i].token == token)
            return true;
    return false;
}

/* Expect that indexes rise. An HF_EVENT_DROPPED may have the index of the event
 * after it. */
static void expect_order(const struct log *log)
{
    for (unsigned i = 1; i < log->count; i++) {
        const struct hf_event *last = &log->events[i - 1],
                              *next = &log->events[i];

        if (last->kind == HF_EVENT_DROPPED && next->kind != HF_EVENT_DROPPED)
            assert_true(next->index >= last->index);
        else
            assert_true(next->index > last->index);
    }
}

/* Make the server report lost history, `times` times in a row. At first it also
 * refuses ping, so the client does not know the cluster time and cannot restart
 * the stream: events until then are lost. `lost` receives the tokens of three
 * locks that are acquired and released meanwhile. */
static void lose_history(struct hf_client *client, uint64_t lost[3],
                         unsigned times, int code)
{
    char mode[32];
    long before = fail_with_code(0, "\"getMore\",\"aggregate\",\"ping\"",
                                 "\"alwaysOn\"", code);

    await_failures(0, before + 2);
    for (unsigned i = 0; i < 3; i++)
        expect_ok(lock_and_unlock(client, &lost[i]));
    (void)snprintf(mode, sizeof(mode), "{\"times\":%u}", times);
    before = fail_with_code(0, "\"aggregate\"", mode, code);
    await_failures(0, before + times);
}

/* Expect that the events are not reported, except the last event, which may be
 * the newest when the stream restarts. */
static void expect_lost(const struct log *log, const uint64_t lost[3])
{
    for (unsigned i = 0; i < 3; i++) {
        assert_false(is_logged(log, HF_EVENT_GRANTED, lost[i]));
        assert_false(i < 2 && is_logged(log, HF_EVENT_RELEASED, lost[i]));
    }
}

/* Lock and unlock until a release is reported. The first events may still be
 * lost. */
static void await_live(struct hf_client *client, const struct log *log)
{
    uint64_t token = 0;

    do {
        expect_ok(lock_and_unlock(client, &token));
        for (unsigned i = 0; i < 100; i++)
            if (!is_logged(log, HF_EVENT_RELEASED, token))
                (void)poll(NULL, 0, 5);
    } while (!is_logged(log, HF_EVENT_RELEASED, token));
}

static void lost_history_is_reported(void **state)
{
    struct log *log = new_log();
    struct hf_client *client, *other;
    struct hf_watch *watch;
    uint64_t lost[3] = {0};
    unsigned logged;

    (void)state;
    require_two_clients(1, &client, &other);
    watch = open_watch(client, "k", log);
    await_live(other, log);
    logged = log->count;
    assert_int_equal(log->dropped, 0);

    lose_history(other, lost, 1, HISTORY_LOST);
    await_logged(log, logged + 1);
    assert_int_equal(log->events[logged].kind, HF_EVENT_DROPPED);
    await_live(other, log);
    assert_int_equal(log->dropped, 1);
    expect_lost(log, lost);

    lose_history(other, lost, 3, FATAL_ERROR);
    await_live(other, log);
    assert_in_range(log->dropped, 2, 4);
    expect_lost(log, lost);
    expect_order(log);

    hf_watch_close(watch);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
    free(log);
}

/* ---- One stream ---------------------------------------------------------*/

/* Count the open cursors. Take the lowest of several samples, because other
 * work of the server may open a cursor for a moment. */
static long count_cursors(void)
{
    long fewest = -1;

    for (unsigned i = 0; i < 20; i++) {
        const char *reply =
            hf_test_mongo_command(&mongo, 0, "admin", "{\"serverStatus\":1}");
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
    struct hf_lock_opts opts = hf_test_opts(60000, HF_FOREVER, TIMEOUT_MS);
    struct hf_lock *held = NULL, *locks[WAITERS] = {NULL};
    struct hf_future *futures[WAITERS] = {NULL};
    struct hf_watch *watch[WATCHES];
    struct log *log[WATCHES];
    struct hf_client *client, *other;
    enum hf_err err = HF_ECANCELED;
    uint64_t token;
    long before;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    other = hf_test_mongo_open(&mongo, "");
    client = hf_test_mongo_open(&mongo, "");
    before = count_cursors();
    expect_ok(hf_acquire(other, hf_key_of("held"), &opts, &held));
    for (unsigned i = 0; i < WAITERS; i++)
        expect_ok(hf_acquire_start(client, hf_key_of("held"), &opts, &locks[i],
                                   NULL, NULL, &futures[i]));
    await_queue_length(WAITERS);
    for (unsigned i = 0; i < WATCHES; i++) {
        log[i] = new_log();
        watch[i] = open_watch(client, prefixes[i], log[i]);
    }
    expect_ok(lock_and_unlock(other, &token));
    for (unsigned i = 0; i < WATCHES; i++)
        await_logged(log[i], 2);
    assert_int_equal(count_cursors(), before + 1);

    expect_ok(hf_release(held));
    for (unsigned i = 0; i < WAITERS; i++) {
        expect_ok(hf_future_wait(futures[i], TIMEOUT_MS, &err));
        expect_ok(err);
        expect_ok(hf_release(locks[i]));
        hf_future_free(futures[i]);
        hf_lock_free(locks[i]);
    }
    for (unsigned i = 0; i < WATCHES; i++)
        hf_watch_close(watch[i]);
    hf_lock_free(held);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
    for (unsigned i = 0; i < WATCHES; i++)
        free(log[i]);
}

/* ---- Expired leases -----------------------------------------------------*/

struct waiter {
    struct hf_lock *held, *lock;
    struct hf_future *future;
    int64_t began;
    _Atomic int64_t took;
};

static void on_granted(enum hf_err err, void *arg)
{
    struct waiter *waiter = arg;

    waiter->took = err ? INT64_MAX : now_ms() - waiter->began;
}

static int compare_times(const void *left, const void *right)
{
    const int64_t *one = left, *two = right;

    return (*one > *two) - (*one < *two);
}

/* Return the lower quartile of how long waiters wait for abandoned locks. */
static int64_t wait_for_expiries(struct hf_client *client,
                                 struct hf_client *other, unsigned round)
{
    struct hf_lock_opts brief = hf_test_opts(1300, TIMEOUT_MS, TIMEOUT_MS);
    struct hf_lock_opts waits = hf_test_opts(60000, HF_FOREVER, TIMEOUT_MS);
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
                                   &waiter->lock, on_granted, waiter,
                                   &waiter->future));
    }
    for (unsigned i = 0; i < EXPIRIES; i++) {
        enum hf_err err = HF_ECANCELED;

        expect_ok(hf_future_wait(waiters[i].future, TIMEOUT_MS, &err));
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
    qsort(took, EXPIRIES, sizeof(took[0]), compare_times);
    return took[EXPIRIES / 4];
}

/* A waiter that polled once a second would poll before the lease expires, and
 * then only when two seconds have passed. On a busy machine any round may take
 * that long, but not every round does. */
static void a_waiter_is_granted_the_key_when_the_lease_expires(void **state)
{
    struct hf_client *client, *other;
    int64_t took = INT64_MAX;

    (void)state;
    require_two_clients(1, &client, &other);
    for (unsigned round = 0; took >= 1950; round++)
        took = wait_for_expiries(client, other, round);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* The lease is so long that no renewal is due during the case, so only the
 * event of the change stream can report the forced end. */
static void a_watching_holder_notices_a_forced_end_at_once(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(86400000, 0, TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL;
    struct log *log = new_log();
    struct hf_watch *watch;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    other = hf_test_mongo_open(&mongo, "");
    client = hf_test_mongo_open(&mongo, "");
    watch = open_watch(client, "", log);
    opts.renew = true;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    await_logged(log, 1);
    expect_ok(hf_force(other, hf_key_of("k"), hf_lock_token(lock), true));
    while (hf_lock_state(lock) != HF_LOCK_LOST)
        (void)poll(NULL, 0, 5);
    assert_false(hf_lock_valid_for(lock, 0));
    hf_watch_close(watch);
    hf_lock_free(lock);
    (void)hf_close(client, TIMEOUT_MS);
    (void)hf_close(other, TIMEOUT_MS);
    free(log);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_watch_resumes_without_loss),
        CASE(a_watch_follows_the_primary),
        CASE(lost_history_is_reported),
        CASE(a_client_has_one_stream),
        CASE(a_waiter_is_granted_the_key_when_the_lease_expires),
        CASE(a_watching_holder_notices_a_forced_end_at_once),
    };

    return hf_test_main("mongo streams", cases, HF_TEST_COUNT(cases), 4);
}
