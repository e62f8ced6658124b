#include "strategy/mongo/worker.h"

#include <errno.h>
#include <time.h>

/* Jobs of one subject (a key) that may run at a time. Commands on one document
 * conflict, and the server restarts the later ones, under load again and again
 * for a long time. */
#define SAME_SUBJECT_MAX 1

#define KEPT_IDLE 8 /* workers that stay even if they are idle */
#define IDLE_S 5    /* how long any further idle workers stay */

/* After this time a worker uses the pool, which notices a new primary, instead
 * of the one-shot client. */
#define ONESHOT_MS 1000

/* Stands for the server of the one-shot client, because server ids of that
 * client differ from those of the pool. */
#define SOME_SERVER UINT32_MAX

static _Thread_local struct hf_mongo_worker *current;

/* ---- The run queue ------------------------------------------------------*/

static bool can_run_job(const struct hf_mongo_workers *workers,
                        const struct hf_mongo_job *job)
{
    unsigned same = 0;

    for (struct hf_dlist *link = workers->active.next;
         job->subject && link != &workers->active; link = link->next) {
        const struct hf_mongo_worker *worker =
            HF_CONTAINER(link, struct hf_mongo_worker, link);

        same += worker->job && worker->job->subject == job->subject;
    }
    return same < SAME_SUBJECT_MAX;
}

static struct hf_mongo_job *take_runnable_job(struct hf_mongo_workers *workers,
                                              struct hf_dlist *jobs)
{
    for (struct hf_dlist *link = jobs->next; link != jobs; link = link->next) {
        struct hf_mongo_job *job =
            HF_CONTAINER(link, struct hf_mongo_job, link);

        if (!can_run_job(workers, job))
            continue;
        hf_dlist_remove(link);
        job->started = true;
        job->started_at = hf_time_now();
        return job;
    }
    return NULL;
}

/* How many workers the jobs of this urgency and of lower urgencies may use
 * together. The limits leave workers for renewals, which must not wait for
 * LOCKs or CANCELs that a slow server delays. */
static const unsigned workers_max[HF_MONGO_URGENCIES] = {
    [HF_MONGO_TAKES] = HF_MONGO_WORKERS_MAX - 16,
    [HF_MONGO_WITHDRAWS] = HF_MONGO_WORKERS_MAX - 8,
    [HF_MONGO_KEEPS] = HF_MONGO_WORKERS_MAX,
};

static bool may_use_worker(const struct hf_mongo_workers *workers,
                           enum hf_mongo_urgency urgency)
{
    unsigned running = 0;

    for (unsigned i = 0; i <= (unsigned)urgency; i++)
        running += workers->running[i];
    return running < workers_max[urgency];
}

static struct hf_mongo_job *next_job(struct hf_mongo_workers *workers)
{
    struct hf_mongo_job *job = NULL;

    for (unsigned i = HF_MONGO_URGENCIES; i > 0 && !job; i--)
        if (may_use_worker(workers, (enum hf_mongo_urgency)(i - 1)))
            job = take_runnable_job(workers, &workers->queues[i - 1]);
    return job;
}

static bool has_queued(const struct hf_mongo_workers *workers)
{
    bool any = false;

    for (unsigned i = 0; i < HF_MONGO_URGENCIES; i++)
        any = any || !hf_dlist_is_empty(&workers->queues[i]);
    return any;
}

/* ---- Running a job ------------------------------------------------------*/

static void report_ended(struct hf_mongo_workers *workers,
                         struct hf_mongo_job *job)
{
    struct hf_waker *waker = NULL;

    if (job == workers->awaited) {
        workers->awaited = NULL;
        pthread_cond_signal(&workers->answered);
        return;
    }
    hf_dlist_push_back(&workers->ended, &job->link);
    waker = workers->host->ops->post(workers->host, &workers->post);
    pthread_mutex_unlock(&workers->mutex);
    if (waker)
        hf_waker_wake(waker);
    pthread_mutex_lock(&workers->mutex);
}

