/* handover - how long does it take from one thread's hf_release() until another
 * thread, asleep in hf_acquire(), has the lock, compared with a bare futex?
 *
 * The time is measured from just before hf_release() in the holder until
 * hf_acquire() has returned in the waiter. Before each hand-over, the holder
 * checks that the waiter is queued and that the kernel has put it to sleep, and
 * lets SETTLE_NS pass: a waiter that is still about to sleep would be measured
 * as too fast. The futex is the lower bound: a store and FUTEX_WAKE in one
 * thread, the return of FUTEX_WAIT in the other. If a client has background
 * threads, as one that watches or renews does, one of them is woken first.
 *
 * The result depends above all on whether the two threads share a core, so the
 * cores are fixed. On two cores, the kernel has to wake the other core, which
 * takes a while; on one core, the waiter runs as soon as the holder blocks, and
 * the time is that of both threads' work. */
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/bench.h"
#include "lib/cores.h"
#include "lib/sleeper.h"

#define TIMES 1000 /* hand-overs per round */
#define SETTLE_NS 50000

enum method {
    FUTEX,
    CLIENT_EACH,
    ONE_CLIENT,
    BACKGROUND
};

static const struct scene {
    const char *what;
    const char *where;
    enum method method;
    bool apart; /* on different cores */
} scenes[] = {
    {"bare futex", "two", FUTEX, true},
    {"a client each", "two", CLIENT_EACH, true},
    {"threads of one client", "two", ONE_CLIENT, true},
    {"a client each, with its own thread", "two", BACKGROUND, true},
    {"bare futex", "one", FUTEX, false},
    {"a client each", "one", CLIENT_EACH, false},
    {"threads of one client", "one", ONE_CLIENT, false},
    {"a client each, with its own thread", "one", BACKGROUND, false},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

/* Two threads, which alternate: `turn` counts up, and the holder works when it
 * is even, the waiter when it is odd. */
struct pair {
    enum method method;
    size_t holder_core, waiter_core;
    struct hf_client *holder, *waiter;
    atomic_uint turn;
    atomic_uint word;     /* the futex */
    atomic_bool queued;   /* FUTEX: the waiter sleeps, or is about to sleep */
    atomic_int waiter_id; /* thread id of the waiter */
    struct bench_sleeper sleeper;
    uint64_t released_at; /* when the hand-over began */
    double micros[TIMES];
};

static void await_turn(struct pair *pair, unsigned turn)
{
    while (atomic_load(&pair->turn) != turn)
        sched_yield();
}

/* ---- The waiter ----------------------------------------------------------*/

static uint64_t acquire_futex(struct pair *pair)
{
    atomic_store(&pair->queued, true);
    while (atomic_load(&pair->word) == 0)
        (void)syscall(SYS_futex, &pair->word, FUTEX_WAIT_PRIVATE, 0, NULL);
    return bench_now();
}

static uint64_t acquire_lock(struct pair *pair)
{
    struct hf_lock *held = bench_lock(pair->waiter, "baton");
    uint64_t now = bench_now();

    bench_unlock(held);
    return now;
}

static void *waiter_main(void *arg)
{
    struct pair *pair = arg;

    bench_stay_on(pair->waiter_core);
    atomic_store(&pair->waiter_id, (int)syscall(SYS_gettid));
    for (unsigned i = 0; i < TIMES; i++) {
        uint64_t acquired_at;

        await_turn(pair, 2 * i + 1);
        acquired_at =
            pair->method == FUTEX ? acquire_futex(pair) : acquire_lock(pair);
        pair->micros[i] = (double)(acquired_at - pair->released_at) / 1e3;
        atomic_store(&pair->turn, 2 * i + 2);
    }
    return NULL;
}

/* ---- The holder ----------------------------------------------------------*/

static void open_sleeper(struct pair *pair)
{
    while (atomic_load(&pair->waiter_id) == 0)
        sched_yield();
    bench_sleeper_open(&pair->sleeper, atomic_load(&pair->waiter_id));
}

static bool is_queued(struct pair *pair)
{
    struct hf_info info;
    bool has_waiter;

    if (pair->method == FUTEX)
        return atomic_load(&pair->queued);
    bench_check("hf_read", hf_read(pair->holder, hf_key_of("baton"),
                                   HF_LINEARIZABLE, &info));
    has_waiter = info.waiters > 0;
    hf_info_fini(&info);
    return has_waiter;
}

static void await_sleep(struct pair *pair)
{
    uint64_t from;

    while (!is_queued(pair) || !bench_sleeps(&pair->sleeper))
        sched_yield();
    from = bench_now();
    while (bench_now() - from < SETTLE_NS)
        ;
}

static void release_futex(struct pair *pair)
{
    pair->released_at = bench_now();
    atomic_store(&pair->word, 1);
    (void)syscall(SYS_futex, &pair->word, FUTEX_WAKE_PRIVATE, 1);
}

static void release_lock(struct pair *pair, struct hf_lock *held)
{
    pair->released_at = bench_now();
    bench_unlock(held);
}

static void hand_over(struct pair *pair, unsigned i)
{
    struct hf_lock *held = NULL;

    atomic_store(&pair->queued, false);
    atomic_store(&pair->word, 0);
    if (pair->method != FUTEX)
        held = bench_lock(pair->holder, "baton");
    atomic_store(&pair->turn, 2 * i + 1);
    await_sleep(pair);
    if (held)
        release_lock(pair, held);
    else
        release_futex(pair);
    await_turn(pair, 2 * i + 2);
}

/* ---- Rounds -------------------------------------------------------------*/

static void open_clients(const struct bench *bench, struct pair *pair)
{
    if (pair->method == BACKGROUND) {
        pair->holder = bench_open_background(bench);
        pair->waiter = bench_open_background(bench);
    } else if (pair->method != FUTEX) {
        pair->holder = bench_open(bench);
        pair->waiter =
            pair->method == ONE_CLIENT ? pair->holder : bench_open(bench);
    }
}

static void measure(const struct bench *bench, const struct scene *scene,
                    const size_t cores[2], struct bench_samples *p50,
                    struct bench_samples *p99)
{
    static struct pair pair;
    pthread_t waiter;

    memset(&pair, 0, sizeof(pair));
    pair.method = scene->method;
    pair.holder_core = cores[0];
    pair.waiter_core = cores[scene->apart ? 1 : 0];
    bench_stay_on(pair.waiter_core); /* inherited by the clients' threads */
    open_clients(bench, &pair);
    bench_stay_on(pair.holder_core);
    if (pthread_create(&waiter, NULL, waiter_main, &pair))
        bench_fail("cannot start a thread");
    open_sleeper(&pair);
    for (unsigned i = 0; i < TIMES; i++)
        hand_over(&pair, i);
    pthread_join(waiter, NULL);
    bench_sleeper_close(&pair.sleeper);
    if (pair.waiter != pair.holder)
        bench_close(pair.waiter);
    if (pair.holder)
        bench_close(pair.holder);
    bench_sort(pair.micros, TIMES);
    bench_add(p50, bench_quantile(pair.micros, TIMES, 0.5));
    bench_add(p99, bench_quantile(pair.micros, TIMES, 0.99));
}

static void print_table(struct bench *bench, const struct bench_samples *p50,
                        const struct bench_samples *p99)
{
    static const struct bench_column columns[] = {
        {"cores", "cores", BENCH_TEXT},
        {"what", "what", BENCH_TEXT},
        {"p50 µs", "p50_us", 1},
        {"p99 µs", "p99_us", 1},
        {"p50 / futex", "p50_ratio", 2},
        {"p99 / futex", "p99_ratio", 2},
        {NULL, NULL, 0},
    };
    static struct bench_table table;
    size_t futex = 0;

    bench_table_init(&table, "Hand-over to a sleeping thread", "handover",
                     columns);
    for (size_t i = 0; i < SCENES; i++) {
        double p50_us = bench_median(&p50[i]);
        double p99_us = bench_median(&p99[i]);

        if (scenes[i].method == FUTEX)
            futex = i;
        bench_table_text(&table, scenes[i].where);
        bench_table_text(&table, scenes[i].what);
        bench_table_number(&table, p50_us);
        bench_table_number(&table, p99_us);
        bench_table_number(&table, p50_us / bench_median(&p50[futex]));
        bench_table_number(&table, p99_us / bench_median(&p99[futex]));
    }
    bench_table_print(bench, &table);
}

int main(int argc, char **argv)
{
    struct bench bench = {
        .name = "handover", .url = "memory:bench", .rounds = 15};
    static struct bench_samples p50[SCENES], p99[SCENES];
    size_t cores[2];

    bench_init(&bench, argc, argv);
    bench_cores_find(cores);
    for (unsigned round = 0; round < bench.rounds; round++) {
        for (size_t i = 0; i < SCENES; i++) {
            bench_progress(&bench, round, scenes[i].what);
            measure(&bench, &scenes[i], cores, &p50[i], &p99[i]);
        }
    }
    print_table(&bench, p50, p99);
    return 0;
}
