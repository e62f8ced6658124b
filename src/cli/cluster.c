#include "cluster.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"
#include "json.h"
#include "loop.h"
#include "text.h"

#define NODES 3
#define ANSWER_MS 60000 /* how long to wait until the cluster grants a lock */
#define ATTEMPT_MS 2000
#define PAUSE_US 50000
#define ROUNDS 4

/* ---- The directory ------------------------------------------------------*/

static int create_directory(const struct cluster *cluster,
                            const struct args *args)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s", cluster->directory);
    for (char *slash = strchr(path + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    if (mkdir(path, 0700) && errno != EEXIST)
        return failure(args, HF_ESYSTEM, "%s: cannot create it: %s", path,
                       strerror(errno));
    return 0;
}

/* Exclude other runs of `cluster up` and `cluster down` until this process
 * ends. */
static int lock_cluster_directory(const struct cluster *cluster,
                                  const struct args *args)
{
    char path[PATH_MAX];
    int fd;

    cluster_path(cluster, "lock", path);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX))
        return failure(args, HF_ESYSTEM, "%s: cannot lock: %s", path,
                       strerror(errno));
    return 0;
}

/* The name of any file in the directory besides the lock, or NULL. */
static char *find_content(const struct cluster *cluster)
{
    DIR *folder = opendir(cluster->directory);
    struct dirent *entry;
    char *found = NULL;

    while (folder && !found && (entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") != 0 &&
            strcmp(entry->d_name, "..") != 0 &&
            strcmp(entry->d_name, "lock") != 0)
            found = text_copy(entry->d_name);
    }
    if (folder)
        (void)closedir(folder);
    return found;
}

/* ---- Up -----------------------------------------------------------------*/

static int create_cluster(struct cluster *cluster, const struct args *args)
{
    size_t count = args->nodes ? args->nodes : NODES;
    char *content = find_content(cluster);
    int status;

    if (content) {
        status = failure(args, HF_EUNAVAIL,
                         "%s contains '%s', but no file 'cluster': it is not "
                         "the directory of a cluster, or the creation of one "
                         "was interrupted. Remove it, or choose another one.",
                         cluster->directory, content);
        free(content);
        return status;
    }
    status = cluster_choose(cluster, args, count);
    for (size_t i = 0; !status && i < count; i++)
        status = cluster_init_node(cluster, args, &cluster->nodes[i]);
    return status ? status : cluster_write(cluster, args);
}

static int load_or_create(struct cluster *cluster, const struct args *args)
{
    int status = cluster_read(cluster, args);

    if (status < 0)
        return create_cluster(cluster, args);
    if (!status && args->nodes && args->nodes != cluster->count)
        return failure_usage(args,
                             "%s has %zu nodes, and their number cannot be "
                             "changed. Omit --nodes, or create another "
                             "cluster with --dir.",
                             cluster->directory, cluster->count);
    return status;
}

/* Report each node whose directory is missing or incomplete; returns 0 if there
 * is none. Such a node has forgotten its votes, so it must not come back as the
 * same member. */
static int report_missing(const struct cluster *cluster,
                          const struct args *args)
{
    int status = 0;

    for (size_t i = 0; i < cluster->count; i++) {
        char path[PATH_MAX];

        cluster_node_path(cluster, cluster->nodes[i].id, "/config", path);
        if (!access(path, F_OK))
            continue;
        *strrchr(path, '/') = '\0';
        status = failure(args, HF_EUNAVAIL,
                         "node %u: %s is missing or incomplete. It is not "
                         "created again, because the node would have "
                         "forgotten its votes. Restore it; or, if all locks "
                         "may be lost, stop the cluster and remove %s.",
                         cluster->nodes[i].id, path, cluster->directory);
    }
    return status;
}

/* Take and release a lock. If that succeeds, a majority of the nodes has stored
 * the command. */
static bool try_write(const char *address, int64_t deadline, const char **why)
{
    unsigned char bytes[16];
    char nonce[2 * sizeof(bytes) + 1], key[64];
    const char *lock[] = {"LOCK", key, "5000", "NONCE", nonce};
    const char *cancel[] = {"CANCEL", key, nonce};
    char *reply;
    bool granted;

    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return false;
    text_hex(bytes, sizeof(bytes), nonce);
    (void)snprintf(key, sizeof(key), "holdfast cluster up %.8s", nonce);
    reply = cluster_request(address, lock, 5, deadline, why);
    granted = reply && reply[0] == '*';
    if (reply && !granted)
        *why = "a write was refused";
    free(reply);
    if (granted)
        free(cluster_request(address, cancel, 3, deadline, why));
    return granted;
}

