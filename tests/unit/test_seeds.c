/* The report of a seed that fails: a line that replays it, and a line that
 * replays a shorter run with fewer faults and clients. Both are run as a shell
 * would run them.
 *
 * The program runs itself with SIMULATION in its environment, and then has
 * simulations as its cases, which fail by design. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/runner.h"
#include "lib/seeds.h"

#define SIMULATION "HF_TEST_SEEDS_SIMULATION"
#define FAULTS 0x24u /* with these, a seed fails */
#define UNTIL_MS 700
#define CLIENTS 2
#define SEED 5 /* the first that fails */

/* ---- Simulations --------------------------------------------------------*/

static bool is_bad(uint64_t seed)
{
    struct hf_seeds_size size = hf_seeds_size();

    return seed >= SEED && (size.faults & FAULTS) == FAULTS &&
           size.until_ms >= UNTIL_MS && size.clients >= CLIENTS;
}

static uint64_t fail_seed(uint64_t seed, const void *plan)
{
    (void)plan;
    assert_false(is_bad(seed));
    return seed;
}

static uint64_t crash_seed(uint64_t seed, const void *plan)
{
    (void)plan;
    if (is_bad(seed))
        abort();
    return seed;
}

static void run_seeds(const char *name, hf_seeds_fn *run)
{
    struct hf_seeds seeds = {
        .name = name,
        .first = 1,
        .count = 10,
        .run = run,
        .full = {.faults = 0xff, .until_ms = 30000, .clients = 6},
    };

    assert_int_equal(hf_seeds_run(&seeds).count, getenv("HF_SEED") ? 1 : 10);
}

static void fails(void **state)
{
    (void)state;
    run_seeds(__func__, fail_seed);
}

static void crashes(void **state)
{
    (void)state;
    run_seeds(__func__, crash_seed);
}

/* ---- Running them -------------------------------------------------------*/

static char output[65536];

/* The lines name the program without its directory. */
static int set_up(void **state)
{
    static const char *const names[] = {
        "HF_SEED",  "HF_SEEDS",   "HF_TORTURE_SECONDS", "HF_FAULTS",
        "HF_UNTIL", "HF_CLIENTS", "HF_SHRINKING",
    };
    char path[4096];
    ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(names); i++)
        (void)unsetenv(names[i]);
    if (size < 0)
        return -1;
    path[size] = '\0';
    *strrchr(path, '/') = '\0';
    return setenv("PATH", path, 1) || setenv(SIMULATION, "1", 1);
}

/* Returns true if the command succeeds. `output` is what it has printed. */
static bool run_command(const char *command)
{
    char redirected[512];
    size_t size;
    FILE *pipe;

    (void)snprintf(redirected, sizeof(redirected), "%s 2>&1", command);
    pipe = popen(redirected, "r");
    assert_non_null(pipe);
    size = fread(output, 1, sizeof(output) - 1, pipe);
    output[size] = '\0';
    return pclose(pipe) == 0;
}

/* Copy what follows `title` in its line of the output. */
static void find_line(const char *title, char *line, size_t size)
{
    const char *at = strstr(output, title);

    if (!at)
        fail_msg("no line '%s' in: %s", title, output);
    at += strlen(title);
    assert_true(strcspn(at, "\n") < size);
    (void)snprintf(line, size, "%.*s", (int)strcspn(at, "\n"), at);
}

static void check_report(const char *name)
{
    unsigned long long seed, faults, until, clients;
    char line[300], expected[300];

    (void)snprintf(line, sizeof(line), "test_seeds --serial %s", name);
    assert_false(run_command(line));
    (void)snprintf(expected, sizeof(expected),
                   "HF_SEED=%d test_seeds --serial %s", SEED, name);
    find_line("to replay: ", line, sizeof(line));
    assert_string_equal(line, expected);

    find_line("shrunk:    ", line, sizeof(line));
    /* NOLINTNEXTLINE(cert-err34-c): seeds.c writes numbers. */
    assert_int_equal(sscanf(line,
                            "HF_SEED=%llu HF_FAULTS=0x%llx HF_UNTIL=%llu "
                            "HF_CLIENTS=%llu",
                            &seed, &faults, &until, &clients),
                     4);
    assert_int_equal(seed, SEED);
    assert_int_equal(faults, FAULTS);
    assert_in_range(until, UNTIL_MS, UNTIL_MS + 100);
    assert_int_equal(clients, CLIENTS);
}

/* ---- Cases --------------------------------------------------------------*/

static void a_failed_seed_is_reported_and_shrunk(void **state)
{
    (void)state;
    check_report("fails");
}

static void a_seed_that_crashes_is_reported_and_shrunk(void **state)
{
    (void)state;
    check_report("crashes");
}

static void both_lines_replay_the_failure(void **state)
{
    char replay[300], shrunk[300];

    (void)state;
    assert_false(run_command("test_seeds --serial fails"));
    find_line("to replay: ", replay, sizeof(replay));
    find_line("shrunk:    ", shrunk, sizeof(shrunk));
    (void)setenv("HF_SHRINKING", "1", 1); /* do not shrink again */
    assert_false(run_command(replay));
    find_line("to replay: HF_SEED=5 ", replay, sizeof(replay));
    assert_false(run_command(shrunk));
    find_line("to replay: HF_SEED=5 ", shrunk, sizeof(shrunk));
}

static void less_than_the_shrunk_line_does_not_fail(void **state)
{
    (void)state;
    assert_true(run_command("HF_SEED=4 test_seeds --serial fails"));
    assert_true(
        run_command("HF_SEED=5 HF_FAULTS=0x20 test_seeds --serial fails"));
    assert_true(
        run_command("HF_SEED=5 HF_UNTIL=699 test_seeds --serial fails"));
    assert_true(
        run_command("HF_SEED=5 HF_CLIENTS=1 test_seeds --serial fails"));
    assert_null(strstr(output, "to replay"));
}

#define CASE(name) cmocka_unit_test_setup(name, set_up)

static int run_simulations(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(fails, hf_seeds_report),
        cmocka_unit_test_teardown(crashes, hf_seeds_report),
    };

    return hf_test_main("simulations", cases, HF_TEST_COUNT(cases), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_failed_seed_is_reported_and_shrunk),
        CASE(a_seed_that_crashes_is_reported_and_shrunk),
        CASE(both_lines_replay_the_failure),
        CASE(less_than_the_shrunk_line_does_not_fail),
    };

    if (getenv(SIMULATION))
        return run_simulations();
    return hf_test_main("seeds", cases, HF_TEST_COUNT(cases), 0);
}
