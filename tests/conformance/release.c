/* release.c - release, adopt, detach, force and update. */
#include "conformance/suite.h"
#include "lib/recorded.h"

/* GO-02 */
static void release_frees_the_key(void)
{
    struct hf_client *one = suite_open(), *two = suite_open();
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(one, key, &once, &lock));
    expect_ok(recorded_release(one, lock));

    expect_ok(recorded_acquire(two, key, &once, &next));
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(one);
    suite_close(two);
}

/* MS-10 */
static void release_ends_validity(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL;

    opts.renew = true;
    expect_ok(recorded_acquire(client, suite_key("k"), &opts, &lock));
    expect_ok(recorded_release(client, lock));

    assert_false(hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_lock_remaining_ms(lock), 0);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_IDLE);
    hf_lock_free(lock);
    suite_close(client);
}

/* Return a handle with the holder's token and a wrong nonce. */
static struct hf_lock *adopt_with_wrong_nonce(struct hf_client *client,
                                              struct hf_key key, uint64_t token)
{
    static const uint8_t bogus[HF_NONCE_SIZE] = {"no such nonce"};
    struct hf_lock *lock = NULL;

    expect_ok(hf_lock_adopt(client, key, bogus, token, NULL, &lock));
    return lock;
}

/* GO-09, LK-05 */
static void wrong_nonce_cannot_release(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL, *forged = NULL;

    expect_ok(recorded_acquire(holder, key, NULL, &lock));
    forged = adopt_with_wrong_nonce(other, key, hf_lock_token(lock));
    expect_err(recorded_release(other, forged), HF_ENOTOWNER);

    expect_ok(recorded_release(holder, lock));
    hf_lock_free(forged);
    hf_lock_free(lock);
    suite_close(other);
    suite_close(holder);
}

/* LK-10, MS-10 */
static void wrong_nonce_cannot_renew(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL, *forged = NULL;
    struct hf_key key = suite_key("k");
    struct hf_info info;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    forged = adopt_with_wrong_nonce(other, key, hf_lock_token(lock));
    expect_err(recorded_renew(other, forged, 2 * SUITE_LONG_TTL_MS),
               HF_ENOTOWNER);

    expect_ok(recorded_read(holder, key, &info));
    assert_true(info.left_ms <= suite_lease_ms(SUITE_LONG_TTL_MS));
    hf_info_fini(&info);
    hf_lock_free(forged);
    hf_lock_free(lock);
    suite_close(other);
    suite_close(holder);
}

/* LK-05, MS-10: a wrong token is refused even with the right nonce. */
static void wrong_token_cannot_release(void)
{
    struct hf_client *client = suite_open();
    uint8_t nonce[HF_NONCE_SIZE];
    struct hf_lock *lock = NULL, *forged = NULL;
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(client, key, NULL, &lock));
    hf_lock_nonce(lock, nonce);
    expect_ok(hf_lock_adopt(client, key, nonce, hf_lock_token(lock) + 1, NULL,
                            &forged));

    expect_err(recorded_release(client, forged), HF_ENOTOWNER);
    expect_ok(recorded_release(client, lock));
    hf_lock_free(forged);
    hf_lock_free(lock);
    suite_close(client);
}

/* GO-10 */
static void second_release_by_nonce_is_not_held(void)
{
    struct hf_client *client = suite_open();
    struct hf_key key = suite_key("k");
    uint8_t nonce[HF_NONCE_SIZE];
    struct hf_lock *lock = NULL, *again = NULL;

    expect_ok(recorded_acquire(client, key, NULL, &lock));
    hf_lock_nonce(lock, nonce);
    expect_ok(
        hf_lock_adopt(client, key, nonce, hf_lock_token(lock), NULL, &again));
    expect_ok(recorded_release(client, lock));
    expect_err(recorded_release(client, again), HF_ENOTHELD);

    hf_lock_free(again);
    hf_lock_free(lock);
    suite_close(client);
}

/* GO-10, MM-03 */
static void second_release_of_a_handle_is_a_state_error(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock *lock = NULL;

    expect_ok(recorded_acquire(client, suite_key("k"), NULL, &lock));
    expect_ok(recorded_release(client, lock));

    expect_err(hf_release(lock), HF_ESTATE);
    expect_err(hf_renew(lock, 0), HF_ESTATE);
    hf_lock_free(lock);
    suite_close(client);
}

