/* Compare the lock table with its twin, an implementation that is slow and
 * obviously correct. Both execute random commands. Results and events must be
 * equal after each command, and so must the state, which long runs compare less
 * often.
 *
 * The seeds are the same in every run, so a failure is reproducible.
 * tests/fuzz/fuzz_table.c makes the same steps from new input. */
#include "base/random.h"
#include "lib/pair.h"
#include "lib/runner.h"

enum {
    STEPS = 1500,
    SEEDS = 40,
};

/* Comparing the whole state is slow, so long runs do it only every
 * `check_every` steps. */
static void run_seed(uint64_t number, unsigned steps, unsigned check_every)
{
    struct hf_random random;
    struct hf_pair pair;

    hf_random_init(&random, number);
    hf_pair_init(&pair);
    for (unsigned i = 0; i < steps; i++) {
        uint8_t chance[24];
        struct hf_reader bytes = {.data = chance, .size = sizeof(chance)};
        const char *difference;

        assert_int_equal(hf_random_bytes(&random, chance, sizeof(chance)),
                         HF_OK);
        difference = hf_pair_step(&pair, &bytes);
        if (!difference && i % check_every == 0)
            difference = hf_pair_check(&pair);
        if (difference)
            fail_msg("seed %llu, step %u: %s", (unsigned long long)number, i,
                     difference);
    }
    hf_pair_fini(&pair);
}

/* LK-29 */
static void table_and_twin_agree_after_every_command(void **state)
{
    (void)state;
    for (uint64_t number = 1; number <= SEEDS; number++)
        run_seed(number, STEPS, 1);
}

static void table_and_twin_agree_over_long_runs(void **state)
{
    (void)state;
    for (uint64_t number = 1000; number < 1004; number++)
        run_seed(number, 20000, 500);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(table_and_twin_agree_after_every_command),
        cmocka_unit_test(table_and_twin_agree_over_long_runs),
    };

    return hf_test_main("twin", cases, HF_TEST_COUNT(cases), 0);
}
