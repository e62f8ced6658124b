/* A cluster whose processes are stopped (SIGSTOP) and continued: leader,
 * follower, client. To the others, a stopped process is silent, and when it
 * continues, it knows nothing of what has happened. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "fault/load.h"
#include "lib/child.h"
#include "lib/expect.h"
#include "lib/recorded.h"

#define cluster hf_load_cluster

/* GO-20, GO-24, CF-03: a stopped leader is replaced, and when it continues, it
 * gives no answer that is out of date. */
static void stopped_leaders_lose_nothing_under_load(void **state)
{
    (void)state;
    hf_load_start(HF_TEST_LONG_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 2); i++) {
        unsigned leader = hf_test_cluster_leader(&cluster);

        hf_load_await_grants(10);
        hf_test_node_stop(&cluster, leader);
        hf_load_await_grants(10);
        hf_test_node_continue(&cluster, leader);
    }
    hf_load_await_grants(10);
    hf_load_check();
}

/* Each follower in turn; the leader goes on with the other one. LK-06 */
static void stopped_followers_lose_nothing_under_load(void **state)
{
    (void)state;
    hf_load_start(HF_TEST_LONG_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 2); i++) {
        unsigned leader = hf_test_cluster_leader(&cluster);
        unsigned follower = (leader + 1 + i % 2) % 3;

        hf_test_node_stop(&cluster, follower);
        hf_load_await_grants(20);
        hf_test_node_continue(&cluster, follower);
    }
    hf_load_check();
}

/* MS-12: if no node answers, validity ends by the holder's own clock, before
 * another client can have the lock. */
static void validity_ends_while_all_nodes_are_stopped(void **state)
{
    struct hf_client *client = hf_load_client(), *other = hf_load_client();
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_lock *lock, *next;

    (void)state;
    opts.ttl_ms = 1500;
    expect_ok(recorded_acquire(client, hf_key_of("k"), &opts, &lock));
    for (unsigned i = 0; i < 3; i++)
        hf_test_node_stop(&cluster, i);
    while (recorded_is_valid(client, lock))
        hf_test_pause();
    for (unsigned i = 0; i < 3; i++)
        hf_test_node_continue(&cluster, i);
    expect_ok(recorded_acquire(other, hf_key_of("k"), &opts, &next));
    assert_true(hf_lock_token(next) > hf_lock_token(lock));
    assert_int_not_equal(recorded_release(client, lock), HF_OK);
    (void)recorded_release(other, next);
    hf_lock_free(lock);
    hf_lock_free(next);
    (void)hf_close(client, 1000);
    (void)hf_close(other, 1000);
    assert_int_equal(recorded_check("case"), 0);
}

/* An election takes two flushes, one after the other. The disks stay as slow as
 * they are, so a client gets its lock only if elections wait for them. */
static void a_stopped_leader_is_replaced_on_slow_disks(void **state)
{
    unsigned leader = hf_test_cluster_leader(&cluster);
    struct hf_client *client = hf_load_client();
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_lock *lock;

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        hf_test_faults_set(hf_test_faults(&cluster, i), HF_FAULT_SLOW_SYNC, 0);
    hf_test_node_stop(&cluster, leader);
    expect_ok(recorded_acquire(client, hf_key_of("k"), &opts, &lock));
    hf_test_node_continue(&cluster, leader);
    expect_ok(recorded_release(client, lock));
    hf_lock_free(lock);
    (void)hf_close(client, 1000);
    assert_int_equal(recorded_check("case"), 0);
}

/* ---- A stopped client ---------------------------------------------------*/

struct stopped {
    atomic_bool holds, was_lost, ended;
    atomic_uint valid_after; /* 1 if the lock was valid after its loss */
};

static struct stopped *stopped;

static void on_event(struct hf_lock *lock, enum hf_lock_event event, void *arg)
{
    (void)lock;
    (void)arg;
    if (event == HF_LOCK_EVENT_LOST)
        atomic_store(&stopped->was_lost, true);
}

/* Hold the lock, with renewals, until it is lost. */
static void holder_main(void *arg)
{
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_client *client = hf_load_client();
    struct hf_lock *lock;

    (void)arg;
    opts.ttl_ms = 2000;
    opts.renew = true;
    opts.on_event = on_event;
    expect_ok(recorded_acquire(client, hf_key_of("k"), &opts, &lock));
    atomic_store(&stopped->holds, true);
    while (!atomic_load(&stopped->was_lost)) {
        (void)recorded_is_valid(client, lock);
        hf_test_pause();
    }
    atomic_fetch_add(&stopped->valid_after, hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    assert_int_not_equal(recorded_release(client, lock), HF_OK);
    hf_lock_free(lock);
    (void)recorded_close(client, HF_TEST_TIMEOUT_MS);
    atomic_store(&stopped->ended, true);
}

/* The lock of a stopped client goes to another one, and the client learns of
 * its loss when it continues. GO-08, MS-12, LK-23 */
static void a_stopped_client_loses_its_lock_and_learns_it(void **state)
{
    struct hf_client *client = hf_load_client();
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_lock *lock;
    pid_t pid;

    (void)state;
    stopped = hf_child_share(sizeof(*stopped));
    pid = hf_child_start(holder_main, NULL);
    while (!atomic_load(&stopped->holds))
        hf_test_pause();
    hf_child_stop(pid);
    expect_ok(recorded_acquire(client, hf_key_of("k"), &opts, &lock));
    hf_child_continue(pid);
    hf_child_join(pid);
    assert_true(atomic_load(&stopped->ended));
    assert_int_equal(atomic_load(&stopped->valid_after), 0);
    expect_ok(recorded_renew(client, lock, 0));
    expect_ok(recorded_release(client, lock));
    hf_lock_free(lock);
    (void)hf_close(client, 1000);
    assert_int_equal(recorded_check("case"), 0);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, hf_load_set_up, hf_load_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(stopped_leaders_lose_nothing_under_load),
        CASE(stopped_followers_lose_nothing_under_load),
        CASE(validity_ends_while_all_nodes_are_stopped),
        CASE(a_stopped_leader_is_replaced_on_slow_disks),
        CASE(a_stopped_client_loses_its_lock_and_learns_it),
    };

    return hf_test_main("fault_stops", cases, HF_TEST_COUNT(cases), 4);
}
