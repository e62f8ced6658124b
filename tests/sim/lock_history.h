/* lock_history.h - record what simulated clients do; see lock_clients.h. */
#ifndef HF_TESTS_SIM_LOCK_HISTORY_H
#define HF_TESTS_SIM_LOCK_HISTORY_H

#include "sim/lock_clients.h"

extern const char *const lock_keys[LOCK_KEYS_MAX];

/* The simulated time in nanoseconds, larger for every call. */
uint64_t lock_history_now(struct lock_clients *clients);

void lock_history_begin(struct lock_client *client, enum hf_op_kind kind);
void lock_history_end(struct lock_client *client, enum hf_op_kind kind,
                      enum hf_err err);

/* Check the whole history. An error fails the test. */
void lock_history_check(struct lock_clients *clients);

#endif
