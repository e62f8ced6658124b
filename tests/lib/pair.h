/* pair.h - a lock table and its twin, fed the same commands.
 *
 * Each function answers NULL, or a text that says where the two disagree or
 * what is wrong with the table. */
#ifndef HF_TESTS_LIB_PAIR_H
#define HF_TESTS_LIB_PAIR_H

#include "core/table.h"
#include "lib/twin.h"

struct hf_pair {
    struct hf_table table;
    struct hf_twin *twin;
    struct hf_twin_events told;     /* by the table, of one command */
    struct hf_twin_events expected; /* by the twin */
    struct hf_seed seed;            /* of the table: another one each time */
};

void hf_pair_init(struct hf_pair *pair);
void hf_pair_fini(struct hf_pair *pair);

/* Apply a command to both and compare the answers and the events. */
const char *hf_pair_apply(struct hf_pair *pair,
                          const struct hf_command *command,
                          struct hf_result *result);

/* Take every unreported grant of `session` from both. */
const char *hf_pair_take_grants(struct hf_pair *pair, uint64_t session);

/* Compare the whole state, and check what is always true. */
const char *hf_pair_check(const struct hf_pair *pair);

/* Encode the table, decode it with another seed, and go on with the copy,
 * which must encode to the same bytes. */
const char *hf_pair_restore(struct hf_pair *pair);

/* Let `bytes` choose what comes next: a command over few keys, nonces and
 * sessions, grants to take, or a restore. Bytes that have run out count as
 * zeros. */
const char *hf_pair_step(struct hf_pair *pair, struct hf_reader *bytes);

#endif
