/* A node whose files were changed while it was down: damage in the log, a torn
 * end, an empty directory, a directory of another node. A node starts with all
 * that it has promised, or not at all. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/load.h"
#include "lib/expect.h"

#define cluster hf_load_cluster
#define LOCKS 8

static uint64_t tokens[LOCKS];

static const char *key_of(unsigned number)
{
    static char key[16];

    (void)snprintf(key, sizeof(key), "key-%u", number);
    return key;
}

/* Acquire some locks, each in its own record of the log, and kill the node. */
static void fill_log(void)
{
    struct hf_client *client = hf_load_client();
    struct hf_lock_opts opts = hf_load_opts();

    for (unsigned i = 0; i < LOCKS; i++) {
        struct hf_lock *lock;

        expect_ok(hf_acquire(client, hf_key_of(key_of(i)), &opts, &lock));
        tokens[i] = hf_lock_token(lock);
        expect_ok(hf_lock_detach(lock));
        hf_lock_free(lock);
    }
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    hf_test_cluster_kill(&cluster, 0);
}

static void expect_locks(unsigned count)
{
    struct hf_client *client = hf_load_client();

    for (unsigned i = 0; i < count; i++) {
        struct hf_info info;

        expect_ok(
            hf_read(client, hf_key_of(key_of(i)), HF_LINEARIZABLE, &info));
        assert_true(info.held);
        assert_int_equal(info.token, tokens[i]);
        hf_info_fini(&info);
    }
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
}

/* The node does not start, and has printed `first` and `second`. */
static void expect_refusal(const char *first, const char *second)
{
    assert_false(hf_test_cluster_restart(&cluster, 0));
    assert_true(hf_test_node_has_logged(&cluster, 0, first));
    assert_true(hf_test_node_has_logged(&cluster, 0, second));
}

/* ---- The log ------------------------------------------------------------*/

