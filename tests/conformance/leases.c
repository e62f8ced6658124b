/* leases.c - how long a lock is valid, and how its loss is reported. */
#include "conformance/suite.h"
#include "lib/recorded.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* MJ-02: validity starts when hf_acquire() is called, or later. So if
 * hf_acquire() returns at once, the full ttl remains. */
static void the_full_ttl_remains_after_acquire(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);

    for (unsigned i = 0; i < 10; i++) {
        struct hf_lock *lock = NULL;
        int64_t before = suite_now_ms();

        expect_ok(
            recorded_acquire(client, suite_key_number("k", i), &opts, &lock));
        assert_in_range(hf_lock_deadline(lock), before + SUITE_LONG_TTL_MS,
                        suite_now_ms() + SUITE_LONG_TTL_MS);
        hf_lock_free(lock);
    }
    suite_close(client);
}

/* MJ-03 */
static void valid_for_is_false_once_less_remains(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL;
    uint32_t most = 0;

    expect_ok(recorded_acquire(client, suite_key("k"), &opts, &lock));
    assert_true(hf_lock_valid_for(lock, SUITE_LONG_TTL_MS / 2));
    assert_false(hf_lock_valid_for(lock, SUITE_LONG_TTL_MS)); /* less remains */
    assert_false(hf_lock_valid_for(lock, HF_FOREVER));
    most = hf_lock_remaining_ms(lock) - 200;
    suite_sleep_until(hf_lock_deadline(lock) - most);

    assert_false(hf_lock_valid_for(lock, most));
    assert_true(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
    suite_close(client);
}

/* MS-06 */
static void a_lock_without_renewal_ends_with_its_ttl(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(3000, SUITE_TIMEOUT_MS);
    struct hf_lock *lock = NULL;
    int64_t deadline = 0;

    expect_ok(recorded_acquire(client, suite_key("k"), &opts, &lock));
    deadline = hf_lock_deadline(lock);
    suite_sleep_until(deadline - 2000);
    assert_true(recorded_is_valid(client, lock) || suite_now_ms() >= deadline);
    suite_sleep_until(deadline);

    assert_false(hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_lock_remaining_ms(lock), 0);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    hf_lock_free(lock);
    suite_close(client);
}

/* Hold a lock with `ttl_ms` that is neither renewed nor released. Expect that a
 * waiter is granted the key, but not before the validity of the first lock has
 * ended. */
static void expect_handed_over(struct hf_key key, uint32_t ttl_ms)
{
    struct hf_client *one = suite_open(), *two = suite_open();
    struct hf_lock_opts opts = suite_opts(ttl_ms, SUITE_TIMEOUT_MS);
    struct hf_lock *lost = NULL, *lock = NULL;
    int64_t granted = 0, deadline = 0;

    expect_ok(recorded_acquire(one, key, &opts, &lost));
    granted = suite_now_ms();
    deadline = hf_lock_deadline(lost);
    opts.ttl_ms = SUITE_LONG_TTL_MS;
    expect_ok(recorded_acquire(two, key, &opts, &lock));

    assert_true(suite_now_ms() >= deadline);
    assert_true(deadline <= granted + ttl_ms);
    assert_false(hf_lock_valid_for(lost, 0));
    hf_lock_free(lost);
    hf_lock_free(lock);
    suite_close(one);
    suite_close(two);
}

/* MM-07: with ttl_includes_wait, the wait of a third of a second counts towards
 * the ttl. */
static void a_ttl_can_include_the_wait(void)
{
    struct hf_client *one = suite_open(), *two = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, SUITE_TIMEOUT_MS);
    struct hf_lock *first = NULL, *second = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;
    int64_t before = 0, after = 0;

    expect_ok(recorded_acquire(one, suite_key("k"), &opts, &first));
    opts.ttl_includes_wait = true;
    before = suite_now_ms();
    expect_ok(recorded_acquire_start(two, suite_key("k"), &opts, &second, NULL,
                                     NULL, &future));
    after = suite_now_ms();
    expect_err(recorded_future_wait(future, 333, &err), HF_ETIMEDOUT);
    expect_ok(recorded_release(one, first));
    expect_ok(recorded_future_wait(future, SUITE_TIMEOUT_MS, &err));
    expect_ok(err);

    assert_in_range(hf_lock_deadline(second), before + SUITE_LONG_TTL_MS / 2,
                    after + SUITE_LONG_TTL_MS);
    hf_future_free(future);
    hf_lock_free(first);
    hf_lock_free(second);
    suite_close(one);
    suite_close(two);
}

