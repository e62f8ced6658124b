/* network.h - a network between servers of a test's own, which can be cut.
 *
 * Each server has a front: a port that others connect to in its stead. A
 * process of its own carries the bytes. Who connects is told apart by which
 * process has the other end of the connection, so that a server can be cut off
 * from the others and still be reached by clients, which go to its own port, or
 * through its front. */
#ifndef HF_TESTS_LIB_NETWORK_H
#define HF_TESTS_LIB_NETWORK_H

#include <stdbool.h>
#include <sys/types.h>

#define HF_TEST_NETWORK_MAX 3

struct hf_test_network_map;

struct hf_test_network {
    pid_t pid; /* 0: it does not run */
    unsigned count;
    int fronts[HF_TEST_NETWORK_MAX]; /* ports */
    struct hf_test_network_map *map; /* what its process knows */
};

/* Start it; with one thread running, for it forks. It dies with this process. */
bool hf_test_network_start(struct hf_test_network *network, unsigned count);
void hf_test_network_stop(struct hf_test_network *network);

/* Who is behind a front. */
void hf_test_network_set(struct hf_test_network *network, unsigned server,
                         int port, pid_t pid);

/* Cut one server off from the others, or none (-1); cut clients off from all
 * fronts, or not. It holds from when this returns. */
void hf_test_network_cut_server(struct hf_test_network *network, int server);
void hf_test_network_cut_clients(struct hf_test_network *network, bool cut);

#endif
