/* connection.h - one connection to a node.
 *
 *            open             connected          HELLO           attached
 *     DOWN -------> CONNECTING -------> GREETING -------> READY -------> UP
 *      ^                |                  |                |            |
 *      +----------------+------ lost ------+----------------+------------+
 *
 * Requests are collected during a turn and written when it ends.
 *
 * A process or machine that has stopped does not close its connections, so a
 * silent node is detected by PINGs. While something is awaited from the node, a
 * PING is sent after half a second without a byte, and the connection is lost
 * after another second; while nothing is awaited, a PING is sent after 10
 * seconds. route.c decides where to connect next. */
#ifndef HF_STRATEGY_RAFT_CONNECTION_H
#define HF_STRATEGY_RAFT_CONNECTION_H

#include "strategy/raft/transport.h"
#include "wire/mux.h"

struct hf_raft;

enum hf_raft_state {
    HF_RAFT_DOWN,
    HF_RAFT_CONNECTING,
    HF_RAFT_GREETING, /* HELLO was sent */
    HF_RAFT_READY,    /* OPEN or ATTACH was sent */
    HF_RAFT_UP,
};

struct hf_raft_connection {
    struct hf_raft *raft;
    enum hf_raft_state state;
    struct hf_raft_stream stream;
    struct hf_raft_address *address;
    struct hf_raft_address learned; /* storage of an `address` not in the URL */
    unsigned incarnation;           /* changes when it is opened or closed */
    struct hf_resp_reader reader;
    struct hf_buf output;
    struct hf_post flush; /* writes `output` when the turn ends */
    hf_time since;        /* when the present state began */
    hf_time heard;        /* when data last arrived, or was first awaited */
    uint64_t node;        /* the node's id */
    uint64_t leader;      /* the leader's id, if the node knows it; else 0 */
    uint8_t version;      /* format version of the commands to send */
    uint64_t ping;        /* id of a PING without a reply; 0: none */
    uint64_t handshake;   /* id of an OPEN or ATTACH without a reply; 0: none */
    bool opens;           /* `handshake` is an OPEN */
};

void hf_raft_connection_init(struct hf_raft_connection *connection,
                             struct hf_raft *raft);

/* Connect to `address`, which must be valid until the connection is down. A
 * failure is reported to hf_raft_route_on_lost() inside the call. */
void hf_raft_connection_open(struct hf_raft_connection *connection,
                             struct hf_raft_address *address);

/* Write the requests that were sent in this turn, and close the connection.
 * hf_raft_route_on_lost() is not called. Does nothing if the connection is
 * down. */
void hf_raft_connection_close(struct hf_raft_connection *connection);

/* Close the connection, and report `err` and `text` to
 * hf_raft_route_on_lost(). */
void hf_raft_connection_lose(struct hf_raft_connection *connection,
                             enum hf_err err, const char *text);

/* The session is attached. The connection must be READY and becomes UP. */
void hf_raft_connection_set_up(struct hf_raft_connection *connection);

/* Send a request when this turn ends. The connection must be READY or UP. If
 * memory is exhausted, the connection is lost later in this turn. */
void hf_raft_connection_send(struct hf_raft_connection *connection,
                             const struct hf_mux_request *request);

/* Call this before a request is added to hf_raft.requests. If nothing was
 * awaited, the silence of the node counts from now. */
void hf_raft_connection_expect(struct hf_raft_connection *connection);

/* Write the requests that were sent in this turn. */
void hf_raft_connection_flush(struct hf_raft_connection *connection);

/* Send a PING if it is due, or lose the connection if the node has been silent
 * for too long. hf_raft_connection_deadline() returns when to call this
 * next. */
void hf_raft_connection_tick(struct hf_raft_connection *connection);
hf_time hf_raft_connection_deadline(
    const struct hf_raft_connection *connection);

#endif
