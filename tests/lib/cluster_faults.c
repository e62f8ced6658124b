#include "lib/cluster_faults.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/loopback.h"
#include "lib/runner.h"

#define MODULE "/fault_preload.so" /* in the directory of the test programs */
#define REPLY_MS 1000 /* a node that needs longer counts as stopped */
#define INFO_SIZE 8192

void hf_test_pause(void)
{
    const struct timespec span = {.tv_nsec = 2000000};

    (void)nanosleep(&span, NULL);
}

/* ---- The network --------------------------------------------------------*/

static bool network_is_own;

static bool choose_ports(const char *range)
{
    int fd =
        open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY | O_CLOEXEC);
    size_t size = strlen(range);
    bool ok = fd >= 0 && write(fd, range, size) == (ssize_t)size;

    if (fd >= 0)
        (void)close(fd);
    return ok;
}

/* The loopback interface of a new namespace is down. */
static bool raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;

    if (fd >= 0)
        (void)close(fd);
    return ok;
}

void hf_test_network_enter(void)
{
    if (network_is_own || unshare(CLONE_NEWNET))
        return;
    assert_true(raise_loopback());
    network_is_own = choose_ports("20000 29999");
}

void hf_test_network_keep_ports(void)
{
    if (network_is_own)
        assert_true(choose_ports("30000 59999"));
}

bool hf_test_network_is_own(void)
{
    return network_is_own;
}

/* ---- Faults of files ----------------------------------------------------*/

void hf_test_faults_enable(void)
{
    const char *asan = getenv("ASAN_OPTIONS");
    char path[512], options[1024];
    ssize_t size = readlink("/proc/self/exe", path, 480);
    char *slash;

    assert_true(size > 0);
    path[size] = '\0';
    slash = strrchr(path, '/');
    memcpy(slash, MODULE, sizeof(MODULE));
    if (access(path, R_OK))
        hf_test_skip("the module with the faults is not built");
    (void)setenv("LD_PRELOAD", path, 1);
    (void)unsetenv("HF_TEST_VERBOSE"); /* cases read the log files */
    /* The module comes before the sanitizer's library, and calls none of its
     * functions. */
    (void)snprintf(options, sizeof(options), "%s:verify_asan_link_order=0",
                   asan ? asan : "");
    (void)setenv("ASAN_OPTIONS", options, 1);
}

const char *hf_test_node_path(const struct hf_test_cluster *cluster,
                              unsigned node, const char *name)
{
    static char path[512];

    (void)snprintf(path, sizeof(path), "%s/node-%u%s%s", cluster->folder,
                   node + 1, name ? "/" : "", name ? name : "");
    return path;
}

struct hf_faults *hf_test_faults(const struct hf_test_cluster *cluster,
                                 unsigned node)
{
    char path[600];
    void *mapped;
    int fd;

    (void)snprintf(path, sizeof(path), "%s" HF_FAULTS_SUFFIX,
                   hf_test_node_path(cluster, node, NULL));
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof(struct hf_faults)), 0);
    mapped = mmap(NULL, sizeof(struct hf_faults), PROT_READ | PROT_WRITE,
                  MAP_SHARED, fd, 0);
    assert_true(mapped != MAP_FAILED);
    (void)close(fd);
    return mapped;
}

/* `fault` is written last: the node may be running. */
void hf_test_faults_set(struct hf_faults *faults, enum hf_fault fault,
                        unsigned after)
{
    atomic_store(&faults->fault, HF_FAULT_NONE);
    atomic_store(&faults->hits, 0);
    atomic_store(&faults->after, after);
    atomic_store(&faults->fault, fault);
}

bool hf_test_node_has_logged(const struct hf_test_cluster *cluster,
                             unsigned node, const char *words)
{
    char path[600], line[1024];
    bool found = false;
    FILE *log;

    (void)snprintf(path, sizeof(path), "%s.log",
                   hf_test_node_path(cluster, node, NULL));
    log = fopen(path, "re");
    assert_non_null(log);
    while (!found && fgets(line, sizeof(line), log))
        found = strstr(line, words) != NULL;
    (void)fclose(log);
    return found;
}

