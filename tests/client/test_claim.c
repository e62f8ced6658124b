/* Acquiring and releasing a lock over a network that fails on cue. */
#include <stdio.h>

#include "base/limits.h"
#include "client/drift.h"
#include "client/two_clients.h"

static struct hf_future *start_acquire(struct hf_client *client,
                                       const struct hf_lock_opts *opts,
                                       struct hf_lock **lock)
{
    struct hf_future *future;

    assert_int_equal(hf_acquire_start(client, hf_key_of("k"), opts, lock, NULL,
                                      NULL, &future),
                     HF_OK);
    return future;
}

static struct hf_future *start_release(struct hf_lock *lock)
{
    struct hf_future *future;

    assert_int_equal(hf_release_start(lock, NULL, NULL, &future), HF_OK);
    return future;
}

static bool is_done(const struct hf_future *future)
{
    return hf_future_done(future, NULL);
}

/* ---- ttl_includes_wait --------------------------------------------------*/

static void ttl_includes_wait_counts_from_the_claim(void **state)
{
    struct hf_lock_opts held = options(60000, 0);
    struct hf_lock_opts opts = options(3000, HF_FOREVER);
    hf_time claimed = world.now;
    struct hf_lock *first, *second;
    struct hf_future *future;

    (void)state;
    opts.ttl_includes_wait = true;
    assert_int_equal(hf_world_acquire(&world, a, "k", &held, &first), HF_OK);
    future = start_acquire(b, &opts, &second);
    hf_world_run(&world, 1000);
    assert_int_equal(hf_world_release(&world, first), HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(hf_lock_deadline(second), claimed + 3000);
    /* ttl_includes_wait limits only the grant: hf_renew() extends validity by
     * the whole ttl. */
    assert_int_equal(hf_world_renew(&world, second, 0), HF_OK);
    assert_true(hf_lock_deadline(second) > claimed + 3000);
    hf_lock_free(first);
    hf_lock_free(second);
}

static void ttl_includes_wait_limits_the_wait(void **state)
{
    struct hf_lock_opts held = options(60000, 0);
    struct hf_lock_opts opts = options(1000, HF_FOREVER);
    hf_time claimed = world.now;
    struct hf_lock *first, *second;
    uint32_t waiters;

    (void)state;
    opts.ttl_includes_wait = true;
    assert_int_equal(hf_world_acquire(&world, a, "k", &held, &first), HF_OK);
    assert_int_equal(hf_world_acquire(&world, b, "k", &opts, &second),
                     HF_ETIMEDOUT);
    assert_int_equal(world.now, claimed + 1000);
    assert_true(hf_world_is_held(&world, "k", &waiters));
    assert_int_equal(waiters, 0);
    hf_lock_free(first);
}

static void a_grant_after_the_ttl_is_withdrawn(void **state)
{
    struct hf_lock_opts opts = options(500, 0);
    struct hf_lock *lock;

    (void)state;
    opts.ttl_includes_wait = true;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_LOSE_ANSWER, 3, 0);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_DELAY_ANSWER, 1, 600);
    /* The result is not HF_ETIMEDOUT, because wait_ms is 0. */
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock),
                     HF_EUNAVAIL);
    hf_world_run(&world, 1000);
    assert_false(hf_world_is_held(&world, "k", NULL));
}

/* ---- Lost and late answers ----------------------------------------------*/

