/* cluster.h - a cluster of nodes on this machine: a directory with
 *
 *     cluster         the nodes; see below
 *     lock            locked while `cluster up` or `cluster down` runs
 *     node-1, ...     the directory of each node; see holdfastd(8)
 *     node-1.log, ... what each node has written to stderr
 *
 * The file `cluster` is written once, before the first node is started:
 *
 *     holdfast-cluster 1
 *     cluster 8e3f41c2a0a54d5f9d1c3c3c1f9b7a60
 *     node 1 127.0.0.1:20011 127.0.0.1:20012
 *
 * A node has an id, an address for its peers and one for clients.
 *
 * Functions that return an int return 0, or an exit status after reporting the
 * failure. */
#ifndef CLI_CLUSTER_H
#define CLI_CLUSTER_H

#include <limits.h>
#include <sys/types.h>

#include "args.h"

#define CLUSTER_NODES_MAX 9
#define CLUSTER_ADDRESS 64 /* bytes of an address, with its NUL */
#define CLUSTER_ID 33      /* bytes of a cluster's id, with its NUL */

struct cluster_node {
    unsigned id;
    char peer[CLUSTER_ADDRESS];
    char client[CLUSTER_ADDRESS];
};

struct cluster {
    char directory[PATH_MAX];
    char id[CLUSTER_ID];
    struct cluster_node nodes[CLUSTER_NODES_MAX];
    size_t count;
};

/* ---- cluster_file.c: the directory and its file -------------------------*/

/* Set cluster->directory to that of --dir; by default to "cluster" in the
 * directory of file:. */
int cluster_find(struct cluster *cluster, const struct args *args);

/* Read the file `cluster`. Returns -1 if there is none. */
int cluster_read(struct cluster *cluster, const struct args *args);

/* Choose an id for the cluster, and free ports for `count` nodes. */
int cluster_choose(struct cluster *cluster, const struct args *args,
                   size_t count);

/* Write the file `cluster`, and flush it to the disk. */
int cluster_write(const struct cluster *cluster, const struct args *args);

/* Write the path of the file `name` in the directory to `path`; or "", with
 * which every use fails, if it is too long. */
void cluster_path(const struct cluster *cluster, const char *name,
                  char path[PATH_MAX]);

/* Like cluster_path(), for the file "node-ID" followed by `suffix`. */
void cluster_node_path(const struct cluster *cluster, unsigned id,
                       const char *suffix, char path[PATH_MAX]);

/* Returns the URL "raft://127.0.0.1:20012,...", which the caller frees. */
char *cluster_url(const struct cluster *cluster);

/* ---- cluster_process.c: the processes of the nodes ----------------------*/

/* The process that runs the node `id`, or 0. */
pid_t cluster_pid(const struct cluster *cluster, unsigned id);

/* The process that listens on a loopback address; 0 if it is unknown, for
 * example because it belongs to another user. */
pid_t cluster_listener_pid(const char *address);

/* Run `holdfastd --init` for the node. */
int cluster_init_node(const struct cluster *cluster, const struct args *args,
                      const struct cluster_node *node);

/* Start the nodes that do not run, except those whose directory is missing, and
 * wait until the started nodes accept connections. */
int cluster_start(const struct cluster *cluster, const struct args *args);

/* Ask the processes of all nodes to stop, and wait until they have ended.
 * `*count` is the number of processes that ran. */
int cluster_stop(const struct cluster *cluster, const struct args *args,
                 unsigned *count);

/* ---- cluster_request.c: one request to a node ---------------------------*/

/* Send a request of `count` words to the node at `address`, and read its reply
 * until `deadline`, by loop_now(). Returns the reply, which the caller frees,
 * or NULL, in which case `*why` is the reason in a few words. */
char *cluster_request(const char *address, const char *const *words,
                      size_t count, int64_t deadline, const char **why);

#endif
