/* quorum - what does a lock at three masters in memory cost, compared with the
 * round trips that it needs, and with a cluster of raft:? How long does a
 * hand-over take? What changes if one of three is down?
 *
 * Everything runs on this machine: the servers of the floor (floor.h), the
 * nodes, and all clients. The systems are measured in turn, in several rounds.
 * The benchmark starts its own servers and ignores a URL on the command line.
 * The figures of raft: depend on the disk; bench_raft compares them with a
 * floor that has one, too. */
#include "quorum/quorum.h"

int main(int argc, char **argv)
{
    struct bench bench = {.name = "quorum", .url = "quorum:", .rounds = 9};

    bench_init(&bench, argc, argv);
    bench_progress(&bench, 0, "starting the servers");
    bench_systems_start();
    for (unsigned round = 0; round < bench.rounds; round++) {
        if (bench_has_part("pairs"))
            bench_pairs_run(&bench, round);
        if (bench_has_part("handovers"))
            bench_handovers_run(&bench, round);
    }
    if (bench_has_part("pairs"))
        bench_pairs_print(&bench);
    if (bench_has_part("handovers"))
        bench_handovers_print(&bench);
    bench_aims_print(&bench);
    return 0;
}
