/* calls.c - blocking and non-blocking calls; event loops, threads, fork, and
 * hf_close(). */
#include "conformance/suite.h"
#include "lib/recorded.h"
#include "lib/sanitized.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Forms of a call ----------------------------------------------------*/

/* Wait for the future and its callback; both must have the same result. */
static enum hf_err finish_call(struct hf_client *client,
                               struct hf_future *future,
                               struct suite_counter *counter)
{
    enum hf_err err = HF_OK, again = HF_OK;

    expect_ok(recorded_future_wait(future, SUITE_TIMEOUT_MS, &err));
    assert_true(hf_future_done(future, &again));
    assert_int_equal(err, again);
    assert_true(suite_await(&counter->count, 1, client));
    for (int i = 0; i < 10; i++)
        expect_ok(hf_process(client));
    assert_int_equal(counter->count, 1);
    assert_int_equal(counter->last, (int)err);
    hf_future_free(future);
    return err;
}

/* GO-30 */
static void the_forms_of_acquire_agree(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_key free_key = suite_key("free"), held = suite_key("held");
    struct hf_lock *holder = NULL, *lock = NULL, *none = NULL;
    struct suite_counter granted = {0}, refused = {0};
    struct hf_future *future = NULL;
    struct hf_error error;

    expect_ok(recorded_acquire(client, held, &once, &holder));

    expect_ok(recorded_acquire(client, free_key, &once, &lock));
    expect_ok(recorded_release(client, lock));
    hf_lock_free(lock);
    lock = NULL;
    expect_ok(recorded_acquire_start(client, free_key, &once, &lock,
                                     suite_on_done, &granted, &future));
    expect_ok(finish_call(client, future, &granted));
    assert_true(hf_lock_valid_for(lock, 0));

    expect_err(recorded_acquire(client, held, &once, &none), HF_EBUSY);
    expect_ok(recorded_acquire_start(client, held, &once, &none, suite_on_done,
                                     &refused, &future));
    expect_err(finish_call(client, future, &refused), HF_EBUSY);
    assert_null(none);
    hf_client_error(client, &error);
    expect_err(error.code, HF_EBUSY);
    hf_lock_free(holder);
    hf_lock_free(lock);
    suite_close(client);
}

/* GO-30 */
static void the_forms_of_lock_acquire_and_release_agree(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts idle = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct suite_counter claimed = {0}, released = {0}, late = {0};
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL, *short_lock = NULL;

    idle.idle = true;
    expect_ok(recorded_lock_new(client, suite_key("k"), &idle, &lock));
    idle.ttl_ms = suite_short_ttl_ms(100);
    idle.wait_ms = SUITE_TIMEOUT_MS;
    expect_ok(recorded_lock_new(client, suite_key("k"), &idle, &short_lock));
    expect_ok(recorded_lock_acquire(client, lock));
    expect_ok(recorded_release(client, lock));

    expect_ok(recorded_lock_acquire_start(client, lock, suite_on_done, &claimed,
                                          &future));
    expect_ok(finish_call(client, future, &claimed));
    expect_ok(recorded_release_start(client, lock, suite_on_done, &released,
                                     &future));
    expect_ok(finish_call(client, future, &released));
    expect_ok(recorded_lock_acquire(client, short_lock));
    expect_ok(hf_wait_free(client, suite_key("k"), SUITE_TIMEOUT_MS, NULL));
    expect_ok(recorded_release_start(client, short_lock, suite_on_done, &late,
                                     &future));
    expect_err(finish_call(client, future, &late), HF_EEXPIRED);
    hf_lock_free(lock);
    hf_lock_free(short_lock);
    suite_close(client);
}

/* GO-30 */
static void the_forms_of_renew_and_force_agree(void)
{
    struct hf_client *client = suite_open();
    struct suite_counter renewed = {0}, forced = {0}, refused = {0};
    struct hf_future *future = NULL;
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL;

    expect_ok(recorded_acquire(client, key, NULL, &lock));
    expect_ok(recorded_renew(client, lock, 2 * SUITE_LONG_TTL_MS));
    expect_ok(recorded_renew_start(client, lock, 3 * SUITE_LONG_TTL_MS,
                                   suite_on_done, &renewed, &future));
    expect_ok(finish_call(client, future, &renewed));
    assert_true(hf_lock_valid_for(lock, 2 * SUITE_LONG_TTL_MS));

    expect_ok(hf_force_start(client, key, hf_lock_token(lock), false,
                             suite_on_done, &forced, &future));
    expect_ok(finish_call(client, future, &forced));
    expect_err(recorded_renew(client, lock, 0), HF_EFORCED);
    expect_ok(recorded_renew_start(client, lock, 0, suite_on_done, &refused,
                                   &future));
    expect_err(finish_call(client, future, &refused), HF_EFORCED);
    hf_lock_free(lock);
    suite_close(client);
}

