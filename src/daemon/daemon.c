#include "daemon/daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "base/container.h"
#include "daemon/notice.h"

static const int stop_signals[HF_DAEMON_SIGNALS] = {SIGTERM, SIGINT, SIGHUP};

/* ---- Shutdown -----------------------------------------------------------*/

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* Close everything, so that the loop ends. */
static void end_daemon(struct hf_daemon *daemon)
{
    if (daemon->state == HF_DAEMON_ENDED)
        return;
    daemon->state = HF_DAEMON_ENDED;
    hf_listener_close(&daemon->clients);
    daemon->mode->close_peers(daemon);
    hf_streams_close_all(&daemon->streams);
    daemon->mode->stop(daemon);
    uv_walk(&daemon->loop, close_handle, NULL);
}

/* From now on a signal kills the process at once, even if this thread waits for
 * a disk that hangs. That is as safe as a crash. */
static void stop_catching_signals(struct hf_daemon *daemon)
{
    for (size_t i = 0; i < HF_DAEMON_SIGNALS; i++)
        (void)uv_signal_stop(&daemon->signals[i]);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct hf_daemon *daemon = handle->data;

    stop_catching_signals(daemon);
    if (daemon->state != HF_DAEMON_RUNNING)
        return;
    hf_notice("stopping: signal %d", number);
    daemon->state = HF_DAEMON_LEAVING;
    hf_listener_close(&daemon->clients);
    hf_daemon_begin_input(daemon);
    daemon->mode->shutdown(daemon);
}

/* ---- Turns --------------------------------------------------------------*/

void hf_daemon_begin_input(struct hf_daemon *daemon)
{
    daemon->mode->set_time(daemon, hf_time_now());
    daemon->dirty = true;
}

static void on_timer(uv_timer_t *timer)
{
    struct hf_daemon *daemon = HF_CONTAINER(timer, struct hf_daemon, timer);

    daemon->armed = HF_NEVER;
    daemon->dirty = true;
}

/* Set the timer to the node's deadline. */
static void arm_turn_timer(struct hf_daemon *daemon, hf_time now)
{
    hf_time deadline = daemon->mode->deadline(daemon);

    if (deadline == daemon->armed)
        return;
    daemon->armed = deadline;
    if (deadline == HF_NEVER) {
        (void)uv_timer_stop(&daemon->timer);
        return;
    }
    uv_update_time(&daemon->loop);
    (void)uv_timer_start(&daemon->timer, on_timer, hf_time_left(deadline, now),
                         0);
}

void hf_daemon_turn(struct hf_daemon *daemon)
{
    hf_time now = hf_time_now();

    if (!daemon->dirty || daemon->state == HF_DAEMON_ENDED)
        return;
    daemon->dirty = false;
    daemon->mode->turn(daemon, now);
    hf_streams_reap(&daemon->streams);
    hf_daemon_report_backlog(daemon);
    if (daemon->error.code ||
        (daemon->state == HF_DAEMON_LEAVING && daemon->mode->has_left(daemon)))
        end_daemon(daemon);
    else
        arm_turn_timer(daemon, now);
}

/* ---- Startup ------------------------------------------------------------*/

/* A timer has reported input: do not wait for more before the turn. */
static void on_prepare(uv_prepare_t *handle)
{
    struct hf_daemon *daemon = HF_CONTAINER(handle, struct hf_daemon, prepare);

    if (daemon->dirty)
        uv_stop(&daemon->loop);
}

static int start_loop(struct hf_daemon *daemon)
{
    int rc = uv_timer_init(&daemon->loop, &daemon->timer);

    if (!rc)
        rc = uv_prepare_init(&daemon->loop, &daemon->prepare);
    if (!rc)
        rc = uv_prepare_start(&daemon->prepare, on_prepare);
    for (size_t i = 0; !rc && i < HF_DAEMON_SIGNALS; i++) {
        rc = uv_signal_init(&daemon->loop, &daemon->signals[i]);
        daemon->signals[i].data = daemon;
        if (!rc)
            rc = uv_signal_start(&daemon->signals[i], on_signal,
                                 stop_signals[i]);
    }
    return rc;
}

static enum hf_err open_daemon(struct hf_daemon *daemon, struct hf_error *error)
{
    int rc = start_loop(daemon);
    enum hf_err err;

    if (rc)
        return hf_error_set(error, HF_ESYSTEM, "cannot start the loop: %s",
                            uv_strerror(rc));
    err = daemon->mode->start(daemon, error);
    return err ? err : hf_daemon_listen(daemon, error);
}

/* A standard descriptor must stay open: otherwise it would become that of a
 * file or a client, to which lines for stderr would be written. */
static void close_ready_fd(int fd)
{
    int null = fd <= STDERR_FILENO ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;

    if (null < 0) {
        (void)close(fd);
        return;
    }
    (void)dup2(null, fd);
    (void)close(null);
}

static void report_ready(const struct hf_daemon *daemon, int ready_fd)
{
    daemon->mode->report_ready(daemon);
    if (ready_fd < 0)
        return;
    (void)!write(ready_fd, "ready\n", 6);
    close_ready_fd(ready_fd);
}

/* Run the loop until everything is closed. The node is open. */
static enum hf_err run_loop(struct hf_daemon *daemon, int ready_fd,
                            struct hf_error *error)
{
    enum hf_err err = hf_streams_init(&daemon->streams, &daemon->loop);

    if (err)
        return hf_error_set_code(error, err);
    err = open_daemon(daemon, error);
    if (!err) {
        report_ready(daemon, ready_fd);
        daemon->dirty = true;
        err = daemon->mode->drive(daemon, error);
    }
    if (err) {
        end_daemon(daemon);
        (void)uv_run(&daemon->loop, UV_RUN_DEFAULT);
    }
    hf_streams_fini(&daemon->streams);
    if (!err && daemon->error.code)
        *error = daemon->error;
    return err ? err : daemon->error.code;
}

enum hf_err hf_daemon_run(const struct hf_config *config, struct hf_disk *disk,
                          int ready_fd, struct hf_error *error)
{
    struct hf_daemon daemon = {
        .mode = config->mode == HF_MODE_QUORUM ? &hf_daemon_quorum
                                               : &hf_daemon_raft,
        .config = config,
        .disk = disk,
        .armed = HF_NEVER,
    };
    enum hf_err err;
    int rc = uv_loop_init(&daemon.loop);

    if (rc)
        return hf_error_set(error, HF_ESYSTEM, "cannot start the loop: %s",
                            uv_strerror(rc));
    hf_dlist_init(&daemon.backlog);
    hf_random_init(&daemon.random, 0);
    daemon.clients_max = hf_daemon_clients_max();
    err = daemon.mode->open(&daemon, error);
    if (!err) {
        err = run_loop(&daemon, ready_fd, error);
        daemon.mode->close(&daemon);
    }
    (void)uv_loop_close(&daemon.loop);
    return err;
}
