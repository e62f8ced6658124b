/* transitions.c - what an operation leaves behind, and the events it reports.
 *
 * The operations are those of docs/semantics.md, whose tables name the cases
 * of this file and of its neighbours. */
#include "conformance/suite.h"
#include "lib/recorded.h"

#include <stdatomic.h>
#include <stdio.h>

#define EVENTS_MAX 32

/* Events of one key, as a watch reports them. */
struct trace {
    _Atomic unsigned count;
    struct hf_event events[EVENTS_MAX]; /* without what they point to */
    char owners[EVENTS_MAX][32];
};

static void record_event(const struct hf_event *event, void *arg)
{
    struct trace *trace = arg;
    unsigned at = atomic_load(&trace->count);

    if (at < EVENTS_MAX) {
        trace->events[at] = *event;
        (void)snprintf(trace->owners[at], sizeof(trace->owners[at]), "%s",
                       event->owner ? event->owner : "");
    }
    atomic_store(&trace->count, at + 1);
}

static struct hf_watch *start_trace(struct hf_client *client, struct hf_key key,
                                    struct trace *trace)
{
    struct hf_watch *watch = NULL;

    (void)hf_fd(client); /* the case drives it */
    expect_ok(hf_watch(client, key, NULL, record_event, trace, &watch));
    return watch;
}

struct expected {
    enum hf_event_kind kind;
    uint64_t token;
    bool freed;
};

static void expect_event(const struct trace *trace, unsigned at,
                         struct expected expected)
{
    assert_int_equal(trace->events[at].kind, expected.kind);
    assert_int_equal(trace->events[at].token, expected.token);
    assert_int_equal(trace->events[at].freed, expected.freed);
}

static struct hf_client *open_as(const char *owner)
{
    struct hf_client_opts opts;
    struct hf_client *client = NULL;

    hf_client_opts_init(&opts);
    opts.background = true;
    opts.owner = owner;
    expect_ok(hf_open(suite_url(), &opts, &client));
    return client;
}

/* Start a claim for a held key, and return once it is in the queue. */
static struct hf_future *start_waiter(struct hf_client *client,
                                      struct hf_key key,
                                      struct hf_lock_opts opts,
                                      struct suite_heard *heard,
                                      struct hf_lock **lock)
{
    struct hf_future *claim = NULL;

    opts.on_event = suite_hear;
    opts.arg = heard;
    expect_ok(
        recorded_lock_start(client, key, &opts, lock, NULL, NULL, &claim));
    assert_true(suite_await(&heard->waiting, 1, NULL));
    return claim;
}

static struct hf_lock *adopt(struct hf_client *client,
                             const struct hf_lock *from, uint64_t token)
{
    uint8_t nonce[HF_NONCE_SIZE];
    struct hf_lock *lock = NULL;

    hf_nonce(from, nonce);
    expect_ok(
        hf_lock_adopt(client, hf_lock_key(from), nonce, token, NULL, &lock));
    return lock;
}

static void expect_stored(struct hf_client *client, struct hf_key key,
                          const char *value, const char *note)
{
    struct hf_info info;

    expect_ok(recorded_read(client, key, &info));
    assert_true(info.held);
    assert_int_equal(info.value.size, strlen(value));
    assert_memory_equal(info.value.data, value, strlen(value));
    assert_string_equal(info.note, note);
    hf_info_fini(&info);
}

/* ---- What a grant begins with -------------------------------------------*/

static void a_waiter_brings_its_own_value_and_note(void)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = open_as("the waiter");
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_MS, SUITE_PATIENCE_MS);
    struct hf_key key = suite_key("k");
    struct suite_heard heard = {0};
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *claim = NULL;
    struct hf_info info;

    opts.value = hf_bytes("first");
    opts.note = "one";
    expect_ok(recorded_lock(holder, key, &opts, &lock));
    opts.value = hf_bytes("second");
    opts.note = "two";
    claim = start_waiter(other, key, opts, &heard, &next);
    expect_stored(holder, key, "first", "one");
    expect_ok(recorded_unlock(holder, lock));
    expect_ok(suite_answer(claim, SUITE_PATIENCE_MS));

    expect_stored(holder, key, "second", "two");
    expect_ok(recorded_read(holder, key, &info));
    assert_string_equal(info.owner, "the waiter");
    assert_int_equal(info.waiters, 0);
    hf_info_fini(&info);
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(holder);
    suite_close(other);
}

