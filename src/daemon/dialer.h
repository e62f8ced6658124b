/* dialer.h - the connections from this node to the other members.
 *
 * Each is made again when it is lost: at once, then after pauses that double up
 * to half a second. Only a connection that has lasted resets the pause, so a
 * peer that refuses this node is not flooded. */
#ifndef HF_DAEMON_DIALER_H
#define HF_DAEMON_DIALER_H

#include "base/limits.h"
#include "base/random.h"
#include "base/time.h"
#include "daemon/config.h"
#include "daemon/stream.h"

struct hf_dialer;

struct hf_dialer_peer {
    struct hf_dialer *dialer;
    uint64_t id;
    struct hf_address address;
    uv_timer_t retry;
    uv_connect_t connect;
    struct hf_stream *stream; /* NULL: none */
    hf_time up_at;
    unsigned attempts; /* since a connection has lasted */
};

struct hf_dialer {
    struct hf_streams *streams;
    struct hf_random *random;

    /* The connection to `peer` is established; its stream is `stream`. */
    void (*on_up)(void *arg, uint64_t peer, uint64_t stream);

    /* It was lost, or could not be made; `refused`: nothing listens there. */
    void (*on_down)(void *arg, uint64_t peer, bool refused);
    void *arg;
    struct hf_dialer_peer list[HF_RAFT_VOTERS_MAX];
    size_t count;
    bool is_closing;
};

/* Connect to each member except `config->node`. The first five members are
 * set. */
enum hf_err hf_dialer_open(struct hf_dialer *dialer,
                           const struct hf_config *config,
                           struct hf_error *error);
void hf_dialer_close(struct hf_dialer *dialer);

/* If `stream` is one of these connections: close it, and connect again later
 * without a report. Returns false if it is none. */
bool hf_dialer_reconnect(struct hf_dialer *dialer, struct hf_stream *stream);

#endif
