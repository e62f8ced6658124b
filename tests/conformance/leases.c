/* leases.c - how long a lock lasts, and how its holder hears of the end. */
#include "conformance/suite.h"
#include "lib/recorded.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* MJ-02 */
static int64_t ttl_lacks(unsigned round)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(2000, 0);
    struct hf_lock *lock = NULL;
    int64_t lacks = 0;

    expect_ok(
        recorded_lock(client, suite_key_number("k", round), &opts, &lock));
    lacks = 2000 - (int64_t)hf_remaining_ms(lock);
    assert_true(lacks > 5 || hf_valid_for(lock, 1990));

    hf_lock_free(lock);
    suite_close(client);
    return lacks;
}

static void the_ttl_is_whole_when_lock_returns(void)
{
    suite_in_time(ttl_lacks, 5);
}

/* MJ-03 */
static void valid_for_is_false_once_less_remains(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(1000, 0);
    struct hf_lock *lock = NULL;

    expect_ok(recorded_lock(client, suite_key("k"), &opts, &lock));
    assert_true(hf_valid_for(lock, 500));
    assert_false(hf_valid_for(lock, 1000)); /* strictly less */
    assert_false(hf_valid_for(lock, HF_FOREVER));
    suite_sleep_until(hf_deadline(lock) - 500);

    assert_false(hf_valid_for(lock, 500));
    assert_true(hf_valid_for(lock, 0) || suite_now_ms() >= hf_deadline(lock));
    hf_lock_free(lock);
    suite_close(client);
}

/* MS-06 */
static void a_lock_without_renewal_ends_with_its_ttl(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(3000, 0);
    struct hf_lock *lock = NULL;
    int64_t began = suite_now_ms();

    expect_ok(recorded_lock(client, suite_key("k"), &opts, &lock));
    suite_sleep_until(began + 1000);
    assert_true(recorded_valid(client, lock));
    suite_sleep_until(hf_deadline(lock));

    assert_false(hf_valid_for(lock, 0));
    assert_int_equal(hf_remaining_ms(lock), 0);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    hf_lock_free(lock);
    suite_close(client);
}

/* The holder takes `ttl_ms` and does nothing more; another waits for the key.
 * How long after the grant it gets it, by the clock of neither. */
static int64_t handed_over_after(unsigned round, uint32_t ttl_ms)
{
    struct hf_client *one = suite_open(), *two = suite_open();
    struct hf_key key = suite_key_number("k", round);
    struct hf_lock_opts opts = suite_opts(ttl_ms, 10000);
    struct hf_lock *lost = NULL, *lock = NULL;
    int64_t granted = 0, took = 0, deadline = 0;

    expect_ok(recorded_lock(one, key, &opts, &lost));
    granted = suite_now_ms();
    deadline = hf_deadline(lost);
    expect_ok(recorded_lock(two, key, &opts, &lock));
    took = suite_now_ms() - granted;

    assert_true(took >= ttl_ms);
    assert_true(suite_now_ms() >= deadline);
    assert_false(hf_valid_for(lost, 0));
    hf_lock_free(lost);
    hf_lock_free(lock);
    suite_close(one);
    suite_close(two);
    return took;
}

/* MM-07: the wait, a third of a second, is part of it. */
static void a_limit_may_count_from_the_claim_on(void)
{
    struct hf_client *one = suite_open(), *two = suite_open();
    struct hf_lock_opts opts = suite_opts(30000, 20000);
    struct hf_lock *first = NULL, *second = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;
    int64_t before = 0, after = 0;

    expect_ok(recorded_lock(one, suite_key("k"), &opts, &first));
    opts.from_claim = true;
    before = suite_now_ms();
    expect_ok(recorded_lock_start(two, suite_key("k"), &opts, &second, NULL,
                                  NULL, &future));
    after = suite_now_ms();
    expect_err(recorded_future_wait(future, 333, &err), HF_ETIMEDOUT);
    expect_ok(recorded_unlock(one, first));
    expect_ok(recorded_future_wait(future, 20000, &err));
    expect_ok(err);

    assert_in_range(hf_deadline(second), before + 15000, after + 30000);
    hf_future_free(future);
    hf_lock_free(first);
    hf_lock_free(second);
    suite_close(one);
    suite_close(two);
}

