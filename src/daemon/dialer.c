#include "daemon/dialer.h"

#include "base/container.h"

#define PAUSE_MS 20
#define PAUSE_MAX_MS 500
#define LASTING_MS 1000 /* a connection this old resets the pause */

static void connect_peer(struct hf_dialer_peer *peer);

static void on_dial_timer(uv_timer_t *timer)
{
    connect_peer(HF_CONTAINER(timer, struct hf_dialer_peer, retry));
}

/* The pause before the next attempt, with a random part so that nodes that were
 * started together do not stay in step. */
static uint64_t pause_of(const struct hf_dialer_peer *peer)
{
    unsigned doublings = peer->attempts < 10 ? peer->attempts : 10;
    uint32_t pause = (uint32_t)PAUSE_MS << doublings;

    if (peer->attempts == 0)
        return 0;
    if (pause > PAUSE_MAX_MS)
        pause = PAUSE_MAX_MS;
    return pause / 2 + hf_random_below(peer->dialer->random, pause / 2 + 1);
}

static void schedule_retry(struct hf_dialer_peer *peer)
{
    if (peer->dialer->is_closing)
        return;
    (void)uv_timer_start(&peer->retry, on_dial_timer, pause_of(peer), 0);
    peer->attempts++;
}

static void lose_peer(struct hf_dialer_peer *peer)
{
    if (hf_time_now() - peer->up_at >= LASTING_MS)
        peer->attempts = 0;
    peer->stream = NULL;
    schedule_retry(peer);
}

static void on_end(struct hf_stream *stream)
{
    struct hf_dialer_peer *peer = stream->arg;

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
};

static void fail_attempt(struct hf_dialer_peer *peer, int status)
{
    if (peer->stream)
        hf_stream_close(peer->stream);
    peer->stream = NULL;
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
}

static enum hf_err open_peer(struct hf_dialer *dialer,
                             const struct hf_config_member *member,
                             struct hf_error *error)
{
    struct hf_dialer_peer *peer = &dialer->list[dialer->count];
    int rc;

    *peer = (struct hf_dialer_peer){
        .dialer = dialer, .id = member->id, .address = member->peer};
    rc = uv_timer_init(dialer->streams->loop, &peer->retry);
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
        uv_close((uv_handle_t *)&dialer->list[i].retry, NULL);
}

bool hf_dialer_reconnect(struct hf_dialer *dialer, struct hf_stream *stream)
{
    for (size_t i = 0; i < dialer->count; i++) {
        struct hf_dialer_peer *peer = &dialer->list[i];

        if (peer->stream == stream) {
            hf_stream_close(stream);
            lose_peer(peer);
            return true;
        }
    }
    return false;
}
