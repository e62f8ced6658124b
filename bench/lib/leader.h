/* leader.h - which node of a cluster of raft: leads. */
#ifndef BENCH_LEADER_H
#define BENCH_LEADER_H

#include "../../tests/lib/cluster.h"

/* Wait until all nodes that were started and not killed answer, and have nearly
 * all entries of one leader. Returns its index in `cluster`. */
unsigned bench_leader_find(const struct hf_test_cluster *cluster);

/* How many clients are connected to a node, without the connection of this
 * query. */
unsigned bench_leader_clients(const struct hf_test_cluster *cluster,
                              unsigned node);

/* The URL of one node. */
#define BENCH_URL_SIZE 128
void bench_leader_url(const struct hf_test_cluster *cluster, unsigned node,
                      const char *options, char url[BENCH_URL_SIZE]);

#endif
