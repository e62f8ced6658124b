/* app_net.h - the connections between simulated applications and nodes.
 *
 * They are like those of TCP: bytes arrive in order, until the connection ends.
 * If a node dies, an application finds that out soon, or only when it next
 * sends to that node. A cut delays everything in its direction. */
#ifndef HF_TESTS_SIM_APP_NET_H
#define HF_TESTS_SIM_APP_NET_H

#include "sim/nodes.h"
#include "strategy/net/transport.h"

#define SIM_APPS 6

struct app_net;
struct app_link;

/* What one direction of a connection carries. */
enum app_packet_kind {
    APP_PACKET_OPEN,
    APP_PACKET_DATA,
    APP_PACKET_CLOSE,
};

struct app_packet {
    struct hf_dlist link;
    enum app_packet_kind kind;
    hf_time at; /* when it arrives */
    size_t size;
    uint8_t bytes[];
};

/* One direction of a connection. */
struct app_pipe {
    struct app_link *owner;
    struct hf_dlist packets;
    struct sim_event arrive;
    hf_time last; /* when the last packet arrives */
};

struct app_link {
    struct app_net *net;
    uint64_t number; /* of the connection, at the node */
    unsigned app, node;
    struct hf_net_stream *stream; /* NULL: closed by the application */
    bool is_known;                /* the node has the connection */
    bool is_held; /* the node does not read from the connection for now */
    struct app_pipe to_node, to_app;
    struct hf_dlist arrived; /* packets for the application */
};

struct app_net {
    struct sim_nodes *nodes;
    struct hf_random random;
    struct app_link **links;
    size_t count, capacity;
    bool cut_to[SIM_APPS][SIM_NODES], cut_from[SIM_APPS][SIM_NODES];
    hf_time paused_until[SIM_APPS];
    uint64_t sent; /* packets */

    /* Something has arrived for the application: app_net_deliver() reports
     * it. */
    void (*on_arrival)(void *arg, unsigned app);
    void *arg;
};

void app_net_init(struct app_net *net, struct sim_nodes *nodes, uint64_t seed);
void app_net_fini(struct app_net *net);

/* The calls of struct hf_net_transport_ops, for the application `app`. */
void app_net_connect(struct app_net *net, unsigned app, unsigned node,
                     struct hf_net_stream *stream);
void app_net_write(struct hf_net_stream *stream, const void *data, size_t size);
void app_net_close(struct hf_net_stream *stream);

/* Report to the streams of `app` what has arrived. Call this with the mutex of
 * its client held. */
void app_net_deliver(struct app_net *net, unsigned app);

/* The calls of struct sim_clients_ops. */
void app_net_on_send(struct app_net *net, uint64_t number, const void *bytes,
                     size_t size);
void app_net_on_close(struct app_net *net, uint64_t number);
void app_net_on_pause(struct app_net *net, uint64_t number, bool stop);

/* The node goes down. */
void app_net_on_down(struct app_net *net, unsigned node);

/* ---- Faults -------------------------------------------------------------*/

/* Break the connections of an application. With `silent`, the nodes do not
 * notice. */
void app_net_reset(struct app_net *net, unsigned app, bool silent);

/* Cut an application off from a node: what it sends `to` the node, what it gets
 * `from` the node, or both. app_net_heal() ends all cuts of the application. */
void app_net_cut(struct app_net *net, unsigned app, unsigned node, bool to,
                 bool from);
void app_net_heal(struct app_net *net, unsigned app);

/* Lose what is under way between a node and the applications, and end their
 * connections. */
void app_net_lose(struct app_net *net, unsigned node);

#endif