/* GO-08, MM-07 */
static int64_t half_a_second_lasts(unsigned round)
{
    return handed_over_after(round, 500);
}

static void an_unreleased_lock_passes_on_when_it_ends(void)
{
    suite_in_time(half_a_second_lasts, suite_lease_ms(500) + 50);
}

/* MS-14 */
static int64_t three_tenths_last(unsigned round)
{
    return handed_over_after(round, 300);
}

static void leases_are_counted_in_milliseconds(void)
{
    suite_in_time(three_tenths_last, suite_lease_ms(300) + 50);
}

/* GO-08, LK-23: the holder's process is killed. */
static int64_t killed_holder_keeps_it_for(unsigned round)
{
    struct hf_key key = suite_key_number("k", round);
    struct hf_lock_opts opts = suite_opts(500, 60000);
    struct hf_client *client = NULL;
    struct hf_lock *lock = NULL;
    int64_t granted = 0, took = 0;
    int ends[2];
    pid_t pid = 0;

    assert_int_equal(pipe(ends), 0);
    pid = suite_fork();
    if (pid == 0) {
        if (hf_open(suite_url(), NULL, &client) == HF_OK &&
            recorded_lock(client, key, &opts, &lock) == HF_OK) {
            granted = suite_now_ms();
            (void)!write(ends[1], &granted, sizeof(granted));
        }
        (void)pause();
        _exit(0);
    }
    assert_int_equal(read(ends[0], &granted, sizeof(granted)), sizeof(granted));
    recorded_kill(pid);
    client = suite_open();
    expect_ok(recorded_lock(client, key, &opts, &lock));
    took = suite_now_ms() - granted;

    assert_true(took >= 500);
    (void)close(ends[0]);
    (void)close(ends[1]);
    hf_lock_free(lock);
    suite_close(client);
    return took;
}

static void a_killed_holders_lock_passes_on_when_it_ends(void)
{
    suite_needs_processes();
    suite_in_time(killed_holder_keeps_it_for, suite_lease_ms(500) + 50);
}

/* LK-11, LK-12 */
#define LEASES 100

struct succession {
    struct hf_lock *lock, *next;
    struct hf_future *claim; /* NULL: it was granted */
    int64_t taken_ms;
};

/* Look who was granted since; the longest life so far. */
static int64_t look_around(struct succession *all, unsigned *left,
                           int64_t longest)
{
    for (unsigned i = 0; i < LEASES; i++) {
        int64_t life = suite_now_ms() - all[i].taken_ms;

        if (!all[i].claim || !hf_future_done(all[i].claim, NULL))
            continue;
        expect_ok(suite_answer(all[i].claim, 0));
        assert_true(suite_now_ms() - all[i].taken_ms >= 500);
        assert_false(hf_valid_for(all[i].lock, 0));
        all[i].claim = NULL;
        --*left;
        if (life > longest)
            longest = life;
    }
    return longest;
}

static int64_t longest_lease(unsigned round)
{
    struct hf_client *one = suite_open(), *two = suite_open();
    struct hf_lock_opts opts = suite_opts(500, 60000);
    struct succession all[LEASES] = {{0}};
    struct pollfd fd = {.fd = hf_fd(two), .events = POLLIN};
    unsigned left = LEASES;
    int64_t longest = 0;

    for (unsigned i = 0; i < LEASES; i++) {
        struct hf_key key = suite_key_number("k", round * LEASES + i);

        expect_ok(recorded_lock(one, key, &opts, &all[i].lock));
        all[i].taken_ms = suite_now_ms();
        expect_ok(recorded_lock_start(two, key, &opts, &all[i].next, NULL, NULL,
                                      &all[i].claim));
    }
    while (left > 0) {
        (void)poll(&fd, 1, 1000);
        expect_ok(hf_process(two));
        longest = look_around(all, &left, longest);
    }
    for (unsigned i = 0; i < LEASES; i++) {
        hf_lock_free(all[i].lock);
        hf_lock_free(all[i].next);
    }
    suite_close(one);
    suite_close(two);
    return longest;
}

