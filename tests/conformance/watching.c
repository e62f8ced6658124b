/* watching.c - a watch reports all events in order, or DROPPED where some are
 * missing. */
#include "conformance/suite.h"
#include "lib/recorded.h"

#include <stdatomic.h>
#include <stdlib.h>

#define SEEN_MAX 20000

struct seen {
    _Atomic unsigned count;
    unsigned dropped;
    struct hf_event events[SEEN_MAX]; /* copies; key and owner are invalid */
};

static void on_event(const struct hf_event *event, void *arg)
{
    struct seen *seen = arg;
    unsigned at = atomic_load(&seen->count);

    seen->dropped += event->kind == HF_EVENT_DROPPED;
    if (at < SEEN_MAX)
        seen->events[at] = *event;
    atomic_store(&seen->count, at + 1);
}

static struct seen *new_watch_log(void)
{
    struct seen *seen = calloc(1, sizeof(*seen));

    assert_non_null(seen);
    return seen;
}

/* Open a watch. Unless the client has background threads, its callback runs
 * only while the case drives the client. */
static struct hf_watch *open_watch(struct hf_client *client,
                                   struct hf_key prefix, struct seen *seen)
{
    struct hf_watch *watch = NULL;

    (void)hf_fd(client); /* after hf_fd(), a client starts no threads */
    expect_ok(hf_watch_open(client, prefix, NULL, on_event, seen, &watch));
    return watch;
}

/* Drive the client for at least 50 ms, so that events in transit arrive. */
static void settle(struct hf_client *client)
{
    for (int i = 0; i < 5; i++) {
        suite_sleep(10);
        expect_ok(hf_process(client));
    }
}

static bool is_last(const struct seen *seen, enum hf_event_kind kind,
                    uint64_t token)
{
    const struct hf_event *last = &seen->events[seen->count - 1];

    return seen->count > 0 && last->kind == kind && last->token == token;
}

/* Receive events until no more arrive and the last event is DROPPED, or is
 * `kind` of the lock with `token`. */
static void process_until(struct hf_client *client, const struct seen *seen,
                          enum hf_event_kind kind, uint64_t token)
{
    unsigned count;

    do {
        count = seen->count;
        settle(client);
    } while (seen->count > count || !(is_last(seen, kind, token) ||
                                      is_last(seen, HF_EVENT_DROPPED, 0)));
}

/* Run one key through all operations, and check the kind and the order of their
 * events. Other cases test EXPIRED and DROPPED. */
static void a_watch_reports_every_kind_of_event(void)
{
    static const enum hf_event_kind wanted[] = {
        HF_EVENT_GRANTED,  HF_EVENT_RENEWED,   HF_EVENT_UPDATED,
        HF_EVENT_QUEUED,   HF_EVENT_WITHDRAWN, HF_EVENT_FORCED,
        HF_EVENT_RELEASED, HF_EVENT_GRANTED,   HF_EVENT_FORCED,
    };
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_lock_opts short_opts = suite_opts(SUITE_LONG_TTL_MS, 20);
    struct hf_key key = suite_key("k");
    struct seen *seen = new_watch_log();
    struct hf_watch *watching = open_watch(other, key, seen);
    struct hf_lock *lock = NULL, *none = NULL;
    uint64_t token = 0;

    expect_ok(recorded_acquire(client, key, &short_opts, &lock));
    expect_ok(recorded_renew(client, lock, 0));
    expect_ok(recorded_update(client, lock, NULL, hf_bytes_of("v")));
    suite_expect_withdrawn(recorded_acquire(client, key, &short_opts, &none),
                           HF_ETIMEDOUT);
    assert_true(suite_await(&seen->count, 5, other)); /* up to WITHDRAWN */
    expect_ok(hf_force(client, key, hf_lock_token(lock), false));
    expect_ok(recorded_release(client, lock));
    hf_lock_free(lock);
    expect_ok(recorded_acquire(client, key, &short_opts, &lock));
    token = hf_lock_token(lock);
    expect_ok(recorded_force_now(client, key, token));

    assert_true(suite_await(&seen->count, HF_TEST_COUNT(wanted), other));
    settle(other);
    assert_int_equal(seen->count, HF_TEST_COUNT(wanted));
    for (unsigned i = 0; i < HF_TEST_COUNT(wanted); i++) {
        assert_int_equal(seen->events[i].kind, wanted[i]);
        assert_true(i == 0 ||
                    seen->events[i].index > seen->events[i - 1].index);
    }
    assert_int_equal(seen->events[3].token, 0);
    assert_int_equal(seen->events[4].token, 0);
    assert_int_equal(seen->events[7].token, token);
    assert_false(seen->events[5].freed); /* forced, and still held */
    assert_true(seen->events[6].freed);
    assert_true(seen->events[8].freed);
    hf_watch_close(watching);
    hf_lock_free(lock);
    free(seen);
    suite_close(client);
    suite_close(other);
}

