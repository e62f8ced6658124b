/* Keeping a lock: renewals, warnings, and hearing of a loss first. */
#include <string.h>

#include "lib/runner.h"
#include "lib/world.h"

static struct hf_world world;
static struct hf_client *a, *b;

/* What callbacks were heard, in order, and when. */
static struct {
    char text[64];
    hf_time at[64];
    unsigned count;
} heard;

static int set_up(void **state)
{
    (void)state;
    hf_world_init(&world, 11);
    a = hf_world_open(&world);
    b = hf_world_open(&world);
    memset(&heard, 0, sizeof(heard));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hf_world_fini(&world);
    return 0;
}

static void hear(char what)
{
    assert_true(heard.count < 63);
    heard.at[heard.count] = world.now;
    heard.text[heard.count++] = what;
}

static void on_event(struct hf_lock *lock, enum hf_lock_event event, void *arg)
{
    (void)arg;
    if (event == HF_LOCK_EVENT_LOST)
        assert_false(hf_lock_valid_for(lock, 0));
    if (event == HF_LOCK_EVENT_WAITING)
        hear('w');
    else if (event == HF_LOCK_EVENT_AT_RISK)
        hear('r');
    else
        hear('L');
}

static void on_done(enum hf_err err, void *arg)
{
    (void)err;
    (void)arg;
    hear('d');
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

static struct hf_lock *lock_kept(uint32_t ttl_ms)
{
    struct hf_lock_opts opts = options(ttl_ms, true);
    struct hf_lock *lock;

    assert_int_equal(hf_world_lock(&world, a, "k", &opts, &lock), HF_OK);
    return lock;
}

static unsigned renewals(void)
{
    return hf_faulty_sent(hf_faulty_of(a), HF_ON_RENEW);
}

static void it_is_renewed_when_a_third_has_gone(void **state)
{
    struct hf_lock *lock = lock_kept(3000);
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
    assert_int_equal(heard.count, 0);
    hf_lock_free(lock);
}

static void renewals_of_many_spread_out(void **state)
{
    struct hf_lock *locks[8];
    hf_time first = 0, last = 0;

    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        struct hf_lock_opts opts = options(3000, true);
        char key[2] = {(char)('a' + i), 0};

        assert_int_equal(hf_world_lock(&world, a, key, &opts, &locks[i]),
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

static void it_is_renewed_with_as_much_left_as_was_asked_for(void **state)
{
    struct hf_lock_opts opts = options(3000, true);
    struct hf_lock *lock;
    hf_time granted;

    (void)state;
    opts.renew_ms = 700;
    assert_int_equal(hf_world_lock(&world, a, "k", &opts, &lock), HF_OK);
    granted = world.now;
    while (renewals() == 0)
        assert_true(hf_world_step(&world, HF_NEVER));
    assert_int_equal(world.now, granted + 2300);
    assert_int_equal(heard.count, 0);
    hf_lock_free(lock);
}

static void a_lost_renewal_is_repeated_inside_the_lease(void **state)
{
    struct hf_lock *lock = lock_kept(3000);

    (void)state;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_RENEW, HF_LOSE, 1, 0);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_RENEW, HF_LOSE_ANSWER, 1, 0);
    hf_world_run(&world, 20000);
    assert_true(hf_lock_valid_for(lock, 0));
    assert_null(strchr(heard.text, 'L'));
    hf_lock_free(lock);
}

/* The lease of a repeated renewal is as old as its first copy. */
static void a_repeated_renewal_counts_from_its_first_send(void **state)
{
    struct hf_lock *lock = lock_kept(2400);
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
    /* 2600 * 0.98 = 2548 */
    assert_int_equal(hf_lock_deadline(lock), sent + 2548);
    hf_lock_free(lock);
}

static void it_is_at_risk_at_half_and_lost_at_the_end_once_each(void **state)
{
    struct hf_lock *lock = lock_kept(3000);
    hf_time granted = world.now;
    struct hf_error error;

    (void)state;
    hf_faulty_cut(hf_faulty_of(a), HF_CUT_SILENT);
    hf_world_run(&world, 2999);
    assert_true(hf_lock_valid_for(lock, 0));
    assert_string_equal(heard.text, "r");
    hf_lock_error(lock, &error);
    assert_int_equal(error.code, HF_EUNAVAIL);
    assert_non_null(strstr(error.text, "renewals fail"));
    assert_int_equal(heard.at[0], granted + 1500);
    hf_world_run(&world, 10000);
    assert_string_equal(heard.text, "rL");
    assert_int_equal(heard.at[1], granted + 3000);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    hf_lock_free(lock);
}

static enum hf_err failure_of(const struct hf_lock *lock, const char *wanted)
{
    struct hf_error error;

    hf_lock_error(lock, &error);
    if (wanted)
        assert_non_null(strstr(error.text, wanted));
    return error.code;
}

static void a_failed_attempt_is_reported_until_a_renewal_succeeds(void **state)
{
    struct hf_lock *lock = lock_kept(30000);
    unsigned before = renewals();

    (void)state;
    for (unsigned outage = 0; outage < 2; outage++) {
        hf_faulty_cue(hf_faulty_of(a), HF_ON_RENEW, HF_REFUSE, 3, 0);
        while (failure_of(lock, NULL) == HF_OK)
            assert_true(hf_world_step(&world, HF_NEVER));
        assert_int_equal(renewals(), ++before);
        assert_int_equal(failure_of(lock, "renewals fail"), HF_EUNAVAIL);
        assert_true(hf_lock_valid_for(lock, 15000));
        hf_world_run(&world, 5000);
        assert_int_equal(failure_of(lock, NULL), HF_OK);
        assert_true(hf_lock_valid_for(lock, 20000));
        before = renewals();
    }
    assert_int_equal(heard.count, 0);
    hf_lock_free(lock);
}

/* Half-way between the renewal and the warning, or after timeout_ms. */
static void an_overdue_answer_is_a_failure_before_the_lock_is_at_risk(
    void **state)
{
    static const uint32_t ttls[] = {3000, 600000};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct hf_lock *lock = lock_kept(ttls[i]);
        unsigned before = renewals();
        hf_time sent;

        hf_faulty_cut(hf_faulty_of(a), HF_CUT_SILENT);
        while (renewals() == before)
            assert_true(hf_world_step(&world, HF_NEVER));
        sent = world.now;
        while (failure_of(lock, NULL) == HF_OK)
            assert_true(hf_world_step(&world, HF_NEVER));
        assert_int_equal(failure_of(lock, "renewals fail: no answer"),
                         HF_EUNAVAIL);
        assert_true(world.now > sent);
        assert_true(world.now <= sent + 5000);
        assert_int_equal(heard.count, 0);
        hf_faulty_cut(hf_faulty_of(a), HF_CUT_NONE);
        hf_lock_free(lock);
        hf_world_run(&world, 10000);
    }
}

