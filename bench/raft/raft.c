/* raft - what does a lock in a cluster of three nodes cost, compared with the
 * least that three processes and their disks can do, with etcd and with
 * ZooKeeper? How long does a hand-over take, and how long does a failover? What
 * do idle sessions cost?
 *
 * Everything runs on this machine and on one disk: the nodes, the floors
 * (floor.h), the servers of the others, and all clients. The systems are
 * measured in turn, in several rounds. Before each measurement of pairs and
 * hand-overs, a bare fdatasync() is timed, because the speed of a disk changes
 * from second to second.
 *
 * The benchmark starts its own servers and ignores a URL on the command line.
 * etcd and ZooKeeper are measured by the program in bench/peers/quorum, which
 * the command in the variable BENCH_QUORUM starts; scripts/bench sets it.
 * Without the variable both are left out, and etcd if it is not installed. */
#include "raft/raft.h"

#include <stdlib.h>
#include <unistd.h>

#define PROBES 15

struct bench_raft bench_raft;

struct bench_quorum *bench_system_quorum(enum bench_system system)
{
    return system == BENCH_ETCD ? &bench_raft.etcd : &bench_raft.zookeeper;
}

bool bench_system_is_available(enum bench_system system)
{
    return system < BENCH_ETCD || bench_system_quorum(system)->is_available;
}

double bench_probe_disk(void)
{
    static const char entry[100];
    double micros[PROBES];

    for (unsigned i = 0; i < PROBES; i++) {
        uint64_t began = bench_now();

        floor_log_append(&bench_raft.probe, entry, sizeof(entry));
        micros[i] = (double)(bench_now() - began) / 1e3;
    }
    bench_sort(micros, PROBES);
    return bench_quantile(micros, PROBES, 0.5);
}

/* The Java programs are slow until their code is compiled. */
static void warm_up(struct bench_quorum *quorum)
{
    static const char *const orders[] = {"pairs 16 2000", "pairs 1 1000"};
    double numbers[3];

    if (!quorum->is_available)
        return;
    (void)bench_quorum_leader(quorum);
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        bench_peer_order(&quorum->peer, "%s", orders[i]);
        bench_peer_numbers(&quorum->peer, numbers, 3);
    }
}

static pid_t owner;

/* Runs at exit, before bench/lib/process waits for all children. */
static void stop_servers(void)
{
    if (getpid() != owner)
        return;
    bench_quorum_stop(&bench_raft.etcd);
    bench_quorum_stop(&bench_raft.zookeeper);
    hf_test_cluster_stop(&bench_raft.cluster);
}

static void start_all(struct bench *bench)
{
    bench_progress(bench, 0, "starting the servers");
    bench_raft.pipelined.is_pipelined = true;
    floor_start(&bench_raft.plain);
    floor_start(&bench_raft.pipelined);
    owner = getpid();
    if (atexit(stop_servers))
        bench_fail("atexit");
    floor_log_open(&bench_raft.probe, "probe");
    if (!hf_test_cluster_start(&bench_raft.cluster, bench_folder(),
                               BENCH_NODES))
        bench_fail("cannot start the cluster");
    if (getenv("BENCH_QUORUM")) {
        bench_etcd_start(&bench_raft.etcd);
        bench_zookeeper_start(&bench_raft.zookeeper);
        warm_up(&bench_raft.etcd);
        warm_up(&bench_raft.zookeeper);
    }
}

/* The parts are pairs, handovers, failovers and idle. Failovers come last: a
 * server that starts again uses a core for seconds. */
static void run_parts(struct bench *bench)
{
    for (unsigned round = 0; round < bench->rounds; round++) {
        if (bench_has_part("pairs"))
            bench_pairs_run(bench, round);
        if (bench_has_part("handovers"))
            bench_handovers_run(bench, round);
    }
    if (bench_has_part("pairs"))
        bench_pairs_print(bench);
    if (bench_has_part("handovers"))
        bench_handovers_print(bench);
    for (unsigned round = 0;
         bench_has_part("failovers") && round < bench->rounds; round++)
        bench_failovers_run(bench, round);
    if (bench_has_part("failovers"))
        bench_failovers_print(bench);
    if (bench_has_part("idle"))
        bench_idle_run(bench);
    bench_aims_print(bench);
}

int main(int argc, char **argv)
{
    struct bench bench = {.name = "raft", .url = "raft:", .rounds = 9};

    bench_init(&bench, argc, argv);
    start_all(&bench);
    run_parts(&bench);
    return 0;
}
