#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster.h"
#include "failure.h"
#include "loop.h"

#define MEMBER_SIZE (2 * CLUSTER_ADDRESS + 16)
#define READY_FD 3
#define START_MS 60000
#define STOP_MS 15000
#define LOG_MAX (1 << 20) /* a longer log is renamed when its node starts */

/* ---- Finding processes --------------------------------------------------*/

/* A node holds a lock on its file `pid` while it runs, and the kernel reports
 * the owner of the lock. The process id in the file is not used, because that
 * process may have ended. */
pid_t cluster_pid(const struct cluster *cluster, unsigned id)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[PATH_MAX];
    int fd;

    cluster_node_path(cluster, id, "/pid", path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return 0;
    if (fcntl(fd, F_GETLK, &lock) || lock.l_type == F_UNLCK)
        lock.l_pid = 0;
    (void)close(fd);
    return lock.l_pid > 0 ? lock.l_pid : 0;
}

/* Returns false if `fd` is not readable by the deadline. It is polled at least
 * once: another node may have used up the time. A pidfd is readable when its
 * process has ended. */
static bool await_readable(int fd, int64_t deadline)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};

    do {
        if (poll(&readable, 1, loop_now() < deadline ? 100 : 0) > 0)
            return true;
    } while (loop_now() < deadline);
    return false;
}

/* ---- Running holdfastd --------------------------------------------------*/

/* Execute the holdfastd in the directory of this command, or else the one in
 * PATH. */
__attribute__((noreturn)) static void execute_daemon(const char **argv)
{
    char path[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 16);
    char *slash;

    path[size > 0 ? size : 0] = '\0';
    slash = strrchr(path, '/');
    if (slash) {
        (void)snprintf(slash + 1, 16, "holdfastd");
        (void)execv(path, (char **)(uintptr_t)argv);
    }
    (void)execvp("holdfastd", (char **)(uintptr_t)argv);
    (void)fprintf(stderr,
                  "holdfast: cannot execute holdfastd: %s. It is built "
                  "where libraft and libuv are installed.\n",
                  strerror(errno));
    _exit(STATUS_NOT_FOUND);
}

/* Write "ID=PEER,CLIENT", or "ID=CLIENT" in a quorum. */
static void write_member(const struct cluster_node *node,
                         char text[MEMBER_SIZE])
{
    (void)snprintf(text, MEMBER_SIZE, "%u=%s%s%s", node->id, node->peer,
                   node->peer[0] ? "," : "", node->client);
}

static void add_option(const char **argv, size_t *count, const char *name,
                       const char *value)
{
    argv[(*count)++] = name;
    argv[(*count)++] = value;
}