/* An expiry is reported although no client requests the key. Returns false if
 * the lease expired or was renewed before hf_acquire() returned. */
static bool expiry_is_reported(unsigned round)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_lock_opts short_opts =
        suite_opts(suite_longer_ms(suite_short_ttl_ms(300), round), 0);
    struct hf_key key = suite_key_number("k", round);
    struct seen *seen = new_watch_log();
    struct hf_watch *watching = open_watch(other, key, seen);
    struct hf_lock *lock = NULL;
    bool count = false;

    if (recorded_acquire(client, key, &short_opts, &lock) == HF_OK) {
        int64_t deadline = hf_lock_deadline(lock);

        assert_true(suite_await(&seen->count, 2, other));
        count = seen->events[1].kind != HF_EVENT_RENEWED;
        if (count) {
            assert_int_equal(seen->events[1].kind, HF_EVENT_EXPIRED);
            assert_int_equal(seen->events[1].token, hf_lock_token(lock));
            assert_true(seen->events[1].freed);
            assert_true(suite_now_ms() >= deadline);
        }
    }
    hf_watch_close(watching);
    hf_lock_free(lock);
    free(seen);
    suite_close(client);
    suite_close(other);
    return count;
}

static void a_watch_reports_an_expiry_without_polling(void)
{
    suite_repeat(expiry_is_reported);
}

static void a_handover_does_not_free_the_key(void)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    struct hf_client *watcher = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct suite_lock_events reported = {0};
    struct hf_key key = suite_key("k");
    struct seen *seen = new_watch_log();
    struct hf_watch *watching = open_watch(watcher, key, seen);
    struct hf_future *claim = NULL;
    struct hf_lock *lock = NULL, *next = NULL;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    opts.on_event = suite_on_lock_event;
    opts.arg = &reported;
    expect_ok(
        recorded_acquire_start(other, key, &opts, &next, NULL, NULL, &claim));
    assert_true(suite_await(&reported.waiting, 1, NULL));
    expect_ok(recorded_release(holder, lock));
    expect_ok(suite_future_result(claim, SUITE_TIMEOUT_MS));

    assert_true(suite_await(&seen->count, 4, watcher));
    assert_int_equal(seen->events[0].kind, HF_EVENT_GRANTED);
    assert_int_equal(seen->events[1].kind, HF_EVENT_QUEUED);
    assert_int_equal(seen->events[2].kind, HF_EVENT_RELEASED);
    assert_false(seen->events[2].freed);
    assert_int_equal(seen->events[2].token, hf_lock_token(lock));
    assert_int_equal(seen->events[3].kind, HF_EVENT_GRANTED);
    assert_int_equal(seen->events[3].token, hf_lock_token(next));
    hf_watch_close(watching);
    free(seen);
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(holder);
    suite_close(other);
    suite_close(watcher);
}

