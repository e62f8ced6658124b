/* process_queue - what does a hand-over cost if 10, 100 or 1000 processes wait
 * for the key, and what do idle waiters cost?
 *
 * Each waiter is a process that sleeps in hf_acquire(). A process that gets the
 * lock releases it and joins the queue again, so the queue keeps its length. A
 * hand-over is measured from just before hf_release() in one process until
 * hf_acquire() has returned in another; CPU time is that of all processes, and
 * includes joining the queue. The lower bound is a ring of futexes, in which
 * each process wakes the next.
 *
 * Before the hand-overs, all waiters are idle for a while, except that each one
 * polls now and then in case a notification was lost. */
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
#define TIMES 2000     /* hand-overs per round */
#define SETTLE_MS 1500 /* by then, each waiter has polled once */
#define IDLE_MS 1000

static const struct scene {
    const char *what;
    unsigned waiters;
    bool is_ring;
} scenes[] = {
    {"ring of futexes", 10, true},   {"holdfast", 10, false},
    {"ring of futexes", 100, true},  {"holdfast", 100, false},
    {"ring of futexes", 1000, true}, {"holdfast", 1000, false},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

/* Shared by the processes. Only the holder of the lock writes `released_at`,
 * `count` and `micros`. */
struct queue {
    const struct bench *bench;
    const struct scene *scene;
    struct bench_gate ready, over, leave;
    uint64_t released_at; /* when the latest hand-over began */
    unsigned count;       /* hand-overs so far */
    double micros[TIMES];
    struct waiter {
        _Alignas(64) atomic_uint word; /* the futex; 1: this process is next */
        struct queue *queue;
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

static void wake_waiter(struct waiter *waiter)
{
    atomic_store(&waiter->word, 1);
    (void)syscall(SYS_futex, &waiter->word, FUTEX_WAKE, 1);
}

static struct waiter *next_in_ring(struct waiter *waiter)
{
    struct queue *queue = waiter->queue;
    size_t next = (size_t)(waiter - queue->waiters) + 1;

    return &queue->waiters[next < queue->scene->waiters ? next : 0];
}

/* Called by each holder: record how long the hand-over to it took. The holder
 * that records the last one waits until the parent has read the CPU clocks.
 * Returns whether more are to be recorded. */
static bool record_handover(struct queue *queue)
{
    if (queue->count < TIMES) {
        queue->micros[queue->count] =
            (double)(bench_now() - queue->released_at) / 1e3;
        queue->count++;
        if (queue->count == TIMES) {
            bench_gate_open(&queue->over);
            bench_gate_wait(&queue->leave, 1);
        }
    }
    queue->released_at = bench_now();
    return queue->count < TIMES;
}

static void ring_main(void *arg)
{
    struct waiter *waiter = arg;
    bool more;

    bench_gate_open(&waiter->queue->ready);
    do {
        await_word(&waiter->word);
        more = record_handover(waiter->queue);
        wake_waiter(next_in_ring(waiter));
    } while (more);
}

static void queue_main(void *arg)
{
    struct queue *queue = ((struct waiter *)arg)->queue;
    struct hf_client *client = bench_open(queue->bench);
    bool more;

    bench_gate_open(&queue->ready);
    do {
        struct hf_lock *held = bench_lock(client, "queue");

        more = record_handover(queue);
        bench_unlock(held);
    } while (more);
    bench_close(client);
}

/* ---- The parent ---------------------------------------------------------*/

/* Start the waiters one after another, because this benchmark does not measure
 * how long it takes to open the store all at once. */
static void start_waiters(struct queue *queue)
{
    for (unsigned i = 0; i < queue->scene->waiters; i++) {
        struct waiter *waiter = &queue->waiters[i];

        waiter->queue = queue;
        waiter->pid =
            bench_start(queue->scene->is_ring ? ring_main : queue_main, waiter);
        bench_gate_wait(&queue->ready, i + 1);
    }
}

static void await_sleep(const struct queue *queue)
{
    for (unsigned i = 0; i < queue->scene->waiters; i++) {
        struct bench_sleeper sleeper;

        bench_sleeper_open(&sleeper, queue->waiters[i].pid);
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
                hf_read(client, hf_key_of("queue"), HF_LINEARIZABLE, &info));
    waiters = info.waiters;
    hf_info_fini(&info);
    return waiters;
}

static void await_queue(const struct queue *queue, struct hf_client *client)
{
    while (count_waiters(client) < queue->scene->waiters) {
        bench_check_children();
        sched_yield();
    }
}

/* The CPU time of all waiters in microseconds. */
static double total_cpu(const struct queue *queue)
{
    double micros = 0;

    for (unsigned i = 0; i < queue->scene->waiters; i++) {
        struct timespec used;
        clockid_t clock;

        if (clock_getcpuclockid(queue->waiters[i].pid, &clock) ||
            clock_gettime(clock, &used))
            bench_fail("cannot read the CPU clock of a process");
        micros += (double)used.tv_sec * 1e6 + (double)used.tv_nsec / 1e3;
    }
    return micros;
}

/* ---- Rounds -------------------------------------------------------------*/

struct figures {
    struct bench_samples p50, p99; /* microseconds */
    struct bench_samples cpu;      /* CPU microseconds per hand-over */
    struct bench_samples idle;     /* CPU ms per second, of all waiters */
};

static double idle_cpu(const struct queue *queue)
{
    double before;

    bench_sleep_ms(SETTLE_MS);
    before = total_cpu(queue);
    bench_sleep_ms(IDLE_MS);
    return (total_cpu(queue) - before) / IDLE_MS;
}

/* Wait for the last hand-over, and collect the figures. `before` is the CPU
 * time before the first hand-over. */
static void await_handovers(struct queue *queue, double before,
                            struct figures *figures)
{
    bench_gate_wait(&queue->over, 1);
    bench_add(&figures->cpu, (total_cpu(queue) - before) / TIMES);
    bench_gate_open(&queue->leave);
    bench_join_children();
    bench_sort(queue->micros, TIMES);
    bench_add(&figures->p50, bench_quantile(queue->micros, TIMES, 0.5));
    bench_add(&figures->p99, bench_quantile(queue->micros, TIMES, 0.99));
}

static void measure_ring(struct queue *queue, struct figures *figures)
{
    double before;

    start_waiters(queue);
    await_sleep(queue);
    before = total_cpu(queue);
    queue->released_at = bench_now();
    wake_waiter(&queue->waiters[0]);
    await_handovers(queue, before, figures);
}

static void measure_queue(struct queue *queue, struct figures *figures)
{
    struct hf_client *client = bench_open(queue->bench);
    struct hf_lock *held = bench_lock(client, "queue");
    double before;

    start_waiters(queue);
    await_queue(queue, client);
    await_sleep(queue);
    bench_add(&figures->idle, idle_cpu(queue));
    before = total_cpu(queue);
    queue->released_at = bench_now();
    bench_unlock(held);
    await_handovers(queue, before, figures);
    bench_close(client);
}

static void print_table(struct bench *bench, const struct figures *figures)
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

    bench_table_init(&table, "Hand-over with a queue of processes",
                     "process_queue", columns);
    for (size_t i = 0; i < SCENES; i++) {
        double p50_us = bench_median(&figures[i].p50);

        if (scenes[i].is_ring)
            ring = i;
        bench_table_number(&table, scenes[i].waiters);
        bench_table_text(&table, scenes[i].what);
        bench_table_number(&table, p50_us);
        bench_table_number(&table, bench_median(&figures[i].p99));
        bench_table_number(&table, p50_us / bench_median(&figures[ring].p50));
        bench_table_number(&table, bench_median(&figures[i].cpu));
        bench_table_number(&table, bench_median(&figures[i].idle));
    }
    bench_table_print(bench, &table);
}

int main(int argc, char **argv)
{
    struct bench bench = {
        .name = "process_queue", .rounds = 3, .processes = true};
    struct queue *queue = bench_share(sizeof(*queue));
    static struct figures figures[SCENES];

    bench_init(&bench, argc, argv);
    for (unsigned round = 0; round < bench.rounds; round++) {
        for (size_t i = 0; i < SCENES; i++) {
            bench_progress(&bench, round, scenes[i].what);
            memset(queue, 0, sizeof(*queue));
            queue->bench = &bench;
            queue->scene = &scenes[i];
            if (scenes[i].is_ring)
                measure_ring(queue, &figures[i]);
            else
                measure_queue(queue, &figures[i]);
        }
    }
    print_table(&bench, figures);
    return 0;
}
