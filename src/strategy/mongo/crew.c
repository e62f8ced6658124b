#include "strategy/mongo/crew.h"

#include <stdlib.h>
#include <time.h>

#include "strategy/mongo/library.h"
#include "strategy/mongo/worker.h"

#define TASKS_MAX 2
#define CONNECTIONS_MAX                                                        \
    (HF_MONGO_WORKERS_MAX + HF_MONGO_ORPHANS_MAX + TASKS_MAX)

struct task {
    struct hf_mongo_crew *crew;
    hf_mongo_task_fn *run;
    void *arg;
};

/* ---- Memory -------------------------------------------------------------*/

static void free_crew(struct hf_mongo_crew *crew)
{
    if (crew->pool)
        mongoc_client_pool_destroy(crew->pool);
    hf_mongo_place_fini(&crew->place);
    pthread_cond_destroy(&crew->answered);
    pthread_mutex_destroy(&crew->mutex);
    free(crew);
}

void hf_mongo_crew_leave(struct hf_mongo_crew *crew)
{
    bool last = --crew->references == 0;

    pthread_mutex_unlock(&crew->mutex);
    if (last)
        free_crew(crew);
}

/* ---- Threads ------------------------------------------------------------*/

static void *run_task(void *arg)
{
    struct task *task = arg;
    struct hf_mongo_crew *crew = task->crew;
    mongoc_client_t *client = mongoc_client_pool_pop(crew->pool);

    task->run(task->arg, client, &crew->place);
    mongoc_client_pool_push(crew->pool, client);
    free(task);
    pthread_mutex_lock(&crew->mutex);
    hf_mongo_crew_leave(crew);
    return NULL;
}

bool hf_mongo_crew_start_thread(struct hf_mongo_crew *crew,
                                void *(*run)(void *), void *arg)
{
    bool started = hf_mongo_thread_start(run, arg);

    crew->references += started;
    return started;
}

bool hf_mongo_crew_task(struct hf_mongo_crew *crew, hf_mongo_task_fn *run,
                        void *arg)
{
    struct task *task = malloc(sizeof(*task));
    bool started;

    if (!task)
        return false;
    *task = (struct task){.crew = crew, .run = run, .arg = arg};
    pthread_mutex_lock(&crew->mutex);
    started = hf_mongo_crew_start_thread(crew, run_task, task);
    pthread_mutex_unlock(&crew->mutex);
    if (!started)
        free(task);
    return started;
}

struct hf_waker *hf_mongo_crew_post(struct hf_mongo_crew *crew,
                                    struct hf_post *post)
{
    struct hf_waker *waker = NULL;

    pthread_mutex_lock(&crew->mutex);
    if (crew->host)
        waker = crew->host->ops->post(crew->host, post);
    pthread_mutex_unlock(&crew->mutex);
    return waker;
}

/* ---- Jobs ---------------------------------------------------------------*/

bool hf_mongo_crew_give(struct hf_mongo_crew *crew, struct hf_mongo_job *job)
{
    bool given;

    pthread_mutex_lock(&crew->mutex);
    given = hf_mongo_worker_enqueue(crew, job);
    pthread_mutex_unlock(&crew->mutex);
    return given;
}

enum hf_mongo_progress hf_mongo_crew_take_back(struct hf_mongo_crew *crew,
                                               struct hf_mongo_job *job)
{
    enum hf_mongo_progress progress = HF_MONGO_WAITING;
    struct hf_mongo_worker *worker;

    pthread_mutex_lock(&crew->mutex);
    worker = hf_mongo_worker_find(crew, job);
    if (worker) {
        progress = worker->server ? HF_MONGO_SENT : HF_MONGO_UNSENT;
        hf_mongo_worker_abandon(worker);
    } else if (job->begun) {
        progress = HF_MONGO_SENT; /* it has ended: its `done` is to run */
    } else {
        hf_list_remove(&job->link);
        hf_mongo_worker_wake(crew);
    }
    pthread_mutex_unlock(&crew->mutex);
    return progress;
}

hf_time hf_mongo_crew_begun_at(struct hf_mongo_crew *crew,
                               const struct hf_mongo_job *job)
{
    hf_time at;

    pthread_mutex_lock(&crew->mutex);
    at = job->begun ? job->begun_at : HF_NEVER;
    pthread_mutex_unlock(&crew->mutex);
    return at;
}

static struct hf_mongo_job *take_job(struct hf_mongo_crew *crew,
                                     struct hf_list *jobs)
{
    struct hf_list *link;

