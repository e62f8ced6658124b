/* acquire.c - which claims hf_acquire() grants, and what a grant contains. */
#include "conformance/suite.h"
#include "lib/recorded.h"

#include <string.h>

/* GO-01 */
static void every_claim_has_a_new_nonce(void)
{
    struct hf_client *client = suite_open();
    uint8_t nonces[2][HF_NONCE_SIZE] = {{0}};
    struct hf_key key = suite_key("k");

    for (int i = 0; i < 2; i++) {
        struct hf_lock *lock = NULL;

        expect_ok(recorded_acquire(client, key, NULL, &lock));
        hf_lock_nonce(lock, nonces[i]);
        expect_ok(recorded_release(client, lock));
        hf_lock_free(lock);
    }

    assert_memory_not_equal(nonces[0], nonces[1], HF_NONCE_SIZE);
    suite_close(client);
}

/* MJ-01, MS-01 */
static void handle_has_key_token_nonce_and_deadline(void)
{
    static const uint8_t zeros[HF_NONCE_SIZE];
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    uint8_t nonce[HF_NONCE_SIZE];
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL;
    int64_t before = suite_now_ms();

    expect_ok(recorded_acquire(client, key, &opts, &lock));

    assert_int_equal(hf_lock_key(lock).size, key.size);
    assert_memory_equal(hf_lock_key(lock).data, key.data, key.size);
    assert_true(hf_lock_token(lock) > 0);
    hf_lock_nonce(lock, nonce);
    assert_memory_not_equal(nonce, zeros, HF_NONCE_SIZE);
    assert_true(hf_lock_valid_for(lock, 0));
    assert_true(hf_lock_deadline(lock) >= before);
    assert_true(hf_lock_deadline(lock) <= suite_now_ms() + SUITE_LONG_TTL_MS);
    assert_true(hf_lock_remaining_ms(lock) <= hf_lock_deadline(lock) - before);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_HELD);
    hf_lock_free(lock);
    suite_close(client);
}

/* GO-03 */
static void default_ttl_is_ten_seconds(void)
{
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL;
    struct hf_info info;
    int64_t before = 0;

    suite_restore_defaults();
    before = suite_now_ms();
    expect_ok(recorded_acquire(client, key, NULL, &lock));

    assert_true(hf_lock_deadline(lock) >= before + 10000);
    assert_true(hf_lock_deadline(lock) <= suite_now_ms() + 10000);
    expect_ok(recorded_read(client, key, &info));
    assert_true(info.left_ms <= suite_lease_ms(10000));
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(client);
}

/* GO-04: a claim waits at least five seconds by default. Only the value of
 * wait_ms shows that it is not longer, because no case asserts an upper bound
 * on time. */
static void default_wait_is_five_seconds(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_key key = suite_key("k");
    struct hf_lock_opts opts;
    struct hf_lock *lock = NULL;
    unsigned claims = 0;
    int64_t began = 0;

    expect_ok(recorded_acquire(holder, key, NULL, &lock));
    suite_restore_defaults();
    hf_lock_opts_init(&opts);
    assert_int_equal(opts.wait_ms, 5000);
    began = suite_now_ms();
    claims = suite_expect_timeout(other, key, NULL);

    assert_true(suite_now_ms() - began >= 4999 * (int64_t)claims);
    hf_lock_free(lock);
    suite_close(other);
    suite_close(holder);
}

/* GO-05, GO-07, MS-02: the claim does not enter the queue. */
static void held_key_is_busy_without_a_wait(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_key key = suite_key("k");
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct suite_lock_events reported = {0};
    struct hf_lock *lock = NULL, *none = NULL;

    expect_ok(recorded_acquire(holder, key, &once, &lock));
    once.on_event = suite_on_lock_event;
    once.arg = &reported;
    expect_err(recorded_acquire(other, key, &once, &none), HF_EBUSY);

    assert_null(none);
    assert_int_equal(reported.count, 0);
    assert_true(recorded_is_valid(holder, lock));
    hf_lock_free(lock);
    suite_close(other);
    suite_close(holder);
}

/* GO-07, MJ-06 */
static void a_free_key_is_granted_with_any_wait(void)
{
    static const uint32_t waits[] = {0, 1, 100, 5000, HF_FOREVER};
    struct hf_client *client = suite_open();

    for (unsigned i = 0; i < HF_TEST_COUNT(waits); i++) {
        struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, waits[i]);
        struct hf_lock *lock = NULL;

        expect_ok(
            recorded_acquire(client, suite_key_number("k", i), &opts, &lock));
        assert_true(hf_lock_valid_for(lock, 0));
        hf_lock_free(lock);
    }
    suite_close(client);
}