static void release_client(struct hf_mongo_worker *worker)
{
    if (worker->oneshot)
        mongoc_client_destroy(worker->client);
    else if (worker->client)
        mongoc_client_pool_push(worker->workers->pool, worker->client);
    worker->client = NULL;
    worker->oneshot = false;
}

/* Take a client for the worker, unless it has one: the one-shot client if this
 * is the `first` job of the pool and the pool was opened less than ONESHOT_MS
 * ago and that client finds a primary, otherwise a client of the pool. After
 * ONESHOT_MS, replace the one-shot client. Blocks; called without the mutex. */
static void take_client(struct hf_mongo_worker *worker, bool first)
{
    struct hf_mongo_workers *workers = worker->workers;
    bool young = hf_time_now() < hf_time_add(workers->opened, ONESHOT_MS);

    if (worker->oneshot && !young)
        release_client(worker);
    if (!worker->client && first && young) {
        worker->client = hf_mongo_oneshot_open(workers->context.address.uri);
        worker->oneshot = worker->client != NULL;
    }
    if (!worker->client)
        worker->client = mongoc_client_pool_pop(workers->pool);
}

static void run_job(struct hf_mongo_worker *worker, struct hf_mongo_job *job)
{
    struct hf_mongo_workers *workers = worker->workers;
    bool first = !workers->has_oneshot;

    worker->job = job;
    worker->urgency = job->urgency;
    worker->server = 0;
    worker->barred = false;
    workers->has_oneshot = true;
    workers->busy++;
    workers->running[worker->urgency]++;
    pthread_mutex_unlock(&workers->mutex);
    take_client(worker, first);
    job->run(job, worker->client, &workers->context);
    pthread_mutex_lock(&workers->mutex);
    if (!worker->orphan) {
        workers->busy--;
        workers->running[worker->urgency]--;
    }
    worker->job = NULL;
    hf_dlist_remove(&job->link); /* from workers->lost */
    if (workers->host)
        report_ended(workers, job);
    else
        job->drop(job);
}

bool hf_mongo_worker_may_send(uint32_t server)
{
    struct hf_mongo_worker *worker = current;
    struct hf_mongo_workers *workers;
    bool may;

    if (!worker)
        return true;
    workers = worker->workers;
    pthread_mutex_lock(&workers->mutex);
    /* libmongoc reports a new primary before it selects that server. So if
     * `server` is not the primary, it was selected from outdated
     * information. */
    may = !worker->barred && (worker->oneshot || workers->primary == 0 ||
                              workers->primary == server);
    if (may)
        worker->server = worker->oneshot ? SOME_SERVER : server;
    pthread_mutex_unlock(&workers->mutex);
    return may;
}

/* ---- Giving up a job ----------------------------------------------------*/

static void *worker_main(void *arg);

static bool start_worker(struct hf_mongo_workers *workers)
{
    bool started = workers->worker_count < HF_MONGO_WORKERS_MAX &&
                   hf_mongo_workers_start_thread(workers, worker_main, workers);

    workers->worker_count += started;
    return started;
}

struct hf_mongo_worker *hf_mongo_worker_find(
    const struct hf_mongo_workers *workers, const struct hf_mongo_job *job)
{
    for (struct hf_dlist *link = workers->active.next; link != &workers->active;
         link = link->next) {
        struct hf_mongo_worker *worker =
            HF_CONTAINER(link, struct hf_mongo_worker, link);

        if (worker->job == job)
            return worker;
    }
    return NULL;
}

void hf_mongo_worker_abandon(struct hf_mongo_worker *worker)
{
    struct hf_mongo_workers *workers = worker->workers;

    hf_dlist_remove(&worker->job->link); /* from workers->lost */
    worker->job = NULL;
    worker->barred = worker->server == 0;
    if (workers->orphan_count >= HF_MONGO_ORPHANS_MAX) {
        hf_mongo_worker_wake(workers); /* jobs of the same subject may run */
        return;
    }
    worker->orphan = true;
    workers->orphan_count++;
    hf_dlist_remove(&worker->link);
    workers->worker_count--;
    workers->busy--;
    workers->running[worker->urgency]--;
    if (!hf_dlist_is_empty(&workers->idle))
        hf_mongo_worker_wake(workers);
    else if (has_queued(workers))
        (void)start_worker(workers);
}

