/* connections.c - accept connections of clients and peers, and the functions
 * through which the node uses all connections (hf_node_ops). */
#include <sys/resource.h>

#include "base/container.h"
#include "daemon/daemon.h"
#include "daemon/notice.h"

#define REFUSAL_PAUSE_MS 1000  /* time between lines about refused links */
#define SPARE_DESCRIPTORS 128u /* for files, peers and libuv */

/* ---- Clients ------------------------------------------------------------*/

static void on_client_data(struct hf_stream *stream, const void *data,
                           size_t size)
{
    struct hf_daemon *daemon = stream->arg;

    hf_node_on_client_data(daemon->node, stream->id, data, size);
    daemon->dirty = true;
}

static void on_client_end(struct hf_stream *stream)
{
    struct hf_daemon *daemon = stream->arg;

    hf_listener_forget(&daemon->clients);
    hf_node_on_client_closed(daemon->node, stream->id);
    daemon->dirty = true;
}

static void on_client_sent(struct hf_stream *stream)
{
    struct hf_daemon *daemon = stream->arg;

    hf_node_on_client_unsent(daemon->node, stream->id,
                             hf_stream_unsent(stream));
    daemon->dirty = true;
}

static void on_client_accepted(struct hf_listener *listener,
                               struct hf_stream *stream)
{
    struct hf_daemon *daemon = listener->arg;

    hf_node_on_client_open(daemon->node, stream->id);
    daemon->dirty = true;
}

static const struct hf_stream_kind client_kind = {
    .on_data = on_client_data,
    .on_end = on_client_end,
    .on_sent = on_client_sent,
};

/* ---- Links from other nodes ---------------------------------------------*/

static void touch_link(struct hf_daemon *daemon, struct hf_stream *stream)
{
    hf_dlist_remove(&stream->owner_link);
    hf_dlist_push_back(&daemon->recent_links, &stream->owner_link);
}

static void on_link_data(struct hf_stream *stream, const void *data,
                         size_t size)
{
    struct hf_daemon *daemon = stream->arg;

    touch_link(daemon, stream);
    hf_node_on_link_data(daemon->node, stream->id, data, size);
    daemon->dirty = true;
}

static void on_link_end(struct hf_stream *stream)
{
    struct hf_daemon *daemon = stream->arg;

    hf_listener_forget(&daemon->links);
    hf_node_on_link_closed(daemon->node, stream->id);
    daemon->dirty = true;
}

/* When the limit on links is reached, close the one that has been silent
 * longest, so that the next one can be accepted. A peer sends several times per
 * second, so the silent link is not one of a peer. */
static void drop_silent_link(struct hf_daemon *daemon)
{
    struct hf_dlist *link = hf_dlist_first(&daemon->recent_links);
    struct hf_stream *stream;

    if (daemon->links.count < daemon->links.max || !link)
        return;
    stream = HF_CONTAINER(link, struct hf_stream, owner_link);
    on_link_end(stream);
    hf_stream_close(stream);
}

static void on_link_accepted(struct hf_listener *listener,
                             struct hf_stream *stream)
{
    struct hf_daemon *daemon = listener->arg;

    touch_link(daemon, stream);
    hf_node_on_link_open(daemon->node, stream->id);
    drop_silent_link(daemon);
    daemon->dirty = true;
}

static const struct hf_stream_kind link_kind = {
    .on_data = on_link_data,
    .on_end = on_link_end,
};

/* ---- Listening ----------------------------------------------------------*/

/* Raise the limit on open files as far as possible. Returns the number of
 * clients for which the descriptors suffice, at most HF_DAEMON_CLIENTS_MAX. */
static size_t clients_max(void)
{
    struct rlimit limit;
    rlim_t files;

    if (getrlimit(RLIMIT_NOFILE, &limit))
        return HF_DAEMON_CLIENTS_MAX;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    files = limit.rlim_cur;
    if (files > HF_DAEMON_CLIENTS_MAX + SPARE_DESCRIPTORS)
        return HF_DAEMON_CLIENTS_MAX;
    return files > (rlim_t)2 * SPARE_DESCRIPTORS ? files - SPARE_DESCRIPTORS
                                                 : files / 2;
}

enum hf_err hf_daemon_listen(struct hf_daemon *daemon, struct hf_error *error)
{
    const struct hf_config_member *self =
        hf_config_find(daemon->config, daemon->config->node);
    enum hf_err err;

    daemon->links = (struct hf_listener){
        .streams = &daemon->streams,
        .kind = &link_kind,
        .on_accept = on_link_accepted,
        .arg = daemon,
        .max = HF_DAEMON_LINKS_MAX,
    };
    daemon->clients = (struct hf_listener){
        .streams = &daemon->streams,
        .kind = &client_kind,
        .on_accept = on_client_accepted,
        .arg = daemon,
        .max = clients_max(),
    };
    err = hf_listener_open(&daemon->links, &self->peer, error);
    if (!err)
        err = hf_listener_open(&daemon->clients, &self->client, error);
    return err;
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
static void report_refused_client(struct hf_daemon *daemon, const char *why)
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

    report_refused_client(daemon, why);
    if (!stream || hf_dialer_reconnect(&daemon->dialer, stream))
        return;
    hf_listener_forget(&daemon->links);
    hf_stream_close(stream);
}

static void send_client(void *arg, uint64_t conn, const void *bytes,
                        size_t size)
{
    struct hf_daemon *daemon = arg;
    struct hf_stream *stream = hf_stream_find(&daemon->streams, conn);

    if (!stream)
        return;
    hf_stream_send(stream, bytes, size);
    if (hf_stream_unsent(stream) > 0 &&
        !hf_dlist_is_linked(&stream->owner_link))
        hf_dlist_push_back(&daemon->backlog, &stream->owner_link);
}

static void close_client(void *arg, uint64_t conn)
{
    struct hf_daemon *daemon = arg;
    struct hf_stream *stream = hf_stream_find(&daemon->streams, conn);

    if (!stream)
        return;
    hf_listener_forget(&daemon->clients);
    hf_stream_close(stream);
}

static void pause_client(void *arg, uint64_t conn, bool stop_reading)
{
    struct hf_daemon *daemon = arg;
    struct hf_stream *stream = hf_stream_find(&daemon->streams, conn);

    if (stream)
        hf_stream_pause(stream, stop_reading);
}

static void stop_daemon(void *arg, const struct hf_error *error)
{
    struct hf_daemon *daemon = arg;

    if (!daemon->error.code)
        daemon->error = *error;
}

const struct hf_node_ops hf_daemon_ops = {
    .send_link = send_link,
    .close_link = close_link,
    .send_client = send_client,
    .close_client = close_client,
    .pause_client = pause_client,
    .stop = stop_daemon,
};

void hf_daemon_report_backlog(struct hf_daemon *daemon)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&daemon->backlog))) {
        struct hf_stream *stream =
            HF_CONTAINER(link, struct hf_stream, owner_link);

        hf_node_on_client_unsent(daemon->node, stream->id,
                                 hf_stream_unsent(stream));
        daemon->dirty = true;
    }
}
