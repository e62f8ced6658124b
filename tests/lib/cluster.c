#include "lib/cluster.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/folder.h"
#include "lib/loopback.h"

#define START_TRIES 5 /* another process may bind a chosen port first */
#define ARGUMENTS_MAX 24
#define MEMBER_SIZE 64
#define LOG_PATH_SIZE 160

/* holdfastd is built in the directory above that of the test programs. */
static bool find_daemon(char path[512])
{
    static const char name[] = "/holdfastd";
    ssize_t size = readlink("/proc/self/exe", path, 480);
    char *slash = NULL;

    if (size <= 0)
        return false;
    path[size] = '\0';
    for (int i = 0; i < 2; i++) {
        slash = strrchr(path, '/');
        if (!slash)
            return false;
        *slash = '\0';
    }
    memcpy(slash, name, sizeof(name));
    return access(path, X_OK) == 0;
}

bool hf_test_cluster_found(void)
{
    char path[512];

    return find_daemon(path);
}

/* ---- Processes ----------------------------------------------------------*/

static void node_log(const struct hf_test_cluster *cluster, unsigned node,
                     char path[LOG_PATH_SIZE])
{
    (void)snprintf(path, LOG_PATH_SIZE, "%s/node-%u.log", cluster->folder,
                   node + 1);
}

static _Noreturn void exec_daemon(const struct hf_test_cluster *cluster,
                                  unsigned node, const char *const *arguments)
{
    char path[512], log[LOG_PATH_SIZE];
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    int log_fd;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(null_fd, STDIN_FILENO);
    (void)dup2(null_fd, STDOUT_FILENO);
    if (!getenv("HF_TEST_VERBOSE")) {
        node_log(cluster, node, log);
        log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        (void)dup2(log_fd, STDERR_FILENO);
    }
    if (find_daemon(path))
        (void)execv(path, (char *const *)arguments);
    _exit(127);
}

static void node_folder(const struct hf_test_cluster *cluster, unsigned node,
                        char *path, size_t size)
{
    (void)snprintf(path, size, "%s/node-%u", cluster->folder, node + 1);
}

/* Write "ID=PEER,CLIENT", or "ID=CLIENT" in a quorum. */
static void write_member(const struct hf_test_cluster *cluster, unsigned node,
                         char text[MEMBER_SIZE])
{
    int used = snprintf(text, MEMBER_SIZE, "%u=", node + 1);

    if (!cluster->is_quorum)
        used += snprintf(text + used, MEMBER_SIZE - (size_t)used,
                         "127.0.0.1:%d,", cluster->nodes[node].peer_port);
    (void)snprintf(text + used, MEMBER_SIZE - (size_t)used, "127.0.0.1:%d",
                   cluster->nodes[node].client_port);
}

