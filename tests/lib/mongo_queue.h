/* mongo_queue.h - waiters for the key "k" of the set of tests/lib/mongo_case.h:
 * in this process, and in processes that are killed while they wait. */
#ifndef HF_TESTS_LIB_MONGO_QUEUE_H
#define HF_TESTS_LIB_MONGO_QUEUE_H

#include "lib/mongo_case.h"

#define HF_TEST_LEASE_MS 600000 /* of every claim here */

struct queued {
    struct hf_lock *lock;
    struct hf_future *future;
};

/* A client with a thread of its own: its waiters act while the case looks on. */
struct hf_client *open_driven(void);

/* Hold "k", which must be free. */
struct hf_lock *hold_key(struct hf_client *client);

/* Wait for "k" without a limit, and be granted it. */
void join_queue(struct hf_client *client, struct queued *queued,
                const char *value);
void await_grant(struct queued *queued);

/* How many commands of this name the first member has begun to execute. */
long count_commands(const char *name);

/* A process that joins the queue with some claims once it is told to. */
struct waiting_process {
    pid_t pid;
    int tell;
    unsigned claims;
};

/* To be called before this process has threads, because it forks. */
struct waiting_process fork_waiters(unsigned claims);

/* The processes join the queue, which must be empty, in this order. Then they are
 * killed. */
void die_in_queue(const struct waiting_process *processes, unsigned count);

#endif
