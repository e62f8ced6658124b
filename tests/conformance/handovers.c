/* handovers.c - a grant ends while claims wait: which waiter is granted the
 * key, and which events are reported. docs/semantics.md refers to these
 * cases. */
#include "conformance/trace.h"
#include "lib/recorded.h"

/* A key with a holder, a waiter and a watch. */
struct contest {
    struct hf_client *holder, *other, *watcher;
    struct hf_key key;
    struct trace trace;
    struct suite_lock_events reported;
    struct hf_watch *watch;
    struct hf_lock *lock, *next;
    struct hf_future *claim;
};

static void contest_init(struct contest *contest, struct hf_key key,
                         uint32_t ttl_ms)
{
    struct hf_lock_opts opts = suite_opts(ttl_ms, SUITE_TIMEOUT_MS);

    *contest = (struct contest){.key = key};
    contest->holder = trace_open_as("the holder");
    contest->other = trace_open_as("the waiter");
    contest->watcher = suite_open();
    contest->watch = trace_start(contest->watcher, key, &contest->trace);
    expect_ok(recorded_acquire(contest->holder, key, &opts, &contest->lock));
    opts.ttl_ms = SUITE_LONG_TTL_MS;
    opts.on_event = suite_on_lock_event;
    opts.arg = &contest->reported;
    expect_ok(recorded_acquire_start(contest->other, key, &opts, &contest->next,
                                     NULL, NULL, &contest->claim));
}

static void contest_await_waiter(struct contest *contest)
{
    assert_true(suite_await(&contest->reported.waiting, 1, NULL));
}

static void contest_fini(struct contest *contest)
{
    hf_watch_close(contest->watch);
    hf_lock_free(contest->lock);
    hf_lock_free(contest->next);
    suite_close(contest->holder);
    suite_close(contest->other);
    suite_close(contest->watcher);
}

/* Expect two events from `at` on: `kind`, which ends the first grant, and
 * GRANTED. */
static void expect_handed_over(const struct contest *contest, unsigned at,
                               enum hf_event_kind kind)
{
    const struct trace *trace = &contest->trace;

    trace_expect(
        trace, at,
        (struct expected_event){kind, hf_lock_token(contest->lock), false});
    assert_string_equal(trace->owners[at], "the holder");
    trace_expect(trace, at + 1,
                 (struct expected_event){HF_EVENT_GRANTED,
                                         hf_lock_token(contest->next), false});
    assert_string_equal(trace->owners[at + 1], "the waiter");
    assert_true(trace->events[at + 1].index > trace->events[at].index);
    assert_true(hf_lock_token(contest->next) > hf_lock_token(contest->lock));
}

static void a_forced_handover_does_not_free_the_key(void)
{
    struct contest contest;

    contest_init(&contest, suite_key("k"), SUITE_LONG_TTL_MS);
    contest_await_waiter(&contest);
    expect_ok(recorded_force_now(contest.watcher, contest.key,
                                 hf_lock_token(contest.lock)));
    expect_ok(suite_future_result(contest.claim, SUITE_TIMEOUT_MS));

    assert_true(suite_await(&contest.trace.count, 4, contest.watcher));
    trace_expect(&contest.trace, 1,
                 (struct expected_event){HF_EVENT_QUEUED, 0, false});
    assert_string_equal(contest.trace.owners[1], "the waiter");
    expect_handed_over(&contest, 2, HF_EVENT_FORCED);
    contest_fini(&contest);
}

/* Returns false if the lease expired before the second claim was in the queue,
 * or if the client had to renew the lock before hf_acquire() returned. */
static bool expiry_grants_waiter(unsigned round)
{
    struct contest contest;
    bool waited = false;

    contest_init(&contest, suite_key_number("k", round),
                 suite_longer_ms(suite_short_ttl_ms(400), round));
    expect_ok(suite_future_result(contest.claim, SUITE_TIMEOUT_MS));
    assert_true(suite_await(&contest.trace.count, 3, contest.watcher));
    waited = contest.trace.events[0].token == hf_lock_token(contest.lock) &&
             contest.trace.events[1].kind == HF_EVENT_QUEUED &&
             contest.trace.events[2].kind == HF_EVENT_EXPIRED;
    if (waited) {
        assert_true(suite_await(&contest.trace.count, 4, contest.watcher));
        expect_handed_over(&contest, 2, HF_EVENT_EXPIRED);
        assert_false(hf_lock_valid_for(contest.lock, 0));
    }
    contest_fini(&contest);
    return waited;
}

