/* process_handover - how long does it take from one process's hf_release()
 * until another process, asleep in hf_acquire(), has the lock, compared with a
 * bare futex and with flock(2)?
 *
 * The time is measured from just before hf_release() in the holder until
 * hf_acquire() has returned in the waiter, which is queued and asleep, as in
 * handover.c. The lower bound is the futex, a word that both processes have
 * mapped. The lower bound for anything that can be polled is a FIFO that both
 * keep open, with epoll.
 *
 * On two cores, the kernel has to wake the other core, which takes a while; on
 * one core, the waiter runs as soon as the holder blocks, and the time is that
 * of both processes' work. */
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

#define TIMES 1000 /* hand-overs per round */
#define SETTLE_NS 50000

enum method {
    FUTEX,
    FIFO,
    FLOCK,
    LOCK
};

static const struct scene {
    const char *what;
    const char *where;
    enum method method;
    bool apart; /* on different cores */
} scenes[] = {
    {"bare futex", "two", FUTEX, true},  {"FIFO and epoll", "two", FIFO, true},
    {"flock", "two", FLOCK, true},       {"holdfast", "two", LOCK, true},
    {"bare futex", "one", FUTEX, false}, {"FIFO and epoll", "one", FIFO, false},
    {"flock", "one", FLOCK, false},      {"holdfast", "one", LOCK, false},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

/* Shared by the two processes, which alternate: `turn` counts up, and the
 * holder works when it is even, the waiter when it is odd. */
struct pair {
    const struct bench *bench;
    enum method method;
    size_t waiter_core;
    atomic_uint turn;
    atomic_uint word;     /* the futex */
    atomic_bool queued;   /* the waiter sleeps, or is about to sleep */
    uint64_t released_at; /* when the hand-over began */
    double micros[TIMES];
};

/* Private to each process. */
struct side {
    struct pair *pair;
    struct hf_client *client;
    struct hf_lock *lock;
    struct hf_lock_opts opts;
    int file, fifo, epoll;
};

/* ---- Methods of hand-over -----------------------------------------------*/

static void hold_futex(struct side *side)
{
    atomic_store(&side->pair->word, 0);
}

static void release_futex(struct side *side)
{
    atomic_store(&side->pair->word, 1);
    (void)syscall(SYS_futex, &side->pair->word, FUTEX_WAKE, 1);
}

static void acquire_futex(struct side *side)
{
    while (atomic_load(&side->pair->word) == 0)
        (void)syscall(SYS_futex, &side->pair->word, FUTEX_WAIT, 0, NULL);
}

static void release_fifo(struct side *side)
{
    if (write(side->fifo, "", 1) != 1)
        bench_fail("cannot write to a FIFO");
}

static void acquire_fifo(struct side *side)
{
    struct epoll_event event;
    char byte;

    if (epoll_wait(side->epoll, &event, 1, -1) != 1 ||
        read(side->fifo, &byte, 1) != 1)
        bench_fail("cannot read from a FIFO");
}

static void acquire_flock(struct side *side)
{
    if (flock(side->file, LOCK_EX))
        bench_fail("flock");
}

static void release_flock(struct side *side)
{
    if (flock(side->file, LOCK_UN))
        bench_fail("flock");
}

static void acquire_lock(struct side *side)
{
    bench_check("hf_acquire", hf_acquire(side->client, hf_key_of("baton"),
                                         &side->opts, &side->lock));
}

static void release_lock(struct side *side)
{
    bench_check("hf_release", hf_release(side->lock));
    hf_lock_free(side->lock);
}

static void do_nothing(struct side *side)
{
    (void)side;
}

static const struct method_ops {
    void (*hold)(struct side *holder); /* called before the waiter waits */
    void (*release)(struct side *holder);
    void (*acquire)(struct side *waiter);
    void (*clean_up)(struct side *waiter); /* called after the measurement */
} methods[] = {
    [FUTEX] = {hold_futex, release_futex, acquire_futex, do_nothing},
    [FIFO] = {do_nothing, release_fifo, acquire_fifo, do_nothing},
    [FLOCK] = {acquire_flock, release_flock, acquire_flock, release_flock},
    [LOCK] = {acquire_lock, release_lock, acquire_lock, release_lock},
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

static void side_init(struct side *side, struct pair *pair)
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

static void side_fini(struct side *side)
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

/* ---- The waiter ----------------------------------------------------------*/

static void waiter_main(void *arg)
{
    struct pair *pair = arg;
    const struct method_ops *ops = &methods[pair->method];
    struct side side;

    bench_stay_on(pair->waiter_core);
    side_init(&side, pair);
    for (unsigned i = 0; i < TIMES; i++) {
        await_turn(pair, 2 * i + 1);
        atomic_store(&pair->queued, true);
        ops->acquire(&side);
        pair->micros[i] = (double)(bench_now() - pair->released_at) / 1e3;
        ops->clean_up(&side);
        atomic_store(&pair->turn, 2 * i + 2);
    }
    side_fini(&side);
}

/* ---- The holder ----------------------------------------------------------*/

static bool is_queued(struct side *holder)
{
    struct hf_info info;
    bool has_waiter;

    if (holder->pair->method != LOCK)
        return atomic_load(&holder->pair->queued);
    bench_check("hf_read", hf_read(holder->client, hf_key_of("baton"),
                                   HF_LINEARIZABLE, &info));
    has_waiter = info.waiters > 0;
    hf_info_fini(&info);
    return has_waiter;
}

static void await_sleep(struct side *holder, const struct bench_sleeper *waiter)
{
    uint64_t from;

    while (!is_queued(holder) || !bench_sleeps(waiter)) {
        sched_yield();
        bench_check_children();
    }
    from = bench_now();
    while (bench_now() - from < SETTLE_NS)
        ;
}

static void hand_over(struct side *holder, const struct bench_sleeper *waiter,
                      unsigned i)
{
    struct pair *pair = holder->pair;

    atomic_store(&pair->queued, false);
    methods[pair->method].hold(holder);
    atomic_store(&pair->turn, 2 * i + 1);
    await_sleep(holder, waiter);
    pair->released_at = bench_now();
    methods[pair->method].release(holder);
    await_turn(pair, 2 * i + 2);
}

/* ---- Rounds -------------------------------------------------------------*/

struct figures {
    struct bench_samples p50, p99;
};

static void measure(struct pair *pair, size_t holder_core,
                    struct figures *figures)
{
    struct bench_sleeper waiter;
    struct side holder;

    bench_sleeper_open(&waiter, bench_start(waiter_main, pair));
    bench_stay_on(holder_core);
    side_init(&holder, pair);
    for (unsigned i = 0; i < TIMES; i++)
        hand_over(&holder, &waiter, i);
    bench_join_children();
    bench_sleeper_close(&waiter);
    side_fini(&holder);
    bench_sort(pair->micros, TIMES);
    bench_add(&figures->p50, bench_quantile(pair->micros, TIMES, 0.5));
    bench_add(&figures->p99, bench_quantile(pair->micros, TIMES, 0.99));
}

static void print_table(struct bench *bench, const struct figures *figures)
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
        double p50_us = bench_median(&figures[i].p50);
        double p99_us = bench_median(&figures[i].p99);

        if (scenes[i].method == FUTEX)
            futex = i;
        bench_table_text(&table, scenes[i].where);
        bench_table_text(&table, scenes[i].what);
        bench_table_number(&table, p50_us);
        bench_table_number(&table, p99_us);
        bench_table_number(&table, p50_us / bench_median(&figures[futex].p50));
        bench_table_number(&table, p99_us / bench_median(&figures[futex].p99));
    }
    bench_table_print(bench, &table);
}

static void make_fifo(void)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "%s/fifo", bench_folder());
    if (mkfifo(path, 0600))
        bench_fail("cannot create a FIFO");
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
            pair->method = scenes[i].method;
            pair->waiter_core = cores[scenes[i].apart ? 1 : 0];
            measure(pair, cores[0], &figures[i]);
        }
    }
    print_table(&bench, figures);
    return 0;
}
