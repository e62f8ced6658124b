/* dialer.h - the connections from this node to the other members.
 *
 * A lost connection is made again after a pause (node/redial.h). If more than
 * HF_DAEMON_PEER_UNSENT_MAX bytes are unsent, because the peer does not read,
 * they are dropped and the connection is closed; the node expects such
 * losses. */
#ifndef HF_DAEMON_DIALER_H
#define HF_DAEMON_DIALER_H

#include "base/limits.h"
#include "base/random.h"
#include "base/time.h"
#include "daemon/config.h"
#include "daemon/stream.h"
#include "node/redial.h"

struct hf_dialer;

struct hf_dialer_peer {
    struct hf_dialer *dialer;
    uint64_t id;
    struct hf_address address;
    uv_timer_t timer; /* starts the next attempt, or ends the current one */
    uv_connect_t connect;
    struct hf_stream *stream; /* NULL: none */
    hf_time up_at;
    struct hf_redial redial;
};

struct hf_dialer {
    struct hf_streams *streams;
    struct hf_random *random;

    /* The connection to `peer` is established; its stream is `stream`. */
    void (*on_up)(void *arg, uint64_t peer, uint64_t stream);

    /* The connection to `peer` was lost, or could not be made. `refused`: no
     * process listens at the address. */
    void (*on_down)(void *arg, uint64_t peer, bool refused);
    void *arg;
    struct hf_dialer_peer list[HF_RAFT_VOTERS_MAX];
    size_t count;
    bool is_closing;
};

/* Start to connect to each member except `config->node`. The caller has set
 * `streams`, `random`, `on_up`, `on_down` and `arg`. Returns HF_ESYSTEM if a
 * timer cannot be created. */
enum hf_err hf_dialer_open(struct hf_dialer *dialer,
                           const struct hf_config *config,
                           struct hf_error *error);
void hf_dialer_close(struct hf_dialer *dialer);

/* If `stream` is a connection of the dialer, close it without calling on_down,
 * connect again later, and return true. Otherwise returns false. */
bool hf_dialer_reconnect(struct hf_dialer *dialer, struct hf_stream *stream);

#endif