static void an_expiry_grants_the_first_waiter(void)
{
    suite_repeat(expiry_grants_waiter);
}

static void closing_a_client_withdraws_its_waiters(void)
{
    struct hf_client *holder = suite_open(), *watcher = suite_open();
    struct hf_client *closed = trace_open_as("the waiter");
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct hf_key key = suite_key("k");
    struct trace trace = {0};
    struct suite_lock_events reported[2] = {{0}};
    struct hf_watch *watch = trace_start(watcher, key, &trace);
    struct hf_lock *lock = NULL, *none[2] = {NULL};
    struct hf_future *claims[2];
    struct hf_info info;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    for (unsigned i = 0; i < 2; i++)
        claims[i] =
            trace_start_waiter(closed, key, opts, &reported[i], &none[i]);
    suite_close(closed);
    for (unsigned i = 0; i < 2; i++)
        expect_err(suite_future_result(claims[i], 0), HF_ECLOSED);

    expect_ok(recorded_read(holder, key, &info));
    assert_int_equal(info.waiters, 0);
    assert_int_equal(info.token, hf_lock_token(lock));
    hf_info_fini(&info);
    assert_true(suite_await(&trace.count, 5, watcher));
    for (unsigned i = 3; i < 5; i++) {
        trace_expect(&trace, i,
                     (struct expected_event){HF_EVENT_WITHDRAWN, 0, false});
        assert_string_equal(trace.owners[i], "the waiter");
    }
    hf_watch_close(watch);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(watcher);
}

/* Validity ends before the lease expires, so a lock that the client counts as
 * lost may still be held on the server. hf_release() then cancels the claim by
 * its nonce, and the key is free. Returns false if the lease expired before the
 * release. */
static bool lost_lock_is_released(unsigned round)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock_opts short_opts = suite_opts(
        suite_longer_ms(suite_short_ttl_ms(1000), round), SUITE_TIMEOUT_MS);
    struct hf_key key = suite_key_number("k", round);
    struct hf_lock *lock = NULL, *next = NULL;
    enum hf_err err = HF_OK;

    expect_ok(recorded_acquire(client, key, &short_opts, &lock));
    suite_sleep_until(hf_lock_deadline(lock));
    while (hf_lock_valid_for(lock, 0))
        suite_sleep(1);
    err = recorded_release(client, lock);
    if (err != HF_OK)
        expect_err(err, HF_EEXPIRED);
    else
        expect_ok(recorded_acquire(other, key, &once, &next));
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(client);
    suite_close(other);
    return err == HF_OK;
}

static void a_lost_lock_is_released_by_its_nonce(void)
{
    suite_repeat(lost_lock_is_released);
}

/* Like lost_lock_is_released(), but a claim waits, and is granted the key. */
static bool lost_lock_is_granted_to_waiter(unsigned round)
{
    struct contest contest;
    bool released = false;

    contest_init(&contest, suite_key_number("k", round),
                 suite_longer_ms(suite_short_ttl_ms(1000), round));
    suite_sleep_until(hf_lock_deadline(contest.lock));
    while (hf_lock_valid_for(contest.lock, 0))
        suite_sleep(1);
    released = contest.reported.waiting > 0 &&
               recorded_release(contest.holder, contest.lock) == HF_OK;
    expect_ok(suite_future_result(contest.claim, SUITE_TIMEOUT_MS));
    assert_true(suite_await(&contest.trace.count, 3, contest.watcher));
    released = released && contest.trace.events[1].kind == HF_EVENT_QUEUED;
    if (released) {
        assert_true(suite_await(&contest.trace.count, 4, contest.watcher));
        expect_handed_over(&contest, 2, HF_EVENT_RELEASED);
    }
    contest_fini(&contest);
    return released;
}

static void a_lost_lock_is_granted_to_the_next_waiter(void)
{
    suite_repeat(lost_lock_is_granted_to_waiter);
}

static const struct promise promises[] = {
    PROMISE(a_forced_handover_does_not_free_the_key,
            HF_CAP_WATCH | HF_CAP_FIFO),
    PROMISE(an_expiry_grants_the_first_waiter, HF_CAP_WATCH | HF_CAP_FIFO),
    PROMISE(closing_a_client_withdraws_its_waiters, HF_CAP_WATCH | HF_CAP_FIFO),
    PROMISE(a_lost_lock_is_released_by_its_nonce, 0),
    PROMISE(a_lost_lock_is_granted_to_the_next_waiter,
            HF_CAP_WATCH | HF_CAP_FIFO),
};

const struct chapter chapter_handovers = CHAPTER(promises);
