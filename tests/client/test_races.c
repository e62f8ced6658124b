/* Pushes, callbacks and late answers that arrive at the worst moment. */
#include <string.h>

#include "base/limits.h"
#include "client/client.h"
#include "client/lock.h"
#include "client/two_clients.h"
#include "strategy/memory.h"

static struct hf_lock *acquire_lock(struct hf_client *client, const char *key,
                                    uint32_t ttl_ms)
{
    struct hf_lock_opts opts = options(ttl_ms, 0);
    struct hf_lock *lock;

    assert_int_equal(hf_world_acquire(&world, client, key, &opts, &lock),
                     HF_OK);
    return lock;
}

/* ---- A grant inside submit() --------------------------------------------*/

static struct hf_lock *released_on_cue;

static void ignore_event(const struct hf_event *event, void *arg)
{
    (void)event;
    (void)arg;
}

/* Watch all keys, so that the client collects events and grants at the end of
 * each submit() that caused an event. */
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

/* Release the lock of `b` after the request of `a` is answered, but before
 * submit() returns. */
static void release_on_cue(struct hf_world *at)
{
    if (hf_dlist_is_empty(&a->loop.answered)) {
        at->on_clock = release_on_cue;
        return;
    }
    assert_int_equal(hf_release_start(released_on_cue, NULL, NULL, NULL),
                     HF_OK);
}

