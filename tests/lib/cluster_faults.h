/* cluster_faults.h - what cases with failing nodes need besides cluster.h: the
 * leader, stopped and exited nodes, their logs, and faults of their files. */
#ifndef HF_TESTS_LIB_CLUSTER_FAULTS_H
#define HF_TESTS_LIB_CLUSTER_FAULTS_H

#include <stdint.h>

#include "fault/faults.h"
#include "lib/cluster.h"

/* Prepare the nodes that are started from now on for faults (fault/faults.h).
 * Skips the case if the module is not built. */
void hf_test_faults_enable(void);

/* Move this process into a network namespace of its own, if it may and is not
 * in one already: there, no other process can bind the port of a node that is
 * down. Call it before the cluster is started, and hf_test_network_keep_ports()
 * afterwards: it keeps this case's own connections away from these ports. */
void hf_test_network_enter(void);
void hf_test_network_keep_ports(void);
bool hf_test_network_is_own(void);

/* The faults of a node. They can be set before the node is initialised. */
struct hf_faults *hf_test_faults(const struct hf_test_cluster *cluster,
                                 unsigned node);
void hf_test_faults_set(struct hf_faults *faults, enum hf_fault fault,
                        unsigned after);

/* The path of a file in the directory of a node, or of the directory itself if
 * `name` is NULL. The text is valid until the next call. */
const char *hf_test_node_path(const struct hf_test_cluster *cluster,
                              unsigned node, const char *name);

/* Returns true if a line that the node has printed since its first start
 * contains `words`. */
bool hf_test_node_has_logged(const struct hf_test_cluster *cluster,
                             unsigned node, const char *words);

/* A number of the reply to INFO, such as "term". Returns false if the node does
 * not answer soon. */
bool hf_test_node_info(const struct hf_test_cluster *cluster, unsigned node,
                       const char *name, uint64_t *number);

/* Wait until a running node leads, and return its index. */
unsigned hf_test_cluster_leader(const struct hf_test_cluster *cluster);

/* Stop a node with SIGSTOP, and wait until it has stopped; continue it. */
void hf_test_node_stop(const struct hf_test_cluster *cluster, unsigned node);
void hf_test_node_continue(const struct hf_test_cluster *cluster,
                           unsigned node);

/* Wait until a node ends by itself. Returns its status, as of waitpid(). */
int hf_test_node_await_exit(struct hf_test_cluster *cluster, unsigned node);

/* Sleep for a moment, in a loop that waits for something. */
void hf_test_pause(void);

#endif
