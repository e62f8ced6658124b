/* raft: with a cluster of three nodes. The test does not know which node leads,
 * so most cases let each node fail in turn. */
#include <signal.h>

#include "lib/cluster.h"
#include "lib/folder.h"
#include "lib/runner.h"
#include "strategy/strategy.h"

#define TTL_MS 60000
#define WAIT_MS 120000

static struct hf_test_cluster cluster;
static char folder[] = HF_TEST_FOLDER;
static struct hf_client *client, *other;
static struct hf_lock_opts opts;

static struct hf_client *open_client(void)
{
    struct hf_client *opened;
    char url[256];

    hf_test_cluster_url(&cluster, url, sizeof(url), "");
    while (hf_open(url, NULL, &opened)) /* there may be no leader yet */
        ;
    return opened;
}

static int set_up(void **state)
{
    (void)state;
    if (!hf_test_cluster_found())
        hf_test_skip(HF_TEST_CLUSTER_NONE);
    if (!hf_test_folder_make(folder) ||
        !hf_test_cluster_start(&cluster, folder, 3))
        return -1;
    client = open_client();
    other = open_client();
    hf_lock_opts_init(&opts);
    opts.ttl_ms = TTL_MS;
    opts.wait_ms = WAIT_MS;
    opts.timeout_ms = WAIT_MS;
    return 0;
}

static int tear_down(void **state)
{
    bool sound;

    (void)state;
    (void)hf_close(client, 1000);
    (void)hf_close(other, 1000);
    sound = hf_test_cluster_stop(&cluster);
    (void)hf_test_folder_remove(folder);
    return sound ? 0 : -1;
}

static struct hf_lock *lock_key(struct hf_client *by, const char *key)
{
    struct hf_lock *lock;

    assert_int_equal(hf_acquire(by, hf_key_of(key), &opts, &lock), HF_OK);
    return lock;
}

static void release_lock(struct hf_lock *lock)
{
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
}

/* GO-19, GO-20, CF-03 */
static void a_killed_node_loses_no_lock(void **state)
{
    struct hf_lock *lock = lock_key(client, "held");
    uint64_t token = 0;

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct hf_lock *next;
        struct hf_info info;

        hf_test_cluster_kill(&cluster, i);
        assert_int_equal(
            hf_read(other, hf_key_of("held"), HF_LINEARIZABLE, &info), HF_OK);
        assert_true(info.held);
        assert_int_equal(info.token, hf_lock_token(lock));
        hf_info_fini(&info);
        next = lock_key(other, "next");
        assert_true(hf_lock_token(next) > token);
        token = hf_lock_token(next);
        release_lock(next);
        assert_int_equal(hf_renew(lock, 0), HF_OK);
        assert_true(hf_test_cluster_restart(&cluster, i));
    }
    release_lock(lock);
}

static void a_stopped_node_loses_no_lock(void **state)
{
    struct hf_lock *lock = lock_key(client, "held");

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        (void)kill(cluster.nodes[i].pid, SIGSTOP);
        release_lock(lock_key(other, "next"));
        assert_int_equal(hf_renew(lock, 0), HF_OK);
        (void)kill(cluster.nodes[i].pid, SIGCONT);
    }
    release_lock(lock);
}

static void a_waiter_is_granted_after_a_failover(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct hf_lock *lock = lock_key(client, "held"), *next;
        struct hf_future *future;
        enum hf_err err = HF_EBUSY;

        assert_int_equal(hf_acquire_start(other, hf_key_of("held"), &opts,
                                          &next, NULL, NULL, &future),
                         HF_OK);
        hf_test_cluster_kill(&cluster, i);
        release_lock(lock);
        while (hf_future_wait(future, 1000, &err) == HF_ETIMEDOUT)
            ;
        assert_int_equal(err, HF_OK);
        hf_future_free(future);
        release_lock(next);
        assert_true(hf_test_cluster_restart(&cluster, i));
    }
}

/* G2-13 */
static void locks_survive_a_restart_of_all_nodes(void **state)
{
    struct hf_lock *lock = lock_key(client, "held");
    struct hf_info info;

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        hf_test_cluster_kill(&cluster, i);
    for (unsigned i = 0; i < 3; i++)
        assert_true(hf_test_cluster_restart(&cluster, i));
    while (hf_read(other, hf_key_of("held"), HF_LINEARIZABLE, &info))
        ;
    assert_true(info.held);
    assert_int_equal(info.token, hf_lock_token(lock));
    hf_info_fini(&info);
    assert_int_equal(hf_renew(lock, 0), HF_OK);
    release_lock(lock);
}

static void nothing_is_granted_without_a_majority(void **state)
{
    struct hf_lock *lock;
    enum hf_err err;

    (void)state;
    hf_test_cluster_kill(&cluster, 0);
    hf_test_cluster_kill(&cluster, 1);
    opts.wait_ms = 0;
    opts.timeout_ms = 1000;
    err = hf_acquire(client, hf_key_of("held"), &opts, &lock);
    assert_true(err == HF_EUNAVAIL || err == HF_EINDOUBT);
    assert_true(hf_test_cluster_restart(&cluster, 0));
    opts.wait_ms = WAIT_MS;
    opts.timeout_ms = WAIT_MS;
    release_lock(lock_key(other, "held"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_killed_node_loses_no_lock),
        CASE(a_stopped_node_loses_no_lock),
        CASE(a_waiter_is_granted_after_a_failover),
        CASE(locks_survive_a_restart_of_all_nodes),
        CASE(nothing_is_granted_without_a_majority),
    };

    return hf_test_main("raft_cluster", cases, HF_TEST_COUNT(cases), 0);
}
