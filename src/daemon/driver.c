/* driver.c - the two threads that drive the loop in turn.
 *
 * A flush usually takes less than a millisecond. To pass it to another thread
 * and its end back to the loop would cost two wake-ups, at each node and for
 * each command. So the driver, the thread that runs the loop, flushes the log
 * itself. Meanwhile the other thread, the standby, is allowed to take the loop.
 * It takes it if the flush has not ended within HF_DAEMON_CHECK_MS to twice
 * that: however long a disk takes, peers and clients are served. Then the
 * former driver reports the end of its flush to the loop, and stands by.
 *
 * A flush that is large, or follows one that took long, is passed to a worker,
 * so that the driver receives the next batch meanwhile.
 *
 * Neither is the main thread, which must be able to receive a signal while a
 * disk hangs. See docs/decisions/0035-a-flush-in-the-loop.md. */
#include <string.h>
#include <time.h>

#include "base/container.h"
#include "base/limits.h"
#include "base/thread.h"
#include "daemon/daemon.h"

/* ---- The driver ---------------------------------------------------------*/

static void run_flush(void *arg)
{
    struct hf_daemon *daemon = arg;
    uint64_t began = uv_hrtime();

    hf_wal_flush_run(&daemon->flush);
    daemon->flush_ns = uv_hrtime() - began;
}

/* Let the standby take the loop if this takes long. Returns false if it did. */
static bool flush_log_here(struct hf_daemon *daemon)
{
    struct hf_driver *driver = &daemon->driver;
    bool is_kept;

    (void)pthread_mutex_lock(&driver->mutex);
    driver->flushes++;
    driver->is_offered = true;
    if (!driver->is_watched)
        (void)pthread_cond_signal(&driver->changed);
    driver->is_watched = true;
    (void)pthread_mutex_unlock(&driver->mutex);
    run_flush(daemon);
    (void)pthread_mutex_lock(&driver->mutex);
    is_kept = driver->is_offered;
    driver->is_offered = false;
    driver->has_flushed = true;
    if (!is_kept) {
        /* Under the mutex, because the loop may be closed after it. */
        (void)uv_async_send(&driver->flushed);
        (void)pthread_cond_signal(&driver->changed);
    }
    (void)pthread_mutex_unlock(&driver->mutex);
    return is_kept;
}

static void report_flush(struct hf_daemon *daemon)
{
    daemon->is_flushing = false;
    hf_daemon_begin_input(daemon);
    hf_node_flush_end(daemon->node, &daemon->flush);
}

/* Report to the node that the flush has ended, if it has. */
static void end_flush(struct hf_daemon *daemon)
{
    struct hf_driver *driver = &daemon->driver;
    bool has_flushed;

    (void)pthread_mutex_lock(&driver->mutex);
    has_flushed = driver->has_flushed;
    driver->has_flushed = false;
    (void)pthread_mutex_unlock(&driver->mutex);
    if (has_flushed)
        report_flush(daemon);
}

static void on_flushed(uv_async_t *handle)
{
    end_flush(HF_CONTAINER(handle, struct hf_daemon, driver.flushed));
}

static void on_worker_flushed(void *arg)
{
    report_flush(arg);
}

static bool begin_flush(struct hf_daemon *daemon)
{
    if (daemon->is_flushing || daemon->state == HF_DAEMON_ENDED ||
        !hf_node_flush_begin(daemon->node, &daemon->flush))
        return false;
    daemon->is_flushing = true;
    return true;
}

static void end_driving(struct hf_driver *driver)
{
    (void)pthread_mutex_lock(&driver->mutex);
    driver->has_ended = true;
    (void)pthread_cond_signal(&driver->changed);
    (void)pthread_mutex_unlock(&driver->mutex);
}

/* A large flush means that the next batch is already arriving. If the disk is
 * slow, two wake-ups hardly count. */
static bool is_for_worker(const struct hf_daemon *daemon)
{
    return daemon->flush.size >= HF_DAEMON_LARGE_FLUSH ||
           daemon->flush_ns >= HF_DAEMON_SLOW_FLUSH_NS;
}

/* Run the loop until all of its handles are closed, or the standby has taken
 * it. After a flush, first look for input that has arrived meanwhile, so that
 * one turn handles all of it. */
static void drive_loop(struct hf_daemon *daemon)
{
    while (uv_run(&daemon->loop, daemon->dirty ? UV_RUN_NOWAIT : UV_RUN_ONCE) !=
           0) {
        if (daemon->dirty)
            hf_daemon_turn(daemon);
        if (!begin_flush(daemon))
            continue;
        if (is_for_worker(daemon)) {
            hf_worker_start(&daemon->flusher, run_flush, on_worker_flushed,
                            daemon);
            continue;
        }
        if (!flush_log_here(daemon))
            return;
        end_flush(daemon);
    }
    end_driving(&daemon->driver);
}

/* ---- The standby --------------------------------------------------------*/

/* One system call, while a wait for `changed` would need three. */
static void sleep_until_check(struct hf_driver *driver)
{
    static const struct timespec span = {.tv_nsec =
                                             HF_DAEMON_CHECK_MS * 1000000L};

    (void)pthread_mutex_unlock(&driver->mutex);
    (void)nanosleep(&span, NULL);
    (void)pthread_mutex_lock(&driver->mutex);
}

/* Check the flushes from time to time while there are any. To wake the standby
 * for each flush would cost what is saved by not passing it to a thread.
 * Returns true if this thread has to drive, false if the loop has ended. */
static bool await_long_flush(struct hf_driver *driver)
{
    bool is_taken = false;

    (void)pthread_mutex_lock(&driver->mutex);
    while (!driver->has_ended && !is_taken) {
        uint64_t seen = driver->flushes;

        if (driver->is_watched)
            sleep_until_check(driver);
        else
            (void)pthread_cond_wait(&driver->changed, &driver->mutex);
        if (driver->flushes != seen)
            continue;
        is_taken = driver->is_offered;
        driver->is_watched = is_taken;
    }
    driver->is_offered = false;
    (void)pthread_mutex_unlock(&driver->mutex);
    return is_taken;
}

/* ---- Threads ------------------------------------------------------------*/

static void *standby_main(void *arg)
{
    struct hf_daemon *daemon = arg;

    while (await_long_flush(&daemon->driver))
        drive_loop(daemon);
    return NULL;
}

static void *driver_main(void *arg)
{
    drive_loop(arg);
    return standby_main(arg);
}

void hf_daemon_await_flush(struct hf_daemon *daemon)
{
    struct hf_driver *driver = &daemon->driver;

    (void)pthread_mutex_lock(&driver->mutex);
    while (daemon->is_flushing && !driver->has_flushed)
        (void)pthread_cond_wait(&driver->changed, &driver->mutex);
    (void)pthread_mutex_unlock(&driver->mutex);
    end_flush(daemon);
}

int hf_daemon_open_driver(struct hf_daemon *daemon)
{
    return uv_async_init(&daemon->loop, &daemon->driver.flushed, on_flushed);
}

enum hf_err hf_daemon_drive(struct hf_daemon *daemon, struct hf_error *error)
{
    pthread_t threads[2];
    int rc = hf_thread_start(&threads[0], standby_main, daemon);

    if (rc)
        return hf_error_set(error, HF_ESYSTEM, "cannot start a thread: %s",
                            strerror(rc));
    rc = hf_thread_start(&threads[1], driver_main, daemon);
    if (rc) /* the standby runs already, so drive in this thread */
        (void)driver_main(daemon);
    else
        (void)pthread_join(threads[1], NULL);
    (void)pthread_join(threads[0], NULL);
    return HF_OK;
}
