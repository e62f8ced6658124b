/* worker.h - the worker threads of the workers, and the job that each one runs.
 *
 * Private to workers.c, worker.c and primary.c. Unless it says otherwise, each
 * function wants the workers' mutex held.
 *
 * A worker whose job was given up is an orphan until libmongoc returns: it
 * does not count as a worker, so that a server that hangs does not keep the
 * repeats of its requests from running. */
#ifndef HF_STRATEGY_MONGO_WORKER_H
#define HF_STRATEGY_MONGO_WORKER_H

#include "strategy/mongo/workers.h"

struct hf_mongo_workers {
    struct hf_mongo_context context;
    mongoc_client_pool_t *pool;
    hf_time opened;
    bool has_oneshot; /* a worker has it, or had */

    pthread_mutex_t mutex;
    pthread_cond_t answered; /* for hf_mongo_workers_await() */
    unsigned references;     /* of the strategy, and of each thread */

    struct hf_dlist active; /* all but the orphans */
    unsigned worker_count;
    unsigned orphan_count;
    unsigned busy;                        /* workers that run a job */
    unsigned running[HF_MONGO_URGENCIES]; /* the same, by urgency */
    struct hf_dlist idle; /* the most recently used worker is the first */
    uint32_t primary;     /* libmongoc's id of the primary; 0: unknown */

    struct hf_dlist queues[HF_MONGO_URGENCIES]; /* jobs that no worker has */
    struct hf_dlist ended; /* jobs whose `done` is to run */
    struct hf_dlist lost;  /* jobs that run, and whose `lost` is to run */
    struct hf_mongo_job *awaited; /* by hf_mongo_workers_await() */
    struct hf_host *host;         /* NULL: closed */
    struct hf_post post;
};

/* It lives on the stack of its thread. */
struct hf_mongo_worker {
    struct hf_dlist link; /* in workers->active */
    struct hf_dlist idle; /* in workers->idle */
    pthread_cond_t wake;
    struct hf_mongo_workers *workers;
    mongoc_client_t *client;       /* of the pool, or the one-shot client */
    bool oneshot;                  /* it is that */
    struct hf_mongo_job *job;      /* NULL: none, or it was given up */
    enum hf_mongo_urgency urgency; /* of the job that it runs */
    bool orphan;
    bool barred;     /* it must send nothing: its job was given up before */
    uint32_t server; /* the server that the job was sent to; 0: not sent yet */
};

/* Queue a job, and start a worker for it if none is idle. False: there is no
 * worker, and none could be started. */
bool hf_mongo_worker_enqueue(struct hf_mongo_workers *workers,
                             struct hf_mongo_job *job);

/* The worker that runs `job`; NULL: none does, or it was given up. */
struct hf_mongo_worker *hf_mongo_worker_find(
    const struct hf_mongo_workers *workers, const struct hf_mongo_job *job);

/* Nobody waits for the worker's job any more. */
void hf_mongo_worker_abandon(struct hf_mongo_worker *worker);

/* Wake the idle worker that was used last: its connection and its memory are
 * warm. */
void hf_mongo_worker_wake(struct hf_mongo_workers *workers);

/* Start a thread that holds a reference to the workers. */
bool hf_mongo_workers_start_thread(struct hf_mongo_workers *workers,
                                   void *(*run)(void *), void *arg);

/* Drop a reference, and the mutex. */
void hf_mongo_workers_unref(struct hf_mongo_workers *workers);

/* oneshot.c: a client for the first moments of a program. It has no threads of
 * its own and so ends at once, where the pool's take half a second; but it does
 * not notice by itself that the primary changes. NULL: no primary was found
 * soon, and the pool had better be used. Without the mutex. */
mongoc_client_t *hf_mongo_oneshot_open(const mongoc_uri_t *from);

/* primary.c: have libmongoc report which server is the primary. Before the
 * first client is taken from the pool; without the mutex. */
void hf_mongo_primary_monitor(struct hf_mongo_workers *workers);

#endif
