/* connection.h - one connection of raft: a link to a node
 * (strategy/net/link.h), which is UP once the session is attached to it.
 * route.c decides where to connect next. */
#ifndef HF_STRATEGY_RAFT_CONNECTION_H
#define HF_STRATEGY_RAFT_CONNECTION_H

#include "strategy/net/link.h"

struct hf_raft;

struct hf_raft_connection {
    struct hf_raft *raft;
    struct hf_net_link link;
    struct hf_net_address learned; /* of a leader that is not in the URL */
    uint64_t node;                 /* the node's id */
    uint64_t leader;    /* the leader's id, if the node knows it; else 0 */
    uint8_t version;    /* format version of the commands to send */
    uint64_t handshake; /* id of an OPEN or ATTACH without a reply; 0: none */
    uint64_t session;   /* what `handshake` attaches; 0: it opens a session */
};

void hf_raft_connection_init(struct hf_raft_connection *connection,
                             struct hf_raft *raft);

/* Like hf_net_link_open() and hf_net_link_close(). A loss is reported to
 * hf_raft_route_on_lost(). */
void hf_raft_connection_open(struct hf_raft_connection *connection,
                             struct hf_net_address *address);
void hf_raft_connection_close(struct hf_raft_connection *connection);

static inline bool hf_raft_connection_is_up(
    const struct hf_raft_connection *connection)
{
    return connection->link.state == HF_NET_LINK_UP;
}

static inline bool hf_raft_connection_is_down(
    const struct hf_raft_connection *connection)
{
    return connection->link.state == HF_NET_LINK_DOWN;
}

static inline void hf_raft_connection_lose(
    struct hf_raft_connection *connection, enum hf_err err, const char *text)
{
    hf_net_link_lose(&connection->link, err, text);
}

static inline void hf_raft_connection_send(
    struct hf_raft_connection *connection, const struct hf_mux_request *request)
{
    hf_net_link_send(&connection->link, request);
}

/* Like hf_net_link_tick(), and lose a connection to which the session cannot be
 * attached. hf_raft_connection_deadline() returns when to call this next. */
void hf_raft_connection_tick(struct hf_raft_connection *connection);
hf_time hf_raft_connection_deadline(
    const struct hf_raft_connection *connection);

#endif
