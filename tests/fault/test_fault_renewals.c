/* A holder that renews keeps its lock while a node fails, with the shortest ttl
 * that the manual recommends: holdfast.3, raft:. The node is the leader, or a
 * follower that forwards the renewals. */
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "fault/load.h"
#include "fault/partition.h"
#include "lib/child.h"
#include "lib/expect.h"

#define cluster hf_load_cluster
#define TTL_MS 6000

struct holder {
    atomic_bool was_lost;
    atomic_uint renewals;
};

static struct holder *holder;
static const char *route; /* the options of the holder's URL */
static unsigned tries;    /* each has its own key */

static void on_event(struct hf_lock *lock, enum hf_lock_event event, void *arg)
{
    (void)lock;
    (void)arg;
    if (event == HF_LOCK_EVENT_LOST)
        atomic_store(&holder->was_lost, true);
}

static void holder_main(void *arg)
{
    struct hf_client *client;
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    char url[256], key[16];

    (void)arg;
    hf_test_cluster_url(&cluster, url, sizeof(url), route);
    (void)snprintf(key, sizeof(key), "k%u", tries);
    while (hf_open(url, NULL, &client))
        hf_test_pause();
    expect_ok(hf_lock_opts_set_default(NULL));
    hf_lock_opts_init(&opts);
    opts.ttl_ms = TTL_MS;
    opts.renew = true;
    opts.on_event = on_event;
    expect_ok(hf_acquire(client, hf_key_of(key), &opts, &lock));
    for (;;) {
        int64_t deadline = hf_lock_deadline(lock);

        while (hf_lock_deadline(lock) == deadline)
            hf_test_pause();
        atomic_fetch_add(&holder->renewals, 1);
    }
}

/* Wait until the lock was renewed `count` times, or was lost. Returns the
 * longest time in ms for which this process did not run: the machine may have
 * stopped the others for as long. */
static int64_t await_renewals(unsigned count)
{
    unsigned before = atomic_load(&holder->renewals);
    struct timespec then, now;
    int64_t longest = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &then);
    while (atomic_load(&holder->renewals) - before < count &&
           !atomic_load(&holder->was_lost)) {
        int64_t gap;

        hf_test_pause();
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        gap = (now.tv_sec - then.tv_sec) * 1000 +
              (now.tv_nsec - then.tv_nsec) / 1000000;
        longest = gap > longest ? gap : longest;
        then = now;
    }
    return longest;
}

/* The node that the holder is connected to, the only client in MUX mode. */
static unsigned node_of_holder(void)
{
    for (unsigned i = 0;; i = (i + 1) % cluster.count) {
        uint64_t clients;

        if (hf_test_node_info(&cluster, i, "mux_clients", &clients) &&
            clients > 0)
            return i;
        hf_test_pause();
    }
}

/* Start a holder, and wait until it has renewed its lock: by then, it has moved
 * to the leader, unless its URL has ?route=any. Returns the node that it is
 * connected to. */
static unsigned start_holder(pid_t *pid)
{
    *holder = (struct holder){0};
    tries++;
    *pid = hf_child_start(holder_main, NULL);
    while (atomic_load(&holder->renewals) == 0)
        hf_test_pause();
    return node_of_holder();
}

/* A way in which a node fails, and how to end it. */
struct failure {
    void (*begin)(unsigned node);
    void (*end)(unsigned node);
    bool of_follower;
};

/* Returns true if the holder has kept its lock while its node failed; false if
 * that proves nothing: the holder is connected to another node than it should,
 * or it has lost the lock on a machine that stops its processes. */
static bool keeps_lock(const struct failure *failure)
{
    unsigned leader = hf_test_cluster_leader(&cluster), node;
    int64_t pause;
    pid_t pid;

    node = start_holder(&pid);
    if ((node != leader) != failure->of_follower) {
        hf_child_kill(pid);
        return false;
    }
    failure->begin(node);
    pause = await_renewals(2);
    failure->end(node);
    hf_child_kill(pid);
    if (atomic_load(&holder->was_lost) && pause < 500)
        fail_msg("the lock was lost; the machine stood still for %lld ms",
                 (long long)pause);
    return !atomic_load(&holder->was_lost);
}

static void expect_kept(const struct failure *failure)
{
    holder = hf_child_share(sizeof(*holder));
    route = failure->of_follower ? "?route=any" : "";
    while (!keeps_lock(failure))
        continue;
}

/* ---- Failures -----------------------------------------------------------*/

static void kill_node(unsigned node)
{
    hf_test_cluster_kill(&cluster, node);
}

static void restart_node(unsigned node)
{
    assert_true(hf_test_cluster_restart(&cluster, node));
}

static void stop_node(unsigned node)
{
    hf_test_node_stop(&cluster, node);
}

static void continue_node(unsigned node)
{
    hf_test_node_continue(&cluster, node);
}

static void cut_leader(unsigned leader)
{
    hf_partition_isolate(&cluster, leader, HF_CUT_DROP);
}

static void heal_leader(unsigned leader)
{
    (void)leader;
    hf_partition_heal();
}

/* The next renewal is the first that the disk does not store. */
static void hang_disk(unsigned leader)
{
    struct hf_faults *faults = hf_test_faults(&cluster, leader);

    hf_test_faults_set(faults, HF_FAULT_HANG_SYNC, 0);
    while (atomic_load(&faults->hits) == 0)
        hf_test_pause();
}

static void release_disk(unsigned leader)
{
    hf_test_faults_set(hf_test_faults(&cluster, leader), HF_FAULT_NONE, 0);
}

/* ---- Cases --------------------------------------------------------------*/

static void a_renewed_lock_survives_a_killed_leader(void **state)
{
    (void)state;
    expect_kept(&(struct failure){kill_node, restart_node, false});
}

static void a_renewed_lock_survives_a_stopped_leader(void **state)
{
    (void)state;
    expect_kept(&(struct failure){stop_node, continue_node, false});
}

static void a_renewed_lock_survives_a_leader_that_is_cut_off(void **state)
{
    (void)state;
    expect_kept(&(struct failure){cut_leader, heal_leader, false});
}

static void a_renewed_lock_survives_a_leader_whose_disk_hangs(void **state)
{
    (void)state;
    expect_kept(&(struct failure){hang_disk, release_disk, false});
}

static void a_lock_renewed_through_a_follower_survives_its_kill(void **state)
{
    (void)state;
    expect_kept(&(struct failure){kill_node, restart_node, true});
}

static void a_lock_renewed_through_a_follower_survives_its_stop(void **state)
{
    (void)state;
    expect_kept(&(struct failure){stop_node, continue_node, true});
}

static int set_up_partition(void **state)
{
    hf_partition_set_up();
    return hf_load_set_up(state);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, hf_load_set_up, hf_load_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_renewed_lock_survives_a_killed_leader),
        CASE(a_renewed_lock_survives_a_stopped_leader),
        cmocka_unit_test_setup_teardown(
            a_renewed_lock_survives_a_leader_that_is_cut_off, set_up_partition,
            hf_load_tear_down),
        CASE(a_renewed_lock_survives_a_leader_whose_disk_hangs),
        CASE(a_lock_renewed_through_a_follower_survives_its_kill),
        CASE(a_lock_renewed_through_a_follower_survives_its_stop),
    };

    return hf_test_main("fault_renewals", cases, HF_TEST_COUNT(cases), 4);
}
