/* process_line - what does a hand-over cost where 10, 100 or 1000 processes
 * stand in line for the key, and what does it cost that they stand there?
 *
 * Each waiter is a process that sleeps in hf_acquire(). Who gets the lock gives
 * it back and joins the line again, so that the line keeps its length. A
 * hand-over is from just before hf_release() in one until hf_acquire() has
 * returned in another; processor time is that of all processes together, and
 * has the joining in it. The floor is a ring of futexes, where each process
 * wakes the next.
 *
 * Before that nobody moves for a while, and those in line look now and then
 * whether a push was lost. */
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/bench.h"
#include "lib/process.h"
#include "lib/sleeper.h"

#define WAITERS_MAX 1000
#define TIMES 2000     /* hand-overs a round */
#define SETTLE_MS 1500 /* until all have looked once, and know the line */
#define IDLE_MS 1000

static const struct scene {
    const char *what;
    unsigned waiters;
    bool is_ring;
} scenes[] = {
    {"ring of futexes", 10, true},   {"hf_lock", 10, false},
    {"ring of futexes", 100, true},  {"hf_lock", 100, false},
    {"ring of futexes", 1000, true}, {"hf_lock", 1000, false},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

/* What the processes share. Who has the lock, and nobody else, writes down the
 * hand-overs. */
struct line {
    const struct bench *bench;
    const struct scene *scene;
    struct bench_gate ready, over, leave;
    uint64_t given; /* when the latest hand-over began */
    unsigned count; /* of those that are over */
    double micros[TIMES];
    struct waiter {
        _Alignas(64) atomic_uint word; /* the futex; 1: it is its turn */
        struct line *line;
        pid_t pid;
    } waiters[WAITERS_MAX];
};

/* ---- The waiters --------------------------------------------------------*/

static void await_word(atomic_uint *word)
{
    while (atomic_load(word) == 0)
        (void)syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL);
    atomic_store(word, 0);
}

static void wake(struct waiter *waiter)
{
    atomic_store(&waiter->word, 1);
    (void)syscall(SYS_futex, &waiter->word, FUTEX_WAKE, 1);
}

static struct waiter *next_of(struct waiter *waiter)
{
    struct line *line = waiter->line;
    size_t next = (size_t)(waiter - line->waiters) + 1;

    return &line->waiters[next < line->scene->waiters ? next : 0];
}

/* Having the lock: write the hand-over down. After the last one all stand
 * still until the clocks have been read. False: it is over. */
static bool note(struct line *line)
{
    if (line->count < TIMES) {
        line->micros[line->count] = (double)(bench_now() - line->given) / 1e3;
        line->count++;
        if (line->count == TIMES) {
            bench_gate_open(&line->over);
            bench_gate_wait(&line->leave, 1);
        }
    }
    line->given = bench_now();
    return line->count < TIMES;
}

static void stand_in_ring(void *arg)
{
    struct waiter *waiter = arg;
    bool more;

    bench_gate_open(&waiter->line->ready);
    do {
        await_word(&waiter->word);
        more = note(waiter->line);
        wake(next_of(waiter));
    } while (more);
}

static void stand_in_line(void *arg)
{
    struct line *line = ((struct waiter *)arg)->line;
    struct hf_client *client = bench_open(line->bench);
    bool more;

    bench_gate_open(&line->ready);
    do {
        struct hf_lock *held = bench_lock(client, "line");

        more = note(line);
        bench_unlock(held);
    } while (more);
    bench_close(client);
}

/* ---- Who watches --------------------------------------------------------*/

/* One after another: a crowd that opens at once is another question. */
static void start(struct line *line)
{
    for (unsigned i = 0; i < line->scene->waiters; i++) {
        struct waiter *waiter = &line->waiters[i];

        waiter->line = line;
        waiter->pid = bench_start(
            line->scene->is_ring ? stand_in_ring : stand_in_line, waiter);
        bench_gate_wait(&line->ready, i + 1);
    }
}

static void await_sleep(const struct line *line)
{
    for (unsigned i = 0; i < line->scene->waiters; i++) {
        struct bench_sleeper sleeper;

        bench_sleeper_open(&sleeper, line->waiters[i].pid);
        while (!bench_sleeps(&sleeper))
            sched_yield();
        bench_sleeper_close(&sleeper);
    }
}

static unsigned count_waiters(struct hf_client *client)
{
    struct hf_info info;
    unsigned waiters;

    bench_check("hf_read",
                hf_read(client, hf_key_of("line"), HF_LINEARIZABLE, &info));
    waiters = info.waiters;
    hf_info_fini(&info);
    return waiters;
}