/* GO-08, MM-07 */
static void an_expired_lock_is_granted_to_a_waiter(void)
{
    expect_handed_over(suite_key("k"), suite_short_ttl_ms(500));
}

/* MS-14: leases are not rounded to seconds. */
static void leases_are_counted_in_milliseconds(void)
{
    static const uint32_t ttls[] = {60301, 60999, 61001};
    struct hf_client *client = suite_open();

    for (unsigned i = 0; i < HF_TEST_COUNT(ttls); i++) {
        struct hf_lock_opts opts = suite_opts(ttls[i], 0);
        struct hf_key key = suite_key_number("k", i);
        struct hf_lock *lock = NULL;
        struct hf_info info;

        expect_ok(recorded_acquire(client, key, &opts, &lock));
        expect_ok(recorded_read(client, key, &info));
        assert_int_equal(info.held_ms + info.left_ms, suite_lease_ms(ttls[i]));
        hf_info_fini(&info);
        hf_lock_free(lock);
    }
    expect_handed_over(suite_key("k"), 300);
    suite_close(client);
}

/* GO-08, LK-23: the process of the holder is killed. It has detached the lock
 * before, so with every strategy the lock ends only when its lease expires. */
static void the_lock_of_a_killed_holder_expires(void)
{
    struct hf_key key = suite_key("k");
    struct hf_lock_opts opts =
        suite_opts(suite_short_ttl_ms(500), SUITE_TIMEOUT_MS);
    struct hf_client *client = NULL;
    struct hf_lock *lock = NULL;
    int64_t deadline = 0;
    int ends[2];
    pid_t pid = 0;

    suite_needs_processes();
    assert_int_equal(pipe(ends), 0);
    pid = suite_fork();
    if (pid == 0) {
        if (hf_open(suite_url(), NULL, &client) == HF_OK &&
            recorded_acquire(client, key, &opts, &lock) == HF_OK) {
            deadline = hf_lock_deadline(lock);
            (void)hf_lock_detach(lock);
            (void)!write(ends[1], &deadline, sizeof(deadline));
        }
        (void)pause();
        _exit(0);
    }
    assert_int_equal(read(ends[0], &deadline, sizeof(deadline)),
                     sizeof(deadline));
    recorded_kill(pid);
    client = suite_open();
    opts.ttl_ms = SUITE_LONG_TTL_MS;
    expect_ok(recorded_acquire(client, key, &opts, &lock));

    assert_true(suite_now_ms() >= deadline);
    (void)close(ends[0]);
    (void)close(ends[1]);
    hf_lock_free(lock);
    suite_close(client);
}

/* LK-11, LK-12 */
#define LEASES 100

struct succession {
    struct hf_lock *lock, *next;
    struct hf_future *claim; /* NULL: granted */
    int64_t deadline;
};

/* Check and free the claims that were granted since the last call. */
static void collect_grants(struct succession *all, unsigned *left)
{
    for (unsigned i = 0; i < LEASES; i++) {
        if (!all[i].claim || !hf_future_done(all[i].claim, NULL))
            continue;
        expect_ok(suite_future_result(all[i].claim, 0));
        assert_true(suite_now_ms() >= all[i].deadline);
        assert_false(hf_lock_valid_for(all[i].lock, 0));
        all[i].claim = NULL;
        --*left;
    }
}

static void every_lease_lasts_and_expires(void)
{
    struct hf_client *one = suite_open(), *two = suite_open();
    struct hf_lock_opts opts =
        suite_opts(suite_short_ttl_ms(500), SUITE_TIMEOUT_MS);
    struct hf_lock_opts next = suite_opts(SUITE_LONG_TTL_MS, HF_FOREVER);
    struct succession all[LEASES] = {{0}};
    struct pollfd fd = {.fd = hf_fd(two), .events = POLLIN};
    unsigned left = LEASES;

    for (unsigned i = 0; i < LEASES; i++) {
        struct hf_key key = suite_key_number("k", i);

        expect_ok(recorded_acquire(one, key, &opts, &all[i].lock));
        all[i].deadline = hf_lock_deadline(all[i].lock);
        expect_ok(recorded_acquire_start(two, key, &next, &all[i].next, NULL,
                                         NULL, &all[i].claim));
    }
    while (left > 0) {
        (void)poll(&fd, 1, 1000);
        expect_ok(hf_process(two));
        collect_grants(all, &left);
    }
    for (unsigned i = 0; i < LEASES; i++) {
        hf_lock_free(all[i].lock);
        hf_lock_free(all[i].next);
    }
    suite_close(one);
    suite_close(two);
}

