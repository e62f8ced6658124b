#include "daemon/dialer.h"

#include <inttypes.h>

#include "base/container.h"
#include "daemon/notice.h"

#define CONNECT_MS 2000 /* limit of one attempt; the kernel's is minutes */

static void on_dial_timer(uv_timer_t *timer);

static void schedule_retry(struct hf_dialer_peer *peer)
{
    if (peer->dialer->is_closing)
        return;
    (void)uv_timer_start(&peer->timer, on_dial_timer,
                         hf_redial_pause(&peer->redial, peer->dialer->random),
                         0);
}

/* The connection has ended: connect again after a pause. */
static void lose_peer(struct hf_dialer_peer *peer)
{
    hf_redial_on_end(&peer->redial, hf_time_now() - peer->up_at,
                     peer->stream->has_overflowed);
    peer->stream = NULL;
    schedule_retry(peer);
}

static void on_end(struct hf_stream *stream)
{
    struct hf_dialer_peer *peer = stream->arg;

    if (stream->has_overflowed)
        hf_notice("node %" PRIu64 " does not read: connecting to it again",
                  peer->id);
    lose_peer(peer);
    peer->dialer->on_down(peer->dialer->arg, peer->id, false);
}

/* A peer sends over the connection that it has made itself. Whatever arrives on
 * this one is ignored. */
static void on_unexpected_data(struct hf_stream *stream, const void *data,
                               size_t size)
{
    (void)stream;
    (void)data;
    (void)size;
}

static const struct hf_stream_kind peer_kind = {
    .on_data = on_unexpected_data,
    .on_end = on_end,
    .unsent_max = HF_DAEMON_PEER_UNSENT_MAX,
};

static void fail_attempt(struct hf_dialer_peer *peer, int status)
{
    if (peer->stream)
        hf_stream_close(peer->stream);
    peer->stream = NULL;
    hf_redial_on_failure(&peer->redial);
    schedule_retry(peer);
    peer->dialer->on_down(peer->dialer->arg, peer->id,
                          status == UV_ECONNREFUSED);
}

static void on_dialed(uv_connect_t *request, int status)
{
    struct hf_dialer_peer *peer =
        HF_CONTAINER(request, struct hf_dialer_peer, connect);

    if (peer->dialer->is_closing || !peer->stream)
        return;
    (void)uv_timer_stop(&peer->timer);
    if (!status)
        status = hf_stream_begin(peer->stream);
    if (status) {
        fail_attempt(peer, status);
        return;
    }
    peer->up_at = hf_time_now();
    peer->dialer->on_up(peer->dialer->arg, peer->id, peer->stream->id);
}

static void connect_peer(struct hf_dialer_peer *peer)
{
    int rc = UV_ENOMEM;

    peer->stream = hf_stream_new(peer->dialer->streams, &peer_kind, peer);
    if (peer->stream)
        rc = uv_tcp_connect(&peer->connect, &peer->stream->tcp,
                            &peer->address.socket.any, on_dialed);
    if (rc)
        fail_attempt(peer, rc);
    else
        (void)uv_timer_start(&peer->timer, on_dial_timer, CONNECT_MS, 0);
}

static void on_dial_timer(uv_timer_t *timer)
{
    struct hf_dialer_peer *peer =
        HF_CONTAINER(timer, struct hf_dialer_peer, timer);

    if (peer->stream)
        fail_attempt(peer, UV_ETIMEDOUT);
    else
        connect_peer(peer);
}

static enum hf_err open_peer(struct hf_dialer *dialer,
                             const struct hf_config_member *member,
                             struct hf_error *error)
{
    struct hf_dialer_peer *peer = &dialer->list[dialer->count];
    int rc;

    *peer = (struct hf_dialer_peer){
        .dialer = dialer, .id = member->id, .address = member->peer};
    rc = uv_timer_init(dialer->streams->loop, &peer->timer);
    if (rc)
        return hf_error_set(error, HF_ESYSTEM, "cannot make a timer: %s",
                            uv_strerror(rc));
    dialer->count++;
    schedule_retry(peer);
    return HF_OK;
}

enum hf_err hf_dialer_open(struct hf_dialer *dialer,
                           const struct hf_config *config,
                           struct hf_error *error)
{
    enum hf_err err = HF_OK;

    for (size_t i = 0; !err && i < config->member_count; i++) {
        if (config->members[i].id != config->node)
            err = open_peer(dialer, &config->members[i], error);
    }
    return err;
}

void hf_dialer_close(struct hf_dialer *dialer)
{
    dialer->is_closing = true;
    for (size_t i = 0; i < dialer->count; i++)
        uv_close((uv_handle_t *)&dialer->list[i].timer, NULL);
}

bool hf_dialer_reconnect(struct hf_dialer *dialer, struct hf_stream *stream)
{
    for (size_t i = 0; i < dialer->count; i++) {
        struct hf_dialer_peer *peer = &dialer->list[i];

        if (peer->stream == stream) {
            lose_peer(peer);
            hf_stream_close(stream);
            return true;
        }
    }
    return false;
}
