/* command - how long does `holdfast run KEY -- true` take, next to
 * `flock FILE true` and to `true` alone?
 *
 * From just before the process is started until it has ended. Nobody else
 * wants the lock, and the folder of the locks is there. Processor time is that
 * of the process and of what it started. */
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "lib/bench.h"

#define TIMES 50 /* processes a round */

enum {
    PLAIN,
    FLOCK,
    RUN,
    CASES
};

struct figures {
    struct bench_samples p50, p99; /* microseconds */
    struct bench_samples cpu;      /* microseconds of processor time, of one */
};

static double micros_of(struct timeval span)
{
    return (double)span.tv_sec * 1e6 + (double)span.tv_usec;
}

/* Microseconds of processor time. */
static double run(const char *const argv[])
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

/* One process of each kind after another: what disturbs the machine for less
 * than a round disturbs them alike, too. */
static void measure(const char *const *const argvs[], struct figures *figures)
{
    double micros[CASES][TIMES], cpu[CASES] = {0};

    for (size_t i = 0; i < TIMES; i++) {
        for (size_t k = 0; k < CASES; k++) {
            uint64_t from = bench_now();

            cpu[k] += run(argvs[k]);
            micros[k][i] = (double)(bench_now() - from) / 1e3;
        }
    }
    for (size_t k = 0; k < CASES; k++) {
        bench_sort(micros[k], TIMES);
        bench_add(&figures[k].p50, bench_quantile(micros[k], TIMES, 0.5));
        bench_add(&figures[k].p99, bench_quantile(micros[k], TIMES, 0.99));
        bench_add(&figures[k].cpu, cpu[k] / TIMES);
    }
}

static void tell(struct bench *bench, const char *const names[],
                 const struct figures *figures)
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
    for (size_t i = 0; i < CASES; i++) {
        double median = bench_median(&figures[i].p50);

        bench_table_text(&table, names[i]);
        bench_table_number(&table, median);
        bench_table_number(&table, bench_median(&figures[i].p99));
        bench_table_number(&table, bench_median(&figures[i].cpu));
        bench_table_number(&table, median / flock);
        bench_table_number(&table, median - plain);
    }
    bench_table_print(bench, &table);
}

int main(int argc, char **argv)
{
    static const char *const names[CASES] = {"true", "flock FILE true",
                                             "holdfast run KEY -- true"};
    struct bench bench = {.name = "command", .rounds = 15, .processes = true};
    static struct figures figures[CASES];
    char file[64], url[sizeof("--url=") + HF_URL_MAX];
    const char *const *const argvs[CASES] = {
        [PLAIN] = (const char *[]){"true", NULL},
        [FLOCK] = (const char *[]){"flock", file, "true", NULL},
        [RUN] =
            (const char *[]){HOLDFAST, "run", url, "key", "--", "true", NULL},
    };

    bench_init(&bench, argc, argv);
    (void)snprintf(file, sizeof(file), "%s/file", bench_folder());
    (void)snprintf(url, sizeof(url), "--url=%s", bench.url);
    for (unsigned round = 0; round < bench.rounds; round++) {
        bench_progress(&bench, round, "processes");
        measure(argvs, figures);
    }
    tell(&bench, names, figures);
    return 0;
}
