#include "strategy/mongo/crew.h"

#include <stdlib.h>

#include "strategy/mongo/library.h"

#define CONNECTIONS_MAX (HF_MONGO_WORKERS_MAX + 2)

/* Commands on one document get in each other's way: the server starts those
 * anew that come second, and some of many come second for very long. */
#define SAME_SUBJECT_MAX 1

#define KEPT_FOR_FIRST 2 /* threads that only these have */

struct hf_mongo_crew {
    struct hf_mongo_place place;
    mongoc_client_pool_t *pool;

    pthread_mutex_t mutex;
    pthread_cond_t answered; /* for hf_mongo_crew_await() */
    unsigned references;     /* of the strategy, and of each thread */
    unsigned workers;
    struct hf_list idle; /* the one that rested last is the first */
    struct hf_mongo_job *running[HF_MONGO_WORKERS_MAX];
    struct hf_list first;         /* jobs that no thread has begun */
    struct hf_list waiting;       /* and those that come after these */
    unsigned others;              /* threads that are busy with such */
    struct hf_list ended;         /* jobs that are to be told */
    struct hf_mongo_job *awaited; /* until it has ended */
    struct hf_host *host;         /* NULL: closed */
    struct hf_post post;
};

/* A thread that waits for a job, or for the crew to close. */
struct resting {
    struct hf_list link;
    pthread_cond_t wake;
};

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

/* With the mutex held, which is dropped. */
static void leave(struct hf_mongo_crew *crew)
{
    bool last = --crew->references == 0;

    pthread_mutex_unlock(&crew->mutex);
    if (last)
        free_crew(crew);
}

/* ---- Threads ------------------------------------------------------------*/

static void tell_ended(struct hf_mongo_crew *crew, struct hf_mongo_job *job)
{
    struct hf_waker *waker = NULL;

    if (job == crew->awaited) {
        crew->awaited = NULL;
        pthread_cond_signal(&crew->answered);
        return;
    }
    hf_list_push_back(&crew->ended, &job->link);
    waker = crew->host->ops->post(crew->host, &crew->post);
    pthread_mutex_unlock(&crew->mutex);
    if (waker)
        hf_waker_ring(waker);
    pthread_mutex_lock(&crew->mutex);
}

static void exchange(struct hf_mongo_crew *crew, const struct hf_mongo_job *old,
                     struct hf_mongo_job *new)
{
    unsigned i = 0;

    while (i < HF_MONGO_WORKERS_MAX && crew->running[i] != old)
        i++;
    if (i < HF_MONGO_WORKERS_MAX)
        crew->running[i] = new;
}

static bool may_run(const struct hf_mongo_crew *crew,
                    const struct hf_mongo_job *job)
{
    unsigned same = 0;

    for (unsigned i = 0; job->subject && i < HF_MONGO_WORKERS_MAX; i++)
        same += crew->running[i] && crew->running[i]->subject == job->subject;
    return same < SAME_SUBJECT_MAX;
}

static struct hf_mongo_job *take(struct hf_mongo_crew *crew,
                                 struct hf_list *jobs)
{
    for (struct hf_list *link = jobs->next; link != jobs; link = link->next) {
        struct hf_mongo_job *job =
            HF_CONTAINER(link, struct hf_mongo_job, link);

        if (!may_run(crew, job))
            continue;
        hf_list_remove(link);
        job->begun = true;
        job->begun_at = hf_time_now();
        return job;
    }
    return NULL;
}

/* Where a server is silent, a thread is busy for seconds with what nobody waits
 * for any more: some are left for those that come first. */
static bool has_thread(const struct hf_mongo_crew *crew, bool first)
{
    return first || crew->others < HF_MONGO_WORKERS_MAX - KEPT_FOR_FIRST;
}

static struct hf_mongo_job *next_job(struct hf_mongo_crew *crew)
{
    struct hf_mongo_job *job = take(crew, &crew->first);

    return job || !has_thread(crew, false) ? job : take(crew, &crew->waiting);
}

static void run_one(struct hf_mongo_crew *crew, struct hf_mongo_job *job)
{
    bool first = job->first;
    mongoc_client_t *client;

    exchange(crew, NULL, job);
    crew->others += !first;
    pthread_mutex_unlock(&crew->mutex);
    client = mongoc_client_pool_pop(crew->pool);
    job->run(job, client, &crew->place);
    mongoc_client_pool_push(crew->pool, client);
    pthread_mutex_lock(&crew->mutex);
    exchange(crew, job, NULL);
    crew->others -= !first;
    if (crew->host)
        tell_ended(crew, job);
    else
        job->drop(job);
}