static void a_watch_reports_only_the_selected_kinds(void)
{
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    struct seen *seen = new_watch_log();
    struct hf_watch_opts opts;
    struct hf_watch *watching = NULL;
    struct hf_lock *lock = NULL;

    hf_watch_opts_init(&opts);
    opts.kinds = HF_EVENT_RELEASED | HF_EVENT_EXPIRED;
    expect_ok(hf_watch_open(client, key, &opts, on_event, seen, &watching));
    expect_ok(recorded_acquire(client, key, NULL, &lock));
    expect_ok(recorded_renew(client, lock, 0));
    expect_ok(recorded_release(client, lock));

    assert_true(suite_await(&seen->count, 1, client));
    settle(client);
    assert_int_equal(seen->count, 1);
    assert_int_equal(seen->events[0].kind, HF_EVENT_RELEASED);
    hf_watch_close(watching);
    hf_lock_free(lock);
    free(seen);
    suite_close(client);
}

static void invalid_event_kinds_are_refused(void)
{
    struct hf_client *client = suite_open();
    struct hf_watch_opts opts;
    struct hf_watch *none = NULL;
    struct hf_error error;

    hf_watch_opts_init(&opts);
    opts.kinds = 0;
    expect_err(
        hf_watch_open(client, suite_key(""), &opts, on_event, NULL, &none),
        HF_EINVAL);
    hf_client_error(client, &error);
    expect_error_text(error.text, "kinds");
    opts.kinds = 1u << 20;
    expect_err(
        hf_watch_open(client, suite_key(""), &opts, on_event, NULL, &none),
        HF_EINVAL);
    expect_err(hf_watch_open(client, suite_key(""), NULL, NULL, NULL, &none),
               HF_EINVAL);
    assert_null(none);
    suite_close(client);
}

static void a_watch_reports_only_its_prefix(void)
{
    struct hf_client *client = suite_open();
    struct seen *seen = new_watch_log();
    struct hf_watch *watching = open_watch(client, suite_key("p/"), seen);
    struct hf_lock *in = NULL, *out = NULL;

    expect_ok(recorded_acquire(client, suite_key("o/1"), NULL, &out));
    expect_ok(recorded_acquire(client, suite_key("p/1"), NULL, &in));

    assert_true(suite_await(&seen->count, 1, client));
    settle(client);
    assert_int_equal(seen->count, 1);
    assert_int_equal(seen->events[0].token, hf_lock_token(in));
    hf_watch_close(watching);
    hf_lock_free(in);
    hf_lock_free(out);
    free(seen);
    suite_close(client);
}

/* The watch starts at an index that was read earlier, and misses none of the
 * events in between. */
static void a_watch_from_an_index_reports_earlier_events(void)
{
    struct hf_client *client = suite_open(), *late = suite_open();
    struct hf_key key = suite_key("k");
    struct seen *first = new_watch_log(), *second = new_watch_log();
    struct hf_watch *witness = open_watch(client, key, first), *watching = NULL;
    struct hf_lock *lock = NULL;
    struct hf_watch_opts opts;
    struct hf_info info;

    expect_ok(recorded_read(client, key, &info));
    expect_ok(recorded_acquire(client, key, NULL, &lock));
    expect_ok(recorded_release(client, lock));
    hf_watch_opts_init(&opts);
    opts.from = info.index + 1;
    hf_info_fini(&info);
    expect_ok(hf_watch_open(late, key, &opts, on_event, second, &watching));

    assert_true(suite_await(&first->count, 2, client));
    assert_true(suite_await(&second->count, 2, late));
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(second->events[i].kind, first->events[i].kind);
        assert_int_equal(second->events[i].index, first->events[i].index);
        assert_int_equal(second->events[i].token, first->events[i].token);
    }
    hf_watch_close(witness);
    hf_watch_close(watching);
    hf_lock_free(lock);
    free(first);
    free(second);
    suite_close(client);
    suite_close(late);
}

/* Expect that DROPPED is reported wherever events of a key that is acquired and
 * released repeatedly are missing. */
