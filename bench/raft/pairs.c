/* pairs.c - how many pairs of lock and unlock are possible per second, and how
 * long does a pair take?
 *
 * Each thread has its own key and its own connection or client, and executes
 * one pair after another. "N at once" has N pairs open at a time on one
 * connection; it is compared with 64 connections of the plain floor. The
 * threads of etcd and ZooKeeper share a client. */
#include <unistd.h>

#include "lib/figures.h"
#include "lib/stream.h"
#include "raft/raft.h"

static const struct scene {
    const char *what;
    unsigned threads;
    enum bench_system system;
    unsigned at_once; /* pairs open at a time on one connection; 0: threads */
} scenes[] = {
    {"floor", 1, BENCH_FLOOR, 0},
    {"floor, pipelined", 1, BENCH_PIPELINED, 0},
    {"holdfast", 1, BENCH_HOLDFAST, 0},
    {"holdfast, through a follower", 1, BENCH_FOLLOWER, 0},
    {"etcd", 1, BENCH_ETCD, 0},
    {"ZooKeeper", 1, BENCH_ZOOKEEPER, 0},
    {"floor", 64, BENCH_FLOOR, 0},
    {"floor, pipelined", 64, BENCH_PIPELINED, 0},
    {"holdfast", 64, BENCH_HOLDFAST, 0},
    {"etcd", 64, BENCH_ETCD, 0},
    {"ZooKeeper", 64, BENCH_ZOOKEEPER, 0},
    {"floor, pipelined, 64 at once", 1, BENCH_PIPELINED, 64},
    {"holdfast, 64 at once", 1, BENCH_HOLDFAST, 64},
    {"floor, pipelined, 256 at once", 1, BENCH_PIPELINED, 256},
    {"holdfast, 256 at once", 1, BENCH_HOLDFAST, 256},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

static struct bench_pace_figures figures[SCENES];
static struct bench_samples disk[SCENES];

/* ---- The floor ----------------------------------------------------------*/

static const struct floor *floor_of(const struct bench_worker *worker)
{
    const struct scene *scene = worker->arg;

    return scene->system == BENCH_FLOOR ? &bench_raft.plain
                                        : &bench_raft.pipelined;
}

static void run_floor_pairs(struct bench_worker *worker)
{
    int fd = bench_stream_connect(floor_of(worker)->port);

    bench_worker_await_start(worker);
    while (!bench_worker_is_finished(worker)) {
        uint64_t began = bench_now();

        floor_call(fd, FLOOR_LOCK, worker->number);
        floor_call(fd, FLOOR_UNLOCK, worker->number);
        bench_worker_record(worker, began);
    }
    (void)close(fd);
}

/* The id of a request is twice the number of its pair, plus the operation. */
static void add_floor_request(struct floor_request *requests, size_t *count,
                              uint64_t pair, enum floor_op op)
{
    requests[(*count)++] =
        (struct floor_request){op, (uint32_t)pair, 2 * pair + op};
}

static void run_floor_at_once(struct bench_worker *worker)
{
    static struct floor_request requests[BENCH_AT_ONCE_MAX];
    static struct floor_reply replies[BENCH_AT_ONCE_MAX];
    static uint64_t began[BENCH_AT_ONCE_MAX];
    int fd = bench_stream_connect(floor_of(worker)->port);
    unsigned open = ((const struct scene *)worker->arg)->at_once;
    size_t count = 0;

    bench_worker_await_start(worker);
    for (unsigned i = 0; i < open; i++) {
        began[i] = bench_now();
        add_floor_request(requests, &count, i, FLOOR_LOCK);
    }
    while (open > 0) {
        ssize_t size;

        if (count > 0)
            bench_stream_write(fd, requests, count * sizeof(requests[0]));
        count = 0;
        size = read(fd, replies, sizeof(replies));
        if (size <= 0 || size % (ssize_t)sizeof(replies[0]))
            bench_fail("the floor: cannot receive");
        for (size_t i = 0; i < (size_t)size / sizeof(replies[0]); i++) {
            uint64_t pair = replies[i].id / 2;

            if (replies[i].id % 2 == FLOOR_LOCK) {
                add_floor_request(requests, &count, pair, FLOOR_UNLOCK);
                continue;
            }
            bench_worker_record(worker, began[pair]);
            began[pair] = worker->ended;
            if (worker->ended < worker->until)
                add_floor_request(requests, &count, pair, FLOOR_LOCK);
            else
                open--;
        }
    }
    (void)close(fd);
}

/* ---- Scenes -------------------------------------------------------------*/

static struct bench_pace run_floor(const struct scene *scene)
{
    return bench_workers_run(
        scene->threads,
        scene->at_once > 0 ? run_floor_at_once : run_floor_pairs, scene);
}

static struct bench_pace run_clients(const struct scene *scene)
{
    char url[BENCH_URL_SIZE];
    const struct bench_client_pairs pairs = {url, scene->at_once};

    bench_cluster_url(scene->system, url);
    return bench_workers_run(scene->threads, bench_client_pairs_run, &pairs);
}

static struct bench_pace run_quorum(const struct scene *scene)
{
    struct bench_quorum *quorum = bench_system_quorum(scene->system);
    double numbers[3];

    bench_peer_order(&quorum->peer, "pairs %u %d", scene->threads,
                     BENCH_SPAN_MS);
    bench_peer_numbers(&quorum->peer, numbers, 3);
    return (struct bench_pace){1000 * numbers[0], numbers[1], numbers[2]};
}

static struct bench_pace run_scene(const struct scene *scene)
{
    if (scene->system <= BENCH_PIPELINED)
        return run_floor(scene);
    return scene->system < BENCH_ETCD ? run_clients(scene) : run_quorum(scene);
}

void bench_pairs_run(struct bench *bench, unsigned round)
{
    size_t floor = 0;

    for (size_t i = 0; i < SCENES; i++) {
        if (!bench_system_is_available(scenes[i].system))
            continue;
        if (scenes[i].system == BENCH_FLOOR)
            floor = i;
        bench_progress(bench, round, scenes[i].what);
        bench_add(&disk[i], bench_probe_disk());
        bench_pace_add(&figures[i], &figures[floor], run_scene(&scenes[i]));
    }
}

static const struct bench_pace_figures *figures_of(unsigned threads,
                                                   unsigned at_once)
{
    size_t i = 0;

    while (scenes[i].system != BENCH_HOLDFAST || scenes[i].threads != threads ||
           scenes[i].at_once != at_once)
        i++;
    return &figures[i];
}

static void add_aims(void)
{
    bench_aim_at_most("pair of one client, p50 / floor", 1.15,
                      bench_range_of(&figures_of(1, 0)->p50_of));
    bench_aim_at_most("pair of one client, p99 / floor", 2,
                      bench_range_of(&figures_of(1, 0)->p99_of));
    bench_aim_at_least("pairs of 64 connections / floor", 0.8,
                       bench_range_of(&figures_of(64, 0)->rate_of));
    bench_aim_at_least("64 at once on one connection / floor with 64", 1.6,
                       bench_range_of(&figures_of(1, 64)->rate_of));
    bench_aim_at_least("256 at once on one connection / floor with 64", 2.5,
                       bench_range_of(&figures_of(1, 256)->rate_of));
}

void bench_pairs_print(struct bench *bench)
{
    static const struct bench_column columns[] = {
        {"connections", "connections", 0},
        {"what", "what", BENCH_TEXT},
        {"pairs/s", "pairs_per_s", 0},
        {"of the floor", "rate_of_floor", 2},
        {"p50 µs", "p50_us", 0},
        {"of the floor", "p50_of_floor", 2},
        {"p99 µs", "p99_us", 0},
        {"of the floor", "p99_of_floor", 2},
        {"fdatasync µs", "fdatasync_us", 0},
        {NULL, NULL, 0},
    };
    static struct bench_table table;

    bench_table_init(&table, "Pairs of lock and unlock in a cluster of three",
                     "raft_pairs", columns);
    for (size_t i = 0; i < SCENES; i++) {
        if (!bench_system_is_available(scenes[i].system))
            continue;
        bench_table_number(&table, scenes[i].threads);
        bench_table_text(&table, scenes[i].what);
        bench_pace_cells(&table, &figures[i]);
        bench_table_number(&table, bench_median(&disk[i]));
    }
    bench_table_print(bench, &table);
    add_aims();
}
