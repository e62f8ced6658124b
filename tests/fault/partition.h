/* partition.h - a network between the nodes of a cluster that can be cut, in
 * each direction by itself.
 *
 * The case has a network namespace of its own (lib/cluster_faults.h), where
 * nftables drops or rejects packets. A node sends to its peers from an address
 * of its own (faults.h), and the peers' ports are known: so each packet between
 * two nodes shows its sender and its receiver. Clients reach every node, cut or
 * not, unless hf_partition_cut_clients() is called. */
#ifndef HF_TESTS_FAULT_PARTITION_H
#define HF_TESTS_FAULT_PARTITION_H

#include <stdbool.h>

#include "lib/cluster.h"

enum hf_cut {
    HF_CUT_DROP,  /* packets disappear */
    HF_CUT_RESET, /* ... and the sender's connection is reset */
};

/* Prepare the network of the case, before the cluster is started. Skips the
 * case if it cannot have a namespace of its own, or if nftables is missing. */
void hf_partition_set_up(void);

/* Cut what node `from` sends to node `to`, in addition to earlier cuts. */
void hf_partition_cut(const struct hf_test_cluster *cluster, unsigned from,
                      unsigned to, enum hf_cut how);

/* Cut a node off from all others, in both directions. */
void hf_partition_isolate(const struct hf_test_cluster *cluster, unsigned node,
                          enum hf_cut how);

/* Cut all clients off from a node. */
void hf_partition_cut_clients(const struct hf_test_cluster *cluster,
                              unsigned node, enum hf_cut how);

/* Remove all cuts. */
void hf_partition_heal(void);

#endif
