/* Nodes and clients of a cluster may be on different machines, and only one of
 * them is suspended. So the time of a suspension counts against a lease. */
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "lib/cluster.h"
#include "lib/expect.h"
#include "lib/folder.h"
#include "lib/runner.h"

#define SUSPENSION_S (24L * 3600)

static struct hf_test_cluster cluster;
static char folder[] = HF_TEST_FOLDER;
static struct hf_client *client, *other;
static struct hf_lock_opts opts;
static bool is_node; /* this process is the node */
/* How long the machine of the client, and that of the node, was suspended: in
 * memory that both processes share. */
static volatile time_t *suspended_s;

/* Replaces the function of libc, as in test_suspend.c. */
int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    int err = (int)syscall(SYS_clock_gettime, clock_id, tp);

    if (!err && clock_id == CLOCK_BOOTTIME && suspended_s)
        tp->tv_sec += suspended_s[is_node];
    return err;
}

/* ---- The node -----------------------------------------------------------*/

static _Noreturn void run_node(int ready_fd)
{
    struct hf_config config = {0};
    struct hf_disk *disk;
    struct hf_error error = {0};
    char path[160];

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_IGN);
    is_node = true;
    (void)snprintf(path, sizeof(path), "%s/node-1", cluster.folder);
    if (hf_disk_posix_open(path, false, &disk))
        _exit(1);
    if (hf_config_read(&config, disk, &error) ||
        hf_daemon_run(&config, disk, ready_fd, &error)) {
        (void)fprintf(stderr, "%s\n", error.text);
        _exit(1);
    }
    disk->ops->close_directory(disk);
    _exit(0);
}

/* Replace holdfastd by a child of this program that runs the node: it uses the
 * clock_gettime() above. */
static void replace_node(void)
{
    int ready[2];
    char byte;

    hf_test_cluster_kill(&cluster, 0);
    assert_int_equal(pipe(ready), 0);
    cluster.nodes[0].pid = fork();
    if (cluster.nodes[0].pid == 0)
        run_node(ready[1]);
    assert_true(cluster.nodes[0].pid > 0);
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
}

/* ---- Cases --------------------------------------------------------------*/

static struct hf_client *open_client(void)
{
    struct hf_client *opened;
    char url[256];

    hf_test_cluster_url(&cluster, url, sizeof(url), "");
    assert_int_equal(hf_open(url, NULL, &opened), HF_OK);
    return opened;
}

static int set_up(void **state)
{
    (void)state;
    if (!hf_test_folder_make(folder) ||
        !hf_test_cluster_start(&cluster, folder, 1))
        return -1;
    suspended_s = mmap(NULL, 2 * sizeof(*suspended_s), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(suspended_s, MAP_FAILED);
    replace_node();
    client = open_client();
    other = open_client();
    hf_lock_opts_init(&opts);
    opts.ttl_ms = HF_TEST_LONG_MS;
    opts.wait_ms = 0;
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

static void a_suspended_holder_loses_its_lock(void **state)
{
    struct hf_lock *lock = lock_key(client, "k");

    (void)state;
    assert_true(hf_lock_valid_for(lock, 0));
    suspended_s[false] = SUSPENSION_S;
    assert_false(hf_lock_valid_for(lock, 0));
    hf_lock_free(lock);
}

/* The lock and release of another key let the node notice what has expired:
 * EXPIRE precedes the next LOCK in the log. */
static void a_suspended_node_counts_the_time(void **state)
{
    struct hf_lock *lock = lock_key(client, "k"), *next;

    (void)state;
    suspended_s[true] = SUSPENSION_S;
    next = lock_key(other, "other");
    assert_int_equal(hf_release(next), HF_OK);
    hf_lock_free(next);
    next = lock_key(other, "k");
    assert_true(hf_lock_token(next) > hf_lock_token(lock));
    assert_int_equal(hf_release(next), HF_OK);
    hf_lock_free(next);
    hf_lock_free(lock);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_suspended_holder_loses_its_lock),
        CASE(a_suspended_node_counts_the_time),
    };

    return hf_test_main("daemon suspend", cases, HF_TEST_COUNT(cases), 0);
}
