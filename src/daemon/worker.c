#include "daemon/worker.h"

#include "base/assert.h"
#include "base/container.h"
#include "base/thread.h"

static void *daemon_worker_main(void *arg)
{
    struct hf_worker *worker = arg;

    (void)pthread_mutex_lock(&worker->mutex);
    while (worker->queued || !worker->stop) {
        if (!worker->queued) {
            (void)pthread_cond_wait(&worker->changed, &worker->mutex);
            continue;
        }
        worker->queued = false;
        (void)pthread_mutex_unlock(&worker->mutex);
        worker->run(worker->arg);
        (void)pthread_mutex_lock(&worker->mutex);
        worker->ended = true;
        (void)pthread_mutex_unlock(&worker->mutex);
        /* Unlocked, because the loop locks the mutex when it wakes up. */
        (void)uv_async_send(&worker->finished);
        (void)pthread_mutex_lock(&worker->mutex);
    }
    (void)pthread_mutex_unlock(&worker->mutex);
    return NULL;
}

/* libuv may call this although no job has ended. */
static void on_finished(uv_async_t *handle)
{
    struct hf_worker *worker = HF_CONTAINER(handle, struct hf_worker, finished);
    bool ended;

    (void)pthread_mutex_lock(&worker->mutex);
    ended = worker->ended;
    worker->ended = false;
    (void)pthread_mutex_unlock(&worker->mutex);
    if (!ended)
        return;
    worker->busy = false;
    worker->done(worker->arg);
}

int hf_worker_open(struct hf_worker *worker, uv_loop_t *loop)
{
    int rc = uv_async_init(loop, &worker->finished, on_finished);

    if (rc)
        return rc;
    worker->busy = worker->queued = worker->ended = worker->stop = false;
    (void)pthread_mutex_init(&worker->mutex, NULL);
    (void)pthread_cond_init(&worker->changed, NULL);
    rc = hf_thread_start(&worker->thread, daemon_worker_main, worker);
    if (rc)
        uv_close((uv_handle_t *)&worker->finished, NULL);
    return -rc;
}

void hf_worker_start(struct hf_worker *worker, void (*run)(void *arg),
                     void (*done)(void *arg), void *arg)
{
    HF_ASSERT(!worker->busy);
    worker->busy = true;
    (void)pthread_mutex_lock(&worker->mutex);
    worker->run = run;
    worker->done = done;
    worker->arg = arg;
    worker->queued = true;
    (void)pthread_mutex_unlock(&worker->mutex);
    /* Unlocked, because the thread locks the mutex when it wakes up. */
    (void)pthread_cond_signal(&worker->changed);
}

void hf_worker_close(struct hf_worker *worker)
{
    (void)pthread_mutex_lock(&worker->mutex);
    worker->stop = true;
    (void)pthread_cond_signal(&worker->changed);
    (void)pthread_mutex_unlock(&worker->mutex);
    (void)pthread_join(worker->thread, NULL);
    (void)pthread_cond_destroy(&worker->changed);
    (void)pthread_mutex_destroy(&worker->mutex);
    if (worker->busy)
        worker->done(worker->arg);
    worker->busy = false;
    uv_close((uv_handle_t *)&worker->finished, NULL);
}
