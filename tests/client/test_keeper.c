/* Keeping a lock: renewals, and the events AT_RISK and LOST. */
#include <string.h>

#include "lib/runner.h"
#include "lib/world.h"

static struct hf_world world;
static struct hf_client *a, *b;

/* The callbacks that have run, one letter each, and when: 'w' WAITING, 'r'
 * AT_RISK, 'L' LOST, 'd' the done callback of a call. */
static struct {
    char text[64];
    hf_time at[64];
    unsigned count;
} calls;

static int set_up(void **state)
{
    (void)state;
    hf_world_init(&world, 11);
    a = hf_world_open(&world);
    b = hf_world_open(&world);
    memset(&calls, 0, sizeof(calls));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hf_world_fini(&world);
    return 0;
}

static void record_call(char letter)
{
    assert_true(calls.count < 63);
    calls.at[calls.count] = world.now;
    calls.text[calls.count++] = letter;
}

static void on_event(struct hf_lock *lock, enum hf_lock_event event, void *arg)
{
    (void)arg;
    if (event == HF_LOCK_EVENT_LOST)
        assert_false(hf_lock_valid_for(lock, 0));
    if (event == HF_LOCK_EVENT_WAITING)
        record_call('w');
    else if (event == HF_LOCK_EVENT_AT_RISK)
        record_call('r');
    else
        record_call('L');
}

static void on_done(enum hf_err err, void *arg)
{
    (void)err;
    (void)arg;
    record_call('d');
}

static struct hf_lock_opts options(uint32_t ttl_ms, bool renew)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = ttl_ms;
    opts.renew = renew;
    opts.on_event = on_event;
    return opts;
}

static struct hf_lock *acquire_renewed(uint32_t ttl_ms)
{
    struct hf_lock_opts opts = options(ttl_ms, true);
    struct hf_lock *lock;

    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    return lock;
}

static unsigned renewals(void)
{
    return hf_faulty_sent(hf_faulty_of(a), HF_ON_RENEW);
}

static void a_lock_is_renewed_after_a_third_of_its_ttl(void **state)
{
    struct hf_lock *lock = acquire_renewed(3000);
    hf_time last = world.now;

    (void)state;
    for (unsigned i = 1; i <= 20; i++) {
        while (renewals() < i)
            assert_true(hf_world_step(&world, HF_NEVER));
        assert_true(world.now - last >= 900);
        assert_true(world.now - last <= 1100);
        last = world.now;
        assert_true(hf_lock_valid_for(lock, 2999));
    }
    assert_int_equal(calls.count, 0);
    hf_lock_free(lock);
}

static void renewals_of_many_locks_spread_out(void **state)
{
    struct hf_lock *locks[8];
    hf_time first = 0, last = 0;

    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        struct hf_lock_opts opts = options(3000, true);
        char key[2] = {(char)('a' + i), 0};

        assert_int_equal(hf_world_acquire(&world, a, key, &opts, &locks[i]),
                         HF_OK);
    }
    while (renewals() < 8) {
        unsigned before = renewals();

        assert_true(hf_world_step(&world, HF_NEVER));
        if (before == 0 && renewals() > 0)
            first = world.now;
        last = world.now;
    }
    assert_true(last > first);
    for (unsigned i = 0; i < 8; i++)
        hf_lock_free(locks[i]);
}

static void renew_ms_sets_the_time_of_the_renewal(void **state)
{
    struct hf_lock_opts opts = options(3000, true);
    struct hf_lock *lock;
    hf_time granted;

    (void)state;
    opts.renew_ms = 700;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    granted = world.now;
    while (renewals() == 0)
        assert_true(hf_world_step(&world, HF_NEVER));
    assert_int_equal(world.now, granted + 2300);
    assert_int_equal(calls.count, 0);
    hf_lock_free(lock);
}

static void a_lost_renewal_is_repeated_inside_the_lease(void **state)
{
    struct hf_lock *lock = acquire_renewed(3000);

    (void)state;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_RENEW, HF_LOSE, 1, 0);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_RENEW, HF_LOSE_ANSWER, 1, 0);
    hf_world_run(&world, 20000);
    assert_true(hf_lock_valid_for(lock, 0));
    assert_null(strchr(calls.text, 'L'));
    hf_lock_free(lock);
}

/* The server may have executed the first copy of a repeated renewal, so
 * validity counts from the instant at which the first copy was sent. */
