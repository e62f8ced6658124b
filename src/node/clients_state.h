/* clients_state.h - connections and their requests, for the sources of the
 * client half.
 *
 *     clients.c           connections: output, limits, turns
 *     clients_input.c     reading requests, and pausing a connection
 *     clients_op.c        requests that wait for the replication half
 *     clients_mux.c       the requests of MUX mode
 *     clients_plain.c     the commands of plain mode
 *     clients_claim.c     a plain command on a lock, from OPEN to its reply
 *     clients_read.c      READ and LOOKUP
 *     clients_list.c      LIST, in pages
 *     clients_watch.c     WATCH
 *     clients_report.c    HELLO, INFO and STATUS
 *     clients_node.c      access to struct hf_node */
#ifndef HF_NODE_CLIENTS_STATE_H
#define HF_NODE_CLIENTS_STATE_H

#include "node/clients.h"
#include "node/requests.h"
#include "wire/mux.h"

/* Counters that INFO shows. */
#define HF_CLIENTS_COUNTERS(X)                                                 \
    X(connections_accepted)                                                    \
    X(connections_refused) /* at the limit, or no memory */                    \
    X(connections_idle)    /* closed: no request for too long */               \
    X(connections_slow)    /* closed: output not read, or no memory */         \
    X(connections_broken)  /* closed: bad or too much input, or no memory */   \
    X(connections_paused)  /* reading paused: requests have to wait */         \
    X(requests)                                                                \
    X(requests_refused) /* limit of unanswered bytes, watches or lists */      \
    X(events)                                                                  \
    X(events_dropped) /* DROPPED events; each stands for lost events */

struct hf_clients_counters {
#define HF_CLIENTS_COUNTER(name) uint64_t name;
    HF_CLIENTS_COUNTERS(HF_CLIENTS_COUNTER)
#undef HF_CLIENTS_COUNTER
};

struct hf_clients {
    struct hf_clients_opts opts;
    char cluster[2 * sizeof(struct hf_log_cluster) + 1]; /* hex */
    struct hf_map by_number;
    struct hf_dlist conns;   /* all but those in `closing` */
    struct hf_dlist closing; /* to close at the end of the turn */
    struct hf_dlist output;  /* connections with output to send */
    struct hf_dlist ready;   /* connections that on_turn() continues */
    struct hf_dlist slow;    /* connections with `unsent` output */
    struct hf_dlist watching;
    struct hf_dlist orphans; /* ops whose connection is closed */
    struct hf_heap waits;    /* claims of plain clients, by their timer */
    size_t wait_count;       /* allocated claims; `waits` has room for all */
    size_t count;            /* connections */
    size_t mux_count;
    size_t unanswered; /* bytes of all ops */
    size_t input;      /* bytes of requests that are not yet executed */
    size_t unsent;     /* bytes that wait for sockets */
    uint64_t drawn;    /* 64-bit words drawn so far, two for each nonce */
    hf_time next_sweep;
    struct hf_buf scratch; /* see hf_clients_scratch() */
    struct hf_clients_counters counters;
};

struct hf_conn_claim;

struct hf_conn {
    struct hf_map_link by_number;
    struct hf_dlist link; /* in clients->conns or ->closing */
    struct hf_dlist in_output;
    struct hf_dlist in_ready;
    struct hf_dlist in_slow;
    struct hf_dlist in_watching;
    struct hf_clients *clients;
    uint64_t number;
    hf_time heard;        /* when it was opened, or executed its last request */
    size_t unsent;        /* bytes that wait for the socket */
    hf_time unsent_since; /* when `unsent` last fell, or rose from 0 */
    struct hf_resp_reader reader;
    size_t input; /* bytes that the reader keeps */
    struct hf_buf output;
    struct hf_dlist ops;       /* in order of arrival */
    struct hf_dlist confirmed; /* reads to answer; op_count includes them */
    uint32_t op_count;
    uint32_t watch_count;
    struct hf_dlist watches;
    struct hf_dlist lists; /* LISTs in progress */
    uint32_t list_count;
    uint64_t session;            /* 0: none */
    uint64_t highest;            /* highest sequence number of its commands */
    struct hf_conn_claim *claim; /* plain mode; may be NULL */
    bool is_mux;
    bool is_paused;
    bool is_streaming; /* has more to write once there is room */
    bool is_attaching; /* an OPEN or ATTACH is unanswered */
    bool is_closing;
};

/* ---- clients.c and clients_input.c --------------------------------------*/

struct hf_conn *hf_conn_find(const struct hf_clients *clients, uint64_t number);

/* Close the connection at the end of the turn, after its output was sent. */
void hf_conn_close(struct hf_conn *conn);

/* Execute the requests that have arrived, until one has to wait. */
void hf_conn_take_input(struct hf_conn *conn);

/* Call this after writing to conn->output. If memory was exhausted while
 * writing (output->failed), the connection is closed. */
void hf_conn_wrote(struct hf_conn *conn);

/* Continue this connection at the end of this turn, or in the next turn, which
 * then follows at once. */
void hf_conn_set_ready(struct hf_conn *conn);

/* The connection has more to write: continue in the next turn, or when the
 * client has read enough. */
void hf_conn_set_streaming(struct hf_conn *conn);

/* Returns true if there is room for more output. Outcomes of commands and
 * grants are written even if there is none. */
bool hf_conn_has_room(const struct hf_conn *conn);