static void await_line(const struct line *line, struct hf_client *client)
{
    while (count_waiters(client) < line->scene->waiters) {
        bench_check_children();
        sched_yield();
    }
}

/* Microseconds of processor time that the waiters have had. */
static double cpu_of(const struct line *line)
{
    double micros = 0;

    for (unsigned i = 0; i < line->scene->waiters; i++) {
        struct timespec used;
        clockid_t clock;

        if (clock_getcpuclockid(line->waiters[i].pid, &clock) ||
            clock_gettime(clock, &used))
            bench_fail("cannot read the clock of a process");
        micros += (double)used.tv_sec * 1e6 + (double)used.tv_nsec / 1e3;
    }
    return micros;
}

/* ---- Rounds -------------------------------------------------------------*/

struct figures {
    struct bench_samples p50, p99; /* microseconds */
    struct bench_samples cpu;      /* microseconds a hand-over */
    struct bench_samples idle;     /* milliseconds a second, of a line */
};

static double idle_cpu(const struct line *line)
{
    double before;

    bench_sleep_ms(SETTLE_MS);
    before = cpu_of(line);
    bench_sleep_ms(IDLE_MS);
    return (cpu_of(line) - before) / IDLE_MS;
}

/* From the first hand-over to the last. */
static void watch(struct line *line, double before, struct figures *figures)
{
    bench_gate_wait(&line->over, 1);
    bench_add(&figures->cpu, (cpu_of(line) - before) / TIMES);
    bench_gate_open(&line->leave);
    bench_join_children();
    bench_sort(line->micros, TIMES);
    bench_add(&figures->p50, bench_quantile(line->micros, TIMES, 0.5));
    bench_add(&figures->p99, bench_quantile(line->micros, TIMES, 0.99));
}

static void measure_ring(struct line *line, struct figures *figures)
{
    double before;

    start(line);
    await_sleep(line);
    before = cpu_of(line);
    line->given = bench_now();
    wake(&line->waiters[0]);
    watch(line, before, figures);
}

static void measure_line(struct line *line, struct figures *figures)
{
    struct hf_client *client = bench_open(line->bench);
    struct hf_lock *held = bench_lock(client, "line");
    double before;

    start(line);
    await_line(line, client);
    await_sleep(line);
    bench_add(&figures->idle, idle_cpu(line));
    before = cpu_of(line);
    line->given = bench_now();
    bench_unlock(held);
    watch(line, before, figures);
    bench_close(client);
}

static void tell(struct bench *bench, const struct figures *figures)
{
    static const struct bench_column columns[] = {
        {"waiters", "waiters", 0},
        {"what", "what", BENCH_TEXT},
        {"p50 µs", "p50_us", 1},
        {"p99 µs", "p99_us", 1},
        {"p50 / futex", "p50_ratio", 2},
        {"CPU µs a hand-over", "cpu_us", 1},
        {"CPU ms/s while idle", "idle_ms", 1},
        {NULL, NULL, 0},
    };
    static struct bench_table table;
    size_t ring = 0;

    bench_table_init(&table, "Hand-over along a line of processes",
                     "process_line", columns);
    for (size_t i = 0; i < SCENES; i++) {
        double usual = bench_median(&figures[i].p50);

        if (scenes[i].is_ring)
            ring = i;
        bench_table_number(&table, scenes[i].waiters);
        bench_table_text(&table, scenes[i].what);
        bench_table_number(&table, usual);
        bench_table_number(&table, bench_median(&figures[i].p99));
        bench_table_number(&table, usual / bench_median(&figures[ring].p50));
        bench_table_number(&table, bench_median(&figures[i].cpu));
        bench_table_number(&table, bench_median(&figures[i].idle));
    }
    bench_table_print(bench, &table);
}

int main(int argc, char **argv)
{
    struct bench bench = {
        .name = "process_line", .rounds = 3, .processes = true};
    struct line *line = bench_share(sizeof(*line));
    static struct figures figures[SCENES];

    bench_init(&bench, argc, argv);
    for (unsigned round = 0; round < bench.rounds; round++) {
        for (size_t i = 0; i < SCENES; i++) {
            bench_progress(&bench, round, scenes[i].what);
            memset(line, 0, sizeof(*line));
            line->bench = &bench;
            line->scene = &scenes[i];
            if (scenes[i].is_ring)
                measure_ring(line, &figures[i]);
            else
                measure_line(line, &figures[i]);
        }
    }
    tell(&bench, figures);
    return 0;
}
