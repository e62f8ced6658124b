/* transport.h - how bytes reach a node: sockets, or a simulated network.
 *
 * A stream is one connection as the transport sees it: bytes in order, until it
 * is closed or lost. The owner embeds the stream in its own struct. The
 * transport reports what happens to the stream, with the client's mutex held.
 * Of the calls below, only `wait` reports something before it returns; the
 * client is being opened then, and the mutex is not held. */
#ifndef HF_STRATEGY_RAFT_TRANSPORT_H
#define HF_STRATEGY_RAFT_TRANSPORT_H

#include "base/dlist.h"
#include "strategy/raft/address.h"
#include "strategy/strategy.h"

struct hf_raft_stream;

/* Callbacks of the owner. Each may close its stream. */
struct hf_raft_stream_ops {
    void (*opened)(struct hf_raft_stream *stream);
    void (*data)(struct hf_raft_stream *stream, const void *data, size_t size);

    /* The stream is closed: it could not be opened, or it was lost. */
    void (*lost)(struct hf_raft_stream *stream, enum hf_err err,
                 const char *text);
};

struct hf_raft_stream {
    const struct hf_raft_stream_ops *ops;
    void *handle; /* set by the transport; NULL: closed */
};

struct hf_raft_transport {
    const struct hf_raft_transport_ops *ops;
};

struct hf_raft_transport_ops {
    /* Start to connect. On HF_OK the stream is open until it is closed or
     * reported as lost. On any other code `error` is set, and `lost` is not
     * called. */
    enum hf_err (*connect)(struct hf_raft_transport *transport,
                           struct hf_raft_stream *stream,
                           struct hf_raft_address *address,
                           struct hf_error *error);

    /* Send bytes, after `opened` was called. Bytes that cannot be sent at once
     * are copied and sent later. Returns false if memory is exhausted. If the
     * stream is broken, the bytes are dropped, and `lost` is called soon. */
    bool (*write)(struct hf_raft_transport *transport,
                  struct hf_raft_stream *stream, const void *data, size_t size);

    /* Close a stream. Unsent bytes are dropped. */
    void (*close)(struct hf_raft_transport *transport,
                  struct hf_raft_stream *stream);

    /* Called inside hf_strategy.open, where no event loop runs: sleep until
     * `until` (CLOCK_BOOTTIME), or until something was reported. If this is
     * NULL, `open` does not wait for a node, and requests wait inside the
     * strategy until the client is connected. */
    void (*wait)(struct hf_raft_transport *transport, hf_time until);
};

/* The transport over TCP: socket.c. */
struct hf_raft_sockets {
    struct hf_raft_transport transport;
    struct hf_host *host;
    struct hf_dlist open; /* list of struct hf_raft_socket */
};

void hf_raft_sockets_init(struct hf_raft_sockets *sockets,
                          struct hf_host *host);

#endif
