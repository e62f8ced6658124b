/* A suspended machine suspends all clients of file: and memory:, so the time of
 * the suspension does not count against a lease. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/expect.h"
#include "lib/site.h"

static time_t suspended_s;

/* Replaces the function of libc, so that by CLOCK_BOOTTIME the machine was
 * suspended for suspended_s seconds. */
int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    int err = (int)syscall(SYS_clock_gettime, clock_id, tp);

    if (!err && clock_id == CLOCK_BOOTTIME)
        tp->tv_sec += suspended_s;
    return err;
}

static int set_up(void **state)
{
    suspended_s = 0;
    return hf_site_set_up(state);
}

static void expect_held_after_suspension(struct hf_client *client,
                                         struct hf_client *other)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock, *none;
    int64_t deadline;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = HF_TEST_LONG_MS;
    opts.wait_ms = 0;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    deadline = hf_lock_deadline(lock);
    suspended_s = 24L * 3600;
    assert_true(hf_lock_valid_for(lock, 0));
    assert_true(hf_lock_deadline(lock) >= deadline + suspended_s * 1000);
    assert_int_equal(hf_acquire(other, hf_key_of("k"), &opts, &none), HF_EBUSY);
    assert_int_equal(hf_renew(lock, 0), HF_OK);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
    assert_int_equal(hf_close(other, HF_TEST_TIMEOUT_MS), HF_OK);
}

static void file_locks_survive_a_suspension(void **state)
{
    (void)state;
    expect_held_after_suspension(hf_site_open(), hf_site_open());
}

static void memory_locks_survive_a_suspension(void **state)
{
    struct hf_client *clients[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(hf_open("memory:suspend", NULL, &clients[i]), HF_OK);
    expect_held_after_suspension(clients[0], clients[1]);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_site_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(file_locks_survive_a_suspension),
        CASE(memory_locks_survive_a_suspension),
    };

    return hf_test_main("suspend", cases, HF_TEST_COUNT(cases), 0);
}
