/* listener.h - accept connections at one address.
 *
 * If the process has no descriptor left, libuv closes a spare descriptor to
 * accept and close the waiting connections, and goes on. Connections beyond
 * `max` are closed at once. */
#ifndef HF_DAEMON_LISTENER_H
#define HF_DAEMON_LISTENER_H

#include "daemon/address.h"
#include "daemon/stream.h"

struct hf_listener;

/* A connection was accepted; its stream has begun to read. */
typedef void hf_listener_fn(struct hf_listener *listener,
                            struct hf_stream *stream);

struct hf_listener {
    uv_tcp_t tcp;
    struct hf_streams *streams;
    const struct hf_stream_kind *kind;
    hf_listener_fn *on_accept;
    void *arg;         /* also hf_stream.arg of the streams */
    size_t count, max; /* open connections */
    uint64_t refused;  /* connections that were closed at once */
    bool is_open;
};

/* Listen at `address`. The caller has set `streams`, `kind`, `on_accept`, `arg`
 * and `max`. Returns HF_EUNAVAIL if the address is in use, or HF_ESYSTEM. */
enum hf_err hf_listener_open(struct hf_listener *listener,
                             const struct hf_address *address,
                             struct hf_error *error);
void hf_listener_close(struct hf_listener *listener);

/* Call this when a stream of this listener is closed. */
void hf_listener_forget(struct hf_listener *listener);

#endif
