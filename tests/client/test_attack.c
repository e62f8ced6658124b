/* Pushes, callbacks and late answers that come at the worst moment. */
#include <string.h>

#include "base/limits.h"
#include "client/client.h"
#include "client/lock.h"
#include "lib/runner.h"
#include "lib/world.h"

static struct hf_world world;
static struct hf_client *a, *b;

static int set_up(void **state)
{
    (void)state;
    hf_world_init(&world, 11);
    a = hf_world_open(&world);
    b = hf_world_open(&world);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hf_world_fini(&world);
    return 0;
}

static struct hf_lock_opts options(uint32_t ttl_ms, uint32_t wait_ms)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = ttl_ms;
    opts.wait_ms = wait_ms;
    return opts;
}

static struct hf_lock *take(struct hf_client *client, const char *key,
                            uint32_t ttl_ms)
{
    struct hf_lock_opts opts = options(ttl_ms, 0);
    struct hf_lock *lock;

    assert_int_equal(hf_world_lock(&world, client, key, &opts, &lock), HF_OK);
    return lock;
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
        hf_lock_start(a, hf_key("k"), &opts, lock, NULL, NULL, &future), HF_OK);
    for (unsigned i = 0; i < HF_WINDOW_MAX; i++)
        assert_int_equal(
            hf_force_start(a, hf_key("x"), 1, true, NULL, NULL, NULL), HF_OK);
    return future;
}

/* The UNLOCK waits for a number. It gets one as the LOCK is answered, and what
 * it frees is granted to the claim of that LOCK. */
static void a_parked_unlock_grants_to_the_claim_that_made_room(void **state)
{
    struct hf_lock *first = take(a, "k", 60000), *second = NULL;
    struct hf_future *future = wait_with_full_window(&second), *unlock;

    (void)state;
    assert_int_equal(hf_unlock_start(first, NULL, NULL, &unlock), HF_OK);
    assert_int_equal(hf_world_wait(&world, unlock), HF_OK);
    assert_int_equal(hf_world_wait(&world, future), HF_OK);
    assert_int_equal(hf_lock_state(second), HF_LOCK_HELD);
    assert_int_equal(hf_lock_place(second), 0);
    hf_world_run(&world, 5000);
    assert_true(hf_valid_for(second, 0));
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
    assert_int_equal(hf_unlock_start(first, NULL, NULL, &unlock), HF_OK);
    hf_future_cancel(future);
    assert_int_equal(hf_world_wait(&world, unlock), HF_OK);
    err = hf_world_wait(&world, future);
    assert_int_equal(err, HF_ECANCELED);
    assert_null(second);
    third = take(b, "k", 60000);
    assert_true(hf_valid_for(third, 0));
    hf_lock_free(first);
    hf_lock_free(third);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_parked_unlock_grants_to_the_claim_that_made_room),
        CASE(a_canceled_claim_is_not_granted_by_what_it_makes_room_for),
    };

    return hf_test_main("attack", cases, HF_TEST_COUNT(cases), 0);
}
