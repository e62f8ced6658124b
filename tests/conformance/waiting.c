/* waiting.c - the queue of a key; hf_wait_held() and hf_wait_free(). */
#include "conformance/trace.h"
#include "lib/recorded.h"

#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

/* GO-06, MN-03: release a key for which a claim waits, and expect its grant.
 * The lease would expire much later. Returns the time from the claim to the
 * grant. */
static int64_t granted_on_release(unsigned round)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, HF_FOREVER);
    struct hf_key key = suite_key_number("k", round);
    struct suite_lock_events reported = {0};
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *claim = NULL;
    int64_t claimed_at = 0, took = 0;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    claimed_at = suite_now_ms();
    claim = trace_start_waiter(other, key, opts, &reported, &next);
    assert_false(hf_future_done(claim, NULL));
    expect_ok(recorded_release(holder, lock));
    expect_ok(suite_future_result(claim, SUITE_TIMEOUT_MS));
    took = suite_now_ms() - claimed_at;

    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(holder);
    suite_close(other);
    return took;
}

/* GO-06 */
static void a_waiter_is_granted_on_release(void)
{
    (void)granted_on_release(0);
}

/* A waiter also polls, in case a push is lost, but never sooner than this after
 * its claim: a grant that arrives earlier was pushed. Fast strategies get a
 * stricter bound. */
#define POLL_AFTER_MS (suite_slowness() > 100 ? 1000 : 200)
#define EVENTS_TRIED 50

/* MN-03: a grant that arrives before the client polls was pushed. On a busy
 * machine, some grants arrive later. */
static void a_release_is_pushed_to_the_waiter(void)
{
    for (unsigned round = 0; round < EVENTS_TRIED; round++)
        if (granted_on_release(round) < POLL_AFTER_MS)
            return;
    fail_msg("none of %d grants came before the waiter polled", EVENTS_TRIED);
}

/* MN-03 */
static void the_ttl_starts_at_the_grant(void)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct hf_key key = suite_key("k");
    struct suite_lock_events reported = {0};
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *claim = NULL;
    int64_t released = 0;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    claim = trace_start_waiter(other, key, opts, &reported, &next);
    suite_sleep(500);
    released = suite_now_ms();
    expect_ok(recorded_release(holder, lock));
    expect_ok(suite_future_result(claim, SUITE_TIMEOUT_MS));

    assert_in_range(hf_lock_deadline(next), released + SUITE_LONG_TTL_MS,
                    suite_now_ms() + SUITE_LONG_TTL_MS);
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(holder);
    suite_close(other);
}

struct release_later {
    struct hf_client *client;
    struct hf_lock *lock;
    struct hf_client *waiter;
    struct hf_key key;
    struct suite_lock_events reported;
    enum hf_err released, granted;
    struct hf_lock *next;
};

static void release_or_wait(unsigned number, void *arg)
{
    struct release_later *later = arg;

    if (number == 0) {
        (void)suite_await(&later->reported.waiting, 1, NULL);
        later->released = recorded_release(later->client, later->lock);
    } else {
        struct hf_lock_opts opts =
            suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);

        opts.on_event = suite_on_lock_event;
        opts.arg = &later->reported;
        later->granted =
            recorded_acquire(later->waiter, later->key, &opts, &later->next);
    }
}

static void a_blocking_waiter_is_granted_by_another_thread(void)
{
    struct release_later later = {
        .client = suite_open(),
        .waiter = suite_open(),
        .key = suite_key("k"),
    };
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);

    expect_ok(recorded_acquire(later.client, later.key, &opts, &later.lock));
    suite_threads(2, release_or_wait, &later);

    expect_ok(later.released);
    expect_ok(later.granted);
    assert_true(hf_lock_token(later.next) > hf_lock_token(later.lock));
    hf_lock_free(later.lock);
    hf_lock_free(later.next);
    suite_close(later.client);
    suite_close(later.waiter);
}

#define WAITERS 8

