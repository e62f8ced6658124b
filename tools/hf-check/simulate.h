/* simulate.h - generate correct histories.
 *
 * hf_simulate_run() simulates clients and a small lock service in one thread:
 * calls overlap, answers are lost, leases expire, clients die. The seed
 * determines everything. Time advances in whole units, so that instants often
 * coincide: equal instants are where a checker is most likely wrong. */
#ifndef HF_CHECK_TOOL_SIMULATE_H
#define HF_CHECK_TOOL_SIMULATE_H

#include "history.h"

struct hf_simulate_opts {
    uint64_t seed;
    size_t ops;
    uint32_t clients; /* up to HF_SIMULATE_CLIENTS_MAX */
    uint32_t keys;
    uint64_t lease_max; /* in units; the shortest is 1 */
    uint64_t unit_ns;
    unsigned trouble; /* chance of a lost answer, per thousand; a kill is a
                         quarter as likely */
};

#define HF_SIMULATE_CLIENTS_MAX 1024

/* Add `opts->ops` operations to `h`, which must be initialized. */
void hf_simulate_run(struct hf_check_history *h,
                     const struct hf_simulate_opts *opts);

/* Return the next random number (splitmix64). */
uint64_t hf_simulate_random(uint64_t *state);

#endif
