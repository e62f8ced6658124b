#include "strategy/mongo/workers.h"

#include <stdlib.h>
#include <time.h>

#include "strategy/mongo/library.h"
#include "strategy/mongo/worker.h"

#define TASKS_MAX 2
#define CONNECTIONS_MAX                                                        \
    (HF_MONGO_WORKERS_MAX + HF_MONGO_ORPHANS_MAX + TASKS_MAX)

struct task {
    struct hf_mongo_workers *workers;
    hf_mongo_task_fn *run;
    void *arg;
};

/* ---- Memory -------------------------------------------------------------*/

static void free_workers(struct hf_mongo_workers *workers)
{
    if (workers->pool)
        mongoc_client_pool_destroy(workers->pool);
    hf_mongo_context_fini(&workers->context);
    pthread_cond_destroy(&workers->answered);
    pthread_mutex_destroy(&workers->mutex);
    free(workers);
}

void hf_mongo_workers_unref(struct hf_mongo_workers *workers)
{
    bool last = --workers->references == 0;

    pthread_mutex_unlock(&workers->mutex);
    if (last)
        free_workers(workers);
}

/* ---- Threads ------------------------------------------------------------*/

static void *task_main(void *arg)
{
    struct task *task = arg;
    struct hf_mongo_workers *workers = task->workers;
    mongoc_client_t *client = mongoc_client_pool_pop(workers->pool);

    task->run(task->arg, client, &workers->context);
    mongoc_client_pool_push(workers->pool, client);
    free(task);
    pthread_mutex_lock(&workers->mutex);
    hf_mongo_workers_unref(workers);
    return NULL;
}

bool hf_mongo_workers_start_thread(struct hf_mongo_workers *workers,
                                   void *(*run)(void *), void *arg)
{
    bool started = hf_mongo_library_start_thread(run, arg);

    workers->references += started;
    return started;
}

bool hf_mongo_workers_start_task(struct hf_mongo_workers *workers,
                                 hf_mongo_task_fn *run, void *arg)
{
    struct task *task = malloc(sizeof(*task));
    bool started;

    if (!task)
        return false;
    *task = (struct task){.workers = workers, .run = run, .arg = arg};
    pthread_mutex_lock(&workers->mutex);
    started = hf_mongo_workers_start_thread(workers, task_main, task);
    pthread_mutex_unlock(&workers->mutex);
    if (!started)
        free(task);
    return started;
}

struct hf_waker *hf_mongo_workers_post(struct hf_mongo_workers *workers,
                                       struct hf_post *post)
{
    struct hf_waker *waker = NULL;

    pthread_mutex_lock(&workers->mutex);
    if (workers->host)
        waker = workers->host->ops->post(workers->host, post);
    pthread_mutex_unlock(&workers->mutex);
    return waker;
}

/* ---- Jobs ---------------------------------------------------------------*/

bool hf_mongo_workers_submit(struct hf_mongo_workers *workers,
                             struct hf_mongo_job *job)
{
    bool queued;

    pthread_mutex_lock(&workers->mutex);
    queued = hf_mongo_worker_enqueue(workers, job);
    pthread_mutex_unlock(&workers->mutex);
    return queued;
}

enum hf_mongo_progress hf_mongo_workers_cancel(struct hf_mongo_workers *workers,
                                               struct hf_mongo_job *job)
{
    enum hf_mongo_progress progress = HF_MONGO_WAITING;
    struct hf_mongo_worker *worker;

    pthread_mutex_lock(&workers->mutex);
    worker = hf_mongo_worker_find(workers, job);
    if (worker) {
        progress = worker->server ? HF_MONGO_SENT : HF_MONGO_UNSENT;
        hf_mongo_worker_abandon(worker);
    } else if (job->started) {
        progress = HF_MONGO_SENT; /* the job has run, and its `done` follows */
    } else {
        hf_dlist_remove(&job->link);
        hf_mongo_worker_wake(workers);
    }
    pthread_mutex_unlock(&workers->mutex);
    return progress;
}

hf_time hf_mongo_workers_started_at(struct hf_mongo_workers *workers,
                                    const struct hf_mongo_job *job)
{
    hf_time started_at;

    pthread_mutex_lock(&workers->mutex);
    started_at = job->started ? job->started_at : HF_NEVER;
    pthread_mutex_unlock(&workers->mutex);
    return started_at;
}

static struct hf_mongo_job *take_finished_job(struct hf_mongo_workers *workers,
                                              struct hf_dlist *jobs)
{
    struct hf_dlist *link;