static void no_lease_is_short_and_none_is_late(void)
{
    suite_in_time(longest_lease,
                  suite_lease_ms(500) + 50 * (int64_t)suite_slowness());
}

/* LK-12 */
static bool count_one(const struct hf_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return true;
}

static void expired_keys_vanish(void)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_lock *locks[8] = {0};
    unsigned count = 0;

    for (unsigned i = 0; i < 8; i++) {
        struct hf_lock_opts opts = suite_opts(suite_brief_ms(50 + 50 * i), 0);

        expect_ok(
            recorded_lock(client, suite_key_number("k", i), &opts, &locks[i]));
    }
    suite_sleep(suite_lease_ms(suite_brief_ms(50 + 50 * 7)) * 102 / 100);
    expect_ok(hf_list(other, suite_key(""), count_one, &count));

    assert_int_equal(count, 0);
    for (unsigned i = 0; i < 8; i++)
        hf_lock_free(locks[i]);
    suite_close(client);
    suite_close(other);
}

/* ---- Renewing -----------------------------------------------------------*/

/* LK-10 */
static void renew_extends_the_lease_from_now(void)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_lock_opts opts = suite_opts(2000, 0);
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_key key = suite_key("k");
    int64_t began = 0;

    expect_ok(recorded_lock(client, key, &opts, &lock));
    began = suite_now_ms();
    suite_sleep_until(began + 1500);
    expect_ok(recorded_renew(client, lock, 2000));
    suite_sleep_until(began + 3000);

    assert_true(recorded_valid(client, lock));
    expect_err(recorded_lock(other, key, &opts, &none), HF_EBUSY);
    hf_lock_free(lock);
    suite_close(client);
    suite_close(other);
}

static void renew_of_nothing_given_takes_the_handles_ttl(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(5000, 0);
    struct hf_lock *lock = NULL;
    int64_t before = 0;

    expect_ok(recorded_lock(client, suite_key("k"), &opts, &lock));
    suite_sleep(20);
    before = hf_deadline(lock);
    expect_ok(recorded_renew(client, lock, 0));

    assert_true(hf_deadline(lock) > before);
    assert_true(hf_deadline(lock) <= suite_now_ms() + 5000);
    hf_lock_free(lock);
    suite_close(client);
}

static void renew_never_shortens(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(10000, 0);
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");
    int64_t deadline = 0;
    struct hf_info info;

    expect_ok(recorded_lock(client, key, &opts, &lock));
    deadline = hf_deadline(lock);
    expect_ok(recorded_renew(client, lock, 100));

    assert_true(hf_deadline(lock) >= deadline);
    expect_ok(recorded_read(client, key, &info));
    assert_true(info.left_ms >= hf_remaining_ms(lock));
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(client);
}

static void renew_never_creates(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts opts = suite_opts(suite_brief_ms(50), 0);
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");
    struct hf_info info;

    expect_ok(recorded_lock(client, key, &opts, &lock));
    expect_ok(hf_wait_free(client, key, 10000, NULL));
    expect_err(recorded_renew(client, lock, 10000), HF_EEXPIRED);

    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    assert_false(hf_valid_for(lock, 0));
    expect_ok(recorded_read(client, key, &info));
    assert_false(info.held);
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(client);
}

/* MS-07 */
static void renewals_keep_a_lock_past_its_ttl(void)
{
    struct hf_client *client = suite_open_background(), *other = suite_open();
    struct hf_lock_opts kept = suite_opts(5000, 0);
    struct hf_lock_opts once = suite_opts(3000, 0);
    struct suite_heard heard = {0};
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_key key = suite_key("k");
    int64_t began = suite_now_ms();

    kept.renew = true;
    kept.on_event = suite_hear;
    kept.arg = &heard;
    expect_ok(recorded_lock(client, key, &kept, &lock));
    for (int i = 1; i <= 10; i++) {
        suite_sleep_until(began + (int64_t)1000 * i);
        assert_true(recorded_valid(client, lock));
    }

    expect_err(recorded_lock(other, key, &once, &none), HF_EBUSY);
    assert_int_equal(heard.lost, 0);
    expect_ok(recorded_unlock(client, lock));
    hf_lock_free(lock);
    suite_close(client);
    suite_close(other);
}

