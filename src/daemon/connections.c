/* connections.c - the connections of clients. */
#include <sys/resource.h>

#include "base/container.h"
#include "daemon/daemon.h"
#include "serve/server.h"

#define SPARE_DESCRIPTORS 128u /* for files, peers and libuv */

/* ---- Clients ------------------------------------------------------------*/

static void on_client_data(struct hf_stream *stream, const void *data,
                           size_t size)
{
    struct hf_daemon *daemon = stream->arg;

    hf_daemon_begin_input(daemon);
    daemon->mode->on_client_data(daemon, stream->id, data, size);
}

static void on_client_end(struct hf_stream *stream)
{
    struct hf_daemon *daemon = stream->arg;

    hf_listener_forget(&daemon->clients);
    hf_daemon_begin_input(daemon);
    daemon->mode->on_client_closed(daemon, stream->id);
}

static void on_client_sent(struct hf_stream *stream)
{
    struct hf_daemon *daemon = stream->arg;

    hf_daemon_begin_input(daemon);
    daemon->mode->on_client_unsent(daemon, stream->id,
                                   hf_stream_unsent(stream));
}

static void on_client_accepted(struct hf_listener *listener,
                               struct hf_stream *stream)
{
    struct hf_daemon *daemon = listener->arg;

    hf_daemon_begin_input(daemon);
    daemon->mode->on_client_open(daemon, stream->id);
}

static void on_client_refused(struct hf_listener *listener)
{
    struct hf_daemon *daemon = listener->arg;

    hf_daemon_begin_input(daemon);
    daemon->mode->on_client_refused(daemon);
}

static const struct hf_stream_kind client_kind = {
    .on_data = on_client_data,
    .on_end = on_client_end,
    .on_sent = on_client_sent,
    .unsent_max = HF_DAEMON_CLIENT_UNSENT_MAX,
};

/* ---- Listening ----------------------------------------------------------*/

size_t hf_daemon_clients_max(void)
{
    struct rlimit limit;
    rlim_t files;

    if (getrlimit(RLIMIT_NOFILE, &limit))
        return HF_CLIENTS_MAX;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    files = limit.rlim_cur;
    if (files > HF_CLIENTS_MAX + SPARE_DESCRIPTORS)
        return HF_CLIENTS_MAX;
    return files > (rlim_t)2 * SPARE_DESCRIPTORS ? files - SPARE_DESCRIPTORS
                                                 : files / 2;
}

enum hf_err hf_daemon_listen(struct hf_daemon *daemon, struct hf_error *error)
{
    const struct hf_config_member *self =
        hf_config_find(daemon->config, daemon->config->node);

    daemon->clients = (struct hf_listener){
        .streams = &daemon->streams,
        .kind = &client_kind,
        .on_accept = on_client_accepted,
        .on_refused = on_client_refused,
        .refusal = HF_SERVER_REFUSAL,
        .arg = daemon,
        .max = daemon->clients_max + 1, /* the node refuses one at once */
    };
    return hf_listener_open(&daemon->clients, &self->client, error);
}

/* ---- Services for the node ----------------------------------------------*/

void hf_daemon_send_client(void *arg, uint64_t conn, const void *bytes,
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

void hf_daemon_close_client(void *arg, uint64_t conn)
{
    struct hf_daemon *daemon = arg;
    struct hf_stream *stream = hf_stream_find(&daemon->streams, conn);

    if (!stream)
        return;
    hf_listener_forget(&daemon->clients);
    hf_stream_close(stream);
}

void hf_daemon_pause_client(void *arg, uint64_t conn, bool stop_reading)
{
    struct hf_daemon *daemon = arg;
    struct hf_stream *stream = hf_stream_find(&daemon->streams, conn);

    if (stream)
        hf_stream_pause(stream, stop_reading);
}

void hf_daemon_report_backlog(struct hf_daemon *daemon)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&daemon->backlog))) {
        struct hf_stream *stream =
            HF_CONTAINER(link, struct hf_stream, owner_link);

        hf_daemon_begin_input(daemon);
        daemon->mode->on_client_unsent(daemon, stream->id,
                                       hf_stream_unsent(stream));
    }
}
