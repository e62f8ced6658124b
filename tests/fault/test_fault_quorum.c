/* Masters of a quorum that are killed, started again and stopped, and clients
 * that are killed. Nothing that was acknowledged is lost while a majority of
 * the masters runs and is not quiet. */
#include <signal.h>
#include <stdlib.h>

#include "fault/load.h"
#include "lib/child.h"
#include "lib/expect.h"
#include "lib/recorded.h"

#define cluster hf_load_cluster

/* The lease of a ttl is a sixteenth and 50 ms longer, and must not be longer
 * than the longest lease. A master that is started again is quiet for that
 * long. */
#define TTL_MS 1800
#define LEASE_MAX_MS 2000

static int set_up(void **state)
{
    (void)state;
    hf_load_open_masters(3, LEASE_MAX_MS);
    return 0;
}

static int set_up_five(void **state)
{
    (void)state;
    hf_load_open_masters(5, LEASE_MAX_MS);
    return 0;
}

static struct hf_lock_opts quorum_opts(void)
{
    return hf_test_opts(TTL_MS, HF_FOREVER, HF_TEST_LONG_MS);
}

/* Start a master again, and wait until it votes. */
static void restart_master(unsigned master)
{
    uint64_t quiet_ms = 1;

    assert_true(hf_test_cluster_restart(&cluster, master));
    while (!hf_test_node_info(&cluster, master, "quiet_ms", &quiet_ms) ||
           quiet_ms > 0)
        hf_test_pause();
}

/* LK-02, LK-06, LK-24, LK-25 */
static void killed_masters_lose_nothing_under_load(void **state)
{
    (void)state;
    hf_load_start(TTL_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 3); i++) {
        hf_load_await_grants(20);
        hf_test_cluster_kill(&cluster, i % 3);
        hf_load_await_grants(20);
        restart_master(i % 3);
    }
    hf_load_check();
}

/* While a second master is killed before the first one votes again, there is no
 * majority. */
static void quiet_masters_lose_nothing_under_load(void **state)
{
    (void)state;
    hf_load_start(TTL_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 2); i++) {
        hf_load_await_grants(20);
        hf_test_cluster_kill(&cluster, i % 3);
        assert_true(hf_test_cluster_restart(&cluster, i % 3));
        hf_test_cluster_kill(&cluster, (i + 1) % 3);
        restart_master((i + 1) % 3);
    }
    hf_load_check();
}

/* Tokens rise, although no master remembers a lock. */
static void all_masters_killed_under_load_repeat_no_token(void **state)
{
    (void)state;
    hf_load_start(TTL_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 2); i++) {
        hf_load_await_grants(20);
        for (unsigned master = 0; master < 3; master++)
            hf_test_cluster_kill(&cluster, master);
        for (unsigned master = 0; master < 3; master++)
            assert_true(hf_test_cluster_restart(&cluster, master));
    }
    hf_load_check();
}

static void two_of_five_masters_may_be_down(void **state)
{
    (void)state;
    hf_load_start(TTL_MS);
    hf_load_await_grants(10);
    hf_test_cluster_kill(&cluster, 0);
    hf_test_cluster_kill(&cluster, 4);
    hf_load_await_grants(50);
    restart_master(0);
    hf_load_check();
}

/* A stopped master answers late, with what it knew before. */
static void stopped_masters_lose_nothing_under_load(void **state)
{
    (void)state;
    hf_load_start(TTL_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 3); i++) {
        hf_load_await_grants(20);
        hf_test_node_stop(&cluster, i % 3);
        hf_load_await_grants(20);
        hf_test_node_continue(&cluster, i % 3);
    }
    hf_load_await_grants(10);
    hf_load_check();
}

/* LK-23: what a killed client leaves behind ends with its lease. */
static void killed_clients_block_no_key(void **state)
{
    (void)state;
    hf_load_start(TTL_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 4); i++) {
        hf_load_await_grants(5);
        hf_load_kill_client(i % HF_LOAD_CLIENTS);
    }
    hf_load_check();
}

/* LK-13: renewals bring the lease to masters that have forgotten it, so that
 * every master can be started again, one after the other. */
