#include "strategy/mongo/worker.h"

#include <errno.h>
#include <time.h>

/* Commands on one document conflict: the server restarts the later ones, and
 * under load some of them are restarted for a long time. */
#define SAME_SUBJECT_MAX 1

#define KEPT_IDLE 8 /* workers that stay when there is nothing to do */
#define IDLE_S 5    /* how long the others stay */

/* A program that lives longer is served by the pool, which notices when the
 * primary changes. */
#define ONESHOT_MS 1000

/* The server of a one-shot client: the pool's ids say nothing about it. */
#define SOME_SERVER UINT32_MAX

static _Thread_local struct hf_mongo_worker *current;

/* ---- Which job is next --------------------------------------------------*/

static bool may_run(const struct hf_mongo_crew *crew,
                    const struct hf_mongo_job *job)
{
    unsigned same = 0;

    for (struct hf_list *link = crew->workers.next;
         job->subject && link != &crew->workers; link = link->next) {
        const struct hf_mongo_worker *worker =
            HF_CONTAINER(link, struct hf_mongo_worker, link);

        same += worker->job && worker->job->subject == job->subject;
    }
    return same < SAME_SUBJECT_MAX;
}

static struct hf_mongo_job *take_job(struct hf_mongo_crew *crew,
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

/* How many workers jobs of one urgency may use, with those that are less urgent:
 * renewals must not wait for LOCKs or CANCELs that a slow server holds up. */
static const unsigned workers_max[HF_MONGO_URGENCIES] = {
    [HF_MONGO_TAKES] = HF_MONGO_WORKERS_MAX - 16,
    [HF_MONGO_WITHDRAWS] = HF_MONGO_WORKERS_MAX - 8,
    [HF_MONGO_KEEPS] = HF_MONGO_WORKERS_MAX,
};

static bool has_worker(const struct hf_mongo_crew *crew,
                       enum hf_mongo_urgency urgency)
{
    unsigned running = 0;

    for (unsigned i = 0; i <= (unsigned)urgency; i++)
        running += crew->running[i];
    return running < workers_max[urgency];
}

static struct hf_mongo_job *next_job(struct hf_mongo_crew *crew)
{
    struct hf_mongo_job *job = NULL;

    for (unsigned i = HF_MONGO_URGENCIES; i > 0 && !job; i--)
        if (has_worker(crew, (enum hf_mongo_urgency)(i - 1)))
            job = take_job(crew, &crew->queues[i - 1]);
    return job;
}

static bool has_queued(const struct hf_mongo_crew *crew)
{
    bool any = false;

    for (unsigned i = 0; i < HF_MONGO_URGENCIES; i++)
        any = any || !hf_list_empty(&crew->queues[i]);
    return any;
}

/* ---- Running it ---------------------------------------------------------*/

static void report_ended(struct hf_mongo_crew *crew, struct hf_mongo_job *job)
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

static void drop_client(struct hf_mongo_worker *worker)
{
    if (worker->oneshot)
        mongoc_client_destroy(worker->client);
    else if (worker->client)
        mongoc_client_pool_push(worker->crew->pool, worker->client);
    worker->client = NULL;
    worker->oneshot = false;
}

/* Without the mutex. `first`: no other worker may have the one-shot client. */
static void take_client(struct hf_mongo_worker *worker, bool first)
{
    struct hf_mongo_crew *crew = worker->crew;
    bool young = hf_time_now() < hf_time_add(crew->opened, ONESHOT_MS);

    if (worker->oneshot && !young)
        drop_client(worker);
    if (!worker->client && first && young) {
        worker->client = hf_mongo_oneshot_open(crew->place.address.uri);
        worker->oneshot = worker->client != NULL;
    }
    if (!worker->client)
        worker->client = mongoc_client_pool_pop(crew->pool);
}

static void run_job(struct hf_mongo_worker *worker, struct hf_mongo_job *job)
{
    struct hf_mongo_crew *crew = worker->crew;
    bool first = !crew->has_oneshot;

    worker->job = job;
    worker->urgency = job->urgency;
    worker->server = 0;
    worker->barred = false;
    crew->has_oneshot = true;
    crew->busy++;
    crew->running[worker->urgency]++;
    pthread_mutex_unlock(&crew->mutex);
    take_client(worker, first);
    job->run(job, worker->client, &crew->place);
    pthread_mutex_lock(&crew->mutex);
    if (!worker->orphan) {
        crew->busy--;
        crew->running[worker->urgency]--;
    }
    worker->job = NULL;
    hf_list_remove(&job->link); /* of those that are lost: it is not */
    if (crew->host)
        report_ended(crew, job);
    else
        job->drop(job);
}

bool hf_mongo_crew_may_send(uint32_t server)
{
    struct hf_mongo_worker *worker = current;
    struct hf_mongo_crew *crew;
    bool may;

    if (!worker)
        return true;
    crew = worker->crew;
    pthread_mutex_lock(&crew->mutex);
    /* libmongoc reports a new primary before it selects it for anyone: another
     * one has been selected from what is out of date. */
    may = !worker->barred &&
          (worker->oneshot || crew->primary == 0 || crew->primary == server);
    if (may)
        worker->server = worker->oneshot ? SOME_SERVER : server;
    pthread_mutex_unlock(&crew->mutex);
    return may;
}

/* ---- Giving it up -------------------------------------------------------*/

static void *worker_main(void *arg);

static bool start_worker(struct hf_mongo_crew *crew)
{
    bool started = crew->worker_count < HF_MONGO_WORKERS_MAX &&
                   hf_mongo_crew_start_thread(crew, worker_main, crew);

    crew->worker_count += started;
    return started;
}

struct hf_mongo_worker *hf_mongo_worker_find(const struct hf_mongo_crew *crew,
                                             const struct hf_mongo_job *job)
{
    for (struct hf_list *link = crew->workers.next; link != &crew->workers;
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
    struct hf_mongo_crew *crew = worker->crew;

    hf_list_remove(&worker->job->link); /* of those that are lost */
    worker->job = NULL;
    worker->barred = worker->server == 0;
    if (crew->orphan_count >= HF_MONGO_ORPHANS_MAX) {
        hf_mongo_worker_wake(crew); /* others of its subject may run */
        return;
    }
    worker->orphan = true;
    crew->orphan_count++;
    hf_list_remove(&worker->link);
    crew->worker_count--;
    crew->busy--;
    crew->running[worker->urgency]--;
    if (!hf_list_empty(&crew->idle))
        hf_mongo_worker_wake(crew);
    else if (has_queued(crew))
        (void)start_worker(crew);
}

/* libmongoc has returned, and the orphan can be of use again. False: there are
 * enough without it. */
static bool rejoin(struct hf_mongo_worker *worker)
{
    struct hf_mongo_crew *crew = worker->crew;

    if (!worker->orphan)
        return true;
    if (crew->worker_count >= HF_MONGO_WORKERS_MAX)
        return false;
    worker->orphan = false;
    crew->orphan_count--;
    crew->worker_count++;
    hf_list_push_back(&crew->workers, &worker->link);
    return true;
}

/* ---- Threads ------------------------------------------------------------*/

void hf_mongo_worker_wake(struct hf_mongo_crew *crew)
{
    struct hf_list *link = hf_list_take(&crew->idle);

    if (link)
        pthread_cond_signal(
            &HF_CONTAINER(link, struct hf_mongo_worker, idle)->wake);
}

/* False: it has been idle for long enough, and others are left. */
static bool rest(struct hf_mongo_worker *worker)
{
    struct hf_mongo_crew *crew = worker->crew;
    struct timespec until;
    int waited = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IDLE_S;
    hf_list_push_front(&crew->idle, &worker->idle);
    while (hf_list_linked(&worker->idle) && waited == 0)
        waited = pthread_cond_clockwait(&worker->wake, &crew->mutex,
                                        CLOCK_MONOTONIC, &until);
    if (!hf_list_linked(&worker->idle))
        return true;
    hf_list_remove(&worker->idle);
    return crew->worker_count <= KEPT_IDLE;
}

static void work(struct hf_mongo_worker *worker)
{
    struct hf_mongo_crew *crew = worker->crew;
    bool stays = true;

    while (crew->host && stays) {
        struct hf_mongo_job *job = next_job(crew);

        if (job)
            run_job(worker, job);
        stays = job ? rejoin(worker) : rest(worker);
    }
    if (worker->orphan)
        crew->orphan_count--;
    else
        crew->worker_count--;
    hf_list_remove(&worker->link);
}

static void *worker_main(void *arg)
{
    struct hf_mongo_worker worker = {
        .crew = arg,
        .wake = PTHREAD_COND_INITIALIZER,
    };
    struct hf_mongo_crew *crew = arg;

    current = &worker;
    pthread_mutex_lock(&crew->mutex);
    hf_list_push_back(&crew->workers, &worker.link);
    work(&worker);
    pthread_mutex_unlock(&crew->mutex);
    current = NULL;
    drop_client(&worker);
    pthread_cond_destroy(&worker.wake);
    pthread_mutex_lock(&crew->mutex);
    hf_mongo_crew_leave(crew);
    return NULL;
}

/* Whether a worker that is not idle yet is about to look for a job, and finds
 * no other. */
static bool is_expected(const struct hf_mongo_crew *crew)
{
    return crew->worker_count > crew->busy && !has_queued(crew);
}

bool hf_mongo_worker_enqueue(struct hf_mongo_crew *crew,
                             struct hf_mongo_job *job)
{
    bool runs = may_run(crew, job) && has_worker(crew, job->urgency);

    if (runs && hf_list_empty(&crew->idle) && !is_expected(crew))
        (void)start_worker(crew);
    if (crew->worker_count == 0)
        return false;
    hf_list_push_back(&crew->queues[job->urgency], &job->link);
    if (runs)
        hf_mongo_worker_wake(crew);
    return true;
}