/* LK-12 */
static bool count_one(const struct hf_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return true;
}

static void expired_keys_are_not_listed(void)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_lock *locks[8] = {0};
    unsigned count = 0;

    for (unsigned i = 0; i < 8; i++) {
        struct hf_lock_opts opts =
            suite_opts(suite_short_ttl_ms(50 + 50 * i), SUITE_TIMEOUT_MS);

        expect_ok(recorded_acquire(client, suite_key_number("k", i), &opts,
                                   &locks[i]));
    }
    suite_sleep(suite_lease_ms(suite_short_ttl_ms(50 + 50 * 7)) * 102 / 100);

    /* In a cluster, a lock expires only when an EXPIRE has been committed and
     * applied, which may be a moment after the lease ends. So list until the
     * locks are gone. */
    do {
        count = 0;
        expect_ok(hf_list(other, suite_key(""), count_one, &count));
    } while (count > 0);
    for (unsigned i = 0; i < 8; i++)
        hf_lock_free(locks[i]);
    suite_close(client);
    suite_close(other);
}

/* ---- Renewing -----------------------------------------------------------*/

/* LK-10. Returns false if the lease expired before the renewal or the
 * checks. */
static bool renew_extends_the_lease(unsigned round)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_lock_opts opts =
        suite_opts(suite_longer_ms(2000, round), SUITE_TIMEOUT_MS);
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_key key = suite_key_number("k", round);
    int64_t first_end = 0;
    bool refused = false;

    expect_ok(recorded_acquire(client, key, &opts, &lock));
    first_end = hf_lock_deadline(lock);
    suite_sleep_until(first_end - opts.ttl_ms / 2);
    if (recorded_renew(client, lock, opts.ttl_ms) == HF_OK)
        assert_true(hf_lock_deadline(lock) > first_end);
    suite_sleep_until(first_end);
    opts.wait_ms = 0;
    refused = recorded_acquire(other, key, &opts, &none) == HF_EBUSY &&
              recorded_is_valid(client, lock);

    assert_true(refused || suite_now_ms() >= hf_lock_deadline(lock));
    hf_lock_free(lock);
    hf_lock_free(none);
    suite_close(client);
    suite_close(other);
    return refused;
}

static void renew_extends_the_lease_from_now(void)
{
    suite_repeat(renew_extends_the_lease);
}

static void renew_defaults_to_the_ttl_of_the_handle(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL;
    int64_t before = 0;

    expect_ok(recorded_acquire(client, suite_key("k"), &opts, &lock));
    suite_sleep(20);
    before = hf_lock_deadline(lock);
    expect_ok(recorded_renew(client, lock, 0));

    assert_true(hf_lock_deadline(lock) > before);
    assert_true(hf_lock_deadline(lock) <= suite_now_ms() + SUITE_LONG_TTL_MS);
    hf_lock_free(lock);
    suite_close(client);
}

static void renew_never_shortens_a_lease(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");
    int64_t deadline = 0;
    struct hf_info info;

    expect_ok(recorded_acquire(client, key, &opts, &lock));
    deadline = hf_lock_deadline(lock);
    expect_ok(recorded_renew(client, lock, 100));

    assert_true(hf_lock_deadline(lock) >= deadline);
    expect_ok(recorded_read(client, key, &info));
    assert_true(info.left_ms >= hf_lock_remaining_ms(lock));
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(client);
}

static void renew_never_creates_a_lock(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts =
        suite_opts(suite_short_ttl_ms(50), SUITE_TIMEOUT_MS);
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");
    struct hf_info info;

    expect_ok(recorded_acquire(client, key, &opts, &lock));
    expect_ok(hf_wait_free(client, key, SUITE_TIMEOUT_MS, NULL));
    expect_err(recorded_renew(client, lock, SUITE_LONG_TTL_MS), HF_EEXPIRED);

    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    assert_false(hf_lock_valid_for(lock, 0));
    expect_ok(recorded_read(client, key, &info));
    assert_false(info.held);
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(client);
}

