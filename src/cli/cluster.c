#include "cluster.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"
#include "json.h"
#include "text.h"

#define NODES 3
#define ROUNDS 4 /* attempts to start nodes that do not answer */

/* ---- The directory ------------------------------------------------------*/

static int fail_to_create(const struct args *args, const char *path)
{
    return failure(args, HF_ESYSTEM, "%s: cannot create this directory: %s",
                   path, strerror(errno));
}

static int create_directory(const struct cluster *cluster,
                            const struct args *args)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s", cluster->directory);
    for (char *slash = strchr(path + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (access(path, F_OK) && mkdir(path, 0700) && errno != EEXIST)
            return fail_to_create(args, path);
        *slash = '/';
    }
    if (mkdir(path, 0700) && errno != EEXIST)
        return fail_to_create(args, path);
    return 0;
}

/* Exclude other runs of `cluster up` and `cluster down` until this process
 * and the `holdfastd --init` that it runs have ended. */
static int lock_cluster_directory(struct cluster *cluster,
                                  const struct args *args)
{
    char path[PATH_MAX];

    cluster_path(cluster, "lock", path);
    cluster->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (cluster->lock < 0 || flock(cluster->lock, LOCK_EX))
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

static int check_empty(const struct cluster *cluster, const struct args *args)
{
    char *content = find_content(cluster);
    int status;

    if (!content)
        return 0;
    status = failure(args, HF_EUNAVAIL,
                     "%s contains '%s', but no file 'cluster': it is not the "
                     "directory of a cluster. Restore that file, or choose "
                     "another directory.",
                     cluster->directory, content);
    free(content);
    return status;
}

static int create_cluster(struct cluster *cluster, const struct args *args)
{
    size_t count = args->nodes ? args->nodes : NODES;
    int status = 0;

    cluster->mode = args->mode ? args->mode : CLUSTER_RAFT;
    cluster->lease_max_ms = args->lease_max_ms;
    if (args->lease_max_ms && cluster->mode != CLUSTER_QUORUM)
        return failure_usage(args, "--lease-max is for --mode quorum");
    if (cluster_is_incomplete(cluster))
        status = cluster_discard(cluster, args);
    if (!status)
        status = check_empty(cluster, args);
    if (!status)
        status = cluster_begin_creation(cluster, args);
    if (!status)
        status = cluster_choose(cluster, args, count);
    for (size_t i = 0; !status && i < count; i++)
        status = cluster_init_node(cluster, args, &cluster->nodes[i]);
    return status ? status : cluster_write(cluster, args);
}

/* Options that differ from those of an existing cluster are refused. */
static int check_options(const struct cluster *cluster, const struct args *args)
{
    char span[TEXT_SPAN_SIZE] = "the default";

    if (args->mode && args->mode != cluster->mode)
        return failure_usage(args,
                             "%s is a %s cluster, and its mode cannot be "
                             "changed. Omit --mode, or create another cluster "
                             "with --dir.",
                             cluster->directory,
                             cluster_mode_name(cluster->mode));
    if (args->nodes && args->nodes != cluster->count)
        return failure_usage(args,
                             "%s has %zu nodes, and their number cannot be "
                             "changed. Omit --nodes, or create another "
                             "cluster with --dir.",
                             cluster->directory, cluster->count);
    if (!args->lease_max_ms || args->lease_max_ms == cluster->lease_max_ms)
        return 0;
    if (cluster->mode != CLUSTER_QUORUM)
        return failure_usage(args, "--lease-max is for --mode quorum");
    if (cluster->lease_max_ms)
        text_span(cluster->lease_max_ms, span);
    return failure_usage(args,
                         "%s: the maximum lease is %s, and cannot be changed. "
                         "Omit --lease-max, or create another cluster with "
                         "--dir.",
                         cluster->directory, span);
}

static int load_or_create(struct cluster *cluster, const struct args *args)
{
    int status = cluster_read(cluster, args);

    if (status < 0)
        return create_cluster(cluster, args);
    return status ? status : check_options(cluster, args);
}

static size_t count_up(const struct cluster *cluster)
{
    size_t count = 0;

    for (size_t i = 0; i < cluster->count; i++)
        count += cluster->nodes[i].down[0] == '\0';
    return count;
}

static void warn_of_down(const struct cluster *cluster, const struct args *args)
{
    for (size_t i = 0; i < cluster->count; i++) {
        if (cluster->nodes[i].down[0] != '\0')
            failure_warn(args, HF_EUNAVAIL, "node %u %s", cluster->nodes[i].id,
                         cluster->nodes[i].down);
    }
}

static int fail_without_majority(const struct cluster *cluster,
                                 const struct args *args)
{
    warn_of_down(cluster, args);
    return failure(args, HF_EUNAVAIL,
                   "%zu of %zu nodes run, which is not a majority. Repair the "
                   "others, and run 'holdfast cluster up' again.",
                   count_up(cluster), cluster->count);
}

static int fail_without_answer(const struct cluster *cluster,
                               const struct args *args, const char *text)
{
    warn_of_down(cluster, args);
    return failure(args, HF_EUNAVAIL,
                   "the nodes run, but the cluster does not answer: %s. See "
                   "'holdfast status' and the logs in %s.",
                   text, cluster->directory);
}

/* Wait until the cluster answers. `refusal` is why it refuses new locks, or "".
 * Masters that are quiet answer. */
static int await_answer(struct cluster *cluster, const struct args *args,
                        char refusal[CLUSTER_TEXT])
{
    char text[CLUSTER_TEXT];

    refusal[0] = '\0';
    switch (cluster->mode == CLUSTER_QUORUM ? cluster_try_masters(cluster, text)
                                            : cluster_try_lock(cluster, text)) {
    case CLUSTER_GRANTS:
        return 0;
    case CLUSTER_REFUSES:
        (void)snprintf(refusal, CLUSTER_TEXT, "%s", text);
        return 0;
    case CLUSTER_SILENT:
        break;
    }
    return fail_without_answer(cluster, args, text);
}

/* Start the nodes, and wait until the cluster answers. It does not need all of
 * its nodes for that. cluster_start() may skip a node whose process was just
 * killed, because the process still holds the lock of its pid file, so try
 * again if a node does not answer. */
static int start_nodes(struct cluster *cluster, const struct args *args,
                       char refusal[CLUSTER_TEXT])
{
    bool all = false;

    for (int i = 0; i < ROUNDS && !all; i++) {
        int status;

        cluster_start(cluster, args);
        if (count_up(cluster) <= cluster->count / 2)
            return fail_without_majority(cluster, args);
        status = await_answer(cluster, args, refusal);
        if (status)
            return status;
        all = cluster_ping(cluster);
    }
    return 0;
}

/* Wait until a majority of the masters decides. Another command may stop the
 * nodes meanwhile, so the directory is not locked. */
static int await_masters(struct cluster *cluster, const struct args *args)
{
    (void)close(cluster->lock);
    if (cluster_await_masters(cluster, args))
        return 0;
    if (count_up(cluster) <= cluster->count / 2)
        return fail_without_majority(cluster, args);
    return fail_without_answer(cluster, args, "the masters are quiet");
}

static void warn_of_limits(const struct cluster *cluster,
                           const struct args *args, const char *refusal)
{
    size_t count = count_up(cluster);

    if (refusal[0] != '\0')
        failure_warn(args, HF_ELIMIT,
                     "the cluster answers, but refuses new locks: %s", refusal);
    warn_of_down(cluster, args);
    cluster_warn_of_quiet(cluster, args);
    if (count < cluster->count)
        failure_warn(args, HF_EUNAVAIL,
                     "%zu of %zu nodes serve the cluster. Repair the others, "
                     "and run 'holdfast cluster up' again.",
                     count, cluster->count);
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
    int status = create_directory(cluster, args);
    char refusal[CLUSTER_TEXT];

    if (!status)
        status = lock_cluster_directory(cluster, args);
    if (!status)
        status = load_or_create(cluster, args);
    if (status)
        return status;
    cluster_end_creation(cluster); /* before any node is started */
    status = start_nodes(cluster, args, refusal);
    if (!status && cluster->mode == CLUSTER_QUORUM)
        status = await_masters(cluster, args);
    if (status)
        return status;
    warn_of_limits(cluster, args, refusal);
    print_url(cluster, args);
    return status;
}

/* ---- Down ---------------------------------------------------------------*/

static int cluster_down(struct cluster *cluster, const struct args *args)
{
    unsigned count = 0;
    struct json json;
    int status;

    if (args->nodes || args->mode || args->lease_max_ms)
        return failure_usage(args, "--%s is for 'cluster up'",
                             args->nodes  ? "nodes"
                             : args->mode ? "mode"
                                          : "lease-max");
    status = cluster_read(cluster, args);
    if (status < 0)
        return failure(args, HF_EUNAVAIL,
                       "%s: there is no cluster here. Give its directory with "
                       "--dir.",
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
        "answers, and prints its URL. A majority of the nodes is enough for\n"
        "that; it warns of the others. 'down' stops the nodes; the locks stay,\n"
        "and their leases are counted again from the next start.\n"
        "\n"
        "With '--mode quorum', the nodes are masters of quorum:, and have the\n"
        "locks in memory. 'down' ends the locks, but a master does not know\n"
        "which: after a restart it is quiet, and grants nothing, for the\n"
        "longest lease that it accepts, --lease-max. If a majority is quiet,\n"
        "'up' waits for that, and says so on stderr.\n"
        "\n"
        "The default of DIR is 'cluster' in the directory of 'file:'. The log\n"
        "of each node is DIR/node-N.log. A node whose directory is missing is\n"
        "not created again: it would have forgotten its votes.\n",
    .examples = "  export HOLDFAST_URL=$(holdfast cluster up)\n"
                "  holdfast status\n"
                "  holdfast cluster up --nodes 5 --dir ./five\n"
                "  holdfast cluster up --mode quorum --dir ./quorum\n"
                "  holdfast cluster down\n",
    .options = OPTION(MODE) | OPTION(NODES) | OPTION(LEASE_MAX) | OPTION(DIR),
    .words_min = 1,
    .words_max = 1,
    .main = cluster_main,
};
