/* mongo_queue.h - waiters for the key "k" in the replica set of mongo_case.h:
 * in this process, and in processes that are killed while they wait. */
#ifndef HF_TESTS_LIB_MONGO_QUEUE_H
#define HF_TESTS_LIB_MONGO_QUEUE_H

#include "lib/mongo_case.h"

#define HF_TEST_TTL_MS 600000 /* ttl of every claim in these helpers */

struct queued {
    struct hf_lock *lock;
    struct hf_future *future;
};

/* A client with a background thread, so that its waiters are served while the
 * case does something else. */
struct hf_client *open_driven(void);

/* Hold "k", which must be free. */
struct hf_lock *hold_key(struct hf_client *client);

/* join_queue() starts to wait for "k", to be held with `value`, without a time
 * limit; await_grant() waits until the claim is granted, and frees its
 * future. */
void join_queue(struct hf_client *client, struct queued *queued,
                const char *value);
void await_grant(struct queued *queued);

/* A process that enters the queue with `claims` claims once kill_in_queue() is
 * called. */
struct waiting_process {
    pid_t pid;
    int start_fd; /* the process enters the queue when it gets a byte */
    unsigned claims;
};

/* Fork a waiting process, which does not enter the queue yet. Call it before
 * this process has threads. */
struct waiting_process fork_waiters(unsigned claims);

/* Let the processes enter the empty queue of "k", in this order. Then kill
 * them, so that their waiters stay in the queue. */
void kill_in_queue(const struct waiting_process *processes, unsigned count);

#endif