/* MS-07: driven by hf_process() alone. */
static void renewals_run_in_the_users_loop(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts kept = suite_opts(suite_brief_ms(600), 0);
    struct hf_lock *lock = NULL;
    int64_t until = 0;

    kept.renew = true;
    expect_ok(recorded_lock(client, suite_key("k"), &kept, &lock));
    until = suite_now_ms() + 3 * (int64_t)kept.ttl_ms;
    while (suite_now_ms() < until) {
        struct pollfd fd = {.fd = hf_fd(client), .events = POLLIN};

        (void)poll(&fd, 1, (int)(until - suite_now_ms()));
        expect_ok(hf_process(client));
    }

    assert_true(recorded_valid(client, lock));
    hf_lock_free(lock);
    suite_close(client);
}

/* MS-07: who only blocks has no loop, and needs none. */
static void renewals_need_no_loop_of_the_user(void)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_lock_opts kept = suite_opts(3000, 0);
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_key key = suite_key("k");

    kept.renew = true;
    expect_ok(recorded_lock(client, key, &kept, &lock));
    suite_sleep(2 * (int64_t)kept.ttl_ms);

    assert_true(recorded_valid(client, lock));
    kept.renew = false;
    expect_err(recorded_lock(other, key, &kept, &none), HF_EBUSY);
    hf_lock_free(lock);
    suite_close(client);
    suite_close(other);
}

/* MS-10 */
static void nothing_is_renewed_after_unlock(void)
{
    struct hf_client *client = suite_open_background(), *other = suite_open();
    struct hf_lock_opts kept = suite_opts(3000, 0);
    struct suite_heard heard = {0};
    struct hf_lock *lock = NULL;
    struct hf_key key = suite_key("k");
    struct hf_info info;
    int64_t deadline = 0;

    kept.renew = true;
    kept.on_event = suite_hear;
    kept.arg = &heard;
    expect_ok(recorded_lock(client, key, &kept, &lock));
    deadline = hf_deadline(lock);
    while (hf_deadline(lock) == deadline && hf_valid_for(lock, 0))
        suite_sleep(10);
    expect_ok(recorded_unlock(client, lock));
    suite_sleep(1500); /* the next would have come after a third of the ttl */

    expect_ok(recorded_read(other, key, &info));
    assert_false(info.held);
    assert_int_equal(heard.lost, 0);
    hf_info_fini(&info);
    hf_lock_free(lock);
    suite_close(client);
    suite_close(other);
}

/* ---- Being told ---------------------------------------------------------*/

static void an_unrenewed_lock_is_told_lost_once(void)
{
    struct hf_client *client = suite_open_background(), *other = suite_open();
    struct hf_lock_opts brief = suite_opts(suite_brief_ms(200), 10000);
    struct suite_heard heard = {0};
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_key key = suite_key("k");

    brief.on_event = suite_hear;
    brief.arg = &heard;
    expect_ok(recorded_lock(client, key, &brief, &lock));
    brief.on_event = NULL;
    expect_ok(recorded_lock(other, key, &brief, &next));

    assert_true(suite_await(&heard.lost, 1, NULL));
    suite_sleep(100);
    assert_int_equal(heard.lost, 1);
    assert_int_equal(heard.waiting, 0);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(client);
    suite_close(other);
}

static void loss_is_told_without_a_loop_of_the_user(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts brief = suite_opts(suite_brief_ms(100), 0);
    struct suite_heard heard = {0};
    struct hf_lock *lock = NULL;

    brief.on_event = suite_hear;
    brief.arg = &heard;
    expect_ok(recorded_lock(client, suite_key("k"), &brief, &lock));

    assert_true(suite_await(&heard.lost, 1, NULL));
    hf_lock_free(lock);
    suite_close(client);
}

/* Lost is heard before another can have been granted the key: after the end of
 * validity, before the end of the lease. */
