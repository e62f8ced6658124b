/* cluster.h - a cluster of holdfastd nodes on the loopback interface.
 *
 * The nodes are killed when the process that started them ends. What a node
 * prints goes to the file node-N.log in the folder of the cluster, or to stderr
 * if HF_TEST_VERBOSE is set. */
#ifndef HF_TESTS_LIB_CLUSTER_H
#define HF_TESTS_LIB_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HF_TEST_CLUSTER_MAX 5
#define HF_TEST_CLUSTER_NONE "holdfastd was not built"

struct hf_test_cluster {
    bool is_quorum; /* the nodes are masters of quorum:, not nodes of raft: */
    uint32_t lease_max_ms; /* of masters: the longest lease */
    unsigned count;
    char folder[128];
    struct {
        pid_t pid;                  /* 0: the node does not run */
        int peer_port, client_port; /* masters use only `client_port` */
    } nodes[HF_TEST_CLUSTER_MAX];
};

/* Returns true if this build has holdfastd. */
bool hf_test_cluster_found(void);

/* Start `count` nodes of raft:, or masters of quorum:, with directories in
 * `folder`, which must exist. A master that is started again decides nothing
 * for `lease_max_ms`. Returns false if a node does not start. */
bool hf_test_cluster_start(struct hf_test_cluster *cluster, const char *folder,
                           unsigned count);
bool hf_test_cluster_start_masters(struct hf_test_cluster *cluster,
                                   const char *folder, unsigned count,
                                   uint32_t lease_max_ms);

/* hf_test_cluster_kill() kills the node with the index `node`, like a crash.
 * hf_test_cluster_restart() starts it again in its directory, and returns false
 * if it does not start. */
void hf_test_cluster_kill(struct hf_test_cluster *cluster, unsigned node);
bool hf_test_cluster_restart(struct hf_test_cluster *cluster, unsigned node);

/* Stop the nodes that run, with SIGTERM. Returns false, and prints its log, if
 * a node was not running any more or exits with an error: a sanitizer may have
 * found one. */
bool hf_test_cluster_stop(struct hf_test_cluster *cluster);

/* Write "raft://127.0.0.1:port,...", or the same with "quorum:", followed by
 * `options` to `url`. */
void hf_test_cluster_url(const struct hf_test_cluster *cluster, char *url,
                         size_t size, const char *options);

#endif
