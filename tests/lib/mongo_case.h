/* mongo_case.h - what the cases of tests/mongo share: the set of each, and short
 * words for what is asked of it. */
#ifndef HF_TESTS_LIB_MONGO_CASE_H
#define HF_TESTS_LIB_MONGO_CASE_H

#include <semaphore.h>

#include "lib/mongo_client.h"

/* Of the case that runs; set_up() empties it, tear_down() stops what is left. */
extern struct hf_test_mongo mongo;
int set_up(void **state);
int tear_down(void **state);

/* Start a set with a network of the test's own between its members, or skip the
 * case. */
extern struct hf_test_network network;
void need_network(unsigned count);

/* Before the set starts: three members have clocks an hour apart. */
void set_clocks_apart(void);

/* Of CLOCK_BOOTTIME. */
int64_t now_ms(void);

/* The member that is primary; the case fails where none is. */
unsigned primary(void);

/* Wait until one key has so many in line. */
void await_line(unsigned size);

/* What stands behind `name` in a reply: a number, or -1. */
long find_number(const char *reply, const char *name);

/* How many findAndModify the first member has begun to work on. */
long begun(void);

/* Let commands of clients fail at a member: `commands` as in a list of JSON,
 * `mode` which of them, `data` how. Answers how many have failed so far. */
long fail_commands(unsigned member, const char *commands, const char *mode,
                   const char *data);

/* Opening `url` fails with `wanted`, and the text has `word`, but none of the
 * passwords that the cases use. */
void expect_refused(const char *url, enum hf_err wanted, const char *word);

/* For a watch: posts the semaphore that is its argument at each release. */
void on_release(const struct hf_event *event, void *arg);
bool is_posted_within(sem_t *posted, unsigned seconds);

/* Take a free key by options whose timeout is so short that a busy machine may
 * miss it: ask until it is there. */
struct hf_lock *lock_at_last(struct hf_client *client, const char *key,
                             const struct hf_lock_opts *opts);

#endif
