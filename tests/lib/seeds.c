#include "lib/seeds.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char replay[200]; /* how to replay the seed that is running */

/* ---- Reporting the seed of a failure ------------------------------------*/

/* The text is formatted before the run, because a signal handler prints it. */
static void set_running_seed(const char *name, uint64_t seed)
{
    (void)snprintf(
        replay, sizeof(replay), "\nto replay: HF_SEED=%llu %s --serial %s\n",
        (unsigned long long)seed, program_invocation_short_name, name);
}

static void print_seed(void)
{
    if (write(STDERR_FILENO, replay, strlen(replay)) < 0)
        return;
}

static void on_crash(int number)
{
    print_seed();
    (void)signal(number, SIG_DFL);
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

static uint64_t number_from_env(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : otherwise;
}

static double clock_seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t run_seed(const struct hf_seeds *seeds, uint64_t seed)
{
    uint64_t hash;

    set_running_seed(seeds->name, seed);
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

bool hf_seeds_are_reproducible(const struct hf_seeds *seeds)
{
    for (uint64_t i = 0; i < seeds->count; i++) {
        if (run_seed(seeds, seeds->first + i) !=
            run_seed(seeds, seeds->first + i))
            return false;
    }
    return run_seed(seeds, seeds->first) != run_seed(seeds, seeds->first + 1);
}