hf_time hf_conn_now(const struct hf_conn *conn);
struct hf_store *hf_conn_store(const struct hf_conn *conn);

/* Returns 16 bytes that cannot be guessed without the node's seed. */
struct hf_nonce hf_clients_draw(struct hf_clients *clients);

/* Returns an empty buffer. All callers share it, so use it only until the next
 * call of a function that calls this one. */
static inline struct hf_buf *hf_clients_scratch(struct hf_clients *clients)
{
    clients->scratch.size = 0;
    clients->scratch.failed = false;
    return &clients->scratch;
}

/* ---- clients_op.c -------------------------------------------------------*/

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

/* Make an op with a copy of `bytes`. Returns HF_ELIMIT if there are too many
 * unanswered bytes, or HF_ENOMEM. The limit is lower if `is_lock`, so that
 * there is room to unlock. */
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

/* ---- The modes ----------------------------------------------------------*/

/* Execute one request of a connection in MUX mode. */
void hf_conn_handle_mux(struct hf_conn *conn,
                        const struct hf_resp_message *message);

/* Execute one command of a connection in plain mode. */
void hf_conn_handle_plain(struct hf_conn *conn,
                          const struct hf_resp_message *message);

/* Write an error reply in plain mode. If `text` is NULL, it is
 * hf_err_text(err). */
void hf_conn_reply_error(struct hf_conn *conn, enum hf_err err,
                         const char *text);
void hf_conn_reply_ok(struct hf_conn *conn);

/* Write a reply in MUX mode. `verb` selects the format of the reply. */
void hf_conn_reply_mux(struct hf_conn *conn, const struct hf_mux_reply *reply,
                       enum hf_verb verb);

/* Write an error reply in MUX mode to the request `id`. */
void hf_conn_reply_mux_error(struct hf_conn *conn, uint64_t id, enum hf_err err,
                             const char *text);

/* ---- clients_claim.c ----------------------------------------------------*/

/* Execute a command of a plain client, which must be valid. Its session and
 * sequence number are set here, and its key and strings are copied. A LOCK
 * waits up to `wait_ms`. */
void hf_conn_claim_start(struct hf_conn *conn, const struct hf_command *command,
                         uint32_t wait_ms);
bool hf_conn_claim_is_busy(const struct hf_conn *conn);

/* Returns true if a LOCK of the connection waits in a queue. */
bool hf_conn_claim_is_waiting(const struct hf_conn *conn);
void hf_conn_claim_on_grant(struct hf_conn *conn,
                            const struct hf_node_grant *grant);
void hf_conn_claim_on_ready(struct hf_conn *conn);
void hf_conn_claim_on_timers(struct hf_clients *clients);
void hf_conn_claim_free(struct hf_conn *conn);

/* ---- clients_read.c -----------------------------------------------------*/

struct hf_info hf_conn_read_info(const struct hf_store *store, hf_time now,
                                 const struct hf_hold *hold,
                                 char note[HF_NOTE_MAX + 1]);

/* This node's table is recent enough for the READ, LOOKUP or LIST `op`: execute
 * it as soon as there is room for its reply. */
void hf_conn_read_confirmed(struct hf_op *op);
void hf_conn_read_continue(struct hf_conn *conn);

/* Reply to a READ or a LOOKUP, in the connection's mode. */
void hf_conn_read_reply(struct hf_conn *conn,
                        const struct hf_mux_request *request);

/* Write an info as an array of names and values. */
void hf_conn_read_write_pairs(struct hf_buf *buf, const struct hf_info *info);

/* ---- clients_list.c -----------------------------------------------------*/

/* The arguments of a plain LIST besides its prefix: list at most HF_LIST_COUNT
 * keys, with tokens above HF_LIST_AFTER. They are stored in members of the
 * request that a LIST does not use otherwise. */
#define HF_LIST_AFTER(request) ((request)->from)
#define HF_LIST_COUNT(request) ((request)->remaining_ms)

/* Start to reply to a LIST. The reply to a plain LIST has one page. Can fail
 * with HF_ELIMIT or HF_ENOMEM. */
enum hf_err hf_conn_list_start(struct hf_conn *conn,
                               const struct hf_mux_request *request);
void hf_conn_list_continue(struct hf_conn *conn);
void hf_conn_list_on_restored(struct hf_conn *conn);
void hf_conn_list_free(struct hf_conn *conn);

/* ---- clients_watch.c ----------------------------------------------------*/

enum hf_err hf_conn_watch_add(struct hf_conn *conn,
                              const struct hf_mux_request *request);
void hf_conn_watch_remove(struct hf_conn *conn, uint64_t number);
void hf_conn_watch_remove_all(struct hf_conn *conn);

/* Write events of the watches, at most EVENTS_PER_TURN of each and while there
 * is room for output. If more are left, the connection continues by itself
 * (hf_conn_set_streaming()). */
void hf_conn_watch_continue(struct hf_conn *conn);
void hf_conn_watch_on_restored(struct hf_conn *conn);

/* ---- clients_report.c ---------------------------------------------------*/

void hf_report_hello(struct hf_clients *clients, struct hf_buf *buf);
void hf_report_info(struct hf_clients *clients, struct hf_buf *text);
void hf_report_status(struct hf_clients *clients, struct hf_buf *text);
void hf_report_leader(struct hf_clients *clients, uint64_t leader,
                      struct hf_buf *buf);

#endif