/* MN-01 */
static void waiters_are_granted_in_order_of_arrival(void)
{
    struct hf_client *holder = suite_open(), *others[WAITERS];
    struct suite_lock_events reported[WAITERS] = {{0}};
    struct hf_future *claims[WAITERS];
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *next[WAITERS] = {NULL};
    struct hf_key key = suite_key("k");
    uint64_t last = 0;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    for (unsigned i = 0; i < WAITERS; i++) {
        others[i] = suite_open_background();
        claims[i] =
            trace_start_waiter(others[i], key, opts, &reported[i], &next[i]);
    }
    last = hf_lock_token(lock);
    expect_ok(recorded_release(holder, lock));
    for (unsigned i = 0; i < WAITERS; i++) {
        expect_ok(suite_future_result(claims[i], SUITE_TIMEOUT_MS));
        assert_true(hf_lock_token(next[i]) > last);
        last = hf_lock_token(next[i]);
        for (unsigned j = i + 1; j < WAITERS; j++)
            assert_false(hf_future_done(claims[j], NULL));
        expect_ok(recorded_release(others[i], next[i]));
        hf_lock_free(next[i]);
    }

    for (unsigned i = 0; i < WAITERS; i++)
        suite_close(others[i]);
    hf_lock_free(lock);
    suite_close(holder);
}

static void waiters_of_one_client_are_granted_in_order(void)
{
    struct hf_client *client = suite_open_background();
    struct suite_lock_events reported[WAITERS] = {{0}};
    struct hf_future *claims[WAITERS];
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *next[WAITERS] = {NULL};
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(client, key, &opts, &lock));
    for (unsigned i = 0; i < WAITERS; i++)
        claims[i] =
            trace_start_waiter(client, key, opts, &reported[i], &next[i]);
    for (unsigned i = 0; i < WAITERS; i++) {
        expect_ok(recorded_release(client, lock));
        hf_lock_free(lock);
        expect_ok(suite_future_result(claims[i], SUITE_TIMEOUT_MS));
        lock = next[i];
    }
    hf_lock_free(lock);
    suite_close(client);
}

struct place {
    _Atomic unsigned reported;
    _Atomic unsigned place;
};

static void note_position(struct hf_lock *lock, enum hf_lock_event event,
                          void *arg)
{
    struct place *place = arg;

    if (event != HF_LOCK_EVENT_WAITING)
        return;
    atomic_store(&place->place, hf_lock_position(lock));
    atomic_fetch_add(&place->reported, 1);
}

static void a_waiter_knows_its_position(void)
{
    struct hf_client *client = suite_open_background();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct hf_future *claims[3];
    struct place places[3] = {{0}};
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_key key = suite_key("k");
    struct hf_info info;

    expect_ok(recorded_acquire(client, key, &opts, &lock));
    assert_int_equal(hf_lock_position(lock), 0);
    for (unsigned i = 0; i < 3; i++) {
        opts.on_event = note_position;
        opts.arg = &places[i];
        expect_ok(recorded_acquire_start(client, key, &opts, &none, NULL, NULL,
                                         &claims[i]));
        assert_true(suite_await(&places[i].reported, 1, NULL));
    }

    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(places[i].place, i + 1);
    expect_ok(recorded_read(client, key, &info));
    assert_int_equal(info.waiters, 3);
    hf_info_fini(&info);
    for (unsigned i = 0; i < 3; i++) {
        hf_future_cancel(claims[i]);
        suite_expect_withdrawn(suite_future_result(claims[i], SUITE_TIMEOUT_MS),
                               HF_ECANCELED);
        assert_int_equal(places[i].reported, 1);
    }
    hf_lock_free(lock);
    suite_close(client);
}

/* GO-07, MJ-08: no wait ends early, not even a very short one. */
static void a_claim_times_out_not_before_its_wait(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 300);
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL;
    unsigned claimed_at = 0;
    int64_t began = 0;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    began = suite_now_ms();
    claimed_at = suite_expect_timeout(other, key, &opts);

    assert_true(suite_now_ms() - began >= 299 * (int64_t)claimed_at);
    assert_true(recorded_is_valid(holder, lock));
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
}