    pthread_mutex_lock(&workers->mutex);
    link = hf_dlist_take(jobs);
    pthread_mutex_unlock(&workers->mutex);
    return link ? HF_CONTAINER(link, struct hf_mongo_job, link) : NULL;
}

static void on_workers_post(struct hf_post *post)
{
    struct hf_mongo_workers *workers =
        HF_CONTAINER(post, struct hf_mongo_workers, post);
    struct hf_mongo_job *job;

    while ((job = take_finished_job(workers, &workers->ended)))
        job->done(job);
    while ((job = take_finished_job(workers, &workers->lost)))
        job->lost(job);
}

bool hf_mongo_workers_await(struct hf_mongo_workers *workers,
                            struct hf_mongo_job *job, uint32_t timeout_ms)
{
    struct timespec until;
    bool queued, done;
    int waited = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    pthread_mutex_lock(&workers->mutex);
    workers->awaited = job;
    queued = hf_mongo_worker_enqueue(workers, job);
    while (queued && workers->awaited && waited == 0)
        waited = pthread_cond_clockwait(&workers->answered, &workers->mutex,
                                        CLOCK_MONOTONIC, &until);
    done = queued && !workers->awaited;
    workers->awaited = NULL; /* if the job ends later, its `done` is called */
    pthread_mutex_unlock(&workers->mutex);
    if (!queued)
        job->drop(job);
    return done;
}

/* ---- Opening and closing ------------------------------------------------*/

void hf_mongo_workers_set_standalone(struct hf_mongo_workers *workers,
                                     bool standalone)
{
    hf_mongo_context_set_standalone(&workers->context, standalone);
}

const struct hf_mongo_context *hf_mongo_workers_context(
    const struct hf_mongo_workers *workers)
{
    return &workers->context;
}

static void init_workers(struct hf_mongo_workers *workers, struct hf_host *host)
{
    pthread_mutex_init(&workers->mutex, NULL);
    pthread_cond_init(&workers->answered, NULL);
    workers->references = 1;
    workers->opened = hf_time_now();
    workers->host = host;
    workers->post.run = on_workers_post;
    hf_dlist_init(&workers->active);
    hf_dlist_init(&workers->idle);
    for (unsigned i = 0; i < HF_MONGO_URGENCIES; i++)
        hf_dlist_init(&workers->queues[i]);
    hf_dlist_init(&workers->ended);
    hf_dlist_init(&workers->lost);
}

enum hf_err hf_mongo_workers_open(struct hf_mongo_workers **workers_out,
                                  struct hf_mongo_address *address,
                                  struct hf_host *host, struct hf_error *error)
{
    struct hf_mongo_workers *workers = calloc(1, sizeof(*workers));
    bson_error_t fault;

    if (!workers)
        return hf_error_set_code(error, HF_ENOMEM);
    init_workers(workers, host);
    /* libmongoc takes minPoolSize as the number of unused connections to keep,
     * so keep only one. */
    mongoc_uri_set_option_as_int32(address->uri, MONGOC_URI_MINPOOLSIZE, 1);
    workers->pool = mongoc_client_pool_new_with_error(address->uri, &fault);
    if (!workers->pool) { /* a bad URL, or a DNS lookup that failed */
        free_workers(workers);
        return hf_error_set(error,
                            fault.domain == MONGOC_ERROR_STREAM ? HF_EUNAVAIL
                                                                : HF_EINVAL,
                            "url: %s", fault.message);
    }
    mongoc_client_pool_max_size(workers->pool, CONNECTIONS_MAX);
    mongoc_client_pool_set_error_api(workers->pool, MONGOC_ERROR_API_VERSION_2);
    (void)mongoc_client_pool_set_appname(workers->pool, "holdfast");
    hf_mongo_primary_monitor(workers);
    hf_mongo_context_init(&workers->context, address);
    *workers_out = workers;
    return HF_OK;
}

static void drop_jobs(struct hf_dlist *jobs)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(jobs))) {
        struct hf_mongo_job *job =
            HF_CONTAINER(link, struct hf_mongo_job, link);

        job->drop(job);
    }
}

void hf_mongo_workers_close(struct hf_mongo_workers *workers)
{
    struct hf_host *host = workers->host;

    pthread_mutex_lock(&workers->mutex);
    workers->host = NULL;
    for (unsigned i = 0; i < HF_MONGO_URGENCIES; i++)
        drop_jobs(&workers->queues[i]);
    drop_jobs(&workers->ended);
    while (hf_dlist_take(&workers->lost)) /* the workers drop these jobs */
        continue;
    while (!hf_dlist_is_empty(&workers->idle))
        hf_mongo_worker_wake(workers);
    host->ops->unpost(host, &workers->post);
    hf_mongo_workers_unref(workers);
}