/* Acquire a lock that is renewed, with a longer ttl in each round. */
static struct hf_lock *acquire_renewed(struct hf_client *client, unsigned round,
                                       struct hf_lock_opts *opts)
{
    struct hf_lock *lock = NULL;

    opts->renew = true;
    opts->wait_ms = SUITE_TIMEOUT_MS;
    opts->ttl_ms = suite_longer_ms(suite_short_ttl_ms(1000), round);
    expect_ok(
        recorded_acquire(client, suite_key_number("k", round), opts, &lock));
    return lock;
}

/* MS-07. Returns false if the machine was too slow to renew in time. */
static bool kept_past_its_ttl(unsigned round)
{
    struct hf_client *client = suite_open_background(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct suite_lock_events reported = {0};
    struct hf_lock *lock = NULL, *none = NULL;
    int64_t began = suite_now_ms();
    bool kept = false;

    opts.on_event = suite_on_lock_event;
    opts.arg = &reported;
    lock = acquire_renewed(client, round, &opts);
    for (int i = 1; i <= 6; i++) {
        suite_sleep_until(began + (int64_t)opts.ttl_ms * i / 2);
        kept = recorded_is_valid(client, lock);
    }
    opts.renew = false;
    opts.wait_ms = 0;
    opts.on_event = NULL;
    kept = kept && recorded_acquire(other, suite_key_number("k", round), &opts,
                                    &none) == HF_EBUSY;
    kept = recorded_release(client, lock) == HF_OK && kept;
    assert_true(!kept || reported.lost == 0);
    hf_lock_free(lock);
    hf_lock_free(none);
    suite_close(client);
    suite_close(other);
    return kept;
}

static void renewals_keep_a_lock_past_its_ttl(void)
{
    suite_repeat(kept_past_its_ttl);
}

/* MS-07: a lock is kept past its ttl even if only hf_process() drives the
 * client. */
static bool kept_in_user_loop(unsigned round)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = acquire_renewed(client, round, &opts);
    int64_t until = suite_now_ms() + 3 * (int64_t)opts.ttl_ms;
    int64_t left = 0;
    bool kept = false;

    while ((left = until - suite_now_ms()) > 0) {
        struct pollfd fd = {.fd = hf_fd(client), .events = POLLIN};

        (void)poll(&fd, 1, (int)left);
        expect_ok(hf_process(client));
    }
    kept = recorded_is_valid(client, lock);
    hf_lock_free(lock);
    suite_close(client);
    return kept;
}

static void renewals_run_in_the_users_loop(void)
{
    suite_repeat(kept_in_user_loop);
}

/* MS-07: a program that only makes blocking calls needs no event loop. */
static bool kept_without_a_loop(unsigned round)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_lock *lock = acquire_renewed(client, round, &opts), *none = NULL;
    bool kept = false;

    suite_sleep(2 * (int64_t)opts.ttl_ms);
    kept = recorded_is_valid(client, lock);
    opts.renew = false;
    opts.wait_ms = 0;
    kept = kept && recorded_acquire(other, suite_key_number("k", round), &opts,
                                    &none) == HF_EBUSY;
    hf_lock_free(lock);
    hf_lock_free(none);
    suite_close(client);
    suite_close(other);
    return kept;
}

static void renewals_need_no_event_loop(void)
{
    suite_repeat(kept_without_a_loop);
}

