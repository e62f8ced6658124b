/* pairs.c - how many pairs of lock and unlock are possible per second, and how
 * long does a pair take?
 *
 * Each thread has its own key and its own connections or client, and executes
 * one pair after another. "64 at once" has 64 pairs open at a time on one
 * client. All are compared with the floor of two round trips and as many
 * clients; those with 64 at once, with 64 clients. */
#include "lib/figures.h"
#include "quorum/quorum.h"

static const struct scene {
    const char *what;
    enum bench_system system;
    unsigned threads, at_once;
} scenes[] = {
    {"floor, two round trips", BENCH_FLOOR, 1, 0},
    {"floor, three round trips, one down", BENCH_FLOOR_DOWN, 1, 0},
    {"quorum", BENCH_QUORUM, 1, 0},
    {"quorum, one down", BENCH_QUORUM_DOWN, 1, 0},
    {"raft", BENCH_RAFT, 1, 0},
    {"raft, one down", BENCH_RAFT_DOWN, 1, 0},
    {"floor, two round trips", BENCH_FLOOR, 16, 0},
    {"floor, three round trips, one down", BENCH_FLOOR_DOWN, 16, 0},
    {"quorum", BENCH_QUORUM, 16, 0},
    {"quorum, one down", BENCH_QUORUM_DOWN, 16, 0},
    {"raft", BENCH_RAFT, 16, 0},
    {"raft, one down", BENCH_RAFT_DOWN, 16, 0},
    {"floor, two round trips", BENCH_FLOOR, 64, 0},
    {"floor, three round trips, one down", BENCH_FLOOR_DOWN, 64, 0},
    {"quorum", BENCH_QUORUM, 64, 0},
    {"quorum, one down", BENCH_QUORUM_DOWN, 64, 0},
    {"raft", BENCH_RAFT, 64, 0},
    {"raft, one down", BENCH_RAFT_DOWN, 64, 0},
    {"quorum, 64 at once", BENCH_QUORUM, 1, 64},
    {"quorum, 64 at once, one down", BENCH_QUORUM_DOWN, 1, 64},
    {"raft, 64 at once", BENCH_RAFT, 1, 64},
    {"raft, 64 at once, one down", BENCH_RAFT_DOWN, 1, 64},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

static struct bench_pace_figures figures[SCENES];

/* Lock with the answers of all, as a vote that is a lease, and unlock. */
static void run_floor(struct bench_worker *worker)
{
    struct floor_client client;

    floor_open(&client, &bench_floor, FLOOR_SERVERS);
    bench_worker_await_start(worker);
    while (!bench_worker_is_finished(worker)) {
        uint64_t began = bench_now();

        floor_call(&client, FLOOR_CALL, 0, FLOOR_SERVERS);
        floor_call(&client, FLOOR_CALL, 0, FLOOR_MAJORITY);
        bench_worker_record(worker, began);
    }
    floor_close(&client);
}

/* Ask and commit, and unlock. */
static void run_floor_down(struct bench_worker *worker)
{
    struct floor_client client;

    floor_open(&client, &bench_floor, FLOOR_MAJORITY);
    bench_worker_await_start(worker);
    while (!bench_worker_is_finished(worker)) {
        uint64_t began = bench_now();

        for (unsigned i = 0; i < 3; i++)
            floor_call(&client, FLOOR_CALL, 0, FLOOR_MAJORITY);
        bench_worker_record(worker, began);
    }
    floor_close(&client);
}

static struct bench_pace run_scene(const struct scene *scene)
{
    char url[BENCH_URL_SIZE];
    const struct bench_client_pairs pairs = {url, scene->at_once};

    if (scene->system == BENCH_FLOOR)
        return bench_workers_run(scene->threads, run_floor, NULL);
    if (scene->system == BENCH_FLOOR_DOWN)
        return bench_workers_run(scene->threads, run_floor_down, NULL);
    bench_system_url(scene->system, url);
    return bench_workers_run(scene->threads, bench_client_pairs_run, &pairs);
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
        bench_pace_add(&figures[i], &figures[floor], run_scene(&scenes[i]));
    }
}

static const struct bench_pace_figures *find_figures(enum bench_system system,
                                                     unsigned at_once)
{
    size_t i = 0;

    while (scenes[i].system != system || scenes[i].threads != 1 ||
           scenes[i].at_once != at_once)
        i++;
    return &figures[i];
}

static void add_aims(void)
{
    const struct bench_pace_figures *up = find_figures(BENCH_QUORUM, 0);
    const struct bench_pace_figures *down = find_figures(BENCH_QUORUM_DOWN, 0);
    const struct bench_pace_figures *many = find_figures(BENCH_QUORUM, 64);

    if (!bench_system_is_available(BENCH_QUORUM))
        return;
    bench_aim_at_most("pair, p50 / floor of two round trips", 1.15,
                      bench_range_of(&up->p50_of));
    bench_aim_at_most("pair with one down, p50 / the same floor", 1.7,
                      bench_range_of(&down->p50_of));
    bench_aim_at_least("pairs/s with 64 at once / floor with 64 clients", 2,
                       bench_range_of(&many->rate_of));
}

void bench_pairs_print(struct bench *bench)
{
    static const struct bench_column columns[] = {
        {"clients", "clients", 0},
        {"what", "what", BENCH_TEXT},
        {"pairs/s", "pairs_per_s", 0},
        {"of the floor", "rate_of_floor", 2},
        {"p50 µs", "p50_us", 0},
        {"of the floor", "p50_of_floor", 2},
        {"p99 µs", "p99_us", 0},
        {"of the floor", "p99_of_floor", 2},
        {NULL, NULL, 0},
    };
    static struct bench_table table;

    bench_table_init(&table, "Pairs of lock and unlock at three masters",
                     "quorum_pairs", columns);
    for (size_t i = 0; i < SCENES; i++) {
        if (!bench_system_is_available(scenes[i].system))
            continue;
        bench_table_number(&table, scenes[i].threads);
        bench_table_text(&table, scenes[i].what);
        bench_pace_cells(&table, &figures[i]);
    }
    bench_table_print(bench, &table);
    add_aims();
}