/* GO-30 */
static void the_forms_of_update_agree(void)
{
    struct hf_client *client = suite_open();
    struct suite_counter updated = {0}, refused = {0};
    struct hf_bytes other = hf_bytes_of("other");
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL;

    expect_ok(recorded_acquire(client, suite_key("k"), NULL, &lock));
    expect_ok(recorded_update(client, lock, NULL, hf_bytes_of("v")));
    expect_ok(recorded_update_start(client, lock, NULL, hf_bytes_of("w"),
                                    suite_on_done, &updated, &future));
    expect_ok(finish_call(client, future, &updated));
    expect_err(recorded_update(client, lock, &other, hf_bytes_of("x")),
               HF_EMISMATCH);
    expect_ok(recorded_update_start(client, lock, &other, hf_bytes_of("x"),
                                    suite_on_done, &refused, &future));
    expect_err(finish_call(client, future, &refused), HF_EMISMATCH);
    hf_lock_free(lock);
    suite_close(client);
}

static bool count_held(const struct hf_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return true;
}

/* GO-30 */
static void the_forms_of_read_list_and_wait_agree(void)
{
    struct hf_client *client = suite_open();
    struct suite_counter read = {0}, listed = {0}, held = {0}, freed = {0};
    struct hf_key key = suite_key("k");
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL;
    struct hf_info info;
    unsigned count = 0;

    expect_ok(recorded_acquire(client, key, NULL, &lock));
    expect_ok(hf_read_start(client, key, HF_LINEARIZABLE, &info, suite_on_done,
                            &read, &future));
    expect_ok(finish_call(client, future, &read));
    assert_true(info.held);
    hf_info_fini(&info);

    expect_ok(hf_list_start(client, suite_key(""), count_held, &count,
                            suite_on_done, &listed, &future));
    expect_ok(finish_call(client, future, &listed));
    assert_int_equal(count, 1);

    expect_ok(hf_wait_held_start(client, key, SUITE_TIMEOUT_MS, NULL,
                                 suite_on_done, &held, &future));
    expect_ok(finish_call(client, future, &held));
    expect_ok(hf_wait_free_start(client, key, 20, NULL, suite_on_done, &freed,
                                 &future));
    expect_err(finish_call(client, future, &freed), HF_ETIMEDOUT);
    hf_lock_free(lock);
    suite_close(client);
}

/* GO-30 */
static void a_callback_without_a_future_runs_once(void)
{
    struct hf_client *client = suite_open_background();
    struct suite_counter counter = {0};
    struct hf_lock *lock = NULL;

    expect_ok(recorded_acquire_start(client, suite_key("k"), NULL, &lock,
                                     suite_on_done, &counter, NULL));
    assert_true(suite_await(&counter.count, 1, NULL));
    suite_sleep(50);

    assert_int_equal(counter.count, 1);
    expect_ok((enum hf_err)counter.last);
    hf_lock_free(lock);
    suite_close(client);
}

