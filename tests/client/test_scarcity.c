/* Every allocation of every kind of call fails once: the call says so, nothing
 * is half done, nothing leaks, and a lock that is held stays held. */
#include <stdio.h>

#include "lib/alloc.h"
#include "lib/runner.h"
#include "lib/world.h"

static struct hf_world world;
static struct hf_client *client, *other;
static struct hf_lock *held; /* by `client`, all the time */

/* Fine, or out of memory. */
static bool is_fair(enum hf_err err)
{
    return err == HF_OK || err == HF_ENOMEM;
}

static void demand_fair(enum hf_err err)
{
    if (!is_fair(err))
        printf("answered %s\n", hf_err_name(err));
    assert_true(is_fair(err));
}

/* The answer of what was started; out of memory if it was not. */
static enum hf_err answer(enum hf_err err, struct hf_future *future)
{
    return err ? err : hf_world_wait(&world, future);
}

/* ---- What is tried: each leaves nothing behind --------------------------*/

static void take_and_give_back(void)
{
    struct hf_future *future = NULL;
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    enum hf_err err;

    hf_lock_opts_init(&opts);
    opts.value = hf_bytes_of("value");
    opts.note = "note";
    opts.renew = true;
    err = hf_acquire_start(client, hf_key_of("x"), &opts, &lock, NULL, NULL,
                           &future);
    err = answer(err, future);
    demand_fair(err);
    if (err)
        return;
    err = hf_release_start(lock, NULL, NULL, &future);
    demand_fair(answer(err, future));
    hf_lock_free(lock);
}

static void queue_and_be_granted(void)
{
    struct hf_lock_opts opts;
    struct hf_lock *first, *second;
    struct hf_future *future = NULL;
    enum hf_err err;

    hf_lock_opts_init(&opts);
    err = hf_acquire_start(other, hf_key_of("y"), &opts, &first, NULL, NULL,
                           &future);
    err = answer(err, future);
    demand_fair(err);
    if (err)
        return;
    err = hf_acquire_start(client, hf_key_of("y"), &opts, &second, NULL, NULL,
                           &future);
    hf_lock_free(first);
    /* Without memory for the withdrawal the lease has to end it. */
    hf_world_run(&world, 12000);
    err = answer(err, future);
    assert_true(is_fair(err) || err == HF_ETIMEDOUT);
    if (!err)
        hf_lock_free(second);
}

static void renew_and_update(void)
{
    struct hf_future *future = NULL;
    struct hf_bytes expected = hf_bytes_of("v");
    enum hf_err err = hf_renew_start(held, 0, NULL, NULL, &future);

    demand_fair(answer(err, future));
    err = hf_update_start(held, NULL, hf_bytes_of("v"), NULL, NULL, &future);
    err = answer(err, future);
    demand_fair(err);
    if (err)
        return;
    err =
        hf_update_start(held, &expected, hf_bytes_of("v"), NULL, NULL, &future);
    demand_fair(answer(err, future));
}

static bool skip_info(const struct hf_info *info, void *arg)
{
    (void)info;
    (void)arg;
    return true;
}

static void read_and_list(void)
{
    struct hf_future *future = NULL;
    struct hf_info info = {0};
    enum hf_err err = hf_read_start(client, hf_key_of("held"), HF_LINEARIZABLE,
                                    &info, NULL, NULL, &future);

    err = answer(err, future);
    demand_fair(err);
    if (!err)
        hf_info_fini(&info);
    err = hf_list_start(client, hf_key_of(""), skip_info, NULL, NULL, NULL,
                        &future);
    demand_fair(answer(err, future));
}

static unsigned events;

static void see(const struct hf_event *event, void *arg)
{
    (void)arg;
    (void)event;
    events++;
}

static void watch(void)
{
    struct hf_future *future = NULL;
    struct hf_watch *made;
    struct hf_lock *lock;
    enum hf_err err = hf_watch_open_start(client, hf_key_of(""), NULL, see,
                                          NULL, &made, NULL, NULL, &future);

    err = answer(err, future);
    demand_fair(err);
    if (err)
        return;
    if (!hf_acquire_start(other, hf_key_of("z"), NULL, &lock, NULL, NULL,
                          &future) &&
        !hf_world_wait(&world, future))
        hf_lock_free(lock);
    hf_world_run(&world, 10);
    hf_watch_close(made);
    hf_world_run(&world, 10);
}

