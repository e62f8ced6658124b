/* worker.h - a thread that runs one blocking job at a time for the loop.
 *
 * The loop starts a job. When the job has ended, its `done` runs on the loop. A
 * node has one worker for flushes, one for the upkeep of the log and one for
 * snapshots, so that a flush never waits for a snapshot. */
#ifndef HF_DAEMON_WORKER_H
#define HF_DAEMON_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <uv.h>

struct hf_worker {
    uv_async_t finished;
    bool busy; /* from hf_worker_start() until `done` is called; loop only */
    void (*run)(void *arg);
    void (*done)(void *arg);
    void *arg;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool queued; /* a job waits for the thread */
    bool ended;  /* the job has ended; `done` was not called yet */
    bool stop;
};

/* Start the thread. Returns 0 or a negative errno value. */
int hf_worker_open(struct hf_worker *worker, uv_loop_t *loop);

/* Run `run` on the thread, then `done` on the loop. The worker must not be
 * busy. */
void hf_worker_start(struct hf_worker *worker, void (*run)(void *arg),
                     void (*done)(void *arg), void *arg);

/* Wait for the running job, if any, call its `done`, and end the thread. The
 * memory may be freed once the loop has closed the handle `finished`. */
void hf_worker_close(struct hf_worker *worker);

#endif
