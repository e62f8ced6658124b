/* cluster.h - a cluster of nodes on this machine: a directory with
 *
 *     cluster         the nodes; see below
 *     lock            locked while `cluster up` or `cluster down` runs
 *     creating        exists until `cluster` is written
 *     node-1, ...     the directory of each node; see holdfastd(8)
 *     node-1.log, ... what each node has written to stderr
 *
 * The file `cluster` is written once, before the first node is started:
 *
 *     holdfast-cluster 1
 *     cluster 8e3f41c2a0a54d5f9d1c3c3c1f9b7a60
 *     mode raft
 *     node 1 127.0.0.1:20011 127.0.0.1:20012
 *
 * A node has an id, an address for its peers and one for clients. A file
 * without a mode is that of a raft cluster. In a quorum cluster, each node is a
 * master, and has no address for peers:
 *
 *     mode quorum
 *     lease_max_ms 60000
 *     node 1 127.0.0.1:20011
 *
 * Without the line lease_max_ms, the default of holdfastd counts.
 *
 * Functions that return an int return 0, or an exit status after reporting the
 * failure. */
#ifndef CLI_CLUSTER_H
#define CLI_CLUSTER_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "args.h"

#define CLUSTER_NODES_MAX 9
#define CLUSTER_ADDRESS 272 /* bytes of an address, with its NUL */
#define CLUSTER_ID 33       /* bytes of a cluster's id, with its NUL */
#define CLUSTER_TEXT 1280   /* bytes of a text about a node, with its NUL */

enum cluster_mode {
    CLUSTER_RAFT = 1,
    CLUSTER_QUORUM,
};

struct cluster_node {
    unsigned id;
    char peer[CLUSTER_ADDRESS]; /* "" in a quorum */
    char client[CLUSTER_ADDRESS];
    char down[CLUSTER_TEXT]; /* "did not start: ..."; "": it seems to run */
    uint64_t quiet_ms;       /* a master, as it answered last; 0: it decides */
};

struct cluster {
    char directory[PATH_MAX];
    char id[CLUSTER_ID];
    enum cluster_mode mode;
    uint32_t lease_max_ms; /* of a quorum; 0: the default of holdfastd */
    struct cluster_node nodes[CLUSTER_NODES_MAX];
    size_t count;
    int lock; /* descriptor of the locked file `lock`, after it was locked */
};

/* ---- cluster_file.c: the directory and its file -------------------------*/

/* The mode called `name`, or 0. */
enum cluster_mode cluster_mode_of(const char *name);

/* The name of the mode, which is also the scheme of its URLs. */
const char *cluster_mode_name(enum cluster_mode mode);

/* Set cluster->directory to that of --dir; by default to "cluster" in the
 * directory of file:. */
int cluster_find(struct cluster *cluster, const struct args *args);

/* Read the file `cluster`. Returns -1 if there is none. */
int cluster_read(struct cluster *cluster, const struct args *args);

/* Write the path of the file `name` in the directory to `path`; or "", with
 * which every use fails, if it is too long. */
void cluster_path(const struct cluster *cluster, const char *name,
                  char path[PATH_MAX]);

/* Like cluster_path(), for the file "node-ID" followed by `suffix`. */
void cluster_node_path(const struct cluster *cluster, unsigned id,
                       const char *suffix, char path[PATH_MAX]);

/* Returns the URL "raft://127.0.0.1:20012,..." or
 * "quorum://127.0.0.1:20011,...", which the caller frees. */
char *cluster_url(const struct cluster *cluster);

/* Report that something cannot be done with `path`, because of errno. Returns
 * the exit status. */
int cluster_fail_path(const struct args *args, const char *path,
                      const char *what);

/* ---- cluster_create.c: a new cluster ------------------------------------*/

/* Choose an id for the cluster, and free ports for `count` nodes. cluster->mode
 * is set. */
int cluster_choose(struct cluster *cluster, const struct args *args,
                   size_t count);

/* Write the file `cluster`, and flush it to the disk. */
int cluster_write(const struct cluster *cluster, const struct args *args);

/* The file `creating` marks a directory in which a cluster is being created.
 * If there is no file `cluster`, cluster_is_incomplete() returns true if the
 * creation was interrupted: the mark is there, and no node was ever started.
 * cluster_discard() then removes what was created. */
