/* node.h - one node of a quorum: a master and its clients, without sockets,
 * clock, files or threads.
 *
 * A node owns a master (core/quorum/master.h) and serves the clients that
 * coordinate (serve/server.h): each QUORUM request is one message to the
 * master. What it knows by itself, it answers: dirty reads, lists, events and
 * its status. It is connected to no other node.
 *
 * A shell (the daemon, or a test) has the connections, the clock and the file.
 * It reports what happens, and calls hf_quorum_node_turn() when it has nothing
 * more to report; the node acts through struct hf_quorum_node_ops.
 *
 * Always true:
 *   1. a number is promised only if it is at most the mark that the shell has
 *      made durable. Others are refused with HF_EUNAVAIL until the file is
 *      written;
 *   2. a node that has promised numbers before is quiet for lease_max_ms after
 *      its start, because it has forgotten its leases;
 *   3. claims that wait belong to the connection of their last ASK, and leave
 *      the queue when it is closed. */
#ifndef HF_QUORUM_NODE_H
#define HF_QUORUM_NODE_H

#include "base/limits.h"
#include "base/siphash.h"
#include "quorum/members.h"

struct hf_quorum_node;

/* 0 selects the default of members that have one. hf_quorum_node_new() copies
 * everything. */
struct hf_quorum_node_opts {
    const struct hf_members *members;
    uint64_t id;          /* of this node, one of the masters */
    uint64_t mark;        /* durable; 0: the node is new */
    struct hf_seed seed;  /* random: hash keys */
    size_t table_bytes;   /* memory of the master; default HF_QUORUM_BYTES */
    size_t history_bytes; /* events kept for watches; default
                              HF_NODE_HISTORY_BYTES */
    size_t clients_max;   /* default and maximum: HF_CLIENTS_MAX */
};

/* The services of the shell. None of them calls the node. `conn` is the number
 * of a connection, which the shell chooses; 0 is not used, and no number is
 * used again. */
struct hf_quorum_node_ops {
    void (*send_client)(void *arg, uint64_t conn, const void *bytes,
                        size_t size);
    void (*close_client)(void *arg, uint64_t conn);
    void (*pause_client)(void *arg, uint64_t conn, bool stop_reading);

    /* Write `mark` to the file of this node, and make it durable. Then call
     * hf_quorum_node_on_mark(). Until that, this is not called again. */
    void (*write_mark)(void *arg, uint64_t mark);
};

/* Make a node; `now` is the time. `arg` is passed to all `ops`, which are
 * borrowed. Returns HF_OK or HF_ENOMEM. */
enum hf_err hf_quorum_node_new(const struct hf_quorum_node_opts *opts,
                               const struct hf_quorum_node_ops *ops, void *arg,
                               hf_time now, struct hf_quorum_node **node);

/* Free the node; accepts NULL. The sockets are not closed. */
void hf_quorum_node_free(struct hf_quorum_node *node);

/* ---- Input --------------------------------------------------------------*/

/* Set the time of the input that is reported next. `now` never decreases. */
void hf_quorum_node_set_time(struct hf_quorum_node *node, hf_time now);

/* The shell has accepted the connection of a client, has received bytes from
 * it, or has closed it; or has closed a connection at once for lack of
 * descriptors or memory. */
void hf_quorum_node_on_client_open(struct hf_quorum_node *node, uint64_t conn);
void hf_quorum_node_on_client_data(struct hf_quorum_node *node, uint64_t conn,
                                   const void *bytes, size_t size);
void hf_quorum_node_on_client_closed(struct hf_quorum_node *node,
                                     uint64_t conn);
void hf_quorum_node_on_client_refused(struct hf_quorum_node *node);

/* `size` bytes of output wait in the queue of the socket of `conn`. */
void hf_quorum_node_on_client_unsent(struct hf_quorum_node *node, uint64_t conn,
                                     size_t size);

/* The mark is durable, or `ok` is false: then it may be durable or not, and the
 * node asks again later. */
void hf_quorum_node_on_mark(struct hf_quorum_node *node, uint64_t mark,
                            bool ok);

/* The mark that the node asks for in its next turn; 0: none. A shell may write
 * it before the first turn, and call hf_quorum_node_on_mark(). */
uint64_t hf_quorum_node_wanted_mark(const struct hf_quorum_node *node);

/* ---- Time ---------------------------------------------------------------*/

/* End leases and votes that are due, and send. */
void hf_quorum_node_turn(struct hf_quorum_node *node, hf_time now);

/* Returns when the next turn is due if there is no input. */
hf_time hf_quorum_node_deadline(const struct hf_quorum_node *node);

/* ---- Status -------------------------------------------------------------*/

struct hf_quorum_node_status {
    uint32_t quiet_ms;    /* until the master decides again; 0: now */
    uint64_t mark;        /* durable */
    bool mark_failed;     /* the file could not be written, and still is not */
    uint64_t mark_writes; /* since the start, also those that failed */
};

void hf_quorum_node_status(const struct hf_quorum_node *node,
                           struct hf_quorum_node_status *status);

#endif
