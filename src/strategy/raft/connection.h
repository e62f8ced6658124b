/* connection.h - one connection to a node.
 *
 *            open             connected          HELLO           attached
 *     DOWN -------> CONNECTING -------> GREETING -------> READY -------> UP
 *      ^                |                  |                |            |
 *      +----------------+------ lost ------+----------------+------------+
 *
 * The connection collects what is sent in a turn and writes it when the turn
 * ends. It notices a node that is silent, because a stopped process or machine
 * closes nothing: while it awaits something, it sends a PING after half a second
 * without a byte, and gives up a second later. route.c decides what happens
 * next. */
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
    struct hf_raft_address learned; /* of a node that the URL does not list */
    unsigned incarnation;           /* counts the openings */
    struct hf_resp_reader reader;
    struct hf_buf output;
    struct hf_post flush; /* writes `output` when the turn ends */
    hf_time since;        /* when the present state began */
    hf_time heard;        /* when a byte was received, or began to be awaited */
    uint64_t node;        /* the node's id */
    uint64_t leader;      /* the leader's id, by this node; 0: unknown */
    uint8_t version;      /* of commands that the cluster accepts */
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

/* Write what was sent, and close; reports nothing. Does nothing if the
 * connection is down. */
void hf_raft_connection_close(struct hf_raft_connection *connection);

/* Close the connection because of `err`, and report that to
 * hf_raft_route_on_lost(). */
void hf_raft_connection_lose(struct hf_raft_connection *connection,
                             enum hf_err err, const char *text);

/* The connection must be READY or UP. */
void hf_raft_connection_set_up(struct hf_raft_connection *connection);

/* Send a request when this turn ends. The connection must be READY or UP. If
 * memory is exhausted, the connection is lost later in this turn. */
void hf_raft_connection_send(struct hf_raft_connection *connection,
                             const struct hf_mux_request *request);

/* Something begins to be awaited. Call this before it is sent. */
void hf_raft_connection_expect(struct hf_raft_connection *connection);

/* Write what was sent. */
void hf_raft_connection_flush(struct hf_raft_connection *connection);

/* Send the PINGs that are due; give up a silent node. */
void hf_raft_connection_tick(struct hf_raft_connection *connection);
hf_time hf_raft_connection_deadline(
    const struct hf_raft_connection *connection);

#endif