static void a_freed_future_still_runs_its_callback(void)
{
    struct hf_client *client = suite_open();
    struct suite_counter counter = {0};
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL;

    expect_ok(recorded_acquire_start(client, suite_key("k"), NULL, &lock,
                                     suite_on_done, &counter, &future));
    hf_future_free(future);

    assert_true(suite_await(&counter.count, 1, client));
    assert_true(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
    suite_close(client);
}

static void future_wait_times_out(void)
{
    struct hf_client *client = suite_open();
    struct hf_future *future = NULL;
    struct hf_error error;
    enum hf_err err = HF_EPROTO;
    int64_t began = 0;

    expect_ok(hf_wait_held_start(client, suite_key("k"), HF_FOREVER, NULL, NULL,
                                 NULL, &future));
    began = suite_now_ms();
    expect_err(hf_future_wait(future, 100, &err), HF_ETIMEDOUT);

    assert_true(suite_now_ms() - began >= 99);
    expect_err(err, HF_EPROTO);
    assert_false(hf_future_done(future, &err));
    hf_future_error(future, &error);
    expect_ok(error.code);
    hf_future_cancel(future);
    expect_ok(hf_future_wait(future, SUITE_TIMEOUT_MS, &err));
    expect_err(err, HF_ECANCELED);
    hf_future_error(future, &error);
    expect_err(error.code, HF_ECANCELED);
    assert_true(strlen(error.text) > 0);
    hf_future_free(future);
    suite_close(client);
}

static void a_canceled_read_completes_once(void)
{
    struct hf_client *client = suite_open();
    struct suite_counter counter = {0};
    struct hf_future *future = NULL;
    struct hf_info info = {.held = false};
    enum hf_err err = HF_EPROTO;

    expect_ok(hf_read_start(client, suite_key("k"), HF_LINEARIZABLE, &info,
                            suite_on_done, &counter, &future));
    hf_future_cancel(future);
    hf_future_cancel(future);
    err = finish_call(client, future, &counter);

    assert_true(err == HF_ECANCELED || err == HF_OK);
    hf_info_fini(&info);
    suite_close(client);
}

static void a_canceled_release_continues(void)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct suite_counter counter = {0};
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(client, key, NULL, &lock));
    expect_ok(
        recorded_release_start(client, lock, suite_on_done, &counter, &future));
    hf_future_cancel(future);

    expect_ok(finish_call(client, future, &counter));
    expect_ok(hf_wait_free(other, key, SUITE_TIMEOUT_MS, NULL));
    hf_lock_free(lock);
    suite_close(client);
    suite_close(other);
}

/* ---- Driving a client ---------------------------------------------------*/

static void a_poll_loop_drives_a_client(void)
{
    struct hf_client *holder = suite_open(), *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct suite_counter counter = {0};
    struct suite_lock_events reported = {0};
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL, *next = NULL;
    struct pollfd fd = {.fd = hf_fd(client), .events = POLLIN};

    assert_true(fd.fd >= 0);
    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    opts.on_event = suite_on_lock_event;
    opts.arg = &reported;
    expect_ok(recorded_acquire_start(client, key, &opts, &next, suite_on_done,
                                     &counter, NULL));
    while (reported.waiting == 0) {
        assert_true(poll(&fd, 1, SUITE_TIMEOUT_MS) > 0);
        expect_ok(hf_process(client));
    }
    expect_ok(recorded_release(holder, lock));
    while (counter.count == 0) {
        assert_true(poll(&fd, 1, SUITE_TIMEOUT_MS) > 0);
        expect_ok(hf_process(client));
    }

    expect_ok((enum hf_err)counter.last);
    assert_true(hf_lock_valid_for(next, 0));
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(holder);
    suite_close(client);
}

/* hf_fd() must not become readable unless there is work to do. */
static void an_idle_client_does_not_wake_its_loop(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock *lock = NULL;
    struct pollfd fd = {.fd = hf_fd(client), .events = POLLIN};
    unsigned wakeups = 0;
    int64_t began = 0, until = 0;

    expect_ok(recorded_acquire(client, suite_key("k"), NULL, &lock));
    began = suite_now_ms();
    until = began + 500;
    while (suite_now_ms() < until) {
        int64_t left = until - suite_now_ms();

        if (poll(&fd, 1, left > 0 ? (int)left : 0) > 0)
            wakeups++;
        expect_ok(hf_process(client));
    }

    /* Only an occasional timer may wake the loop. */
    assert_in_range(wakeups, 0, (suite_now_ms() - began) / 100);
    hf_lock_free(lock);
    suite_close(client);
}

static void callbacks_run_only_when_the_client_is_driven(void)
{
    struct hf_client *client = suite_open();
    struct suite_counter counter = {0};
    struct hf_lock *lock = NULL;

    expect_ok(recorded_acquire_start(client, suite_key("k"), NULL, &lock,
                                     suite_on_done, &counter, NULL));
    suite_sleep(50);
    assert_int_equal(counter.count, 0);

    assert_true(suite_await(&counter.count, 1, client));
    hf_lock_free(lock);
    suite_close(client);
}

