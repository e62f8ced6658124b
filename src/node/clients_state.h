/* clients_state.h - connections and their requests, for the sources of the
 * client half. The server (serve/server.h) has the connections as such.
 *
 *     clients.c           the service, and the hooks of the replication half
 *     conn.c              one connection: when it is busy, and how it ends
 *     op.c                requests that wait for the replication half
 *     conn_mux.c          the requests of MUX mode
 *     conn_plain.c        the commands of plain mode
 *     conn_claim.c        a plain command on a lock, from OPEN to its reply
 *     conn_wait.c         a plain LOCK while it waits in a queue
 *     conn_read.c         READ and LOOKUP
 *     conn_list.c         LIST
 *     report.c            HELLO, INFO and STATUS
 *     clients_node.c      access to struct hf_node */
#ifndef HF_NODE_CLIENTS_STATE_H
#define HF_NODE_CLIENTS_STATE_H

#include "node/clients.h"
#include "node/list_cursors.h"
#include "node/requests.h"
#include "serve/list.h"
#include "serve/reply.h"
#include "serve/watch.h"

struct hf_clients {
    struct hf_server server;
    struct hf_clients_opts opts;
    char cluster[2 * sizeof(struct hf_log_cluster) + 1]; /* hex */
    struct hf_dlist orphans; /* ops whose connection is closed */
    struct hf_heap waits;    /* claims of plain clients, by their timer */
    size_t wait_count;       /* allocated claims; `waits` has room for all */
    size_t unanswered; /* bytes of all ops, and of the commands of claims */
    uint64_t drawn;    /* 64-bit words drawn so far, two for each nonce */
    struct hf_list_cursors cursors;
};

struct hf_conn_claim;

struct hf_conn {
    struct hf_serve_conn serve; /* first: see hf_service_ops.conn_size */
    struct hf_clients *clients;
    struct hf_dlist ops;       /* in order of arrival */
    struct hf_dlist confirmed; /* reads to answer; op_count includes them */
    uint32_t op_count;
    size_t unanswered;           /* its part of clients->unanswered */
    uint64_t session;            /* 0: none */
    uint64_t highest;            /* highest sequence number of its commands */
    struct hf_conn_claim *claim; /* plain mode; may be NULL */
    bool is_attaching;           /* an OPEN or ATTACH is unanswered */
};

static inline struct hf_clients *hf_clients_of(struct hf_server *server)
{
    return HF_CONTAINER(server, struct hf_clients, server);
}

static inline struct hf_conn *hf_conn_of(const struct hf_serve_conn *serve)
{
    return HF_CONTAINER(serve, struct hf_conn, serve);
}

/* ---- conn.c -------------------------------------------------------------*/

struct hf_conn *hf_conn_find(const struct hf_clients *clients, uint64_t number);
hf_time hf_conn_now(const struct hf_conn *conn);
struct hf_store *hf_conn_store(const struct hf_conn *conn);

/* Start a watch and reply to its request, like hf_serve_watch_start(). */
enum hf_err hf_conn_watch(struct hf_conn *conn,
                          const struct hf_mux_request *request);

/* These are members of struct hf_service_ops. */
void hf_conn_init(struct hf_serve_conn *serve);
void hf_conn_fini(struct hf_serve_conn *serve);
bool hf_conn_is_busy(const struct hf_serve_conn *serve);
bool hf_conn_may_be_silent(const struct hf_serve_conn *serve);
void hf_conn_on_ready(struct hf_serve_conn *serve);
unsigned hf_conn_stream(struct hf_serve_conn *serve);

/* ---- clients.c ----------------------------------------------------------*/

/* Returns 16 bytes that cannot be guessed without the node's seed. */
struct hf_nonce hf_clients_draw(struct hf_clients *clients);

/* ---- op.c ---------------------------------------------------------------*/

struct hf_op;
typedef void hf_op_done_fn(struct hf_op *op,
                           const struct hf_node_outcome *outcome);

/* A request that waits for the replication half. */
struct hf_op {
    struct hf_node_request request;
    struct hf_dlist link; /* in conn->ops or ->confirmed, or in
                             clients->orphans */
    struct hf_clients *clients;
    struct hf_conn *conn;      /* NULL: the connection was closed */
    hf_op_done_fn *done;       /* the op is then freed, unless `is_confirmed` */
    bool is_confirmed;         /* a read in conn->confirmed */
    struct hf_mux_request mux; /* the request; a read: `key` is in `bytes` */
    size_t size;               /* bytes counted in clients->unanswered */
    uint8_t bytes[];
};

/* Returns true if another `size` bytes of unanswered requests of the connection
 * may be kept. The limit is lower if `is_lock`, so that there is room to
 * unlock. */