    pthread_mutex_lock(&crew->mutex);
    link = hf_list_take(jobs);
    pthread_mutex_unlock(&crew->mutex);
    return link ? HF_CONTAINER(link, struct hf_mongo_job, link) : NULL;
}

static void on_post(struct hf_post *post)
{
    struct hf_mongo_crew *crew = HF_CONTAINER(post, struct hf_mongo_crew, post);
    struct hf_mongo_job *job;

    while ((job = take_job(crew, &crew->ended)))
        job->done(job);
    while ((job = take_job(crew, &crew->lost)))
        job->lost(job);
}

bool hf_mongo_crew_await(struct hf_mongo_crew *crew, struct hf_mongo_job *job,
                         uint32_t timeout_ms)
{
    struct timespec until;
    bool given, done;
    int waited = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    pthread_mutex_lock(&crew->mutex);
    crew->awaited = job;
    given = hf_mongo_worker_enqueue(crew, job);
    while (given && crew->awaited && waited == 0)
        waited = pthread_cond_clockwait(&crew->answered, &crew->mutex,
                                        CLOCK_MONOTONIC, &until);
    done = given && !crew->awaited;
    crew->awaited = NULL; /* if it is late, it is dropped as any other */
    pthread_mutex_unlock(&crew->mutex);
    if (!given)
        job->drop(job);
    return done;
}

/* ---- Opening and closing ------------------------------------------------*/

void hf_mongo_crew_set_alone(struct hf_mongo_crew *crew, bool alone)
{
    hf_mongo_place_set_alone(&crew->place, alone);
}

const struct hf_mongo_place *hf_mongo_crew_place(
    const struct hf_mongo_crew *crew)
{
    return &crew->place;
}

static void init(struct hf_mongo_crew *crew, struct hf_host *host)
{
    pthread_mutex_init(&crew->mutex, NULL);
    pthread_cond_init(&crew->answered, NULL);
    crew->references = 1;
    crew->opened = hf_time_now();
    crew->host = host;
    crew->post.run = on_post;
    hf_list_init(&crew->workers);
    hf_list_init(&crew->idle);
    for (unsigned i = 0; i < HF_MONGO_URGENCIES; i++)
        hf_list_init(&crew->queues[i]);
    hf_list_init(&crew->ended);
    hf_list_init(&crew->lost);
}

enum hf_err hf_mongo_crew_open(struct hf_mongo_crew **made,
                               struct hf_mongo_address *address,
                               struct hf_host *host, struct hf_error *error)
{
    struct hf_mongo_crew *crew = calloc(1, sizeof(*crew));
    bson_error_t why;

    if (!crew)
        return hf_error_code(error, HF_ENOMEM);
    init(crew, host);
    /* To libmongoc this is how many connections that nobody uses it keeps. */
    mongoc_uri_set_option_as_int32(address->uri, MONGOC_URI_MINPOOLSIZE, 1);
    crew->pool = mongoc_client_pool_new_with_error(address->uri, &why);
    if (!crew->pool) { /* also where DNS does not tell who the servers are */
        free_crew(crew);
        return hf_error_set(
            error, why.domain == MONGOC_ERROR_STREAM ? HF_EUNAVAIL : HF_EINVAL,
            "url: %s", why.message);
    }
    mongoc_client_pool_max_size(crew->pool, CONNECTIONS_MAX);
    mongoc_client_pool_set_error_api(crew->pool, MONGOC_ERROR_API_VERSION_2);
    (void)mongoc_client_pool_set_appname(crew->pool, "holdfast");
    hf_mongo_primary_follow(crew);
    hf_mongo_place_init(&crew->place, address);
    *made = crew;
    return HF_OK;
}

static void drop_all(struct hf_list *jobs)
{
    struct hf_list *link;

    while ((link = hf_list_take(jobs))) {
        struct hf_mongo_job *job =
            HF_CONTAINER(link, struct hf_mongo_job, link);

        job->drop(job);
    }
}

void hf_mongo_crew_close(struct hf_mongo_crew *crew)
{
    struct hf_host *host = crew->host;

    pthread_mutex_lock(&crew->mutex);
    crew->host = NULL;
    for (unsigned i = 0; i < HF_MONGO_URGENCIES; i++)
        drop_all(&crew->queues[i]);
    drop_all(&crew->ended);
    while (hf_list_take(&crew->lost)) /* their workers drop them */
        continue;
    while (!hf_list_empty(&crew->idle))
        hf_mongo_worker_wake(crew);
    host->ops->unpost(host, &crew->post);
    hf_mongo_crew_leave(crew);
}