static void a_background_client_drives_itself(void)
{
    struct hf_client *client = suite_open_background();
    struct suite_counter counter = {0};
    struct hf_lock *lock = NULL;

    expect_ok(recorded_acquire_start(client, suite_key("k"), NULL, &lock,
                                     suite_on_done, &counter, NULL));

    assert_true(suite_await(&counter.count, 1, NULL));
    hf_lock_free(lock);
    suite_close(client);
}

/* ---- Threads ------------------------------------------------------------*/

#define THREADS 8
#define ROUNDS 50

struct sharing {
    struct hf_client *client;
    struct hf_key keys[THREADS];
    struct hf_key contended;
    _Atomic unsigned failures;
};

static void use_shared_client(unsigned number, void *arg)
{
    struct sharing *sharing = arg;
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);

    for (unsigned i = 0; i < ROUNDS; i++) {
        struct hf_key key = i % 2 ? sharing->contended : sharing->keys[number];
        struct hf_lock *lock = NULL;
        struct hf_info info = {.held = false};

        if (recorded_acquire(sharing->client, key, &opts, &lock) != HF_OK) {
            atomic_fetch_add(&sharing->failures, 1);
            continue;
        }
        if (recorded_read(sharing->client, key, &info) != HF_OK ||
            info.token != hf_lock_token(lock))
            atomic_fetch_add(&sharing->failures, 1);
        hf_info_fini(&info);
        if (recorded_release(sharing->client, lock) != HF_OK)
            atomic_fetch_add(&sharing->failures, 1);
        hf_lock_free(lock);
    }
}

static void share(struct hf_client *client)
{
    struct sharing sharing = {.client = client, .contended = suite_key("all")};

    for (unsigned i = 0; i < THREADS; i++)
        sharing.keys[i] = suite_key_number("own", i);
    suite_threads(THREADS, use_shared_client, &sharing);

    assert_int_equal(sharing.failures, 0);
    suite_close(client);
}

static void any_thread_may_call(void)
{
    share(suite_open());
}

static void any_thread_may_call_a_background_client(void)
{
    share(suite_open_background());
}

/* One thread drives the client in a blocking call. Another thread calls
 * hf_process(), which must return without waiting for the first thread. */
struct helping {
    struct hf_client *client, *holder;
    struct hf_lock *lock, *next;
    struct hf_key key;
    enum hf_err locked, unlocked, processed;
    _Atomic unsigned acquired;
};

static void block_or_process(unsigned number, void *arg)
{
    struct helping *helping = arg;

    if (number == 0) {
        struct hf_lock_opts opts =
            suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);

        helping->locked = recorded_acquire(helping->client, helping->key, &opts,
                                           &helping->next);
        atomic_fetch_add(&helping->acquired, 1);
        return;
    }
    for (unsigned i = 0; i < 50; i++) {
        enum hf_err err = hf_process(helping->client);

        if (err)
            helping->processed = err;
        suite_sleep(1);
    }
    helping->unlocked = recorded_release(helping->holder, helping->lock);
    while (atomic_load(&helping->acquired) == 0)
        (void)hf_process(helping->client);
}

static void process_beside_a_blocking_call_is_harmless(void)
{
    struct helping helping = {
        .client = suite_open(),
        .holder = suite_open(),
        .key = suite_key("k"),
    };
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);

    expect_ok(
        recorded_acquire(helping.holder, helping.key, &opts, &helping.lock));
    suite_threads(2, block_or_process, &helping);

    expect_ok(helping.processed);
    expect_ok(helping.unlocked);
    expect_ok(helping.locked);
    hf_lock_free(helping.lock);
    hf_lock_free(helping.next);
    suite_close(helping.client);
    suite_close(helping.holder);
}

/* ---- Inside a callback --------------------------------------------------*/

struct inside {
    struct hf_client *client;
    struct hf_key key;
    struct hf_lock *held;
    struct hf_future *pending; /* not done yet */
    struct suite_counter answered;
    struct hf_lock *started;
    enum hf_err errs[12];
    size_t count;
    enum hf_err starts[3];
    _Atomic unsigned ran;
};

static int do_nothing(struct hf_lock *lock, void *arg)
{
    (void)lock;
    (void)arg;
    return 0;
}

