/* network.h - a network between a test's servers, which can be cut.
 *
 * Each server has a front: a port that the others connect to instead of the
 * server's own. A process forwards the bytes. To find out which server has made
 * a connection, it looks up which process has the other end. So a server can be
 * cut off from the others while clients still reach it, on its own port or
 * through its front. */
#ifndef HF_TESTS_LIB_NETWORK_H
#define HF_TESTS_LIB_NETWORK_H

#include <stdbool.h>
#include <sys/types.h>

#define HF_TEST_NETWORK_MAX 3

struct hf_test_network_map;

struct hf_test_network {
    pid_t pid; /* 0 if the network is not running */
    unsigned count;
    int fronts[HF_TEST_NETWORK_MAX]; /* ports */
    struct hf_test_network_map *map; /* shared with the forwarding process */
};

/* Start a network with fronts for `count` servers. Call it before any thread is
 * started, because it forks. The forwarding process dies with this process. */
bool hf_test_network_start(struct hf_test_network *network, unsigned count);
void hf_test_network_stop(struct hf_test_network *network);

/* Set the port and the process of the server behind a front. */
void hf_test_network_set(struct hf_test_network *network, unsigned server,
                         int port, pid_t pid);

/* hf_test_network_cut_server() cuts one server off from the others, or no
 * server if `server` is -1. hf_test_network_cut_clients() cuts clients off from
 * all fronts, or reconnects them. Both take effect before they return. */
void hf_test_network_cut_server(struct hf_test_network *network, int server);
void hf_test_network_cut_clients(struct hf_test_network *network, bool cut);

#endif