static void a_lock_with_a_lost_answer_is_repeated_and_granted_once(void **state)
{
    struct hf_lock_opts opts = options(10000, 0);
    struct hf_faulty *net = hf_faulty_of(a);
    struct hf_lock *lock;
    struct hf_command first, last;
    struct hf_future *future;

    (void)state;
    hf_faulty_cue(net, HF_ON_LOCK, HF_LOSE_ANSWER, 2, 0);
    future = start_acquire(a, &opts, &lock);
    first = hf_faulty_last(net, HF_ON_LOCK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(hf_faulty_sent(net, HF_ON_LOCK), 3);
    last = hf_faulty_last(net, HF_ON_LOCK);
    assert_int_equal(last.sequence, first.sequence);
    assert_memory_equal(&last.nonce, &first.nonce, sizeof(first.nonce));
    /* The key was granted only once, so one release frees it. */
    assert_int_equal(hf_world_release(&world, lock), HF_OK);
    assert_false(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(lock);
}

/* The lease started with the first copy of the request, so less than the ttl is
 * left when the answer to the last copy arrives. The client renews the lock
 * before it reports the grant. */
static void a_repeated_lock_is_renewed_before_it_is_reported(void **state)
{
    struct hf_lock_opts opts = options(1000, 0);
    struct hf_faulty *net = hf_faulty_of(a);
    hf_time renewed;
    struct hf_lock *lock;

    (void)state;
    world.net.shared_clock = false;
    hf_faulty_cue(net, HF_ON_LOCK, HF_LOSE_ANSWER, 2, 0);
    hf_faulty_cue(net, HF_ON_LOCK, HF_HIDE_ANCHOR, 1, 0);
    hf_faulty_cue(net, HF_ON_RENEW, HF_DELAY_ANSWER, 1, 150);
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    assert_int_equal(hf_faulty_sent(net, HF_ON_RENEW), 1);
    renewed = world.now - 150;
    /* A ttl of 1000 ms has a lease of 1112 ms, and 1112 * 0.98 = 1089.8. */
    assert_int_equal(hf_lock_deadline(lock), renewed + 1089);
    hf_lock_free(lock);
}

static void validity_counts_from_the_request_not_from_the_answer(void **state)
{
    struct hf_lock_opts opts = options(1000, 0);
    hf_time sent = world.now;
    struct hf_lock *lock;

    (void)state;
    world.net.shared_clock = false;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_DELAY_ANSWER, 1, 190);
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    assert_int_equal(world.now, sent + 190);
    assert_int_equal(hf_lock_deadline(lock), sent + 1089);
    hf_lock_free(lock);
}

static void a_lock_that_was_never_sent_is_unavailable(void **state)
{
    struct hf_lock_opts opts = options(10000, 0);
    struct hf_lock *lock = NULL;

    (void)state;
    opts.timeout_ms = 1000;
    hf_faulty_cut(hf_faulty_of(a), HF_CUT_REFUSE);
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock),
                     HF_EUNAVAIL);
    assert_null(lock);
    assert_true(hf_dlist_is_empty(&a->withdrawals));
}

static void one_attempt_in_doubt_makes_the_result_in_doubt(void **state)
{
    struct hf_lock_opts opts = options(10000, 0);
    struct hf_lock *lock;
    hf_time started = world.now;

    (void)state;
    opts.timeout_ms = 1000;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_LOSE_ANSWER, 1, 0);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_REFUSE, 99, 0);
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock),
                     HF_EINDOUBT);
    assert_true(world.now - started <= 1000);
    /* The claim is withdrawn in the background. */
    hf_world_run(&world, 10);
    assert_false(hf_world_is_held(&world, "k", NULL));
}

/* The server does not keep the answer HF_ENOMEM for repeats, so a copy in
 * flight could still be granted. The client must withdraw the claim. */
static void a_refused_lock_withdraws_its_delayed_copy(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_lock *lock;

    (void)state;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_STRAND, 1, 1000);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_NO_MEMORY, 1, 0);
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_ENOMEM);
    hf_world_run(&world, 2000);
    assert_false(hf_world_is_held(&world, "k", NULL));
}

/* The first copy was executed, and the second one refused. */
static void a_refusal_of_a_copy_is_no_answer(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_lock *lock;

    (void)state;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_LOSE_ANSWER, 1, 0);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_NO_MEMORY, 1, 0);
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_ENOMEM);
    assert_false(hf_world_is_held(&world, "k", NULL));
    assert_int_equal(hf_faulty_sent(hf_faulty_of(a), HF_ON_CANCEL), 1);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_LOSE_ANSWER, 1, 0);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_NO_MEMORY, 1, 0);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_CANCEL, HF_DELAY, 2, 5000);
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock),
                     HF_EINDOUBT);
    assert_true(hf_world_is_held(&world, "k", NULL));
    hf_world_run(&world, 10000);
    assert_false(hf_world_is_held(&world, "k", NULL));
}

/* A slow answer is no reason to repeat the request. */
static void a_slow_answer_is_accepted(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_lock *lock;

    (void)state;
    opts.timeout_ms = 30000;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_DELAY_ANSWER, 1, 20000);
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    assert_int_equal(hf_faulty_sent(hf_faulty_of(a), HF_ON_LOCK), 1);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_RENEW, HF_DELAY, 1, 20000);
    assert_int_equal(hf_world_renew(&world, lock, 0), HF_OK);
    assert_int_equal(hf_faulty_sent(hf_faulty_of(a), HF_ON_RENEW), 1);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_UNLOCK, HF_DELAY_ANSWER, 1, 20000);
    assert_int_equal(hf_world_release(&world, lock), HF_OK);
    assert_int_equal(hf_faulty_sent(hf_faulty_of(a), HF_ON_UNLOCK), 1);
    hf_lock_free(lock);
}

/* A call returns at its deadline, even if no answer has arrived. */
static void an_answer_after_the_deadline_is_in_doubt(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    hf_time started = world.now;
    struct hf_lock *lock;

    (void)state;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_DELAY_ANSWER, 1, 20000);
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock),
                     HF_EINDOUBT);
    assert_int_equal(world.now - started, opts.timeout_ms);
    assert_int_equal(hf_faulty_sent(hf_faulty_of(a), HF_ON_LOCK), 1);
}

