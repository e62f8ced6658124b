/* A cluster whose disks fail: they are full, return errors, or hang. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault/load.h"
#include "lib/expect.h"
#include "lib/loopback.h"
#include "lib/recorded.h"

#define cluster hf_load_cluster
#define EXIT_FAILED 69 /* holdfastd(8) */
#define ELECTION_MS "1500"

/* ---- A disk that can be filled ------------------------------------------*/

static void run_command(const char *format, const char *first,
                        const char *second)
{
    char command[1200];

    (void)snprintf(command, sizeof(command), format, first, second);
    assert_int_equal(system(command), 0);
}

/* Start a cluster in a mount namespace of this case. */
static void open_with_mounts(unsigned nodes)
{
    if (unshare(CLONE_NEWNS) ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        hf_test_skip("this user cannot mount a file system");
    hf_load_open(nodes);
}

/* Move the directory of a node to a small disk, and start the node there. */
static void move_to_small_disk(unsigned node)
{
    char path[512], old[520];

    hf_test_cluster_kill(&cluster, node);
    (void)snprintf(path, sizeof(path), "%s",
                   hf_test_node_path(&cluster, node, NULL));
    (void)snprintf(old, sizeof(old), "%s-old", path);
    run_command("mv %s %s", path, old);
    run_command("mkdir -m 700 %s", path, "");
    assert_int_equal(mount("small", path, "tmpfs", 0, "size=64m,mode=0700"), 0);
    run_command("cp -a --sparse=never %s/. %s", old, path);
    assert_true(hf_test_cluster_restart(&cluster, node));
}

/* Unmount the disks, so that the folder of the case can be removed. */
static int tear_down(void **state)
{
    bool sound = hf_test_cluster_stop(&cluster);

    for (unsigned i = 0; i < cluster.count; i++)
        (void)umount2(hf_test_node_path(&cluster, i, NULL), MNT_DETACH);
    return hf_load_tear_down(state) || !sound ? -1 : 0;
}

static void fill_disk(unsigned node)
{
    static char block[4096];
    int file = open(hf_test_node_path(&cluster, node, "fill"),
                    O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    assert_true(file >= 0);
    while (write(file, block, sizeof(block)) > 0)
        continue;
    assert_int_equal(errno, ENOSPC);
    (void)close(file);
}

static void empty_disk(unsigned node)
{
    assert_int_equal(unlink(hf_test_node_path(&cluster, node, "fill")), 0);
}

static void await_low_space(unsigned node, bool wanted)
{
    uint64_t is_low = !wanted;

    while (!hf_test_node_info(&cluster, node, "low_space", &is_low) ||
           is_low != wanted)
        hf_test_pause();
}

/* Update the value of `lock` until the node notices that its disk is full: it
 * has to use up a segment of its log first. */
static void use_up_log(struct hf_client *client, struct hf_lock *lock)
{
    static char value[HF_VALUE_MAX];
    enum hf_err err = HF_OK;

    while (!err)
        err = recorded_update(client, lock, NULL,
                              (struct hf_bytes){value, sizeof(value)});
    expect_err(err, HF_ELIMIT);
}

/* ---- Full ---------------------------------------------------------------*/

/* Commands that make the table larger are refused, with a text that says
 * why. */
static void expect_refusals(struct hf_client *client, struct hf_lock *held)
{
    struct hf_client_opts client_opts;
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_error error = {0};
    struct hf_client *opened;
    struct hf_lock *lock;
    char url[256];

    opts.error = &error;
    expect_err(recorded_acquire(client, hf_key_of("new"), &opts, &lock),
               HF_ELIMIT);
    assert_non_null(strstr(error.text, "disk"));
    expect_err(recorded_update(client, held, NULL, hf_bytes_of("new")),
               HF_ELIMIT);
    hf_client_opts_init(&client_opts);
    client_opts.error = &error;
    hf_test_cluster_url(&cluster, url, sizeof(url), "");
    if (!hf_open(url, &client_opts, &opened)) { /* it has no session yet */
        expect_err(recorded_acquire(opened, hf_key_of("new"), &opts, &lock),
                   HF_ELIMIT);
        (void)recorded_close(opened, 1000);
    }
}

static struct hf_lock *acquire(struct hf_client *client, const char *key,
                               uint32_t ttl_ms)
{
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_lock *lock;

    opts.ttl_ms = ttl_ms;
    expect_ok(recorded_acquire(client, hf_key_of(key), &opts, &lock));
    return lock;
}

static void release(struct hf_client *client, struct hf_lock *lock)
{
    expect_ok(recorded_release(client, lock));
    hf_lock_free(lock);
}

static void await_free(struct hf_client *client, const char *key)
{
    struct hf_info info;
    bool is_held = true;

    while (is_held) {
        expect_ok(hf_read(client, hf_key_of(key), HF_LINEARIZABLE, &info));
        is_held = info.held;
        hf_info_fini(&info);
        hf_test_pause();
    }
}

/* A client with a session, and the locks that the cases need while the disk is
 * full. */
struct locks {
    struct hf_client *client;
    struct hf_lock *held, *released, *expiring, *waiting;
};

static struct locks prepare_locks(void)
{
    struct hf_client *client = hf_load_client();
    struct hf_lock_opts opts = hf_load_opts();
    struct locks locks = {
        .client = client,
        .held = acquire(client, "held", HF_TEST_LONG_MS),
        .released = acquire(client, "released", HF_TEST_LONG_MS),
        .expiring = acquire(client, "expiring", 6000),
    };

    expect_ok(
        recorded_lock_new(client, hf_key_of("held"), &opts, &locks.waiting));
    return locks;
}

/* Renewals, releases, expiry and cancels still work. */
static void expect_ends(struct locks *locks)
{
    uint32_t waiters = UINT32_MAX;

    expect_ok(recorded_renew(locks->client, locks->held, 0));
    release(locks->client, locks->released);
    await_free(locks->client, "released");
    await_free(locks->client, "expiring");
    hf_lock_free(locks->expiring);
    recorded_lock_free(locks->waiting); /* sends a CANCEL */
    while (waiters > 0) {
        struct hf_info info;

        expect_ok(
            hf_read(locks->client, hf_key_of("held"), HF_LINEARIZABLE, &info));
        waiters = info.waiters;
        hf_info_fini(&info);
    }
}

static void expect_recovery(struct locks *locks)
{
    release(locks->client, acquire(locks->client, "new", HF_TEST_LONG_MS));
    expect_ok(
        recorded_update(locks->client, locks->held, NULL, hf_bytes_of("new")));
    release(locks->client, locks->held);
    (void)recorded_close(locks->client, HF_TEST_TIMEOUT_MS);
    assert_int_equal(recorded_check("case"), 0);
}

static void a_full_disk_refuses_only_what_needs_space(void **state)
{
    struct locks locks;

    (void)state;
    open_with_mounts(1);
    move_to_small_disk(0);
    locks = prepare_locks();
    fill_disk(0);
    use_up_log(locks.client, locks.held);
    await_low_space(0, true);
    expect_refusals(locks.client, locks.held);
    expect_ends(&locks);
    expect_refusals(locks.client, locks.held);
    empty_disk(0);
    await_low_space(0, false);
    expect_recovery(&locks);
}

/* Each of these renewals takes a sector of the log. The two segments in reserve
 * have room for a few more than RENEWALS of them: by then, a snapshot must have
 * freed a segment. */
static void a_full_disk_is_compacted(void **state)
{
    enum {
        RENEWALS = 28000
    };
    struct locks locks;
    uint64_t snapshot = 0;

    (void)state;
    open_with_mounts(1);
    move_to_small_disk(0);
    locks = prepare_locks();
    fill_disk(0);
    use_up_log(locks.client, locks.held); /* a value of HF_VALUE_MAX */
    for (unsigned i = 0; i < RENEWALS && snapshot == 0; i++) {
        expect_ok(hf_renew(locks.held, 0));
        if (i % 100 == 0)
            (void)hf_test_node_info(&cluster, 0, "snapshot", &snapshot);
    }
    assert_true(snapshot > 0);
    expect_ends(&locks);
    empty_disk(0);
    await_low_space(0, false);
    expect_recovery(&locks);
}

static void a_node_restarts_on_a_full_disk(void **state)
{
    struct locks locks;

    (void)state;
    open_with_mounts(1);
    move_to_small_disk(0);
    locks = prepare_locks();
    fill_disk(0);
    use_up_log(locks.client, locks.held);
    for (unsigned i = 0; i < 3; i++) {
        hf_test_cluster_kill(&cluster, 0);
        fill_disk(0);
        assert_true(hf_test_cluster_restart(&cluster, 0));
        await_low_space(0, true);
        expect_ok(recorded_renew(locks.client, locks.held, 0));
    }
    expect_refusals(locks.client, locks.held);
    expect_ends(&locks);
    empty_disk(0);
    await_low_space(0, false);
    expect_recovery(&locks);
}

/* The disk of a follower is full, and the others have a majority. */
static void a_full_follower_stops_nobody(void **state)
{
    unsigned follower;

    (void)state;
    open_with_mounts(3);
    follower = (hf_test_cluster_leader(&cluster) + 1) % 3;
    move_to_small_disk(follower);
    fill_disk(follower);
    hf_load_start(HF_TEST_LONG_MS);
    hf_load_await_grants(50);
    empty_disk(follower);
    hf_load_await_grants(50);
    hf_load_check();
}

/* ---- Errors -------------------------------------------------------------*/

/* Wait until the node ends, and return its status. It must not repeat calls
 * that fail; a few calls of other threads may be under way. */
static int await_failure(const struct hf_faults *faults, unsigned node)
{
    siginfo_t info = {0};

    while (info.si_pid == 0) {
        assert_in_range(atomic_load(&faults->hits), 0, 10);
        assert_int_equal(waitid(P_PID, (id_t)cluster.nodes[node].pid, &info,
                                WEXITED | WNOHANG | WNOWAIT),
                         0);
        hf_test_pause();
    }
    return hf_test_node_await_exit(&cluster, node);
}

/* The node stops and says why; the others go on; and once its disk works, the
 * node comes back. */
static void fail_node(unsigned node, enum hf_fault fault, unsigned after)
{
    struct hf_faults *faults = hf_test_faults(&cluster, node);
    int status;

    hf_test_faults_set(faults, fault, after);
    status = await_failure(faults, node);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXIT_FAILED);
    assert_true(hf_test_node_has_logged(&cluster, node, strerror(EIO)));
    hf_load_await_grants(10);
    hf_test_faults_set(faults, HF_FAULT_NONE, 0);
    assert_true(hf_test_cluster_restart(&cluster, node));
}

static void fail_nodes(enum hf_fault fault)
{
    hf_load_open(3);
    hf_load_start(HF_TEST_LONG_MS);
    hf_load_await_grants(10);
    for (unsigned i = 0; hf_load_goes_on(i, 2); i++) {
        unsigned leader = hf_test_cluster_leader(&cluster);

        fail_node((leader + i) % 3, fault, i % 5);
    }
    hf_load_await_grants(10);
    hf_load_check();
}

static void a_node_whose_writes_fail_stops(void **state)
{
    (void)state;
    fail_nodes(HF_FAULT_WRITE_EIO);
}

static void a_node_whose_syncs_fail_stops(void **state)
{
    (void)state;
    fail_nodes(HF_FAULT_SYNC_EIO);
}

/* ---- A disk that hangs --------------------------------------------------*/

/* A longer election timeout than by default, so that a busy machine does not
 * cause elections. */
static void set_election_timeout(void)
{
    for (unsigned i = 0; i < cluster.count; i++) {
        hf_test_cluster_kill(&cluster, i);
        run_command("sed -i 's/^election_ms .*/election_ms %s/' %s",
                    ELECTION_MS, hf_test_node_path(&cluster, i, "config"));
        assert_true(hf_test_cluster_restart(&cluster, i));
    }
}

static void expect_pong(unsigned node)
{
    char reply[16] = "";
    int fd = hf_test_connect(cluster.nodes[node].client_port);

    assert_true(fd >= 0);
    assert_int_equal(send(fd, "PING\r\n", 6, MSG_NOSIGNAL), 6);
    assert_int_equal(recv(fd, reply, 7, MSG_WAITALL), 7);
    assert_string_equal(reply, "+PONG\r\n");
    (void)close(fd);
}

static uint64_t term_of(unsigned node)
{
    uint64_t term;

    while (!hf_test_node_info(&cluster, node, "term", &term))
        hf_test_pause();
    return term;
}

static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* For three election timeouts, expect answers of a node whose disk hangs. A
 * leader that does not send heartbeats would be replaced. Returns the longest
 * time in ms for which no answer arrived: the machine may have stopped all
 * processes for as long. */
static int64_t expect_answers(unsigned node)
{
    int64_t begin = now_ms(), last = begin, longest = 0;

    while (last - begin < 3 * strtol(ELECTION_MS, NULL, 10)) {
        int64_t now;

        expect_pong(node);
        (void)term_of(node);
        now = now_ms();
        longest = now - last > longest ? now - last : longest;
        last = now;
        hf_test_pause();
    }
    return longest;
}

/* Let the disk of a node hang, of the leader or of the follower `which`. Until
 * it goes on, the node answers, the cluster makes progress, and there is no
 * election. Returns false if there was one on a machine that stops its
 * processes, which proves nothing. */
static bool goes_on_without_disk(unsigned which)
{
    unsigned leader = hf_test_cluster_leader(&cluster);
    unsigned node = (leader + which) % 3;
    struct hf_faults *faults = hf_test_faults(&cluster, node);
    uint64_t term = term_of(leader);
    int64_t pause;
    bool is_same;

    hf_load_await_grants(5);
    hf_test_faults_set(faults, HF_FAULT_HANG_SYNC, 0);
    while (atomic_load(&faults->hits) == 0)
        hf_test_pause();
    hf_load_await_grants(10);
    pause = expect_answers(node);
    is_same = hf_test_cluster_leader(&cluster) == leader &&
              term_of(leader) == term && term_of(node) == term;
    hf_test_faults_set(faults, HF_FAULT_NONE, 0);
    if (!is_same && pause < 1000)
        fail_msg("an election; the machine stood still for %lld ms",
                 (long long)pause);
    return is_same;
}

/* The loop of a node does not wait for its disk. */
static void a_disk_that_hangs_stops_nobody(void **state)
{
    (void)state;
    hf_load_open(3);
    set_election_timeout();
    hf_load_start(HF_TEST_LONG_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 2); i++)
        while (!goes_on_without_disk(i % 3))
            continue;
    hf_load_await_grants(10);
    hf_load_check();
}

#define CASE(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_full_disk_refuses_only_what_needs_space),
        CASE(a_full_disk_is_compacted),
        CASE(a_node_restarts_on_a_full_disk),
        CASE(a_full_follower_stops_nobody),
        CASE(a_node_whose_writes_fail_stops),
        CASE(a_node_whose_syncs_fail_stops),
        CASE(a_disk_that_hangs_stops_nobody),
    };

    return hf_test_main("fault_disks", cases, HF_TEST_COUNT(cases), 4);
}
