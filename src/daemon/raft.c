/* raft.c - a node of raft: (src/node): its peers, its threads, and lines about
 * what happens to it. */
#include <inttypes.h>

#include "daemon/daemon.h"
#include "daemon/notice.h"

#define REPORT_MS 100         /* pause between reports of space on the disk */
#define REFUSAL_PAUSE_MS 1000 /* time between lines about refused links */

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

/* An election may take less than a millisecond, so roles are compared in each
 * turn. */
static void report_role(struct hf_daemon *daemon,
                        const struct hf_node_status *status)
{
    const struct hf_node_status *old = &daemon->status;

    if (status->role != old->role || status->term != old->term ||
        status->leader != old->leader)
        hf_notice("%s in term %" PRIu64 ", leader %" PRIu64,
                  role_name(status->role), status->term, status->leader);
}

/* A disk that is nearly full may change between the two in each turn. */
static void report_space(struct hf_daemon *daemon,
                         struct hf_node_status *status, hf_time now)
{
    if (now - daemon->status_at < REPORT_MS) {
        status->low_space = daemon->status.low_space; /* compare it later */
        return;
    }
    daemon->status_at = now;
    if (status->low_space != daemon->status.low_space)
        hf_notice("%s: %s", daemon->disk->path,
                  status->low_space
                      ? "the disk is full, and new locks are refused until "
                        "there is space"
                      : "the disk has space again");
}

static void report_changes(struct hf_daemon *daemon, hf_time now)
{
    struct hf_node_status status;

    hf_node_status(daemon->node, &status);
    report_role(daemon, &status);
    report_space(daemon, &status, now);
    daemon->status = status;
}

/* ---- Links from other nodes ---------------------------------------------*/

static void on_link_data(struct hf_stream *stream, const void *data,
                         size_t size)
{
    struct hf_daemon *daemon = stream->arg;

    hf_daemon_begin_input(daemon);
    hf_node_on_link_data(daemon->node, stream->id, data, size);
}

static void on_link_end(struct hf_stream *stream)
{
    struct hf_daemon *daemon = stream->arg;

    hf_listener_forget(&daemon->links);
    hf_daemon_begin_input(daemon);
    hf_node_on_link_closed(daemon->node, stream->id);
}

static void on_link_accepted(struct hf_listener *listener,
                             struct hf_stream *stream)
{
    struct hf_daemon *daemon = listener->arg;

    hf_daemon_begin_input(daemon);
    hf_node_on_link_open(daemon->node, stream->id);
}

static void on_link_refused(struct hf_listener *listener)
{
    struct hf_daemon *daemon = listener->arg;

    hf_daemon_begin_input(daemon);
    hf_node_on_link_refused(daemon->node);
}

static const struct hf_stream_kind link_kind = {
    .on_data = on_link_data,
    .on_end = on_link_end,
    .unsent_max = 0, /* incoming links are only read */
};

/* ---- Connections to other nodes -----------------------------------------*/

static void on_peer_up(void *arg, uint64_t peer, uint64_t stream)
{
    struct hf_daemon *daemon = arg;

    hf_daemon_begin_input(daemon);
    hf_node_on_peer_up(daemon->node, peer, stream);
}

static void on_peer_down(void *arg, uint64_t peer, bool refused)
{
    struct hf_daemon *daemon = arg;

    hf_daemon_begin_input(daemon);
    hf_node_on_peer_down(daemon->node, peer, refused);
}

/* ---- Services for the node ----------------------------------------------*/

static void send_link(void *arg, uint64_t link, const void *bytes, size_t size)
{
    struct hf_daemon *daemon = arg;
    struct hf_stream *stream = hf_stream_find(&daemon->streams, link);

    if (stream)
        hf_stream_send(stream, bytes, size);
}

/* Anybody who connects can cause a refusal, so limit how many lines are
 * written. */
static void report_refused_link(struct hf_daemon *daemon, const char *why)
{
    hf_time now = hf_time_now();

    if (!why || now - daemon->refusal_at < REFUSAL_PAUSE_MS)
        return;
    daemon->refusal_at = now;
    hf_notice("refused a connection of a peer: %s", why);
}

static void close_link(void *arg, uint64_t link, const char *why)
{
    struct hf_daemon *daemon = arg;
    struct hf_stream *stream = hf_stream_find(&daemon->streams, link);

    report_refused_link(daemon, why);
    if (!stream || hf_dialer_reconnect(&daemon->dialer, stream))
        return;
    hf_listener_forget(&daemon->links);
    hf_stream_close(stream);
}

static void stop_daemon(void *arg, const struct hf_error *error)
{
    struct hf_daemon *daemon = arg;

    if (!daemon->error.code)
        daemon->error = *error;
}

static const struct hf_node_ops node_ops = {
    .send_link = send_link,
    .close_link = close_link,
    .send_client = hf_daemon_send_client,
    .close_client = hf_daemon_close_client,
    .pause_client = hf_daemon_pause_client,
    .stop = stop_daemon,
};

/* ---- Startup and shutdown -----------------------------------------------*/