static void block_inside(enum hf_err err, void *arg)
{
    struct inside *in = arg;
    struct hf_client *client = in->client;
    struct hf_lock *lock = NULL;
    enum hf_err answer = HF_OK;
    struct hf_info info;
    size_t i = 0;

    (void)err;
    in->errs[i++] = hf_acquire(client, in->key, NULL, &lock);
    in->errs[i++] = hf_release(in->held);
    in->errs[i++] = hf_renew(in->held, 0);
    in->errs[i++] = hf_read(client, in->key, HF_LINEARIZABLE, &info);
    in->errs[i++] = hf_wait_held(client, in->key, 10, NULL);
    in->errs[i++] = hf_wait_free(client, in->key, 10, NULL);
    in->errs[i++] = hf_force(client, in->key, 1, false);
    in->errs[i++] = hf_run(client, in->key, NULL, do_nothing, NULL, NULL);
    in->errs[i++] = hf_future_wait(in->pending, 10, &answer);
    in->errs[i++] = hf_close(client, 1000);
    in->count = i;
    in->starts[0] = recorded_acquire_start(client, in->key, NULL, &in->started,
                                           suite_on_done, &in->answered, NULL);
    in->starts[1] = hf_lock_valid_for(in->held, 0) ? HF_OK : HF_EEXPIRED;
    in->starts[2] = recorded_renew_start(client, in->held, 0, NULL, NULL, NULL);
    atomic_fetch_add(&in->ran, 1);
}

static void expect_no_blocking_inside(struct hf_client *client, bool drive)
{
    struct inside in = {.client = client, .key = suite_key("k")};
    struct hf_client *driven = drive ? client : NULL;
    struct hf_future *trigger = NULL;
    struct hf_info info;

    expect_ok(recorded_acquire(client, suite_key("held"), NULL, &in.held));
    expect_ok(hf_wait_held_start(client, suite_key("unused"), HF_FOREVER, NULL,
                                 NULL, NULL, &in.pending));
    expect_ok(hf_read_start(client, in.key, HF_LINEARIZABLE, &info,
                            block_inside, &in, &trigger));
    assert_true(suite_await(&in.ran, 1, driven));

    for (size_t i = 0; i < in.count; i++)
        expect_err(in.errs[i], HF_EDEADLK);
    for (size_t i = 0; i < 3; i++)
        expect_ok(in.starts[i]);
    assert_true(suite_await(&in.answered.count, 1, driven));
    expect_ok((enum hf_err)in.answered.last);
    assert_true(hf_lock_valid_for(in.held, 0));
    hf_info_fini(&info);
    hf_future_free(trigger);
    hf_future_cancel(in.pending);
    hf_future_free(in.pending);
    hf_lock_free(in.started);
    hf_lock_free(in.held);
    suite_close(client);
}

static void blocking_in_a_callback_is_refused(void)
{
    expect_no_blocking_inside(suite_open(), true);
}

static void blocking_in_a_background_callback_is_refused(void)
{
    expect_no_blocking_inside(suite_open_background(), false);
}

/* Inside a callback, blocking calls on another client are legal. */
struct crossing {
    struct hf_client *other;
    struct hf_key key;
    enum hf_err err;
    _Atomic unsigned ran;
};

static void block_on_the_other(enum hf_err err, void *arg)
{
    struct crossing *crossing = arg;
    struct hf_lock *lock = NULL;

    (void)err;
    crossing->err =
        recorded_acquire(crossing->other, crossing->key, NULL, &lock);
    recorded_lock_free(lock);
    atomic_fetch_add(&crossing->ran, 1);
}

static void blocking_on_another_client_is_allowed_in_a_callback(void)
{
    struct hf_client *client = suite_open();
    struct crossing crossing = {.other = suite_open(), .key = suite_key("k")};
    struct hf_lock *lock = NULL;

    expect_ok(recorded_acquire_start(client, suite_key("trigger"), NULL, &lock,
                                     block_on_the_other, &crossing, NULL));
    assert_true(suite_await(&crossing.ran, 1, client));

    expect_ok(crossing.err);
    hf_lock_free(lock);
    suite_close(client);
    suite_close(crossing.other);
}

static void free_in_callback(enum hf_err err, void *arg)
{
    struct inside *in = arg;

    (void)err;
    recorded_lock_free(in->started);
    atomic_fetch_add(&in->ran, 1);
}

