/* seeds.h - run a simulation with many seeds, say how to replay the seed that
 * fails, and look for a shorter run with fewer faults that fails, too.
 *
 *   HF_SEEDS=N             run N seeds per case
 *   HF_TORTURE_SECONDS=N   run new seeds for N seconds per case
 *   HF_SEED=N              run this seed only
 *
 * For simulations that can be shrunk, with HF_SEED:
 *   HF_FAULTS=MASK         only these kinds of faults
 *   HF_UNTIL=MS            end the faults after MS
 *   HF_CLIENTS=N           at most N clients */
#ifndef HF_TESTS_LIB_SEEDS_H
#define HF_TESTS_LIB_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

/* How large a simulation is. */
struct hf_seeds_size {
    uint64_t faults;   /* kinds of faults, a bit each */
    uint64_t until_ms; /* when faults end */
    uint64_t clients;  /* the most clients */
};

/* Simulate one seed. Returns a hash of what happened. */
typedef uint64_t hf_seeds_fn(uint64_t seed, const void *plan);

struct hf_seeds {
    const char *name; /* of the case */
    uint64_t first;
    uint64_t count; /* unless the environment says otherwise */
    hf_seeds_fn *run;
    const void *plan;
    struct hf_seeds_size full; /* all 0: it cannot be shrunk */
};

struct hf_seeds_done {
    uint64_t count;
    double seconds;
};

/* Run the seeds of a case. */
struct hf_seeds_done hf_seeds_run(const struct hf_seeds *seeds);

/* The case "a_seed_reproduces_its_trace" of a simulation: it runs each of
 * `seeds`, a `const struct hf_seeds *`, twice. Both runs of a seed must have
 * the same hash, and the first two seeds different ones. */
#define HF_SEEDS_REPRODUCED(seeds)                                             \
    cmocka_unit_test_prestate_setup_teardown(                                  \
        a_seed_reproduces_its_trace, NULL, hf_seeds_report, (void *)(seeds))
void a_seed_reproduces_its_trace(void **state);

/* The size of the simulation: `full` of the seeds that are running, or less if
 * the environment says so. */
struct hf_seeds_size hf_seeds_size(void);

/* If a seed is running, it has failed: print how to replay it, shrunk if that
 * is possible. This is the teardown of each case. Returns 0. */
int hf_seeds_report(void **state);

#endif
