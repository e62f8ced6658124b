/* file_open - how long does it take to open `file:` and to take a lock, if many
 * locks are held or many operations were done?
 *
 * A client that opens a `file:` folder reads the snapshot and the log that
 * follows it; a client that finds the log full writes the next snapshot. The
 * first table is measured while another process holds locks. The second is
 * measured while nothing is held, after pairs of lock and unlock. Each client
 * is opened in a new process, which has not used the library before; each level
 * has a new folder, below that of the URL. */
#include "lib/bench.h"
#include "lib/folder.h"
#include "lib/process.h"

#define TIMES 10    /* clients opened per level and round */
#define PAIRS 20000 /* the last client runs them twice, to fill the log */

static const size_t held_levels[] = {0, 1000, 10000, 100000};
static const size_t pair_levels[] = {0, 1000, 2000, 4000, 8000};

#define HELD_LEVELS (sizeof(held_levels) / sizeof(held_levels[0]))
#define PAIR_LEVELS (sizeof(pair_levels) / sizeof(pair_levels[0]))

/* Shared by the processes of a level. */
struct level {
    struct bench bench; /* its URL is `url` */
    char url[128];
    size_t held, pairs;
    struct bench_gate ready, over;
    double open, lock;    /* microseconds that the last client took */
    double mean, longest; /* CPU microseconds of a pair, in the last client */
};

static struct hf_lock_opts long_opts(void)
{
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = 3600 * 1000;
    return opts;
}

/* ---- The process that holds locks ---------------------------------------*/

static void hold_keys(struct hf_client *client, size_t count)
{
    struct hf_lock_opts opts = long_opts();
    struct bench_keys keys;
    struct hf_lock *lock;

    bench_keys_init(&keys, "held", count);
    for (size_t i = 0; i < count; i++)
        bench_check("hf_acquire",
                    hf_acquire(client, bench_key(&keys, i), &opts, &lock));
    bench_keys_fini(&keys);
}

static void run_pairs(struct hf_client *client, size_t count)
{
    struct hf_lock_opts opts = long_opts();
    struct hf_lock *lock;

    for (size_t i = 0; i < count; i++) {
        bench_check(
            "hf_acquire",
            hf_acquire(client, hf_key_of("0123456789abcdef"), &opts, &lock));
        bench_check("hf_release", hf_release(lock));
        hf_lock_free(lock);
    }
}

static void holder_main(void *arg)
{
    struct level *level = arg;
    struct hf_client *client = bench_open(&level->bench);

    hold_keys(client, level->held);
    run_pairs(client, level->pairs);
    bench_gate_open(&level->ready);
    bench_gate_wait(&level->over, 1);
    bench_close(client);
}

/* ---- Processes that open the store --------------------------------------*/

static double micros_since(uint64_t from)
{
    return (double)(bench_now() - from) / 1e3;
}

static void open_and_lock(void *arg)
{
    struct level *level = arg;
    struct hf_lock_opts opts = long_opts();
    uint64_t from = bench_now();
    struct hf_client *client = bench_open(&level->bench);
    struct hf_lock *lock;

    level->open = micros_since(from);
    from = bench_now();
    bench_check("hf_acquire",
                hf_acquire(client, hf_key_of("mine"), &opts, &lock));
    level->lock = micros_since(from);
    bench_close(client);
    hf_lock_free(lock);
    bench_gate_open(&level->ready);
}

/* The longest CPU time of a pair in microseconds. Unlike elapsed time, CPU time
 * does not depend on the load of the machine. */
static double longest_pair(struct hf_client *client)
{
    double longest = 0;

    for (size_t i = 0; i < PAIRS; i++) {
        uint64_t from = bench_thread_cpu();
        double micros;

        run_pairs(client, 1);
        micros = (double)(bench_thread_cpu() - from) / 1e3;
        if (micros > longest)
            longest = micros;
    }
    return longest;
}

static void open_and_pair(void *arg)
{
    struct level *level = arg;
    struct hf_client *client = bench_open(&level->bench);
    uint64_t from = bench_thread_cpu();

    run_pairs(client, PAIRS);
    level->mean = (double)(bench_thread_cpu() - from) / 1e3 / PAIRS;
    level->longest = longest_pair(client);
    bench_close(client);
    bench_gate_open(&level->ready);
}

/* ---- Rounds -------------------------------------------------------------*/

struct figures {
    struct bench_samples open, lock, mean, longest; /* microseconds */
};

