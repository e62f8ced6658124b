/* one_node.h - a node of a quorum under test: clients, a shell and a clock that
 * the test controls. Requests to the master are those of
 * quorum/one_master.h. */
#ifndef HF_TESTS_QUORUM_NODE_ONE_NODE_H
#define HF_TESTS_QUORUM_NODE_ONE_NODE_H

#include "quorum/one_master.h"
#include "quorum/state.h"

#define NODE_CLIENTS 40

struct node_client {
    struct hf_resp_reader reader; /* of what the node has sent */
    struct hf_resp_message message;
    uint64_t id; /* of the last request */
    bool is_open;
    bool is_closed; /* by the node */
    bool is_paused;
    bool is_deaf; /* it reads nothing: what is sent stays unsent */
    bool drops;   /* what is sent is dropped: nothing is allocated for it */
    size_t unsent;
};

struct one_node {
    struct hf_quorum_node *node;
    hf_time now;
    struct node_client clients[NODE_CLIENTS]; /* by number, from 1 */
    unsigned marks;                           /* calls of write_mark */
    uint64_t mark; /* that is being written; 0: none */
};

/* A new node of three, whose first mark is durable, or the same with `mark`: it
 * has run before. */
void one_node_init(struct one_node *one);
enum hf_err one_node_init_with(struct one_node *one, uint64_t mark,
                               size_t clients_max);
void one_node_fini(struct one_node *one);

/* Run turns until none is due now. */
void one_node_run(struct one_node *one);

/* Let time pass, without a turn in between. */
void one_node_advance(struct one_node *one, hf_time ms);

/* The file was written, or not. */
void one_node_end_mark(struct one_node *one, bool ok);

/* Connect a client, in plain mode, or in MUX mode after HELLO. */
struct node_client *one_node_connect(struct one_node *one, uint64_t conn);
struct node_client *one_node_connect_mux(struct one_node *one, uint64_t conn);

/* The client closes its connection. */
void one_node_close(struct one_node *one, uint64_t conn);

void one_node_send(struct one_node *one, uint64_t conn, const void *data,
                   size_t size);
void one_node_type(struct one_node *one, uint64_t conn, const char *line);

/* Send a request of MUX mode; its id is the next of the client. */
void one_node_request(struct one_node *one, uint64_t conn,
                      struct hf_mux_request request);

/* Take the next message that the node has sent. Returns false if there is
 * none. */
bool one_node_take(struct one_node *one, uint64_t conn);

/* Send a request and take its reply, which must be the next message. */
struct hf_mux_reply one_node_call(struct one_node *one, uint64_t conn,
                                  struct hf_mux_request request);

/* Send a message to the master, and take its answer. */
struct hf_quorum_reply one_node_ask(struct one_node *one, uint64_t conn,
                                    struct hf_quorum_request request);

/* Take a push, which must be the next message, and of `kind`. */
struct hf_mux_push one_node_take_push(struct one_node *one, uint64_t conn,
                                      enum hf_mux_push_kind kind);

/* The same for a VOTE. Returns the reply in it. */
struct hf_quorum_reply one_node_take_vote(struct one_node *one, uint64_t conn,
                                          unsigned claim);

/* A text that the node replies to a line of plain mode. The client closes its
 * connection. Freed by the caller. */
char *one_node_text(struct one_node *one, uint64_t conn, const char *line);

#endif
