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

/* holdfastd is built in the directory above that of the test programs. */
static bool find_daemon(char path[512])
{
    ssize_t size = readlink("/proc/self/exe", path, 480);
    char *slash;

    if (size <= 0)
        return false;
    path[size] = '\0';
    for (int i = 0; i < 2; i++) {
        slash = strrchr(path, '/');
        if (!slash)
            return false;
        *slash = '\0';
    }
    (void)strcat(path, "/holdfastd");
    return access(path, X_OK) == 0;
}

bool hf_test_cluster_found(void)
{
    char path[512];

    return find_daemon(path);
}

/* ---- Processes ----------------------------------------------------------*/

static _Noreturn void exec_daemon(const char *const *arguments)
{
    char path[512];
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(null_fd, STDIN_FILENO);
    (void)dup2(null_fd, STDOUT_FILENO);
    if (!getenv("HF_TEST_VERBOSE"))
        (void)dup2(null_fd, STDERR_FILENO);
    if (find_daemon(path))
        (void)execv(path, (char *const *)arguments);
    _exit(127);
}

static void node_folder(const struct hf_test_cluster *cluster, unsigned node,
                        char *path, size_t size)
{
    (void)snprintf(path, size, "%s/node-%u", cluster->folder, node + 1);
}

static bool init_node(const struct hf_test_cluster *cluster, unsigned node)
{
    char folder[160], number[8], members[HF_TEST_CLUSTER_MAX][MEMBER_SIZE];
    const char *arguments[ARGUMENTS_MAX] = {
        "holdfastd", "--dir", folder,      "--init",
        "--node",    number,  "--cluster", "0123456789abcdef0123456789abcdef",
    };
    int count = 8, status = 0;
    pid_t pid;

    node_folder(cluster, node, folder, sizeof(folder));
    (void)snprintf(number, sizeof(number), "%u", node + 1);
    for (unsigned i = 0; i < cluster->count; i++) {
        (void)snprintf(members[i], MEMBER_SIZE, "%u=127.0.0.1:%d,127.0.0.1:%d",
                       i + 1, cluster->nodes[i].peer_port,
                       cluster->nodes[i].client_port);
        arguments[count++] = "--member";
        arguments[count++] = members[i];
    }
    pid = fork();
    if (pid == 0)
        exec_daemon(arguments);
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
        exec_daemon(arguments);
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

bool hf_test_cluster_start(struct hf_test_cluster *cluster, const char *folder,
                           unsigned count)
{
    for (int i = 0; i < START_TRIES; i++) {
        *cluster = (struct hf_test_cluster){.count = count};
        (void)snprintf(cluster->folder, sizeof(cluster->folder),
                       "%s/cluster-%d", folder, i);
        if (mkdir(cluster->folder, 0700) == 0 && start_nodes(cluster))
            return true;
        hf_test_cluster_stop(cluster);
    }
    return false;
}

void hf_test_cluster_stop(struct hf_test_cluster *cluster)
{
    for (unsigned i = 0; i < cluster->count; i++)
        hf_test_cluster_kill(cluster, i);
}

void hf_test_cluster_url(const struct hf_test_cluster *cluster, char *url,
                         size_t size, const char *options)
{
    int used = snprintf(url, size, "raft://");

    for (unsigned i = 0; i < cluster->count; i++)
        used += snprintf(url + used, size - (size_t)used, "%s127.0.0.1:%d",
                         i > 0 ? "," : "", cluster->nodes[i].client_port);
    (void)snprintf(url + used, size - (size_t)used, "%s", options);
}
