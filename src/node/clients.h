/* clients.h - the client half of a node: connections that speak the protocol of
 * holdfast-protocol(7).
 *
 * This half is the service behind a server (serve/server.h), which reads
 * requests, sends output and enforces the limits of connections. It submits
 * commands to the replication half (requests.h), answers reads from this node's
 * table, and streams events.
 *
 * Always true:
 *   1. a command is answered with what the replication half reports. Only
 *      whether a waiting claim was granted is also looked up in this node's
 *      table, in case the report of the grant was lost;
 *   2. the commands of nodes, EXPIRE, CLOSE and VERSION, are not accepted from
 *      clients, and OPEN only by its own request;
 *   3. unanswered requests, lists and watches take memory only within the
 *      limits (base/limits.h), whatever a client sends or fails to read. */
#ifndef HF_NODE_CLIENTS_H
#define HF_NODE_CLIENTS_H

#include "core/store.h"
#include "node/hooks.h"
#include "node/node.h"

struct hf_clients;

/* Create node->clients, so that the node serves clients. Returns HF_OK or
 * HF_ENOMEM. */
enum hf_err hf_clients_open(struct hf_node *node);

struct hf_clients_opts {
    struct hf_node *node;
    const struct hf_node_ops *ops; /* borrowed */
    void *arg;                     /* for the functions of `ops` */
    struct hf_log_cluster cluster;
    uint64_t id;         /* of this node */
    size_t max;          /* connections */
    struct hf_seed seed; /* random: nonces and secrets of plain clients */
};

/* Returns NULL if memory is exhausted. */
struct hf_clients *hf_clients_new(const struct hf_clients_opts *opts);

/* Free the clients with their connections. The sockets are not closed. */
void hf_clients_free(struct hf_clients *clients);

/* Called by the functions hf_node_on_client_...() in node.h. `number` is the
 * number of the connection. */
void hf_clients_on_open(struct hf_clients *clients, uint64_t number);
void hf_clients_on_data(struct hf_clients *clients, uint64_t number,
                        const void *data, size_t size);
void hf_clients_on_closed(struct hf_clients *clients, uint64_t number);
void hf_clients_on_refused(struct hf_clients *clients);
void hf_clients_on_unsent(struct hf_clients *clients, uint64_t number,
                          size_t size);

/* For hf_node_set_hooks(), with the clients as the argument. */
extern const struct hf_node_hooks hf_clients_hooks;

/* What the client half needs of the replication half, besides requests.h,
 * attachments.h, hooks.h and hf_node_status(): the time of this turn, and the
 * table of this node. */
hf_time hf_clients_now(const struct hf_node *node);
struct hf_store *hf_clients_store(const struct hf_node *node);

#endif
