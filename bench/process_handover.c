/* process_handover - how long after one process begins to unlock does another,
 * asleep in hf_acquire(), have the lock, next to a bare futex and to flock(2)?
 *
 * From just before hf_release() in the giver until hf_acquire() has returned in
 * the taker, which is seen to stand in line and to sleep, as in handover.c.
 * The futex, a word that both have mapped, is the floor. A FIFO that both keep
 * open, waited for by epoll, is the floor of whatever can be polled.
 *
 * On two cores, one that sleeps has to be woken by the other, which takes its
 * time; on one core the taker runs as soon as the giver lets it, and what is
 * left is the work of both. */
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/bench.h"
#include "lib/cores.h"
#include "lib/process.h"
#include "lib/sleeper.h"

#define TIMES 1000 /* hand-overs a round */
#define SETTLE_NS 50000

enum how {
    FUTEX,
    FIFO,
    FLOCK,
    LOCK
};

static const struct scene {
    const char *what;
    const char *where;
    enum how how;
    bool apart; /* a core each */
} scenes[] = {
    {"bare futex", "two", FUTEX, true},  {"FIFO and epoll", "two", FIFO, true},
    {"flock", "two", FLOCK, true},       {"hf_lock", "two", LOCK, true},
    {"bare futex", "one", FUTEX, false}, {"FIFO and epoll", "one", FIFO, false},
    {"flock", "one", FLOCK, false},      {"hf_lock", "one", LOCK, false},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

/* Two processes. They take turns by `turn`, which counts up: even, the giver
 * is at work; odd, the taker is. */
struct pair {
    const struct bench *bench;
    enum how how;
    size_t taker_core;
    atomic_uint turn;
    atomic_uint word;    /* the futex */
    atomic_bool in_line; /* the taker waits, or is about to */
    uint64_t given;      /* when the hand-over began */
    double micros[TIMES];
};

/* What each of them has for itself. */
struct side {
    struct pair *pair;
    struct hf_client *client;
    struct hf_lock *lock;
    struct hf_lock_opts opts;
    int file, fifo, epoll;
};

/* ---- Ways to hand over --------------------------------------------------*/

static void hold_futex(struct side *side)
{
    atomic_store(&side->pair->word, 0);
}

static void give_futex(struct side *side)
{
    atomic_store(&side->pair->word, 1);
    (void)syscall(SYS_futex, &side->pair->word, FUTEX_WAKE, 1);
}

static void take_futex(struct side *side)
{
    while (atomic_load(&side->pair->word) == 0)
        (void)syscall(SYS_futex, &side->pair->word, FUTEX_WAIT, 0, NULL);
}

static void give_fifo(struct side *side)
{
    if (write(side->fifo, "", 1) != 1)
        bench_fail("cannot write to a FIFO");
}

static void take_fifo(struct side *side)
{
    struct epoll_event event;
    char byte;

    if (epoll_wait(side->epoll, &event, 1, -1) != 1 ||
        read(side->fifo, &byte, 1) != 1)
        bench_fail("cannot read from a FIFO");
}

static void take_flock(struct side *side)
{
    if (flock(side->file, LOCK_EX))
        bench_fail("flock");
}

static void give_flock(struct side *side)
{
    if (flock(side->file, LOCK_UN))
        bench_fail("flock");
}

static void take_lock(struct side *side)
{
    bench_check("hf_lock", hf_acquire(side->client, hf_key_of("baton"),
                                      &side->opts, &side->lock));
}

static void give_lock(struct side *side)
{
    bench_check("hf_release", hf_release(side->lock));
    hf_lock_free(side->lock);
}

static void do_nothing(struct side *side)
{
    (void)side;
}

static const struct way {
    void (*hold)(struct side *giver); /* before the taker waits */
    void (*give)(struct side *giver);
    void (*take)(struct side *taker);
    void (*let_go)(struct side *taker); /* once it is measured */
} ways[] = {
    [FUTEX] = {hold_futex, give_futex, take_futex, do_nothing},
    [FIFO] = {do_nothing, give_fifo, take_fifo, do_nothing},
    [FLOCK] = {take_flock, give_flock, take_flock, give_flock},
    [LOCK] = {take_lock, give_lock, take_lock, give_lock},
};

/* ---- Both sides ---------------------------------------------------------*/

static int open_in_folder(const char *name, int flags)
{
    char path[64];
    int file;

    (void)snprintf(path, sizeof(path), "%s/%s", bench_folder(), name);
    file = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
    if (file < 0)
        bench_fail("cannot open a file");
    return file;
}

static void set_up(struct side *side, struct pair *pair)
{
    struct epoll_event event = {.events = EPOLLIN};

    side->pair = pair;
    side->client = bench_open(pair->bench);
    hf_lock_opts_init(&side->opts);
    side->opts.wait_ms = HF_FOREVER;
    side->opts.ttl_ms = 60000;
    side->file = open_in_folder("file", O_CREAT);
    side->fifo = open_in_folder("fifo", 0);
    side->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ctl(side->epoll, EPOLL_CTL_ADD, side->fifo, &event))
        bench_fail("cannot poll a FIFO");
}

