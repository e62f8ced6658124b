/* fake_node.h - a replication half for tests of the client half: a store of one
 * node that applies each command in the next turn.
 *
 * It defines struct hf_node and the functions of a node that the client half
 * calls. It also replaces the shell, which has the sockets: it records what is
 * sent to connections. */
#ifndef HF_TESTS_NODE_FAKE_NODE_H
#define HF_TESTS_NODE_FAKE_NODE_H

#include "node/clients.h"
#include "node/requests.h"

#define HF_FAKE_CONNS 8 /* connections 1 to HF_FAKE_CONNS - 1 are recorded */

struct hf_fake_conn {
    struct hf_buf output; /* not yet taken by the test */
    bool is_closed;
    bool is_paused;
    uint64_t session; /* attached to this connection; 0: none */
    size_t sends;
};

struct hf_node {
    hf_time now;
    struct hf_store store;
    struct hf_clients *clients;
    struct hf_dlist requests;
    struct hf_dlist granted; /* waiters that the running command gave a key */
    bool has_granted;        /* the last command was granted a key at once */
    struct hf_fake_conn conns[HF_FAKE_CONNS];
    uint64_t leader;
    int64_t age_ms;    /* of the grants that are reported */
    bool is_stuck;     /* requests stay unanswered */
    bool loses_grants; /* no grant is reported */
    uint64_t behind;   /* log entries that its table seems to lack */
    /* The outcome of commands of the kind `failing`. If `failing` is 0, it is
     * the outcome of all requests, provided that failure.err is set. */
    struct hf_node_outcome failure;
    enum hf_command_kind failing;
    size_t submitted;
    size_t abandoned;
    size_t closed_conns; /* all that were closed, recorded or not */
};

void hf_fake_init(struct hf_node *node);
void hf_fake_fini(struct hf_node *node);

/* Run turns at the time `now` until nothing more is due. hf_fake_step() runs
 * one turn, at the time of the last one. */
void hf_fake_turn(struct hf_node *node, hf_time now);
void hf_fake_step(struct hf_node *node);

/* hf_fake_open() opens the client connection `conn`. hf_fake_send() passes
 * `text` to the node as input from that connection. */
void hf_fake_open(struct hf_node *node, uint64_t conn);
void hf_fake_send(struct hf_node *node, uint64_t conn, const char *text);

/* hf_fake_expect() takes the output of `conn`, and asserts that it is `wanted`.
 * hf_fake_call() first sends `text` and runs turns. A `~` at the end of
 * `wanted` stands for any further output. */
void hf_fake_expect(struct hf_node *node, uint64_t conn, const char *wanted);
void hf_fake_call(struct hf_node *node, uint64_t conn, const char *text,
                  const char *wanted);

/* Restore the store from the snapshot of an empty table that has had `index`
 * events. */
void hf_fake_restore(struct hf_node *node, uint64_t index);

#endif