static int64_t lost_is_told_after(unsigned round)
{
    struct hf_client *client = suite_open_background();
    struct hf_lock_opts brief = suite_opts(500, 0);
    struct suite_heard heard = {0};
    struct hf_key key = suite_key_number("k", round);
    struct hf_lock *lock = NULL;
    int64_t began = suite_now_ms(), deadline = 0;

    brief.on_event = suite_hear;
    brief.arg = &heard;
    expect_ok(recorded_lock(client, key, &brief, &lock));
    deadline = hf_deadline(lock);
    assert_true(suite_await(&heard.lost, 1, NULL));

    assert_true(heard.at_ms[0] >= deadline);
    hf_lock_free(lock);
    suite_close(client);
    return heard.at_ms[0] - began;
}

static void lost_is_told_before_another_can_hold(void)
{
    suite_in_time(lost_is_told_after, suite_lease_ms(500) - 1);
}

/* MS-08: a lock that was taken away is noticed by the next renewal. */
static int64_t removal_is_noticed_after(unsigned round)
{
    struct hf_client *client = suite_open_background(), *other = suite_open();
    struct hf_lock_opts kept = suite_opts(1500, 0);
    struct suite_heard heard = {0};
    struct hf_key key = suite_key_number("k", round);
    struct hf_lock *lock = NULL;
    int64_t began = 0, took = 0;

    kept.renew = true;
    kept.on_event = suite_hear;
    kept.arg = &heard;
    expect_ok(recorded_lock(client, key, &kept, &lock));
    expect_ok(recorded_force_now(other, key, hf_token(lock)));
    began = suite_now_ms();
    assert_true(suite_await(&heard.lost, 1, NULL));
    took = suite_now_ms() - began;

    assert_false(hf_valid_for(lock, 0));
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    assert_int_equal(heard.lost, 1);
    expect_err(recorded_unlock(client, lock), HF_EEXPIRED);
    hf_lock_free(lock);
    suite_close(client);
    suite_close(other);
    return took;
}

static void a_lock_taken_away_is_noticed_by_the_next_renewal(void)
{
    /* At a third of the ttl, give or take a tenth of that. */
    suite_in_time(removal_is_noticed_after, 1500 / 3 * 11 / 10 + 50);
}

/* A broken lock: at risk, then lost, once each, while nobody else holds. */
static void a_broken_lock_is_told_at_risk_then_lost(void)
{
    struct hf_client *client = suite_open_background(), *other = suite_open();
    struct hf_lock_opts kept = suite_opts(suite_brief_ms(900), 10000);
    struct suite_heard heard = {0};
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_key key = suite_key("k");
    int64_t deadline = 0;

    kept.renew = true;
    kept.on_event = suite_hear;
    kept.arg = &heard;
    expect_ok(recorded_lock(client, key, &kept, &lock));
    expect_ok(hf_force(other, key, hf_token(lock), false));
    assert_true(suite_await(&heard.at_risk, 1, NULL));
    deadline = hf_deadline(lock);
    kept.on_event = NULL;
    kept.renew = false;
    expect_ok(recorded_lock(other, key, &kept, &next));

    assert_true(suite_await(&heard.lost, 1, NULL));
    assert_int_equal(heard.count, 2);
    assert_int_equal(heard.events[0], HF_LOCK_EVENT_AT_RISK);
    assert_int_equal(heard.events[1], HF_LOCK_EVENT_LOST);
    assert_true(heard.at_ms[1] >= deadline || deadline == 0);
    hf_lock_free(lock);
    hf_lock_free(next);
    suite_close(client);
    suite_close(other);
}