/* GO-11 */
static void keys_are_independent(void)
{
    struct hf_client *one = suite_open(), *two = suite_open();
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *first = NULL, *second = NULL;

    expect_ok(recorded_acquire(one, suite_key("k1"), &once, &first));

    expect_ok(recorded_acquire(two, suite_key("k2"), &once, &second));
    hf_lock_free(first);
    hf_lock_free(second);
    suite_close(one);
    suite_close(two);
}

/* GO-11 */
static void a_key_and_its_prefix_are_independent(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL, *longer = NULL;

    expect_ok(recorded_acquire(client, suite_key("k"), &once, &lock));

    expect_ok(recorded_acquire(client, suite_key("kk"), &once, &longer));
    hf_lock_free(lock);
    hf_lock_free(longer);
    suite_close(client);
}

/* GO-12, MS-02 */
static void a_client_cannot_acquire_its_own_lock_again(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL, *again = NULL;
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(client, key, &once, &lock));

    expect_err(recorded_acquire(client, key, &once, &again), HF_EBUSY);
    assert_null(again);
    assert_true(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
    suite_close(client);
}

/* LK-03 */
static void an_equal_value_does_not_acquire_a_held_key(void)
{
    struct hf_client *one = suite_open(), *two = suite_open();
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL, *again = NULL;
    struct hf_key key = suite_key("k");

    once.value = hf_bytes_of("v");
    expect_ok(recorded_acquire(one, key, &once, &lock));

    expect_err(recorded_acquire(two, key, &once, &again), HF_EBUSY);
    hf_lock_free(lock);
    suite_close(one);
    suite_close(two);
}

/* MS-04 */
static void tokens_increase_over_releases(void)
{
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    uint64_t last = 0;

    for (int i = 0; i < 3; i++) {
        struct hf_lock *lock = NULL;

        expect_ok(recorded_acquire(client, key, NULL, &lock));
        assert_true(hf_lock_token(lock) > last);
        last = hf_lock_token(lock);
        expect_ok(recorded_release(client, lock));
        hf_lock_free(lock);
    }
    suite_close(client);
}

/* MS-03 */
static void tokens_increase_over_an_expiry(void)
{
    struct hf_client *one = suite_open(), *two = suite_open();
    struct hf_lock_opts short_opts =
        suite_opts(suite_short_ttl_ms(100), SUITE_TIMEOUT_MS);
    struct hf_lock *lost = NULL, *lock = NULL;
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(one, key, &short_opts, &lost));
    expect_ok(recorded_acquire(two, key, &short_opts, &lock));

    assert_true(hf_lock_token(lock) > hf_lock_token(lost));
    hf_lock_free(lost);
    hf_lock_free(lock);
    suite_close(one);
    suite_close(two);
}

/* MS-04: tokens still increase after the client that held the key was closed.
 * Another client keeps the store open. */
static void tokens_increase_over_clients(void)
{
    struct hf_client *witness = suite_open();
    struct hf_key key = suite_key("k");
    uint64_t last = 0;

    for (int i = 0; i < 3; i++) {
        struct hf_client *client = suite_open();
        struct hf_lock *lock = NULL;

        expect_ok(recorded_acquire(client, key, NULL, &lock));
        assert_true(hf_lock_token(lock) > last);
        last = hf_lock_token(lock);
        suite_close(client);
        hf_lock_free(lock);
    }
    suite_close(witness);
}

/* MS-05, G2-13: with durable locks, the store survives its last client. */
static void tokens_increase_over_a_restart(void)
{
    struct hf_key key = suite_key("k");
    uint64_t last = 0;

    for (int i = 0; i < 3; i++) {
        struct hf_client *client = suite_open();
        struct hf_lock *lock = NULL;

        expect_ok(recorded_acquire(client, key, NULL, &lock));
        assert_true(hf_lock_token(lock) > last);
        last = hf_lock_token(lock);
        suite_close(client);
        hf_lock_free(lock);
    }
}

/* CF-01 */
static void one_of_two_batched_claims_wins(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_future *first = NULL, *second = NULL;

    expect_ok(
        recorded_acquire_start(client, key, &once, &lock, NULL, NULL, &first));
    expect_ok(
        recorded_acquire_start(client, key, &once, &none, NULL, NULL, &second));
    expect_ok(suite_future_result(first, HF_FOREVER));
    expect_err(suite_future_result(second, HF_FOREVER), HF_EBUSY);

    assert_null(none);
    hf_lock_free(lock);
    suite_close(client);
}

