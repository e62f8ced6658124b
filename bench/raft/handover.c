/* handover.c - how long does it take to hand a lock over to the next of ten
 * waiters (lib/baton.h)? The threads of etcd and ZooKeeper share a client. */
#include <unistd.h>

#include "lib/figures.h"
#include "lib/stream.h"
#include "raft/raft.h"

static const struct scene {
    const char *what;
    enum bench_system system;
} scenes[] = {
    {"floor", BENCH_FLOOR},
    {"holdfast", BENCH_HOLDFAST},
    {"holdfast, through a follower", BENCH_FOLLOWER},
    {"etcd", BENCH_ETCD},
    {"ZooKeeper", BENCH_ZOOKEEPER},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))
#define HOLDFAST 1 /* its index in `scenes` */

static struct bench_handover_figures figures[SCENES];
static struct bench_samples disk[SCENES];

static void run_floor(struct bench_baton *baton, unsigned thread,
                      const void *arg)
{
    int fd = bench_stream_connect(bench_raft.plain.port);

    (void)arg;
    bench_baton_await_start(baton);
    while (!bench_baton_is_finished(baton)) {
        floor_call(fd, FLOOR_LOCK, FLOOR_KEYS - 1);
        bench_baton_pass(baton, thread);
        floor_call(fd, FLOOR_UNLOCK, FLOOR_KEYS - 1);
    }
    (void)close(fd);
}

static struct bench_handovers run_clients(enum bench_system system)
{
    char url[BENCH_URL_SIZE];

    bench_cluster_url(system, url);
    return bench_baton_run(bench_baton_run_client, url);
}

static struct bench_handovers run_quorum(enum bench_system system)
{
    struct bench_quorum *quorum = bench_system_quorum(system);
    double numbers[4];

    bench_peer_order(&quorum->peer, "handover %d %d %d", BENCH_BATON_WAITERS,
                     BENCH_BATON_HANDOVERS, BENCH_BATON_HOLD_MS);
    bench_peer_numbers(&quorum->peer, numbers, 4);
    return (struct bench_handovers){numbers[0], numbers[1],
                                    numbers[2] / numbers[3]};
}

static struct bench_handovers run_scene(enum bench_system system)
{
    if (system == BENCH_FLOOR)
        return bench_baton_run(run_floor, NULL);
    return system < BENCH_ETCD ? run_clients(system) : run_quorum(system);
}

void bench_handovers_run(struct bench *bench, unsigned round)
{
    for (size_t i = 0; i < SCENES; i++) {
        if (!bench_system_is_available(scenes[i].system))
            continue;
        bench_progress(bench, round, scenes[i].what);
        bench_add(&disk[i], bench_probe_disk());
        bench_handovers_add(&figures[i], &figures[0],
                            run_scene(scenes[i].system));
    }
}

void bench_handovers_print(struct bench *bench)
{
    static const struct bench_column columns[] = {
        {"what", "what", BENCH_TEXT},
        {"p50 µs", "p50_us", 0},
        {"of the floor", "p50_of_floor", 2},
        {"p99 µs", "p99_us", 0},
        {"of the floor", "p99_of_floor", 2},
        {"acquisitions, least / most", "fairness", 2},
        {"fdatasync µs", "fdatasync_us", 0},
        {NULL, NULL, 0},
    };
    static struct bench_table table;

    bench_table_init(&table, "Hand-over to the next of ten waiters",
                     "raft_handover", columns);
    for (size_t i = 0; i < SCENES; i++) {
        if (!bench_system_is_available(scenes[i].system))
            continue;
        bench_table_text(&table, scenes[i].what);
        bench_handover_cells(&table, &figures[i]);
        bench_table_number(&table, bench_median(&disk[i]));
    }
    bench_table_print(bench, &table);
    bench_aim_at_most("hand-over, p50 / floor", 1.2,
                      bench_range_of(&figures[HOLDFAST].p50_of));
    bench_aim_at_least("acquisitions of a waiter, least / most", 0.95,
                       bench_range_of(&figures[HOLDFAST].fairness));
}