/* GO-16 */
static void a_release_without_an_answer_ends_at_its_deadline(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_lock *lock;
    hf_time started;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    started = world.now;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_UNLOCK, HF_DELAY_ANSWER, 1, 20000);
    assert_int_equal(hf_world_release(&world, lock), HF_EINDOUBT);
    assert_int_equal(world.now - started, opts.timeout_ms);
    hf_lock_free(lock);
}

static void a_delayed_copy_of_a_released_lock_is_refused(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_lock *lock;

    (void)state;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_REPEAT, 1, 500);
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    assert_int_equal(hf_world_release(&world, lock), HF_OK);
    hf_world_run(&world, 1000);
    assert_false(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(lock);
}

/* ---- Waiting ------------------------------------------------------------*/

static void a_lost_push_is_recovered_by_polling(void **state)
{
    struct hf_lock_opts opts = options(60000, 30000);
    struct hf_lock *first, *second;
    struct hf_future *future;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &first), HF_OK);
    future = start_acquire(b, &opts, &second);
    hf_world_run(&world, 3000);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_GRANT, HF_LOSE, 1, 0);
    assert_int_equal(hf_world_release(&world, first), HF_OK);
    hf_world_run(&world, 1300);
    assert_true(is_done(future));
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_true(hf_lock_token(second) > 1);
    assert_true(hf_lock_remaining_ms(second) > 58000);
    hf_lock_free(first);
    hf_lock_free(second);
}

static void a_push_before_the_answer_is_accepted(void **state)
{
    struct hf_lock_opts opts = options(60000, 30000);
    struct hf_lock *first, *second;
    struct hf_future *future;
    hf_time released;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &first), HF_OK);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_LOCK, HF_DELAY_ANSWER, 1, 4000);
    future = start_acquire(b, &opts, &second);
    hf_world_run(&world, 100);
    released = world.now;
    assert_int_equal(hf_world_release(&world, first), HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_true(world.now < released + 100);
    hf_lock_free(first);
    hf_lock_free(second);
}

/* ---- A busy client ------------------------------------------------------*/

/* Start as many claims as may be open at a time. They are answered after 20 s,
 * and until then the client cannot send another command. */
static void fill_window(struct hf_client *client)
{
    struct hf_lock_opts opts = options(1000, 0);

    opts.timeout_ms = 30000;
    hf_faulty_cue(hf_faulty_of(client), HF_ON_LOCK, HF_DELAY_ANSWER,
                  HF_WINDOW_MAX, 20000);
    for (unsigned i = 0; i < HF_WINDOW_MAX; i++) {
        struct hf_lock *lock;
        char key[16];

        (void)snprintf(key, sizeof(key), "busy %u", i);
        assert_int_equal(hf_lock_new(client, hf_key_of(key), &opts, &lock),
                         HF_OK);
    }
}

static void time_inside_a_busy_client_is_part_of_the_wait(void **state)
{
    struct hf_lock_opts opts = options(60000, 60000);
    struct hf_lock *lock;

    (void)state;
    fill_window(a);
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    assert_true(hf_lock_valid_for(lock, 50000));
    hf_lock_free(lock);
}

static void a_wait_inside_a_busy_client_times_out(void **state)
{
    struct hf_lock_opts opts = options(60000, 7000);
    hf_time started = world.now;
    struct hf_lock *lock;

    (void)state;
    fill_window(a);
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock),
                     HF_ETIMEDOUT);
    assert_int_equal(world.now, started + 7000);
    opts.wait_ms = 0; /* without a wait, timeout_ms limits the call */
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock),
                     HF_EUNAVAIL);
    assert_int_equal(world.now, started + 12000);
    opts.wait_ms = 1; /* a short wait does not shorten timeout_ms */
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock),
                     HF_ETIMEDOUT);
    assert_int_equal(world.now, started + 17000);
}

static void a_repeated_push_is_ignored(void **state)
{
    struct hf_lock_opts opts = options(60000, 30000);
    struct hf_lock *first, *second;
    struct hf_future *future;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &first), HF_OK);
    future = start_acquire(b, &opts, &second);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_GRANT, HF_REPEAT, 1, 300);
    assert_int_equal(hf_world_release(&world, first), HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(hf_world_release(&world, second), HF_OK);
    hf_world_run(&world, 1000);
    assert_int_equal(hf_lock_state(second), HF_LOCK_IDLE);
    hf_lock_free(first);
    hf_lock_free(second);
}

static void a_wait_that_times_out_leaves_the_queue(void **state)
{
    struct hf_lock_opts opts = options(60000, 700);
    hf_time started = world.now;
    struct hf_lock *first, *second = NULL;
    uint32_t waiters;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &first), HF_OK);
    assert_int_equal(hf_world_acquire(&world, b, "k", &opts, &second),
                     HF_ETIMEDOUT);
    assert_int_equal(world.now - started, 700);
    assert_null(second);
    assert_true(hf_world_is_held(&world, "k", &waiters));
    assert_int_equal(waiters, 0);
    hf_lock_free(first);
}

