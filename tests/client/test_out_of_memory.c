/* Every allocation of every kind of call fails once. The call must return
 * HF_ENOMEM or succeed, nothing may leak, and a held lock must stay held. */
#include <stdio.h>

#include "lib/alloc.h"
#include "lib/runner.h"
#include "lib/world.h"

static struct hf_world world;
static struct hf_client *client, *other;
static struct hf_lock *held; /* `client` holds it during the whole test */

static bool is_expected(enum hf_err err)
{
    return err == HF_OK || err == HF_ENOMEM;
}

static void require_expected(enum hf_err err)
{
    if (!is_expected(err))
        printf("returned %s\n", hf_err_name(err));
    assert_true(is_expected(err));
}

/* Wait for `future` and return its result. `err` is the result of the call that
 * started it; if it is not HF_OK, there is no future, and `err` is returned. */
static enum hf_err result_of(enum hf_err err, struct hf_future *future)
{
    return err ? err : hf_world_wait(&world, future);
}

/* ---- Scenarios: each one releases everything that it acquires -----------*/

static void acquire_and_release(void)
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
    err = result_of(err, future);
    require_expected(err);
    if (err)
        return;
    err = hf_release_start(lock, NULL, NULL, &future);
    require_expected(result_of(err, future));
    hf_lock_free(lock);
}

static void wait_and_be_granted(void)
{
    struct hf_lock_opts opts;
    struct hf_lock *first, *second;
    struct hf_future *future = NULL;
    enum hf_err err;

    hf_lock_opts_init(&opts);
    err = hf_acquire_start(other, hf_key_of("y"), &opts, &first, NULL, NULL,
                           &future);
    err = result_of(err, future);
    require_expected(err);
    if (err)
        return;
    err = hf_acquire_start(client, hf_key_of("y"), &opts, &second, NULL, NULL,
                           &future);
    hf_lock_free(first);
    /* If there was no memory for the withdrawal, the lease has to expire. */
    hf_world_run(&world, 12000);
    err = result_of(err, future);
    assert_true(is_expected(err) || err == HF_ETIMEDOUT);
    if (!err)
        hf_lock_free(second);
}

static void renew_and_update(void)
{
    struct hf_future *future = NULL;
    struct hf_bytes expected = hf_bytes_of("v");
    enum hf_err err = hf_renew_start(held, 0, NULL, NULL, &future);

    require_expected(result_of(err, future));
    err = hf_update_start(held, NULL, hf_bytes_of("v"), NULL, NULL, &future);
    err = result_of(err, future);
    require_expected(err);
    if (err)
        return;
    err =
        hf_update_start(held, &expected, hf_bytes_of("v"), NULL, NULL, &future);
    require_expected(result_of(err, future));
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

    err = result_of(err, future);
    require_expected(err);
    if (!err)
        hf_info_fini(&info);
    err = hf_list_start(client, hf_key_of(""), skip_info, NULL, NULL, NULL,
                        &future);
    require_expected(result_of(err, future));
}

static void ignore_event(const struct hf_event *event, void *arg)
{
    (void)arg;
    (void)event;
}

static void watch_events(void)
{
    struct hf_future *future = NULL;
    struct hf_watch *watch;
    struct hf_lock *lock;
    enum hf_err err =
        hf_watch_open_start(client, hf_key_of(""), NULL, ignore_event, NULL,
                            &watch, NULL, NULL, &future);

    err = result_of(err, future);
    require_expected(err);
    if (err)
        return;
    if (!hf_acquire_start(other, hf_key_of("z"), NULL, &lock, NULL, NULL,
                          &future) &&
        !hf_world_wait(&world, future))
        hf_lock_free(lock);
    hf_world_run(&world, 10);
    hf_watch_close(watch);
    hf_world_run(&world, 10);
}