/* The one that rested last: its connection and its memory are warm. */
static void wake_one(struct hf_mongo_crew *crew)
{
    struct hf_list *link = hf_list_take(&crew->idle);

    if (link)
        pthread_cond_signal(&HF_CONTAINER(link, struct resting, link)->wake);
}

static void rest(struct hf_mongo_crew *crew)
{
    struct resting resting = {.wake = PTHREAD_COND_INITIALIZER};

    hf_list_push_front(&crew->idle, &resting.link);
    while (hf_list_linked(&resting.link))
        pthread_cond_wait(&resting.wake, &crew->mutex);
    pthread_cond_destroy(&resting.wake);
}

static void *be_a_worker(void *arg)
{
    struct hf_mongo_crew *crew = arg;
    struct hf_mongo_job *job;

    pthread_mutex_lock(&crew->mutex);
    while (crew->host) {
        job = next_job(crew);
        if (job)
            run_one(crew, job);
        else
            rest(crew);
    }
    leave(crew);
    return NULL;
}

static void *run_task(void *arg)
{
    struct task *task = arg;
    struct hf_mongo_crew *crew = task->crew;
    mongoc_client_t *client = mongoc_client_pool_pop(crew->pool);

    task->run(task->arg, client, &crew->place);
    mongoc_client_pool_push(crew->pool, client);
    free(task);
    pthread_mutex_lock(&crew->mutex);
    leave(crew);
    return NULL;
}

/* With the mutex held. */
static bool start(struct hf_mongo_crew *crew, void *(*run)(void *), void *arg)
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
    started = start(crew, run_task, task);
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

/* With the mutex held: a thread for each job that nobody is free for. */
static bool give(struct hf_mongo_crew *crew, struct hf_mongo_job *job)
{
    bool runs = may_run(crew, job) && has_thread(crew, job->first);

    if (runs && hf_list_empty(&crew->idle) &&
        crew->workers < HF_MONGO_WORKERS_MAX && start(crew, be_a_worker, crew))
        crew->workers++;
    if (crew->workers == 0)
        return false;
    hf_list_push_back(job->first ? &crew->first : &crew->waiting, &job->link);
    if (runs)
        wake_one(crew);
    return true;
}

bool hf_mongo_crew_give(struct hf_mongo_crew *crew, struct hf_mongo_job *job)
{
    bool given;

    pthread_mutex_lock(&crew->mutex);
    given = give(crew, job);
    pthread_mutex_unlock(&crew->mutex);
    return given;
}

bool hf_mongo_crew_take_back(struct hf_mongo_crew *crew,
                             struct hf_mongo_job *job)
{
    bool waits;

    pthread_mutex_lock(&crew->mutex);
    waits = !job->begun;
    if (waits)
        hf_list_remove(&job->link);
    else
        exchange(crew, job, NULL);
    wake_one(crew);
    pthread_mutex_unlock(&crew->mutex);
    return waits;
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

static void on_post(struct hf_post *post)
{
    struct hf_mongo_crew *crew = HF_CONTAINER(post, struct hf_mongo_crew, post);
    struct hf_list *link;

    pthread_mutex_lock(&crew->mutex);
    while ((link = hf_list_take(&crew->ended))) {
        struct hf_mongo_job *job =
            HF_CONTAINER(link, struct hf_mongo_job, link);

        pthread_mutex_unlock(&crew->mutex);
        job->done(job);
        pthread_mutex_lock(&crew->mutex);
    }
    pthread_mutex_unlock(&crew->mutex);
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
    given = give(crew, job);
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
    crew->host = host;
    crew->post.run = on_post;
    hf_list_init(&crew->idle);
    hf_list_init(&crew->first);
    hf_list_init(&crew->waiting);
    hf_list_init(&crew->ended);
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
    drop_all(&crew->first);
    drop_all(&crew->waiting);
    drop_all(&crew->ended);
    while (!hf_list_empty(&crew->idle))
        wake_one(crew);
    host->ops->unpost(host, &crew->post);
    leave(crew);
}