int cluster_begin_creation(const struct cluster *cluster,
                           const struct args *args);
void cluster_end_creation(const struct cluster *cluster);
bool cluster_is_incomplete(const struct cluster *cluster);
int cluster_discard(const struct cluster *cluster, const struct args *args);

/* ---- cluster_process.c: the processes of the nodes ----------------------*/

/* The process that runs the node `id`, or 0. */
pid_t cluster_pid(const struct cluster *cluster, unsigned id);

/* The process that listens on a loopback address; 0 if it is unknown, for
 * example because it belongs to another user. */
pid_t cluster_listener_pid(const char *address);

/* Run `holdfastd --init` for the node. */
int cluster_init_node(const struct cluster *cluster, const struct args *args,
                      const struct cluster_node *node);

/* Start the nodes that do not run, and wait until they accept connections. Sets
 * `down` of every node. A node whose directory is missing is not started, and
 * not created again. */
void cluster_start(struct cluster *cluster, const struct args *args);

/* Set `down` of a node that was started and does not answer, because of `why`;
 * or that has stopped by itself. */
void cluster_explain(const struct cluster *cluster, struct cluster_node *node,
                     const char *why);

/* Ask the processes of all nodes to stop, and wait until they have ended.
 * `*count` is the number of processes that ran. */
int cluster_stop(const struct cluster *cluster, const struct args *args,
                 unsigned *count);

/* ---- cluster_request.c: one request to a node ---------------------------*/

/* Send a request of `count` words to the node at `address`, and wait for its
 * reply until `deadline`, on the clock of loop_now(). A host name is resolved
 * first, with a timeout of its own; the time that takes is added to `deadline`.
 * Returns the reply, which the caller frees, or NULL, and sets `*why` to the
 * reason in a few words. */
char *cluster_request(const char *address, const char *const *words,
                      size_t count, int64_t deadline, const char **why);

/* ---- cluster_reply.c: the reply of a node to STATUS, which is JSON ------*/

/* The text after the first "name": in the JSON `text`, or NULL. */
const char *cluster_reply_find(const char *text, const char *name);

/* The number or the truth value of a member; 0 or false if there is none. */
uint64_t cluster_reply_number(const char *text, const char *name);
bool cluster_reply_bool(const char *text, const char *name);

/* Copy the text of a member, or "". Any process may listen at the address of a
 * node, so bytes that could control a terminal are replaced. */
void cluster_reply_text(const char *text, const char *name, char *to,
                        size_t size);

/* ---- cluster_answer.c: whether the cluster answers ----------------------*/

enum cluster_answer {
    CLUSTER_SILENT,  /* no node has answered, or none has found a leader */
    CLUSTER_REFUSES, /* it has no space, or has reached a limit */
    CLUSTER_GRANTS,
};

/* Take and release a lock, at any node that is not down. If it is granted, a
 * majority of the nodes has stored the command. Unless it is granted, `text` is
 * the last answer. Waits up to a minute for an answer. */
enum cluster_answer cluster_try_lock(const struct cluster *cluster,
                                     char text[CLUSTER_TEXT]);

/* Returns true if every node answers, and has found a leader if it is a node of
 * a raft cluster. Sets `down` of the nodes that do not. */
bool cluster_ping(struct cluster *cluster);

/* ---- cluster_masters.c: whether the masters of a quorum decide ----------*/

/* Ask a master for its status, and set its quiet_ms. Returns false, and sets
 * `*why`, if it does not answer. */
bool cluster_ask_master(struct cluster_node *node, const char **why);

/* Ask the masters that are not down. Returns CLUSTER_GRANTS if a majority has
 * answered, quiet or not. Otherwise, after a minute, returns CLUSTER_SILENT,
 * and `text` is the reason. */
enum cluster_answer cluster_try_masters(struct cluster *cluster,
                                        char text[CLUSTER_TEXT]);

/* Wait until a majority of the masters is not quiet, and show that on the
 * terminal. Returns false if it stays quiet, or is down. Sets `down` and
 * `quiet_ms`. */
bool cluster_await_masters(struct cluster *cluster, const struct args *args);

/* Name the masters that are quiet. */
void cluster_warn_of_quiet(const struct cluster *cluster,
                           const struct args *args);

#endif
