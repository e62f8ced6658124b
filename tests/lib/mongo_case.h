/* mongo_case.h - what the cases of tests/mongo share: the set of each, and short
 * words for what is asked of it. */
#ifndef HF_TESTS_LIB_MONGO_CASE_H
#define HF_TESTS_LIB_MONGO_CASE_H

#include "lib/mongo_client.h"

/* Of the case that runs; set_up() empties it, tear_down() stops what is left. */
extern struct hf_test_mongo mongo;
int set_up(void **state);
int tear_down(void **state);

/* Of CLOCK_BOOTTIME. */
int64_t now_ms(void);

/* The member that is primary; the case fails where none is. */
unsigned primary(void);

/* Wait until one key has so many in line. */
void await_line(unsigned size);

/* How many findAndModify the first member has begun to work on. */
long begun(void);

#endif
