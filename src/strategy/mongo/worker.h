/* worker.h - one worker thread, and the state that all of them share.
 *
 * Private to workers.c, worker.c, oneshot.c and primary.c. Unless a comment
 * says otherwise, the caller holds the mutex of the workers.
 *
 * A worker whose job was given up is an orphan until libmongoc returns. Orphans
 * do not count as workers, so that repeated requests can run while a server
 * hangs. */
#ifndef HF_STRATEGY_MONGO_WORKER_H
#define HF_STRATEGY_MONGO_WORKER_H

#include "strategy/mongo/workers.h"

struct hf_mongo_workers {
    struct hf_mongo_context context;
    mongoc_client_pool_t *pool;
    hf_time opened;
    bool has_oneshot; /* the first job has started; only that job may
                         open the one-shot client */

    pthread_mutex_t mutex;
    pthread_cond_t answered; /* for hf_mongo_workers_await() */
    unsigned references;     /* held by the strategy and by each thread */

    struct hf_dlist active; /* workers, without orphans */
    unsigned worker_count;
    unsigned orphan_count;
    unsigned busy; /* workers that run a job, without orphans */
    unsigned running[HF_MONGO_URGENCIES]; /* `busy`, by urgency */
    struct hf_dlist idle; /* the most recently used worker first */
    uint32_t primary;     /* libmongoc's id of the primary; 0: unknown */

    struct hf_dlist queues[HF_MONGO_URGENCIES]; /* jobs, not started yet */
    struct hf_dlist ended; /* jobs whose `done` has to be called */
    struct hf_dlist lost;  /* running jobs whose `lost` has to be called */
    struct hf_mongo_job *awaited; /* the job of hf_mongo_workers_await() */
    struct hf_host *host;         /* NULL: closed */
    struct hf_post post;
};

/* A worker. It lives on the stack of its thread. */
struct hf_mongo_worker {
    struct hf_dlist link; /* in workers->active */
    struct hf_dlist idle; /* in workers->idle */
    pthread_cond_t wake;
    struct hf_mongo_workers *workers;
    mongoc_client_t *client;       /* from the pool, or the one-shot client */
    bool oneshot;                  /* `client` is the one-shot client */
    struct hf_mongo_job *job;      /* NULL: idle, or the job was given up */
    enum hf_mongo_urgency urgency; /* urgency of its current or last job */
    bool orphan;
    bool barred; /* send nothing: the job was given up before it was sent */
    /* Where the job was sent: libmongoc's id of the server, or UINT32_MAX for
     * the one-shot client; 0: not sent. */
    uint32_t server;
};

/* Queue a job. Start a worker if the job can run now and no worker is free for
 * it. Returns false if there is no worker and none could be started. */
bool hf_mongo_worker_enqueue(struct hf_mongo_workers *workers,
                             struct hf_mongo_job *job);

/* Find the worker that runs `job`. Returns NULL if no worker does, or if the
 * job was given up. */
struct hf_mongo_worker *hf_mongo_worker_find(
    const struct hf_mongo_workers *workers, const struct hf_mongo_job *job);

/* Give up the job of `worker`. The worker becomes an orphan, unless there are
 * too many orphans. */
void hf_mongo_worker_abandon(struct hf_mongo_worker *worker);

/* Wake the most recently used idle worker, if there is one, because its
 * connection and caches are warm. */
void hf_mongo_worker_wake(struct hf_mongo_workers *workers);

/* Start a thread, which holds a reference to `workers`. Returns false if it
 * could not be started. */
bool hf_mongo_workers_start_thread(struct hf_mongo_workers *workers,
                                   void *(*run)(void *), void *arg);

/* Drop a reference and unlock the mutex. The last reference frees `workers`. */
void hf_mongo_workers_unref(struct hf_mongo_workers *workers);

/* oneshot.c: open a client without monitor threads. It closes at once, whereas
 * a pool takes half a second, but it does not notice a new primary. Returns
 * NULL if the pool has to be used instead: no primary was found soon, or the
 * URL is a mongodb+srv: URL. Blocks; call this without the mutex. */
mongoc_client_t *hf_mongo_oneshot_open(const mongoc_uri_t *from);

/* primary.c: let libmongoc report which server is the primary. Call this
 * without the mutex, before the first client is taken from the pool. */
void hf_mongo_primary_monitor(struct hf_mongo_workers *workers);

#endif