static void expect_no_silent_gap(const struct seen *seen, uint64_t last_token)
{
    uint64_t next = 0, top = 0;
    bool marked = false;

    for (unsigned i = 0; i < seen->count; i++) {
        const struct hf_event *event = &seen->events[i];

        assert_true(event->index >= next);
        next = event->index + (event->kind != HF_EVENT_DROPPED);
        if (event->kind == HF_EVENT_DROPPED) {
            assert_false(marked); /* once per gap */
            marked = true;
            continue;
        }
        if (event->kind == HF_EVENT_GRANTED && !marked && top)
            assert_true(event->token > top);
        top = event->token;
        marked = false;
    }
    assert_true(top == last_token || marked);
}

#define MANY (6000 / suite_slowness())

/* Cause many events while a client is not driven: with the fast strategies,
 * more than are kept for it. A slow strategy gets fewer events and may drop
 * none; see tests/mongo/test_mongo_streams.c. */
static void missing_events_are_reported_as_dropped(void)
{
    struct hf_client *client = suite_open(), *slow = suite_open();
    struct hf_key key = suite_key("k");
    struct seen *seen = new_watch_log();
    struct hf_watch *watching = open_watch(slow, key, seen);
    struct hf_lock *lock = NULL;
    uint64_t token = 0;
    unsigned count = 0;

    suite_lower_priority();
    for (unsigned i = 0; i < MANY; i++) {
        expect_ok(recorded_acquire(client, key, NULL, &lock));
        token = hf_lock_token(lock);
        expect_ok(recorded_release(client, lock));
        hf_lock_free(lock);
    }
    process_until(slow, seen, HF_EVENT_RELEASED, token);
    count = seen->count;

    /* If nothing was dropped, there are at least two events for each lock, and
     * more if locks were renewed. */
    assert_true(seen->dropped > 0 || count >= 2 * MANY);
    expect_no_silent_gap(seen, token);

    /* Events after the gap are reported. */
    expect_ok(recorded_acquire(client, key, NULL, &lock));
    assert_true(suite_await(&seen->count, count + 1, slow));
    assert_int_equal(seen->events[count].kind, HF_EVENT_GRANTED);
    assert_int_equal(seen->events[count].token, hf_lock_token(lock));
    expect_no_silent_gap(seen, hf_lock_token(lock));
    hf_watch_close(watching);
    hf_lock_free(lock);
    free(seen);
    suite_close(client);
    suite_close(slow);
}

static void a_watch_from_an_old_index_reports_dropped_events(void)
{
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    struct seen *seen = new_watch_log();
    struct hf_watch *watching = NULL;
    struct hf_watch_opts opts;
    struct hf_lock *lock = NULL;
    uint64_t first = 0;

    suite_lower_priority();
    for (unsigned i = 0; i < MANY; i++) {
        expect_ok(recorded_acquire(client, key, NULL, &lock));
        if (i == 0)
            first = hf_lock_token(lock);
        expect_ok(recorded_release(client, lock));
        hf_lock_free(lock);
    }
    hf_watch_opts_init(&opts);
    opts.from = 1;
    expect_ok(hf_watch_open(client, key, &opts, on_event, seen, &watching));
    expect_ok(recorded_acquire(client, key, NULL, &lock));

    process_until(client, seen, HF_EVENT_GRANTED, hf_lock_token(lock));
    /* A store that still keeps the first event reports no DROPPED. */
    if (seen->events[0].kind == HF_EVENT_DROPPED) {
        assert_true(seen->events[0].index > 1);
    } else {
        assert_int_equal(seen->events[0].kind, HF_EVENT_GRANTED);
        assert_int_equal(seen->events[0].token, first);
    }
    expect_no_silent_gap(seen, hf_lock_token(lock));
    hf_watch_close(watching);
    hf_lock_free(lock);
    free(seen);
    suite_close(client);
}

#define LONG_KEYS 500

/* DROPPED replaces only the missing events; the events that are still kept
 * follow it. The keys are long, so that fewer events are kept than a client can
 * queue. */