bool hf_conn_may_keep(const struct hf_conn *conn, size_t size, bool is_lock);

/* Count `size` bytes of unanswered requests that are kept, or dropped again. */
void hf_conn_keep_bytes(struct hf_conn *conn, size_t size);
void hf_conn_drop_bytes(struct hf_conn *conn, size_t size);

/* Make an op with a copy of `bytes`. Returns HF_ELIMIT if there are too many
 * unanswered bytes, or HF_ENOMEM. */
enum hf_err hf_op_new(struct hf_conn *conn, struct hf_bytes bytes, bool is_lock,
                      struct hf_op **op);
void hf_op_free(struct hf_op *op);

/* Make an op for a READ, LOOKUP, LIST or ATTACH, with a copy of its key. Fails
 * like hf_op_new(). */
enum hf_err hf_op_new_read(struct hf_conn *conn,
                           const struct hf_mux_request *request,
                           struct hf_op **op);

/* Submit the op: a command, which is in op->bytes, or a READ_INDEX. `done` is
 * called with the outcome; `remaining_ms` is the timeout. If the op cannot be
 * submitted, it is freed, and `done` is not called. */
enum hf_err hf_op_submit(struct hf_op *op, enum hf_node_request_kind kind,
                         uint32_t remaining_ms, hf_op_done_fn *done);

/* Encode and submit a command that the node has made: OPEN or CLOSE, or a
 * command of a plain client. `mux` is the request to answer, or NULL. */
enum hf_err hf_op_submit_command(struct hf_conn *conn,
                                 const struct hf_command *command,
                                 const struct hf_mux_request *mux,
                                 hf_op_done_fn *done);

/* Close the session of the connection, without waiting for the outcome. */
void hf_op_close_session(struct hf_conn *conn);

/* The error text of an outcome that is not HF_OK. */
const char *hf_op_error_text(const struct hf_node_outcome *outcome);

/* The error text of a request that this node refuses with `err`. HF_ELIMIT is
 * the limit of what `verb` asks for. */
const char *hf_op_refusal_text(enum hf_err err, enum hf_verb verb);

/* The error text of an OPEN that the table has refused with `err`. */
const char *hf_op_open_text(enum hf_err err);

/* ---- The modes: members of struct hf_service_ops ------------------------*/

void hf_conn_execute_mux(struct hf_serve_conn *serve,
                         const struct hf_mux_request *request);
void hf_conn_execute_plain(struct hf_serve_conn *serve, enum hf_verb verb,
                           struct hf_arguments *args);
bool hf_conn_accept_mux(struct hf_serve_conn *serve);

/* ---- conn_claim.c -------------------------------------------------------*/

/* Execute `command`, a valid command of a plain client. Its session and
 * sequence number are set here, and its key and strings are copied. A LOCK
 * waits up to `wait_ms`. */
void hf_conn_claim_start(struct hf_conn *conn, const struct hf_command *command,
                         uint32_t wait_ms);

/* Returns true while a command on a lock is not answered. */
bool hf_conn_claim_is_busy(const struct hf_conn *conn);
void hf_conn_claim_on_ready(struct hf_conn *conn);
void hf_conn_claim_free(struct hf_conn *conn);

/* ---- conn_wait.c --------------------------------------------------------*/

void hf_conn_wait_on_grant(struct hf_conn *conn,
                           const struct hf_node_grant *grant);
void hf_conn_wait_on_timers(struct hf_clients *clients);

/* ---- conn_read.c --------------------------------------------------------*/

/* This node's table is recent enough for the READ, LOOKUP or LIST `op`: execute
 * it when it is the turn of the connection and there is room for the reply. */
void hf_conn_read_confirmed(struct hf_op *op);

/* Execute the confirmed reads; otherwise like hf_serve_list_continue(). */
unsigned hf_conn_read_continue(struct hf_conn *conn, unsigned max);

/* Reply to a READ or a LOOKUP, in the connection's mode. */
void hf_conn_read_reply(struct hf_conn *conn,
                        const struct hf_mux_request *request);

/* ---- conn_list.c --------------------------------------------------------*/

/* Start to reply to a LIST; fails like hf_serve_list_start(). */
enum hf_err hf_conn_list_start(struct hf_conn *conn,
                               const struct hf_mux_request *request);

/* ---- report.c -----------------------------------------------------------*/

/* These are members of struct hf_service_ops. */
void hf_report_hello(struct hf_server *server, struct hf_mux_hello *hello);
void hf_report_info(struct hf_server *server, struct hf_buf *text);
void hf_report_status(struct hf_server *server, struct hf_buf *text);

/* Write the push that the leader has changed. */
void hf_report_leader(struct hf_clients *clients, uint64_t leader,
                      struct hf_buf *buf);

#endif
