/* process_death - how long does it take from the kill of the holder's process
 * until a waiter, asleep in hf_acquire() with file:, has the lock, compared
 * with flock(2)?
 *
 * The time is measured from just before kill(2) with SIGKILL until the waiter's
 * call has returned. A process takes a while to end; flock(2) shows how long.
 * The case "released" is a hand-over in the same setting: the holder, a new
 * process each time, releases its lock. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/bench.h"
#include "lib/cores.h"
#include "lib/process.h"
#include "lib/sleeper.h"

#define TIMES 100 /* holders per round */
#define SETTLE_NS 50000

static const struct scene {
    const char *what;
    bool flock;
    bool killed;
} scenes[] = {
    {"flock, holder killed", true, true},
    {"holdfast, holder killed", false, true},
    {"holdfast, released", false, false},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

/* Shared by the processes. `turn` counts up; see await_turn(). */
struct stage {
    const struct bench *bench;
    const struct scene *scene;
    size_t cores[2];
    pid_t waiter;
    atomic_uint turn;
    atomic_bool waits;   /* the waiter is about to sleep */
    atomic_bool release; /* set by the parent: the holder unlocks */
    uint64_t began;      /* time just before the kill or the unlock */
    double micros[TIMES];
};

/* Check the waiter alone: bench_check_children() would fail, because holders
 * are killed. */
static void check_waiter(const struct stage *stage)
{
    siginfo_t info = {0};

    if (waitid(P_PID, (id_t)stage->waiter, &info,
               WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid != 0 && info.si_status != 0)
        bench_fail("the waiter failed");
}

/* Wait for a turn. In turn 3 i, holder i takes the lock; in 3 i + 1, the waiter
 * waits for it; in 3 i + 2, the waiter has taken and released it. */
static void await_turn(const struct stage *stage, unsigned turn)
{
    while (atomic_load(&stage->turn) != turn) {
        sched_yield();
        check_waiter(stage);
    }
}

/* ---- Locking ------------------------------------------------------------*/

/* Private to each process. */
struct side {
    struct stage *stage;
    struct hf_client *client;
    struct hf_lock *lock;
    int file;
};

static void open_side(struct side *side, struct stage *stage)
{
    char path[64];

    side->stage = stage;
    side->client = bench_open(stage->bench);
    (void)snprintf(path, sizeof(path), "%s/file", bench_folder());
    side->file = open(path, O_RDWR | O_CLOEXEC | O_CREAT, 0600);
    if (side->file < 0)
        bench_fail("cannot open a file");
}

static void lock_side(struct side *side)
{
    struct hf_lock_opts opts;

    if (side->stage->scene->flock) {
        if (flock(side->file, LOCK_EX))
            bench_fail("flock");
        return;
    }
    hf_lock_opts_init(&opts);
    opts.wait_ms = HF_FOREVER;
    opts.ttl_ms = 60000;
    bench_check("hf_acquire", hf_acquire(side->client, hf_key_of("baton"),
                                         &opts, &side->lock));
}

static void unlock_side(struct side *side)
{
    if (side->stage->scene->flock) {
        if (flock(side->file, LOCK_UN))
            bench_fail("flock");
        return;
    }
    bench_check("hf_release", hf_release(side->lock));
    hf_lock_free(side->lock);
}

/* ---- Processes ----------------------------------------------------------*/

static void holder_main(struct stage *stage)
{
    struct side side = {0};

    bench_stay_on(stage->cores[0]);
    open_side(&side, stage);
    lock_side(&side);
    atomic_fetch_add(&stage->turn, 1);
    while (!atomic_load(&stage->release))
        (void)usleep(200);
    stage->began = bench_now();
    unlock_side(&side);
    _exit(0);
}

static void waiter_main(void *arg)
{
    struct stage *stage = arg;
    struct side side = {0};

    bench_stay_on(stage->cores[1]);
    open_side(&side, stage);
    for (unsigned i = 0; i < TIMES; i++) {
        await_turn(stage, 3 * i + 1);
        atomic_store(&stage->waits, true);
        lock_side(&side);
        stage->micros[i] = (double)(bench_now() - stage->began) / 1e3;
        unlock_side(&side);
        atomic_store(&stage->turn, 3 * i + 2);
    }
    bench_close(side.client);
}

/* ---- Measuring ----------------------------------------------------------*/

static bool is_queued(const struct stage *stage, struct hf_client *client)
{
    struct hf_info info;
    bool queued;

    if (stage->scene->flock)
        return atomic_load(&stage->waits);
    bench_check("hf_read",
                hf_read(client, hf_key_of("baton"), HF_LINEARIZABLE, &info));
    queued = info.waiters > 0;
    hf_info_fini(&info);
    return queued;
}

static void await_sleep(const struct stage *stage, struct hf_client *client,
                        const struct bench_sleeper *waiter)
{
    uint64_t from;

    while (!is_queued(stage, client) || !bench_sleeps(waiter)) {
        sched_yield();
        check_waiter(stage);
    }
    from = bench_now();
    while (bench_now() - from < SETTLE_NS)
        ;
}

static void measure_one(struct stage *stage, struct hf_client *client,
                        const struct bench_sleeper *waiter, unsigned i)
{
    pid_t holder;

    atomic_store(&stage->waits, false);
    atomic_store(&stage->release, false);
    holder = fork();
    if (holder == 0)
        holder_main(stage);
    if (holder < 0)
        bench_fail("cannot fork");
    await_turn(stage, 3 * i + 1);
    await_sleep(stage, client, waiter);
    stage->began = bench_now();
    if (stage->scene->killed)
        (void)kill(holder, SIGKILL);
    else
        atomic_store(&stage->release, true);
    await_turn(stage, 3 * i + 2);
    (void)waitpid(holder, NULL, 0);
    atomic_store(&stage->turn, 3 * i + 3);
}

struct figures {
    struct bench_samples p50, p99;
};

static void measure(struct stage *stage, struct figures *figures)
{
    struct hf_client *client;
    struct bench_sleeper waiter;

    stage->waiter = bench_start(waiter_main, stage);
    bench_sleeper_open(&waiter, stage->waiter);
    client = bench_open(stage->bench);
    for (unsigned i = 0; i < TIMES; i++)
        measure_one(stage, client, &waiter, i);
    bench_join_children();
    bench_sleeper_close(&waiter);
    bench_close(client);
    bench_sort(stage->micros, TIMES);
    bench_add(&figures->p50, bench_quantile(stage->micros, TIMES, 0.5));
    bench_add(&figures->p99, bench_quantile(stage->micros, TIMES, 0.99));
}

static void print_table(struct bench *bench, const struct figures *figures)
{
    static const struct bench_column columns[] = {
        {"what", "what", BENCH_TEXT},
        {"p50 µs", "p50_us", 1},
        {"p99 µs", "p99_us", 1},
        {"p50 / flock", "p50_ratio", 2},
        {NULL, NULL, 0},
    };
    static struct bench_table table;
    double flock_p50 = bench_median(&figures[0].p50);

    bench_table_init(&table, "From the end of the holder to the next grant",
                     "process_death", columns);
    for (size_t i = 0; i < SCENES; i++) {
        bench_table_text(&table, scenes[i].what);
        bench_table_number(&table, bench_median(&figures[i].p50));
        bench_table_number(&table, bench_median(&figures[i].p99));
        bench_table_number(&table, bench_median(&figures[i].p50) / flock_p50);
    }
    bench_table_print(bench, &table);
}

int main(int argc, char **argv)
{
    struct bench bench = {
        .name = "process_death", .rounds = 9, .processes = true};
    struct stage *stage = bench_share(sizeof(*stage));
    static struct figures figures[SCENES];

    bench_init(&bench, argc, argv);
    for (unsigned round = 0; round < bench.rounds; round++) {
        for (size_t i = 0; i < SCENES; i++) {
            bench_progress(&bench, round, scenes[i].what);
            memset(stage, 0, sizeof(*stage));
            stage->bench = &bench;
            stage->scene = &scenes[i];
            bench_cores_find(stage->cores);
            measure(stage, &figures[i]);
        }
    }
    print_table(&bench, figures);
    return 0;
}
