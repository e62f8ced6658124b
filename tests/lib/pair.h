/* pair.h - a lock table and its twin, which receive the same commands.
 *
 * The functions that return a text return NULL if all is well. Otherwise the
 * text says how the two differ, or what is wrong with the table. */
#ifndef HF_TESTS_LIB_PAIR_H
#define HF_TESTS_LIB_PAIR_H

#include "core/table.h"
#include "lib/twin.h"

struct hf_pair {
    struct hf_table table;
    struct hf_twin *twin;
    struct hf_twin_events actual;   /* events of the table, for one command */
    struct hf_twin_events expected; /* events of the twin */
    struct hf_seed seed; /* seed of the table; hf_pair_restore() changes it */
};

void hf_pair_init(struct hf_pair *pair);
void hf_pair_fini(struct hf_pair *pair);

/* Apply a command to the table and the twin, and compare the answers and the
 * events. */
const char *hf_pair_apply(struct hf_pair *pair,
                          const struct hf_command *command,
                          struct hf_result *result);

/* Compare the whole state, and check the invariants of the table. */
const char *hf_pair_check(const struct hf_pair *pair);

/* Encode the table, decode it with another seed, and continue with the copy,
 * which must encode to the same bytes. */
const char *hf_pair_restore(struct hf_pair *pair);

/* Draw a command for `table`, over few keys, nonces and sessions. Missing bytes
 * count as zeros. */
void hf_pair_draw(const struct hf_table *table, struct hf_command *command,
                  struct hf_reader *bytes);

/* Make one step that `bytes` choose: a command over few keys, nonces and
 * sessions, or a restore. Missing bytes count as zeros. */
const char *hf_pair_step(struct hf_pair *pair, struct hf_reader *bytes);

#endif