/* Open the first segment of the log, which has all that these cases write. */
static int open_log(char name[64])
{
    DIR *directory = opendir(hf_test_node_path(&cluster, 0, NULL));
    struct dirent *entry;
    int fd;

    assert_non_null(directory);
    name[0] = '\0';
    while ((entry = readdir(directory)))
        if (strncmp(entry->d_name, "log-", 4) == 0 &&
            (!*name || strcmp(entry->d_name, name) < 0))
            (void)snprintf(name, 64, "%.63s", entry->d_name);
    (void)closedir(directory);
    fd = open(hf_test_node_path(&cluster, 0, name), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* Find a key in the log. Returns the last offset at which it is, and in
 * `*count` how many times it is there. */
static off_t find_key(int fd, const char *key, unsigned *count)
{
    static char bytes[1 << 20];
    ssize_t size = pread(fd, bytes, sizeof(bytes), 0);
    off_t found = -1;
    char *at = bytes;

    *count = 0;
    assert_int_equal(size, sizeof(bytes));
    while ((at = memmem(at, (size_t)(bytes + size - at), key, strlen(key)))) {
        found = at - bytes;
        at++;
        (*count)++;
    }
    return found;
}

static void flip_bit(int fd, off_t at)
{
    char byte;

    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

/* Each record but the last one is damaged in turn. */
static void a_flipped_bit_in_the_log_refuses_to_start(void **state)
{
    char name[64];
    int fd;

    (void)state;
    hf_load_open(1);
    fill_log();
    fd = open_log(name);
    for (unsigned i = 0; i < LOCKS - 1; i++) {
        unsigned count;
        off_t at = find_key(fd, key_of(i), &count);

        assert_int_equal(count, 1);
        flip_bit(fd, at);
        expect_refusal(name, "damaged at offset");
        flip_bit(fd, at);
    }
    (void)close(fd);
    assert_true(hf_test_cluster_restart(&cluster, 0));
    expect_locks(LOCKS);
}

/* The end of the last record is missing, as if it had never been written: the
 * record is cut, and the ones before it are kept. To a node, damage in its last
 * record looks the same. */
static void a_torn_end_of_the_log_is_cut(void **state)
{
    static const char zeros[1 << 16];
    struct hf_client *client;
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_lock *lock;
    char name[64];
    unsigned count;
    off_t at;
    int fd;

    (void)state;
    hf_load_open(1);
    fill_log();
    fd = open_log(name);
    at = find_key(fd, key_of(LOCKS - 1), &count);
    assert_int_equal(count, 1);
    assert_int_equal(pwrite(fd, zeros, sizeof(zeros), at + 2), sizeof(zeros));
    (void)close(fd);
    assert_true(hf_test_cluster_restart(&cluster, 0));
    expect_locks(LOCKS - 1);
    client = hf_load_client();
    expect_ok(hf_acquire(client, hf_key_of("new"), &opts, &lock));
    assert_true(hf_lock_token(lock) > tokens[LOCKS - 2]);
    hf_lock_free(lock);
    (void)hf_close(client, HF_TEST_TIMEOUT_MS);
}

/* A log file is missing: the node has forgotten what it has promised. */
static void a_missing_log_refuses_to_start(void **state)
{
    char name[64];

    (void)state;
    hf_load_open(1);
    fill_log();
    (void)close(open_log(name));
    assert_int_equal(unlink(hf_test_node_path(&cluster, 0, name)), 0);
    expect_refusal(name, "missing");
}

/* ---- Directories --------------------------------------------------------*/

static void move_directory(unsigned from, const char *suffix)
{
    char old[512], new[600];

    (void)snprintf(old, sizeof(old), "%s",
                   hf_test_node_path(&cluster, from, NULL));
    (void)snprintf(new, sizeof(new), "%s%s", old, suffix);
    assert_int_equal(rename(old, new), 0);
}

/* A member that has lost its disk, so that its directory is missing or empty,
 * does not start, and the others go on without it. */
static void an_empty_directory_never_starts_as_a_member(void **state)
{
    struct hf_client *client;
    struct hf_lock_opts opts = hf_load_opts();
    struct hf_lock *lock;

    (void)state;
    hf_load_open(3);
    hf_test_cluster_kill(&cluster, 0);
    move_directory(0, "-lost");
    expect_refusal("there is no such directory", "forgotten its votes");
    assert_int_equal(mkdir(hf_test_node_path(&cluster, 0, NULL), 0700), 0);
    expect_refusal("no node was initialised here", "--init");
    client = hf_load_client();
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    assert_int_equal(rmdir(hf_test_node_path(&cluster, 0, NULL)), 0);
    (void)hf_close(client, HF_TEST_TIMEOUT_MS);
}

static void copy_file(const char *from, const char *to)
{
    char command[1300];

    (void)snprintf(command, sizeof(command), "cp %s %s", from, to);
    assert_int_equal(system(command), 0);
}

/* The directory of node 1 has the configuration of node 2, and then its
 * identity. */
static void a_directory_of_another_node_never_starts(void **state)
{
    static const char *const names[] = {"config", "identity"};

    (void)state;
    hf_load_open(3);
    hf_test_cluster_kill(&cluster, 0);
    for (unsigned i = 0; i < 2; i++) {
        char own[512], saved[600], foreign[512];

        (void)snprintf(own, sizeof(own), "%s",
                       hf_test_node_path(&cluster, 0, names[i]));
        (void)snprintf(foreign, sizeof(foreign), "%s",
                       hf_test_node_path(&cluster, 1, names[i]));
        (void)snprintf(saved, sizeof(saved), "%s/saved", cluster.folder);
        copy_file(own, saved);
        copy_file(foreign, own);
        assert_false(hf_test_cluster_restart(&cluster, 0));
        copy_file(saved, own);
    }
    assert_true(hf_test_node_has_logged(&cluster, 0, "belongs to node 1"));
    assert_true(hf_test_node_has_logged(&cluster, 0, "belongs to node 2"));
    assert_true(hf_test_cluster_restart(&cluster, 0));
}

/* ---- Initialising -------------------------------------------------------*/

static pid_t start_init(const char *dir)
{
    static const char name[] = "/holdfastd";
    char program[512], member[64];
    ssize_t size = readlink("/proc/self/exe", program, 480);
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    program[size > 0 ? size : 0] = '\0';
    memcpy(strstr(program, "/tests/"), name, sizeof(name));
    (void)snprintf(member, sizeof(member), "1=127.0.0.1:%d,127.0.0.1:%d",
                   cluster.nodes[0].peer_port, cluster.nodes[0].client_port);
    (void)execl(program, "holdfastd", "--dir", dir, "--init", "--node", "1",
                "--cluster", "0123456789abcdef0123456789abcdef", "--member",
                member, (char *)NULL);
    _exit(127);
}

static int init_again(void)
{
    pid_t pid = start_init(hf_test_node_path(&cluster, 0, NULL));
    int status = 0;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Initialise the directory of node 1 again, and kill the process at the call
 * number `at`. Returns false if it made fewer calls. */
static bool kill_init(enum hf_fault fault, unsigned at)
{
    struct hf_faults *faults = hf_test_faults(&cluster, 0);
    int status = 0;
    pid_t pid;

    hf_test_faults_set(faults, fault, at);
    pid = start_init(hf_test_node_path(&cluster, 0, NULL));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    hf_test_faults_set(faults, HF_FAULT_NONE, 0);
    if (!WIFSIGNALED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status);
}

static void kill_init_at_every(enum hf_fault fault)
{
    bool was_killed = true;

    for (unsigned at = 0; was_killed; at++) {
        char suffix[32];

        hf_test_cluster_kill(&cluster, 0);
        (void)snprintf(suffix, sizeof(suffix), "-%d-%u", fault, at);
        move_directory(0, suffix);
        was_killed = kill_init(fault, at);
        if (!hf_test_cluster_restart(&cluster, 0)) {
            assert_true(was_killed);
            assert_int_equal(init_again(), 0);
            assert_true(hf_test_cluster_restart(&cluster, 0));
        }
        assert_true(init_again() != 0);
        expect_locks(0); /* it answers */
    }
}

/* With an incomplete directory, a node does not start, and the directory can be
 * initialised again. With a complete one, the node starts, and --init is
 * refused. */
static void a_killed_init_leaves_no_half_member(void **state)
{
    (void)state;
    hf_load_open(1);
    kill_init_at_every(HF_FAULT_KILL_BEFORE_SYNC);
    kill_init_at_every(HF_FAULT_KILL_AFTER_SYNC);
    kill_init_at_every(HF_FAULT_TEAR_WRITE);
}

#define CASE(name) cmocka_unit_test_teardown(name, hf_load_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_flipped_bit_in_the_log_refuses_to_start),
        CASE(a_torn_end_of_the_log_is_cut),
        CASE(a_missing_log_refuses_to_start),
        CASE(an_empty_directory_never_starts_as_a_member),
        CASE(a_directory_of_another_node_never_starts),
        CASE(a_killed_init_leaves_no_half_member),
    };

    return hf_test_main("fault_files", cases, HF_TEST_COUNT(cases), 0);
}
