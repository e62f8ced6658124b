/* workers.h - a few threads that make libmongoc's calls, which block.
 *
 * A job is run by one of them and then comes back to the client's context. The
 * crew's memory is its own: after hf_mongo_workers_close() a thread that is stuck
 * in a call touches neither the host nor the strategy, and the last one to
 * come out frees what is left. */
#ifndef HF_STRATEGY_MONGO_WORKERS_H
#define HF_STRATEGY_MONGO_WORKERS_H

#include <pthread.h>

#include "strategy/mongo/context.h"
#include "strategy/strategy.h"

#define HF_MONGO_WORKERS_MAX 64
#define HF_MONGO_ORPHANS_MAX 64 /* threads stuck in calls that were given up */

/* Which job goes first, and which may use the last workers. */
enum hf_mongo_urgency {
    HF_MONGO_TAKES,     /* LOCK, READ and the like: it can wait */
    HF_MONGO_WITHDRAWS, /* CANCEL: there may be hundreds for one key */
    HF_MONGO_KEEPS,     /* RENEW, UNLOCK, ...: a lock depends on it */
    HF_MONGO_URGENCIES
};

struct hf_mongo_job {
    struct hf_dlist link;
    enum hf_mongo_urgency urgency;
    bool started;       /* the workers': a thread has it, or had */
    hf_time started_at; /* since then */
    uint64_t subject;   /* few of the same run at one time; 0: none */

    /* In a worker thread: nothing of the client's may be touched. */
    void (*run)(struct hf_mongo_job *job, mongoc_client_t *client,
                const struct hf_mongo_context *context);

    /* In the client's context, after that. */
    void (*done)(struct hf_mongo_job *job);

    /* In the client's context, while `run` goes on: the server that it was
     * sent to is not the primary any more, so that the answer may never come
     * or count for nothing. `done` runs all the same, whenever that is. NULL:
     * nobody waits for the answer. */
    void (*lost)(struct hf_mongo_job *job);

    /* Instead of `done`, in any thread: the workers was closed. */
    void (*drop)(struct hf_mongo_job *job);
};

struct hf_mongo_workers;

/* `address` goes over to the workers. HF_ENOMEM; HF_EINVAL: libmongoc refuses
 * what the URL asks for; HF_EUNAVAIL: DNS does not know the servers. */
enum hf_err hf_mongo_workers_open(struct hf_mongo_workers **workers_out,
                                  struct hf_mongo_address *address,
                                  struct hf_host *host, struct hf_error *error);

/* Return at once. Jobs that wait are dropped. */
void hf_mongo_workers_close(struct hf_mongo_workers *workers);

/* Before the first job but one: what kind of server it is. */
void hf_mongo_workers_set_standalone(struct hf_mongo_workers *workers,
                                     bool standalone);

const struct hf_mongo_context *hf_mongo_workers_context(
    const struct hf_mongo_workers *workers);

/* Give a job to the workers. False: no thread could be started; the job is the
 * caller's. */
bool hf_mongo_workers_submit(struct hf_mongo_workers *workers,
                             struct hf_mongo_job *job);

/* How far a job had come when it was taken back. */
enum hf_mongo_progress {
    HF_MONGO_WAITING, /* no thread has it: it is the caller's again */
    HF_MONGO_UNSENT,  /* a thread has it, and will not send it any more */
    HF_MONGO_SENT     /* a thread has sent it, or may have */
};

/* Give up on a job. The thread that has it goes on, and others of the same
 * subject need not wait for it any longer. */
enum hf_mongo_progress hf_mongo_workers_cancel(struct hf_mongo_workers *workers,
                                               struct hf_mongo_job *job);

/* For the thread of a job, before it sends anything to the server that
 * libmongoc knows by this id. False: it must not: the job was taken back, or
 * another server is primary. */
bool hf_mongo_worker_may_send(uint32_t server);

/* When a thread began it; HF_NEVER: none has. */
hf_time hf_mongo_workers_started_at(struct hf_mongo_workers *workers,
                                    const struct hf_mongo_job *job);

/* Run a job in the workers and wait for it, for hf_open(), when no loop runs yet.
 * False: not within `timeout_ms`, or no thread could be started; then the job
 * is dropped, now or when it is through. */
bool hf_mongo_workers_await(struct hf_mongo_workers *workers,
                            struct hf_mongo_job *job, uint32_t timeout_ms);

/* A thread for one long task, with a connection of its own. It holds the workers'
 * memory until it returns. False: it could not be started. */
typedef void hf_mongo_task_fn(void *arg, mongoc_client_t *client,
                              const struct hf_mongo_context *context);
bool hf_mongo_workers_start_task(struct hf_mongo_workers *workers,
                                 hf_mongo_task_fn *task, void *arg);

/* For such a thread: post, unless the workers is closed. It rings what it is given,
 * if anything, when it holds no lock that the woken wants. */
struct hf_waker *hf_mongo_workers_post(struct hf_mongo_workers *workers,
                                       struct hf_post *post);

#endif
