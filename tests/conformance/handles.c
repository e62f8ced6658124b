/* handles.c - the states of a handle: idle, acquired, released, acquired again;
 * hf_run(). */
#include "conformance/suite.h"
#include "lib/recorded.h"

#include <stdatomic.h>

static struct hf_lock *idle_handle(struct hf_client *client, struct hf_key key)
{
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL;

    opts.idle = true;
    expect_ok(recorded_lock_new(client, key, &opts, &lock));
    return lock;
}

/* MM-02 */
static void an_idle_handle_claims_nothing(void)
{
    static const uint8_t zeros[HF_NONCE_SIZE];
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = idle_handle(client, key);
    uint8_t nonce[HF_NONCE_SIZE];
    struct hf_info info;

    assert_int_equal(hf_lock_state(lock), HF_LOCK_IDLE);
    assert_int_equal(hf_lock_token(lock), 0);
    assert_false(hf_lock_valid_for(lock, 0));
    hf_lock_nonce(lock, nonce);
    assert_memory_equal(nonce, zeros, HF_NONCE_SIZE);
    expect_ok(recorded_read(client, key, &info));
    assert_false(info.held);
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(client);
}

/* MM-02 */
static void a_new_handle_claims_unless_idle(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock *lock = NULL;

    expect_ok(recorded_lock_new(client, suite_key("k"), NULL, &lock));
    assert_int_not_equal(hf_lock_state(lock), HF_LOCK_IDLE);
    expect_ok(recorded_lock_wait(lock));

    assert_int_equal(hf_lock_state(lock), HF_LOCK_HELD);
    assert_true(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
    suite_close(client);
}

/* MM-02: a handle keeps the options that it was created with. */
static void defaults_are_copied_at_creation(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts changed;
    struct hf_lock *old = NULL, *new = NULL;

    hf_lock_opts_init(&changed);
    changed.idle = true;
    changed.ttl_ms = SUITE_LONG_TTL_MS;
    expect_ok(hf_lock_opts_set_default(&changed));
    expect_ok(recorded_lock_new(client, suite_key("old"), NULL, &old));
    changed.ttl_ms = 3 * SUITE_LONG_TTL_MS;
    expect_ok(hf_lock_opts_set_default(&changed));
    expect_ok(recorded_lock_new(client, suite_key("new"), NULL, &new));
    expect_ok(recorded_lock_acquire(client, old));
    expect_ok(recorded_lock_acquire(client, new));

    assert_in_range(hf_lock_remaining_ms(old), 1, SUITE_LONG_TTL_MS);
    assert_in_range(hf_lock_remaining_ms(new), SUITE_LONG_TTL_MS + 1,
                    3 * SUITE_LONG_TTL_MS);
    hf_lock_free(old);
    hf_lock_free(new);
    suite_close(client);
}

/* MM-02, MS-09 */
static void defaults_can_be_read_changed_and_restored(void)
{
    struct hf_lock_opts opts;

    suite_restore_defaults();
    hf_lock_opts_init(&opts);
    assert_int_equal(opts.ttl_ms, 10000);
    assert_int_equal(opts.wait_ms, 5000);
    assert_int_equal(opts.timeout_ms, 5000); /* GO-16 */
    assert_false(opts.renew);
    assert_false(opts.idle);
    opts.ttl_ms = 15000;
    opts.renew = true;
    expect_ok(hf_lock_opts_set_default(&opts));
    hf_lock_opts_init(&opts);
    assert_int_equal(opts.ttl_ms, 15000);
    assert_true(opts.renew);

    expect_ok(hf_lock_opts_set_default(NULL));
    hf_lock_opts_init(&opts);
    assert_int_equal(opts.ttl_ms, 10000);
    assert_false(opts.renew);
}

static void contradictory_defaults_are_refused(void)
{
    struct hf_error error = {.code = HF_OK};
    struct hf_lock_opts opts = suite_opts(1000, 0);

    opts.renew_ms = 1000;
    opts.error = &error;
    expect_err(hf_lock_opts_set_default(&opts), HF_EINVAL);

    expect_error_text(error.text, "renew_ms");
    hf_lock_opts_init(&opts);
    assert_int_equal(opts.renew_ms, 0);
}

/* MM-03 */
static void acquire_when_acquired_is_a_state_error(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock *lock = idle_handle(client, suite_key("k"));

    expect_ok(recorded_lock_acquire(client, lock));

    expect_err(hf_lock_acquire(lock), HF_ESTATE);
    expect_err(hf_lock_acquire_start(lock, NULL, NULL, NULL), HF_ESTATE);
    assert_true(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
    suite_close(client);
}

/* MM-03 */
static void release_when_idle_is_a_state_error(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock *lock = idle_handle(client, suite_key("k"));

    expect_err(hf_release(lock), HF_ESTATE);
    expect_err(hf_release_start(lock, NULL, NULL, NULL), HF_ESTATE);
    expect_err(hf_renew(lock, 0), HF_ESTATE);
    expect_err(hf_update(lock, NULL, hf_bytes_of("v")), HF_ESTATE);
    expect_err(hf_lock_wait(lock), HF_ESTATE);
    hf_lock_free(lock);
    suite_close(client);
}

/* MM-04 */
static void a_handle_can_be_acquired_repeatedly(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock *lock = idle_handle(client, suite_key("k"));
    uint64_t last = 0;

    for (int i = 0; i < 3; i++) {
        expect_ok(recorded_lock_acquire(client, lock));
        assert_true(hf_lock_valid_for(lock, 0));
        assert_true(hf_lock_token(lock) > last);
        last = hf_lock_token(lock);
        expect_ok(recorded_release(client, lock));
        assert_int_equal(hf_lock_state(lock), HF_LOCK_IDLE);
    }
    hf_lock_free(lock);
    suite_close(client);
}

/* MM-04 */
static void a_refused_claim_leaves_the_handle_idle(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL, *handle = idle_handle(other, key);
    struct hf_error error;

    expect_ok(recorded_acquire(holder, key, NULL, &lock));
    expect_err(recorded_lock_acquire(other, handle), HF_EBUSY);
    assert_int_equal(hf_lock_state(handle), HF_LOCK_IDLE);
    hf_lock_error(handle, &error);
    expect_err(error.code, HF_EBUSY);
    expect_ok(recorded_release(holder, lock));

    expect_ok(recorded_lock_acquire(other, handle));
    hf_lock_free(lock);
    hf_lock_free(handle);
    suite_close(holder);
    suite_close(other);
}

static void a_lost_handle_can_be_acquired_again(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts short_opts =
        suite_opts(suite_short_ttl_ms(50), SUITE_TIMEOUT_MS);
    struct hf_lock *lock = NULL;
    uint64_t token = 0;

    short_opts.idle = true;
    expect_ok(recorded_lock_new(client, suite_key("k"), &short_opts, &lock));
    expect_ok(recorded_lock_acquire(client, lock));
    token = hf_lock_token(lock);
    suite_sleep_until(hf_lock_deadline(lock));
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);

    expect_ok(recorded_lock_acquire(client, lock));
    assert_true(hf_lock_token(lock) > token);
    hf_lock_free(lock);
    suite_close(client);
}

/* MM-10 */
static void release_waits_for_the_pending_claim(void)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct suite_lock_events reported = {0};
    struct hf_lock *lock = NULL, *handle = NULL;
    struct hf_future *future = NULL;
    struct hf_key key = suite_key("k");
    struct hf_info info;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    opts.on_event = suite_on_lock_event;
    opts.arg = &reported;
    expect_ok(recorded_lock_new(other, key, &opts, &handle));
    assert_true(suite_await(&reported.waiting, 1, NULL));
    expect_ok(recorded_release_start(other, handle, NULL, NULL, &future));
    suite_sleep(100);
    assert_false(hf_future_done(future, NULL));
    expect_ok(recorded_release(holder, lock));

    expect_ok(suite_future_result(future, SUITE_TIMEOUT_MS));
    assert_int_equal(hf_lock_state(handle), HF_LOCK_IDLE);
    expect_ok(recorded_lock_wait(handle));
    expect_ok(recorded_read(holder, key, &info));
    assert_false(info.held);
    hf_info_fini(&info);
    hf_lock_free(lock);
    hf_lock_free(handle);
    suite_close(holder);
    suite_close(other);
}

