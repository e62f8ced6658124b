/* process_pairs - how many pairs of lock and unlock per second does the API do
 * if processes share the locks, compared with flock(2)?
 *
 * A pair is hf_acquire(), hf_release() and hf_lock_free(); or hf_lock_acquire()
 * and hf_release() with a handle that is kept. With flock(2), a program either
 * opens the file, locks it and closes it, which unlocks it; or it keeps the
 * file open, and locks and unlocks it. Each process has keys, or files, that no
 * other process uses. */
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <unistd.h>

#include "lib/bench.h"
#include "lib/process.h"

#define KEYS 64 /* keys per process, used in turn */
#define PROCESSES_MAX 4
#define ROUND_MS 150

enum method {
    OPEN_FILE,
    KEPT_FILE,
    NEW_HANDLE,
    KEPT_HANDLE
};

static const struct scene {
    const char *what;
    unsigned processes;
    enum method method;
} scenes[] = {
    {"open, flock, close", 1, OPEN_FILE}, {"flock, unlock", 1, KEPT_FILE},
    {"new handle", 1, NEW_HANDLE},        {"kept handle", 1, KEPT_HANDLE},

    {"open, flock, close", 4, OPEN_FILE}, {"flock, unlock", 4, KEPT_FILE},
    {"new handle", 4, NEW_HANDLE},        {"kept handle", 4, KEPT_HANDLE},
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

/* Shared by the processes of a round. */
struct round {
    const struct bench *bench;
    enum method method;
    struct bench_gate ready, start;
    atomic_bool stop;
    struct worker {
        struct round *round;
        uint64_t pairs;
        uint64_t cpu; /* nanoseconds of CPU time */
    } workers[PROCESSES_MAX];
};

/* Private to each process. */
struct worker_state {
    struct round *round;
    struct hf_client *client;
    struct hf_lock_opts opts;
    struct bench_keys keys;
    char paths[KEYS][64];
    int files[KEYS];
    struct hf_lock *locks[KEYS];
};

static void flock_or_fail(int file, int operation)
{
    if (flock(file, operation))
        bench_fail("flock");
}

static int open_file(const char *path, int flags)
{
    int file = open(path, O_RDWR | O_CLOEXEC | flags, 0600);

    if (file < 0)
        bench_fail("cannot open a file");
    return file;
}

static void pair_open_file(struct worker_state *state, size_t i)
{
    int file = open_file(state->paths[i], 0);

    flock_or_fail(file, LOCK_EX);
    (void)close(file);
}

static void pair_kept_file(struct worker_state *state, size_t i)
{
    flock_or_fail(state->files[i], LOCK_EX);
    flock_or_fail(state->files[i], LOCK_UN);
}

static void pair_new_handle(struct worker_state *state, size_t i)
{
    struct hf_key key = bench_key(&state->keys, i);
    struct hf_lock *lock;

    bench_check("hf_acquire",
                hf_acquire(state->client, key, &state->opts, &lock));
    bench_check("hf_release", hf_release(lock));
    hf_lock_free(lock);
}

static void pair_kept_handle(struct worker_state *state, size_t i)
{
    bench_check("hf_lock_acquire", hf_lock_acquire(state->locks[i]));
    bench_check("hf_release", hf_release(state->locks[i]));
}

static void (*const pairs[])(struct worker_state *state, size_t i) = {
    [OPEN_FILE] = pair_open_file,
    [KEPT_FILE] = pair_kept_file,
    [NEW_HANDLE] = pair_new_handle,
    [KEPT_HANDLE] = pair_kept_handle,
};

static void state_init(struct worker_state *state, const char *prefix)
{
    bool uses_files =
        state->round->method == OPEN_FILE || state->round->method == KEPT_FILE;

    bench_keys_init(&state->keys, prefix, KEYS);
    hf_lock_opts_init(&state->opts);
    state->opts.idle = true; /* hf_acquire() ignores this option */
    if (!uses_files)
        state->client = bench_open(state->round->bench);
    for (size_t i = 0; i < KEYS; i++) {
        struct hf_key key = bench_key(&state->keys, i);

        (void)snprintf(state->paths[i], sizeof(state->paths[i]), "%s/%.*s",
                       bench_folder(), (int)key.size, (const char *)key.data);
        if (uses_files)
            state->files[i] = open_file(state->paths[i], O_CREAT);
        else
            bench_check("hf_lock_new",
                        hf_lock_new(state->client, key, &state->opts,
                                    &state->locks[i]));
    }
}

static void worker_main(void *arg)
{
    static const char *const names[PROCESSES_MAX] = {"a", "b", "c", "d"};
    static struct worker_state state;
    struct worker *worker = arg;
    struct round *round = worker->round;
    uint64_t i, from;

    state.round = round;
    state_init(&state, names[worker - round->workers]);
    bench_gate_open(&round->ready);
    bench_gate_wait(&round->start, 1);
    from = bench_process_cpu();
    for (i = 0; !atomic_load_explicit(&round->stop, memory_order_relaxed); i++)
        pairs[round->method](&state, i % KEYS);
    worker->cpu = bench_process_cpu() - from;
    worker->pairs = i;
    for (size_t k = 0; k < KEYS; k++)
        hf_lock_free(state.locks[k]);
    if (state.client)
        bench_close(state.client);
}

struct figures {
    struct bench_samples rate; /* pairs per second */
    struct bench_samples cpu;  /* nanoseconds of CPU time per pair */
};

static void measure(struct round *round, const struct scene *scene,
                    struct figures *figures)
{
    uint64_t all = 0, cpu = 0, from;
    double seconds;

    for (unsigned i = 0; i < scene->processes; i++) {
        round->workers[i].round = round;
        (void)bench_start(worker_main, &round->workers[i]);
    }
    bench_gate_wait(&round->ready, scene->processes);
    from = bench_now();
    bench_gate_open(&round->start);
    bench_sleep_ms(ROUND_MS);
    atomic_store(&round->stop, true);
    seconds = (double)(bench_now() - from) / 1e9;
    bench_join_children();
    for (unsigned i = 0; i < scene->processes; i++) {
        all += round->workers[i].pairs;
        cpu += round->workers[i].cpu;
    }
    bench_add(&figures->rate, (double)all / seconds);
    bench_add(&figures->cpu, (double)cpu / (double)all);
}

static void print_table(struct bench *bench, const struct figures *figures)
{
    static const struct bench_column columns[] = {
        {"processes", "processes", 0},
        {"what", "what", BENCH_TEXT},
        {"1000 pairs/s", "kpairs", 1},
        {"least", "kpairs_least", 1},
        {"most", "kpairs_most", 1},
        {"of open, flock, close", "of_open_file", 2},
        {"of flock, unlock", "of_kept_file", 2},
        {"CPU ns a pair", "cpu_ns", 0},
        {NULL, NULL, 0},
    };
    static struct bench_table table;
    double floors[2] = {NAN, NAN};

    bench_table_init(&table, "Pairs of lock and unlock, between processes",
                     "process_pairs", columns);
    for (size_t i = 0; i < SCENES; i++) {
        double median = bench_median(&figures[i].rate);

        if (scenes[i].method == OPEN_FILE) {
            floors[0] = median;
            floors[1] = bench_median(&figures[i + 1].rate);
        }
        bench_table_number(&table, scenes[i].processes);
        bench_table_text(&table, scenes[i].what);
        bench_table_number(&table, median / 1e3);
        bench_table_number(&table, bench_least(&figures[i].rate) / 1e3);
        bench_table_number(&table, bench_most(&figures[i].rate) / 1e3);
        bench_table_number(&table, median / floors[0]);
        bench_table_number(&table, median / floors[1]);
        bench_table_number(&table, bench_median(&figures[i].cpu));
    }
    bench_table_print(bench, &table);
}

int main(int argc, char **argv)
{
    struct bench bench = {
        .name = "process_pairs", .rounds = 11, .processes = true};
    struct round *round = bench_share(sizeof(*round));
    static struct figures figures[SCENES];

    bench_init(&bench, argc, argv);
    (void)bench_folder(); /* create the folder that the children share */
    for (unsigned i = 0; i < bench.rounds; i++) {
        for (size_t k = 0; k < SCENES; k++) {
            bench_progress(&bench, i, scenes[k].what);
            memset(round, 0, sizeof(*round));
            round->bench = &bench;
            round->method = scenes[k].method;
            measure(round, &scenes[k], &figures[k]);
        }
    }
    print_table(&bench, figures);
    return 0;
}