static void a_repeated_renewal_counts_from_its_first_send(void **state)
{
    struct hf_lock *lock = acquire_renewed(2400);
    struct hf_faulty *net = hf_faulty_of(a);
    hf_time sent;

    (void)state;
    hf_faulty_cue(net, HF_ON_RENEW, HF_LOSE_ANSWER, 2, 0);
    while (renewals() == 0)
        assert_true(hf_world_step(&world, HF_NEVER));
    sent = world.now;
    while (renewals() < 3)
        assert_true(hf_world_step(&world, HF_NEVER));
    assert_true(world.now > sent + 200);
    /* A ttl of 2400 ms has a lease of 2600 ms, and 2600 * 0.98 = 2548. */
    assert_int_equal(hf_lock_deadline(lock), sent + 2548);
    hf_lock_free(lock);
}

static void at_risk_and_lost_are_reported_once_and_in_time(void **state)
{
    struct hf_lock *lock = acquire_renewed(3000);
    hf_time granted = world.now;
    struct hf_error error;

    (void)state;
    hf_faulty_cut(hf_faulty_of(a), HF_CUT_ALL);
    hf_world_run(&world, 2999);
    assert_true(hf_lock_valid_for(lock, 0));
    assert_string_equal(calls.text, "r");
    hf_lock_error(lock, &error);
    assert_int_equal(error.code, HF_EUNAVAIL);
    assert_non_null(strstr(error.text, "renewals fail"));
    assert_int_equal(calls.at[0], granted + 1500);
    hf_world_run(&world, 10000);
    assert_string_equal(calls.text, "rL");
    assert_int_equal(calls.at[1], granted + 3000);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    hf_lock_free(lock);
}

/* Return the code of hf_lock_error(). Unless `text` is NULL, fail if the error
 * message does not contain it. */
static enum hf_err error_of(const struct hf_lock *lock, const char *text)
{
    struct hf_error error;

    hf_lock_error(lock, &error);
    if (text)
        assert_non_null(strstr(error.text, text));
    return error.code;
}

static void a_failed_attempt_is_reported_until_a_renewal_succeeds(void **state)
{
    struct hf_lock *lock = acquire_renewed(30000);
    unsigned before = renewals();

    (void)state;
    for (unsigned outage = 0; outage < 2; outage++) {
        hf_faulty_cue(hf_faulty_of(a), HF_ON_RENEW, HF_REFUSE, 3, 0);
        while (error_of(lock, NULL) == HF_OK)
            assert_true(hf_world_step(&world, HF_NEVER));
        assert_int_equal(renewals(), ++before);
        assert_int_equal(error_of(lock, "renewals fail"), HF_EUNAVAIL);
        assert_true(hf_lock_valid_for(lock, 15000));
        hf_world_run(&world, 5000);
        assert_int_equal(error_of(lock, NULL), HF_OK);
        assert_true(hf_lock_valid_for(lock, 20000));
        before = renewals();
    }
    assert_int_equal(calls.count, 0);
    hf_lock_free(lock);
}

/* hf_lock_error() reports the missing answer halfway between the start of the
 * renewal and AT_RISK, or after timeout_ms if that is earlier. */
static void an_overdue_answer_is_reported_before_at_risk(void **state)
{
    static const uint32_t ttls[] = {3000, 600000};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct hf_lock *lock = acquire_renewed(ttls[i]);
        unsigned before = renewals();
        hf_time sent;

        hf_faulty_cut(hf_faulty_of(a), HF_CUT_ALL);
        while (renewals() == before)
            assert_true(hf_world_step(&world, HF_NEVER));
        sent = world.now;
        while (error_of(lock, NULL) == HF_OK)
            assert_true(hf_world_step(&world, HF_NEVER));
        assert_int_equal(error_of(lock, "renewals fail: no answer"),
                         HF_EUNAVAIL);
        assert_true(world.now > sent);
        assert_true(world.now <= sent + 5000);
        assert_int_equal(calls.count, 0);
        hf_faulty_cut(hf_faulty_of(a), HF_CUT_NONE);
        hf_lock_free(lock);
        hf_world_run(&world, 10000);
    }
}