/* What a call of the program has answered is not the keeper's to clear. */
static void a_renewal_keeps_the_failure_of_another_call(void **state)
{
    struct hf_lock *lock = lock_kept(3000);
    struct hf_future *future;
    unsigned before = renewals();

    (void)state;
    assert_int_equal(hf_update_start(lock, &(struct hf_bytes){"x", 1},
                                     hf_bytes_of("y"), NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_EMISMATCH);
    hf_world_run(&world, 2000);
    assert_true(renewals() > before);
    assert_int_equal(failure_of(lock, NULL), HF_EMISMATCH);
    hf_lock_free(lock);
}

static void the_warnings_come_where_nothing_is_renewed_too(void **state)
{
    struct hf_lock_opts opts = options(1000, false);
    hf_time granted = world.now;
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_world_lock(&world, a, "k", &opts, &lock), HF_OK);
    hf_world_run(&world, 5000);
    assert_string_equal(heard.text, "L");
    assert_int_equal(heard.at[0], granted + 1000);
    hf_lock_free(lock);
}

/* With nobody to tell, half of the lease is no instant to stay at. */
static void failing_renewals_without_a_listener_end(void **state)
{
    struct hf_lock_opts opts = options(1000, true);
    struct hf_lock *lock;

    (void)state;
    opts.on_event = NULL;
    assert_int_equal(hf_world_lock(&world, a, "k", &opts, &lock), HF_OK);
    hf_faulty_cut(hf_faulty_of(a), HF_CUT_SILENT);
    hf_world_run(&world, 3000);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    hf_lock_free(lock);
}