/* LK-22: once the withdrawal is confirmed, the claim is not in the queue.
 * Returns false if it was not confirmed. */
static bool leaves_queue(unsigned round)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 20);
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key_number("k", round);
    struct hf_info info;
    bool confirmed = false;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    confirmed = suite_expect_timeout(other, key, &opts) == 1;

    expect_ok(recorded_read(holder, key, &info));
    assert_true(info.waiters == 0 || !confirmed);
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
    return confirmed;
}

static void a_timed_out_claim_leaves_the_queue(void)
{
    suite_repeat(leaves_queue);
}

/* LK-23, G2-14 */
static void a_closed_waiter_is_skipped(void)
{
    struct hf_client *holder = suite_open();
    struct hf_client *closed = suite_open_background();
    struct hf_client *other = suite_open_background();
    struct suite_lock_events reported[2] = {{0}};
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct hf_future *dead = NULL, *alive = NULL;
    struct hf_lock *lock = NULL, *none = NULL, *next = NULL;
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    dead = trace_start_waiter(closed, key, opts, &reported[0], &none);
    alive = trace_start_waiter(other, key, opts, &reported[1], &next);
    suite_close(closed);
    expect_err(suite_future_result(dead, 0), HF_ECLOSED);
    expect_ok(recorded_release(holder, lock));

    expect_ok(suite_future_result(alive, SUITE_TIMEOUT_MS));
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(holder);
    suite_close(other);
}

static void a_canceled_waiter_is_skipped(void)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    struct suite_lock_events reported[2] = {{0}};
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct hf_future *canceled = NULL, *alive = NULL;
    struct hf_lock *lock = NULL, *none = NULL, *next = NULL;
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    canceled = trace_start_waiter(other, key, opts, &reported[0], &none);
    alive = trace_start_waiter(other, key, opts, &reported[1], &next);
    hf_future_cancel(canceled);
    suite_expect_withdrawn(suite_future_result(canceled, SUITE_TIMEOUT_MS),
                           HF_ECANCELED);
    expect_ok(recorded_release(holder, lock));

    expect_ok(suite_future_result(alive, SUITE_TIMEOUT_MS));
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(holder);
    suite_close(other);
}

static void a_late_cancel_has_no_effect(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock *lock = NULL;
    struct hf_future *future = NULL;
    struct hf_key key = suite_key("k");
    enum hf_err err = HF_ECANCELED;

    expect_ok(
        recorded_acquire_start(client, key, NULL, &lock, NULL, NULL, &future));
    expect_ok(recorded_future_wait(future, SUITE_TIMEOUT_MS, &err));
    hf_future_cancel(future);

    assert_true(hf_future_done(future, &err));
    expect_ok(err);
    assert_true(hf_lock_valid_for(lock, 0));
    hf_future_free(future);
    hf_lock_free(lock);
    suite_close(client);
}

/* MJ-07: a waiting thread sleeps until a message or a timer wakes it. Count its
 * wake-ups, and measure its CPU time. */
static void waiting_does_not_spin(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 1500);
    struct hf_lock *lock = NULL, *none = NULL;
    struct rusage before, after;
    struct hf_key key = suite_key("k");
    int64_t began = suite_now_ms();
    long wakeups = 0, cpu_ms = 0;
    enum hf_err err = HF_OK;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    (void)getrusage(RUSAGE_THREAD, &before);
    err = recorded_acquire(other, key, &opts, &none);
    (void)getrusage(RUSAGE_THREAD, &after);
    suite_expect_withdrawn(err, HF_ETIMEDOUT);

    wakeups = after.ru_nvcsw - before.ru_nvcsw;
    cpu_ms = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000 +
             (after.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1000;
    /* Allow a few wake-ups, and more if the machine was slow and the wait took
     * longer. */
    assert_in_range(wakeups, 1, 40 + (suite_now_ms() - began) / 50);
    assert_in_range(cpu_ms, 0, 100 * hf_test_slowness());
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
}