static int await_answer(const struct cluster *cluster, const struct args *args)
{
    int64_t until = loop_now() + ANSWER_MS;
    const char *why = "no answer";

    for (size_t i = 0; loop_now() < until; i++) {
        const struct cluster_node *node = &cluster->nodes[i % cluster->count];

        if (try_write(node->client, loop_now() + ATTEMPT_MS, &why))
            return 0;
        (void)usleep(PAUSE_US);
    }
    return failure(args, HF_EUNAVAIL,
                   "the nodes run, but the cluster does not answer: %s. See "
                   "'holdfast status' and the logs in %s.",
                   why, cluster->directory);
}

/* Returns true if every node answers. cluster_start() may have skipped a node
 * whose process was just killed, because the process still held the lock of its
 * pid file. In the last round (`last`), warn about nodes that do not answer. */
static bool all_answer(const struct cluster *cluster, const struct args *args,
                       bool last)
{
    const char *ping[] = {"PING"};
    bool all = true;

    for (size_t i = 0; i < cluster->count; i++) {
        const struct cluster_node *node = &cluster->nodes[i];
        const char *why;
        char *reply = cluster_request(node->client, ping, 1,
                                      loop_now() + ATTEMPT_MS, &why);

        if (!reply && last)
            failure_warn(args, HF_EUNAVAIL, "node %u does not answer: %s",
                         node->id, why);
        all = all && reply;
        free(reply);
    }
    return all;
}

static int start_nodes(const struct cluster *cluster, const struct args *args)
{
    int status = 0;

    for (int i = 1; i <= ROUNDS; i++) {
        status = cluster_start(cluster, args);
        if (!status)
            status = await_answer(cluster, args);
        if (status || all_answer(cluster, args, i == ROUNDS))
            break;
    }
    return status;
}

static void print_url(const struct cluster *cluster, const struct args *args)
{
    char *url = cluster_url(cluster);
    struct json json;

    if (args->json) {
        json_open(&json, stdout);
        json_text(&json, "url", url);
        json_text(&json, "directory", cluster->directory);
        json_close(&json);
    } else {
        (void)puts(url);
    }
    free(url);
}

static int cluster_up(struct cluster *cluster, const struct args *args)
{
    int missing, status = create_directory(cluster, args);

    if (!status)
        status = lock_cluster_directory(cluster, args);
    if (!status)
        status = load_or_create(cluster, args);
    if (status)
        return status;
    missing = report_missing(cluster, args);
    if (missing) {
        (void)cluster_start(cluster, args);
        return missing;
    }
    status = start_nodes(cluster, args);
    if (!status)
        print_url(cluster, args);
    return status;
}

/* ---- Down ---------------------------------------------------------------*/

static int cluster_down(struct cluster *cluster, const struct args *args)
{
    unsigned count = 0;
    struct json json;
    int status;

    if (args->nodes)
        return failure_usage(args, "--nodes is for 'cluster up'");
    status = cluster_read(cluster, args);
    if (status < 0)
        return failure(args, HF_EUNAVAIL, "%s: there is no cluster here",
                       cluster->directory);
    if (!status)
        status = lock_cluster_directory(cluster, args);
    if (!status)
        status = cluster_stop(cluster, args, &count);
    if (!status && args->json) {
        json_open(&json, stdout);
        json_number(&json, "stopped", count);
        json_close(&json);
    }
    return status;
}

static int cluster_main(struct args *args)
{
    bool up = !strcmp(args->words[0], "up");
    struct cluster cluster;
    int status;

    if (!up && strcmp(args->words[0], "down") != 0)
        return failure_usage(args, "expected 'cluster up' or 'cluster down'");
    if (args->url)
        return failure_usage(args, "--url has no meaning here; use --dir");
    status = cluster_find(&cluster, args);
    if (status)
        return status;
    return up ? cluster_up(&cluster, args) : cluster_down(&cluster, args);
}

const struct verb verb_cluster = {
    .name = "cluster",
    .words = "up|down",
    .summary = "start or stop a cluster of nodes on this machine",
    .text =
        "'up' starts the nodes of the cluster in DIR that do not run, and\n"
        "creates the cluster if there is none. It returns when the cluster\n"
        "answers, and prints its URL. 'down' stops the nodes; the locks stay,\n"
        "and their leases are counted again from the next start.\n"
        "\n"
        "The default of DIR is 'cluster' in the directory of 'file:'. The log\n"
        "of each node is DIR/node-N.log. A node whose directory is missing is\n"
        "not created again: it would have forgotten its votes.\n",
    .examples = "  export HOLDFAST_URL=$(holdfast cluster up)\n"
                "  holdfast status\n"
                "  holdfast cluster up --nodes 5 --dir ./five\n"
                "  holdfast cluster down\n",
    .options = OPTION(NODES) | OPTION(DIR),
    .words_min = 1,
    .words_max = 1,
    .main = cluster_main,
};