static void a_value_ends_with_its_grant(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_MS, 0);
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL, *next = NULL;

    opts.value = hf_bytes("old");
    opts.note = "old note";
    expect_ok(recorded_lock(client, key, &opts, &lock));
    expect_ok(recorded_update(client, lock, NULL, hf_bytes("older")));
    expect_ok(recorded_unlock(client, lock));
    opts = suite_opts(SUITE_LONG_MS, 0);
    expect_ok(recorded_lock(client, key, &opts, &next));

    expect_stored(client, key, "", "");
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(client);
}

static void a_renewal_leaves_the_value_as_it_was(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_MS, 0);
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL;

    opts.value = hf_bytes("first");
    opts.note = "note";
    expect_ok(recorded_lock(client, key, &opts, &lock));
    expect_ok(recorded_renew(client, lock, 0));
    expect_stored(client, key, "first", "note");
    expect_ok(recorded_update(client, lock, NULL, hf_bytes("second")));
    expect_ok(recorded_renew(client, lock, 0));

    expect_stored(client, key, "second", "note");
    hf_lock_free(lock);
    suite_close(client);
}

/* ---- Refusals -----------------------------------------------------------*/

/* The right nonce is not enough. */
static void wrong_token_renews_nothing(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_MS, 0);
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL, *forged = NULL;
    struct hf_info info;

    expect_ok(recorded_lock(holder, key, &opts, &lock));
    forged = adopt(other, lock, hf_token(lock) + 1);
    expect_err(recorded_renew(other, forged, 2 * SUITE_LONG_MS), HF_ENOTOWNER);

    expect_ok(recorded_read(holder, key, &info));
    assert_true(info.left_ms <= suite_lease_ms(SUITE_LONG_MS));
    hf_info_fini(&info);
    expect_ok(recorded_unlock(holder, lock));
    hf_lock_free(forged);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
}

static void wrong_token_updates_nothing(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_MS, 0);
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL, *forged = NULL;

    opts.value = hf_bytes("mine");
    expect_ok(recorded_lock(holder, key, &opts, &lock));
    forged = adopt(other, lock, hf_token(lock) + 1);

    expect_err(recorded_update(other, forged, NULL, hf_bytes("yours")),
               HF_ENOTOWNER);
    expect_stored(holder, key, "mine", "");
    hf_lock_free(forged);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
}

static void renew_of_a_free_key_is_not_held(void)
{
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL, *adopted = NULL;
    struct hf_info info;

    expect_ok(recorded_lock(client, key, NULL, &lock));
    adopted = adopt(client, lock, hf_token(lock));
    expect_ok(recorded_unlock(client, lock));
    expect_err(recorded_renew(client, adopted, 0), HF_ENOTHELD);

    expect_ok(recorded_read(client, key, &info));
    assert_false(info.held);
    hf_info_fini(&info);
    hf_lock_free(adopted);
    hf_lock_free(lock);
    suite_close(client);
}

static void update_of_a_free_key_is_not_held(void)
{
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL, *adopted = NULL;
    struct hf_info info;

    expect_ok(recorded_lock(client, key, NULL, &lock));
    adopted = adopt(client, lock, hf_token(lock));
    expect_ok(recorded_unlock(client, lock));
    expect_err(recorded_update(client, adopted, NULL, hf_bytes("v")),
               HF_ENOTHELD);

    expect_ok(recorded_read(client, key, &info));
    assert_false(info.held);
    hf_info_fini(&info);
    hf_lock_free(adopted);
    hf_lock_free(lock);
    suite_close(client);
}

/* Send what another client is refused. A handle that is refused is lost, so each
 * operation has a handle of its own. */
static void send_refused(struct hf_client *other, struct hf_key key,
                         const struct hf_lock *lock)
{
    struct hf_lock_opts once = suite_opts(SUITE_LONG_MS, 0);
    uint64_t wrong = hf_token(lock) + 1;
    struct hf_lock *forged[3], *none = NULL;

    for (unsigned i = 0; i < 3; i++)
        forged[i] = adopt(other, lock, wrong);
    expect_err(recorded_lock(other, key, &once, &none), HF_EBUSY);
    expect_err(recorded_renew(other, forged[0], 0), HF_ENOTOWNER);
    expect_err(recorded_update(other, forged[1], NULL, hf_bytes("v")),
               HF_ENOTOWNER);
    expect_err(hf_force(other, key, wrong, false), HF_ENOTOWNER);
    expect_err(recorded_force_now(other, key, wrong), HF_ENOTOWNER);
    expect_err(recorded_unlock(other, forged[2]), HF_ENOTOWNER);
    for (unsigned i = 0; i < 3; i++)
        hf_lock_free(forged[i]);
}

