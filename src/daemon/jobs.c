/* jobs.c - run the blocking jobs of a node in threads. Flushes are started by
 * driver.c. */
#include <string.h>

#include "daemon/daemon.h"

/* ---- Upkeep of the log --------------------------------------------------*/

static void run_upkeep(void *arg)
{
    struct hf_daemon *daemon = arg;

    hf_wal_upkeep_run(&daemon->upkeep);
}

static void on_upkeep_done(void *arg)
{
    struct hf_daemon *daemon = arg;

    hf_daemon_begin_input(daemon);
    hf_node_upkeep_end(daemon->node, &daemon->upkeep);
}

/* ---- Snapshots ----------------------------------------------------------*/

static void run_node_job(void *arg)
{
    struct hf_daemon *daemon = arg;

    hf_node_job_run(daemon->job);
}

static void on_worker_done(void *arg)
{
    struct hf_daemon *daemon = arg;
    struct hf_node_job *job = daemon->job;

    daemon->job = NULL;
    hf_daemon_begin_input(daemon);
    hf_node_job_end(daemon->node, job);
}

/* ---- Starting jobs and workers ------------------------------------------*/

void hf_daemon_start_jobs(struct hf_daemon *daemon)
{
    if (daemon->state == HF_DAEMON_ENDED)
        return;
    if (!daemon->upkeeper.busy &&
        hf_node_upkeep_begin(daemon->node, &daemon->upkeep))
        hf_worker_start(&daemon->upkeeper, run_upkeep, on_upkeep_done, daemon);
    if (!daemon->snapshotter.busy &&
        (daemon->job = hf_node_job_begin(daemon->node)))
        hf_worker_start(&daemon->snapshotter, run_node_job, on_worker_done,
                        daemon);
}

enum hf_err hf_daemon_open_workers(struct hf_daemon *daemon,
                                   struct hf_error *error)
{
    int rc = hf_worker_open(&daemon->flusher, &daemon->loop);

    if (!rc)
        rc = hf_worker_open(&daemon->upkeeper, &daemon->loop);
    if (!rc)
        rc = hf_worker_open(&daemon->snapshotter, &daemon->loop);
    return rc ? hf_error_set(error, HF_ESYSTEM, "cannot start a thread: %s",
                             strerror(-rc))
              : HF_OK;
}

void hf_daemon_close_workers(struct hf_daemon *daemon)
{
    hf_worker_close(&daemon->flusher);
    hf_worker_close(&daemon->upkeeper);
    hf_worker_close(&daemon->snapshotter);
}