static unsigned count_done(struct hf_future *const claims[WAITERS])
{
    unsigned done = 0;

    for (unsigned i = 0; i < WAITERS; i++)
        done += hf_future_done(claims[i], NULL);
    return done;
}

/* A release causes no thundering herd. */
static void a_release_wakes_only_the_next_waiter(void)
{
    struct hf_client *holder = suite_open(), *others[WAITERS];
    struct suite_lock_events reported[WAITERS] = {{0}};
    struct hf_future *claims[WAITERS];
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *next[WAITERS] = {NULL};
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    for (unsigned i = 0; i < WAITERS; i++) {
        others[i] = suite_open_background();
        claims[i] =
            trace_start_waiter(others[i], key, opts, &reported[i], &next[i]);
    }
    expect_ok(recorded_release(holder, lock));
    while (count_done(claims) == 0)
        suite_sleep(10);
    suite_sleep(300);

    assert_int_equal(count_done(claims), 1);
    for (unsigned i = 0; i < WAITERS; i++) {
        bool is_granted = hf_future_done(claims[i], NULL);

        hf_future_cancel(claims[i]);
        suite_expect_withdrawn(suite_future_result(claims[i], SUITE_TIMEOUT_MS),
                               is_granted ? HF_OK : HF_ECANCELED);
    }
    for (unsigned i = 0; i < WAITERS; i++) {
        suite_close(others[i]);
        hf_lock_free(next[i]);
    }
    hf_lock_free(lock);
    suite_close(holder);
}

/* ---- hf_wait_held() -----------------------------------------------------*/

/* LK-19 */
static void wait_held_returns_at_once_if_held(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");
    struct hf_info info;

    opts.note = "here";
    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    expect_ok(hf_wait_held(other, key, 0, &info));

    assert_true(info.held);
    assert_int_equal(info.token, hf_lock_token(lock));
    assert_string_equal(info.note, "here");
    hf_info_fini(&info);
    expect_ok(hf_wait_held(other, key, HF_FOREVER, NULL));
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
}

/* LK-19 */
static void wait_held_wakes_on_a_grant(void)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");
    struct hf_info info = {.held = false};
    enum hf_err err = HF_ECANCELED;

    expect_ok(
        hf_wait_held_start(other, key, HF_FOREVER, &info, NULL, NULL, &future));
    suite_sleep(100);
    assert_false(hf_future_done(future, NULL));
    expect_ok(recorded_acquire(holder, key, NULL, &lock));
    expect_ok(hf_future_wait(future, SUITE_TIMEOUT_MS, &err));

    expect_ok(err);
    assert_true(info.held);
    assert_int_equal(info.token, hf_lock_token(lock));
    hf_info_fini(&info);
    hf_future_free(future);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
}

/* LK-19 */
static void wait_held_times_out(void)
{
    struct hf_client *client = suite_open();
    int64_t began = suite_now_ms();

    expect_err(hf_wait_held(client, suite_key("k"), 200, NULL), HF_ETIMEDOUT);

    assert_true(suite_now_ms() - began >= 199);
    suite_close(client);
}

#define WAKES 1000

/* LK-20 */
static void wait_held_misses_no_grant(void)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();

    suite_lower_priority();
    for (unsigned i = 0; i < WAKES; i++) {
        struct hf_key key = suite_key_number("k", i);
        struct hf_future *future = NULL;
        struct hf_lock *lock = NULL;
        enum hf_err err = HF_ECANCELED;

        expect_ok(hf_wait_held_start(other, key, HF_FOREVER, NULL, NULL, NULL,
                                     &future));
        expect_ok(recorded_acquire(holder, key, NULL, &lock));
        expect_ok(hf_future_wait(future, SUITE_TIMEOUT_MS, &err));
        expect_ok(err);
        hf_future_free(future);
        expect_ok(recorded_release(holder, lock));
        hf_lock_free(lock);
    }
    suite_close(holder);
    suite_close(other);
}

