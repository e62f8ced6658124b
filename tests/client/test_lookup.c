/* How a waiting claim is checked when its push may be lost: by LOOKUP, or by
 * repeating LOCK if the strategy serves no LOOKUP. */
#include "client/two_clients.h"
#include "client/waiting.h"

static unsigned count_sent(struct hf_client *client, enum hf_faulty_what what)
{
    return hf_faulty_sent(hf_faulty_of(client), what);
}

static void cue(struct hf_client *client, enum hf_faulty_what what,
                enum hf_fault fault, uint32_t ms)
{
    hf_faulty_cue(hf_faulty_of(client), what, fault, 1, ms);
}

/* `a` holds the key with the handle `first`, and `b` waits with `second`. */
static struct hf_lock *first, *second;

static struct hf_future *set_scene(uint32_t ttl_ms, uint32_t wait_ms)
{
    struct hf_lock_opts held = options(600000, 0);
    struct hf_lock_opts opts = options(ttl_ms, wait_ms);
    struct hf_future *future;

    opts.idle = true;
    assert_int_equal(hf_world_acquire(&world, a, "k", &held, &first), HF_OK);
    assert_int_equal(hf_lock_new(b, hf_key_of("k"), &opts, &second), HF_OK);
    assert_int_equal(hf_lock_acquire_start(second, NULL, NULL, &future), HF_OK);
    hf_world_run(&world, 1);
    return future;
}

static void end_scene(void)
{
    hf_lock_free(first);
    hf_lock_free(second);
}

/* `a` releases the key, and `b` gets it. */
static void pass_on(struct hf_future *future)
{
    assert_int_equal(hf_world_release(&world, first), HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
}

/* ---- Which request ------------------------------------------------------*/

static void a_waiter_is_checked_by_lookup(void **state)
{
    struct hf_future *future = set_scene(60000, HF_FOREVER);

    (void)state;
    hf_world_run(&world, 5000);
    assert_int_equal(count_sent(b, HF_ON_LOCK), 1);
    assert_in_range(count_sent(b, HF_ON_LOOKUP), 4, 5);
    pass_on(future);
    end_scene();
}

static void a_waiter_without_lookup_repeats_its_lock(void **state)
{
    struct hf_future *future = set_scene(60000, HF_FOREVER);

    (void)state;
    hf_world_run(&world, 5000);
    assert_in_range(count_sent(b, HF_ON_LOCK), 5, 6);
    assert_int_equal(count_sent(b, HF_ON_LOOKUP), 0);
    pass_on(future);
    end_scene();
}

/* The interval is about half the ttl, or poll_ms of the strategy if that is
 * shorter, plus up to a quarter at random. */
static void a_strategy_sets_the_longest_interval(void **state)
{
    struct hf_strategy slow = hf_strategy_faulty;
    struct hf_future *future = set_scene(2000, HF_FOREVER);
    uint32_t ms;

    (void)state;
    slow.poll_ms = 5000;
    b->strategy = &slow;
    ms = hf_waiting_poll_ms(second, NULL);
    assert_in_range(ms, 1000, 1300);
    second->ttl_ms = 60000;
    ms = hf_waiting_poll_ms(second, NULL);
    assert_in_range(ms, 5000, 6250);
    b->strategy = &hf_strategy_faulty;
    pass_on(future);
    end_scene();
}

/* ---- Held ---------------------------------------------------------------*/

/* Without an anchor, the lease may have started any time after the LOCK was
 * sent, so the client renews before it reports the grant. */
static void a_grant_found_without_an_anchor_is_renewed_first(void **state)
{
    struct hf_future *future = set_scene(10000, HF_FOREVER);

    (void)state;
    hf_world_run(&world, 20000);
    cue(b, HF_ON_GRANT, HF_LOSE, 0);
    cue(b, HF_ON_LOOKUP, HF_HIDE_ANCHOR, 0);
    cue(b, HF_ON_RENEW, HF_DELAY_ANSWER, 1000);
    pass_on(future);
    assert_int_equal(count_sent(b, HF_ON_RENEW), 1);
    assert_int_equal(count_sent(b, HF_ON_LOCK), 1);
    /* 98 % of a lease of 10675 ms, counted from the send of the RENEW. */
    assert_int_equal(hf_lock_deadline(second), world.now - 1000 + 10461);
    end_scene();
}

static void a_grant_found_with_an_anchor_counts_from_it(void **state)
{
    struct hf_future *future = set_scene(60000, HF_FOREVER);
    hf_time granted;

    (void)state;
    hf_world_run(&world, 20000);
    cue(b, HF_ON_GRANT, HF_LOSE, 0);
    granted = world.now;
    pass_on(future);
    assert_int_equal(count_sent(b, HF_ON_RENEW), 0);
    assert_true(hf_lock_deadline(second) <= granted + 62524);
    end_scene();
}

/* The anchor shows that little of the lease is left. */
static void a_grant_found_late_is_renewed_first(void **state)
{
    struct hf_future *future = set_scene(10000, HF_FOREVER);

    (void)state;
    hf_world_run(&world, 20000);
    cue(b, HF_ON_GRANT, HF_LOSE, 0);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_LOOKUP, HF_LOSE, 4, 0);
    pass_on(future);
    assert_int_equal(count_sent(b, HF_ON_RENEW), 1);
    assert_true(hf_lock_valid_for(second, 9999));
    end_scene();
}