int cluster_init_node(const struct cluster *cluster, const struct args *args,
                      const struct cluster_node *node)
{
    char members[CLUSTER_NODES_MAX][MEMBER_SIZE];
    char directory[PATH_MAX], id[16], lease_max[16];
    const char *argv[14 + 2 * CLUSTER_NODES_MAX] = {
        "holdfastd", "--init",    "--dir",  directory,
        "--cluster", cluster->id, "--node", id};
    size_t count = 8;
    int status = 0;
    pid_t pid;

    cluster_node_path(cluster, node->id, "", directory);
    (void)snprintf(id, sizeof(id), "%u", node->id);
    (void)snprintf(lease_max, sizeof(lease_max), "%u", cluster->lease_max_ms);
    if (cluster->mode == CLUSTER_QUORUM)
        add_option(argv, &count, "--mode", cluster_mode_name(cluster->mode));
    if (cluster->lease_max_ms)
        add_option(argv, &count, "--lease-max-ms", lease_max);
    for (size_t i = 0; i < cluster->count; i++) {
        write_member(&cluster->nodes[i], members[i]);
        add_option(argv, &count, "--member", members[i]);
    }
    pid = fork();
    if (pid == 0) {
        /* It keeps the lock if this process is killed. Otherwise the next
         * `cluster up` would remove files while they are created. */
        (void)fcntl(cluster->lock, F_SETFD, 0);
        execute_daemon(argv);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
        return failure(args, HF_ESYSTEM, "node %u: cannot initialise %s",
                       node->id, directory);
    return 0;
}

/* ---- Starting -----------------------------------------------------------*/

static bool redirect_output(const struct cluster *cluster, unsigned id)
{
    char path[PATH_MAX], aside[PATH_MAX];
    struct stat stat;
    int log, null = open("/dev/null", O_RDONLY);

    cluster_node_path(cluster, id, ".log", path);
    cluster_node_path(cluster, id, ".log.old", aside);
    if (!lstat(path, &stat) && stat.st_size > LOG_MAX)
        (void)rename(path, aside);
    log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
    return null >= 0 && log >= 0 && dup2(null, STDIN_FILENO) >= 0 &&
           dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0;
}

/* Become a daemon that runs the node. It inherits `ready` as READY_FD, and no
 * other descriptor of this process. */
__attribute__((noreturn)) static void become_node(const struct cluster *cluster,
                                                  unsigned id, int ready)
{
    char directory[PATH_MAX];
    const char *argv[] = {"holdfastd",  "--dir", directory,
                          "--ready-fd", "3",     NULL};

    (void)setsid();
    if (fork() != 0)
        _exit(0);
    cluster_node_path(cluster, id, "", directory);
    if (!redirect_output(cluster, id) || chdir("/"))
        _exit(STATUS_SYSTEM);
    if (ready == READY_FD)
        (void)fcntl(ready, F_SETFD, 0);
    else
        (void)dup2(ready, READY_FD);
#ifdef SYS_close_range
    (void)syscall(SYS_close_range, READY_FD + 1, ~0u, 0);
#endif
    execute_daemon(argv);
}

/* Start the node. Returns a descriptor that becomes readable when the node is
 * ready or has exited, or -1. */
static int spawn_node(const struct cluster *cluster, unsigned id)
{
    int ready[2];
    pid_t pid;

    if (pipe2(ready, O_CLOEXEC))
        return -1;
    pid = fork();
    if (pid == 0)
        become_node(cluster, id, ready[1]);
    (void)close(ready[1]);
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    return ready[0];
}

/* Set `line` to the last line of the node's log, which usually says why the
 * node did not start; or to "see PATH" if the log cannot be read or is
 * empty. */
static void read_last_line(const struct cluster *cluster, unsigned id,
                           char line[1024])
{
    char path[PATH_MAX];
    FILE *log;

    cluster_node_path(cluster, id, ".log", path);
    (void)snprintf(line, 1024, "see %.900s", path);
    log = fopen(path, "re");
    while (log && fgets(line, 1024, log))
        line[strcspn(line, "\n")] = '\0';
    if (log)
        (void)fclose(log);
}

static void await_node(const struct cluster *cluster, struct cluster_node *node,
                       int ready, int64_t deadline)
{
    char line[1024];
    char byte;

    if (await_readable(ready, deadline) && read(ready, &byte, 1) == 1)
        return;
    read_last_line(cluster, node->id, line);
    (void)snprintf(node->down, CLUSTER_TEXT, "did not start: %s", line);
}

void cluster_explain(const struct cluster *cluster, struct cluster_node *node,
                     const char *why)
{
    char line[1024];

    if (cluster_pid(cluster, node->id)) {
        (void)snprintf(node->down, CLUSTER_TEXT, "does not answer: %s", why);
        return;
    }
    read_last_line(cluster, node->id, line);
    (void)snprintf(node->down, CLUSTER_TEXT, "has stopped: %s", line);
}

/* A node whose directory is missing has forgotten its votes, so it must not
 * come back as the same member. If some of its files are missing, holdfastd
 * reports which. */
static bool has_directory(const struct cluster *cluster, unsigned id)
{
    bool is_master = cluster->mode == CLUSTER_QUORUM;
    char config[PATH_MAX], identity[PATH_MAX];

    cluster_node_path(cluster, id, "/config", config);
    cluster_node_path(cluster, id, is_master ? "/master" : "/identity",
                      identity);
    return !access(config, F_OK) || !access(identity, F_OK);
}

static void report_missing(const struct cluster *cluster,
                           struct cluster_node *node)
{
    char path[PATH_MAX];

    cluster_node_path(cluster, node->id, "", path);
    (void)snprintf(node->down, CLUSTER_TEXT,
                   "was not started: %.500s is missing or empty. It is "
                   "not created again, because the node would have forgotten "
                   "its votes. Restore it; or, if all locks may be lost, stop "
                   "the cluster and remove %.500s.",
                   path, cluster->directory);
}

/* Returns true if the directory was copied from another node: the file `config`
 * has a line of another id. */
static bool is_foreign(const struct cluster *cluster, unsigned id)
{
    char path[PATH_MAX], line[256];
    bool found = false;
    unsigned long number = id;
    FILE *config;

    cluster_node_path(cluster, id, "/config", path);
    config = fopen(path, "re");
    while (config && !found && fgets(line, sizeof(line), config)) {
        found = !strncmp(line, "node ", strlen("node "));
        if (found)
            number = strtoul(line + strlen("node "), NULL, 10);
    }
    if (config)
        (void)fclose(config);
    return number != id;
}

/* Two directories of one node, used in turn, would forget each other's
 * votes. */
static void report_foreign(const struct cluster *cluster,
                           struct cluster_node *node)
{
    char path[PATH_MAX];

    cluster_node_path(cluster, node->id, "/config", path);
    (void)snprintf(node->down, CLUSTER_TEXT,
                   "was not started: %.900s is that of another node. Restore "
                   "the directory of this node.",
                   path);
}

/* Start the node if it does not run. Returns the same as spawn_node(), or -1 if
 * there is nothing to wait for. */
static int start_node(struct cluster *cluster, const struct args *args,
                      struct cluster_node *node)
{
    int ready = -1;

    node->down[0] = '\0';
    if (cluster_pid(cluster, node->id))
        return ready;
    if (!has_directory(cluster, node->id)) {
        report_missing(cluster, node);
        return ready;
    }
    if (is_foreign(cluster, node->id)) {
        report_foreign(cluster, node);
        return ready;
    }
    failure_trace(args, "starting node %u", node->id);
    ready = spawn_node(cluster, node->id);
    if (ready < 0)
        (void)snprintf(node->down, CLUSTER_TEXT, "did not start: %s",
                       strerror(errno));
    return ready;
}

void cluster_start(struct cluster *cluster, const struct args *args)
{
    int64_t deadline = loop_now() + START_MS;
    size_t count = cluster->count;
    int ready[CLUSTER_NODES_MAX];

    for (size_t i = 0; i < count; i++)
        ready[i] = start_node(cluster, args, &cluster->nodes[i]);
    for (size_t i = 0; i < count; i++) {
        if (ready[i] < 0)
            continue;
        await_node(cluster, &cluster->nodes[i], ready[i], deadline);
        (void)close(ready[i]);
    }
}

/* ---- Stopping -----------------------------------------------------------*/

/* Send SIGTERM to `pid`, the process that runs the node. A pidfd is used
 * because the process may end and its number be reused: if the node's lock
 * still has the same owner after the pidfd was opened, the pidfd is that of the
 * owner. Returns the pidfd, or -1. */
static int signal_node(const struct cluster *cluster, unsigned id, pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (fd < 0)
        return -1;
    if (cluster_pid(cluster, id) == pid)
        (void)syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0);
    return fd;
}

int cluster_stop(const struct cluster *cluster, const struct args *args,
                 unsigned *count)
{
    int64_t deadline = loop_now() + STOP_MS;
    pid_t pids[CLUSTER_NODES_MAX];
    int fds[CLUSTER_NODES_MAX];
    int status = 0;

    *count = 0;
    for (size_t i = 0; i < cluster->count; i++) {
        pids[i] = cluster_pid(cluster, cluster->nodes[i].id);
        fds[i] =
            pids[i] ? signal_node(cluster, cluster->nodes[i].id, pids[i]) : -1;
        *count += pids[i] != 0;
    }
    for (size_t i = 0; i < cluster->count; i++) {
        if (pids[i] && (fds[i] < 0 || !await_readable(fds[i], deadline)))
            status = failure(args, HF_EUNAVAIL,
                             "node %u, process %ld, did not stop. Try again, "
                             "or end it with kill -9, which is safe.",
                             cluster->nodes[i].id, (long)pids[i]);
        if (fds[i] >= 0)
            (void)close(fds[i]);
    }
    return status;
}