static void a_withdrawal_whose_answer_is_lost_is_repeated(void **state)
{
    struct hf_lock_opts opts = options(60000, 700);
    struct hf_lock *first, *second;
    struct hf_command last;
    uint32_t waiters;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &first), HF_OK);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_CANCEL, HF_LOSE, 1, 0);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_CANCEL, HF_LOSE_ANSWER, 1, 0);
    assert_int_equal(hf_world_acquire(&world, b, "k", &opts, &second),
                     HF_ETIMEDOUT);
    last = hf_faulty_last(hf_faulty_of(b), HF_ON_CANCEL);
    assert_int_equal(hf_faulty_sent(hf_faulty_of(b), HF_ON_CANCEL), 3);
    assert_int_equal(last.sequence,
                     hf_faulty_last(hf_faulty_of(b), HF_ON_LOCK).sequence + 1);
    assert_true(hf_world_is_held(&world, "k", &waiters));
    assert_int_equal(waiters, 0);
    hf_lock_free(first);
}

static void an_unconfirmed_withdrawal_is_in_doubt_and_continues(void **state)
{
    struct hf_lock_opts opts = options(500, 700);
    struct hf_lock *first, *second;
    struct hf_future *future;
    uint32_t waiters;
    hf_time started;

    (void)state;
    opts.renew = true;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &first), HF_OK);
    started = world.now;
    future = start_acquire(b, &opts, &second);
    hf_world_run(&world, 10);
    hf_faulty_cut(hf_faulty_of(b), HF_CUT_ALL);
    assert_int_equal(hf_world_wait(&world, future), HF_EINDOUBT);
    assert_true(world.now - started <= 700 + 1000);
    /* A waiter has no lease that could expire, so it stays in the queue until
     * the network works again and the client withdraws it. */
    hf_world_run(&world, 20000);
    assert_true(hf_world_is_held(&world, "k", &waiters));
    assert_int_equal(waiters, 1);
    hf_faulty_cut(hf_faulty_of(b), HF_CUT_NONE);
    hf_world_run(&world, 4000);
    assert_true(hf_world_is_held(&world, "k", &waiters));
    assert_int_equal(waiters, 0);
    assert_true(hf_dlist_is_empty(&b->calls));
    hf_lock_free(first);
}

/* The key is granted just before the wait times out; the push arrives after the
 * timeout. */
static void a_grant_that_races_with_the_timeout_is_withdrawn(void **state)
{
    struct hf_lock_opts opts = options(60000, 700);
    struct hf_lock *first, *second;
    struct hf_future *future;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &first), HF_OK);
    future = start_acquire(b, &opts, &second);
    hf_world_run(&world, 650);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_GRANT, HF_DELAY, 1, 200);
    assert_int_equal(hf_world_release(&world, first), HF_OK);
    assert_true(hf_world_is_held(&world, "k", NULL));
    assert_int_equal(hf_world_wait(&world, future), HF_ETIMEDOUT);
    hf_world_run(&world, 500);
    assert_false(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(first);
}

static void a_release_grants_the_next_waiter(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_lock *first, *second;
    struct hf_future *future;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &first), HF_OK);
    future = start_acquire(b, &opts, &second);
    hf_world_run(&world, 10);
    assert_int_equal(hf_world_release(&world, first), HF_OK);
    hf_world_run(&world, 0);
    assert_true(is_done(future));
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_true(hf_lock_valid_for(second, 59000));
    hf_lock_free(first);
    hf_lock_free(second);
}

static void an_expired_lease_grants_the_next_waiter(void **state)
{
    struct hf_lock_opts opts = options(400, 5000);
    struct hf_lock *first, *second;
    hf_time started = world.now;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &first), HF_OK);
    assert_int_equal(hf_world_acquire(&world, b, "k", &opts, &second), HF_OK);
    assert_true(world.now - started >= hf_drift_lease_ms(400));
    assert_true(world.now - started <= hf_drift_lease_ms(400) + 50);
    assert_false(hf_lock_valid_for(first, 0));
    hf_lock_free(first);
    hf_lock_free(second);
}

static void a_waiter_of_a_closed_client_is_skipped(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_lock *first, *second;
    struct hf_future *future;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &first), HF_OK);
    future = start_acquire(b, &opts, &second);
    hf_world_run(&world, 10);
    hf_faulty_cut(hf_faulty_of(b), HF_CUT_ALL);
    assert_int_equal(hf_world_close(&world, b), HF_EINDOUBT);
    assert_int_equal(hf_world_wait(&world, future), HF_ECLOSED);
    assert_int_equal(hf_world_release(&world, first), HF_OK);
    assert_false(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(first);
}

/* A part of the lease has passed when a delayed push arrives, so the client
 * renews the lock before it reports the grant. */