/* MS-10. Returns false if the lock was lost before it was released. */
static bool not_renewed_after_release(unsigned round)
{
    struct hf_client *client = suite_open_background(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct suite_lock_events reported = {0};
    struct hf_lock *lock = NULL;
    struct hf_info info;
    int64_t deadline = 0;
    bool given_back = false;

    opts.on_event = suite_on_lock_event;
    opts.arg = &reported;
    lock = acquire_renewed(client, round, &opts);
    deadline = hf_lock_deadline(lock);
    while (hf_lock_deadline(lock) == deadline && hf_lock_valid_for(lock, 0))
        suite_sleep(10);
    given_back = recorded_release(client, lock) == HF_OK;
    /* A renewal would be due within half the ttl. */
    suite_sleep(opts.ttl_ms);

    expect_ok(recorded_read(other, suite_key_number("k", round), &info));
    assert_false(info.held);
    assert_true(!given_back || reported.lost == 0);
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(client);
    suite_close(other);
    return given_back;
}

static void nothing_is_renewed_after_release(void)
{
    suite_repeat(not_renewed_after_release);
}

/* ---- Lock events --------------------------------------------------------*/

static void an_expired_lock_is_reported_lost_once(void)
{
    struct hf_client *client = suite_open_background(), *other = suite_open();
    struct hf_lock_opts short_opts =
        suite_opts(suite_short_ttl_ms(200), SUITE_TIMEOUT_MS);
    struct suite_lock_events reported = {0};
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_key key = suite_key("k");

    short_opts.on_event = suite_on_lock_event;
    short_opts.arg = &reported;
    expect_ok(recorded_acquire(client, key, &short_opts, &lock));
    short_opts.on_event = NULL;
    expect_ok(recorded_acquire(other, key, &short_opts, &next));

    assert_true(suite_await(&reported.lost, 1, NULL));
    suite_sleep(100);
    assert_int_equal(reported.lost, 1);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(client);
    suite_close(other);
}

static void a_loss_is_reported_without_an_event_loop(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts short_opts =
        suite_opts(suite_short_ttl_ms(100), SUITE_TIMEOUT_MS);
    struct suite_lock_events reported = {0};
    struct hf_lock *lock = NULL;

    short_opts.on_event = suite_on_lock_event;
    short_opts.arg = &reported;
    expect_ok(recorded_acquire(client, suite_key("k"), &short_opts, &lock));

    assert_true(suite_await(&reported.lost, 1, NULL));
    hf_lock_free(lock);
    suite_close(client);
}

/* Drive the holder and the waiter alternately until the waiter is granted the
 * key. The first hf_process() of the holder after its validity has ended must
 * report the loss. */
static void drive_in_turns(struct hf_client *holder, struct hf_client *waiter,
                           const struct suite_lock_events *reported,
                           int64_t deadline, const struct hf_future *granted)
{
    while (!hf_future_done(granted, NULL)) {
        struct pollfd fds[] = {
            {.fd = hf_fd(holder), .events = POLLIN},
            {.fd = hf_fd(waiter), .events = POLLIN},
        };
        bool is_over = suite_now_ms() >= deadline;

        expect_ok(hf_process(holder));
        assert_true(reported->lost == 1 || !is_over);
        expect_ok(hf_process(waiter));
        if (!hf_future_done(granted, NULL))
            (void)poll(fds, 2, 1000);
    }
}

/* A holder that is driven is notified of the loss before another client can
 * hold the key. Returns false if the lock could not be acquired, or if the
 * holder was not driven between the end of its validity and the expiry of its
 * lease. */
static bool lost_is_reported_first(unsigned round)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_lock_opts short_opts =
        suite_opts(suite_longer_ms(suite_short_ttl_ms(500), round), 0);
    struct hf_lock_opts next = suite_opts(SUITE_LONG_TTL_MS, HF_FOREVER);
    struct suite_lock_events reported = {0};
    struct hf_key key = suite_key_number("k", round);
    struct hf_lock *lock = NULL, *lock_of_other = NULL;
    struct hf_future *future = NULL;
    bool reported_first = false;

    short_opts.on_event = suite_on_lock_event;
    short_opts.arg = &reported;
    (void)hf_fd(client); /* after hf_fd(), a client starts no threads */
    if (recorded_acquire(client, key, &short_opts, &lock) == HF_OK) {
        int64_t deadline = hf_lock_deadline(lock);

        expect_ok(recorded_acquire_start(other, key, &next, &lock_of_other,
                                         NULL, NULL, &future));
        drive_in_turns(client, other, &reported, deadline, future);
        expect_ok(suite_future_result(future, 0));
        assert_false(hf_lock_valid_for(lock, 0));
        reported_first = reported.lost == 1;
        assert_true(!reported_first || reported.at_ms[0] >= deadline);
    }
    hf_lock_free(lock);
    hf_lock_free(lock_of_other);
    suite_close(client);
    suite_close(other);
    return reported_first;
}

static void lost_is_reported_before_the_next_grant(void)
{
    suite_repeat(lost_is_reported_first);
}

/* MS-08: the lease is longer than the case, so only a renewal can find out that
 * the lock was forced. The lock is renewed often. */