/* ---- The state of a node ------------------------------------------------*/

/* Read the reply to INFO, which is one bulk string. Returns false if the node
 * does not answer in time. */
static bool read_info(int port, char *reply)
{
    const struct timeval limit = {.tv_sec = REPLY_MS / 1000};
    int fd = hf_test_connect(port);
    size_t used = 0, wanted = INFO_SIZE;
    ssize_t size = 1;

    if (fd < 0)
        return false;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (send(fd, "INFO\r\n", 6, MSG_NOSIGNAL) != 6)
        size = 0;
    while (size > 0 && used < wanted) {
        size = recv(fd, reply + used, INFO_SIZE - 1 - used, 0);
        used += size > 0 ? (size_t)size : 0;
        reply[used] = '\0';
        if (used > 0 && reply[0] == '$' && strchr(reply, '\n'))
            wanted = strtoul(reply + 1, NULL, 10) +
                     (size_t)(strchr(reply, '\n') + 1 - reply);
    }
    (void)close(fd);
    return used >= wanted;
}

static const char *find_field(const char *reply, const char *name)
{
    char start[64];
    const char *at;

    (void)snprintf(start, sizeof(start), "\n%s:", name);
    at = strstr(reply, start);
    return at ? at + strlen(start) : NULL;
}

bool hf_test_node_info(const struct hf_test_cluster *cluster, unsigned node,
                       const char *name, uint64_t *number)
{
    char reply[INFO_SIZE];
    const char *field;

    if (cluster->nodes[node].pid == 0 ||
        !read_info(cluster->nodes[node].client_port, reply))
        return false;
    field = find_field(reply, name);
    if (!field)
        return false;
    *number = strtoull(field, NULL, 10);
    return true;
}

/* Returns the term in which the node leads, or 0. */
static uint64_t term_of_leader(const struct hf_test_cluster *cluster,
                               unsigned node)
{
    char reply[INFO_SIZE];
    const char *role, *term;

    if (cluster->nodes[node].pid == 0 ||
        !read_info(cluster->nodes[node].client_port, reply))
        return 0;
    role = find_field(reply, "role");
    term = find_field(reply, "term");
    return role && term && strncmp(role, "leader", 6) == 0
               ? strtoull(term, NULL, 10)
               : 0;
}

/* A leader that was replaced may not know it yet: the highest term decides. */
unsigned hf_test_cluster_leader(const struct hf_test_cluster *cluster)
{
    for (;;) {
        uint64_t highest = 0;
        unsigned leader = 0;

        for (unsigned i = 0; i < cluster->count; i++) {
            uint64_t term = term_of_leader(cluster, i);

            if (term > highest) {
                highest = term;
                leader = i;
            }
        }
        if (highest > 0)
            return leader;
        hf_test_pause();
    }
}

/* ---- Processes ----------------------------------------------------------*/

void hf_test_node_stop(const struct hf_test_cluster *cluster, unsigned node)
{
    int status = 0;

    assert_int_equal(kill(cluster->nodes[node].pid, SIGSTOP), 0);
    assert_int_equal(waitpid(cluster->nodes[node].pid, &status, WUNTRACED),
                     cluster->nodes[node].pid);
    assert_true(WIFSTOPPED(status));
}

void hf_test_node_continue(const struct hf_test_cluster *cluster, unsigned node)
{
    assert_int_equal(kill(cluster->nodes[node].pid, SIGCONT), 0);
}

int hf_test_node_await_exit(struct hf_test_cluster *cluster, unsigned node)
{
    int status = 0;

    assert_int_equal(waitpid(cluster->nodes[node].pid, &status, 0),
                     cluster->nodes[node].pid);
    cluster->nodes[node].pid = 0;
    return status;
}