static void acquire_and_release(struct hf_client *holder, struct hf_key key)
{
    struct hf_lock *lock = NULL;

    expect_ok(recorded_acquire(holder, key, NULL, &lock));
    expect_ok(recorded_release(holder, lock));
    hf_lock_free(lock);
}

#define COME_AGAIN_MS 200

/* LK-20: a grant is noticed even if the lock is released before the client can
 * read the key. */
static void wait_held_sees_a_lock_that_was_released_again(void)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();

    for (unsigned i = 0; i < 50; i++) {
        unsigned tries = SUITE_TIMEOUT_MS / COME_AGAIN_MS;
        struct hf_key key = suite_key_number("k", i);
        struct hf_future *future = NULL;
        struct hf_info info;
        enum hf_err err = HF_ECANCELED;

        expect_ok(hf_wait_held_start(other, key, HF_FOREVER, NULL, NULL, NULL,
                                     &future));
        /* When a read returns, the wait has usually started. A lock that is
         * released before the wait starts is not seen. */
        expect_ok(recorded_read(other, key, &info));
        hf_info_fini(&info);
        do
            acquire_and_release(holder, key);
        while (hf_future_wait(future, COME_AGAIN_MS, &err) == HF_ETIMEDOUT &&
               --tries > 0);
        expect_ok(err);
        hf_future_free(future);
    }
    suite_close(holder);
    suite_close(other);
}

/* ---- hf_wait_free() -----------------------------------------------------*/

/* LK-21 */
static void wait_free_returns_at_once_if_free(void)
{
    struct hf_client *client = suite_open();
    enum hf_freed freed = HF_FREED_UNSEEN;

    expect_ok(hf_wait_free(client, suite_key("k"), 0, &freed));

    assert_int_equal(freed, HF_FREED_ALREADY);
    expect_ok(hf_wait_free(client, suite_key("k"), HF_FOREVER, NULL));
    suite_close(client);
}

/* Start to wait until `key` is free. When this returns, the wait has usually
 * started at the server. */
static struct hf_future *start_wait_free(struct hf_client *client,
                                         struct hf_key key,
                                         enum hf_freed *freed, unsigned round)
{
    struct hf_future *future = NULL;
    struct hf_info info;

    expect_ok(hf_wait_free_start(client, key, HF_FOREVER, freed, NULL, NULL,
                                 &future));
    suite_sleep(50 << round);
    expect_ok(recorded_read(client, key, &info));
    hf_info_fini(&info);
    assert_false(hf_future_done(future, NULL));
    return future;
}

/* Wait for the result and expect the reason `wanted`. Returns false if the key
 * was free before the wait started. */
static bool is_freed(struct hf_future *future, const enum hf_freed *freed,
                     enum hf_freed wanted)
{
    enum hf_err err = HF_ECANCELED;

    expect_ok(hf_future_wait(future, SUITE_TIMEOUT_MS, &err));
    expect_ok(err);
    hf_future_free(future);
    if (*freed == HF_FREED_ALREADY)
        return false;
    assert_int_equal(*freed, wanted);
    return true;
}

/* LK-21 */
static bool wakes_on_release(unsigned round)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key_number("k", round);
    enum hf_freed freed = HF_FREED_UNSEEN;
    bool reported = false;

    expect_ok(recorded_acquire(holder, key, NULL, &lock));
    future = start_wait_free(other, key, &freed, round);
    expect_ok(recorded_release(holder, lock));

    reported = is_freed(future, &freed, HF_FREED_RELEASED);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
    return reported;
}

static void wait_free_wakes_on_release(void)
{
    suite_repeat(wakes_on_release);
}

/* LK-21. Returns false if the lease expired before the wait started. */
static bool wakes_on_expiry(unsigned round)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    struct hf_lock_opts short_opts =
        suite_opts(suite_longer_ms(300, round), SUITE_TIMEOUT_MS);
    enum hf_freed freed = HF_FREED_UNSEEN;
    struct hf_key key = suite_key_number("k", round);
    struct hf_lock *lock = NULL;

    expect_ok(recorded_acquire(holder, key, &short_opts, &lock));
    expect_ok(hf_wait_free(other, key, HF_FOREVER, &freed));

    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
    return freed == HF_FREED_EXPIRED;
}

