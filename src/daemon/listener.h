/* listener.h - accept connections at one address.
 *
 * Connections beyond `max` are refused: the listener sends `refusal`, if the
 * socket takes it, and closes them at once. If the process has no descriptor
 * left, waiting connections are accepted and refused with the help of a spare
 * descriptor. If there is no spare one either, or the kernel has no memory,
 * they wait, and the listener tries again soon.
 *
 * The listener does not use uv_listen(): if the process has no descriptor and
 * libuv could not reopen its spare one, libuv 1.44 calls accept() in an endless
 * loop; and if the callback does not accept a connection, libuv accepts no
 * others. */
#ifndef HF_DAEMON_LISTENER_H
#define HF_DAEMON_LISTENER_H

#include "daemon/address.h"
#include "daemon/stream.h"

struct hf_listener;

/* A connection was accepted; its stream has begun to read. */
typedef void hf_listener_fn(struct hf_listener *listener,
                            struct hf_stream *stream);

/* A connection was refused. */
typedef void hf_listener_refused_fn(struct hf_listener *listener);

struct hf_listener {
    uv_poll_t poll;
    uv_timer_t retry;
    int fd;
    int spare; /* a descriptor to close when there is no other; -1: none */
    struct hf_streams *streams;
    const struct hf_stream_kind *kind;
    hf_listener_fn *on_accept;
    hf_listener_refused_fn *on_refused;
    const char *refusal; /* NULL: close without a text */
    void *arg;           /* also hf_stream.arg of the streams */
    size_t count, max;   /* open connections, and their limit */
    bool is_open;
};

/* Listen at `address`. The caller has set `streams`, `kind`, `on_accept`,
 * `on_refused`, `refusal`, `arg` and `max`. Returns HF_EUNAVAIL if the address
 * is in use, or HF_ESYSTEM. */
enum hf_err hf_listener_open(struct hf_listener *listener,
                             const struct hf_address *address,
                             struct hf_error *error);
void hf_listener_close(struct hf_listener *listener);

/* Call this when a stream of this listener is closed. */
void hf_listener_forget(struct hf_listener *listener);

#endif