static void kept_events_follow_the_dropped_event(void)
{
    struct hf_client *client = suite_open(), *late = suite_open();
    struct seen *first = new_watch_log(), *second = new_watch_log();
    struct hf_watch *witness = NULL, *watching = NULL;
    struct hf_watch_opts opts;
    struct hf_lock *lock = NULL;
    struct hf_key key;
    char name[800];

    memset(name, 'k', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    key = suite_key(name);
    witness = open_watch(client, key, first);
    for (unsigned i = 0; i < LONG_KEYS; i++) {
        expect_ok(recorded_acquire(client, key, NULL, &lock));
        expect_ok(recorded_release(client, lock));
        if (i + 1 < LONG_KEYS)
            hf_lock_free(lock);
        expect_ok(hf_process(client));
    }
    while (!is_last(first, HF_EVENT_RELEASED, hf_lock_token(lock)))
        settle(client);
    hf_watch_opts_init(&opts);
    opts.from = first->events[0].index;
    (void)hf_fd(late);
    expect_ok(hf_watch_open(late, key, &opts, on_event, second, &watching));
    while (!is_last(second, HF_EVENT_RELEASED, hf_lock_token(lock)))
        settle(late);

    assert_int_equal(first->dropped, 0);
    expect_no_silent_gap(second, hf_lock_token(lock));
    assert_int_equal(second->events[second->count - 1].kind, HF_EVENT_RELEASED);
    assert_int_equal(second->events[second->count - 1].index,
                     first->events[first->count - 1].index);
    hf_watch_close(witness);
    hf_watch_close(watching);
    hf_lock_free(lock);
    free(first);
    free(second);
    suite_close(client);
    suite_close(late);
}

/* CF-02 */
static void no_callback_runs_after_a_watch_is_closed(void)
{
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    struct seen *seen = new_watch_log();
    struct hf_watch *watching = open_watch(client, key, seen);
    struct hf_lock *lock = NULL;

    expect_ok(recorded_acquire(client, key, NULL, &lock));
    assert_true(suite_await(&seen->count, 1, client));
    /* The event of this renewal may arrive after the watch is closed. */
    expect_ok(recorded_renew(client, lock, 0));
    hf_watch_close(watching);
    seen->count = 0;
    expect_ok(recorded_release(client, lock));
    settle(client);

    assert_int_equal(seen->count, 0);
    hf_lock_free(lock);
    free(seen);
    suite_close(client);
}

#define FREED_WATCHES 50

/* CF-02: the watch is closed in another thread than the one that runs
 * callbacks. That thread runs one callback at a time, so when the witness has
 * received two further events, no callback of the closed watch is running. */
static void no_background_callback_runs_after_a_watch_is_closed(void)
{
    struct hf_client *client = suite_open_background(), *other = suite_open();
    struct hf_key key = suite_key("k");
    struct seen *all[FREED_WATCHES], *witness_seen = new_watch_log();
    struct hf_watch *witness = open_watch(client, key, witness_seen);
    struct hf_lock *lock = NULL;

    expect_ok(recorded_acquire(other, key, NULL, &lock));
    for (unsigned i = 0; i < FREED_WATCHES; i++) {
        struct seen *seen = all[i] = new_watch_log();
        struct hf_watch *watching = open_watch(client, key, seen);
        unsigned before = 0;

        expect_ok(recorded_renew(other, lock, 0));
        expect_ok(recorded_renew(other, lock, 0));
        hf_watch_close(watching);
        assert_true(suite_await(&witness_seen->count, 1 + 4 * i + 2, NULL));
        expect_ok(recorded_renew(other, lock, 0));
        assert_true(suite_await(&witness_seen->count, 1 + 4 * i + 3, NULL));
        before = seen->count;
        expect_ok(recorded_renew(other, lock, 0));
        assert_true(suite_await(&witness_seen->count, 1 + 4 * i + 4, NULL));
        assert_int_equal(seen->count, before);
    }
    hf_watch_close(witness);
    hf_lock_free(lock);
    suite_close(client);
    suite_close(other);
    for (unsigned i = 0; i < FREED_WATCHES; i++)
        free(all[i]);
    free(witness_seen);
}

struct own_end {
    struct hf_watch *watch;
    _Atomic unsigned count;
};

static void close_own_watch(const struct hf_event *event, void *arg)
{
    struct own_end *end = arg;

    (void)event;
    hf_watch_close(end->watch);
    atomic_fetch_add(&end->count, 1);
}

static void a_watch_can_be_closed_in_its_callback(void)
{
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    struct own_end end = {0};
    struct hf_lock *lock = NULL;

    expect_ok(
        hf_watch_open(client, key, NULL, close_own_watch, &end, &end.watch));
    expect_ok(recorded_acquire(client, key, NULL, &lock));
    expect_ok(recorded_release(client, lock));
    assert_true(suite_await(&end.count, 1, client));
    settle(client);

    assert_int_equal(end.count, 1);
    hf_lock_free(lock);
    suite_close(client);
}

/* GO-30 */
static void the_forms_of_watch_agree(void)
{
    struct hf_client *client = suite_open();
    struct suite_counter counter = {0};
    struct hf_key key = suite_key("k");
    struct seen *seen = new_watch_log();
    struct hf_watch *watching = NULL;
    struct hf_lock *lock = NULL;

    expect_ok(hf_watch_open_start(client, key, NULL, on_event, seen, &watching,
                                  suite_on_done, &counter, NULL));
    assert_true(suite_await(&counter.count, 1, client));
    expect_ok((enum hf_err)counter.last);
    expect_ok(recorded_acquire(client, key, NULL, &lock));

    assert_true(suite_await(&seen->count, 1, client));
    assert_int_equal(counter.count, 1);
    hf_watch_close(watching);
    hf_lock_free(lock);
    free(seen);
    suite_close(client);
}

static void close_ends_a_watch(void)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_key key = suite_key("k");
    struct seen *seen = new_watch_log();
    struct hf_watch *watching = open_watch(client, key, seen);
    struct hf_lock *lock = NULL;

    suite_close(client);
    expect_ok(recorded_acquire(other, key, NULL, &lock));

    assert_int_equal(seen->count, 0);
    hf_watch_close(watching);
    hf_lock_free(lock);
    free(seen);
    suite_close(other);
}