static void a_grant_with_an_old_anchor_is_renewed_first(void **state)
{
    struct hf_lock_opts opts = options(2000, 30000);
    struct hf_lock *first, *second;
    struct hf_future *future;
    hf_time released;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &first), HF_OK);
    future = start_acquire(b, &opts, &second);
    hf_world_run(&world, 100);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_GRANT, HF_DELAY, 1, 600);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_RENEW, HF_DELAY_ANSWER, 1, 50);
    assert_int_equal(hf_world_release(&world, first), HF_OK);
    released = world.now;
    hf_world_run(&world, 649);
    assert_false(is_done(future));
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(world.now, released + 650);
    assert_int_equal(hf_faulty_sent(hf_faulty_of(b), HF_ON_RENEW), 1);
    assert_true(hf_lock_valid_for(second, 1999));
    hf_lock_free(first);
    hf_lock_free(second);
}

static void a_grant_without_an_anchor_is_renewed_first(void **state)
{
    struct hf_lock_opts opts = options(1000, 30000);
    struct hf_lock *first, *second;
    struct hf_future *future;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &first), HF_OK);
    future = start_acquire(b, &opts, &second);
    hf_world_run(&world, 500);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_GRANT, HF_HIDE_ANCHOR, 1, 0);
    assert_int_equal(hf_world_release(&world, first), HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(hf_faulty_sent(hf_faulty_of(b), HF_ON_RENEW), 1);
    assert_true(hf_lock_valid_for(second, 999));
    hf_lock_free(first);
    hf_lock_free(second);
}

/* A poll is in flight when the push arrives. The server must not execute the
 * poll as a second claim after the lease has expired. */
static void a_delayed_poll_is_refused_after_the_grant(void **state)
{
    struct hf_lock_opts opts = options(300, 60000);
    struct hf_lock *first, *second;
    struct hf_future *future;

    (void)state;
    opts.renew = true;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &first), HF_OK);
    opts.renew = false;
    future = start_acquire(b, &opts, &second);
    hf_world_run(&world, 1);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_LOCK, HF_DELAY, 1, 5000);
    while (hf_faulty_sent(hf_faulty_of(b), HF_ON_LOCK) < 2)
        assert_true(hf_world_step(&world, HF_NEVER));
    assert_int_equal(hf_world_release(&world, first), HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    hf_world_run(&world, 5100);
    assert_false(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(first);
    hf_lock_free(second);
}

/* ---- Canceling and freeing ----------------------------------------------*/

static void a_canceled_wait_leaves_the_queue(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_lock *first, *second = NULL;
    struct hf_future *future;
    uint32_t waiters;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &first), HF_OK);
    future = start_acquire(b, &opts, &second);
    hf_world_run(&world, 10);
    hf_future_cancel(future);
    hf_future_cancel(future);
    assert_int_equal(hf_world_wait(&world, future), HF_ECANCELED);
    assert_null(second);
    assert_true(hf_world_is_held(&world, "k", &waiters));
    assert_int_equal(waiters, 0);
    hf_lock_free(first);
}

static void a_canceled_claim_is_withdrawn(void **state)
{
    struct hf_lock_opts opts = options(60000, 1000);
    struct hf_lock *lock = NULL;
    struct hf_future *future;

    (void)state;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_DELAY_ANSWER, 1, 100);
    future = start_acquire(a, &opts, &lock);
    assert_true(hf_world_is_held(&world, "k", NULL));
    hf_future_cancel(future);
    assert_int_equal(hf_world_wait(&world, future), HF_ECANCELED);
    assert_null(lock);
    assert_false(hf_world_is_held(&world, "k", NULL));
}

static void a_canceled_read_and_wait_return_ecanceled(void **state)
{
    struct hf_future *reading, *waiting;
    struct hf_info info;

    (void)state;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_READ, HF_DELAY, 2, 1000);
    assert_int_equal(hf_read_start(a, hf_key_of("k"), HF_LINEARIZABLE, &info,
                                   NULL, NULL, &reading),
                     HF_OK);
    assert_int_equal(hf_wait_held_start(a, hf_key_of("k"), HF_FOREVER, NULL,
                                        NULL, NULL, &waiting),
                     HF_OK);
    hf_future_cancel(reading);
    hf_future_cancel(waiting);
    assert_int_equal(hf_world_wait(&world, reading), HF_ECANCELED);
    assert_int_equal(hf_world_wait(&world, waiting), HF_ECANCELED);
    hf_world_run(&world, 2000);
}

static void a_canceled_renewal_is_in_doubt(void **state)
{
    struct hf_lock_opts opts = options(1000, 0);
    struct hf_future *future;
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_RENEW, HF_DELAY, 1, 100);
    assert_int_equal(hf_renew_start(lock, 0, NULL, NULL, &future), HF_OK);
    hf_future_cancel(future);
    assert_int_equal(hf_world_wait(&world, future), HF_EINDOUBT);
    hf_lock_free(lock);
}