static void a_forced_lock_is_lost_at_the_next_renewal(void)
{
    struct hf_client *client = suite_open_background(), *other = suite_open();
    struct hf_lock_opts kept = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct suite_lock_events reported = {0};
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL;

    kept.renew = true;
    kept.renew_ms = SUITE_LONG_TTL_MS - 500;
    kept.on_event = suite_on_lock_event;
    kept.arg = &reported;
    expect_ok(recorded_acquire(client, key, &kept, &lock));
    expect_ok(recorded_force_now(other, key, hf_lock_token(lock)));
    assert_true(suite_await(&reported.lost, 1, NULL));

    assert_false(hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    assert_int_equal(reported.lost, 1);
    expect_err(recorded_release(client, lock), HF_EEXPIRED);
    hf_lock_free(lock);
    suite_close(client);
    suite_close(other);
}

/* A forced lock is reported AT_RISK, then LOST, once each. Returns false if the
 * lease expired before the lock was forced or before AT_RISK was reported. */
static bool broken_lock_is_reported(unsigned round)
{
    struct hf_client *client = suite_open_background(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct suite_lock_events reported = {0};
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_key key = suite_key_number("k", round);
    bool broken = false, warned = false;

    opts.on_event = suite_on_lock_event;
    opts.arg = &reported;
    lock = acquire_renewed(client, round, &opts);
    broken = hf_force(other, key, hf_lock_token(lock), false) == HF_OK;
    opts.on_event = NULL;
    opts.renew = false;
    if (broken)
        expect_ok(recorded_acquire(other, key, &opts, &next));
    if (broken)
        assert_true(suite_await(&reported.lost, 1, NULL));
    warned = broken && reported.events[0] == HF_LOCK_EVENT_AT_RISK;
    if (warned) {
        assert_int_equal(reported.count, 2);
        assert_int_equal(reported.events[1], HF_LOCK_EVENT_LOST);
    }
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(client);
    suite_close(other);
    return warned;
}

static void a_forced_lock_is_reported_at_risk_then_lost(void)
{
    suite_repeat(broken_lock_is_reported);
}

/* AT_RISK is reported half the ttl before validity ends if the lock was not
 * renewed by then, here because the client is not driven. Returns false if the
 * lock was lost meanwhile. */
static bool late_renewal_is_reported(unsigned round)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct suite_lock_events reported = {0};
    struct hf_lock *lock = NULL;
    int64_t first_end = 0;
    bool kept = false;

    opts.on_event = suite_on_lock_event;
    opts.arg = &reported;
    (void)hf_fd(client); /* after hf_fd(), a client starts no threads */
    lock = acquire_renewed(client, round, &opts);
    first_end = hf_lock_deadline(lock);
    suite_sleep_until(first_end - opts.ttl_ms / 2 + 20);
    while (reported.count == 0)
        expect_ok(hf_process(client));
    while (hf_lock_deadline(lock) == first_end && hf_lock_valid_for(lock, 0))
        expect_ok(hf_process(client)); /* until the renewal is confirmed */
    suite_sleep_until(first_end);
    expect_ok(hf_process(client));

    kept = recorded_is_valid(client, lock) &&
           hf_lock_remaining_ms(lock) > opts.ttl_ms / 2;
    if (kept) {
        assert_int_equal(reported.count, 1);
        assert_int_equal(reported.at_risk, 1);
    }
    hf_lock_free(lock);
    suite_close(client);
    return kept;
}

static void a_late_renewal_is_reported_at_risk_once(void)
{
    suite_repeat(late_renewal_is_reported);
}

/* AT_RISK and LOST are reported once per claim, not once per handle. */
static void each_claim_of_a_handle_reports_its_loss(void)
{
    struct hf_client *client = suite_open_background();
    struct hf_lock_opts short_opts =
        suite_opts(suite_short_ttl_ms(100), SUITE_TIMEOUT_MS);
    struct suite_lock_events reported = {0};
    struct hf_lock *lock = NULL;

    short_opts.idle = true;
    short_opts.on_event = suite_on_lock_event;
    short_opts.arg = &reported;
    expect_ok(recorded_lock_new(client, suite_key("k"), &short_opts, &lock));
    expect_ok(recorded_lock_acquire(client, lock));
    assert_true(suite_await(&reported.lost, 1, NULL));
    expect_ok(recorded_lock_acquire(client, lock));

    assert_true(suite_await(&reported.lost, 2, NULL));
    hf_lock_free(lock);
    suite_close(client);
}

/* MS-11 */
static void close_ends_validity_and_renewals(void)
{
    struct hf_client *witness = suite_open();

    for (unsigned mode = 0; mode < 2; mode++) {
        struct hf_client *client =
            mode ? suite_open_background() : suite_open();
        struct hf_lock_opts kept = suite_opts(SUITE_LONG_TTL_MS, 0);
        struct hf_key key = suite_key_number("k", mode);
        struct hf_lock *lock = NULL;
        struct hf_info info;

        kept.renew = true;
        expect_ok(recorded_acquire(client, key, &kept, &lock));
        suite_close(client);

        assert_false(hf_lock_valid_for(lock, 0));
        expect_ok(recorded_read(witness, key, &info));
        assert_false(info.held);
        hf_info_fini(&info);
        hf_lock_free(lock);
    }
    suite_close(witness);
}

/* ---- Stopped processes --------------------------------------------------*/

/* What the stopped process observed after SIGCONT. */
struct verdict {
    enum hf_err err;
    struct hf_lock *lock;
    bool was_valid;            /* before the stop */
    bool is_valid;             /* right after the stop */
    _Atomic unsigned reported; /* callbacks after the stop */
    /* The first of these callbacks, an enum hf_lock_event; 0 if it was not a
     * lock event. */
    int first;
};

/* Events that are reported while the lock is valid came before the stop, for
 * example AT_RISK on a busy machine, so they do not count. */
static void on_stopped_lock_event(struct hf_lock *lock,
                                  enum hf_lock_event event, void *arg)
{
    struct verdict *verdict = arg;

    if (hf_lock_valid_for(lock, 0))
        return;
    if (atomic_load(&verdict->reported) == 0)
        verdict->first = (int)event;
    atomic_fetch_add(&verdict->reported, 1);
}

static void on_other_done(enum hf_err err, void *arg)
{
    struct verdict *verdict = arg;

    (void)err;
    if (!hf_lock_valid_for(verdict->lock, 0))
        atomic_fetch_add(&verdict->reported, 1);
}

static bool is_readable(int fd)
{
    struct pollfd now = {.fd = fd, .events = POLLIN};

    return poll(&now, 1, 0) > 0;
}

/* Drive the client until `over` is readable; the parent writes to it while this
 * process is stopped. */
static void drive_until(int over, struct hf_client *client, bool background)
{
    while (!is_readable(over)) {
        struct pollfd fds[] = {
            {.fd = over, .events = POLLIN},
            {.fd = background ? -1 : hf_fd(client), .events = POLLIN},
        };

        (void)poll(fds, 2, -1);
        if (!background && !is_readable(over))
            (void)hf_process(client);
    }
}

/* Hold a lock while other callbacks become due, and drive the client until this
 * process has been stopped for longer than `ttl_ms`. */
static void hold_until_stopped(struct verdict *verdict, uint32_t ttl_ms,
                               bool background, int ready, int over)
{
    struct hf_lock_opts kept = suite_opts(ttl_ms, 0);
    struct hf_client_opts opts;
    struct hf_client *client = NULL;
    char byte = '+';

    kept.renew = true;
    kept.on_event = on_stopped_lock_event;
    kept.arg = verdict;
    hf_client_opts_init(&opts);
    opts.background = background;
    verdict->err = hf_open(suite_url(), &opts, &client);
    if (!verdict->err)
        verdict->err = recorded_acquire(
            client, suite_key_number("stopped", ttl_ms), &kept, &verdict->lock);
    /* These waits time out while the process is stopped, so their callbacks are
     * due when it continues. */
    for (unsigned i = 0; i < 3 && !verdict->err; i++)
        verdict->err =
            hf_wait_held_start(client, suite_key("unused"), ttl_ms + 100 * i,
                               NULL, on_other_done, verdict, NULL);
    if (verdict->err)
        return;
    verdict->was_valid = recorded_is_valid(client, verdict->lock);
    (void)!write(ready, &byte, 1);
    drive_until(over, client, background);
    verdict->is_valid = hf_lock_valid_for(verdict->lock, 0);
    (void)suite_await(&verdict->reported, 1, background ? NULL : client);
    (void)recorded_close(client, SUITE_TIMEOUT_MS);
    hf_lock_free(verdict->lock);
}

static void stop_for(int64_t ms, pid_t pid, int over)
{
    int status = 0;

    suite_sleep(50);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    suite_sleep(ms);
    assert_int_equal(write(over, "+", 1), 1);
    assert_int_equal(kill(pid, SIGCONT), 0);
}

/* Returns false if the lease expired before the process was stopped. */
static bool loss_comes_first(uint32_t ttl_ms, bool background)
{
    struct verdict verdict = {.err = HF_OK};
    int ready[2], over[2], result[2];
    char byte = 0;
    pid_t pid = 0;

    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(over), 0);
    assert_int_equal(pipe(result), 0);
    pid = suite_fork();
    if (pid == 0) {
        hold_until_stopped(&verdict, ttl_ms, background, ready[1], over[0]);
        (void)!write(result[1], &verdict, sizeof(verdict));
        _exit(0);
    }
    /* Only the child writes now: if it exits early, read() returns 0. */
    (void)close(ready[1]);
    (void)close(result[1]);
    if (read(ready[0], &byte, 1) == 1)
        stop_for(2 * (int64_t)ttl_ms, pid, over[1]);
    assert_int_equal(read(result[0], &verdict, sizeof(verdict)),
                     sizeof(verdict));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(ready[0]);
    (void)close(over[0]);
    (void)close(over[1]);
    (void)close(result[0]);

    if (suite_lease_was_too_short(verdict.err))
        return false;
    expect_ok(verdict.err);
    if (!verdict.was_valid)
        return false;
    assert_false(verdict.is_valid);
    assert_true(verdict.reported >= 1);
    assert_int_equal(verdict.first, HF_LOCK_EVENT_LOST);
    return true;
}