static void wait_free_wakes_on_expiry(void)
{
    suite_repeat(wakes_on_expiry);
}

/* LK-21, LK-11 */
static void wait_free_never_reports_an_expiry_early(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts short_opts =
        suite_opts(suite_short_ttl_ms(500), SUITE_TIMEOUT_MS);
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL;
    int64_t deadline = 0;

    expect_ok(recorded_acquire(holder, key, &short_opts, &lock));
    deadline = hf_lock_deadline(lock);
    expect_ok(hf_wait_free(other, key, SUITE_TIMEOUT_MS, NULL));

    assert_true(suite_now_ms() >= deadline);
    assert_false(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
}

static bool wakes_on_force(unsigned round)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key_number("k", round);
    enum hf_freed freed = HF_FREED_UNSEEN;
    bool reported = false;

    expect_ok(recorded_acquire(holder, key, NULL, &lock));
    future = start_wait_free(other, key, &freed, round);
    expect_ok(recorded_force_now(holder, key, hf_lock_token(lock)));

    reported = is_freed(future, &freed, HF_FREED_FORCED);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
    return reported;
}

static void wait_free_wakes_on_force(void)
{
    suite_repeat(wakes_on_force);
}

/* LK-21 */
static void wait_free_times_out(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");
    int64_t began = 0;

    expect_ok(recorded_acquire(holder, key, NULL, &lock));
    began = suite_now_ms();
    expect_err(hf_wait_free(other, key, 200, NULL), HF_ETIMEDOUT);

    assert_true(suite_now_ms() - began >= 199);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
}

/* LK-22 */
static bool failed_release_wakes_none(unsigned round)
{
    static const uint8_t bogus[HF_NONCE_SIZE] = {"no such nonce"};
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL, *forged = NULL;
    struct hf_key key = suite_key_number("k", round);
    enum hf_freed freed = HF_FREED_UNSEEN;
    bool heard_last = false;

    expect_ok(recorded_acquire(holder, key, NULL, &lock));
    future = start_wait_free(other, key, &freed, round);
    expect_ok(
        hf_lock_adopt(holder, key, bogus, hf_lock_token(lock), NULL, &forged));
    expect_err(recorded_release(holder, forged), HF_ENOTOWNER);
    suite_sleep(300);

    assert_false(hf_future_done(future, NULL));
    expect_ok(recorded_release(holder, lock));
    heard_last = is_freed(future, &freed, HF_FREED_RELEASED);
    hf_lock_free(forged);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
    return heard_last;
}

static void a_failed_release_wakes_no_waiter(void)
{
    suite_repeat(failed_release_wakes_none);
}

/* LK-22: a key that is handed over to the next waiter was never free, so
 * hf_wait_free() continues. Returns false if the last release came before the
 * wait started. */
static bool handover_wakes_none(unsigned round)
{
    struct hf_client *holder = suite_open();
    struct hf_client *next_client = suite_open_background();
    struct hf_client *other = suite_open_background();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct suite_lock_events reported = {0};
    struct hf_future *future = NULL;
    struct hf_future *claim = NULL;
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_key key = suite_key_number("k", round);
    enum hf_freed freed = HF_FREED_UNSEEN;
    bool heard_last = false;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    claim = trace_start_waiter(next_client, key, opts, &reported, &next);
    future = start_wait_free(other, key, &freed, round);
    expect_ok(recorded_release(holder, lock));
    expect_ok(suite_future_result(claim, SUITE_TIMEOUT_MS));
    suite_sleep(100);

    assert_false(hf_future_done(future, NULL));
    expect_ok(recorded_release(next_client, next));
    heard_last = is_freed(future, &freed, HF_FREED_RELEASED);
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(holder);
    suite_close(next_client);
    suite_close(other);
    return heard_last;
}

static void a_handover_does_not_end_wait_free(void)
{
    suite_repeat(handover_wakes_none);
}