static void wait_for_a_state(void)
{
    struct hf_future *future = NULL;
    struct hf_info info = {0};
    enum hf_freed freed;
    enum hf_err err = hf_wait_held_start(client, hf_key_of("held"), 100, &info,
                                         NULL, NULL, &future);

    err = answer(err, future);
    demand_fair(err);
    if (!err)
        hf_info_fini(&info);
    err = hf_wait_free_start(client, hf_key_of("nobody"), 100, &freed, NULL,
                             NULL, &future);
    demand_fair(answer(err, future));
}

static void claim_again_and_adopt(void)
{
    struct hf_future *future = NULL;
    uint8_t nonce[HF_NONCE_SIZE] = {1};
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    enum hf_err err;

    hf_lock_opts_init(&opts);
    opts.idle = true;
    err = hf_lock_new(client, hf_key_of("w"), &opts, &lock);
    demand_fair(err);
    if (!err) {
        err = hf_lock_acquire_start(lock, NULL, NULL, &future);
        demand_fair(answer(err, future));
        hf_lock_free(lock);
    }
    err = hf_lock_adopt(client, hf_key_of("w"), nonce, 1, NULL, &lock);
    demand_fair(err);
    if (!err)
        hf_lock_free(lock);
}

static void open_and_close(void)
{
    struct hf_client *made;
    struct hf_error error;
    struct hf_client_opts opts;
    enum hf_err err;

    hf_client_opts_init(&opts);
    opts.error = &error;
    err = hf_open("memory:scarce", &opts, &made);
    demand_fair(err);
    if (err)
        assert_int_equal(error.code, HF_ENOMEM);
    else
        assert_int_equal(hf_close(made, 0), HF_OK);
}

/* ---- The sweep ----------------------------------------------------------*/

static void begin(void)
{
    struct hf_lock_opts opts;

    hf_world_init(&world, 3);
    world.plain = true;
    client = hf_world_open(&world);
    other = hf_world_open(&world);
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 600000;
    assert_int_equal(hf_world_lock(&world, client, "held", &opts, &held),
                     HF_OK);
}

static void end(void)
{
    /* What could not be withdrawn ends with its lease. */
    hf_world_run(&world, 12000);
    assert_true(hf_lock_valid_for(held, 0));
    assert_int_equal(hf_world_unlock(&world, held), HF_OK);
    hf_lock_free(held);
    hf_world_fini(&world);
}

/* Run `try` with no failure, then once for each of its allocations. */
static void sweep(void (*try)(void))
{
    long before = hf_alloc_blocks();
    unsigned long calls;

    begin();
    calls = hf_alloc_calls();
    try();
    calls = hf_alloc_calls() - calls;
    end();
    assert_int_equal(hf_alloc_blocks(), before);
    assert_true(calls > 0);
    for (unsigned long nth = 1; nth <= calls; nth++) {
        begin();
        hf_alloc_fail(nth, 1);
        try();
        (void)hf_alloc_failed();
        end();
        if (hf_alloc_blocks() != before)
            printf("the failure of allocation %lu leaks %ld blocks\n", nth,
                   hf_alloc_blocks() - before);
        assert_int_equal(hf_alloc_blocks(), before);
    }
    printf("%lu allocations\n", calls);
}

#define CASE_OF(name)                                                          \
    static void memory_fails_in_##name(void **state)                           \
    {                                                                          \
        (void)state;                                                           \
        sweep(name);                                                           \
    }

CASE_OF(take_and_give_back)
CASE_OF(queue_and_be_granted)
CASE_OF(renew_and_update)
CASE_OF(read_and_list)
CASE_OF(watch)
CASE_OF(wait_for_a_state)
CASE_OF(claim_again_and_adopt)
CASE_OF(open_and_close)

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(memory_fails_in_take_and_give_back),
        cmocka_unit_test(memory_fails_in_queue_and_be_granted),
        cmocka_unit_test(memory_fails_in_renew_and_update),
        cmocka_unit_test(memory_fails_in_read_and_list),
        cmocka_unit_test(memory_fails_in_watch),
        cmocka_unit_test(memory_fails_in_wait_for_a_state),
        cmocka_unit_test(memory_fails_in_claim_again_and_adopt),
        cmocka_unit_test(memory_fails_in_open_and_close),
    };

    return hf_test_main("scarcity", cases, HF_TEST_COUNT(cases), 0);
}
