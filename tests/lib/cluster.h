/* cluster.h - a cluster of holdfastd nodes on the loopback interface.
 *
 * The nodes are killed when the process that started them ends. */
#ifndef HF_TESTS_LIB_CLUSTER_H
#define HF_TESTS_LIB_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define HF_TEST_CLUSTER_MAX 5
#define HF_TEST_CLUSTER_NONE "holdfastd was not built"

struct hf_test_cluster {
    unsigned count;
    char folder[128];
    struct {
        pid_t pid; /* 0: the node does not run */
        int peer_port, client_port;
    } nodes[HF_TEST_CLUSTER_MAX];
};

/* Returns true if this build has holdfastd. */
bool hf_test_cluster_found(void);

/* Start `count` nodes with directories in `folder`, which must exist. Returns
 * false if a node does not start. */
bool hf_test_cluster_start(struct hf_test_cluster *cluster, const char *folder,
                           unsigned count);

/* hf_test_cluster_kill() kills the node with the index `node`, like a crash.
 * hf_test_cluster_restart() starts it again in its directory, and returns false
 * if it does not start. */
void hf_test_cluster_kill(struct hf_test_cluster *cluster, unsigned node);
bool hf_test_cluster_restart(struct hf_test_cluster *cluster, unsigned node);
void hf_test_cluster_stop(struct hf_test_cluster *cluster);

/* Write "raft://127.0.0.1:port,..." followed by `options` to `url`. */
void hf_test_cluster_url(const struct hf_test_cluster *cluster, char *url,
                         size_t size, const char *options);

#endif
