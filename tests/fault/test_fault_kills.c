/* A cluster whose processes are killed: leaders, followers, all nodes, clients.
 * Nothing that was acknowledged is lost. */
#include <signal.h>
#include <stdatomic.h>

#include "fault/load.h"
#include "lib/child.h"
#include "lib/expect.h"
#include "lib/recorded.h"

#define cluster hf_load_cluster

static void restart_node(unsigned node)
{
    assert_true(hf_test_cluster_restart(&cluster, node));
}

/* GO-19, GO-20, GO-22, GO-24, GO-32, G2-07, CF-03, MJ-08, MJ-09, MS-05 */
static void killed_leaders_lose_nothing_under_load(void **state)
{
    (void)state;
    hf_load_start(HF_TEST_LONG_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 6); i++) {
        unsigned leader = hf_test_cluster_leader(&cluster);

        hf_load_await_grants(10);
        hf_test_cluster_kill(&cluster, leader);
        if (i % 2) /* sometimes without progress in between */
            hf_load_await_grants(10);
        restart_node(leader);
    }
    hf_load_check();
}

/* GO-20, GO-32 */
static void killed_followers_lose_nothing_under_load(void **state)
{
    (void)state;
    hf_load_start(HF_TEST_LONG_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 6); i++) {
        unsigned leader = hf_test_cluster_leader(&cluster);
        unsigned follower = (leader + 1 + i % 2) % 3;

        hf_test_cluster_kill(&cluster, follower);
        hf_load_await_grants(10);
        restart_node(follower);
    }
    hf_load_check();
}

/* G2-13: all nodes are killed, before the first of them is restarted. */
static void all_nodes_killed_under_load_lose_nothing(void **state)
{
    (void)state;
    hf_load_start(HF_TEST_LONG_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 4); i++) {
        hf_load_await_grants(10);
        for (unsigned node = 0; node < 3; node++)
            hf_test_cluster_kill(&cluster, (node + i) % 3);
        for (unsigned node = 0; node < 3; node++)
            restart_node(node);
    }
    hf_load_check();
}

/* Clients that hold locks or wait for them are killed, and leaders too: what
 * the clients leave behind ends with their leases and sessions. */
static void killed_clients_and_leaders_block_no_key(void **state)
{
    (void)state;
    hf_load_start(2000);
    for (unsigned i = 0; hf_load_goes_on(i, 4); i++) {
        unsigned leader = hf_test_cluster_leader(&cluster);

        hf_load_await_grants(2);
        hf_load_kill_client(i % HF_LOAD_CLIENTS);
        hf_test_cluster_kill(&cluster, leader);
        restart_node(leader);
    }
    hf_load_check();
}

/* GO-14, GO-19, G2-13, MS-05: calls wait for the election, the holder still has
 * the lock, with its token, and the queue has kept its order. */