static void freeing_a_handle_withdraws_its_claim(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_lock *held, *queued, *requesting, *idle;
    uint32_t waiters;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &held), HF_OK);
    assert_int_equal(hf_lock_new(b, hf_key_of("k"), &opts, &queued), HF_OK);
    hf_world_run(&world, 10);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_LOCK, HF_DELAY, 1, 100);
    assert_int_equal(hf_lock_new(b, hf_key_of("k"), &opts, &requesting), HF_OK);
    opts.idle = true;
    assert_int_equal(hf_lock_new(b, hf_key_of("k"), &opts, &idle), HF_OK);
    hf_lock_free(idle);
    hf_lock_free(requesting);
    hf_lock_free(queued);
    hf_world_run(&world, 200);
    assert_true(hf_world_is_held(&world, "k", &waiters));
    assert_int_equal(waiters, 0);
    hf_lock_free(held);
    assert_false(hf_world_is_held(&world, "k", NULL));
}

static void a_handle_may_be_freed_during_its_release(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_future *unlocking, *renewing;
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_ANY, HF_DELAY, 2, 100);
    assert_int_equal(hf_renew_start(lock, 0, NULL, NULL, &renewing), HF_OK);
    unlocking = start_release(lock);
    hf_lock_free(lock);
    assert_int_equal(hf_world_wait(&world, unlocking), HF_OK);
    (void)hf_world_wait(&world, renewing);
    assert_false(hf_world_is_held(&world, "k", NULL));
}

/* ---- Releasing ----------------------------------------------------------*/

static void validity_ends_before_the_unlock_is_sent(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_future *future;
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_UNLOCK, HF_DELAY, 1, 100);
    future = start_release(lock);
    assert_false(hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_lock_remaining_ms(lock), 0);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_RELEASING);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_IDLE);
    hf_lock_free(lock);
}

static void a_lost_answer_to_a_release_is_resolved(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_UNLOCK, HF_LOSE_ANSWER, 2, 0);
    assert_int_equal(hf_world_release(&world, lock), HF_OK);
    assert_false(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(lock);
}

/* The first copy was executed, and its answer was lost. The second one is
 * refused, which says nothing about the first. */
static void a_release_is_in_doubt_if_one_copy_is_refused(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_UNLOCK, HF_LOSE_ANSWER, 1, 0);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_UNLOCK, HF_NO_MEMORY, 1, 0);
    assert_int_equal(hf_world_release(&world, lock), HF_EINDOUBT);
    assert_false(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(lock);
}

static void a_release_without_an_answer_is_in_doubt(void **state)
{
    struct hf_lock_opts opts = options(2000, 0);
    struct hf_lock *lock;
    hf_time started;

    (void)state;
    opts.timeout_ms = 800;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    hf_faulty_cut(hf_faulty_of(a), HF_CUT_ALL);
    started = world.now;
    assert_int_equal(hf_world_release(&world, lock), HF_EINDOUBT);
    assert_int_equal(world.now - started, 800);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_IDLE);
    hf_world_run(&world, 2000);
    assert_false(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(lock);
}

static void a_release_after_the_lease_is_expired(void **state)
{
    struct hf_lock_opts opts = options(500, 0);
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    hf_world_run(&world, 700);
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    assert_int_equal(hf_world_release(&world, lock), HF_EEXPIRED);
    hf_lock_free(lock);
}

/* The client knows that the lock is lost, so it must not report a repeated
 * CANCEL that finds nothing as a successful release. */