static void a_refused_operation_reports_no_event(void)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_client *watcher = suite_open();
    const struct hf_bytes wrong = hf_bytes("not this");
    struct hf_key key = suite_key("k");
    struct trace trace = {0};
    struct hf_watch *watch = start_trace(watcher, key, &trace);
    struct hf_lock *lock = NULL;
    uint64_t token = 0;

    expect_ok(recorded_lock(client, key, NULL, &lock));
    token = hf_token(lock);
    send_refused(other, key, lock);
    expect_err(recorded_update(client, lock, &wrong, hf_bytes("v")),
               HF_EMISMATCH);
    expect_ok(recorded_unlock(client, lock));
    expect_err(recorded_force_now(other, key, token), HF_ENOTHELD);
    hf_lock_free(lock);
    expect_ok(recorded_lock(client, key, NULL, &lock));

    assert_true(suite_await(&trace.count, 3, watcher));
    assert_int_equal(trace.count, 3);
    expect_event(&trace, 0, (struct expected){HF_EVENT_GRANTED, token, false});
    expect_event(&trace, 1, (struct expected){HF_EVENT_RELEASED, token, true});
    expect_event(&trace, 2,
                 (struct expected){HF_EVENT_GRANTED, hf_token(lock), false});
    hf_watch_free(watch);
    hf_lock_free(lock);
    suite_close(client);
    suite_close(other);
    suite_close(watcher);
}

/* ---- Hand-overs ---------------------------------------------------------*/

/* A key with a holder and a waiter, and a watch on it. */
struct contest {
    struct hf_client *holder, *other, *watcher;
    struct hf_key key;
    struct trace trace;
    struct suite_heard heard;
    struct hf_watch *watch;
    struct hf_lock *lock, *next;
    struct hf_future *claim;
};

static void contest_init(struct contest *contest, struct hf_key key,
                         uint32_t ttl_ms)
{
    struct hf_lock_opts opts = suite_opts(ttl_ms, SUITE_PATIENCE_MS);

    *contest = (struct contest){.key = key};
    contest->holder = open_as("the holder");
    contest->other = open_as("the waiter");
    contest->watcher = suite_open();
    contest->watch = start_trace(contest->watcher, key, &contest->trace);
    expect_ok(recorded_lock(contest->holder, key, &opts, &contest->lock));
    opts.ttl_ms = SUITE_LONG_MS;
    opts.on_event = suite_hear;
    opts.arg = &contest->heard;
    expect_ok(recorded_lock_start(contest->other, key, &opts, &contest->next,
                                  NULL, NULL, &contest->claim));
}

static void contest_await_waiter(struct contest *contest)
{
    assert_true(suite_await(&contest->heard.waiting, 1, NULL));
}

static void contest_fini(struct contest *contest)
{
    hf_watch_free(contest->watch);
    hf_lock_free(contest->lock);
    hf_lock_free(contest->next);
    suite_close(contest->holder);
    suite_close(contest->other);
    suite_close(contest->watcher);
}

/* The events from `at` on: the end of the first grant, and the next grant. */
static void expect_handed_over(const struct contest *contest, unsigned at,
                               enum hf_event_kind kind)
{
    const struct trace *trace = &contest->trace;

    expect_event(trace, at,
                 (struct expected){kind, hf_token(contest->lock), false});
    assert_string_equal(trace->owners[at], "the holder");
    expect_event(
        trace, at + 1,
        (struct expected){HF_EVENT_GRANTED, hf_token(contest->next), false});
    assert_string_equal(trace->owners[at + 1], "the waiter");
    assert_true(trace->events[at + 1].index > trace->events[at].index);
    assert_true(hf_token(contest->next) > hf_token(contest->lock));
}

static void a_forced_hand_over_frees_nothing(void)
{
    struct contest contest;

    contest_init(&contest, suite_key("k"), SUITE_LONG_MS);
    contest_await_waiter(&contest);
    expect_ok(recorded_force_now(contest.watcher, contest.key,
                                 hf_token(contest.lock)));
    expect_ok(suite_answer(contest.claim, SUITE_PATIENCE_MS));

    assert_true(suite_await(&contest.trace.count, 4, contest.watcher));
    expect_event(&contest.trace, 1,
                 (struct expected){HF_EVENT_QUEUED, 0, false});
    assert_string_equal(contest.trace.owners[1], "the waiter");
    expect_handed_over(&contest, 2, HF_EVENT_FORCED);
    contest_fini(&contest);
}

/* False if the lease expired before the second claim was in the queue, or was
 * renewed before the lock was returned. */
