#include "daemon/daemon.h"

#include <inttypes.h>
#include <signal.h>
#include <unistd.h>

#include "base/container.h"
#include "daemon/notice.h"

#define REPORT_MS 100 /* pause between checks for a change to report */

static const int stop_signals[] = {SIGTERM, SIGINT, SIGHUP};

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
    hf_dialer_close(&daemon->dialer);
    hf_streams_close_all(&daemon->streams);
    if (daemon->has_workers)
        hf_daemon_close_workers(daemon);
    uv_walk(&daemon->loop, close_handle, NULL);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct hf_daemon *daemon = handle->data;

    if (daemon->state == HF_DAEMON_LEAVING) {
        end_daemon(daemon);
        return;
    }
    if (daemon->state == HF_DAEMON_ENDED)
        return;
    hf_notice("stopping: signal %d", number);
    daemon->state = HF_DAEMON_LEAVING;
    hf_listener_close(&daemon->clients);
    hf_node_shutdown(daemon->node);
    daemon->dirty = true;
}

/* ---- Reports --------------------------------------------------------------*/

static const char *role_name(enum hf_node_role role)
{
    switch (role) {
    case HF_NODE_FOLLOWER:
        return "follower";
    case HF_NODE_CANDIDATE:
        return "candidate";
    case HF_NODE_LEADER:
        return "leader";
    }
    return "unknown";
}

static void report_changes(struct hf_daemon *daemon, hf_time now)
{
    struct hf_node_status *old = &daemon->status;
    struct hf_node_status status;

    if (now - daemon->status_at < REPORT_MS)
        return;
    daemon->status_at = now;
    hf_node_status(daemon->node, &status);
    if (status.role != old->role || status.term != old->term ||
        status.leader != old->leader)
        hf_notice("%s in term %" PRIu64 ", leader %" PRIu64,
                  role_name(status.role), status.term, status.leader);
    if (status.low_space != old->low_space)
        hf_notice("%s", status.low_space
                            ? "the disk is full: new locks are refused"
                            : "the disk has space again");
    *old = status;
}

/* ---- Turns --------------------------------------------------------------*/

static void on_timer(uv_timer_t *timer)
{
    struct hf_daemon *daemon = HF_CONTAINER(timer, struct hf_daemon, timer);

    daemon->armed = HF_NEVER;
    daemon->dirty = true;
}

/* Set the timer to the node's deadline, or to now if there is more input
 * already. */