/* MJ-04, MM-09, MS-10 */
static void late_unlock_never_frees_the_next_holder(void)
{
    struct hf_client *one = suite_open(), *two = suite_open();
    struct hf_lock_opts short_opts =
        suite_opts(suite_short_ttl_ms(100), SUITE_TIMEOUT_MS);
    struct hf_lock_opts next = suite_opts(SUITE_LONG_TTL_MS, HF_FOREVER);
    struct hf_lock *late = NULL, *lock = NULL;
    struct hf_key key = suite_key("k");
    struct hf_info info;

    expect_ok(recorded_acquire(one, key, &short_opts, &late));
    expect_ok(recorded_acquire(two, key, &next, &lock));
    expect_err(recorded_release(one, late), HF_EEXPIRED);

    expect_ok(recorded_read(one, key, &info));
    assert_true(info.held);
    assert_int_equal(info.token, hf_lock_token(lock));
    assert_true(recorded_is_valid(two, lock));
    expect_ok(recorded_release(two, lock));
    hf_info_fini(&info);
    hf_lock_free(late);
    hf_lock_free(lock);
    suite_close(one);
    suite_close(two);
}

/* MJ-04: the result is HF_EEXPIRED even if no other client has acquired the
 * key. */
static void release_after_expiry_returns_expired(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts short_opts =
        suite_opts(suite_short_ttl_ms(50), SUITE_TIMEOUT_MS);
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(client, key, &short_opts, &lock));
    expect_ok(hf_wait_free(client, key, SUITE_TIMEOUT_MS, NULL));

    expect_err(recorded_release(client, lock), HF_EEXPIRED);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_IDLE);
    hf_lock_free(lock);
    suite_close(client);
}

/* MJ-05 */
static void release_of_null_is_refused(void)
{
    static const uint8_t nonce[HF_NONCE_SIZE];
    struct hf_client *client = suite_open();
    struct hf_lock *lock = NULL;

    expect_err(hf_release(NULL), HF_EINVAL);
    expect_err(hf_renew(NULL, 0), HF_EINVAL);
    expect_err(hf_update(NULL, NULL, hf_bytes_of("v")), HF_EINVAL);
    expect_err(hf_lock_acquire(NULL), HF_EINVAL);
    expect_err(hf_lock_adopt(client, suite_key("k"), NULL, 1, NULL, &lock),
               HF_EINVAL);
    expect_err(hf_lock_adopt(client, suite_key("k"), nonce, 0, NULL, &lock),
               HF_EINVAL);
    assert_null(lock);
    suite_close(client);
}

/* MM-08 */
static void a_released_key_is_not_listed(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");
    struct hf_info info;

    expect_ok(recorded_acquire(client, key, NULL, &lock));
    expect_ok(recorded_release(client, lock));

    expect_ok(recorded_read(client, key, &info));
    assert_false(info.held);
    assert_int_equal(info.token, 0);
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(client);
}

/* hf_lock_free() releases the lock without waiting for the reply. */
static void free_releases_in_the_background(void)
{
    struct hf_client *one = suite_open_background(), *two = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(one, key, &opts, &lock));
    recorded_lock_free(lock);

    expect_ok(recorded_acquire(two, key, &opts, &next));
    hf_lock_free(next);
    suite_close(one);
    suite_close(two);
}

/* ---- Adopting -----------------------------------------------------------*/

static struct hf_lock *adopt(struct hf_client *client,
                             const struct hf_lock *from)
{
    return suite_adopt(client, from, hf_lock_token(from));
}

/* Returns false if the release was in doubt: on a busy machine, a reply may be
 * so late that the client repeats the request. A client that has adopted the
 * lock then cannot tell whether the first copy released it or its lease
 * expired. */
static bool adopt_and_release(struct hf_client *one, struct hf_client *two,
                              struct hf_key key)
{
    struct hf_lock *lock = NULL, *adopted = NULL;
    struct hf_info info;
    enum hf_err err = HF_OK;

    expect_ok(recorded_acquire(one, key, NULL, &lock));
    adopted = adopt(two, lock);
    err = recorded_release(two, adopted);
    if (err != HF_EINDOUBT)
        expect_ok(err);
    expect_ok(recorded_read(one, key, &info));
    assert_false(info.held);
    hf_info_fini(&info);
    hf_lock_free(adopted);
    hf_lock_free(lock);
    return err == HF_OK;
}

