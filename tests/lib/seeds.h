/* seeds.h - run a simulation with many seeds, and say how to replay the seed
 * that fails.
 *
 *   HF_SEEDS=N             run N seeds per case
 *   HF_TORTURE_SECONDS=N   run new seeds for N seconds per case
 *   HF_SEED=N              run this seed only */
#ifndef HF_TESTS_LIB_SEEDS_H
#define HF_TESTS_LIB_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

/* Simulate one seed. Returns a hash of what happened. */
typedef uint64_t hf_seeds_fn(uint64_t seed, const void *plan);

struct hf_seeds {
    const char *name; /* of the case */
    uint64_t first;
    uint64_t count; /* unless the environment says otherwise */
    hf_seeds_fn *run;
    const void *plan;
};

struct hf_seeds_done {
    uint64_t count;
    double seconds;
};

/* Run the seeds of a case. */
struct hf_seeds_done hf_seeds_run(const struct hf_seeds *seeds);

/* Run each seed twice. Returns true if both runs of a seed have the same hash,
 * and the first two seeds have different ones. */
bool hf_seeds_are_reproducible(const struct hf_seeds *seeds);

/* Print how to replay the seed that is running, if there is one: the teardown
 * of each case. Returns 0. */
int hf_seeds_report(void **state);

#endif
