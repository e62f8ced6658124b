#include "lib/seeds.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/runner.h"

static char replay[200];        /* how to replay the seed that is running */
static struct hf_seeds running; /* a copy: a failed case leaves its frame */
static uint64_t running_seed;

/* on_crash() calls these functions in a signal handler. Most handlers may not
 * call them, but the process ends after this one.
 * NOLINTBEGIN(bugprone-signal-handler,cert-sig30-c) */
static uint64_t number_from_env(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 0) : otherwise;
}

/* ---- Shrinking ----------------------------------------------------------*/

static uint64_t at_most(uint64_t number, const char *name)
{
    uint64_t limit = number_from_env(name, number);

    return limit < number ? limit : number;
}

struct hf_seeds_size hf_seeds_size(void)
{
    return (struct hf_seeds_size){
        .faults = running.full.faults &
                  number_from_env("HF_FAULTS", running.full.faults),
        .until_ms = at_most(running.full.until_ms, "HF_UNTIL"),
        .clients = at_most(running.full.clients, "HF_CLIENTS"),
    };
}

static void set_env(const char *name, const char *format, uint64_t number)
{
    char text[32];

    (void)snprintf(text, sizeof(text), format, (unsigned long long)number);
    (void)setenv(name, text, 1);
}

/* Replay the seed in another process. Returns true if it fails. */
static bool fails(const struct hf_seeds_size *size)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);

        (void)dup2(null, STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
        set_env("HF_SEED", "%llu", running_seed);
        set_env("HF_FAULTS", "0x%llx", size->faults);
        set_env("HF_UNTIL", "%llu", size->until_ms);
        set_env("HF_CLIENTS", "%llu", size->clients);
        (void)setenv("HF_SHRINKING", "1", 1);
        (void)execl("/proc/self/exe", program_invocation_short_name, "--serial",
                    running.name, (char *)NULL);
        _exit(0);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status != 0;
}

static void shrink_faults(struct hf_seeds_size *size)
{
    for (unsigned bit = 0; bit < 64; bit++) {
        struct hf_seeds_size fewer = *size;

        fewer.faults &= ~(UINT64_C(1) << bit);
        if (fewer.faults != size->faults && fails(&fewer))
            *size = fewer;
    }
}

static void shrink_number(struct hf_seeds_size *size, uint64_t *number,
                          uint64_t least)
{
    for (uint64_t step = *number / 2; step >= least; step /= 2) {
        while (*number > step) {
            *number -= step;
            if (fails(size))
                continue;
            *number += step;
            break;
        }
    }
}

/* Look for a smaller run of the seed that fails, too. Each try takes as long as
 * one seed. */
static void shrink(void)
{
    struct hf_seeds_size size;
    char text[300];
    int length;

    if (running.full.until_ms == 0 || getenv("HF_SHRINKING"))
        return;
    size = hf_seeds_size();
    if (!fails(&size))
        return; /* it depends on something besides the seed */
    shrink_number(&size, &size.clients, 1);
    shrink_faults(&size);
    shrink_number(&size, &size.until_ms, 100);
    length = snprintf(
        text, sizeof(text),
        "shrunk:    HF_SEED=%llu HF_FAULTS=0x%llx HF_UNTIL=%llu "
        "HF_CLIENTS=%llu %s --serial %s\n",
        (unsigned long long)running_seed, (unsigned long long)size.faults,
        (unsigned long long)size.until_ms, (unsigned long long)size.clients,
        program_invocation_short_name, running.name);
    if (write(STDERR_FILENO, text, (size_t)length) < 0)
        return;
}
/* NOLINTEND(bugprone-signal-handler,cert-sig30-c) */

/* ---- Reporting the seed of a failure ------------------------------------*/

/* The text is formatted before the run, because a signal handler prints it. */
static void set_running_seed(const struct hf_seeds *seeds, uint64_t seed)
{
    running = *seeds;
    running_seed = seed;
    (void)snprintf(
        replay, sizeof(replay), "\nto replay: HF_SEED=%llu %s --serial %s\n",
        (unsigned long long)seed, program_invocation_short_name, seeds->name);
}

static void print_seed(void)
{
    if (replay[0] == '\0' || write(STDERR_FILENO, replay, strlen(replay)) < 0)
        return;
    replay[0] = '\0';
    shrink();
}

static void on_crash(int number)
{
    (void)signal(number, SIG_DFL);
    print_seed();
    (void)raise(number);
}

/* Called by AddressSanitizer when it finds an error. */
void __asan_on_error(void);
void __asan_on_error(void)
{
    print_seed();
}

int hf_seeds_report(void **state)
{
    (void)state;
    print_seed();
    return 0;
}

/* ---- Running ------------------------------------------------------------*/

static double clock_seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t run_seed(const struct hf_seeds *seeds, uint64_t seed)
{
    uint64_t hash;

    set_running_seed(seeds, seed);
    hash = seeds->run(seed, seeds->plan);
    replay[0] = '\0';
    return hash;
}

struct hf_seeds_done hf_seeds_run(const struct hf_seeds *seeds)
{
    uint64_t first = seeds->first;
    uint64_t count = number_from_env("HF_SEEDS", seeds->count);
    uint64_t limit = number_from_env("HF_TORTURE_SECONDS", 0);
    double started = clock_seconds();

    (void)signal(SIGABRT, on_crash);
    (void)signal(SIGSEGV, on_crash);
    (void)signal(SIGILL, on_crash); /* HF_ASSERT */
    if (getenv("HF_SEED")) {
        first = number_from_env("HF_SEED", 1);
        count = 1;
    } else if (limit > 0) {
        first = (uint64_t)time(NULL) * 1000000; /* new seeds in each run */
        count = UINT64_MAX - first;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (limit > 0 && clock_seconds() - started > (double)limit)
            count = i + 1; /* this seed is the last one */
        (void)run_seed(seeds, first + i);
    }
    return (struct hf_seeds_done){count, clock_seconds() - started};
}

void a_seed_reproduces_its_trace(void **state)
{
    struct hf_seeds seeds = *(const struct hf_seeds *)*state;

    seeds.name = __func__;
    for (uint64_t i = 0; i < seeds.count; i++)
        assert_true(run_seed(&seeds, seeds.first + i) ==
                    run_seed(&seeds, seeds.first + i));
    assert_true(run_seed(&seeds, seeds.first) !=
                run_seed(&seeds, seeds.first + 1));
}