/* Make an orphan a worker again, after libmongoc has returned. Returns false if
 * there are enough workers, so that the thread has to end. */
static bool rejoin_workers(struct hf_mongo_worker *worker)
{
    struct hf_mongo_workers *workers = worker->workers;

    if (!worker->orphan)
        return true;
    if (workers->worker_count >= HF_MONGO_WORKERS_MAX)
        return false;
    worker->orphan = false;
    workers->orphan_count--;
    workers->worker_count++;
    hf_dlist_push_back(&workers->active, &worker->link);
    return true;
}

/* ---- Threads ------------------------------------------------------------*/

void hf_mongo_worker_wake(struct hf_mongo_workers *workers)
{
    struct hf_dlist *link = hf_dlist_take(&workers->idle);

    if (link)
        pthread_cond_signal(
            &HF_CONTAINER(link, struct hf_mongo_worker, idle)->wake);
}

/* Wait until the worker is woken. Returns false if it was idle for IDLE_S, and
 * enough other workers are left, so that its thread can end. */
static bool wait_for_job(struct hf_mongo_worker *worker)
{
    struct hf_mongo_workers *workers = worker->workers;
    struct timespec until;
    int waited = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IDLE_S;
    hf_dlist_push_front(&workers->idle, &worker->idle);
    while (hf_dlist_is_linked(&worker->idle) && waited == 0)
        waited = pthread_cond_clockwait(&worker->wake, &workers->mutex,
                                        CLOCK_MONOTONIC, &until);
    if (!hf_dlist_is_linked(&worker->idle))
        return true;
    hf_dlist_remove(&worker->idle);
    return workers->worker_count <= KEPT_IDLE;
}

static void run_jobs(struct hf_mongo_worker *worker)
{
    struct hf_mongo_workers *workers = worker->workers;
    bool keep_running = true;

    while (workers->host && keep_running) {
        struct hf_mongo_job *job = next_job(workers);

        if (job)
            run_job(worker, job);
        keep_running = job ? rejoin_workers(worker) : wait_for_job(worker);
    }
    if (worker->orphan)
        workers->orphan_count--;
    else
        workers->worker_count--;
    hf_dlist_remove(&worker->link);
}

static void *worker_main(void *arg)
{
    struct hf_mongo_worker worker = {
        .workers = arg,
        .wake = PTHREAD_COND_INITIALIZER,
    };
    struct hf_mongo_workers *workers = arg;

    current = &worker;
    pthread_mutex_lock(&workers->mutex);
    hf_dlist_push_back(&workers->active, &worker.link);
    run_jobs(&worker);
    pthread_mutex_unlock(&workers->mutex);
    current = NULL;
    release_client(&worker);
    pthread_cond_destroy(&worker.wake);
    pthread_mutex_lock(&workers->mutex);
    hf_mongo_workers_unref(workers);
    return NULL;
}

/* Returns true if a worker that is neither idle nor busy is about to take a
 * job, and no other job is queued for it. Then no new worker is needed. */
static bool is_worker_expected(const struct hf_mongo_workers *workers)
{
    return workers->worker_count > workers->busy && !has_queued(workers);
}

bool hf_mongo_worker_enqueue(struct hf_mongo_workers *workers,
                             struct hf_mongo_job *job)
{
    bool runs =
        can_run_job(workers, job) && may_use_worker(workers, job->urgency);

    if (runs && hf_dlist_is_empty(&workers->idle) &&
        !is_worker_expected(workers))
        (void)start_worker(workers);
    if (workers->worker_count == 0)
        return false;
    hf_dlist_push_back(&workers->queues[job->urgency], &job->link);
    if (runs)
        hf_mongo_worker_wake(workers);
    return true;
}