static void a_handle_may_be_freed_in_its_own_callback(void)
{
    struct hf_client *client = suite_open();
    struct inside in = {.client = client, .key = suite_key("k")};
    struct hf_info info;

    expect_ok(recorded_acquire_start(client, in.key, NULL, &in.started,
                                     free_in_callback, &in, NULL));
    assert_true(suite_await(&in.ran, 1, client));

    expect_ok(hf_wait_free(client, in.key, SUITE_TIMEOUT_MS, NULL));
    expect_ok(recorded_read(client, in.key, &info));
    assert_false(info.held);
    hf_info_fini(&info);
    suite_close(client);
}

/* ---- Forks --------------------------------------------------------------*/

/* In the child, every call must be refused. Returns 0, or the number of the
 * first check that failed. */
static int use_in_child(struct hf_client *client, struct hf_lock *lock,
                        struct hf_future *future)
{
    struct hf_key key = hf_key_of("k");
    struct hf_lock *none = NULL;
    enum hf_err answer = HF_OK;
    struct hf_info info;

    if (hf_acquire(client, key, NULL, &none) != HF_EFORK)
        return 1;
    if (hf_release(lock) != HF_EFORK)
        return 2;
    if (hf_renew(lock, 0) != HF_EFORK)
        return 3;
    if (hf_read(client, key, HF_LINEARIZABLE, &info) != HF_EFORK)
        return 4;
    if (hf_process(client) != HF_EFORK)
        return 5;
    if (hf_wait_free(client, key, 10, NULL) != HF_EFORK)
        return 6;
    if (hf_future_wait(future, 10, &answer) != HF_EFORK)
        return 7;
    if (hf_acquire_start(client, key, NULL, &none, NULL, NULL, NULL) !=
        HF_EFORK)
        return 8;
    if (hf_lock_acquire(lock) != HF_EFORK)
        return 9;
    if (none)
        return 10;
    if (hf_lock_valid_for(lock, 0))
        return 11; /* only the parent holds the lock */
    if (hf_fd(client) != -1)
        return 12;
    hf_future_free(future);
    hf_lock_free(lock);
    return hf_close(client, 1000) == HF_EFORK ? 0 : 13;
}

static void expect_fork_is_harmless(struct hf_client *client)
{
    struct hf_lock_opts kept = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_client *other = suite_open();
    struct hf_key key = suite_key("k");
    struct hf_future *future = NULL;
    struct hf_lock *lock = NULL;
    struct hf_info info;
    int status = 0;
    pid_t pid = 0;

    kept.renew = true;
    expect_ok(recorded_acquire(client, key, &kept, &lock));
    expect_ok(hf_wait_held_start(client, suite_key("unused"), HF_FOREVER, NULL,
                                 NULL, NULL, &future));
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(use_in_child(client, lock, future));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);

    assert_true(recorded_is_valid(client, lock));
    expect_ok(recorded_renew(client, lock, 0));
    expect_ok(recorded_read(other, key, &info));
    assert_true(info.held);
    hf_info_fini(&info);
    expect_ok(recorded_release(client, lock));
    hf_future_free(future);
    hf_lock_free(lock);
    suite_close(other);
    suite_close(client);
}

static void a_forked_child_cannot_use_the_client(void)
{
    expect_fork_is_harmless(suite_open());
}

static void a_forked_child_cannot_use_a_background_client(void)
{
    expect_fork_is_harmless(suite_open_background());
}

struct forking {
    atomic_bool stop;
    atomic_int bad; /* the status of the first child that failed */
};

static int open_in_child(unsigned number)
{
    struct hf_client *client = NULL;
    struct hf_lock *lock = NULL;

    if (hf_open(suite_url(), NULL, &client))
        return 1;
    if (recorded_acquire(client, suite_key_number("child", number), NULL,
                         &lock))
        return 2;
    if (recorded_release(client, lock))
        return 3;
    hf_lock_free(lock);
    return recorded_close(client, 10000) ? 4 : 0;
}

static void fork_repeatedly(struct forking *forking)
{
    unsigned often = suite_scale_count(20);

    for (unsigned i = 0; i <= often && !forking->bad; i++) {
        pid_t pid = fork();
        int status = -1;

        if (pid == 0)
            _exit(open_in_child(i));
        if (waitpid(pid, &status, 0) != pid || status != 0)
            forking->bad = status;
    }
    forking->stop = true;
}