static void it_is_lost_before_another_can_hold_it(void **state)
{
    struct hf_lock_opts opts = options(1000, false);
    struct hf_lock *mine = lock_kept(1000), *others;
    struct hf_future *future;

    (void)state;
    opts.on_event = NULL;
    opts.wait_ms = 60000;
    hf_faulty_cut(hf_faulty_of(a), HF_CUT_SILENT);
    assert_int_equal(hf_acquire_start(b, hf_key_of("k"), &opts, &others, NULL,
                                      NULL, &future),
                     HF_OK);
    while (!hf_future_done(future, NULL))
        assert_true(hf_world_step(&world, HF_NEVER));
    assert_string_equal(heard.text, "rL");
    assert_true(heard.at[1] < world.now);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    hf_lock_free(mine);
    hf_lock_free(others);
}

/* A machine that slept, a process that was stopped. */
static void who_was_stopped_hears_of_the_loss_first(void **state)
{
    struct hf_lock_opts opts = options(1000, true);
    struct hf_lock *mine, *second;

    (void)state;
    assert_int_equal(hf_world_lock(&world, a, "k", &opts, &mine), HF_OK);
    assert_int_equal(hf_acquire_start(a, hf_key_of("other"), &opts, &second,
                                      on_done, NULL, NULL),
                     HF_OK);
    assert_int_equal(heard.count, 0);
    hf_world_jump(&world, 5000);
    assert_false(hf_lock_valid_for(mine, 0));
    hf_world_run(&world, 0);
    assert_int_equal(heard.text[0], 'L');
    assert_non_null(strchr(heard.text, 'd'));
    hf_lock_free(mine);
    hf_lock_free(second);
}

static void forced_it_stays_valid_and_runs_out(void **state)
{
    struct hf_lock *lock = lock_kept(3000);
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
    assert_string_equal(heard.text, "rL");
    assert_true(heard.at[0] <= granted + 1100);
    assert_int_equal(heard.at[1], granted + 3000);
    /* It does not go on asking. */
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

/* The push makes it renew, long before a renewal is due. */
static void taken_away_it_is_lost_at_once(void **state)
{
    struct hf_lock *lock = lock_kept(3000);
    hf_time granted = world.now;

    (void)state;
    force_lock(lock, true);
    hf_world_run(&world, 1200);
    assert_string_equal(heard.text, "L");
    assert_true(heard.at[0] <= granted + 10);
    hf_lock_free(lock);
}

/* It is refused renewals since the first time, and does not ask any more. */
static void broken_and_then_taken_away_it_is_lost_at_once(void **state)
{
    struct hf_lock *lock = lock_kept(3000);
    hf_time granted = world.now;

    (void)state;
    force_lock(lock, false);
    hf_world_run(&world, 500);
    assert_string_equal(heard.text, "r");
    assert_true(hf_lock_valid_for(lock, 0));
    force_lock(lock, true);
    hf_world_run(&world, 100);
    assert_string_equal(heard.text, "rL");
    assert_true(heard.at[1] < granted + 600);
    hf_lock_free(lock);
}

/* The answer that is on its way is older than the force. */
static void taken_away_during_a_renewal_it_is_lost_after_that(void **state)
{
    struct hf_lock *lock = lock_kept(3000);
    unsigned before = renewals();

    (void)state;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_RENEW, HF_DELAY_ANSWER, 1, 300);
    while (renewals() == before)
        assert_true(hf_world_step(&world, HF_NEVER));
    force_lock(lock, true);
    hf_world_run(&world, 200);
    assert_int_equal(heard.count, 0);
    hf_world_run(&world, 200);
    assert_string_equal(heard.text, "L");
    hf_lock_free(lock);
}