static void a_renewed_lock_outlives_each_master(void **state)
{
    struct hf_client_opts client_opts;
    struct hf_lock_opts opts = quorum_opts();
    struct hf_client *client, *other = hf_load_client();
    struct hf_lock *lock, *none;
    char url[256];

    (void)state;
    hf_client_opts_init(&client_opts);
    client_opts.background = true;
    hf_test_cluster_url(&cluster, url, sizeof(url), "");
    expect_ok(hf_open(url, &client_opts, &client));
    opts.renew = true;
    expect_ok(recorded_acquire(client, hf_key_of("k"), &opts, &lock));
    opts = quorum_opts();
    opts.wait_ms = 0;
    for (unsigned i = 0; i < 3; i++) {
        uint64_t held = 0;

        hf_test_cluster_kill(&cluster, i);
        restart_master(i);
        while (held == 0) {
            assert_true(hf_test_node_info(&cluster, i, "held", &held));
            hf_test_pause();
        }
        expect_err(recorded_acquire(other, hf_key_of("k"), &opts, &none),
                   HF_EBUSY);
    }
    assert_true(recorded_is_valid(client, lock));
    expect_ok(recorded_release(client, lock));
    hf_lock_free(lock);
    (void)hf_close(client, 1000);
    (void)hf_close(other, 1000);
    assert_int_equal(recorded_check("case"), 0);
}

/* LK-07: the state is kept, and a local read still shows it. */
static void a_minority_grants_and_releases_nothing(void **state)
{
    struct hf_client *client = hf_load_client();
    struct hf_lock_opts opts = quorum_opts();
    struct hf_lock *held, *lock;
    struct hf_info info;
    enum hf_err err;

    (void)state;
    opts.timeout_ms = 1000;
    expect_ok(recorded_acquire(client, hf_key_of("held"), &opts, &held));
    hf_test_cluster_kill(&cluster, 0);
    hf_test_cluster_kill(&cluster, 1);
    opts.wait_ms = 0;
    err = recorded_acquire(client, hf_key_of("k"), &opts, &lock);
    assert_true(err == HF_EUNAVAIL || err == HF_EINDOUBT);
    expect_ok(hf_read(client, hf_key_of("k"), HF_LOCAL, &info));
    hf_info_fini(&info);
    err = recorded_release(client, held);
    assert_true(err == HF_EUNAVAIL || err == HF_EINDOUBT || err == HF_EEXPIRED);
    hf_lock_free(held);
    restart_master(1);
    opts = quorum_opts();
    expect_ok(recorded_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(recorded_release(client, lock));
    hf_lock_free(lock);
    (void)hf_close(client, 1000);
    assert_int_equal(recorded_check("case"), 0);
}

static void wait_for_key(void *arg)
{
    struct hf_lock_opts opts = quorum_opts();
    struct hf_lock *lock;

    (void)arg;
    (void)recorded_acquire(hf_load_client(), hf_key_of("k"), &opts, &lock);
}

static void a_killed_clients_waiter_leaves_the_queue(void **state)
{
    struct hf_client *client = hf_load_client();
    struct hf_lock_opts opts = quorum_opts();
    struct hf_lock *lock;
    pid_t waiter;

    (void)state;
    expect_ok(recorded_acquire(client, hf_key_of("k"), &opts, &lock));
    waiter = hf_child_start(wait_for_key, NULL);
    hf_load_await_waiters(client, 1);
    recorded_kill(waiter);
    hf_load_await_waiters(client, 0);
    (void)recorded_release(client, lock);
    hf_lock_free(lock);
    (void)hf_close(client, 1000);
    assert_int_equal(recorded_check("case"), 0);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_load_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(killed_masters_lose_nothing_under_load),
        CASE(quiet_masters_lose_nothing_under_load),
        CASE(all_masters_killed_under_load_repeat_no_token),
        CASE(stopped_masters_lose_nothing_under_load),
        CASE(killed_clients_block_no_key),
        CASE(a_renewed_lock_outlives_each_master),
        CASE(a_minority_grants_and_releases_nothing),
        CASE(a_killed_clients_waiter_leaves_the_queue),
        cmocka_unit_test_setup_teardown(two_of_five_masters_may_be_down,
                                        set_up_five, hf_load_tear_down),
    };

    return hf_test_main("fault_quorum", cases, HF_TEST_COUNT(cases), 4);
}