static bool expiry_hands_over(unsigned round)
{
    struct contest contest;
    bool waited = false;

    contest_init(&contest, suite_key_number("k", round),
                 suite_longer_ms(suite_brief_ms(400), round));
    expect_ok(suite_answer(contest.claim, SUITE_PATIENCE_MS));
    assert_true(suite_await(&contest.trace.count, 3, contest.watcher));
    waited = contest.trace.events[0].token == hf_token(contest.lock) &&
             contest.trace.events[1].kind == HF_EVENT_QUEUED &&
             contest.trace.events[2].kind == HF_EVENT_EXPIRED;
    if (waited) {
        assert_true(suite_await(&contest.trace.count, 4, contest.watcher));
        expect_handed_over(&contest, 2, HF_EVENT_EXPIRED);
        assert_false(hf_valid_for(contest.lock, 0));
    }
    contest_fini(&contest);
    return waited;
}

static void an_expiry_grants_the_first_waiter(void)
{
    suite_judge(expiry_hands_over);
}

static void closing_a_client_withdraws_its_waiters(void)
{
    struct hf_client *holder = suite_open(), *watcher = suite_open();
    struct hf_client *closed = open_as("the waiter");
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_MS, SUITE_PATIENCE_MS);
    struct hf_key key = suite_key("k");
    struct trace trace = {0};
    struct suite_heard heard[2] = {{0}};
    struct hf_watch *watch = start_trace(watcher, key, &trace);
    struct hf_lock *lock = NULL, *none[2] = {NULL};
    struct hf_future *claims[2];
    struct hf_info info;

    expect_ok(recorded_lock(holder, key, &opts, &lock));
    for (unsigned i = 0; i < 2; i++)
        claims[i] = start_waiter(closed, key, opts, &heard[i], &none[i]);
    suite_close(closed);
    for (unsigned i = 0; i < 2; i++)
        expect_err(suite_answer(claims[i], 0), HF_ECLOSED);

    expect_ok(recorded_read(holder, key, &info));
    assert_int_equal(info.waiters, 0);
    assert_int_equal(info.token, hf_token(lock));
    hf_info_fini(&info);
    assert_true(suite_await(&trace.count, 5, watcher));
    for (unsigned i = 3; i < 5; i++) {
        expect_event(&trace, i,
                     (struct expected){HF_EVENT_WITHDRAWN, 0, false});
        assert_string_equal(trace.owners[i], "the waiter");
    }
    hf_watch_free(watch);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(watcher);
}

/* Validity ends before the lease, so a lost lock may still be held at the
 * server: the claim is ended by its nonce. False if the lease expired first. */
static bool lost_lock_is_released(unsigned round)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_lock_opts once = suite_opts(SUITE_LONG_MS, 0);
    struct hf_lock_opts brief = suite_opts(
        suite_longer_ms(suite_brief_ms(1000), round), SUITE_PATIENCE_MS);
    struct hf_key key = suite_key_number("k", round);
    struct hf_lock *lock = NULL, *next = NULL;
    enum hf_err err = HF_OK;

    expect_ok(recorded_lock(client, key, &brief, &lock));
    suite_sleep_until(hf_deadline(lock));
    while (hf_valid_for(lock, 0))
        suite_sleep(1);
    err = recorded_unlock(client, lock);
    if (err != HF_OK)
        expect_err(err, HF_EEXPIRED);
    else
        expect_ok(recorded_lock(other, key, &once, &next));
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(client);
    suite_close(other);
    return err == HF_OK;
}

static void a_lost_lock_is_released_by_its_nonce(void)
{
    suite_judge(lost_lock_is_released);
}

/* The same, with a waiter. */
static bool lost_lock_is_handed_over(unsigned round)
{
    struct contest contest;
    bool released = false;

    contest_init(&contest, suite_key_number("k", round),
                 suite_longer_ms(suite_brief_ms(1000), round));
    suite_sleep_until(hf_deadline(contest.lock));
    while (hf_valid_for(contest.lock, 0))
        suite_sleep(1);
    released = contest.heard.waiting > 0 &&
               recorded_unlock(contest.holder, contest.lock) == HF_OK;
    expect_ok(suite_answer(contest.claim, SUITE_PATIENCE_MS));
    assert_true(suite_await(&contest.trace.count, 3, contest.watcher));
    released = released && contest.trace.events[1].kind == HF_EVENT_QUEUED;
    if (released) {
        assert_true(suite_await(&contest.trace.count, 4, contest.watcher));
        expect_handed_over(&contest, 2, HF_EVENT_RELEASED);
    }
    contest_fini(&contest);
    return released;
}

static void a_lost_lock_is_handed_over_by_its_nonce(void)
{
    suite_judge(lost_lock_is_handed_over);
}

