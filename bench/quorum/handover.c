/* handover.c - how long does it take to hand a lock over to the next of ten
 * waiters (lib/baton.h)? */
#include "lib/figures.h"
#include "quorum/quorum.h"

static const struct scene {
    const char *what;
    enum bench_system system;
} scenes[] = {
    {"floor, one round trip", BENCH_FLOOR},  {"quorum", BENCH_QUORUM},
    {"quorum, one down", BENCH_QUORUM_DOWN}, {"raft", BENCH_RAFT},
    {"raft, one down", BENCH_RAFT_DOWN},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))
#define QUORUM 1 /* its index in `scenes` */

static struct bench_handover_figures figures[SCENES];

/* The threads take turns. The first holder needs no push. A hand-over is a
 * request to all servers, and a push by each to the next thread. */
static void run_floor(struct bench_baton *baton, unsigned thread,
                      const void *arg)
{
    unsigned next = (thread + 1) % BENCH_BATON_THREADS;
    struct floor_client client;

    (void)arg;
    floor_open(&client, &bench_floor, FLOOR_SERVERS);
    floor_call(&client, FLOOR_JOIN, thread, FLOOR_SERVERS);
    bench_baton_await_start(baton);
    for (unsigned i = 0; i < BENCH_BATON_TURNS; i++) {
        if (thread != 0 || i > 0)
            floor_await_push(&client);
        bench_baton_pass(baton, thread);
        floor_call(&client, FLOOR_PASS, next, FLOOR_MAJORITY);
    }
    floor_close(&client);
}

static struct bench_handovers run_scene(enum bench_system system)
{
    char url[BENCH_URL_SIZE];

    if (system == BENCH_FLOOR)
        return bench_baton_run(run_floor, NULL);
    bench_system_url(system, url);
    return bench_baton_run(bench_baton_run_client, url);
}

void bench_handovers_run(struct bench *bench, unsigned round)
{
    for (size_t i = 0; i < SCENES; i++) {
        if (!bench_system_is_available(scenes[i].system))
            continue;
        bench_progress(bench, round, scenes[i].what);
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
        {NULL, NULL, 0},
    };
    static struct bench_table table;

    bench_table_init(&table, "Hand-over to the next of ten waiters",
                     "quorum_handover", columns);
    for (size_t i = 0; i < SCENES; i++) {
        if (!bench_system_is_available(scenes[i].system))
            continue;
        bench_table_text(&table, scenes[i].what);
        bench_handover_cells(&table, &figures[i]);
    }
    bench_table_print(bench, &table);
    if (bench_system_is_available(BENCH_QUORUM))
        bench_aim_at_most("hand-over, p50 / floor of one round trip", 1.3,
                          bench_range_of(&figures[QUORUM].p50_of));
}