/* MM-10: hf_release() waits for a pending claim and returns its error. Returns
 * false if the claim timed out before the release started, or if its withdrawal
 * was in doubt. */
static bool release_fails_like_claim(unsigned round)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    struct hf_lock_opts opts =
        suite_opts(SUITE_LONG_TTL_MS, suite_longer_ms(200, round));
    struct hf_lock *lock = NULL, *handle = NULL;
    struct hf_key key = suite_key_number("k", round);
    enum hf_err err = HF_OK;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    expect_ok(recorded_lock_new(other, key, &opts, &handle));
    err = recorded_release(other, handle);
    if (err != HF_ESTATE)
        suite_expect_withdrawn(err, HF_ETIMEDOUT);
    assert_int_equal(hf_lock_state(handle), HF_LOCK_IDLE);
    suite_expect_withdrawn(recorded_lock_wait(handle), HF_ETIMEDOUT);
    hf_lock_free(lock);
    hf_lock_free(handle);
    suite_close(holder);
    suite_close(other);
    return err == HF_ETIMEDOUT;
}

static void release_fails_like_the_pending_claim(void)
{
    suite_repeat(release_fails_like_claim);
}

static void freeing_a_handle_cancels_its_claim(void)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct suite_counter counter = {0};
    struct hf_lock *lock = NULL, *handle = NULL;
    struct hf_key key = suite_key("k");
    struct hf_info info;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    opts.idle = true;
    expect_ok(recorded_lock_new(other, key, &opts, &handle));
    expect_ok(recorded_lock_acquire_start(other, handle, suite_on_done,
                                          &counter, NULL));
    recorded_lock_free(handle);

    assert_true(suite_await(&counter.count, 1, NULL));
    suite_expect_withdrawn((enum hf_err)counter.last, HF_ECANCELED);
    suite_close(other);
    expect_ok(recorded_read(holder, key, &info));
    assert_int_equal(info.waiters, 0);
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(holder);
}

