/* A node that is killed at every write and every sync of a scripted run, one
 * after another. After a restart, everything that was acknowledged is there,
 * and the client's call that was not answered is completed, once. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>

#include "fault/load.h"
#include "lib/child.h"
#include "lib/expect.h"
#include "lib/recorded.h"

#define cluster hf_load_cluster

/* What the script has left in the table. */
struct expected {
    atomic_bool ended;
    uint64_t kept, first; /* tokens: of kept_key; the first of other_key */
};

/* Each run has keys of its own. */
static char kept_key[32], other_key[32];

static struct expected *expected;
static const uint8_t value[] = "value";

static void expect_state(struct hf_client *client, const char *key,
                         uint64_t token)
{
    struct hf_info info;

    expect_ok(recorded_read(client, hf_key_of(key), &info));
    assert_int_equal(info.held, token > 0);
    assert_int_equal(info.held ? info.token : 0, token);
    hf_info_fini(&info);
}

static struct hf_lock *acquire(struct hf_client *client, const char *key)
{
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_lock *lock;

    expect_ok(recorded_acquire(client, hf_key_of(key), &opts, &lock));
    return lock;
}

/* Send commands of each kind, and read what was acknowledged. */
static void script_main(void *arg)
{
    struct hf_client *client = hf_load_client();
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_lock *kept = acquire(client, kept_key), *lock, *waiting;

    (void)arg;
    expect_state(client, kept_key, hf_lock_token(kept));
    lock = acquire(client, other_key);
    expected->first = hf_lock_token(lock);
    expect_ok(recorded_release(client, lock));
    expect_state(client, other_key, 0);
    hf_lock_free(lock);
    expect_ok(recorded_renew(client, kept, 0));
    expect_ok(recorded_update(client, kept, NULL,
                              (struct hf_bytes){value, sizeof(value)}));
    lock = acquire(client, other_key);
    expect_ok(recorded_lock_new(client, hf_key_of(other_key), &opts, &waiting));
    expect_ok(recorded_release(client, lock));
    expect_ok(recorded_lock_wait(waiting));
    assert_true(hf_lock_token(waiting) > hf_lock_token(lock));
    expect_ok(recorded_release(client, waiting));
    expect_state(client, other_key, 0);
    hf_lock_free(lock);
    hf_lock_free(waiting);
    expected->kept = hf_lock_token(kept);
    expect_ok(hf_lock_detach(kept));
    hf_lock_free(kept);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    atomic_store(&expected->ended, true);
}

/* Kill the node once more, and check that the table is as the script has left
 * it. */
static void check_table(void)
{
    struct hf_client *client;
    struct hf_info info;
    struct hf_lock *lock;

    hf_test_cluster_kill(&cluster, 0);
    assert_true(hf_test_cluster_restart(&cluster, 0));
    client = hf_load_client();
    expect_state(client, kept_key, expected->kept);
    expect_state(client, other_key, 0);
    expect_ok(hf_read(client, hf_key_of(kept_key), HF_LINEARIZABLE, &info));
    assert_int_equal(info.value.size, sizeof(value));
    assert_memory_equal(info.value.data, value, sizeof(value));
    hf_info_fini(&info);
    lock = acquire(client, other_key);
    assert_true(hf_lock_token(lock) > expected->first);
    expect_ok(recorded_release(client, lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    assert_int_equal(recorded_check("case"), 0);
}

/* Wait until the node is killed, or the script has ended. Returns true if it
 * was killed. */
static bool await_kill(void)
{
    pid_t pid = cluster.nodes[0].pid;
    int status = 0;

    for (;;) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
            cluster.nodes[0].pid = 0;
            return true;
        }
        if (atomic_load(&expected->ended))
            return false;
        hf_test_pause();
    }
}

/* Kill the node at the call number `at`, and let the script finish. Returns
 * false if the script made fewer calls. */
static bool run_script(enum hf_fault fault, unsigned at)
{
    struct hf_faults *faults = hf_test_faults(&cluster, 0);
    bool was_killed = true, is_up;
    pid_t script;

    (void)snprintf(kept_key, sizeof(kept_key), "kept-%u", at);
    (void)snprintf(other_key, sizeof(other_key), "other-%u", at);
    atomic_store(&expected->ended, false);
    hf_test_cluster_kill(&cluster, 0);
    hf_test_faults_set(faults, fault, at);
    is_up = hf_test_cluster_restart(&cluster, 0);
    script = hf_child_start(script_main, NULL);
    if (is_up) /* it was not killed while it started */
        was_killed = await_kill();
    hf_test_faults_set(faults, HF_FAULT_NONE, 0);
    if (was_killed)
        assert_true(hf_test_cluster_restart(&cluster, 0));
    hf_child_join(script);
    check_table();
    return was_killed;
}

static void kill_at_every(enum hf_fault fault)
{
    unsigned at = 0;

    hf_load_open(1);
    expected = hf_child_share(sizeof(*expected));
    while (run_script(fault, at))
        at++;
    assert_true(at > 10); /* at least one call for each command */
}

static void a_kill_before_any_sync_loses_nothing(void **state)
{
    (void)state;
    kill_at_every(HF_FAULT_KILL_BEFORE_SYNC);
}

static void a_kill_after_any_sync_loses_nothing(void **state)
{
    (void)state;
    kill_at_every(HF_FAULT_KILL_AFTER_SYNC);
}

static void a_kill_before_any_write_loses_nothing(void **state)
{
    (void)state;
    kill_at_every(HF_FAULT_KILL_BEFORE_WRITE);
}

static void a_kill_inside_any_write_loses_nothing(void **state)
{
    (void)state;
    kill_at_every(HF_FAULT_TEAR_WRITE);
}

/* ---- Leaders ------------------------------------------------------------*/

/* Three nodes: the leader is killed at its syncs and writes, under load. */
static void leaders_killed_at_their_flushes_lose_nothing(void **state)
{
    static const enum hf_fault kinds[] = {
        HF_FAULT_KILL_BEFORE_SYNC, HF_FAULT_TEAR_WRITE,
        HF_FAULT_KILL_AFTER_SYNC, HF_FAULT_KILL_BEFORE_WRITE};

    (void)state;
    hf_load_open(3);
    hf_load_start(HF_TEST_LONG_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 4); i++) {
        unsigned leader = hf_test_cluster_leader(&cluster);
        struct hf_faults *faults = hf_test_faults(&cluster, leader);
        int status;

        hf_test_faults_set(faults, kinds[i % 4], i % 7);
        status = hf_test_node_await_exit(&cluster, leader);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        hf_test_faults_set(faults, HF_FAULT_NONE, 0);
        assert_true(hf_test_cluster_restart(&cluster, leader));
    }
    hf_load_await_grants(10);
    hf_load_check();
}

#define CASE(name) cmocka_unit_test_teardown(name, hf_load_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_kill_before_any_sync_loses_nothing),
        CASE(a_kill_after_any_sync_loses_nothing),
        CASE(a_kill_before_any_write_loses_nothing),
        CASE(a_kill_inside_any_write_loses_nothing),
        CASE(leaders_killed_at_their_flushes_lose_nothing),
    };

    return hf_test_main("fault_flushes", cases, HF_TEST_COUNT(cases), 4);
}