static void a_claim_may_be_granted_inside_submit(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_watch *watch = watch_all(a);
    struct hf_lock *lock = NULL;
    struct hf_future *future;
    enum hf_err err = HF_EINVAL;

    (void)state;
    released_on_cue = acquire_lock(b, "k", 60000);
    world.on_clock = release_on_cue;
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

static void a_claim_without_a_future_may_be_granted_inside_submit(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_watch *watch = watch_all(a);
    struct hf_lock *lock = NULL;

    (void)state;
    released_on_cue = acquire_lock(b, "k", 60000);
    world.on_clock = release_on_cue;
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

/* The grant arrives inside submit() of a poll. The lock is renewed as usual. */
static void a_lock_granted_during_a_poll_is_renewed(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_lock *lock = NULL, *brief;
    struct hf_watch *watch;

    (void)state;
    opts.renew = true;
    released_on_cue = acquire_lock(b, "k", 600000);
    assert_int_equal(
        hf_acquire_start(a, hf_key_of("k"), &opts, &lock, NULL, NULL, NULL),
        HF_OK);
    watch = watch_all(a);
    brief = acquire_lock(b, "brief", 2000);
    hf_world_run(&world, 1);
    world.on_clock = release_on_cue;
    hf_world_stop(&world, b, 4000);
    /* The waiter polls now, and the expiry of `brief` causes an event. */
    hf_world_jump(&world, 3000);
    hf_world_run(&world, 100);
    assert_non_null(lock);
    hf_world_run(&world, 300000);
    assert_true(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
    hf_lock_free(brief);
    hf_lock_free(released_on_cue);
    hf_watch_close(watch);
}

static void a_wait_may_complete_inside_submit(void **state)
{
    enum hf_freed freed = 0;
    struct hf_future *future;

    (void)state;
    released_on_cue = acquire_lock(b, "k", 60000);
    world.on_clock = release_on_cue;
    assert_int_equal(hf_wait_free_start(a, hf_key_of("k"), HF_FOREVER, &freed,
                                        NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_true(freed == HF_FREED_RELEASED || freed == HF_FREED_UNSEEN ||
                freed == HF_FREED_ALREADY);
    hf_lock_free(released_on_cue);
}

/* ---- A grant while another call is being ended --------------------------*/

/* Claim "k", which `a` holds, with another handle of `a`. The LOCK is answered
 * late, and FORCE commands fill the window of sequence numbers until then. */
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

/* The window is full, so the UNLOCK is not sent before the LOCK is answered. It
 * then hands the key over to the claim that this LOCK has queued. */
static void a_parked_unlock_may_grant_the_claim_that_made_room(void **state)
{
    struct hf_lock *first = acquire_lock(a, "k", 60000), *second = NULL;
    struct hf_future *future = wait_with_full_window(&second), *unlock;

    (void)state;
    assert_int_equal(hf_release_start(first, NULL, NULL, &unlock), HF_OK);
    assert_int_equal(hf_world_wait(&world, unlock), HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(hf_lock_state(second), HF_LOCK_HELD);
    assert_int_equal(hf_lock_position(second), 0);
    hf_world_run(&world, 5000);
    assert_true(hf_lock_valid_for(second, 0));
    assert_int_equal(hf_world_release(&world, second), HF_OK);
    hf_lock_free(first);
    hf_lock_free(second);
    hf_world_run(&world, 5000);
}

static void a_canceled_claim_is_not_granted_by_a_parked_unlock(void **state)
{
    struct hf_lock *first = acquire_lock(a, "k", 60000), *second = NULL, *third;
    struct hf_future *future = wait_with_full_window(&second), *unlock;
    enum hf_err err;

    (void)state;
    assert_int_equal(hf_release_start(first, NULL, NULL, &unlock), HF_OK);
    hf_future_cancel(future);
    assert_int_equal(hf_world_wait(&world, unlock), HF_OK);
    err = hf_world_wait(&world, future);
    assert_int_equal(err, HF_ECANCELED);
    assert_null(second);
    third = acquire_lock(b, "k", 60000);
    assert_true(hf_lock_valid_for(third, 0));
    hf_lock_free(first);
    hf_lock_free(third);
}

/* ---- A grant while its claim is being canceled --------------------------*/

static struct hf_host *pushed_to;

static enum hf_err open_pushing(void *self, struct hf_url *url,
                                struct hf_host *host, struct hf_error *error)
{
    pushed_to = host;
    return hf_strategy_memory.open(self, url, host, error);
}

/* Like memory:, but a grant arrives just before a CANCEL of its claim. */
static void submit_pushing(void *self, struct hf_request *request)
{
    const struct hf_push_grant grant = {
        .nonce = request->command.nonce,
        .token = 99,
        .anchor = {.known = true, .sent = pushed_to->ops->now(pushed_to)},
    };

    if (request->kind == HF_REQUEST_COMMAND &&
        request->command.kind == HF_COMMAND_CANCEL)
        pushed_to->ops->grant(pushed_to, &grant);
    hf_strategy_memory.submit(self, request);
}

static void a_claim_that_is_being_canceled_is_not_granted(void **state)
{
    struct hf_strategy pushing = hf_strategy_memory;
    const struct hf_env env = {.strategy = &pushing};
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_client *client;
    struct hf_lock *held, *waiting = NULL;
    struct hf_future *future;
    enum hf_err err = HF_OK;

    (void)state;
    pushing.open = open_pushing;
    pushing.submit = submit_pushing;
    assert_int_equal(hf_client_open("memory:races", NULL, &env, &client),
                     HF_OK);
    opts.renew = false;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &held), HF_OK);
    assert_int_equal(hf_acquire_start(client, hf_key_of("k"), &opts, &waiting,
                                      NULL, NULL, &future),
                     HF_OK);
    assert_int_equal(hf_close(client, 1000), HF_OK);
    assert_true(hf_future_done(future, &err));
    assert_int_equal(err, HF_ECLOSED);
    assert_null(waiting);
    hf_future_free(future);
    hf_lock_free(held);
}

/* ---- Freed in a callback ------------------------------------------------*/

/* Free the holder, so that the waiter is granted the key, and then free the
 * waiter, before its hf_acquire() has returned. */
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

static void a_handle_freed_before_acquire_returns_is_canceled(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_lock *holder = acquire_lock(a, "k", 60000), *lock = NULL;

    (void)state;
    opts.on_event = grant_and_free;
    opts.arg = &holder;
    assert_int_equal(hf_acquire(a, hf_key_of("k"), &opts, &lock), HF_ECANCELED);
    assert_null(lock);
    assert_false(hf_world_is_held(&world, "k", NULL));
}

static void freeing_a_handle_cancels_its_blocked_claim(void **state)
{
    struct hf_lock_opts opts = options(60000, HF_FOREVER);
    struct hf_lock *holder = acquire_lock(a, "k", 60000), *lock = NULL;

    (void)state;
    opts.on_event = grant_and_free;
    opts.arg = &holder;
    opts.idle = true;
    assert_int_equal(hf_lock_new(a, hf_key_of("k"), &opts, &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_ECANCELED);
    assert_false(hf_world_is_held(&world, "k", NULL));
}

static void free_when_lost(struct hf_lock *lock, enum hf_lock_event event,
                           void *arg)
{
    (void)arg;
    if (event == HF_LOCK_EVENT_LOST)
        hf_lock_free(lock);
}

static void note_result(enum hf_err err, void *arg)
{
    *(enum hf_err *)arg = err;
}

/* Simulate a process that is stopped just after a grant, for longer than the
 * lease. LOST is then reported before the result of the claim, and its callback
 * frees the handle. */
static void lose_before_result(hf_done_fn *done, void *arg,
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

static void a_done_callback_gets_no_freed_handle(void **state)
{
    enum hf_err err = HF_EINVAL;

    (void)state;
    lose_before_result(note_result, &err, NULL);
    assert_int_equal(err, HF_ECANCELED);
}

static void a_future_returns_no_freed_handle(void **state)
{
    struct hf_future *future;
    enum hf_err err = HF_EINVAL;

    (void)state;
    lose_before_result(NULL, NULL, &future);
    assert_true(hf_future_done(future, &err));
    assert_int_equal(err, HF_ECANCELED);
    hf_future_free(future);
}

/* ---- Answers for the previous claim -------------------------------------*/

/* The server has lost its data, so both claims have the same token, and the
 * token does not show that the late answer belongs to the first claim. */
static void a_late_renewal_does_not_extend_the_next_claim(void **state)
{
    struct hf_lock *lock = acquire_lock(a, "k", 300), *other;
    uint64_t token = hf_lock_token(lock);
    struct hf_future *renewal, *claim;

    (void)state;
    hf_faulty_cue(hf_faulty_of(a), HF_ON_RENEW, HF_DELAY_ANSWER, 1, 100);
    assert_int_equal(hf_renew_start(lock, 60000, NULL, NULL, &renewal), HF_OK);
    assert_int_equal(hf_world_release(&world, lock), HF_OK);
    hf_faulty_forget(&world.net);
    assert_int_equal(hf_lock_acquire_start(lock, NULL, NULL, &claim), HF_OK);
    assert_int_equal(hf_world_wait(&world, claim), HF_OK);
    assert_int_equal(hf_lock_token(lock), token);
    (void)hf_world_wait(&world, renewal);
    hf_world_run(&world, 1000);
    other = acquire_lock(b, "k", 60000);
    assert_true(hf_lock_valid_for(other, 0));
    assert_false(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
    hf_lock_free(other);
}

/* ---- Extreme options ----------------------------------------------------*/

static void the_shortest_lease_is_renewed_once_a_millisecond(void **state)
{
    struct hf_lock_opts opts = options(2, 0);
    struct hf_lock *lock;

    (void)state;
    opts.renew = true;
    assert_int_equal(hf_world_acquire(&world, a, "k", &opts, &lock), HF_OK);
    hf_world_run(&world, 50);
    assert_true(hf_lock_valid_for(lock, 0));
    assert_in_range(hf_faulty_sent(hf_faulty_of(a), HF_ON_RENEW), 25, 50);
    hf_lock_free(lock);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_claim_may_be_granted_inside_submit),
        CASE(a_claim_without_a_future_may_be_granted_inside_submit),
        CASE(a_lock_granted_during_a_poll_is_renewed),
        CASE(a_wait_may_complete_inside_submit),
        CASE(a_parked_unlock_may_grant_the_claim_that_made_room),
        CASE(a_canceled_claim_is_not_granted_by_a_parked_unlock),
        CASE(a_claim_that_is_being_canceled_is_not_granted),
        CASE(a_handle_freed_before_acquire_returns_is_canceled),
        CASE(freeing_a_handle_cancels_its_blocked_claim),
        CASE(a_done_callback_gets_no_freed_handle),
        CASE(a_future_returns_no_freed_handle),
        CASE(a_late_renewal_does_not_extend_the_next_claim),
        CASE(the_shortest_lease_is_renewed_once_a_millisecond),
    };

    return hf_test_main("races", cases, HF_TEST_COUNT(cases), 0);
}