/* ---- hf_run() -----------------------------------------------------------*/

struct job {
    bool ran, valid;
    uint64_t token;
    int64_t takes_ms;
};

static int run_job(struct hf_lock *lock, void *arg)
{
    struct job *job = arg;

    job->ran = true;
    job->valid = hf_lock_valid_for(lock, 0);
    job->token = hf_lock_token(lock);
    suite_sleep(job->takes_ms);
    return 42;
}

/* MN-01 */
static void run_returns_the_result_and_releases(void)
{
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    struct job job = {.ran = false};
    struct hf_info info;
    int result = 0;

    expect_ok(recorded_run(client, key, NULL, run_job, &job, &result));

    assert_int_equal(result, 42);
    assert_true(job.valid);
    assert_true(job.token > 0);
    expect_ok(recorded_read(client, key, &info));
    assert_false(info.held);
    hf_info_fini(&info);
    suite_close(client);
}

/* MN-01 */
static void run_does_not_call_without_the_lock(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_key key = suite_key("k");
    struct job job = {.ran = false};
    struct hf_lock *lock = NULL;
    int result = 7;

    expect_ok(recorded_acquire(holder, key, &once, &lock));
    expect_err(recorded_run(other, key, &once, run_job, &job, &result),
               HF_EBUSY);

    assert_false(job.ran);
    assert_int_equal(result, 7);
    expect_err(hf_run(other, key, &once, NULL, NULL, &result), HF_EINVAL);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
}

/* MN-01 */
static void run_reports_a_lock_lost_meanwhile(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts short_opts =
        suite_opts(suite_short_ttl_ms(50), SUITE_TIMEOUT_MS);
    struct job job = {.takes_ms = 4 * (int64_t)suite_short_ttl_ms(50)};
    int result = 0;

    expect_err(recorded_run(client, suite_key("k"), &short_opts, run_job, &job,
                            &result),
               HF_EEXPIRED);

    assert_int_equal(result, 42);
    suite_close(client);
}

static const struct promise promises[] = {
    PROMISE(an_idle_handle_claims_nothing, 0),
    PROMISE(a_new_handle_claims_unless_idle, 0),
    PROMISE(defaults_are_copied_at_creation, 0),
    PROMISE(defaults_can_be_read_changed_and_restored, 0),
    PROMISE(contradictory_defaults_are_refused, 0),
    PROMISE(acquire_when_acquired_is_a_state_error, 0),
    PROMISE(release_when_idle_is_a_state_error, 0),
    PROMISE(a_handle_can_be_acquired_repeatedly, 0),
    PROMISE(a_refused_claim_leaves_the_handle_idle, 0),
    PROMISE(a_lost_handle_can_be_acquired_again, 0),
    PROMISE(release_waits_for_the_pending_claim, 0),
    PROMISE(release_fails_like_the_pending_claim, 0),
    PROMISE(freeing_a_handle_cancels_its_claim, 0),
    PROMISE(run_returns_the_result_and_releases, 0),
    PROMISE(run_does_not_call_without_the_lock, 0),
    PROMISE(run_reports_a_lock_lost_meanwhile, 0),
};

const struct chapter chapter_handles = CHAPTER(promises);
