/* lock_history.h - record what simulated clients do; see lock_clients.h. */
#ifndef HF_TESTS_SIM_LOCK_HISTORY_H
#define HF_TESTS_SIM_LOCK_HISTORY_H

#include "sim/lock_clients.h"

extern const char *const lock_keys[LOCK_KEYS_MAX];

/* The simulated time in nanoseconds. Each call returns more than the last. */
uint64_t lock_history_now(struct lock_clients *clients);

void lock_history_begin(struct lock_client *client, enum hf_op_kind kind);
void lock_history_end(struct lock_client *client, enum hf_op_kind kind,
                      enum hf_err err);

/* Check the whole history with hf-check. A violation fails the test. */
void lock_history_check(struct lock_clients *clients);

#endif