/* ---- Breaking -----------------------------------------------------------*/

/* Marking a lock that is marked already changes nothing, and ending it now
 * works on a marked lock too. */
static void a_lock_is_marked_once_and_ended_once(void)
{
    struct hf_client *holder = suite_open(), *watcher = suite_open();
    struct hf_key key = suite_key("k");
    struct trace trace = {0};
    struct hf_watch *watch = start_trace(watcher, key, &trace);
    struct hf_lock *lock = NULL;
    uint64_t token = 0;

    expect_ok(recorded_lock(holder, key, NULL, &lock));
    token = hf_token(lock);
    expect_ok(hf_force(watcher, key, token, false));
    expect_ok(hf_force(watcher, key, token, false));
    expect_ok(recorded_force_now(watcher, key, token));
    expect_err(recorded_force_now(watcher, key, token), HF_ENOTHELD);

    assert_true(suite_await(&trace.count, 3, watcher));
    assert_int_equal(trace.count, 3);
    expect_event(&trace, 0, (struct expected){HF_EVENT_GRANTED, token, false});
    expect_event(&trace, 1, (struct expected){HF_EVENT_FORCED, token, false});
    expect_event(&trace, 2, (struct expected){HF_EVENT_FORCED, token, true});
    hf_watch_free(watch);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(watcher);
}

static void a_marked_lock_can_be_updated_and_unlocked(void)
{
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL;
    struct hf_info info;

    expect_ok(recorded_lock(client, key, NULL, &lock));
    expect_ok(hf_force(client, key, hf_token(lock), false));
    expect_ok(recorded_update(client, lock, NULL, hf_bytes("v")));
    expect_err(recorded_renew(client, lock, 0), HF_EFORCED);

    expect_stored(client, key, "v", "");
    expect_ok(recorded_read(client, key, &info));
    assert_true(info.forced);
    hf_info_fini(&info);
    expect_ok(recorded_unlock(client, lock));
    hf_lock_free(lock);
    suite_close(client);
}

/* The mark ends with the grant that it was set on. */
static void the_next_holder_may_renew_after_a_marked_one(void)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_MS, SUITE_PATIENCE_MS);
    struct hf_key key = suite_key("k");
    struct suite_heard heard = {0};
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *claim = NULL;
    struct hf_info info;

    expect_ok(recorded_lock(holder, key, &opts, &lock));
    claim = start_waiter(other, key, opts, &heard, &next);
    expect_ok(hf_force(holder, key, hf_token(lock), false));
    expect_ok(recorded_unlock(holder, lock));
    expect_ok(suite_answer(claim, SUITE_PATIENCE_MS));

    expect_ok(recorded_renew(other, next, 0));
    expect_ok(recorded_read(holder, key, &info));
    assert_false(info.forced);
    assert_int_equal(info.token, hf_token(next));
    hf_info_fini(&info);
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(holder);
    suite_close(other);
}

static const struct promise promises[] = {
    PROMISE(a_waiter_brings_its_own_value_and_note, HF_CAP_VALUE),
    PROMISE(a_value_ends_with_its_grant, HF_CAP_VALUE),
    PROMISE(a_renewal_leaves_the_value_as_it_was, HF_CAP_VALUE),
    PROMISE(wrong_token_renews_nothing, 0),
    PROMISE(wrong_token_updates_nothing, HF_CAP_VALUE),
    PROMISE(renew_of_a_free_key_is_not_held, 0),
    PROMISE(update_of_a_free_key_is_not_held, HF_CAP_VALUE),
    PROMISE(a_refused_operation_reports_no_event, HF_CAP_WATCH | HF_CAP_VALUE),
    PROMISE(a_forced_hand_over_frees_nothing, HF_CAP_WATCH | HF_CAP_FIFO),
    PROMISE(an_expiry_grants_the_first_waiter, HF_CAP_WATCH | HF_CAP_FIFO),
    PROMISE(closing_a_client_withdraws_its_waiters, HF_CAP_WATCH | HF_CAP_FIFO),
    PROMISE(a_lost_lock_is_released_by_its_nonce, 0),
    PROMISE(a_lost_lock_is_handed_over_by_its_nonce,
            HF_CAP_WATCH | HF_CAP_FIFO),
    PROMISE(a_lock_is_marked_once_and_ended_once, HF_CAP_WATCH),
    PROMISE(a_marked_lock_can_be_updated_and_unlocked, HF_CAP_VALUE),
    PROMISE(the_next_holder_may_renew_after_a_marked_one, 0),
};

const struct chapter chapter_transitions = CHAPTER(promises);
