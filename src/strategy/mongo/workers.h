/* workers.h - a pool of threads that make the blocking calls of libmongoc.
 *
 * A worker runs a job; then the job's `done` runs in the client's context. The
 * pool owns its memory: after hf_mongo_workers_close() a thread that is stuck
 * in a call touches neither the host nor the strategy, and the last thread
 * frees the pool. */
#ifndef HF_STRATEGY_MONGO_WORKERS_H
#define HF_STRATEGY_MONGO_WORKERS_H

#include <pthread.h>

#include "strategy/mongo/context.h"
#include "strategy/strategy.h"

#define HF_MONGO_WORKERS_MAX 64
#define HF_MONGO_ORPHANS_MAX 64 /* threads stuck in jobs that were given up */

/* More urgent jobs run first, and some workers are reserved for them. This list
 * begins with the least urgent jobs. */
enum hf_mongo_urgency {
    HF_MONGO_TAKES,     /* LOCK, READ and others that can wait */
    HF_MONGO_WITHDRAWS, /* CANCEL; hundreds of them must not delay a RENEW */
    HF_MONGO_KEEPS,     /* RENEW, UNLOCK, UPDATE and FORCE, for held locks */
    HF_MONGO_URGENCIES
};

struct hf_mongo_job {
    struct hf_dlist link;
    enum hf_mongo_urgency urgency;
    bool started;       /* a worker has or had the job; private to the pool */
    hf_time started_at; /* when `started` was set */
    uint64_t subject;   /* jobs of one subject run one at a time; 0: no limit */

    /* Runs in a worker thread. Must not touch the client's state. */
    void (*run)(struct hf_mongo_job *job, mongoc_client_t *client,
                const struct hf_mongo_context *context);

    /* Runs in the client's context, after `run`. */
    void (*done)(struct hf_mongo_job *job);

    /* Runs in the client's context, during `run`, if the server that was sent
     * the job is no longer the primary. The server's reply may never come, or
     * may report a write that is rolled back. `done` still runs after `run`.
     * NULL: no request waits for the job. */
    void (*lost)(struct hf_mongo_job *job);

    /* Runs instead of `done`, in any thread, if the pool was closed, or if
     * hf_mongo_workers_await() could start no thread. */
    void (*drop)(struct hf_mongo_job *job);
};

struct hf_mongo_workers;

/* Open the pool and take the content of `address`. Can fail with HF_ENOMEM,
 * with HF_EINVAL if libmongoc refuses the URL, and with HF_EUNAVAIL if the DNS
 * lookup failed. */
enum hf_err hf_mongo_workers_open(struct hf_mongo_workers **workers_out,
                                  struct hf_mongo_address *address,
                                  struct hf_host *host, struct hf_error *error);

/* Close the pool, without waiting for threads. Queued jobs are dropped now, and
 * running jobs when they end. */
void hf_mongo_workers_close(struct hf_mongo_workers *workers);

/* Set the kind of server, after the handshake and before any other job. */
void hf_mongo_workers_set_standalone(struct hf_mongo_workers *workers,
                                     bool standalone);

const struct hf_mongo_context *hf_mongo_workers_context(
    const struct hf_mongo_workers *workers);

/* Queue a job. Returns false if no thread could be started; then the caller
 * keeps the job. */
bool hf_mongo_workers_submit(struct hf_mongo_workers *workers,
                             struct hf_mongo_job *job);

/* How far a job had got when it was given up. */
enum hf_mongo_progress {
    HF_MONGO_WAITING, /* not started; the caller owns it again */
    HF_MONGO_UNSENT,  /* started, and will never be sent */
    HF_MONGO_SENT     /* sent, or possibly sent */
};

/* Give up a job. If a worker runs the job, `run` continues and `done` follows,
 * but other jobs of the same subject need not wait for it. */
enum hf_mongo_progress hf_mongo_workers_cancel(struct hf_mongo_workers *workers,
                                               struct hf_mongo_job *job);

/* Ask for permission to send to `server`, libmongoc's id, and record it as the
 * server of this worker's job; for worker threads. Returns false if the job was
 * given up, or if another server is the primary. If the worker uses the
 * one-shot client, the primary is not checked, and the id is not recorded, only
 * that the job was sent. In threads other than workers it records nothing and
 * returns true. */
bool hf_mongo_worker_may_send(uint32_t server);

/* When a worker started the job, or HF_NEVER if none has. */
hf_time hf_mongo_workers_started_at(struct hf_mongo_workers *workers,
                                    const struct hf_mongo_job *job);

/* Run a job and wait for it; for hf_open(), before a loop runs. Returns true if
 * the job has run; then the caller owns it again. Returns false if it has not
 * run within `timeout_ms`; then `done` or `drop` is called later. Returns
 * false, too, if no thread could be started; then `drop` was called. Blocks. */
bool hf_mongo_workers_await(struct hf_mongo_workers *workers,
                            struct hf_mongo_job *job, uint32_t timeout_ms);

/* Start a thread for a long task, with a connection of its own. The thread
 * keeps the pool's memory until the task returns. Returns false if the thread
 * could not be started. */
typedef void hf_mongo_task_fn(void *arg, mongoc_client_t *client,
                              const struct hf_mongo_context *context);
bool hf_mongo_workers_start_task(struct hf_mongo_workers *workers,
                                 hf_mongo_task_fn *task, void *arg);

/* Post to the client's context, unless the pool is closed; for threads of
 * tasks. The caller wakes the returned waker, if it is not NULL, once it has
 * unlocked the mutexes that the woken thread will lock. */
struct hf_waker *hf_mongo_workers_post(struct hf_mongo_workers *workers,
                                       struct hf_post *post);

#endif