static void an_adopted_handle_can_release(void)
{
    struct hf_client *one = suite_open(), *two = suite_open();
    unsigned tries = 0;

    while (!adopt_and_release(one, two, suite_key_number("k", tries)))
        assert_true(++tries < 5);
    suite_close(one);
    suite_close(two);
}

static void an_adopted_handle_is_valid_once_renewed(void)
{
    struct hf_client *one = suite_open(), *two = suite_open();
    struct hf_lock *lock = NULL, *adopted = NULL;

    expect_ok(recorded_acquire(one, suite_key("k"), NULL, &lock));
    adopted = adopt(two, lock);
    assert_false(hf_lock_valid_for(adopted, 0));
    expect_ok(recorded_renew(two, adopted, 0));

    assert_true(recorded_is_valid(two, adopted));
    hf_lock_free(adopted);
    hf_lock_free(lock);
    suite_close(one);
    suite_close(two);
}

static void freeing_an_adopted_handle_keeps_the_lock(void)
{
    struct hf_client *one = suite_open(), *two = suite_open();
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");
    struct hf_info info;

    expect_ok(recorded_acquire(one, key, NULL, &lock));
    hf_lock_free(adopt(two, lock));
    suite_close(two);

    expect_ok(recorded_read(one, key, &info));
    assert_true(info.held);
    expect_ok(recorded_release(one, lock));
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(one);
}

static void an_adopted_handle_of_a_lost_lock_is_refused(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock *lock = NULL, *next = NULL, *adopted = NULL;
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(client, key, NULL, &lock));
    adopted = adopt(client, lock);
    expect_ok(recorded_release(client, lock));
    expect_ok(recorded_acquire(client, key, NULL, &next));

    expect_err(recorded_release(client, adopted), HF_ENOTOWNER);
    expect_ok(recorded_release(client, next));
    hf_lock_free(adopted);
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(client);
}

/* ---- Force --------------------------------------------------------------*/

static void force_needs_the_holders_token(void)
{
    struct hf_client *holder = suite_open(), *breaker = suite_open();
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(holder, key, NULL, &lock));

    expect_err(recorded_force_now(breaker, key, hf_lock_token(lock) + 1),
               HF_ENOTOWNER);
    expect_err(hf_force(breaker, key, hf_lock_token(lock) + 1, false),
               HF_ENOTOWNER);
    assert_true(recorded_is_valid(holder, lock));
    expect_ok(recorded_release(holder, lock));
    expect_err(recorded_force_now(breaker, key, hf_lock_token(lock)),
               HF_ENOTHELD);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(breaker);
}

/* A forced lock cannot be renewed, and is held until its lease expires. Returns
 * false if the lease expired before the checks. */
static bool forced_lock_expires(unsigned round)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts opts =
        suite_opts(suite_longer_ms(500, round), SUITE_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_key key = suite_key_number("k", round);
    int64_t deadline = 0;
    struct hf_info info;
    bool seen = false;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    deadline = hf_lock_deadline(lock);
    seen = hf_force(other, key, hf_lock_token(lock), false) == HF_OK;
    expect_ok(recorded_read(other, key, &info));
    assert_true(info.forced || !info.held || !seen);
    seen = seen && info.held;
    hf_info_fini(&info);
    seen = recorded_renew(holder, lock, 0) == HF_EFORCED && seen;
    if (seen)
        assert_int_equal(hf_lock_deadline(lock), deadline);
    expect_ok(recorded_acquire(other, key, &opts, &next));
    assert_true(suite_now_ms() >= deadline);
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(holder);
    suite_close(other);
    return seen;
}

static void a_forced_lock_expires_with_its_lease(void)
{
    suite_repeat(forced_lock_expires);
}

static void force_now_frees_the_key_at_once(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    expect_ok(recorded_force_now(other, key, hf_lock_token(lock)));

    expect_ok(recorded_acquire(other, key, &opts, &next));
    assert_true(hf_lock_token(next) > hf_lock_token(lock));
    expect_err(recorded_release(holder, lock), HF_EEXPIRED);
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(holder);
    suite_close(other);
}