/* A push is no proof. */
static void a_wrong_report_of_a_loss_costs_one_renewal(void **state)
{
    struct hf_lock *lock = lock_kept(3000);
    unsigned before = renewals();

    (void)state;
    a->host.ops->recheck(&a->host, hf_lock_token(lock) + 1);
    hf_world_run(&world, 100);
    assert_int_equal(renewals(), before);
    a->host.ops->recheck(&a->host, HF_ANY_TOKEN);
    a->host.ops->recheck(&a->host, hf_lock_token(lock));
    hf_world_run(&world, 100);
    assert_int_equal(renewals(), before + 1);
    assert_int_equal(heard.count, 0);
    assert_true(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
}

/* The keeper does not spin where hf_renew() has put the end further off. */
static void a_longer_renewal_by_hand_gives_the_keeper_rest(void **state)
{
    struct hf_lock *lock = lock_kept(300);
    hf_time renewed;

    (void)state;
    assert_int_equal(hf_world_renew(&world, lock, 10000), HF_OK);
    renewed = world.now;
    assert_int_equal(renewals(), 1);
    hf_world_run(&world, 9700);
    assert_int_equal(renewals(), 1);
    assert_int_equal(heard.count, 0);
    hf_world_run(&world, 10000);
    assert_true(hf_lock_valid_for(lock, 0));
    assert_true(renewals() > 50);
    assert_true(renewals() < 150);
    assert_int_equal(heard.count, 0);
    assert_true(world.now > renewed + 10000);
    hf_lock_free(lock);
}

static void a_renewal_never_shortens(void **state)
{
    struct hf_lock_opts opts = options(10000, false);
    struct hf_lock *lock;
    hf_time deadline;

    (void)state;
    assert_int_equal(hf_world_lock(&world, a, "k", &opts, &lock), HF_OK);
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
    assert_int_equal(hf_world_lock(&world, a, "k", &opts, &lock), HF_OK);
    hf_lock_nonce(lock, nonce);
    assert_int_equal(hf_lock_adopt(b, hf_key_of("k"), nonce,
                                   hf_lock_token(lock), &opts, &adopted),
                     HF_OK);
    assert_false(hf_lock_valid_for(adopted, 0));
    assert_int_equal(hf_world_renew(&world, adopted, 0), HF_OK);
    assert_true(hf_lock_valid_for(adopted, 999));
    assert_int_equal(hf_world_unlock(&world, adopted), HF_OK);
    assert_int_equal(hf_world_unlock(&world, lock), HF_EEXPIRED);
    hf_lock_free(lock);
    hf_lock_free(adopted);
}

/* ---- Callbacks that call back in ----------------------------------------*/

static struct hf_lock *inside_lock;
static enum hf_err inside_err[4];

static void free_inside(struct hf_lock *lock, enum hf_lock_event event,
                        void *arg)
{
    (void)arg;
    if (event != HF_LOCK_EVENT_LOST)
        return;
    hear('L');
    hf_lock_free(lock);
    inside_lock = NULL;
}

/* Nothing is confirmed yet, so nothing can have run out. */
static void a_report_before_the_first_renewal_loses_no_adopted_lock(
    void **state)
{
    struct hf_lock_opts opts = options(3000, true);
    struct hf_lock *lock = lock_kept(3000), *adopted;
    uint8_t nonce[HF_NONCE_SIZE];

    (void)state;
    hf_lock_nonce(lock, nonce);
    assert_int_equal(hf_lock_detach(lock), HF_OK);
    assert_int_equal(hf_lock_adopt(a, hf_key_of("k"), nonce,
                                   hf_lock_token(lock), &opts, &adopted),
                     HF_OK);
    a->host.ops->recheck(&a->host, HF_ANY_TOKEN);
    hf_world_run(&world, 100);
    assert_int_equal(heard.count, 0);
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
    opts.on_event = free_inside;
    assert_int_equal(hf_world_lock(&world, a, "k", &opts, &inside_lock), HF_OK);
    hf_faulty_cut(hf_faulty_of(a), HF_CUT_DEAF);
    hf_world_run(&world, 2000);
    assert_string_equal(heard.text, "L");
    assert_null(inside_lock);
    assert_true(hf_dlist_is_empty(&a->locks));
}

static void call_back_in(enum hf_err err, void *arg)
{
    struct hf_info info;

    (void)arg;
    assert_int_equal(err, HF_OK);
    hear('d');
    if (heard.count > 1)
        return;
    inside_err[0] = hf_release(inside_lock);
    inside_err[1] = hf_read(a, hf_key_of("k"), HF_LINEARIZABLE, &info);
    inside_err[2] = hf_close(a, 1000);
    inside_err[3] = hf_process(a);
    assert_int_equal(hf_release_start(inside_lock, call_back_in, NULL, NULL),
                     HF_OK);
}

static void inside_a_callback_nothing_blocks_and_all_else_works(void **state)
{
    struct hf_lock_opts opts = options(60000, false);

    (void)state;
    assert_int_equal(hf_acquire_start(a, hf_key_of("k"), &opts, &inside_lock,
                                      call_back_in, NULL, NULL),
                     HF_OK);
    hf_world_run(&world, 10);
    assert_string_equal(heard.text, "dd");
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(inside_err[i], HF_EDEADLK);
    assert_int_equal(inside_err[3], HF_OK);
    assert_false(hf_world_held(&world, "k", NULL));
    hf_lock_free(inside_lock);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest cases[] = {
        CASE(it_is_renewed_when_a_third_has_gone),
        CASE(renewals_of_many_spread_out),
        CASE(it_is_renewed_with_as_much_left_as_was_asked_for),
        CASE(a_lost_renewal_is_repeated_inside_the_lease),
        CASE(a_repeated_renewal_counts_from_its_first_send),
        CASE(it_is_at_risk_at_half_and_lost_at_the_end_once_each),
        CASE(a_failed_attempt_is_reported_until_a_renewal_succeeds),
        CASE(an_overdue_answer_is_a_failure_before_the_lock_is_at_risk),
        CASE(a_renewal_keeps_the_failure_of_another_call),
        CASE(the_warnings_come_where_nothing_is_renewed_too),
        CASE(failing_renewals_without_a_listener_end),
        CASE(it_is_lost_before_another_can_hold_it),
        CASE(who_was_stopped_hears_of_the_loss_first),
        CASE(forced_it_stays_valid_and_runs_out),
        CASE(taken_away_it_is_lost_at_once),
        CASE(broken_and_then_taken_away_it_is_lost_at_once),
        CASE(taken_away_during_a_renewal_it_is_lost_after_that),
        CASE(a_wrong_report_of_a_loss_costs_one_renewal),
        CASE(a_longer_renewal_by_hand_gives_the_keeper_rest),
        CASE(a_renewal_never_shortens),
        CASE(an_adopted_lock_is_valid_after_a_renewal),
        CASE(a_report_before_the_first_renewal_loses_no_adopted_lock),
        CASE(a_lock_may_be_freed_by_its_own_callback),
        CASE(inside_a_callback_nothing_blocks_and_all_else_works),
    };

    return hf_test_main("keeper", cases, HF_TEST_COUNT(cases), 0);
}
