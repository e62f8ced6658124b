#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster.h"
#include "failure.h"
#include "number.h"
#include "text.h"

#define FILE_MAX 4096

/* These ports are below those that Linux gives to outgoing connections by
 * default, so that a port is still free when its node is started again. */
#define PORT_MIN 20000
#define PORT_COUNT 12000
#define PORT_ATTEMPTS 1000

static int fail_path(const struct args *args, const char *path,
                     const char *what)
{
    return failure(args, HF_ESYSTEM, "%s: cannot %s: %s", path, what,
                   strerror(errno));
}

void cluster_path(const struct cluster *cluster, const char *name,
                  char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s", cluster->directory, name) >= PATH_MAX)
        path[0] = '\0'; /* so that every use fails */
}

void cluster_node_path(const struct cluster *cluster, unsigned id,
                       const char *suffix, char path[PATH_MAX])
{
    char name[80];

    (void)snprintf(name, sizeof(name), "node-%u%s", id, suffix);
    cluster_path(cluster, name, path);
}

/* ---- The directory ------------------------------------------------------*/

static void on_fact(const char *name, const char *text, void *arg)
{
    struct cluster *cluster = arg;

    if (!strcmp(name, "directory") &&
        snprintf(cluster->directory, PATH_MAX, "%s/cluster", text) >= PATH_MAX)
        cluster->directory[0] = '\0';
}

/* Set the default directory. The library finds the directory of file:, and
 * creates it. */
static int find_default(struct cluster *cluster, const struct args *args)
{
    struct hf_client_opts opts;
    struct hf_client *client = NULL;
    struct hf_error error = {0};
    enum hf_err err;

    hf_client_opts_init(&opts);
    opts.error = &error;
    err = hf_open("file:", &opts, &client);
    if (!err)
        err = hf_describe(client, on_fact, cluster);
    (void)hf_close(client, 0);
    if (err || cluster->directory[0] == '\0')
        return failure(args, err ? err : HF_ESYSTEM,
                       "cannot find the default directory: %s. Choose one "
                       "with --dir.",
                       error.text);
    return 0;
}

/* The path must be absolute, because the nodes run in the directory "/". */
static int make_absolute(struct cluster *cluster, const struct args *args)
{
    char here[PATH_MAX];
    int size;

    if (args->dir[0] == '\0')
        return failure_usage(args, "--dir is empty");
    if (args->dir[0] == '/') {
        size = snprintf(cluster->directory, PATH_MAX, "%s", args->dir);
    } else {
        if (!getcwd(here, sizeof(here)))
            return fail_path(args, ".", "find the current directory");
        size = snprintf(cluster->directory, PATH_MAX, "%s/%s", here, args->dir);
    }
    if (size >= PATH_MAX)
        return failure_usage(args, "--dir: the path is too long");
    return 0;
}

int cluster_find(struct cluster *cluster, const struct args *args)
{
    *cluster = (struct cluster){.count = 0};
    return args->dir ? make_absolute(cluster, args)
                     : find_default(cluster, args);
}

/* ---- Reading ------------------------------------------------------------*/

static bool copy_word(char *to, size_t size, const char *word)
{
    return word && (size_t)snprintf(to, size, "%s", word) < size;
}

/* Parse "ID PEER CLIENT". The ids must be 1, 2, ... in this order. */
static bool parse_node(struct cluster *cluster, char *words)
{
    struct cluster_node *node = &cluster->nodes[cluster->count];
    char *rest = NULL;
    const char *id = strtok_r(words, " ", &rest);
    uint64_t number;

    if (cluster->count == CLUSTER_NODES_MAX || !id ||
        number_parse(id, CLUSTER_NODES_MAX, &number) ||
        number != cluster->count + 1)
        return false;
    node->id = (unsigned)number;
    cluster->count++;
    return copy_word(node->peer, CLUSTER_ADDRESS, strtok_r(NULL, " ", &rest)) &&
           copy_word(node->client, CLUSTER_ADDRESS,
                     strtok_r(NULL, " ", &rest)) &&
           !strtok_r(NULL, " ", &rest);
}

static bool parse_cluster_file_line(struct cluster *cluster, char *line)
{
    if (!strncmp(line, "cluster ", strlen("cluster ")))
        return copy_word(cluster->id, CLUSTER_ID, line + strlen("cluster ")) &&
               strspn(cluster->id, "0123456789abcdef") == CLUSTER_ID - 1;
    return !strncmp(line, "node ", strlen("node ")) &&
           parse_node(cluster, line + strlen("node "));
}

static int parse_file(struct cluster *cluster, const struct args *args,
                      const char *path, char *text)
{
    char *rest = NULL;
    char *line = strtok_r(text, "\n", &rest);

    if (!line || strcmp(line, "holdfast-cluster 1") != 0)
        return failure(args, HF_EPROTO,
                       "%s: not the file of a cluster, or that of a newer "
                       "version",
                       path);
    while ((line = strtok_r(NULL, "\n", &rest))) {
        if (!parse_cluster_file_line(cluster, line))
            return failure(args, HF_EPROTO, "%s: malformed line '%.80s ...'",
                           path, line);
    }
    if (cluster->count == 0 || cluster->id[0] == '\0')
        return failure(args, HF_EPROTO, "%s: the file is incomplete", path);
    return 0;
}

int cluster_read(struct cluster *cluster, const struct args *args)
{
    char path[PATH_MAX], text[FILE_MAX];
    ssize_t size;
    int fd;

    cluster_path(cluster, "cluster", path);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -1 : fail_path(args, path, "open");
    size = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    if (size < 0)
        return fail_path(args, path, "read");
    text[size] = '\0';
    return parse_file(cluster, args, path, text);
}

/* ---- Creating -----------------------------------------------------------*/

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

static bool choose_ports(struct cluster *cluster, size_t count)
{
    int fds[2 * CLUSTER_NODES_MAX];
    size_t reserved = 0;
    uint16_t port;

    while (reserved < 2 * count) {
        struct cluster_node *node = &cluster->nodes[reserved / 2];

        fds[reserved] = reserve_port(&port);
        if (fds[reserved] < 0)
            break;
        (void)snprintf(reserved % 2 ? node->client : node->peer,
                       CLUSTER_ADDRESS, "127.0.0.1:%u", (unsigned)port);
        node->id = (unsigned)(reserved / 2 + 1);
        reserved++;
    }
    for (size_t i = 0; i < reserved; i++)
        (void)close(fds[i]);
    return reserved == 2 * count;
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

static void write_lines(const struct cluster *cluster, FILE *file)
{
    (void)fprintf(file, "holdfast-cluster 1\ncluster %s\n", cluster->id);
    for (size_t i = 0; i < cluster->count; i++)
        (void)fprintf(file, "node %u %s %s\n", cluster->nodes[i].id,
                      cluster->nodes[i].peer, cluster->nodes[i].client);
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
        return fail_path(args, temporary, "create");
    write_lines(cluster, file);
    failed = fflush(file) || fsync(fileno(file));
    failed = fclose(file) || failed;
    if (failed || rename(temporary, path) ||
        !sync_cluster_directory(cluster->directory))
        return fail_path(args, path, "write");
    return 0;
}

char *cluster_url(const struct cluster *cluster)
{
    char text[16 + CLUSTER_NODES_MAX * (size_t)CLUSTER_ADDRESS];
    int size = 0;

    for (size_t i = 0; i < cluster->count; i++)
        size += snprintf(text + size, sizeof(text) - (size_t)size, "%s%s",
                         i > 0 ? "," : "raft://", cluster->nodes[i].client);
    return text_copy(text);
}
