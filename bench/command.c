/* command - how long does `holdfast run KEY -- true` take, compared with `true`
 * and with `flock FILE true`? How long does it take with Redis and MongoDB?
 *
 * The time is measured from just before the process is started until it has
 * exited. The lock is not contended, and the folder of the store exists. CPU
 * time includes that of the process's children. A server that is not installed,
 * or not supported by this build, is omitted. */
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "lib/bench.h"
#ifdef BENCH_MONGO
#include "lib/mongo.h"
#endif
#ifdef BENCH_REDIS
#include "lib/redis.h"
#endif

#define TIMES 50    /* processes per round */
#define WORDS_MAX 8 /* words in a command line */
#define HELD 10000  /* keys held in the second file: store */

enum {
    PLAIN,
    FLOCK,
    RUN,
    CASES_MAX = RUN + 4
};

struct command {
    const char *name;
    const char *argv[WORDS_MAX];
    char url[sizeof("--url=") + HF_URL_MAX];
};

struct figures {
    struct bench_samples p50, p99; /* microseconds */
    struct bench_samples cpu;      /* microseconds of CPU time per process */
};

static double micros_of(struct timeval span)
{
    return (double)span.tv_sec * 1e6 + (double)span.tv_usec;
}

/* Run a command. Returns its CPU time in microseconds. */
static double run_command(const char *const argv[])
{
    struct rusage usage;
    int status;
    pid_t pid;

    if (posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ))
        bench_fail(argv[0]);
    if (wait4(pid, &status, 0, &usage) != pid || status != 0)
        bench_fail(argv[0]);
    return micros_of(usage.ru_utime) + micros_of(usage.ru_stime);
}

/* Alternate between the commands, so that even a disturbance that is shorter
 * than a round affects all of them. */
static void measure(const struct command *commands, size_t count,
                    struct figures *figures)
{
    double micros[CASES_MAX][TIMES], cpu[CASES_MAX] = {0};

    for (size_t i = 0; i < TIMES; i++) {
        for (size_t k = 0; k < count; k++) {
            uint64_t from = bench_now();

            cpu[k] += run_command(commands[k].argv);
            micros[k][i] = (double)(bench_now() - from) / 1e3;
        }
    }
    for (size_t k = 0; k < count; k++) {
        bench_sort(micros[k], TIMES);
        bench_add(&figures[k].p50, bench_quantile(micros[k], TIMES, 0.5));
        bench_add(&figures[k].p99, bench_quantile(micros[k], TIMES, 0.99));
        bench_add(&figures[k].cpu, cpu[k] / TIMES);
    }
}

static void print_table(struct bench *bench, const struct command *commands,
                        size_t count, const struct figures *figures)
{
    static const struct bench_column columns[] = {
        {"what", "what", BENCH_TEXT},
        {"p50 µs", "p50_us", 0},
        {"p99 µs", "p99_us", 0},
        {"CPU µs", "cpu_us", 0},
        {"p50 / flock", "p50_ratio", 2},
        {"p50 beyond true, µs", "beyond_us", 0},
        {NULL, NULL, 0},
    };
    static struct bench_table table;
    double plain = bench_median(&figures[PLAIN].p50);
    double flock = bench_median(&figures[FLOCK].p50);

    bench_table_init(&table, "A command under a lock", "command", columns);
    for (size_t i = 0; i < count; i++) {
        double median = bench_median(&figures[i].p50);

        bench_table_text(&table, commands[i].name);
        bench_table_number(&table, median);
        bench_table_number(&table, bench_median(&figures[i].p99));
        bench_table_number(&table, bench_median(&figures[i].cpu));
        bench_table_number(&table, median / flock);
        bench_table_number(&table, median - plain);
    }
    bench_table_print(bench, &table);
}

static void add_run(struct command *commands, size_t *count, const char *name,
                    const char *url)
{
    struct command *command = &commands[(*count)++];

    (void)snprintf(command->url, sizeof(command->url), "--url=%s", url);
    command->name = name;
    command->argv[0] = HOLDFAST;
    command->argv[1] = "run";
    command->argv[2] = command->url;
    command->argv[3] = "key";
    command->argv[4] = "--";
    command->argv[5] = "true";
}

/* Add a store in which many keys are held. Returns the client that holds
 * them. */
static struct hf_client *add_full(struct command *commands, size_t *count)
{
    struct hf_lock_opts opts;
    struct hf_client *client;
    char url[128];

    (void)snprintf(url, sizeof(url), "file:%s/full", bench_folder());
    bench_check("hf_open", hf_open(url, NULL, &client));
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 3600 * 1000;
    for (unsigned i = 0; i < HELD; i++) {
        struct hf_lock *lock; /* not freed: held until the client closes */
        char key[16];

        (void)snprintf(key, sizeof(key), "held-%u", i);
        bench_check("hf_acquire",
                    hf_acquire(client, hf_key_of(key), &opts, &lock));
    }
    add_run(commands, count, "the same, 10,000 keys held", url);
    return client;
}

#ifdef BENCH_REDIS
static struct hf_test_redis redis;

static void add_redis(struct command *commands, size_t *count)
{
    char url[64];

    if (!hf_test_redis_start(&redis, NULL))
        return;
    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%d", redis.port);
    add_run(commands, count, "the same, over redis:", url);
}
#endif

#ifdef BENCH_MONGO
static struct hf_test_mongo mongo;

static void add_mongo(struct command *commands, size_t *count)
{
    char url[HF_TEST_MONGO_URL_SIZE];

    if (!hf_test_mongo_is_installed() || !hf_test_mongo_start(&mongo, 1))
        return;
    hf_test_mongo_url(&mongo, url, "");
    add_run(commands, count, "the same, over mongodb:", url);
}
#endif

static void stop_servers(void)
{
#ifdef BENCH_REDIS
    if (redis.pid > 0)
        hf_test_redis_stop(&redis);
#endif
#ifdef BENCH_MONGO
    if (mongo.count > 0)
        hf_test_mongo_stop(&mongo);
#endif
}

int main(int argc, char **argv)
{
    struct bench bench = {.name = "command", .rounds = 15, .processes = true};
    static struct figures figures[CASES_MAX];
    char file[64];
    static struct command commands[CASES_MAX] = {
        [PLAIN] = {.name = "true", .argv = {"true"}},
        [FLOCK] = {.name = "flock FILE true"},
    };
    size_t count = RUN;
    struct hf_client *full;

    bench_init(&bench, argc, argv);
    (void)snprintf(file, sizeof(file), "%s/file", bench_folder());
    commands[FLOCK].argv[0] = "flock";
    commands[FLOCK].argv[1] = file;
    commands[FLOCK].argv[2] = "true";
    add_run(commands, &count, "holdfast run KEY -- true", bench.url);
    full = add_full(commands, &count);
#ifdef BENCH_REDIS
    add_redis(commands, &count);
#endif
#ifdef BENCH_MONGO
    add_mongo(commands, &count);
#endif
    for (unsigned round = 0; round < bench.rounds; round++) {
        bench_progress(&bench, round, "processes");
        measure(commands, count, figures);
    }
    print_table(&bench, commands, count, figures);
    bench_close(full);
    stop_servers();
    return 0;
}
