#include "daemon/listener.h"

#include "base/container.h"

#define BACKLOG 511

static void accept_stream(struct hf_listener *listener,
                          struct hf_stream *stream)
{
    if (uv_accept((uv_stream_t *)&listener->tcp, (uv_stream_t *)&stream->tcp) ||
        listener->count >= listener->max || hf_stream_begin(stream)) {
        listener->refused++;
        hf_stream_close(stream);
        return;
    }
    listener->count++;
    listener->on_accept(listener, stream);
}

static void on_connection(uv_stream_t *handle, int status)
{
    struct hf_listener *listener =
        HF_CONTAINER((uv_tcp_t *)handle, struct hf_listener, tcp);
    struct hf_stream *stream;

    if (status)
        return; /* the connection is gone, or no descriptor is left */
    stream = hf_stream_new(listener->streams, listener->kind, listener->arg);
    if (stream)
        accept_stream(listener, stream);
}

static int start_listening(struct hf_listener *listener,
                           const struct hf_address *address)
{
    int rc = uv_tcp_bind(&listener->tcp, &address->socket.any, 0);

    return rc ? rc
              : uv_listen((uv_stream_t *)&listener->tcp, BACKLOG,
                          on_connection);
}

enum hf_err hf_listener_open(struct hf_listener *listener,
                             const struct hf_address *address,
                             struct hf_error *error)
{
    int rc = uv_tcp_init(listener->streams->loop, &listener->tcp);

    if (rc)
        return hf_error_set(error, HF_ESYSTEM, "cannot listen on %s: %s",
                            address->text, uv_strerror(rc));
    listener->is_open = true;
    rc = start_listening(listener, address);
    if (!rc)
        return HF_OK;
    if (rc == UV_EADDRINUSE)
        return hf_error_set(error, HF_EUNAVAIL,
                            "cannot listen on %s: another process uses this "
                            "port. Stop it, or change the port in the file "
                            "config of every member.",
                            address->text);
    return hf_error_set(error, HF_ESYSTEM, "cannot listen on %s: %s",
                        address->text, uv_strerror(rc));
}

void hf_listener_close(struct hf_listener *listener)
{
    if (listener->is_open)
        uv_close((uv_handle_t *)&listener->tcp, NULL);
    listener->is_open = false;
}

void hf_listener_forget(struct hf_listener *listener)
{
    listener->count--;
}