/* Choose a URL that was not used before. */
static void set_url(struct level *level, const struct bench *bench)
{
    static unsigned number;

    (void)snprintf(level->url, sizeof(level->url), "%.100s/%u", bench->url,
                   number++);
    level->bench = *bench;
    level->bench.url = level->url;
}

static void add_median(struct bench_samples *samples, double *micros)
{
    bench_sort(micros, TIMES);
    bench_add(samples, bench_quantile(micros, TIMES, 0.5));
}

static void measure(const struct bench *bench, struct level *level,
                    struct figures *figures)
{
    double opens[TIMES], locks[TIMES];

    set_url(level, bench);
    (void)bench_start(holder_main, level);
    bench_gate_wait(&level->ready, 1);
    for (unsigned i = 0; i < TIMES; i++) {
        (void)bench_start(open_and_lock, level);
        bench_gate_wait(&level->ready, 2 + i);
        opens[i] = level->open;
        locks[i] = level->lock;
    }
    (void)bench_start(open_and_pair, level);
    bench_gate_wait(&level->ready, 2 + TIMES);
    bench_gate_open(&level->over);
    bench_join_children();
    (void)hf_test_folder_remove(level->url + strlen("file:"));
    add_median(&figures->open, opens);
    add_median(&figures->lock, locks);
    bench_add(&figures->mean, level->mean);
    bench_add(&figures->longest, level->longest);
}

static void print_held(struct bench *bench, const struct figures *figures)
{
    static const struct bench_column columns[] = {
        {"held", "held", 0},
        {"open µs", "open_us", 0},
        {"least", "open_us_least", 0},
        {"most", "open_us_most", 0},
        {"of the first", "ratio", 2},
        {"first lock µs", "lock_us", 1},
        {"CPU µs a pair", "pair_us", 2},
        {"longest, CPU µs", "pair_us_longest", 0},
        {NULL, NULL, 0},
    };
    static struct bench_table table;

    bench_table_init(&table, "Opening while another holds locks", "held",
                     columns);
    for (size_t i = 0; i < HELD_LEVELS; i++) {
        double open = bench_median(&figures[i].open);

        bench_table_number(&table, (double)held_levels[i]);
        bench_table_number(&table, open);
        bench_table_number(&table, bench_least(&figures[i].open));
        bench_table_number(&table, bench_most(&figures[i].open));
        bench_table_number(&table, open / bench_median(&figures[0].open));
        bench_table_number(&table, bench_median(&figures[i].lock));
        bench_table_number(&table, bench_median(&figures[i].mean));
        bench_table_number(&table, bench_median(&figures[i].longest));
    }
    bench_table_print(bench, &table);
}

static void print_pairs(struct bench *bench, const struct figures *figures)
{
    static const struct bench_column columns[] = {
        {"pairs before", "pairs", 0},
        {"open µs", "open_us", 0},
        {"least", "open_us_least", 0},
        {"most", "open_us_most", 0},
        {"of the first", "ratio", 2},
        {"first lock µs", "lock_us", 1},
        {NULL, NULL, 0},
    };
    static struct bench_table table;

    bench_table_init(&table, "Opening after pairs of lock and unlock", "pairs",
                     columns);
    for (size_t i = 0; i < PAIR_LEVELS; i++) {
        double open = bench_median(&figures[i].open);

        bench_table_number(&table, (double)pair_levels[i]);
        bench_table_number(&table, open);
        bench_table_number(&table, bench_least(&figures[i].open));
        bench_table_number(&table, bench_most(&figures[i].open));
        bench_table_number(&table, open / bench_median(&figures[0].open));
        bench_table_number(&table, bench_median(&figures[i].lock));
    }
    bench_table_print(bench, &table);
}

int main(int argc, char **argv)
{
    struct bench bench = {.name = "file_open", .rounds = 7, .processes = true};
    static struct figures held[HELD_LEVELS], pairs[PAIR_LEVELS];
    struct level *level = bench_share(sizeof(*level));

    bench_init(&bench, argc, argv);
    for (unsigned round = 0; round < bench.rounds; round++) {
        for (size_t i = 0; i < HELD_LEVELS; i++) {
            bench_progress(&bench, round, "locks are held");
            memset(level, 0, sizeof(*level));
            level->held = held_levels[i];
            measure(&bench, level, &held[i]);
        }
        for (size_t i = 0; i < PAIR_LEVELS; i++) {
            bench_progress(&bench, round, "pairs were done");
            memset(level, 0, sizeof(*level));
            level->pairs = pair_levels[i];
            measure(&bench, level, &pairs[i]);
        }
    }
    print_held(&bench, held);
    print_pairs(&bench, pairs);
    return 0;
}