/* Half the lease without a renewal: here nobody drove the client. */
static void a_late_renewal_is_told_at_risk_once(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock_opts kept = suite_opts(6000, 0);
    struct suite_heard heard = {0};
    struct hf_lock *lock = NULL;

    kept.renew = true;
    kept.on_event = suite_hear;
    kept.arg = &heard;
    (void)hf_fd(client); /* the program drives, or does not */
    expect_ok(recorded_lock(client, suite_key("k"), &kept, &lock));
    suite_sleep(3100);
    assert_true(suite_await(&heard.at_risk, 1, client));
    while (hf_remaining_ms(lock) > 0 && hf_remaining_ms(lock) < 4000)
        expect_ok(hf_process(client)); /* the renewal is under way */
    suite_sleep(3100);
    expect_ok(hf_process(client));

    assert_true(recorded_valid(client, lock));
    assert_int_equal(heard.count, 1);
    hf_lock_free(lock);
    suite_close(client);
}

/* Once each a claim, and a claim of the same handle is another one. */
static void a_second_claim_hears_its_own_loss(void)
{
    struct hf_client *client = suite_open_background();
    struct hf_lock_opts brief = suite_opts(suite_brief_ms(100), 0);
    struct suite_heard heard = {0};
    struct hf_lock *lock = NULL;

    brief.idle = true;
    brief.wait_ms = 10000;
    brief.on_event = suite_hear;
    brief.arg = &heard;
    expect_ok(recorded_lock_new(client, suite_key("k"), &brief, &lock));
    expect_ok(recorded_claim(client, lock));
    assert_true(suite_await(&heard.lost, 1, NULL));
    expect_ok(recorded_claim(client, lock));

    assert_true(suite_await(&heard.lost, 2, NULL));
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
        struct hf_lock_opts kept = suite_opts(suite_brief_ms(300), 0);
        struct hf_key key = suite_key_number("k", mode);
        struct hf_lock *lock = NULL;
        struct hf_info info;

        kept.renew = true;
        expect_ok(recorded_lock(client, key, &kept, &lock));
        suite_close(client);

        assert_false(hf_valid_for(lock, 0));
        expect_ok(recorded_read(witness, key, &info));
        assert_false(info.held);
        hf_info_fini(&info);
        hf_lock_free(lock);
    }
    suite_close(witness);
}

/* ---- Being stopped ------------------------------------------------------*/

/* What the stopped process found when it went on. */
struct verdict {
    enum hf_err err;
    struct hf_lock *lock;
    bool was_valid;         /* before the stop */
    bool is_valid;          /* after it, before anything else was done */
    _Atomic unsigned heard; /* callbacks since the stop */
    int first; /* which of them came first: an enum hf_lock_event, or 0 */
};

/* What a busy machine lets it hear while the lock is valid, that it is at risk
 * or that a wait ran out, it hears before the stop. */
static void hear_loss(struct hf_lock *lock, enum hf_lock_event event, void *arg)
{
    struct verdict *verdict = arg;

    if (hf_valid_for(lock, 0))
        return;
    if (atomic_load(&verdict->heard) == 0)
        verdict->first = (int)event;
    atomic_fetch_add(&verdict->heard, 1);
}

static void hear_other(enum hf_err err, void *arg)
{
    struct verdict *verdict = arg;

    (void)err;
    if (!hf_valid_for(verdict->lock, 0))
        atomic_fetch_add(&verdict->heard, 1);
}

static bool is_readable(int fd)
{
    struct pollfd now = {.fd = fd, .events = POLLIN};

    return poll(&now, 1, 0) > 0;
}

/* Drive until `over` can be read: it is written to during the stop. */
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

/* Hold a lock, with other callbacks to come, and drive until this process has
 * been stopped for longer than `ttl_ms`. */