/* A LOOKUP changes nothing, so unlike a LOCK in flight it needs no RENEW. */
static void a_push_during_a_lookup_is_accepted_at_once(void **state)
{
    struct hf_future *future = set_scene(60000, HF_FOREVER);

    (void)state;
    cue(b, HF_ON_LOOKUP, HF_DELAY, 5000);
    while (count_sent(b, HF_ON_LOOKUP) == 0)
        assert_true(hf_world_step(&world, HF_NEVER));
    pass_on(future);
    assert_int_equal(count_sent(b, HF_ON_RENEW), 0);
    hf_world_run(&world, 6000);
    assert_true(hf_lock_valid_for(second, 0));
    end_scene();
}

/* ---- Unknown ------------------------------------------------------------*/

/* A local LOOKUP may be answered by a server that has not received the LOCK. If
 * the client believed it, the claim would go to the end of the queue. */
static void an_unknown_claim_is_confirmed_before_a_new_one(void **state)
{
    struct hf_future *future = set_scene(60000, HF_FOREVER);
    struct hf_nonce nonce = second->nonce;
    struct hf_command last;

    (void)state;
    cue(b, HF_ON_LOOKUP, HF_STALE, 0);
    hf_world_run(&world, 1300);
    assert_int_equal(count_sent(b, HF_ON_LOOKUP), 2);
    assert_int_equal(count_sent(b, HF_ON_LOCK), 1);
    assert_int_equal(count_sent(b, HF_ON_CANCEL), 0);
    assert_int_equal(hf_lock_position(second), 1);
    last = hf_faulty_last(hf_faulty_of(b), HF_ON_LOOKUP);
    assert_memory_equal(&last.nonce, &nonce, sizeof(nonce));
    pass_on(future);
    end_scene();
}

/* While the client was stopped, its claim was granted, and expired. It claims
 * the key again, with a new nonce. */
static void a_claim_that_expired_unseen_is_made_again(void **state)
{
    struct hf_future *future = set_scene(1000, HF_FOREVER);
    struct hf_nonce nonce = second->nonce;

    (void)state;
    cue(b, HF_ON_GRANT, HF_LOSE, 0);
    hf_world_stop(&world, b, 5000);
    pass_on(future);
    assert_int_equal(count_sent(b, HF_ON_LOCK), 2);
    assert_memory_not_equal(&second->nonce, &nonce, sizeof(nonce));
    assert_true(hf_lock_valid_for(second, 999));
    end_scene();
}

/* ---- No answer ----------------------------------------------------------*/

static void a_claim_waits_on_while_lookups_fail(void **state)
{
    struct hf_future *future = set_scene(60000, HF_FOREVER);
    uint32_t waiters;

    (void)state;
    hf_faulty_cut(hf_faulty_of(b), HF_CUT_ALL);
    hf_world_run(&world, 30000);
    assert_false(hf_future_done(future, NULL));
    assert_true(hf_world_is_held(&world, "k", &waiters));
    assert_int_equal(waiters, 1);
    hf_faulty_cut(hf_faulty_of(b), HF_CUT_NONE);
    pass_on(future);
    end_scene();
}

static void a_wait_times_out_during_a_lookup(void **state)
{
    hf_time claimed = world.now;
    struct hf_future *future = set_scene(60000, 2000);
    uint32_t waiters;

    (void)state;
    hf_faulty_cue(hf_faulty_of(b), HF_ON_LOOKUP, HF_DELAY, 9, 60000);
    assert_int_equal(hf_world_wait(&world, future), HF_ETIMEDOUT);
    assert_int_equal(world.now, claimed + 2000);
    assert_true(hf_world_is_held(&world, "k", &waiters));
    assert_int_equal(waiters, 0);
    end_scene();
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_waiter_is_checked_by_lookup),
        CASE_WITHOUT_LOOKUP(a_waiter_without_lookup_repeats_its_lock),
        CASE(a_strategy_sets_the_longest_interval),
        CASE(a_grant_found_without_an_anchor_is_renewed_first),
        CASE(a_grant_found_with_an_anchor_counts_from_it),
        CASE(a_grant_found_late_is_renewed_first),
        CASE(a_push_during_a_lookup_is_accepted_at_once),
        CASE(an_unknown_claim_is_confirmed_before_a_new_one),
        CASE(a_claim_that_expired_unseen_is_made_again),
        CASE(a_claim_waits_on_while_lookups_fail),
        CASE(a_wait_times_out_during_a_lookup),
    };

    return hf_test_main("lookup", cases, HF_TEST_COUNT(cases), 0);
}