/* MM-05 */
static void a_refused_claim_leaves_no_trace(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_key key = suite_key("k");
    struct hf_info info;

    opts.note = "the holder";
    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    opts.note = "the loser";
    expect_err(recorded_acquire(other, key, &opts, &none), HF_EBUSY);

    expect_ok(recorded_read(other, key, &info));
    assert_string_equal(info.note, "the holder");
    assert_int_equal(info.token, hf_lock_token(lock));
    assert_int_equal(info.waiters, 0);
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(other);
    suite_close(holder);
}

/* GO-17: a claim that has timed out is not granted later. Returns false if the
 * withdrawal was in doubt, because the claim is then withdrawn later, in the
 * background. */
static bool leaves_no_grant(unsigned round)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_key key = suite_key_number("k", round);
    struct hf_lock_opts short_opts = suite_opts(SUITE_LONG_TTL_MS, 1);
    struct hf_lock *lock = NULL, *next = NULL;
    bool confirmed = false;

    expect_ok(recorded_acquire(holder, key, &short_opts, &lock));
    confirmed = suite_expect_timeout(other, key, &short_opts) == 1;
    expect_ok(recorded_release(holder, lock));
    short_opts.wait_ms = confirmed ? 0 : SUITE_TIMEOUT_MS;
    expect_ok(recorded_acquire(holder, key, &short_opts, &next));

    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(other);
    suite_close(holder);
    return confirmed;
}

static void a_timed_out_claim_is_never_granted(void)
{
    suite_repeat(leaves_no_grant);
}

/* MN-02, MM-01 */
static void busy_invalid_and_timed_out_are_different_errors(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(holder, key, &opts, &lock));

    expect_err(recorded_acquire(other, key, &opts, &none), HF_EBUSY);
    opts.wait_ms = 20;
    (void)suite_expect_timeout(other, key, &opts);
    expect_err(hf_acquire(other, hf_key_of(""), &opts, &none), HF_EINVAL);
    assert_null(none);
    hf_lock_free(lock);
    suite_close(other);
    suite_close(holder);
}

/* MJ-10 */
static void an_unreachable_server_is_unavailable(void)
{
    const char *url = suite_unreachable_url();
    struct hf_lock_opts opts = suite_opts(10000, 1000);
    struct hf_client *client = NULL;
    struct hf_lock *lock = NULL;
    enum hf_err err = hf_open(url, NULL, &client);

    opts.timeout_ms = 1000;
    if (err == HF_OK) {
        err = recorded_acquire(client, suite_key("k"), &opts, &lock);
        (void)recorded_close(client, 1000);
    }

    expect_err(err, HF_EUNAVAIL);
    assert_null(lock);
}

static const struct promise promises[] = {
    PROMISE(default_wait_is_five_seconds, 0),
    PROMISE(every_claim_has_a_new_nonce, 0),
    PROMISE(handle_has_key_token_nonce_and_deadline, 0),
    PROMISE(default_ttl_is_ten_seconds, 0),
    PROMISE(held_key_is_busy_without_a_wait, 0),
    PROMISE(a_free_key_is_granted_with_any_wait, 0),
    PROMISE(keys_are_independent, 0),
    PROMISE(a_key_and_its_prefix_are_independent, 0),
    PROMISE(a_client_cannot_acquire_its_own_lock_again, 0),
    PROMISE(an_equal_value_does_not_acquire_a_held_key, HF_CAP_VALUE),
    PROMISE(tokens_increase_over_releases, HF_CAP_FENCE),
    PROMISE(tokens_increase_over_an_expiry, HF_CAP_FENCE),
    PROMISE(tokens_increase_over_clients, HF_CAP_FENCE),
    PROMISE(tokens_increase_over_a_restart, HF_CAP_FENCE | HF_CAP_DURABLE),
    PROMISE(one_of_two_batched_claims_wins, 0),
    PROMISE(a_refused_claim_leaves_no_trace, 0),
    PROMISE(a_timed_out_claim_is_never_granted, 0),
    PROMISE(busy_invalid_and_timed_out_are_different_errors, 0),
    PROMISE(an_unreachable_server_is_unavailable, 0),
};

const struct chapter chapter_acquire = CHAPTER(promises);