static const struct promise promises[] = {
    PROMISE(a_watch_reports_every_kind_of_event, HF_CAP_WATCH | HF_CAP_VALUE),
    PROMISE(a_watch_reports_an_expiry_without_polling, HF_CAP_WATCH),
    PROMISE(a_handover_does_not_free_the_key, HF_CAP_WATCH | HF_CAP_FIFO),
    PROMISE(a_watch_reports_only_the_selected_kinds, HF_CAP_WATCH),
    PROMISE(invalid_event_kinds_are_refused, HF_CAP_WATCH),
    PROMISE(a_watch_reports_only_its_prefix, HF_CAP_WATCH),
    PROMISE(a_watch_from_an_index_reports_earlier_events, HF_CAP_WATCH),
    PROMISE(missing_events_are_reported_as_dropped, HF_CAP_WATCH),
    PROMISE(kept_events_follow_the_dropped_event, HF_CAP_WATCH),
    PROMISE(a_watch_from_an_old_index_reports_dropped_events, HF_CAP_WATCH),
    PROMISE(no_callback_runs_after_a_watch_is_closed, HF_CAP_WATCH),
    PROMISE(no_background_callback_runs_after_a_watch_is_closed, HF_CAP_WATCH),
    PROMISE(a_watch_can_be_closed_in_its_callback, HF_CAP_WATCH),
    PROMISE(the_forms_of_watch_agree, HF_CAP_WATCH),
    PROMISE(close_ends_a_watch, HF_CAP_WATCH),
};

const struct chapter chapter_watching = CHAPTER(promises);
