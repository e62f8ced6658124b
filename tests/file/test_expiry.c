/* If a holder is stopped, or has detached its lock and exited, the key is kept
 * for the whole lease, and then granted to the first waiter, in another
 * process. */
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/time.h"
#include "lib/child.h"
#include "lib/expect.h"
#include "lib/site.h"

#define TTL_MS 1000
#define LEASE_MS (TTL_MS + TTL_MS / 16 + 50)

/* Times recorded by two processes: before the first process requested the key,
 * and when the next process had it. */
static struct {
    _Atomic hf_time requested_at;
    _Atomic hf_time granted_at;
} * shared;

static int set_up(void **state)
{
    shared = hf_child_share(sizeof(*shared));
    return hf_site_set_up(state);
}

static struct hf_lock *take_key(struct hf_client *client, uint32_t ttl_ms)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = ttl_ms;
    opts.wait_ms = HF_FOREVER;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    return lock;
}

static void detach_and_exit(void *arg)
{
    struct hf_client *client = hf_site_open();

    (void)arg;
    atomic_store(&shared->requested_at, hf_time_now());
    assert_int_equal(hf_lock_detach(take_key(client, TTL_MS)), HF_OK);
}

static void detach_and_stop(void *arg)
{
    struct hf_lock *lock = take_key(hf_site_open(), TTL_MS);

    (void)arg;
    assert_int_equal(hf_lock_detach(lock), HF_OK);
    assert_int_equal(raise(SIGSTOP), 0);
}

/* When this process continues, another client has been granted the key, and
 * this process knows that its lock has expired. */
static void hold_and_stop(void *arg)
{
    struct hf_lock *lock = take_key(hf_site_open(), TTL_MS);

    (void)arg;
    assert_int_equal(raise(SIGSTOP), 0);
    assert_false(hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_release(lock), HF_EEXPIRED);
}

static void take_over(void *arg)
{
    struct hf_lock *lock = take_key(hf_site_open(), HF_TEST_LONG_MS);

    (void)arg;
    atomic_store(&shared->granted_at, hf_time_now());
    assert_int_equal(hf_release(lock), HF_OK);
}

static void join_holder(pid_t holder, pid_t next)
{
    hf_child_join(holder);
    hf_child_join(next);
}

static void kill_holder(pid_t holder, pid_t next)
{
    hf_child_await_stop(holder);
    hf_child_kill(holder);
    hf_child_join(next);
}

static void stop_holder(pid_t holder, pid_t next)
{
    hf_child_await_stop(holder);
    hf_child_join(next);
    hf_child_continue(holder);
    hf_child_join(holder);
}

/* Check that a process that runs `hold` keeps the key for its whole lease,
 * before the next process is granted it. `end` ends both processes. Both are in
 * the queue before the first is granted the key, so the second takes over as a
 * waiter. */
static void expect_whole_lease(void (*hold)(void *arg),
                               void (*end)(pid_t holder, pid_t next))
{
    struct hf_client *client = hf_site_open();
    struct hf_lock *lock;
    hf_time not_granted;
    pid_t holder, next;

    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    holder = hf_child_start(hold, NULL);
    hf_site_await_waiters(client, "k", 1);
    next = hf_child_start(take_over, NULL);
    hf_site_await_waiters(client, "k", 2);
    not_granted = hf_time_now();
    assert_int_equal(hf_release(lock), HF_OK);
    end(holder, next);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
    assert_true(shared->granted_at >= not_granted + LEASE_MS);
}

static void detached_lock_keeps_its_lease_after_exit(void **state)
{
    (void)state;
    expect_whole_lease(detach_and_exit, join_holder);
}

static void detached_lock_of_a_killed_process_keeps_its_lease(void **state)
{
    (void)state;
    expect_whole_lease(detach_and_stop, kill_holder);
}

static void stopped_process_keeps_the_key_for_its_lease(void **state)
{
    (void)state;
    expect_whole_lease(hold_and_stop, stop_holder);
}

/* Every request expires the leases that are due, so send many requests: none of
 * them may expire the lease early. */
static void lease_does_not_expire_early_when_clients_poll(void **state)
{
    const struct timespec delay = {.tv_nsec = 500000};
    struct hf_client *client = hf_site_open();
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    enum hf_err err;

    (void)state;
    hf_lock_opts_init(&opts);
    opts.wait_ms = 0;
    hf_child_join(hf_child_start(detach_and_exit, NULL));
    while ((err = hf_acquire(client, hf_key_of("k"), &opts, &lock)) == HF_EBUSY)
        nanosleep(&delay, NULL);
    assert_int_equal(err, HF_OK);
    assert_true(hf_time_now() >= shared->requested_at + LEASE_MS);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

static void detach_one_and_wait_for_another(void *arg)
{
    struct hf_client *client = hf_site_open();
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    (void)arg;
    hf_lock_opts_init(&opts);
    opts.wait_ms = HF_FOREVER;
    assert_int_equal(hf_acquire(client, hf_key_of("other"), &opts, &lock),
                     HF_OK);
    assert_int_equal(hf_lock_detach(lock), HF_OK);
    (void)hf_acquire(client, hf_key_of("k"), &opts, &lock);
}

static void expect_busy(struct hf_client *client, const char *key)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    hf_lock_opts_init(&opts);
    opts.wait_ms = 0;
    assert_int_equal(hf_acquire(client, hf_key_of(key), &opts, &lock),
                     HF_EBUSY);
}

/* Other clients end the session of a dead waiter, and so does the next client
 * in its slot. A lock that the waiter detached must outlive the session. */
static void detached_lock_of_a_dead_waiter_is_kept(void **state)
{
    struct hf_client *client = hf_site_open();
    struct hf_client *next;
    struct hf_lock *lock;
    pid_t pid;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    pid = hf_child_start(detach_one_and_wait_for_another, NULL);
    hf_site_await_waiters(client, "k", 1);
    hf_child_kill(pid);
    assert_int_equal(hf_release(lock), HF_OK);
    expect_busy(client, "other");
    next = hf_site_open();
    expect_busy(next, "other");
    hf_lock_free(lock);
    assert_int_equal(hf_close(next, HF_TEST_TIMEOUT_MS), HF_OK);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_site_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(detached_lock_keeps_its_lease_after_exit),
        CASE(detached_lock_of_a_killed_process_keeps_its_lease),
        CASE(stopped_process_keeps_the_key_for_its_lease),
        CASE(lease_does_not_expire_early_when_clients_poll),
        CASE(detached_lock_of_a_dead_waiter_is_kept),
    };

    return hf_test_main("expiry", cases, HF_TEST_COUNT(cases), 0);
}