static void wait_for_a_state(void)
{
    struct hf_future *future = NULL;
    struct hf_info info = {0};
    enum hf_freed freed;
    enum hf_err err = hf_wait_held_start(client, hf_key_of("held"), 100, &info,
                                         NULL, NULL, &future);

    err = result_of(err, future);
    require_expected(err);
    if (!err)
        hf_info_fini(&info);
    err = hf_wait_free_start(client, hf_key_of("free"), 100, &freed, NULL, NULL,
                             &future);
    require_expected(result_of(err, future));
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
    require_expected(err);
    if (!err) {
        err = hf_lock_acquire_start(lock, NULL, NULL, &future);
        require_expected(result_of(err, future));
        hf_lock_free(lock);
    }
    err = hf_lock_adopt(client, hf_key_of("w"), nonce, 1, NULL, &lock);
    require_expected(err);
    if (!err)
        hf_lock_free(lock);
}

static void open_and_close(void)
{
    struct hf_client *opened;
    struct hf_error error;
    struct hf_client_opts opts;
    enum hf_err err;

    hf_client_opts_init(&opts);
    opts.error = &error;
    err = hf_open("memory:out-of-memory", &opts, &opened);
    require_expected(err);
    if (err)
        assert_int_equal(error.code, HF_ENOMEM);
    else
        assert_int_equal(hf_close(opened, 0), HF_OK);
}

/* ---- Running a scenario -------------------------------------------------*/

static void set_up(void)
{
    struct hf_lock_opts opts;

    hf_world_init(&world, 3);
    world.plain = true;
    client = hf_world_open(&world);
    other = hf_world_open(&world);
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 600000;
    assert_int_equal(hf_world_acquire(&world, client, "held", &opts, &held),
                     HF_OK);
}

static void tear_down(void)
{
    /* Claims that could not be withdrawn end when their leases expire. */
    hf_world_run(&world, 12000);
    assert_true(hf_lock_valid_for(held, 0));
    assert_int_equal(hf_world_release(&world, held), HF_OK);
    hf_lock_free(held);
    hf_world_fini(&world);
}

/* Run `scenario` without a failure, then once for each of its allocations, with
 * that allocation failing. */
static void fail_each_allocation(void (*scenario)(void))
{
    long before = hf_alloc_blocks();
    unsigned long calls;

    set_up();
    calls = hf_alloc_calls();
    scenario();
    calls = hf_alloc_calls() - calls;
    tear_down();
    assert_int_equal(hf_alloc_blocks(), before);
    assert_true(calls > 0);
    for (unsigned long nth = 1; nth <= calls; nth++) {
        set_up();
        hf_alloc_fail(nth, 1);
        scenario();
        (void)hf_alloc_failed();
        tear_down();
        if (hf_alloc_blocks() != before)
            printf("%ld blocks leak when allocation %lu fails\n",
                   hf_alloc_blocks() - before, nth);
        assert_int_equal(hf_alloc_blocks(), before);
    }
    printf("%lu allocations\n", calls);
}

#define CASE_OF(name)                                                          \
    static void memory_fails_in_##name(void **state)                           \
    {                                                                          \
        (void)state;                                                           \
        fail_each_allocation(name);                                            \
    }

CASE_OF(acquire_and_release)
CASE_OF(wait_and_be_granted)
CASE_OF(renew_and_update)
CASE_OF(read_and_list)
CASE_OF(watch_events)
CASE_OF(wait_for_a_state)
CASE_OF(claim_again_and_adopt)
CASE_OF(open_and_close)

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(memory_fails_in_acquire_and_release),
        cmocka_unit_test(memory_fails_in_wait_and_be_granted),
        cmocka_unit_test(memory_fails_in_renew_and_update),
        cmocka_unit_test(memory_fails_in_read_and_list),
        cmocka_unit_test(memory_fails_in_watch_events),
        cmocka_unit_test(memory_fails_in_wait_for_a_state),
        cmocka_unit_test(memory_fails_in_claim_again_and_adopt),
        cmocka_unit_test(memory_fails_in_open_and_close),
    };

    return hf_test_main("out_of_memory", cases, HF_TEST_COUNT(cases), 0);
}