/* MS-12: only the local clock decides when validity ends. */
static bool loss_comes_first_when_driven(unsigned round)
{
    return loss_comes_first(suite_longer_ms(800, round), false);
}

static void a_stopped_process_gets_the_loss_first(void)
{
    suite_repeat(loss_comes_first_when_driven);
}

static bool loss_comes_first_in_background(unsigned round)
{
    return loss_comes_first(suite_longer_ms(800, round), true);
}

static void a_stopped_background_client_gets_the_loss_first(void)
{
    suite_repeat(loss_comes_first_in_background);
}

static const struct promise promises[] = {
    PROMISE(renewals_keep_a_lock_past_its_ttl, 0),
    PROMISE(a_lock_without_renewal_ends_with_its_ttl, 0),
    PROMISE(renew_extends_the_lease_from_now, 0),
    PROMISE(the_full_ttl_remains_after_acquire, 0),
    PROMISE(valid_for_is_false_once_less_remains, 0),
    PROMISE(a_ttl_can_include_the_wait, 0),
    PROMISE(an_expired_lock_is_granted_to_a_waiter, 0),
    PROMISE(leases_are_counted_in_milliseconds, HF_CAP_STEADY),
    PROMISE(the_lock_of_a_killed_holder_expires, 0),
    PROMISE(every_lease_lasts_and_expires, 0),
    PROMISE(expired_keys_are_not_listed, 0),
    PROMISE(renew_defaults_to_the_ttl_of_the_handle, 0),
    PROMISE(renew_never_shortens_a_lease, 0),
    PROMISE(renew_never_creates_a_lock, 0),
    PROMISE(renewals_run_in_the_users_loop, 0),
    PROMISE(renewals_need_no_event_loop, 0),
    PROMISE(nothing_is_renewed_after_release, 0),
    PROMISE(an_expired_lock_is_reported_lost_once, 0),
    PROMISE(a_loss_is_reported_without_an_event_loop, 0),
    PROMISE(lost_is_reported_before_the_next_grant, 0),
    PROMISE(a_forced_lock_is_lost_at_the_next_renewal, 0),
    PROMISE(a_forced_lock_is_reported_at_risk_then_lost, 0),
    PROMISE(a_late_renewal_is_reported_at_risk_once, 0),
    PROMISE(each_claim_of_a_handle_reports_its_loss, 0),
    PROMISE(close_ends_validity_and_renewals, 0),
    PROMISE(a_stopped_process_gets_the_loss_first, 0),
    PROMISE(a_stopped_background_client_gets_the_loss_first, 0),
};

const struct chapter chapter_leases = CHAPTER(promises);