static void be_stopped(struct verdict *verdict, uint32_t ttl_ms,
                       bool background, int ready, int over)
{
    struct hf_lock_opts kept = suite_opts(ttl_ms, 0);
    struct hf_client_opts opts;
    struct hf_client *client = NULL;
    char byte = '+';

    kept.renew = true;
    kept.on_event = hear_loss;
    kept.arg = verdict;
    hf_client_opts_init(&opts);
    opts.background = background;
    verdict->err = hf_open(suite_url(), &opts, &client);
    if (!verdict->err)
        verdict->err =
            recorded_lock(client, suite_key("stopped"), &kept, &verdict->lock);
    /* These come due while the process is stopped. */
    for (unsigned i = 0; i < 3 && !verdict->err; i++)
        verdict->err =
            hf_wait_held_start(client, suite_key("nobody"), ttl_ms + 100 * i,
                               NULL, hear_other, verdict, NULL);
    if (verdict->err)
        return;
    verdict->was_valid = recorded_valid(client, verdict->lock);
    (void)!write(ready, &byte, 1);
    drive_until(over, client, background);
    verdict->is_valid = hf_valid_for(verdict->lock, 0);
    (void)suite_await(&verdict->heard, 1, background ? NULL : client);
    (void)recorded_close(client, 5000);
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

static void expect_loss_first(bool background)
{
    const uint32_t ttl_ms = 800 * hf_test_slowness();
    struct verdict verdict = {.err = HF_OK};
    int ready[2], over[2], result[2];
    char byte = 0;
    pid_t pid = 0;

    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(over), 0);
    assert_int_equal(pipe(result), 0);
    pid = suite_fork();
    if (pid == 0) {
        be_stopped(&verdict, ttl_ms, background, ready[1], over[0]);
        (void)!write(result[1], &verdict, sizeof(verdict));
        _exit(0);
    }
    /* Of one that ends without a word the end is read. */
    (void)close(ready[1]);
    (void)close(result[1]);
    if (read(ready[0], &byte, 1) == 1)
        stop_for(2 * (int64_t)ttl_ms, pid, over[1]);
    assert_int_equal(read(result[0], &verdict, sizeof(verdict)),
                     sizeof(verdict));
    assert_int_equal(waitpid(pid, NULL, 0), pid);

    expect_ok(verdict.err);
    assert_true(verdict.was_valid);
    assert_false(verdict.is_valid);
    assert_true(verdict.heard >= 1);
    assert_int_equal(verdict.first, HF_LOCK_EVENT_LOST);
}

/* MS-12: validity ends by the local clock alone. */
static void who_was_stopped_hears_of_the_loss_first(void)
{
    expect_loss_first(false);
}

static void who_was_stopped_hears_of_the_loss_first_in_background(void)
{
    expect_loss_first(true);
}

static const struct promise promises[] = {
    PROMISE(renewals_keep_a_lock_past_its_ttl, 0),
    PROMISE(a_lock_without_renewal_ends_with_its_ttl, 0),
    PROMISE(renew_extends_the_lease_from_now, 0),
    PROMISE(the_ttl_is_whole_when_lock_returns, 0),
    PROMISE(valid_for_is_false_once_less_remains, 0),
    PROMISE(a_limit_may_count_from_the_claim_on, 0),
    PROMISE(an_unreleased_lock_passes_on_when_it_ends, 0),
    PROMISE(leases_are_counted_in_milliseconds, HF_CAP_STEADY),
    PROMISE(a_killed_holders_lock_passes_on_when_it_ends, 0),
    PROMISE(no_lease_is_short_and_none_is_late, 0),
    PROMISE(expired_keys_vanish, 0),
    PROMISE(renew_of_nothing_given_takes_the_handles_ttl, 0),
    PROMISE(renew_never_shortens, 0),
    PROMISE(renew_never_creates, 0),
    PROMISE(renewals_run_in_the_users_loop, 0),
    PROMISE(renewals_need_no_loop_of_the_user, 0),
    PROMISE(nothing_is_renewed_after_unlock, 0),
    PROMISE(an_unrenewed_lock_is_told_lost_once, 0),
    PROMISE(loss_is_told_without_a_loop_of_the_user, 0),
    PROMISE(lost_is_told_before_another_can_hold, 0),
    PROMISE(a_lock_taken_away_is_noticed_by_the_next_renewal, 0),
    PROMISE(a_broken_lock_is_told_at_risk_then_lost, 0),
    PROMISE(a_late_renewal_is_told_at_risk_once, 0),
    PROMISE(a_second_claim_hears_its_own_loss, 0),
    PROMISE(close_ends_validity_and_renewals, 0),
    PROMISE(who_was_stopped_hears_of_the_loss_first, 0),
    PROMISE(who_was_stopped_hears_of_the_loss_first_in_background, 0),
};

const struct chapter chapter_leases = CHAPTER(promises);