/* Thread 0 forks repeatedly, while the other threads call the library all the
 * time. */
static void fork_beside(unsigned number, void *arg)
{
    struct forking *forking = arg;
    struct hf_client *client = NULL;
    struct hf_info info;

    if (number == 0)
        fork_repeatedly(forking);
    while (!forking->stop) {
        if (!client && hf_open(suite_url(), NULL, &client))
            continue;
        if (!hf_read(client, suite_key("k"), HF_LINEARIZABLE, &info))
            hf_info_fini(&info);
        if (number == 1) {
            (void)hf_close(client, 1000);
            client = NULL;
        }
    }
    (void)hf_close(client, 1000);
}

static void a_child_forked_beside_busy_threads_can_open_a_client(void)
{
    struct forking forking = {.stop = false};

    hf_test_needs_forks_beside_threads();
    suite_lower_priority();
    suite_threads(3, fork_beside, &forking);
    assert_int_equal(forking.bad, 0);
}

/* ---- Closing ------------------------------------------------------------*/

/* GO-28 */
static void calls_on_a_closed_client_are_refused(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock *lock = NULL;
    struct hf_lock_opts idle = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *handle = NULL;

    idle.idle = true;
    expect_ok(recorded_acquire(client, suite_key("k"), NULL, &lock));
    expect_ok(recorded_lock_new(client, suite_key("i"), &idle, &handle));
    suite_close(client);

    /* The client is closed, but its handles are not freed, so calls on them are
     * still legal. */
    expect_err(hf_release(lock), HF_ECLOSED);
    expect_err(hf_renew(lock, 0), HF_ECLOSED);
    expect_err(hf_update(lock, NULL, hf_bytes_of("v")), HF_ECLOSED);
    expect_err(hf_lock_acquire(handle), HF_ECLOSED);
    expect_err(hf_lock_acquire_start(handle, NULL, NULL, NULL), HF_ECLOSED);
    assert_false(hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_lock_state(lock), HF_LOCK_IDLE);
    hf_lock_free(lock);
    hf_lock_free(handle);
}

static void close_releases_the_locks(void)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL, *next = NULL;

    expect_ok(recorded_acquire(client, key, &once, &lock));
    suite_close(client);

    expect_ok(recorded_acquire(other, key, &once, &next));
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(other);
}

/* G2-14 */
static void close_completes_pending_calls(void)
{
    for (int background = 0; background < 2; background++) {
        struct hf_client *holder = suite_open();
        struct hf_client *client =
            background ? suite_open_background() : suite_open();
        struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, HF_FOREVER);
        struct suite_counter waiter = {0}, held = {0}, freed = {0};
        struct hf_key key = suite_key_number("k", (unsigned)background);
        struct hf_future *future = NULL;
        struct hf_lock *lock = NULL, *none = NULL;
        enum hf_err err = HF_OK;

        expect_ok(recorded_acquire(holder, key, &opts, &lock));
        expect_ok(recorded_acquire_start(client, key, &opts, &none,
                                         suite_on_done, &waiter, &future));
        expect_ok(hf_wait_held_start(client, suite_key("unused"), HF_FOREVER,
                                     NULL, suite_on_done, &held, NULL));
        expect_ok(hf_wait_free_start(client, key, HF_FOREVER, NULL,
                                     suite_on_done, &freed, NULL));
        suite_close(client);

        assert_int_equal(waiter.count, 1);
        assert_int_equal(held.count, 1);
        assert_int_equal(freed.count, 1);
        expect_err((enum hf_err)waiter.last, HF_ECLOSED);
        expect_err((enum hf_err)held.last, HF_ECLOSED);
        expect_err((enum hf_err)freed.last, HF_ECLOSED);
        assert_true(hf_future_done(future, &err));
        expect_err(err, HF_ECLOSED);
        assert_null(none);
        hf_future_free(future);
        hf_lock_free(lock);
        suite_close(holder);
    }
}

/* A thread blocks in a call while another one closes the client. */
struct closing {
    struct hf_client *client;
    struct hf_key key;
    struct suite_lock_events reported;
    enum hf_err locked, closed;
};