/* LK-22: events of keys that begin with the awaited key are ignored. Returns
 * false if the last release came before the wait started. */
static bool longer_key_wakes_none(unsigned round)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    const unsigned number = round + 1, longer_number = 10 * number;
    struct hf_key key = suite_key_number("k", number);
    struct hf_key nobody = suite_key_number("n", number);
    struct hf_future *held_future = NULL, *free_future = NULL;
    struct hf_lock *lock = NULL, *longer = NULL;
    enum hf_freed freed = HF_FREED_UNSEEN;
    bool heard_last = false;

    expect_ok(recorded_acquire(holder, key, NULL, &lock));
    free_future = start_wait_free(other, key, &freed, round);
    expect_ok(hf_wait_held_start(other, nobody, HF_FOREVER, NULL, NULL, NULL,
                                 &held_future));
    expect_ok(recorded_acquire(holder, suite_key_number("k", longer_number),
                               NULL, &longer));
    expect_ok(recorded_release(holder, longer));
    hf_lock_free(longer);
    expect_ok(recorded_acquire(holder, suite_key_number("n", longer_number),
                               NULL, &longer));
    suite_sleep(100);

    assert_false(hf_future_done(free_future, NULL));
    assert_false(hf_future_done(held_future, NULL));
    expect_ok(recorded_release(holder, lock));
    heard_last = is_freed(free_future, &freed, HF_FREED_RELEASED);
    hf_future_free(held_future);
    hf_lock_free(lock);
    hf_lock_free(longer);
    suite_close(holder);
    suite_close(other);
    return heard_last;
}

static void wait_free_ignores_longer_keys(void)
{
    suite_repeat(longer_key_wakes_none);
}

static const struct promise promises[] = {
    PROMISE(a_waiter_is_granted_on_release, 0),
    PROMISE(a_release_is_pushed_to_the_waiter, HF_CAP_PUSH),
    PROMISE(the_ttl_starts_at_the_grant, 0),
    PROMISE(a_blocking_waiter_is_granted_by_another_thread, 0),
    PROMISE(waiters_are_granted_in_order_of_arrival, HF_CAP_FIFO),
    PROMISE(waiters_of_one_client_are_granted_in_order, HF_CAP_FIFO),
    PROMISE(a_waiter_knows_its_position, HF_CAP_FIFO),
    PROMISE(a_claim_times_out_not_before_its_wait, 0),
    PROMISE(a_timed_out_claim_leaves_the_queue, 0),
    PROMISE(a_closed_waiter_is_skipped, 0),
    PROMISE(a_canceled_waiter_is_skipped, 0),
    PROMISE(a_late_cancel_has_no_effect, 0),
    PROMISE(waiting_does_not_spin, HF_CAP_PUSH),
    PROMISE(a_release_wakes_only_the_next_waiter, 0),
    PROMISE(wait_held_returns_at_once_if_held, 0),
    PROMISE(wait_held_wakes_on_a_grant, 0),
    PROMISE(wait_held_times_out, 0),
    PROMISE(wait_held_misses_no_grant, HF_CAP_WATCH),
    PROMISE(wait_held_sees_a_lock_that_was_released_again, HF_CAP_WATCH),
    PROMISE(wait_free_returns_at_once_if_free, 0),
    PROMISE(wait_free_wakes_on_release, HF_CAP_WATCH),
    PROMISE(wait_free_wakes_on_expiry, HF_CAP_WATCH),
    PROMISE(wait_free_never_reports_an_expiry_early, HF_CAP_WATCH),
    PROMISE(wait_free_wakes_on_force, HF_CAP_WATCH),
    PROMISE(wait_free_times_out, 0),
    PROMISE(a_failed_release_wakes_no_waiter, HF_CAP_WATCH),
    PROMISE(a_handover_does_not_end_wait_free, HF_CAP_WATCH),
    PROMISE(wait_free_ignores_longer_keys, HF_CAP_WATCH),
};

const struct chapter chapter_waiting = CHAPTER(promises);