static bool init_node(const struct hf_test_cluster *cluster, unsigned node)
{
    char folder[160], number[8], members[HF_TEST_CLUSTER_MAX][MEMBER_SIZE];
    char lease_max[16];
    const char *arguments[ARGUMENTS_MAX] = {
        "holdfastd", "--dir", folder,      "--init",
        "--node",    number,  "--cluster", "0123456789abcdef0123456789abcdef",
    };
    int count = 8, status = 0;
    pid_t pid;

    node_folder(cluster, node, folder, sizeof(folder));
    (void)snprintf(number, sizeof(number), "%u", node + 1);
    if (cluster->is_quorum) {
        arguments[count++] = "--mode";
        arguments[count++] = "quorum";
        (void)snprintf(lease_max, sizeof(lease_max), "%u",
                       cluster->lease_max_ms);
        arguments[count++] = "--lease-max-ms";
        arguments[count++] = lease_max;
    }
    for (unsigned i = 0; i < cluster->count; i++) {
        write_member(cluster, i, members[i]);
        arguments[count++] = "--member";
        arguments[count++] = members[i];
    }
    pid = fork();
    if (pid == 0)
        exec_daemon(cluster, node, arguments);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* The node writes to the pipe when it accepts connections, and closes it if it
 * exits. */
static bool await_ready(int fd)
{
    char byte;
    bool ready = read(fd, &byte, 1) == 1;

    (void)close(fd);
    return ready;
}

bool hf_test_cluster_restart(struct hf_test_cluster *cluster, unsigned node)
{
    char folder[160], number[16];
    const char *arguments[] = {"holdfastd",  "--dir", folder,
                               "--ready-fd", number,  NULL};
    int ready[2];

    node_folder(cluster, node, folder, sizeof(folder));
    if (pipe(ready))
        return false;
    (void)fcntl(ready[0], F_SETFD, FD_CLOEXEC);
    (void)snprintf(number, sizeof(number), "%d", ready[1]);
    cluster->nodes[node].pid = fork();
    if (cluster->nodes[node].pid == 0)
        exec_daemon(cluster, node, arguments);
    (void)close(ready[1]);
    if (await_ready(ready[0]) && cluster->nodes[node].pid > 0)
        return true;
    hf_test_cluster_kill(cluster, node);
    return false;
}

void hf_test_cluster_kill(struct hf_test_cluster *cluster, unsigned node)
{
    pid_t pid = cluster->nodes[node].pid;

    cluster->nodes[node].pid = 0;
    if (pid <= 0)
        return;
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* ---- The cluster --------------------------------------------------------*/

static bool start_nodes(struct hf_test_cluster *cluster)
{
    for (unsigned i = 0; i < cluster->count; i++) {
        cluster->nodes[i].peer_port = hf_test_free_port();
        cluster->nodes[i].client_port = hf_test_free_port();
    }
    for (unsigned i = 0; i < cluster->count; i++)
        if (!init_node(cluster, i) || !hf_test_cluster_restart(cluster, i))
            return false;
    return true;
}

static bool start_cluster(struct hf_test_cluster *cluster, const char *folder,
                          unsigned count, uint32_t lease_max_ms)
{
    for (int i = 0; i < START_TRIES; i++) {
        *cluster = (struct hf_test_cluster){.is_quorum = lease_max_ms > 0,
                                            .lease_max_ms = lease_max_ms,
                                            .count = count};
        (void)snprintf(cluster->folder, sizeof(cluster->folder),
                       "%s/cluster-%d", folder, i);
        if (mkdir(cluster->folder, 0700) == 0 && start_nodes(cluster))
            return true;
        (void)hf_test_cluster_stop(cluster);
    }
    return false;
}

bool hf_test_cluster_start(struct hf_test_cluster *cluster, const char *folder,
                           unsigned count)
{
    return start_cluster(cluster, folder, count, 0);
}

bool hf_test_cluster_start_masters(struct hf_test_cluster *cluster,
                                   const char *folder, unsigned count,
                                   uint32_t lease_max_ms)
{
    return start_cluster(cluster, folder, count, lease_max_ms);
}

static void print_log(const struct hf_test_cluster *cluster, unsigned node,
                      int status)
{
    char path[LOG_PATH_SIZE], line[512];
    FILE *log;

    (void)fprintf(stderr, "node %u: wait status %#x\n", node + 1,
                  (unsigned)status);
    node_log(cluster, node, path);
    log = fopen(path, "re");
    while (log && fgets(line, sizeof(line), log))
        (void)fputs(line, stderr);
    if (log)
        (void)fclose(log);
}

bool hf_test_cluster_stop(struct hf_test_cluster *cluster)
{
    bool sound = true;

    for (unsigned i = 0; i < cluster->count; i++)
        if (cluster->nodes[i].pid > 0)
            (void)kill(cluster->nodes[i].pid, SIGTERM);
    for (unsigned i = 0; i < cluster->count; i++) {
        pid_t pid = cluster->nodes[i].pid;
        int status = 0;

        cluster->nodes[i].pid = 0;
        if (pid <= 0)
            continue;
        if (waitpid(pid, &status, 0) != pid || status != 0) {
            print_log(cluster, i, status);
            sound = false;
        }
    }
    return sound;
}

void hf_test_cluster_url(const struct hf_test_cluster *cluster, char *url,
                         size_t size, const char *options)
{
    int used =
        snprintf(url, size, cluster->is_quorum ? "quorum://" : "raft://");

    for (unsigned i = 0; i < cluster->count; i++)
        used += snprintf(url + used, size - (size_t)used, "%s127.0.0.1:%d",
                         i > 0 ? "," : "", cluster->nodes[i].client_port);
    (void)snprintf(url + used, size - (size_t)used, "%s", options);
}
