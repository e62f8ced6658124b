#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster.h"
#include "failure.h"
#include "text.h"

/* These ports are below those that Linux gives to outgoing connections by
 * default, so that a port is still free when its node is started again. */
#define PORT_MIN 20000
#define PORT_COUNT 12000
#define PORT_ATTEMPTS 1000

/* ---- Ports --------------------------------------------------------------*/

/* Bind a socket to a random port, and return its descriptor, which keeps the
 * port until all ports are chosen. Returns -1 on failure. */
static int reserve_port(uint16_t *port)
{
    for (int i = 0; i < PORT_ATTEMPTS; i++) {
        struct sockaddr_in address = {
            .sin_family = AF_INET,
            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        };
        uint16_t number;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0 || getrandom(&number, sizeof(number), 0) < 0)
            return -1;
        *port = (uint16_t)(PORT_MIN + number % PORT_COUNT);
        address.sin_port = htons(*port);
        if (!bind(fd, (struct sockaddr *)&address, sizeof(address)))
            return fd;
        (void)close(fd);
    }
    return -1;
}

/* Choose a port, and write its address. The descriptor that keeps the port is
 * added to `fds`. */
static bool choose_address(char address[CLUSTER_ADDRESS], int *fds,
                           size_t *reserved)
{
    uint16_t port;
    int fd = reserve_port(&port);

    if (fd < 0)
        return false;
    fds[(*reserved)++] = fd;
    (void)snprintf(address, CLUSTER_ADDRESS, "127.0.0.1:%u", (unsigned)port);
    return true;
}

static bool choose_ports(struct cluster *cluster, size_t count)
{
    int fds[2 * CLUSTER_NODES_MAX];
    size_t reserved = 0;
    bool chosen = true;

    for (size_t i = 0; i < count && chosen; i++) {
        struct cluster_node *node = &cluster->nodes[i];

        node->id = (unsigned)(i + 1);
        chosen = (cluster->mode == CLUSTER_QUORUM ||
                  choose_address(node->peer, fds, &reserved)) &&
                 choose_address(node->client, fds, &reserved);
    }
    for (size_t i = 0; i < reserved; i++)
        (void)close(fds[i]);
    return chosen;
}

int cluster_choose(struct cluster *cluster, const struct args *args,
                   size_t count)
{
    unsigned char id[(CLUSTER_ID - 1) / 2];

    if (getrandom(id, sizeof(id), 0) != sizeof(id))
        return failure(args, HF_ESYSTEM, "the kernel has no random numbers");
    text_hex(id, sizeof(id), cluster->id);
    if (!choose_ports(cluster, count))
        return failure(args, HF_ESYSTEM, "cannot find free ports: %s",
                       strerror(errno));
    cluster->count = count;
    return 0;
}

/* ---- The file -----------------------------------------------------------*/

static void write_lines(const struct cluster *cluster, FILE *file)
{
    (void)fprintf(file, "holdfast-cluster 1\ncluster %s\nmode %s\n",
                  cluster->id, cluster_mode_name(cluster->mode));
    if (cluster->lease_max_ms)
        (void)fprintf(file, "lease_max_ms %u\n", cluster->lease_max_ms);
    for (size_t i = 0; i < cluster->count; i++)
        (void)fprintf(file, "node %u %s%s%s\n", cluster->nodes[i].id,
                      cluster->nodes[i].peer,
                      cluster->nodes[i].peer[0] ? " " : "",
                      cluster->nodes[i].client);
}

static bool sync_cluster_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && !fsync(fd);

    if (fd >= 0)
        (void)close(fd);
    return synced;
}

int cluster_write(const struct cluster *cluster, const struct args *args)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    FILE *file;
    bool failed;

    cluster_path(cluster, "cluster", path);
    cluster_path(cluster, "cluster.tmp", temporary);
    file = fopen(temporary, "we");
    if (!file)
        return cluster_fail_path(args, temporary, "create");
    write_lines(cluster, file);
    failed = fflush(file) || fsync(fileno(file));
    failed = fclose(file) || failed;
    if (failed || rename(temporary, path) ||
        !sync_cluster_directory(cluster->directory))
        return cluster_fail_path(args, path, "write");
    return 0;
}

/* ---- Interrupted creation -----------------------------------------------*/

int cluster_begin_creation(const struct cluster *cluster,
                           const struct args *args)
{
    char path[PATH_MAX];
    int fd;

    cluster_path(cluster, "creating", path);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || !sync_cluster_directory(cluster->directory))
        return cluster_fail_path(args, path, "create");
    (void)close(fd);
    return 0;
}

void cluster_end_creation(const struct cluster *cluster)
{
    char path[PATH_MAX];

    cluster_path(cluster, "creating", path);
    (void)unlink(path);
}

bool cluster_is_incomplete(const struct cluster *cluster)
{
    char path[PATH_MAX];

    cluster_path(cluster, "creating", path);
    if (access(path, F_OK))
        return false;
    for (unsigned id = 1; id <= CLUSTER_NODES_MAX; id++) {
        cluster_node_path(cluster, id, "/pid", path);
        if (!access(path, F_OK))
            return false;
    }
    return true;
}

/* Remove a directory and the files in it. Returns true if there is no such
 * directory any more. */
static bool remove_directory(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;

    if (!folder)
        return errno == ENOENT;
    while ((entry = readdir(folder)))
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    (void)closedir(folder);
    return !rmdir(path);
}

int cluster_discard(const struct cluster *cluster, const struct args *args)
{
    char path[PATH_MAX];

    for (unsigned id = 1; id <= CLUSTER_NODES_MAX; id++) {
        cluster_node_path(cluster, id, "", path);
        if (!remove_directory(path))
            return cluster_fail_path(args, path, "remove");
    }
    cluster_path(cluster, "cluster.tmp", path);
    (void)unlink(path);
    cluster_end_creation(cluster);
    return 0;
}
