#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cluster.h"
#include "failure.h"
#include "number.h"
#include "text.h"

#define FILE_MAX 4096

int cluster_fail_path(const struct args *args, const char *path,
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
            return cluster_fail_path(args, ".", "find the current directory");
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

/* ---- Modes --------------------------------------------------------------*/

static const char *const modes[] = {
    [CLUSTER_RAFT] = "raft",
    [CLUSTER_QUORUM] = "quorum",
};

enum cluster_mode cluster_mode_of(const char *name)
{
    for (unsigned i = CLUSTER_RAFT; i <= CLUSTER_QUORUM; i++) {
        if (!strcmp(modes[i], name))
            return (enum cluster_mode)i;
    }
    return 0;
}

const char *cluster_mode_name(enum cluster_mode mode)
{
    return modes[mode];
}

/* ---- Reading ------------------------------------------------------------*/

static bool copy_word(char *to, size_t size, const char *word)
{
    return word && (size_t)snprintf(to, size, "%s", word) < size;
}

/* Parse "ID PEER CLIENT", or "ID CLIENT" in a quorum. The ids must be 1, 2, ...
 * in this order. */
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
    return (cluster->mode == CLUSTER_QUORUM ||
            copy_word(node->peer, CLUSTER_ADDRESS,
                      strtok_r(NULL, " ", &rest))) &&
           copy_word(node->client, CLUSTER_ADDRESS,
                     strtok_r(NULL, " ", &rest)) &&
           !strtok_r(NULL, " ", &rest);
}

/* Parse a setting. They come before the nodes. */
static bool parse_cluster_setting(struct cluster *cluster, const char *line)
{
    uint64_t number;

    if (cluster->count > 0)
        return false;
    if (!strncmp(line, "mode ", strlen("mode "))) {
        cluster->mode = cluster_mode_of(line + strlen("mode "));
        return cluster->mode != 0;
    }
    if (strncmp(line, "lease_max_ms ", strlen("lease_max_ms ")) != 0 ||
        number_parse(line + strlen("lease_max_ms "), UINT32_MAX, &number))
        return false;
    cluster->lease_max_ms = (uint32_t)number;
    return true;
}

static bool parse_cluster_file_line(struct cluster *cluster, char *line)
{
    if (!strncmp(line, "cluster ", strlen("cluster ")))
        return copy_word(cluster->id, CLUSTER_ID, line + strlen("cluster ")) &&
               strspn(cluster->id, "0123456789abcdef") == CLUSTER_ID - 1;
    if (!strncmp(line, "node ", strlen("node ")))
        return parse_node(cluster, line + strlen("node "));
    return parse_cluster_setting(cluster, line);
}

static int parse_file(struct cluster *cluster, const struct args *args,
                      const char *path, char *text)
{
    char *rest = NULL;
    char *line = strtok_r(text, "\n", &rest);

    if (!line || strcmp(line, "holdfast-cluster 1") != 0)
        return failure(args, HF_EPROTO,
                       "%s: not the file of a cluster, or that of a newer "
                       "version. Upgrade holdfast, or restore this file: it "
                       "never changes.",
                       path);
    cluster->mode = CLUSTER_RAFT;
    while ((line = strtok_r(NULL, "\n", &rest))) {
        if (!parse_cluster_file_line(cluster, line))
            return failure(args, HF_EPROTO,
                           "%s: malformed line '%.80s ...'. Restore this file: "
                           "it never changes.",
                           path, line);
    }
    if (cluster->count == 0 || cluster->id[0] == '\0')
        return failure(args, HF_EPROTO,
                       "%s: the file is incomplete. Restore it: it never "
                       "changes.",
                       path);
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
        return errno == ENOENT ? -1 : cluster_fail_path(args, path, "open");
    size = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    if (size < 0)
        return cluster_fail_path(args, path, "read");
    text[size] = '\0';
    return parse_file(cluster, args, path, text);
}

char *cluster_url(const struct cluster *cluster)
{
    char text[16 + CLUSTER_NODES_MAX * (size_t)CLUSTER_ADDRESS];
    int size =
        snprintf(text, sizeof(text), "%s:/", cluster_mode_name(cluster->mode));

    for (size_t i = 0; i < cluster->count; i++)
        size += snprintf(text + size, sizeof(text) - (size_t)size, "%s%s",
                         i > 0 ? "," : "/", cluster->nodes[i].client);
    return text_copy(text);
}