static void force_now_grants_the_first_waiter(void)
{
    struct hf_client *holder = suite_open();
    struct hf_client *other = suite_open_background();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct suite_lock_events reported = {0};
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_key key = suite_key("k");
    struct hf_future *waiter = NULL;

    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    opts.on_event = suite_on_lock_event;
    opts.arg = &reported;
    expect_ok(
        recorded_acquire_start(other, key, &opts, &next, NULL, NULL, &waiter));
    assert_true(suite_await(&reported.waiting, 1, NULL));
    expect_ok(recorded_force_now(holder, key, hf_lock_token(lock)));

    expect_ok(suite_future_result(waiter, SUITE_TIMEOUT_MS));
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(holder);
    suite_close(other);
}

/* ---- Values -------------------------------------------------------------*/

/* LK-04 */
static void update_replaces_only_the_expected_value(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_bytes right = hf_bytes_of("old"), wrong = hf_bytes_of("other");
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");

    opts.value = right;
    expect_ok(recorded_acquire(client, key, &opts, &lock));

    expect_err(recorded_update(client, lock, &wrong, hf_bytes_of("new")),
               HF_EMISMATCH);
    suite_expect_value(client, key, hf_bytes_of("old"));
    expect_ok(recorded_update(client, lock, &right, hf_bytes_of("new")));
    suite_expect_value(client, key, hf_bytes_of("new"));
    expect_ok(recorded_update(client, lock, NULL, hf_bytes_of("newer")));
    suite_expect_value(client, key, hf_bytes_of("newer"));
    hf_lock_free(lock);
    suite_close(client);
}

static void a_handle_reports_why_its_update_failed(void)
{
    struct hf_client *client = suite_open();
    const struct hf_bytes other = hf_bytes_of("another");
    struct hf_lock *lock = NULL;
    struct hf_error error;

    expect_ok(recorded_acquire(client, suite_key("k"), NULL, &lock));
    expect_err(recorded_update(client, lock, &other, hf_bytes_of("new")),
               HF_EMISMATCH);
    hf_lock_error(lock, &error);
    expect_err(error.code, HF_EMISMATCH);
    assert_true(*error.text != '\0');
    expect_ok(recorded_release(client, lock));
    expect_err(hf_renew(lock, 0), HF_ESTATE);
    hf_lock_error(lock, &error);
    expect_err(error.code, HF_ESTATE);
    hf_lock_free(lock);
    suite_close(client);
}

/* LK-04. Returns false if the lease expired before the update or the checks. */
static bool update_keeps_lease(unsigned round)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(
        suite_longer_ms(suite_short_ttl_ms(400), round), SUITE_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_key key = suite_key_number("k", round);
    struct hf_info before, after;
    int64_t deadline = 0;
    bool updated = false;

    expect_ok(recorded_acquire(client, key, &opts, &lock));
    deadline = hf_lock_deadline(lock);
    expect_ok(recorded_read(client, key, &before));
    suite_sleep(50);
    updated = recorded_update(client, lock, NULL, hf_bytes_of("v")) == HF_OK;

    assert_int_equal(hf_lock_deadline(lock), deadline);
    expect_ok(recorded_read(client, key, &after));
    if (before.held && after.held)
        assert_true(after.left_ms + 50 <= before.left_ms);
    updated = updated && after.held;
    hf_info_fini(&before);
    hf_info_fini(&after);
    expect_ok(recorded_acquire(other, key, &opts, &next));
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(client);
    suite_close(other);
    return updated;
}

static void update_keeps_the_lease(void)
{
    suite_repeat(update_keeps_lease);
}

/* LK-04 */
static void update_needs_the_holder(void)
{
    struct hf_client *holder = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL, *forged = NULL;
    struct hf_key key = suite_key("k");

    opts.value = hf_bytes_of("mine");
    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    forged = adopt_with_wrong_nonce(other, key, hf_lock_token(lock));

    expect_err(recorded_update(other, forged, NULL, hf_bytes_of("yours")),
               HF_ENOTOWNER);
    suite_expect_value(holder, key, hf_bytes_of("mine"));
    hf_lock_free(forged);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(other);
}

