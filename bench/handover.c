/* handover - how long after one thread begins to unlock does another, asleep
 * in hf_acquire(), have the lock, next to a bare futex?
 *
 * From just before hf_release() in the giver until hf_acquire() has returned in
 * the taker. Before each one the giver sees that the taker stands in line and
 * sleeps, by what the kernel says of it, and lets SETTLE_NS pass: a sleeper
 * that was caught on its way to bed would flatter the figure. The futex is the
 * floor: a store and FUTEX_WAKE here, FUTEX_WAIT returning there. A client
 * with a thread of its own, which one that listens or renews has, too, wakes
 * that one first.
 *
 * Where the threads run makes more of a difference than anything else, so it
 * is not left to chance. On two cores, one that sleeps has to be woken by the
 * other, which takes its time; on one core the taker runs as soon as the giver
 * lets it, and what is left is the work of both. */
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

#define TIMES 1000 /* hand-overs a round */
#define SETTLE_NS 50000

enum how {
    FUTEX,
    CLIENT_EACH,
    ONE_CLIENT,
    BACKGROUND
};

static const struct scene {
    const char *what;
    const char *where;
    enum how how;
    bool apart; /* a core each */
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

/* One pair of threads. They take turns by `turn`, which counts up: even, the
 * giver is at work; odd, the taker is. */
struct pair {
    enum how how;
    size_t giver_core, taker_core;
    struct hf_client *giver, *taker;
    atomic_uint turn;
    atomic_uint word;    /* the futex */
    atomic_bool in_line; /* FUTEX: the taker waits, or is about to */
    atomic_int taker_id; /* of the kernel's */
    struct bench_sleeper sleeper;
    uint64_t given; /* when the hand-over began */
    double micros[TIMES];
};

static void await_turn(struct pair *pair, unsigned turn)
{
    while (atomic_load(&pair->turn) != turn)
        sched_yield();
}

/* ---- The taker ----------------------------------------------------------*/

static uint64_t take_futex(struct pair *pair)
{
    atomic_store(&pair->in_line, true);
    while (atomic_load(&pair->word) == 0)
        (void)syscall(SYS_futex, &pair->word, FUTEX_WAIT_PRIVATE, 0, NULL);
    return bench_now();
}

static uint64_t take_lock(struct pair *pair)
{
    struct hf_lock *held = bench_lock(pair->taker, "baton");
    uint64_t now = bench_now();

    bench_unlock(held);
    return now;
}

static void *taker_main(void *arg)
{
    struct pair *pair = arg;

    bench_stay_on(pair->taker_core);
    atomic_store(&pair->taker_id, (int)syscall(SYS_gettid));
    for (unsigned i = 0; i < TIMES; i++) {
        uint64_t taken;

        await_turn(pair, 2 * i + 1);
        taken = pair->how == FUTEX ? take_futex(pair) : take_lock(pair);
        pair->micros[i] = (double)(taken - pair->given) / 1e3;
        atomic_store(&pair->turn, 2 * i + 2);
    }
    return NULL;
}

/* ---- The giver ----------------------------------------------------------*/

static void open_sleeper(struct pair *pair)
{
    while (atomic_load(&pair->taker_id) == 0)
        sched_yield();
    bench_sleeper_open(&pair->sleeper, atomic_load(&pair->taker_id));
}

static bool taker_in_line(struct pair *pair)
{
    struct hf_info info;
    bool waits;

    if (pair->how == FUTEX)
        return atomic_load(&pair->in_line);
    bench_check("hf_read", hf_read(pair->giver, hf_key_of("baton"),
                                   HF_LINEARIZABLE, &info));
    waits = info.waiters > 0;
    hf_info_fini(&info);
    return waits;
}

static void await_sleep(struct pair *pair)
{
    uint64_t from;

    while (!taker_in_line(pair) || !bench_sleeps(&pair->sleeper))
        sched_yield();
    from = bench_now();
    while (bench_now() - from < SETTLE_NS)
        ;
}

static void give_futex(struct pair *pair)
{
    pair->given = bench_now();
    atomic_store(&pair->word, 1);
    (void)syscall(SYS_futex, &pair->word, FUTEX_WAKE_PRIVATE, 1);
}

static void give_lock(struct pair *pair, struct hf_lock *held)
{
    pair->given = bench_now();
    bench_unlock(held);
}

static void hand_over(struct pair *pair, unsigned i)
{
    struct hf_lock *held = NULL;

    atomic_store(&pair->in_line, false);
    atomic_store(&pair->word, 0);
    if (pair->how != FUTEX)
        held = bench_lock(pair->giver, "baton");
    atomic_store(&pair->turn, 2 * i + 1);
    await_sleep(pair);
    if (held)
        give_lock(pair, held);
    else
        give_futex(pair);
    await_turn(pair, 2 * i + 2);
}

/* ---- Rounds -------------------------------------------------------------*/

static void open_clients(const struct bench *bench, struct pair *pair)
{
    if (pair->how == BACKGROUND) {
        pair->giver = bench_open_background(bench);
        pair->taker = bench_open_background(bench);
    } else if (pair->how != FUTEX) {
        pair->giver = bench_open(bench);
        pair->taker = pair->how == ONE_CLIENT ? pair->giver : bench_open(bench);
    }
}

static void measure(const struct bench *bench, const struct scene *scene,
                    const size_t cores[2], struct bench_samples *p50,
                    struct bench_samples *p99)
{
    static struct pair pair;
    pthread_t taker;

    memset(&pair, 0, sizeof(pair));
    pair.how = scene->how;
    pair.giver_core = cores[0];
    pair.taker_core = cores[scene->apart ? 1 : 0];
    bench_stay_on(pair.taker_core); /* and so do the threads of the clients */
    open_clients(bench, &pair);
    bench_stay_on(pair.giver_core);
    if (pthread_create(&taker, NULL, taker_main, &pair))
        bench_fail("cannot start a thread");
    open_sleeper(&pair);
    for (unsigned i = 0; i < TIMES; i++)
        hand_over(&pair, i);
    pthread_join(taker, NULL);
    bench_sleeper_close(&pair.sleeper);
    if (pair.taker != pair.giver)
        bench_close(pair.taker);
    if (pair.giver)
        bench_close(pair.giver);
    bench_sort(pair.micros, TIMES);
    bench_add(p50, bench_quantile(pair.micros, TIMES, 0.5));
    bench_add(p99, bench_quantile(pair.micros, TIMES, 0.99));
}

static void tell(struct bench *bench, const struct bench_samples *p50,
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
        double usual = bench_median(&p50[i]);
        double seldom = bench_median(&p99[i]);

        if (scenes[i].how == FUTEX)
            futex = i;
        bench_table_text(&table, scenes[i].where);
        bench_table_text(&table, scenes[i].what);
        bench_table_number(&table, usual);
        bench_table_number(&table, seldom);
        bench_table_number(&table, usual / bench_median(&p50[futex]));
        bench_table_number(&table, seldom / bench_median(&p99[futex]));
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
    tell(&bench, p50, p99);
    return 0;
}
