/* transitions.c - the state after an operation, and the events it reports.
 *
 * The tables in docs/semantics.md define the operations and refer to the cases
 * of this and the other files. */
#include "conformance/trace.h"
#include "lib/recorded.h"

static void expect_stored(struct hf_client *client, struct hf_key key,
                          const char *value, const char *note)
{
    struct hf_info info;

    expect_ok(recorded_read(client, key, &info));
    assert_true(info.held);
    suite_expect_bytes(info.value, hf_bytes_of(value));
    assert_string_equal(info.note, note);
    hf_info_fini(&info);
}

/* ---- The initial state of a grant ---------------------------------------*/

static void a_granted_waiter_sets_its_value_and_note(void)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = trace_open_as("the waiter");
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct hf_key key = suite_key("k");
    struct suite_lock_events reported = {0};
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *claim = NULL;
    struct hf_info info;

    opts.value = hf_bytes_of("first");
    opts.note = "one";
    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    opts.value = hf_bytes_of("second");
    opts.note = "two";
    claim = trace_start_waiter(other, key, opts, &reported, &next);
    expect_stored(holder, key, "first", "one");
    expect_ok(recorded_release(holder, lock));
    expect_ok(suite_future_result(claim, SUITE_TIMEOUT_MS));

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
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL, *next = NULL;

    opts.value = hf_bytes_of("old");
    opts.note = "old note";
    expect_ok(recorded_acquire(client, key, &opts, &lock));
    expect_ok(recorded_update(client, lock, NULL, hf_bytes_of("older")));
    expect_ok(recorded_release(client, lock));
    opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    expect_ok(recorded_acquire(client, key, &opts, &next));

    expect_stored(client, key, "", "");
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(client);
}

static void a_renewal_keeps_the_value(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL;

    opts.value = hf_bytes_of("first");
    opts.note = "note";
    expect_ok(recorded_acquire(client, key, &opts, &lock));
    expect_ok(recorded_renew(client, lock, 0));
    expect_stored(client, key, "first", "note");
    expect_ok(recorded_update(client, lock, NULL, hf_bytes_of("second")));
    expect_ok(recorded_renew(client, lock, 0));

    expect_stored(client, key, "second", "note");
    hf_lock_free(lock);
    suite_close(client);
}

/* ---- Refusals -----------------------------------------------------------*/

/* A wrong token is refused even with the right nonce. */
static void wrong_token_cannot_renew(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL, *forged = NULL;
    struct hf_info info;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    forged = suite_adopt(other, lock, hf_lock_token(lock) + 1);
    expect_err(recorded_renew(other, forged, 2 * SUITE_LONG_TTL_MS),
               HF_ENOTOWNER);

    expect_ok(recorded_read(holder, key, &info));
    assert_true(info.left_ms <= suite_lease_ms(SUITE_LONG_TTL_MS));
    hf_info_fini(&info);
    expect_ok(recorded_release(holder, lock));
    hf_lock_free(forged);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
}

static void wrong_token_cannot_update(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL, *forged = NULL;

    opts.value = hf_bytes_of("mine");
    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    forged = suite_adopt(other, lock, hf_lock_token(lock) + 1);

    expect_err(recorded_update(other, forged, NULL, hf_bytes_of("yours")),
               HF_ENOTOWNER);
    expect_stored(holder, key, "mine", "");
    hf_lock_free(forged);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
}

/* Acquire `key`, adopt the lock, and release it with the first handle. */
static struct hf_lock *adopt_released(struct hf_client *client,
                                      struct hf_key key)
{
    struct hf_lock *lock = NULL, *adopted = NULL;

    expect_ok(recorded_acquire(client, key, NULL, &lock));
    adopted = suite_adopt(client, lock, hf_lock_token(lock));
    expect_ok(recorded_release(client, lock));
    hf_lock_free(lock);
    return adopted;
}

static void renew_of_a_free_key_is_not_held(void)
{
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    struct hf_lock *adopted = adopt_released(client, key);
    struct hf_info info;

    expect_err(recorded_renew(client, adopted, 0), HF_ENOTHELD);

    expect_ok(recorded_read(client, key, &info));
    assert_false(info.held);
    hf_info_fini(&info);
    hf_lock_free(adopted);
    suite_close(client);
}

static void update_of_a_free_key_is_not_held(void)
{
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    struct hf_lock *adopted = adopt_released(client, key);
    struct hf_info info;

    expect_err(recorded_update(client, adopted, NULL, hf_bytes_of("v")),
               HF_ENOTHELD);

    expect_ok(recorded_read(client, key, &info));
    assert_false(info.held);
    hf_info_fini(&info);
    hf_lock_free(adopted);
    suite_close(client);
}

/* Send operations that are refused because the lock belongs to another client.
 * A refused handle is lost, so each operation uses a new handle. */
static void send_refused(struct hf_client *other, struct hf_key key,
                         const struct hf_lock *lock)
{
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    uint64_t wrong = hf_lock_token(lock) + 1;
    struct hf_lock *forged[3], *none = NULL;

    for (unsigned i = 0; i < 3; i++)
        forged[i] = suite_adopt(other, lock, wrong);
    expect_err(recorded_acquire(other, key, &once, &none), HF_EBUSY);
    expect_err(recorded_renew(other, forged[0], 0), HF_ENOTOWNER);
    expect_err(recorded_update(other, forged[1], NULL, hf_bytes_of("v")),
               HF_ENOTOWNER);
    expect_err(hf_force(other, key, wrong, false), HF_ENOTOWNER);
    expect_err(recorded_force_now(other, key, wrong), HF_ENOTOWNER);
    expect_err(recorded_release(other, forged[2]), HF_ENOTOWNER);
    for (unsigned i = 0; i < 3; i++)
        hf_lock_free(forged[i]);
}