static void a_release_of_a_broken_lock_is_expired(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_future *future;
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    assert_int_equal(hf_force_start(b, hf_key_of("k"), hf_lock_token(lock),
                                    true, NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(hf_world_renew(&world, lock, 0), HF_EEXPIRED);
    assert_false(hf_lock_valid_for(lock, 0));
    hf_faulty_cue(hf_faulty_of(a), HF_ON_CANCEL, HF_LOSE_ANSWER, 1, 0);
    assert_int_equal(hf_world_release(&world, lock), HF_EEXPIRED);
    hf_lock_free(lock);
}

static void a_release_waits_for_the_pending_claim(void **state)
{
    struct hf_lock_opts opts = options(60000, 1000);
    struct hf_future *claiming, *unlocking;
    struct hf_lock *lock;

    (void)state;
    opts.idle = true;
    assert_int_equal(hf_lock_new(a, hf_key_of("k"), &opts, &lock), HF_OK);
    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_DELAY, 1, 100);
    assert_int_equal(hf_lock_acquire_start(lock, NULL, NULL, &claiming), HF_OK);
    assert_int_equal(hf_lock_acquire_start(lock, NULL, NULL, NULL), HF_ESTATE);
    unlocking = start_release(lock);
    assert_int_equal(hf_release_start(lock, NULL, NULL, NULL), HF_ESTATE);
    assert_int_equal(hf_world_wait(&world, claiming), HF_OK);
    assert_int_equal(hf_world_wait(&world, unlocking), HF_OK);
    assert_false(hf_world_is_held(&world, "k", NULL));
    hf_lock_free(lock);
}

/* ---- The window ---------------------------------------------------------*/

static unsigned done_count;

static void count_done(enum hf_err err, void *arg)
{
    (void)arg;
    assert_int_equal(err, HF_OK);
    done_count++;
}

static void a_call_beyond_the_window_is_parked_and_sent_later(void **state)
{
    enum {
        OVER = HF_WINDOW_MAX + 50
    };
    static struct hf_lock *locks[OVER];
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_faulty *net = hf_faulty_of(a);
    char key[16];

    (void)state;
    hf_faulty_cue(net, HF_ON_LOCK, HF_DELAY_ANSWER, HF_WINDOW_MAX, 50);
    for (unsigned i = 0; i < OVER; i++) {
        (void)snprintf(key, sizeof(key), "key-%u", i);
        assert_int_equal(hf_acquire_start(a, hf_key_of(key), &opts, &locks[i],
                                          count_done, NULL, NULL),
                         HF_OK);
    }
    assert_int_equal(hf_faulty_sent(net, HF_ON_LOCK), HF_WINDOW_MAX);
    hf_world_run(&world, 49);
    assert_int_equal(done_count, 0);
    hf_world_run(&world, 51);
    assert_int_equal(done_count, OVER);
    assert_int_equal(hf_faulty_sent(net, HF_ON_LOCK), OVER);
    for (unsigned i = 0; i < OVER; i++)
        hf_lock_free(locks[i]);
    hf_world_run(&world, 10);
    assert_true(hf_dlist_is_empty(&a->calls));
}

static void a_parked_call_that_was_never_sent_is_unavailable(void **state)
{
    static struct hf_lock *locks[HF_WINDOW_MAX], *late;
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_faulty *net = hf_faulty_of(a);
    struct hf_future *future;

    (void)state;
    hf_faulty_cut(net, HF_CUT_ALL);
    opts.timeout_ms = 60000;
    for (unsigned i = 0; i < HF_WINDOW_MAX; i++)
        assert_int_equal(hf_acquire_start(a, hf_key_of("k"), &opts, &locks[i],
                                          NULL, NULL, NULL),
                         HF_OK);
    opts.timeout_ms = 300;
    future = start_acquire(a, &opts, &late);
    assert_int_equal(hf_world_wait(&world, future), HF_EUNAVAIL);
    hf_faulty_cut(net, HF_CUT_NONE);
}

/* ---- Waits for a key, and watches ---------------------------------------*/

static void a_wait_for_a_key_survives_lost_events(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_future *held, *freed;
    enum hf_freed reason = 0;
    struct hf_lock *lock;
    struct hf_info info;

    (void)state;
    hf_faulty_cue(hf_faulty_of(b), HF_ON_EVENT, HF_LOSE, 99, 0);
    assert_int_equal(
        hf_wait_held_start(b, hf_key_of("k"), 10000, &info, NULL, NULL, &held),
        HF_OK);
    hf_world_run(&world, 10);
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    hf_world_run(&world, 1100);
    assert_true(is_done(held));
    assert_int_equal(hf_world_wait(&world, held), HF_OK);
    assert_true(info.held);
    hf_info_fini(&info);
    assert_int_equal(hf_wait_free_start(b, hf_key_of("k"), 10000, &reason, NULL,
                                        NULL, &freed),
                     HF_OK);
    hf_world_run(&world, 10);
    assert_int_equal(hf_world_release(&world, lock), HF_OK);
    /* Run until the next READ has found the key free and the wait for its
     * event has ended. */
    hf_world_run(&world, 3100);
    assert_true(is_done(freed));
    assert_int_equal(hf_world_wait(&world, freed), HF_OK);
    assert_int_equal(reason, HF_FREED_UNSEEN);
    hf_lock_free(lock);
}

/* `b` waits up to `wait_ms` until "k" is free, and `a` releases it. The event
 * is delayed by `late_ms`, so the READ of `b` after a second finds the key free
 * before the event arrives. */
static enum hf_freed wait_with_late_event(uint32_t wait_ms, uint32_t late_ms)
{
    struct hf_lock_opts opts = options(60000, 0);
    enum hf_freed reason = 0;
    struct hf_future *freed;
    struct hf_lock *lock;

    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    assert_int_equal(hf_wait_free_start(b, hf_key_of("k"), wait_ms, &reason,
                                        NULL, NULL, &freed),
                     HF_OK);
    hf_world_run(&world, 10);
    hf_faulty_cue(hf_faulty_of(b), HF_ON_EVENT, HF_DELAY, 1, late_ms);
    assert_int_equal(hf_world_release(&world, lock), HF_OK);
    assert_int_equal(hf_world_wait(&world, freed), HF_OK);
    hf_lock_free(lock);
    return reason;
}

static void a_read_ahead_of_the_event_waits_for_it(void **state)
{
    (void)state;
    assert_int_equal(wait_with_late_event(10000, 1500), HF_FREED_RELEASED);
}

/* wait_ms passes before the event arrives, but a READ has found the key
 * free. */
static void a_key_seen_free_is_not_a_timeout(void **state)
{
    (void)state;
    assert_int_equal(wait_with_late_event(1200, 1500), HF_FREED_UNSEEN);
}

static unsigned event_count;

static void count_event(const struct hf_event *event, void *arg)
{
    (void)arg;
    (void)event;
    event_count++;
}

static void a_watch_with_a_lost_answer_reports_each_event_once(void **state)
{
    struct hf_lock_opts opts = options(60000, 0);
    struct hf_future *future;
    struct hf_watch *watch;
    struct hf_lock *lock;

    (void)state;
    hf_faulty_cue(hf_faulty_of(b), HF_ON_WATCH, HF_LOSE_ANSWER, 2, 0);
    assert_int_equal(hf_watch_open_start(b, hf_key_of(""), NULL, count_event,
                                         NULL, &watch, NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    assert_int_equal(hf_world_release(&world, lock), HF_OK);
    hf_world_run(&world, 100);
    assert_int_equal(event_count, 2);
    hf_watch_close(watch);
    hf_lock_free(lock);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(ttl_includes_wait_counts_from_the_claim),
        CASE(ttl_includes_wait_limits_the_wait),
        CASE(a_grant_after_the_ttl_is_withdrawn),
        CASE(a_lock_with_a_lost_answer_is_repeated_and_granted_once),
        CASE(a_repeated_lock_is_renewed_before_it_is_reported),
        CASE(validity_counts_from_the_request_not_from_the_answer),
        CASE(a_lock_that_was_never_sent_is_unavailable),
        CASE(one_attempt_in_doubt_makes_the_result_in_doubt),
        CASE(a_refused_lock_withdraws_its_delayed_copy),
        CASE(a_refusal_of_a_copy_is_no_answer),
        CASE(a_slow_answer_is_accepted),
        CASE(an_answer_after_the_deadline_is_in_doubt),
        CASE(a_release_without_an_answer_ends_at_its_deadline),
        CASE(a_delayed_copy_of_a_released_lock_is_refused),
        CASE(a_lost_push_is_recovered_by_polling),
        CASE(a_push_before_the_answer_is_accepted),
        CASE(time_inside_a_busy_client_is_part_of_the_wait),
        CASE(a_wait_inside_a_busy_client_times_out),
        CASE(a_repeated_push_is_ignored),
        CASE(a_wait_that_times_out_leaves_the_queue),
        CASE(a_withdrawal_whose_answer_is_lost_is_repeated),
        CASE(an_unconfirmed_withdrawal_is_in_doubt_and_continues),
        CASE(a_grant_that_races_with_the_timeout_is_withdrawn),
        CASE(a_release_grants_the_next_waiter),
        CASE(an_expired_lease_grants_the_next_waiter),
        CASE(a_waiter_of_a_closed_client_is_skipped),
        CASE(a_grant_with_an_old_anchor_is_renewed_first),
        CASE(a_grant_without_an_anchor_is_renewed_first),
        CASE_WITHOUT_LOOKUP(a_delayed_poll_is_refused_after_the_grant),
        CASE(a_canceled_wait_leaves_the_queue),
        CASE(a_canceled_claim_is_withdrawn),
        CASE(a_canceled_read_and_wait_return_ecanceled),
        CASE(a_canceled_renewal_is_in_doubt),
        CASE(freeing_a_handle_withdraws_its_claim),
        CASE(a_handle_may_be_freed_during_its_release),
        CASE(validity_ends_before_the_unlock_is_sent),
        CASE(a_lost_answer_to_a_release_is_resolved),
        CASE(a_release_is_in_doubt_if_one_copy_is_refused),
        CASE(a_release_without_an_answer_is_in_doubt),
        CASE(a_release_after_the_lease_is_expired),
        CASE(a_release_of_a_broken_lock_is_expired),
        CASE(a_release_waits_for_the_pending_claim),
        CASE(a_call_beyond_the_window_is_parked_and_sent_later),
        CASE(a_parked_call_that_was_never_sent_is_unavailable),
        CASE(a_wait_for_a_key_survives_lost_events),
        CASE(a_read_ahead_of_the_event_waits_for_it),
        CASE(a_key_seen_free_is_not_a_timeout),
        CASE(a_watch_with_a_lost_answer_reports_each_event_once),
    };

    return hf_test_main("claim", cases, HF_TEST_COUNT(cases), 0);
}