static enum hf_err open_raft_node(struct hf_daemon *daemon,
                                  struct hf_error *error)
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
        .table_bytes = (size_t)config->table_mib << 20,
        .clients_max = daemon->clients_max,
    };

    daemon->driver = (struct hf_driver){
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
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
    return hf_node_open(&opts, &node_ops, daemon, daemon->disk, hf_time_now(),
                        &daemon->node, error);
}

static void close_raft_node(struct hf_daemon *daemon)
{
    hf_node_close(daemon->node);
}

static enum hf_err listen_for_links(struct hf_daemon *daemon,
                                    struct hf_error *error)
{
    const struct hf_config_member *self =
        hf_config_find(daemon->config, daemon->config->node);

    daemon->links = (struct hf_listener){
        .streams = &daemon->streams,
        .kind = &link_kind,
        .on_accept = on_link_accepted,
        .on_refused = on_link_refused,
        .arg = daemon,
        .max = HF_NODE_LINKS_MAX + 1, /* the node closes one at once */
    };
    return hf_listener_open(&daemon->links, &self->peer, error);
}

static enum hf_err start_raft(struct hf_daemon *daemon, struct hf_error *error)
{
    int rc = hf_daemon_open_driver(daemon);
    enum hf_err err;

    if (rc)
        return hf_error_set(error, HF_ESYSTEM, "cannot start the loop: %s",
                            uv_strerror(rc));
    daemon->dialer = (struct hf_dialer){
        .streams = &daemon->streams,
        .random = &daemon->random,
        .on_up = on_peer_up,
        .on_down = on_peer_down,
        .arg = daemon,
    };
    err = listen_for_links(daemon, error);
    if (!err)
        err = hf_dialer_open(&daemon->dialer, daemon->config, error);
    if (!err)
        err = hf_daemon_open_workers(daemon, error);
    daemon->has_workers = !err;
    return err;
}

static void close_links(struct hf_daemon *daemon)
{
    hf_listener_close(&daemon->links);
    hf_dialer_close(&daemon->dialer);
}

/* Write what the log still has in memory. Safety does not depend on it, but the
 * node then has less to fetch when it starts again. */
static void flush_log(struct hf_daemon *daemon)
{
    if (daemon->error.code ||
        !hf_node_flush_begin(daemon->node, &daemon->flush))
        return;
    hf_wal_flush_run(&daemon->flush);
    hf_node_flush_end(daemon->node, &daemon->flush);
}

static void stop_raft(struct hf_daemon *daemon)
{
    if (!daemon->has_workers)
        return;
    hf_daemon_close_workers(daemon);
    hf_daemon_await_flush(daemon);
    flush_log(daemon);
}

static void report_raft_ready(const struct hf_daemon *daemon)
{
    const struct hf_config_member *self =
        hf_config_find(daemon->config, daemon->config->node);

    hf_notice("ready: clients at %s, peers at %s", self->client.text,
              self->peer.text);
}

/* ---- The mode -----------------------------------------------------------*/

static void set_raft_time(struct hf_daemon *daemon, hf_time now)
{
    hf_node_set_time(daemon->node, now);
}

static void turn_raft(struct hf_daemon *daemon, hf_time now)
{
    hf_node_turn(daemon->node, now);
    hf_daemon_start_jobs(daemon);
    report_changes(daemon, now);
}

static hf_time raft_deadline(const struct hf_daemon *daemon)
{
    return hf_node_deadline(daemon->node);
}

static void shut_raft_down(struct hf_daemon *daemon)
{
    hf_node_shutdown(daemon->node);
}

static bool raft_has_left(const struct hf_daemon *daemon)
{
    return hf_node_has_left(daemon->node);
}

static void on_raft_client_open(struct hf_daemon *daemon, uint64_t conn)
{
    hf_node_on_client_open(daemon->node, conn);
}

static void on_raft_client_data(struct hf_daemon *daemon, uint64_t conn,
                                const void *data, size_t size)
{
    hf_node_on_client_data(daemon->node, conn, data, size);
}

static void on_raft_client_closed(struct hf_daemon *daemon, uint64_t conn)
{
    hf_node_on_client_closed(daemon->node, conn);
}

static void on_raft_client_refused(struct hf_daemon *daemon)
{
    hf_node_on_client_refused(daemon->node);
}

static void on_raft_client_unsent(struct hf_daemon *daemon, uint64_t conn,
                                  size_t size)
{
    hf_node_on_client_unsent(daemon->node, conn, size);
}

const struct hf_daemon_mode hf_daemon_raft = {
    .open = open_raft_node,
    .close = close_raft_node,
    .start = start_raft,
    .close_peers = close_links,
    .stop = stop_raft,
    .drive = hf_daemon_drive,
    .report_ready = report_raft_ready,
    .set_time = set_raft_time,
    .turn = turn_raft,
    .deadline = raft_deadline,
    .shutdown = shut_raft_down,
    .has_left = raft_has_left,
    .on_client_open = on_raft_client_open,
    .on_client_data = on_raft_client_data,
    .on_client_closed = on_raft_client_closed,
    .on_client_refused = on_raft_client_refused,
    .on_client_unsent = on_raft_client_unsent,
};