static void clear_up(struct side *side)
{
    bench_close(side->client);
    (void)close(side->file);
    (void)close(side->fifo);
    (void)close(side->epoll);
}

static void await_turn(const struct pair *pair, unsigned turn)
{
    while (atomic_load(&pair->turn) != turn) {
        sched_yield();
        bench_check_children();
    }
}

/* ---- The taker ----------------------------------------------------------*/

static void taker_main(void *arg)
{
    struct pair *pair = arg;
    const struct way *way = &ways[pair->how];
    struct side side;

    bench_stay_on(pair->taker_core);
    set_up(&side, pair);
    for (unsigned i = 0; i < TIMES; i++) {
        await_turn(pair, 2 * i + 1);
        atomic_store(&pair->in_line, true);
        way->take(&side);
        pair->micros[i] = (double)(bench_now() - pair->given) / 1e3;
        way->let_go(&side);
        atomic_store(&pair->turn, 2 * i + 2);
    }
    clear_up(&side);
}

/* ---- The giver ----------------------------------------------------------*/

static bool is_in_line(struct side *giver)
{
    struct hf_info info;
    bool waits;

    if (giver->pair->how != LOCK)
        return atomic_load(&giver->pair->in_line);
    bench_check("hf_read", hf_read(giver->client, hf_key_of("baton"),
                                   HF_LINEARIZABLE, &info));
    waits = info.waiters > 0;
    hf_info_fini(&info);
    return waits;
}

static void await_sleep(struct side *giver, const struct bench_sleeper *taker)
{
    uint64_t from;

    while (!is_in_line(giver) || !bench_sleeps(taker)) {
        sched_yield();
        bench_check_children();
    }
    from = bench_now();
    while (bench_now() - from < SETTLE_NS)
        ;
}

static void hand_over(struct side *giver, const struct bench_sleeper *taker,
                      unsigned i)
{
    struct pair *pair = giver->pair;

    atomic_store(&pair->in_line, false);
    ways[pair->how].hold(giver);
    atomic_store(&pair->turn, 2 * i + 1);
    await_sleep(giver, taker);
    pair->given = bench_now();
    ways[pair->how].give(giver);
    await_turn(pair, 2 * i + 2);
}

/* ---- Rounds -------------------------------------------------------------*/

struct figures {
    struct bench_samples p50, p99;
};

static void measure(struct pair *pair, size_t giver_core,
                    struct figures *figures)
{
    struct bench_sleeper taker;
    struct side giver;

    bench_sleeper_open(&taker, bench_start(taker_main, pair));
    bench_stay_on(giver_core);
    set_up(&giver, pair);
    for (unsigned i = 0; i < TIMES; i++)
        hand_over(&giver, &taker, i);
    bench_join_children();
    bench_sleeper_close(&taker);
    clear_up(&giver);
    bench_sort(pair->micros, TIMES);
    bench_add(&figures->p50, bench_quantile(pair->micros, TIMES, 0.5));
    bench_add(&figures->p99, bench_quantile(pair->micros, TIMES, 0.99));
}

static void tell(struct bench *bench, const struct figures *figures)
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

    bench_table_init(&table, "Hand-over to a sleeping process",
                     "process_handover", columns);
    for (size_t i = 0; i < SCENES; i++) {
        double usual = bench_median(&figures[i].p50);
        double seldom = bench_median(&figures[i].p99);

        if (scenes[i].how == FUTEX)
            futex = i;
        bench_table_text(&table, scenes[i].where);
        bench_table_text(&table, scenes[i].what);
        bench_table_number(&table, usual);
        bench_table_number(&table, seldom);
        bench_table_number(&table, usual / bench_median(&figures[futex].p50));
        bench_table_number(&table, seldom / bench_median(&figures[futex].p99));
    }
    bench_table_print(bench, &table);
}

static void make_fifo(void)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "%s/fifo", bench_folder());
    if (mkfifo(path, 0600))
        bench_fail("cannot make a FIFO");
}

int main(int argc, char **argv)
{
    struct bench bench = {
        .name = "process_handover", .rounds = 15, .processes = true};
    struct pair *pair = bench_share(sizeof(*pair));
    static struct figures figures[SCENES];
    size_t cores[2];

    bench_init(&bench, argc, argv);
    bench_cores_find(cores);
    make_fifo();
    for (unsigned round = 0; round < bench.rounds; round++) {
        for (size_t i = 0; i < SCENES; i++) {
            bench_progress(&bench, round, scenes[i].what);
            memset(pair, 0, sizeof(*pair));
            pair->bench = &bench;
            pair->how = scenes[i].how;
            pair->taker_core = cores[scenes[i].apart ? 1 : 0];
            measure(pair, cores[0], &figures[i]);
        }
    }
    tell(&bench, figures);
    return 0;
}