static void locks_and_queue_survive_a_kill_of_all_nodes(void **state)
{
    struct hf_client *holder = hf_load_client(), *other = hf_load_client();
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_lock *held, *waiting[2];
    struct hf_info info;
    uint64_t token;

    (void)state;
    expect_ok(recorded_acquire(holder, hf_key_of("k"), &opts, &held));
    token = hf_lock_token(held);
    for (unsigned i = 0; i < 2; i++) {
        expect_ok(recorded_lock_new(other, hf_key_of("k"), &opts, &waiting[i]));
        hf_load_await_waiters(other, i + 1);
    }
    for (unsigned i = 0; i < 3; i++)
        hf_test_cluster_kill(&cluster, i);
    for (unsigned i = 0; i < 3; i++)
        restart_node(i);
    expect_ok(hf_read(other, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_true(info.held);
    assert_int_equal(info.token, token);
    assert_int_equal(info.waiters, 2);
    hf_info_fini(&info);
    expect_ok(recorded_renew(holder, held, 0));
    expect_ok(recorded_release(holder, held));
    for (unsigned i = 0; i < 2; i++) {
        expect_ok(recorded_lock_wait(waiting[i]));
        assert_true(hf_lock_token(waiting[i]) > token);
        token = hf_lock_token(waiting[i]);
        expect_ok(recorded_release(other, waiting[i]));
        hf_lock_free(waiting[i]);
    }
    hf_lock_free(held);
    (void)hf_close(holder, 1000);
    (void)hf_close(other, 1000);
    assert_int_equal(recorded_check("case"), 0);
}

/* GO-15, MJ-09: a release during an election is confirmed, and stays done. */
static void a_release_is_confirmed_while_there_is_no_leader(void **state)
{
    struct hf_client *client = hf_load_client();
    struct hf_lock_opts opts = hf_load_opts();

    (void)state;
    for (unsigned i = 0; hf_load_goes_on(i, 2); i++) {
        unsigned leader = hf_test_cluster_leader(&cluster);
        struct hf_lock *lock;
        struct hf_info info;

        expect_ok(recorded_acquire(client, hf_key_of("k"), &opts, &lock));
        hf_test_cluster_kill(&cluster, leader);
        expect_ok(recorded_release(client, lock));
        hf_lock_free(lock);
        restart_node(leader);
        hf_test_cluster_kill(&cluster, hf_test_cluster_leader(&cluster));
        expect_ok(recorded_read(client, hf_key_of("k"), &info));
        assert_false(info.held);
        hf_info_fini(&info);
        for (unsigned node = 0; node < 3; node++)
            if (cluster.nodes[node].pid == 0)
                restart_node(node);
    }
    (void)hf_close(client, 1000);
    assert_int_equal(recorded_check("case"), 0);
}

/* Returns true if all running nodes name the same leader. */
static bool nodes_agree(void)
{
    uint64_t first = 0;

    for (unsigned i = 0; i < cluster.count; i++) {
        uint64_t leader = 0;

        if (cluster.nodes[i].pid == 0)
            continue;
        if (!hf_test_node_info(&cluster, i, "leader", &leader) || leader == 0 ||
            (first && leader != first))
            return false;
        first = leader;
    }
    return true;
}

static void use_every_node(void)
{
    struct hf_lock_opts opts = hf_load_opts();

    for (unsigned i = 0; i < cluster.count; i++) {
        struct hf_client *client;
        struct hf_lock *lock;

        if (cluster.nodes[i].pid == 0)
            continue;
        client = hf_load_client_of(i);
        expect_ok(recorded_acquire(client, hf_key_of("k"), &opts, &lock));
        expect_ok(recorded_release(client, lock));
        hf_lock_free(lock);
        expect_ok(recorded_close(client, HF_TEST_TIMEOUT_MS));
    }
}

/* GO-13, GO-18, GO-20: five nodes with one leader, known to all, with and
 * without two of them; each takes requests. */
static void five_nodes_survive_two_kills(void **state)
{
    (void)state;
    hf_load_open(5);
    for (unsigned killed = 0; killed < 3; killed++) {
        if (killed > 0)
            hf_test_cluster_kill(&cluster, hf_test_cluster_leader(&cluster));
        while (!nodes_agree())
            hf_test_pause();
        use_every_node();
    }
    assert_int_equal(recorded_check("case"), 0);
}

/* GO-16, GO-23, G2-02: without a majority nothing is granted or
 * released, and calls end at their timeouts; then all goes on by itself. */
static void a_minority_grants_nothing(void **state)
{
    struct hf_client *client = hf_load_client();
    struct hf_lock_opts opts = hf_load_opts();
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
    err = recorded_release(client, held);
    assert_true(err == HF_EUNAVAIL || err == HF_EINDOUBT);
    hf_lock_free(held);
    restart_node(1);
    opts = hf_load_opts();
    expect_ok(recorded_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(recorded_release(client, lock));
    hf_lock_free(lock);
    expect_ok(recorded_read(client, hf_key_of("k"), &info));
    hf_info_fini(&info);
    (void)hf_close(client, 1000);
    assert_int_equal(recorded_check("case"), 0);
}

static void wait_for_key(void *arg)
{
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_lock *lock;

    (void)arg;
    (void)recorded_acquire(hf_load_client(), hf_key_of("k"), &opts, &lock);
}

/* The session of a killed client is closed 10 s after its connection. */
static void a_killed_clients_waiter_leaves_the_queue(void **state)
{
    struct hf_client *client = hf_load_client();
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_lock *lock;
    pid_t waiter;

    (void)state;
    expect_ok(recorded_acquire(client, hf_key_of("k"), &opts, &lock));
    waiter = hf_child_start(wait_for_key, NULL);
    hf_load_await_waiters(client, 1);
    recorded_kill(waiter);
    hf_load_await_waiters(client, 0);
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
        CASE(killed_leaders_lose_nothing_under_load),
        CASE(killed_followers_lose_nothing_under_load),
        CASE(all_nodes_killed_under_load_lose_nothing),
        CASE(killed_clients_and_leaders_block_no_key),
        CASE(locks_and_queue_survive_a_kill_of_all_nodes),
        CASE(a_release_is_confirmed_while_there_is_no_leader),
        CASE(a_minority_grants_nothing),
        CASE(a_killed_clients_waiter_leaves_the_queue),
        cmocka_unit_test_teardown(five_nodes_survive_two_kills,
                                  hf_load_tear_down),
    };

    return hf_test_main("fault_kills", cases, HF_TEST_COUNT(cases), 4);
}