/* A successful renewal clears only errors of earlier renewals. */
static void a_renewal_keeps_the_error_of_another_call(void **state)
{
    struct hf_lock *lock = acquire_renewed(3000);
    struct hf_future *future;
    unsigned before = renewals();

    (void)state;
    assert_int_equal(hf_update_start(lock, &(struct hf_bytes){"x", 1},
                                     hf_bytes_of("y"), NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_EMISMATCH);
    hf_world_run(&world, 2000);
    assert_true(renewals() > before);
    assert_int_equal(error_of(lock, NULL), HF_EMISMATCH);
    hf_lock_free(lock);
}

static void lost_is_reported_without_renewals(void **state)
{
    struct hf_lock_opts opts = options(1000, false);
    hf_time granted = world.now;
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    hf_world_run(&world, 5000);
    assert_string_equal(calls.text, "L");
    assert_int_equal(calls.at[0], granted + 1000);
    hf_lock_free(lock);
}

/* Without a callback AT_RISK is not reported, but its timer must not stay due,
 * because the client would spin. */
static void failing_renewals_without_a_callback_end(void **state)
{
    struct hf_lock_opts opts = options(1000, true);
    struct hf_lock *lock;

    (void)state;
    opts.on_event = NULL;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    hf_faulty_cut(hf_faulty_of(a), HF_CUT_ALL);
    hf_world_run(&world, 3000);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    hf_lock_free(lock);
}

static void lost_is_reported_before_another_client_holds_the_key(void **state)
{
    struct hf_lock_opts opts = options(1000, false);
    struct hf_lock *lock = acquire_renewed(1000), *other;
    struct hf_future *future;

    (void)state;
    opts.on_event = NULL;
    opts.wait_ms = 60000;
    hf_faulty_cut(hf_faulty_of(a), HF_CUT_ALL);
    assert_int_equal(
        hf_acquire_start(b, hf_key_of("k"), &opts, &other, NULL, NULL, &future),
        HF_OK);
    while (!hf_future_done(future, NULL))
        assert_true(hf_world_step(&world, HF_NEVER));
    assert_string_equal(calls.text, "rL");
    assert_true(calls.at[1] < world.now);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    hf_lock_free(lock);
    hf_lock_free(other);
}

/* The clock jumps beyond the lease, as if the process had been stopped. */
static void a_stopped_process_gets_lost_first(void **state)
{
    struct hf_lock_opts opts = options(1000, true);
    struct hf_lock *lock, *second;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    assert_int_equal(hf_acquire_start(a, hf_key_of("other"), &opts, &second,
                                      on_done, NULL, NULL),
                     HF_OK);
    assert_int_equal(calls.count, 0);
    hf_world_jump(&world, 5000);
    assert_false(hf_lock_valid_for(lock, 0));
    hf_world_run(&world, 0);
    assert_int_equal(calls.text[0], 'L');
    assert_non_null(strchr(calls.text, 'd'));
    hf_lock_free(lock);
    hf_lock_free(second);
}

static void a_broken_lock_stays_valid_until_its_lease_expires(void **state)
{
    struct hf_lock *lock = acquire_renewed(3000);
    hf_time granted = world.now;
    struct hf_future *future;

    (void)state;
    assert_int_equal(hf_force_start(b, hf_key_of("k"), hf_lock_token(lock),
                                    false, NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(hf_world_renew(&world, lock, 0), HF_EFORCED);
    assert_true(hf_lock_valid_for(lock, 0));
    hf_world_run(&world, 10000);
    assert_string_equal(calls.text, "rL");
    assert_true(calls.at[0] <= granted + 1100);
    assert_int_equal(calls.at[1], granted + 3000);
    /* After HF_EFORCED the client sends no more renewals. */
    assert_true(renewals() <= 2);
    hf_lock_free(lock);
}

static void force_lock(const struct hf_lock *lock, bool now)
{
    struct hf_future *future;

    assert_int_equal(hf_force_start(b, hf_key_of("k"), hf_lock_token(lock), now,
                                    NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
}

/* The strategy reports the broken lock, which triggers a renewal long before
 * the next one is due. */
static void a_lock_broken_now_is_lost_at_once(void **state)
{
    struct hf_lock *lock = acquire_renewed(3000);
    hf_time granted = world.now;

    (void)state;
    force_lock(lock, true);
    hf_world_run(&world, 1200);
    assert_string_equal(calls.text, "L");
    assert_true(calls.at[0] <= granted + 10);
    hf_lock_free(lock);
}

/* The renewal after the first force is refused with HF_EFORCED, and the client
 * sends no more; the second force makes it send another one. */
static void a_lock_broken_twice_is_lost_at_once(void **state)
{
    struct hf_lock *lock = acquire_renewed(3000);
    hf_time granted = world.now;

    (void)state;
    force_lock(lock, false);
    hf_world_run(&world, 500);
    assert_string_equal(calls.text, "r");
    assert_true(hf_lock_valid_for(lock, 0));
    force_lock(lock, true);
    hf_world_run(&world, 100);
    assert_string_equal(calls.text, "rL");
    assert_true(calls.at[1] < granted + 600);
    hf_lock_free(lock);
}

/* The server executed the pending renewal before the force, so its answer does
 * not show the loss. The client has to renew again. */
static void a_lock_broken_during_a_renewal_is_lost_after_it(void **state)
{
    struct hf_lock *lock = acquire_renewed(3000);
    unsigned before = renewals();

    (void)state;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_RENEW, HF_DELAY_ANSWER, 1, 300);
    while (renewals() == before)
        assert_true(hf_world_step(&world, HF_NEVER));
    force_lock(lock, true);
    hf_world_run(&world, 200);
    assert_int_equal(calls.count, 0);
    hf_world_run(&world, 200);
    assert_string_equal(calls.text, "L");
    hf_lock_free(lock);
}

/* Only the answer to a renewal proves that a lock was broken, so a wrong report
 * must not end validity. */
static void a_wrong_report_of_a_loss_costs_one_renewal(void **state)
{
    struct hf_lock *lock = acquire_renewed(3000);
    unsigned before = renewals();

    (void)state;
    a->host.ops->recheck(&a->host, hf_lock_token(lock) + 1);
    hf_world_run(&world, 100);
    assert_int_equal(renewals(), before);
    a->host.ops->recheck(&a->host, HF_ANY_TOKEN);
    a->host.ops->recheck(&a->host, hf_lock_token(lock));
    hf_world_run(&world, 100);
    assert_int_equal(renewals(), before + 1);
    assert_int_equal(calls.count, 0);
    assert_true(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
}

/* hf_renew() moves the end of validity, so the keeper must postpone its next
 * renewal. */
static void a_longer_hf_renew_delays_the_next_renewal(void **state)
{
    struct hf_lock *lock = acquire_renewed(300);
    hf_time renewed;

    (void)state;
    assert_int_equal(hf_world_renew(&world, lock, 10000), HF_OK);
    renewed = world.now;
    assert_int_equal(renewals(), 1);
    hf_world_run(&world, 9700);
    assert_int_equal(renewals(), 1);
    assert_int_equal(calls.count, 0);
    hf_world_run(&world, 10000);
    assert_true(hf_lock_valid_for(lock, 0));
    assert_true(renewals() > 50);
    assert_true(renewals() < 150);
    assert_int_equal(calls.count, 0);
    assert_true(world.now > renewed + 10000);
    hf_lock_free(lock);
}

static void a_renewal_never_shortens_validity(void **state)
{
    struct hf_lock_opts opts = options(10000, false);
    struct hf_lock *lock;
    hf_time deadline;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    deadline = hf_lock_deadline(lock);
    assert_int_equal(hf_world_renew(&world, lock, 100), HF_OK);
    assert_int_equal(hf_lock_deadline(lock), deadline);
    assert_int_equal(hf_world_renew(&world, lock, 20000), HF_OK);
    assert_int_equal(hf_lock_deadline(lock), world.now + 20000);
    hf_lock_free(lock);
}

static void an_adopted_lock_is_valid_after_a_renewal(void **state)
{
    struct hf_lock_opts opts = options(1000, false);
    uint8_t nonce[HF_NONCE_SIZE];
    struct hf_lock *lock, *adopted;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    hf_lock_nonce(lock, nonce);
    assert_int_equal(hf_lock_adopt(b, hf_key_of("k"), nonce,
                                   hf_lock_token(lock), &opts, &adopted),
                     HF_OK);
    assert_false(hf_lock_valid_for(adopted, 0));
    assert_int_equal(hf_world_renew(&world, adopted, 0), HF_OK);
    assert_true(hf_lock_valid_for(adopted, 999));
    assert_int_equal(hf_world_release(&world, adopted), HF_OK);
    assert_int_equal(hf_world_release(&world, lock), HF_EEXPIRED);
    hf_lock_free(lock);
    hf_lock_free(adopted);
}

/* ---- Calls inside a callback --------------------------------------------*/

static struct hf_lock *callback_lock;
static enum hf_err callback_errs[4];

static void free_when_lost(struct hf_lock *lock, enum hf_lock_event event,
                           void *arg)
{
    (void)arg;
    if (event != HF_LOCK_EVENT_LOST)
        return;
    record_call('L');
    hf_lock_free(lock);
    callback_lock = NULL;
}

/* The validity of an adopted lock begins with its first renewal, so a report
 * before that renewal must not make the lock lost. */
static void a_report_before_the_first_renewal_loses_no_adopted_lock(
    void **state)
{
    struct hf_lock_opts opts = options(3000, true);
    struct hf_lock *lock = acquire_renewed(3000), *adopted;
    uint8_t nonce[HF_NONCE_SIZE];

    (void)state;
    hf_lock_nonce(lock, nonce);
    assert_int_equal(hf_lock_detach(lock), HF_OK);
    assert_int_equal(hf_lock_adopt(a, hf_key_of("k"), nonce,
                                   hf_lock_token(lock), &opts, &adopted),
                     HF_OK);
    a->host.ops->recheck(&a->host, HF_ANY_TOKEN);
    hf_world_run(&world, 100);
    assert_int_equal(calls.count, 0);
    assert_int_equal(hf_lock_state(adopted), HF_LOCK_HELD);
    assert_int_equal(hf_world_renew(&world, adopted, 0), HF_OK);
    hf_world_run(&world, 10000);
    assert_true(hf_lock_valid_for(adopted, 0));
    hf_lock_free(adopted);
    hf_lock_free(lock);
}

static void a_lock_may_be_freed_by_its_own_callback(void **state)
{
    struct hf_lock_opts opts = options(500, true);

    (void)state;
    opts.on_event = free_when_lost;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &callback_lock),
                     HF_OK);
    hf_faulty_cut(hf_faulty_of(a), HF_CUT_ANSWERS);
    hf_world_run(&world, 2000);
    assert_string_equal(calls.text, "L");
    assert_null(callback_lock);
    assert_true(hf_dlist_is_empty(&a->locks));
}

static void make_calls_in_callback(enum hf_err err, void *arg)
{
    struct hf_info info;

    (void)arg;
    assert_int_equal(err, HF_OK);
    record_call('d');
    if (calls.count > 1)
        return;
    callback_errs[0] = hf_release(callback_lock);
    callback_errs[1] = hf_read(a, hf_key_of("k"), HF_LINEARIZABLE, &info);
    callback_errs[2] = hf_close(a, 1000);
    callback_errs[3] = hf_process(a);
    assert_int_equal(
        hf_release_start(callback_lock, make_calls_in_callback, NULL, NULL),
        HF_OK);
}

static void blocking_calls_in_a_callback_return_edeadlk(void **state)
{
    struct hf_lock_opts opts = options(60000, false);

    (void)state;
    assert_int_equal(hf_acquire_start(a, hf_key_of("k"), &opts, &callback_lock,
                                      make_calls_in_callback, NULL, NULL),
                     HF_OK);
    hf_world_run(&world, 10);
    assert_string_equal(calls.text, "dd");
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(callback_errs[i], HF_EDEADLK);
    assert_int_equal(callback_errs[3], HF_OK);
    assert_false(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(callback_lock);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest cases[] = {
        CASE(a_lock_is_renewed_after_a_third_of_its_ttl),
        CASE(renewals_of_many_locks_spread_out),
        CASE(renew_ms_sets_the_time_of_the_renewal),
        CASE(a_lost_renewal_is_repeated_inside_the_lease),
        CASE(a_repeated_renewal_counts_from_its_first_send),
        CASE(at_risk_and_lost_are_reported_once_and_in_time),
        CASE(a_failed_attempt_is_reported_until_a_renewal_succeeds),
        CASE(an_overdue_answer_is_reported_before_at_risk),
        CASE(a_renewal_keeps_the_error_of_another_call),
        CASE(lost_is_reported_without_renewals),
        CASE(failing_renewals_without_a_callback_end),
        CASE(lost_is_reported_before_another_client_holds_the_key),
        CASE(a_stopped_process_gets_lost_first),
        CASE(a_broken_lock_stays_valid_until_its_lease_expires),
        CASE(a_lock_broken_now_is_lost_at_once),
        CASE(a_lock_broken_twice_is_lost_at_once),
        CASE(a_lock_broken_during_a_renewal_is_lost_after_it),
        CASE(a_wrong_report_of_a_loss_costs_one_renewal),
        CASE(a_longer_hf_renew_delays_the_next_renewal),
        CASE(a_renewal_never_shortens_validity),
        CASE(an_adopted_lock_is_valid_after_a_renewal),
        CASE(a_report_before_the_first_renewal_loses_no_adopted_lock),
        CASE(a_lock_may_be_freed_by_its_own_callback),
        CASE(blocking_calls_in_a_callback_return_edeadlk),
    };

    return hf_test_main("keeper", cases, HF_TEST_COUNT(cases), 0);
}