static void block_or_close(unsigned number, void *arg)
{
    struct closing *closing = arg;

    if (number == 0) {
        (void)suite_await(&closing->reported.waiting, 1, NULL);
        closing->closed = recorded_close(closing->client, SUITE_TIMEOUT_MS);
    } else {
        struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, HF_FOREVER);
        struct hf_lock *none = NULL;

        opts.on_event = suite_on_lock_event;
        opts.arg = &closing->reported;
        closing->locked =
            recorded_acquire(closing->client, closing->key, &opts, &none);
    }
}

/* G2-14 */
static void close_ends_a_blocked_call(void)
{
    struct hf_client *holder = suite_open();
    struct closing closing = {.client = suite_open(), .key = suite_key("k")};
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL;

    expect_ok(recorded_acquire(holder, closing.key, &opts, &lock));
    suite_threads(2, block_or_close, &closing);

    expect_ok(closing.closed);
    expect_err(closing.locked, HF_ECLOSED);
    hf_lock_free(lock);
    suite_close(holder);
}

/* hf_close() returns by its deadline even if it has many locks to release. Its
 * result says whether all releases were confirmed. */
static void close_returns_by_its_deadline(void)
{
    struct hf_client *client = suite_open_background();
    struct hf_lock *locks[200] = {0};
    enum hf_err err = HF_OK;

    for (unsigned i = 0; i < 200; i++)
        expect_ok(recorded_acquire(client, suite_key_number("k", i), NULL,
                                   &locks[i]));
    err = recorded_close(client, 0);
    assert_true(err == HF_OK || err == HF_EINDOUBT);

    for (unsigned i = 0; i < 200; i++) {
        assert_false(hf_lock_valid_for(locks[i], 0));
        hf_lock_free(locks[i]);
    }
}

static void free_and_close_accept_null(void)
{
    expect_ok(hf_close(NULL, 0));
    hf_lock_free(NULL);
    hf_future_free(NULL);
    hf_future_cancel(NULL);
    hf_watch_close(NULL);
    hf_info_fini(&(struct hf_info){.held = false});
    assert_false(hf_lock_valid_for(NULL, 0));
    assert_int_equal(hf_lock_token(NULL), 0);
}

static const struct promise promises[] = {
    PROMISE(the_forms_of_acquire_agree, 0),
    PROMISE(the_forms_of_lock_acquire_and_release_agree, 0),
    PROMISE(the_forms_of_renew_and_force_agree, 0),
    PROMISE(the_forms_of_update_agree, HF_CAP_VALUE),
    PROMISE(the_forms_of_read_list_and_wait_agree, 0),
    PROMISE(a_callback_without_a_future_runs_once, 0),
    PROMISE(a_freed_future_still_runs_its_callback, 0),
    PROMISE(future_wait_times_out, 0),
    PROMISE(a_canceled_read_completes_once, 0),
    PROMISE(a_canceled_release_continues, 0),
    PROMISE(a_poll_loop_drives_a_client, 0),
    PROMISE(an_idle_client_does_not_wake_its_loop, 0),
    PROMISE(callbacks_run_only_when_the_client_is_driven, 0),
    PROMISE(a_background_client_drives_itself, 0),
    PROMISE(any_thread_may_call, 0),
    PROMISE(any_thread_may_call_a_background_client, 0),
    PROMISE(process_beside_a_blocking_call_is_harmless, 0),
    PROMISE(blocking_in_a_callback_is_refused, 0),
    PROMISE(blocking_in_a_background_callback_is_refused, 0),
    PROMISE(blocking_on_another_client_is_allowed_in_a_callback, 0),
    PROMISE(a_handle_may_be_freed_in_its_own_callback, 0),
    PROMISE(a_forked_child_cannot_use_the_client, 0),
    PROMISE(a_forked_child_cannot_use_a_background_client, 0),
    PROMISE(a_child_forked_beside_busy_threads_can_open_a_client, 0),
    PROMISE(calls_on_a_closed_client_are_refused, 0),
    PROMISE(close_releases_the_locks, 0),
    PROMISE(close_completes_pending_calls, 0),
    PROMISE(close_ends_a_blocked_call, 0),
    PROMISE(close_returns_by_its_deadline, 0),
    PROMISE(free_and_close_accept_null, 0),
};

const struct chapter chapter_calls = CHAPTER(promises);
