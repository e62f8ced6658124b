/* Waiters in many processes are served in FIFO order, and dead waiters are
 * skipped at once. */
#include <stdatomic.h>

#include "lib/child.h"
#include "lib/expect.h"
#include "lib/recorded.h"
#include "lib/recording.h"
#include "lib/site.h"

#define WAITERS 50

static struct {
    atomic_uint count;
    unsigned numbers[WAITERS];
    uint64_t tokens[WAITERS];
} * served;

static int set_up(void **state)
{
    served = hf_child_share(sizeof(*served));
    recorded_init(true);
    return hf_site_set_up(state);
}

static void wait_and_record(void *arg)
{
    struct hf_lock_opts opts = hf_site_wait_opts();
    struct hf_client *client = hf_site_open();
    struct hf_lock *lock;
    unsigned position;

    assert_int_equal(
        recorded_acquire_fifo(client, hf_key_of("k"), &opts, &lock), HF_OK);
    position = atomic_fetch_add(&served->count, 1);
    served->numbers[position] = *(const unsigned *)arg;
    served->tokens[position] = hf_lock_token(lock);
    assert_int_equal(recorded_release(client, lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

/* Start the waiters one by one: each is in the queue before the next one
 * starts. */
static void start_waiters(struct hf_client *client, pid_t pids[WAITERS])
{
    for (unsigned i = 0; i < WAITERS; i++) {
        pids[i] = hf_child_start(wait_and_record, &i);
        hf_site_await_waiters(client, "k", i + 1);
    }
}

static unsigned kill_waiters(const pid_t pids[WAITERS],
                             bool (*dies)(unsigned i), unsigned alive[WAITERS])
{
    unsigned count = 0;

    for (unsigned i = 0; i < WAITERS; i++) {
        if (dies(i))
            hf_child_kill(pids[i]);
        else
            alive[count++] = i;
    }
    return count;
}

/* Hold the key until all waiters are in the queue and those that `dies` selects
 * are dead. The others get the key in FIFO order. Their tokens are consecutive,
 * so no dead waiter was granted the key in between. */
static void expect_fifo_order(bool (*dies)(unsigned i))
{
    struct hf_lock_opts opts = hf_site_wait_opts();
    struct hf_client *client = hf_site_open();
    unsigned alive[WAITERS], count;
    pid_t pids[WAITERS];
    struct hf_lock *lock;

    assert_int_equal(
        recorded_acquire_fifo(client, hf_key_of("k"), &opts, &lock), HF_OK);
    start_waiters(client, pids);
    count = kill_waiters(pids, dies, alive);
    assert_int_equal(recorded_release(client, lock), HF_OK);
    for (unsigned i = 0; i < count; i++)
        hf_child_join(pids[alive[i]]);
    assert_int_equal(served->count, count);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(served->numbers[i], alive[i]);
        assert_int_equal(served->tokens[i], hf_lock_token(lock) + 1 + i);
    }
    assert_true(recording_grants() >= count + 1);
    assert_int_equal(recorded_check("case"), 0);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

static bool none(unsigned i)
{
    (void)i;
    return false;
}

static bool every_third(unsigned i)
{
    return i % 3 == 2;
}

static bool all_but_the_last(unsigned i)
{
    return i < WAITERS - 1;
}

static void fifty_processes_are_served_in_fifo_order(void **state)
{
    (void)state;
    expect_fifo_order(none);
}

static void dead_waiters_among_fifty_are_skipped_at_once(void **state)
{
    (void)state;
    expect_fifo_order(every_third);
}

static void last_waiter_is_served_at_once_when_all_others_are_dead(void **state)
{
    (void)state;
    expect_fifo_order(all_but_the_last);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_site_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(fifty_processes_are_served_in_fifo_order),
        CASE(dead_waiters_among_fifty_are_skipped_at_once),
        CASE(last_waiter_is_served_at_once_when_all_others_are_dead),
    };

    return hf_test_main("order", cases, HF_TEST_COUNT(cases), 0);
}