static void a_refused_operation_reports_no_event(void)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_client *watcher = suite_open();
    const struct hf_bytes wrong = hf_bytes_of("not this");
    struct hf_key key = suite_key("k");
    struct trace trace = {0};
    struct hf_watch *watch = trace_start(watcher, key, &trace);
    struct hf_lock *lock = NULL;
    uint64_t token = 0;

    expect_ok(recorded_acquire(client, key, NULL, &lock));
    token = hf_lock_token(lock);
    send_refused(other, key, lock);
    expect_err(recorded_update(client, lock, &wrong, hf_bytes_of("v")),
               HF_EMISMATCH);
    expect_ok(recorded_release(client, lock));
    expect_err(recorded_force_now(other, key, token), HF_ENOTHELD);
    hf_lock_free(lock);
    expect_ok(recorded_acquire(client, key, NULL, &lock));

    assert_true(suite_await(&trace.count, 3, watcher));
    assert_int_equal(trace.count, 3);
    trace_expect(&trace, 0,
                 (struct expected_event){HF_EVENT_GRANTED, token, false});
    trace_expect(&trace, 1,
                 (struct expected_event){HF_EVENT_RELEASED, token, true});
    trace_expect(
        &trace, 2,
        (struct expected_event){HF_EVENT_GRANTED, hf_lock_token(lock), false});
    hf_watch_close(watch);
    hf_lock_free(lock);
    suite_close(client);
    suite_close(other);
    suite_close(watcher);
}

/* ---- Force --------------------------------------------------------------*/

/* Forcing a lock a second time has no effect, except with `now`, which also
 * ends a lock that was forced before. */
static void a_lock_is_forced_once_and_ended_once(void)
{
    struct hf_client *holder = suite_open(), *watcher = suite_open();
    struct hf_key key = suite_key("k");
    struct trace trace = {0};
    struct hf_watch *watch = trace_start(watcher, key, &trace);
    struct hf_lock *lock = NULL;
    uint64_t token = 0;

    expect_ok(recorded_acquire(holder, key, NULL, &lock));
    token = hf_lock_token(lock);
    expect_ok(hf_force(watcher, key, token, false));
    expect_ok(hf_force(watcher, key, token, false));
    expect_ok(recorded_force_now(watcher, key, token));
    expect_err(recorded_force_now(watcher, key, token), HF_ENOTHELD);

    assert_true(suite_await(&trace.count, 3, watcher));
    assert_int_equal(trace.count, 3);
    trace_expect(&trace, 0,
                 (struct expected_event){HF_EVENT_GRANTED, token, false});
    trace_expect(&trace, 1,
                 (struct expected_event){HF_EVENT_FORCED, token, false});
    trace_expect(&trace, 2,
                 (struct expected_event){HF_EVENT_FORCED, token, true});
    hf_watch_close(watch);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(watcher);
}

static void a_forced_lock_can_be_updated_and_released(void)
{
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL;
    struct hf_info info;

    expect_ok(recorded_acquire(client, key, NULL, &lock));
    expect_ok(hf_force(client, key, hf_lock_token(lock), false));
    expect_ok(recorded_update(client, lock, NULL, hf_bytes_of("v")));
    expect_err(recorded_renew(client, lock, 0), HF_EFORCED);

    expect_stored(client, key, "v", "");
    expect_ok(recorded_read(client, key, &info));
    assert_true(info.forced);
    hf_info_fini(&info);
    expect_ok(recorded_release(client, lock));
    hf_lock_free(lock);
    suite_close(client);
}

/* The forced state ends with the grant, so the next holder can renew. */
static void the_holder_after_a_forced_lock_can_renew(void)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct hf_key key = suite_key("k");
    struct suite_lock_events reported = {0};
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *claim = NULL;
    struct hf_info info;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    claim = trace_start_waiter(other, key, opts, &reported, &next);
    expect_ok(hf_force(holder, key, hf_lock_token(lock), false));
    expect_ok(recorded_release(holder, lock));
    expect_ok(suite_future_result(claim, SUITE_TIMEOUT_MS));

    expect_ok(recorded_renew(other, next, 0));
    expect_ok(recorded_read(holder, key, &info));
    assert_false(info.forced);
    assert_int_equal(info.token, hf_lock_token(next));
    hf_info_fini(&info);
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(holder);
    suite_close(other);
}

static const struct promise promises[] = {
    PROMISE(a_granted_waiter_sets_its_value_and_note, HF_CAP_VALUE),
    PROMISE(a_value_ends_with_its_grant, HF_CAP_VALUE),
    PROMISE(a_renewal_keeps_the_value, HF_CAP_VALUE),
    PROMISE(wrong_token_cannot_renew, 0),
    PROMISE(wrong_token_cannot_update, HF_CAP_VALUE),
    PROMISE(renew_of_a_free_key_is_not_held, 0),
    PROMISE(update_of_a_free_key_is_not_held, HF_CAP_VALUE),
    PROMISE(a_refused_operation_reports_no_event, HF_CAP_WATCH | HF_CAP_VALUE),
    PROMISE(a_lock_is_forced_once_and_ended_once, HF_CAP_WATCH),
    PROMISE(a_forced_lock_can_be_updated_and_released, HF_CAP_VALUE),
    PROMISE(the_holder_after_a_forced_lock_can_renew, 0),
};

const struct chapter chapter_transitions = CHAPTER(promises);
