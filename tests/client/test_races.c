/* Pushes, callbacks and late answers that come at the worst moment. */
#include <string.h>

#include "base/limits.h"
#include "client/client.h"
#include "client/lock.h"
#include "client/two_clients.h"

static struct hf_lock *take(struct hf_client *client, const char *key,
                            uint32_t ttl_ms)
{
    struct hf_lock_opts opts = options(ttl_ms, 0);
    struct hf_lock *lock;

    assert_int_equal(hf_world_lock(&world, client, key, &opts, &lock), HF_OK);
    return lock;
}

/* ---- A grant inside submit() --------------------------------------------*/

static struct hf_lock *released_on_cue;

static void ignore_event(const struct hf_event *event, void *arg)
{
    (void)event;
    (void)arg;
}

/* A client that watches looks for news at the end of each submit() that caused
 * an event. */
static struct hf_watch *watch_all(struct hf_client *client)
{
    struct hf_future *future;
    struct hf_watch *watch;

    assert_int_equal(hf_watch_open_start(client, hf_key_of(""), NULL,
                                         ignore_event, NULL, &watch, NULL, NULL,
                                         &future),
                     HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    return watch;
}

/* Another client unlocks when `a` has been answered and has not returned from
 * submit() yet. */
static void unlock_on_cue(struct hf_world *at)
{
    if (hf_dlist_is_empty(&a->loop.answered)) {
        at->on_clock = unlock_on_cue;
        return;
    }
    assert_int_equal(hf_release_start(released_on_cue, NULL, NULL, NULL),
                     HF_OK);
}

static void a_claim_may_be_granted_before_its_request_returns(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_watch *watch = watch_all(a);
    struct hf_lock *lock = NULL;
    struct hf_future *future;
    enum hf_err err = HF_EINVAL;

    (void)state;
    released_on_cue = take(b, "k", 60000);
    world.on_clock = unlock_on_cue;
    assert_int_equal(
        hf_acquire_start(a, hf_key_of("k"), &opts, &lock, NULL, NULL, &future),
        HF_OK);
    hf_world_run(&world, 10000);
    assert_true(hf_future_done(future, &err));
    assert_int_equal(err, HF_OK);
    assert_true(hf_lock_valid_for(lock, 0));
    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(released_on_cue);
    hf_watch_close(watch);
}

static void a_claim_without_a_future_may_be_granted_as_early(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_watch *watch = watch_all(a);
    struct hf_lock *lock = NULL;

    (void)state;
    released_on_cue = take(b, "k", 60000);
    world.on_clock = unlock_on_cue;
    assert_int_equal(
        hf_acquire_start(a, hf_key_of("k"), &opts, &lock, NULL, NULL, NULL),
        HF_OK);
    hf_world_run(&world, 10000);
    assert_non_null(lock);
    assert_true(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
    hf_lock_free(released_on_cue);
    hf_watch_close(watch);
}

/* The same, when a waiter asks again: the lock is renewed as any other. */
static void a_grant_that_overtakes_a_repeat_is_kept(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_lock *lock = NULL, *brief;
    struct hf_watch *watch;

    (void)state;
    opts.renew = true;
    released_on_cue = take(b, "k", 600000);
    assert_int_equal(
        hf_acquire_start(a, hf_key_of("k"), &opts, &lock, NULL, NULL, NULL),
        HF_OK);
    watch = watch_all(a);
    brief = take(b, "brief", 2000);
    hf_world_run(&world, 1);
    world.on_clock = unlock_on_cue;
    hf_world_stop(&world, b, 4000);
    hf_world_jump(&world,
                  3000); /* the waiter's timer, then the end of `brief` */
    hf_world_run(&world, 100);
    assert_non_null(lock);
    hf_world_run(&world, 300000);
    assert_true(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
    hf_lock_free(brief);
    hf_lock_free(released_on_cue);
    hf_watch_close(watch);
}

static void a_wait_that_ends_inside_its_request_tells_how(void **state)
{
    enum hf_freed freed = 0;
    struct hf_future *future;

    (void)state;
    released_on_cue = take(b, "k", 60000);
    world.on_clock = unlock_on_cue;
    assert_int_equal(hf_wait_free_start(a, hf_key_of("k"), HF_FOREVER, &freed,
                                        NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_true(freed == HF_FREED_RELEASED || freed == HF_FREED_UNSEEN ||
                freed == HF_FREED_ALREADY);
    hf_lock_free(released_on_cue);
}

/* ---- A grant inside the end of another call -----------------------------*/

/* `a` holds "k" and waits for it with a second handle, whose LOCK is answered
 * late. All other sequence numbers of the window are used up. */
static struct hf_future *wait_with_full_window(struct hf_lock **lock)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_future *future;

    hf_faulty_cue(hf_faulty_of(a), HF_ON_LOCK, HF_DELAY_ANSWER, 1, 500);
    assert_int_equal(
        hf_acquire_start(a, hf_key_of("k"), &opts, lock, NULL, NULL, &future),
        HF_OK);
    for (unsigned i = 0; i < HF_WINDOW_MAX; i++)
        assert_int_equal(
            hf_force_start(a, hf_key_of("x"), 1, true, NULL, NULL, NULL),
            HF_OK);
    return future;
}

/* The UNLOCK waits for a number. It gets one as the LOCK is answered, and what
 * it frees is granted to the claim of that LOCK. */
static void a_parked_unlock_grants_to_the_claim_that_made_room(void **state)
{
    struct hf_lock *first = take(a, "k", 60000), *second = NULL;
    struct hf_future *future = wait_with_full_window(&second), *unlock;

    (void)state;
    assert_int_equal(hf_release_start(first, NULL, NULL, &unlock), HF_OK);
    assert_int_equal(hf_world_wait(&world, unlock), HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(hf_lock_state(second), HF_LOCK_HELD);
    assert_int_equal(hf_lock_position(second), 0);
    hf_world_run(&world, 5000);
    assert_true(hf_lock_valid_for(second, 0));
    assert_int_equal(hf_world_unlock(&world, second), HF_OK);
    hf_lock_free(first);
    hf_lock_free(second);
    hf_world_run(&world, 5000);
}

static void a_canceled_claim_is_not_granted_by_what_it_makes_room_for(
    void **state)
{
    struct hf_lock *first = take(a, "k", 60000), *second = NULL, *third;
    struct hf_future *future = wait_with_full_window(&second), *unlock;
    enum hf_err err;

    (void)state;
    assert_int_equal(hf_release_start(first, NULL, NULL, &unlock), HF_OK);
    hf_future_cancel(future);
    assert_int_equal(hf_world_wait(&world, unlock), HF_OK);
    err = hf_world_wait(&world, future);
    assert_int_equal(err, HF_ECANCELED);
    assert_null(second);
    third = take(b, "k", 60000);
    assert_true(hf_lock_valid_for(third, 0));
    hf_lock_free(first);
    hf_lock_free(third);
}

/* ---- Freed in a callback ------------------------------------------------*/

/* Called inside the wait: hand the key over to the waiter, and free it. */
static void grant_and_free(struct hf_lock *lock, enum hf_lock_event event,
                           void *arg)
{
    struct hf_lock **holder = arg;

    if (event != HF_LOCK_EVENT_WAITING)
        return;
    hf_lock_free(*holder);
    *holder = NULL;
    assert_int_equal(hf_lock_state(lock), HF_LOCK_HELD);
    hf_lock_free(lock);
}

static void what_is_freed_before_it_is_returned_is_canceled(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_lock *holder = take(a, "k", 60000), *lock = NULL;

    (void)state;
    opts.on_event = grant_and_free;
    opts.arg = &holder;
    assert_int_equal(hf_acquire(a, hf_key_of("k"), &opts, &lock), HF_ECANCELED);
    assert_null(lock);
    assert_false(hf_world_held(&world, "k", NULL));
}

static void a_blocked_claim_is_canceled_with_its_handle(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_lock *holder = take(a, "k", 60000), *lock = NULL;

    (void)state;
    opts.on_event = grant_and_free;
    opts.arg = &holder;
    opts.idle = true;
    assert_int_equal(hf_lock_new(a, hf_key_of("k"), &opts, &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_ECANCELED);
    assert_false(hf_world_held(&world, "k", NULL));
}

/* The process was stopped just after the grant, so LOST is reported first. */
static void free_when_lost(struct hf_lock *lock, enum hf_lock_event event,
                           void *arg)
{
    (void)arg;
    if (event == HF_LOCK_EVENT_LOST)
        hf_lock_free(lock);
}

static void note_answer(enum hf_err err, void *arg)
{
    *(enum hf_err *)arg = err;
}

static void lose_before_it_is_told(hf_done_fn *done, void *arg,
                                   struct hf_future **future)
{
    struct hf_lock_opts opts = options(300, 0);
    struct hf_lock *lock = NULL;

    opts.on_event = free_when_lost;
    assert_int_equal(
        hf_acquire_start(a, hf_key_of("k"), &opts, &lock, done, arg, future),
        HF_OK);
    assert_true(hf_lock_valid_for(lock, 0)); /* granted at once */
    hf_world_jump(&world, 1000);
    hf_world_run(&world, 1);
}

static void a_callback_is_not_handed_a_handle_that_is_gone(void **state)
{
    enum hf_err err = HF_EINVAL;

    (void)state;
    lose_before_it_is_told(note_answer, &err, NULL);
    assert_int_equal(err, HF_ECANCELED);
}

static void a_future_does_not_hand_out_a_handle_that_is_gone(void **state)
{
    struct hf_future *future;
    enum hf_err err = HF_EINVAL;

    (void)state;
    lose_before_it_is_told(NULL, NULL, &future);
    assert_true(hf_future_done(future, &err));
    assert_int_equal(err, HF_ECANCELED);
    hf_future_free(future);
}

/* ---- Answers for an earlier claim ---------------------------------------*/

/* The server has lost its data meanwhile, and tokens have started over. */
static void a_late_renewal_extends_no_later_claim(void **state)
{
    struct hf_lock *lock = take(a, "k", 300), *other;
    uint64_t token = hf_lock_token(lock);
    struct hf_future *renewal, *claim;

    (void)state;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_RENEW, HF_DELAY_ANSWER, 1, 100);
    assert_int_equal(hf_renew_start(lock, 60000, NULL, NULL, &renewal), HF_OK);
    assert_int_equal(hf_world_unlock(&world, lock), HF_OK);
    hf_faulty_forget(&world.net);
    assert_int_equal(hf_lock_acquire_start(lock, NULL, NULL, &claim), HF_OK);
    assert_int_equal(hf_world_wait(&world, claim), HF_OK);
    assert_int_equal(hf_lock_token(lock), token);
    (void)hf_world_wait(&world, renewal);
    hf_world_run(&world, 1000);
    other = take(b, "k", 60000);
    assert_true(hf_lock_valid_for(other, 0));
    assert_false(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
    hf_lock_free(other);
}

/* ---- Extreme options ----------------------------------------------------*/

static void the_shortest_leases_are_renewed_once_a_millisecond(void **state)
{
    struct hf_lock_opts opts = options(2, 0);
    struct hf_lock *lock;

    (void)state;
    opts.renew = true;
    assert_int_equal(hf_world_lock(&world, a, "k", &opts, &lock), HF_OK);
    hf_world_run(&world, 50);
    assert_true(hf_lock_valid_for(lock, 0));
    assert_in_range(hf_faulty_sent(hf_faulty_of(a), HF_ON_RENEW), 25, 50);
    hf_lock_free(lock);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_claim_may_be_granted_before_its_request_returns),
        CASE(a_claim_without_a_future_may_be_granted_as_early),
        CASE(a_grant_that_overtakes_a_repeat_is_kept),
        CASE(a_wait_that_ends_inside_its_request_tells_how),
        CASE(a_parked_unlock_grants_to_the_claim_that_made_room),
        CASE(a_canceled_claim_is_not_granted_by_what_it_makes_room_for),
        CASE(what_is_freed_before_it_is_returned_is_canceled),
        CASE(a_blocked_claim_is_canceled_with_its_handle),
        CASE(a_callback_is_not_handed_a_handle_that_is_gone),
        CASE(a_future_does_not_hand_out_a_handle_that_is_gone),
        CASE(a_late_renewal_extends_no_later_claim),
        CASE(the_shortest_leases_are_renewed_once_a_millisecond),
    };

    return hf_test_main("races", cases, HF_TEST_COUNT(cases), 0);
}
