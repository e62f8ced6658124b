/* raft.h - what the files of bench_raft share: the cluster, the floors, and the
 * servers of etcd and ZooKeeper if they are available. */
#ifndef BENCH_RAFT_RAFT_H
#define BENCH_RAFT_RAFT_H

#include "../../tests/lib/cluster.h"
#include "lib/aims.h"
#include "lib/bench.h"
#include "lib/leader.h"
#include "lib/peer.h"
#include "raft/floor.h"

#define BENCH_NODES 3

/* Servers of another system, and the program that measures it. */
struct bench_quorum {
    bool is_available;
    struct bench_peer peer;
    pid_t pids[BENCH_NODES];
    int client_ports[BENCH_NODES], peer_ports[BENCH_NODES],
        election_ports[BENCH_NODES];
};

struct bench_raft {
    struct hf_test_cluster cluster;
    struct floor plain, pipelined;
    struct bench_quorum etcd, zookeeper;
    struct floor_log probe;
};

extern struct bench_raft bench_raft;

/* The systems that are compared. */
enum bench_system {
    BENCH_FLOOR,
    BENCH_PIPELINED,
    BENCH_HOLDFAST,
    BENCH_FOLLOWER, /* holdfast, through a follower */
    BENCH_ETCD,
    BENCH_ZOOKEEPER,
};

/* ---- raft.c -------------------------------------------------------------*/

bool bench_system_is_available(enum bench_system system);
struct bench_quorum *bench_system_quorum(enum bench_system system);

/* How long a small write and fdatasync() take now, in µs: the median of
 * several. */
double bench_probe_disk(void);

/* ---- cluster.c ----------------------------------------------------------*/

/* The URL of the leader alone, or of a follower alone. */
void bench_cluster_url(enum bench_system system, char url[BENCH_URL_SIZE]);
struct hf_client *bench_cluster_open(const char *url);

/* A client of the whole cluster, with a thread that moves it to the leader. */
struct hf_client *bench_cluster_open_all(void);

/* ---- quorum.c -----------------------------------------------------------*/

void bench_etcd_start(struct bench_quorum *quorum);
void bench_zookeeper_start(struct bench_quorum *quorum);
void bench_quorum_restart(struct bench_quorum *quorum, unsigned server);
void bench_quorum_kill(struct bench_quorum *quorum, unsigned server);
/* Wait until there is a leader. Returns the number of its server. */
unsigned bench_quorum_leader(struct bench_quorum *quorum);
void bench_quorum_stop(struct bench_quorum *quorum);

/* ---- pairs.c, handover.c, failover.c, idle.c ----------------------------
 *
 * Run one round of all scenes; print the table. */

void bench_pairs_run(struct bench *bench, unsigned round);
void bench_pairs_print(struct bench *bench);
void bench_handovers_run(struct bench *bench, unsigned round);
void bench_handovers_print(struct bench *bench);
void bench_failovers_run(struct bench *bench, unsigned round);
void bench_failovers_print(struct bench *bench);
void bench_idle_run(struct bench *bench);

#endif