static void arm_turn_timer(struct hf_daemon *daemon, hf_time now)
{
    hf_time deadline = daemon->dirty ? now : hf_node_deadline(daemon->node);

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

static void run_turn(struct hf_daemon *daemon)
{
    hf_time now = hf_time_now();

    daemon->dirty = false;
    hf_node_turn(daemon->node, now);
    hf_streams_reap(&daemon->streams);
    hf_daemon_report_backlog(daemon);
    hf_daemon_start_jobs(daemon);
    report_changes(daemon, now);
    if (daemon->error.code ||
        (daemon->state == HF_DAEMON_LEAVING && hf_node_has_left(daemon->node)))
        end_daemon(daemon);
    else
        arm_turn_timer(daemon, now);
}

/* The callbacks of the loop have reported input to the node. The node acts on
 * all of it now, before the loop waits for more. */
static void on_prepare(uv_prepare_t *handle)
{
    struct hf_daemon *daemon = HF_CONTAINER(handle, struct hf_daemon, prepare);

    if (daemon->dirty)
        run_turn(daemon);
}

/* ---- Peers --------------------------------------------------------------*/

static void on_peer_up(void *arg, uint64_t peer, uint64_t stream)
{
    struct hf_daemon *daemon = arg;

    hf_node_on_peer_up(daemon->node, peer, stream);
    daemon->dirty = true;
}

static void on_peer_down(void *arg, uint64_t peer, bool refused)
{
    struct hf_daemon *daemon = arg;

    hf_node_on_peer_down(daemon->node, peer, refused);
    daemon->dirty = true;
}

/* ---- Startup ------------------------------------------------------------*/

static enum hf_err open_node(struct hf_daemon *daemon, struct hf_error *error)
{
    const struct hf_config *config = daemon->config;
    struct hf_node_member members[HF_RAFT_VOTERS_MAX];
    struct hf_node_opts opts = {
        .cluster = config->cluster,
        .id = config->node,
        .members = members,
        .member_count = config->member_count,
        .election_ms = config->election_ms,
        .heartbeat_ms = config->heartbeat_ms,
    };

    for (size_t i = 0; i < config->member_count; i++)
        members[i] = (struct hf_node_member){
            .id = config->members[i].id,
            .peer_address = config->members[i].peer.text,
            .client_address = config->members[i].client.text,
        };
    if (hf_random_bytes(&daemon->random, &opts.seed, sizeof(opts.seed)))
        return hf_error_set(error, HF_ESYSTEM,
                            "the kernel has no random "
                            "numbers");
    return hf_node_open(&opts, &hf_daemon_ops, daemon, daemon->disk,
                        hf_time_now(), &daemon->node, error);
}

static int start_loop(struct hf_daemon *daemon)
{
    int rc = uv_prepare_init(&daemon->loop, &daemon->prepare);

    if (!rc)
        rc = uv_timer_init(&daemon->loop, &daemon->timer);
    for (size_t i = 0; !rc && i < 3; i++) {
        rc = uv_signal_init(&daemon->loop, &daemon->signals[i]);
        daemon->signals[i].data = daemon;
        if (!rc)
            rc = uv_signal_start(&daemon->signals[i], on_signal,
                                 stop_signals[i]);
    }
    return rc ? rc : uv_prepare_start(&daemon->prepare, on_prepare);
}

static enum hf_err open_daemon(struct hf_daemon *daemon, struct hf_error *error)
{
    int rc = start_loop(daemon);
    enum hf_err err;

    if (rc)
        return hf_error_set(error, HF_ESYSTEM, "cannot start the loop: %s",
                            uv_strerror(rc));
    err = hf_daemon_listen(daemon, error);
    if (!err)
        err = hf_dialer_open(&daemon->dialer, daemon->config, error);
    if (!err)
        err = hf_daemon_open_workers(daemon, error);
    daemon->has_workers = !err;
    return err;
}

static void report_ready(const struct hf_daemon *daemon, int ready_fd)
{
    const struct hf_config_member *self =
        hf_config_find(daemon->config, daemon->config->node);

    hf_notice("ready: clients at %s, peers at %s", self->client.text,
              self->peer.text);
    if (ready_fd < 0)
        return;
    (void)!write(ready_fd, "ready\n", 6);
    (void)close(ready_fd);
}

/* Run the loop until everything is closed. The node is open. */
static enum hf_err run_loop(struct hf_daemon *daemon, int ready_fd,
                            struct hf_error *error)
{
    enum hf_err err = hf_streams_init(&daemon->streams, &daemon->loop);

    if (err)
        return hf_error_set_code(error, err);
    err = open_daemon(daemon, error);
    if (err) {
        end_daemon(daemon);
    } else {
        report_ready(daemon, ready_fd);
        daemon->dirty = true;
    }
    (void)uv_run(&daemon->loop, UV_RUN_DEFAULT);
    hf_streams_fini(&daemon->streams);
    if (!err && daemon->error.code)
        *error = daemon->error;
    return err ? err : daemon->error.code;
}

enum hf_err hf_daemon_run(const struct hf_config *config, struct hf_disk *disk,
                          int ready_fd, struct hf_error *error)
{
    struct hf_daemon daemon = {
        .config = config,
        .disk = disk,
        .armed = HF_NEVER,
        .dialer = {.streams = &daemon.streams,
                   .random = &daemon.random,
                   .on_up = on_peer_up,
                   .on_down = on_peer_down,
                   .arg = &daemon},
    };
    enum hf_err err;
    int rc = uv_loop_init(&daemon.loop);

    if (rc)
        return hf_error_set(error, HF_ESYSTEM, "cannot start the loop: %s",
                            uv_strerror(rc));
    hf_dlist_init(&daemon.recent_links);
    hf_dlist_init(&daemon.backlog);
    hf_random_init(&daemon.random, 0);
    err = open_node(&daemon, error);
    if (!err) {
        err = run_loop(&daemon, ready_fd, error);
        hf_node_close(daemon.node);
    }
    (void)uv_loop_close(&daemon.loop);
    return err;
}
