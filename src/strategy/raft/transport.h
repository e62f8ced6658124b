/* transport.h - how bytes reach a node: sockets, or a simulated network.
 *
 * A stream is one connection as the transport sees it: bytes in order, until it
 * is closed or lost. The owner embeds the stream in its own struct. The
 * transport reports what happens to it, outside of the calls below and with the
 * client's mutex held. */
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
    void *handle; /* the transport's; NULL: the stream is closed */
};

struct hf_raft_transport {
    const struct hf_raft_transport_ops *ops;
};

struct hf_raft_transport_ops {
    /* Start to connect. On HF_OK the stream is open until it is closed or
     * reported as lost. */
    enum hf_err (*connect)(struct hf_raft_transport *transport,
                           struct hf_raft_stream *stream,
                           struct hf_raft_address *address,
                           struct hf_error *error);

    /* Send bytes, after `opened`. What cannot be sent at once is copied and
     * sent later. Returns false if memory is exhausted. A broken stream takes
     * the bytes, and its loss is reported soon. */
    bool (*write)(struct hf_raft_transport *transport,
                  struct hf_raft_stream *stream, const void *data, size_t size);

    /* Close a stream, after sending what can be sent at once. */
    void (*close)(struct hf_raft_transport *transport,
                  struct hf_raft_stream *stream);

    /* Sleep until `until` by CLOCK_BOOTTIME or until something was reported:
     * inside `open` no event loop runs. NULL: `open` does not wait for a node,
     * and requests wait inside the strategy until there is one. */
    void (*wait)(struct hf_raft_transport *transport, hf_time until);
};

/* socket.c: TCP. */
struct hf_raft_sockets {
    struct hf_raft_transport transport;
    struct hf_host *host;
    struct hf_dlist open; /* sockets */
};

void hf_raft_sockets_init(struct hf_raft_sockets *sockets,
                          struct hf_host *host);

#endif