/* LK-04 */
static void update_after_expiry_returns_expired(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts short_opts =
        suite_opts(suite_short_ttl_ms(50), SUITE_TIMEOUT_MS);
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");

    expect_ok(recorded_acquire(client, key, &short_opts, &lock));
    expect_ok(hf_wait_free(client, key, SUITE_TIMEOUT_MS, NULL));

    expect_err(recorded_update(client, lock, NULL, hf_bytes_of("v")),
               HF_EEXPIRED);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    hf_lock_free(lock);
    suite_close(client);
}

/* `holdfast lock` depends on this: it exits and leaves the lock held. */
static void a_detached_lock_outlives_its_client(void)
{
    struct hf_client *client = suite_open();
    struct hf_client *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL, *adopted = NULL, *late = NULL;
    uint8_t nonce[HF_NONCE_SIZE];
    uint64_t token = 0;
    struct hf_key key = suite_key("k");

    opts.renew = true;
    expect_ok(recorded_acquire(client, key, &opts, &lock));
    hf_lock_nonce(lock, nonce);
    token = hf_lock_token(lock);
    expect_ok(hf_lock_detach(lock));
    hf_lock_free(lock);
    suite_close(client);

    expect_err(recorded_acquire(other, key, &opts, &late), HF_EBUSY);
    expect_ok(hf_lock_adopt(other, key, nonce, token, NULL, &adopted));
    expect_ok(recorded_release(other, adopted));
    hf_lock_free(adopted);
    suite_close(other);
}

static bool detached_is_not_renewed(unsigned round)
{
    struct hf_client *client = suite_open_background();
    struct hf_lock_opts opts = suite_opts(
        suite_longer_ms(suite_short_ttl_ms(300), round), SUITE_TIMEOUT_MS);
    struct hf_key key = suite_key_number("k", round);
    struct hf_lock *lock = NULL, *next = NULL;
    bool left = false;

    opts.renew = true;
    expect_ok(recorded_acquire(client, key, &opts, &lock));
    left = hf_lock_detach(lock) == HF_OK; /* fails if the lock is lost */
    expect_ok(recorded_acquire(client, key, &opts, &next));
    assert_false(hf_lock_valid_for(lock, 0));
    expect_err(hf_lock_detach(lock), HF_ESTATE);
    expect_err(hf_lock_detach(NULL), HF_EINVAL);
    recorded_lock_free(lock);
    recorded_lock_free(next);
    suite_close(client);
    return left;
}

static void a_detached_lock_is_not_renewed(void)
{
    suite_repeat(detached_is_not_renewed);
}

static const struct promise promises[] = {
    PROMISE(release_frees_the_key, 0),
    PROMISE(release_ends_validity, 0),
    PROMISE(wrong_nonce_cannot_release, 0),
    PROMISE(wrong_nonce_cannot_renew, 0),
    PROMISE(wrong_token_cannot_release, 0),
    PROMISE(second_release_by_nonce_is_not_held, 0),
    PROMISE(second_release_of_a_handle_is_a_state_error, 0),
    PROMISE(late_unlock_never_frees_the_next_holder, 0),
    PROMISE(release_after_expiry_returns_expired, 0),
    PROMISE(release_of_null_is_refused, 0),
    PROMISE(a_released_key_is_not_listed, 0),
    PROMISE(free_releases_in_the_background, 0),
    PROMISE(an_adopted_handle_can_release, 0),
    PROMISE(an_adopted_handle_is_valid_once_renewed, 0),
    PROMISE(freeing_an_adopted_handle_keeps_the_lock, 0),
    PROMISE(an_adopted_handle_of_a_lost_lock_is_refused, 0),
    PROMISE(a_detached_lock_outlives_its_client, 0),
    PROMISE(a_detached_lock_is_not_renewed, 0),
    PROMISE(force_needs_the_holders_token, 0),
    PROMISE(a_forced_lock_expires_with_its_lease, 0),
    PROMISE(force_now_frees_the_key_at_once, 0),
    PROMISE(force_now_grants_the_first_waiter, 0),
    PROMISE(update_replaces_only_the_expected_value, HF_CAP_VALUE),
    PROMISE(a_handle_reports_why_its_update_failed, HF_CAP_VALUE),
    PROMISE(update_keeps_the_lease, HF_CAP_VALUE),
    PROMISE(update_needs_the_holder, HF_CAP_VALUE),
    PROMISE(update_after_expiry_returns_expired, HF_CAP_VALUE),
};

const struct chapter chapter_release = CHAPTER(promises);
