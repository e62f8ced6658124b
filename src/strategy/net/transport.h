/* transport.h - how bytes reach a node: sockets, or a simulated network.
 *
 * A stream is one connection as the transport sees it: bytes in order, until it
 * is closed or lost. The owner embeds the stream in its own struct. The
 * transport reports what happens to the stream, with the client's mutex held.
 * Of the calls below, only `wait` reports something before it returns; the
 * client is being opened then, and the mutex is not held. */
#ifndef HF_STRATEGY_NET_TRANSPORT_H
#define HF_STRATEGY_NET_TRANSPORT_H

#include "base/dlist.h"
#include "strategy/net/address.h"
#include "strategy/strategy.h"

struct hf_net_resolver;
struct hf_net_stream;

/* Callbacks of the owner. Each may close its stream. */
struct hf_net_stream_ops {
    void (*opened)(struct hf_net_stream *stream);
    void (*data)(struct hf_net_stream *stream, const void *data, size_t size);

    /* The stream is closed: it could not be opened, or it was lost. */
    void (*lost)(struct hf_net_stream *stream, enum hf_err err,
                 const char *text);
};

struct hf_net_stream {
    const struct hf_net_stream_ops *ops;
    void *handle; /* set by the transport; NULL: closed */
};

struct hf_net_transport {
    const struct hf_net_transport_ops *ops;
};

struct hf_net_transport_ops {
    /* Prepare to connect to these nodes. NULL: nothing to prepare. */
    void (*resolve)(struct hf_net_transport *transport,
                    struct hf_net_addresses *addresses);

    /* Start to connect. On HF_OK the stream is open until it is closed or
     * reported as lost. On any other code `error` is set, and `lost` is not
     * called. */
    enum hf_err (*connect)(struct hf_net_transport *transport,
                           struct hf_net_stream *stream,
                           struct hf_net_address *address,
                           struct hf_error *error);

    /* Send bytes, after `opened` was called. Bytes that cannot be sent at once
     * are copied and sent later. Returns false if memory is exhausted. If the
     * stream is broken, the bytes are dropped, and `lost` is called soon. */
    bool (*write)(struct hf_net_transport *transport,
                  struct hf_net_stream *stream, const void *data, size_t size);

    /* Close a stream. Unsent bytes are dropped. */
    void (*close)(struct hf_net_transport *transport,
                  struct hf_net_stream *stream);

    /* Called inside hf_strategy.open, where no event loop runs: sleep until
     * `until` (CLOCK_BOOTTIME), or until something was reported. If this is
     * NULL, `open` does not wait for a node, and requests wait inside the
     * strategy until the client is connected. */
    void (*wait)(struct hf_net_transport *transport, hf_time until);
};

/* The transport over TCP: socket.c. */
struct hf_net_sockets {
    struct hf_net_transport transport;
    struct hf_host *host;
    struct hf_dlist open;             /* list of struct hf_net_socket */
    struct hf_net_resolver *resolver; /* NULL: no name was resolved yet */
    struct hf_fd names;               /* the descriptor of `resolver` */
};

void hf_net_sockets_init(struct hf_net_sockets *sockets, struct hf_host *host);

/* Call this after all streams were closed. Does nothing if `sockets` is zeroed,
 * because another transport is used. */
void hf_net_sockets_fini(struct hf_net_sockets *sockets);

#endif
