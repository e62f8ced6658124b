/* mongo_case.h - the fixture of the cases in tests/mongo: a replica set for
 * each case, and helpers that query it. */
#ifndef HF_TESTS_LIB_MONGO_CASE_H
#define HF_TESTS_LIB_MONGO_CASE_H

#include <semaphore.h>

#include "lib/mongo_client.h"

/* The replica set of the running case. set_up() clears it and `network`;
 * tear_down() stops both. */
extern struct hf_test_mongo mongo;
int set_up(void **state);
int tear_down(void **state);

/* Start a set of `count` members with `network` between them, or skip the case
 * if mongod is not installed. */
extern struct hf_test_network network;
void require_network(unsigned count);

/* Start a set of `count` members, and open two clients. Skips the case if
 * mongod is not installed. */
void require_two_clients(unsigned count, struct hf_client **client,
                         struct hf_client **other);

/* Set the clock of the first member an hour ahead, and that of the second an
 * hour back. Call it before the set starts. */
void set_clocks_apart(void);

/* Milliseconds of CLOCK_BOOTTIME. */
int64_t now_ms(void);

/* The number of the primary. The case fails if there is none. */
unsigned primary(void);

/* Wait until exactly one key has `size` waiters. */
void await_queue_length(unsigned size);

/* The number after `name` in `reply`, or -1 if `reply` is NULL or does not
 * contain `name`. */
long find_number(const char *reply, const char *name);

/* How many commands of this name, such as "findAndModify", the first member has
 * started to execute. */
long count_commands(const char *name);

/* Set a failpoint at a member, for commands of clients: `commands` is the
 * content of a JSON list, `mode` and `data` are those of the failpoint. Returns
 * how many commands the failpoint has made fail, or delayed, so far. */
long fail_commands(unsigned member, const char *commands, const char *mode,
                   const char *data);

/* Check that opening `url` fails with `wanted`, and that the error text
 * contains `word`, and neither of the passwords "hush" and "shout". */
void expect_refused(const char *url, enum hf_err wanted, const char *word);

/* A watch callback that posts the semaphore `arg` at each release. */
void on_release(const struct hf_event *event, void *arg);
bool is_posted_within(sem_t *posted, unsigned seconds);

/* Acquire a free key. Retries if the key is busy, the call times out, or no
 * server confirms it, because the timeout in `opts` may be too short for a busy
 * machine. The case fails on any other error. */
struct hf_lock *acquire_with_retries(struct hf_client *client, const char *key,
                                     const struct hf_lock_opts *opts);

#endif
