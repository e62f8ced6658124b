/* conn.h - one connection of a client.
 *
 * A connection begins in plain mode, in which a person can type commands.
 * `HELLO 1 MUX` switches it to MUX mode for good (wire/mux.h).
 *
 * The service may write to `output` at any time, and calls
 * hf_serve_conn_wrote() after it. It writes the outcomes of commands even if
 * there is no room; what can wait, such as lists and events, it writes when it
 * is the turn of the connection, see hf_serve_conn_set_streaming(). */
#ifndef HF_SERVE_CONN_H
#define HF_SERVE_CONN_H

#include "serve/server.h"

/* The service writes `output` and `active_at`, and only reads the other
 * members. */
struct hf_serve_conn {
    struct hf_map_link by_number;
    struct hf_dlist link; /* in server->conns or ->closing */
    struct hf_dlist in_output;
    struct hf_dlist in_ready;
    struct hf_dlist in_streams;
    struct hf_dlist in_slow;
    struct hf_dlist in_watching;
    struct hf_server *server;
    uint64_t number;
    hf_time active_at;    /* when the client was last active: it connected, a
                             request was executed, a request that took long was
                             answered, or reading was paused or resumed */
    size_t unsent;        /* bytes that wait for the socket */
    hf_time unsent_since; /* when `unsent` last fell, or rose from 0 */
    struct hf_resp_reader reader;
    size_t input;           /* bytes that the reader keeps */
    uint64_t turn;          /* server->turn when a request was last executed */
    uint32_t turn_requests; /* requests executed in that turn */
    uint32_t watch_count;   /* A plain client that watches may be silent, and
                               executes only UNWATCH, PING and QUIT, because
                               replies would be hidden among events */
    struct hf_dlist watches;
    size_t watch_bytes;
    struct hf_dlist lists; /* LISTs in progress */
    uint32_t list_count;
    struct hf_buf output;
    bool is_mux;
    bool is_paused;
    bool is_streaming; /* has more to write once there is room */
    bool is_closing;
};

/* Close the connection at the end of the turn, after its output was sent. */
void hf_serve_conn_close(struct hf_serve_conn *conn);

/* Call this after writing to conn->output. If memory was exhausted while
 * writing (output->failed), the connection is closed. */
void hf_serve_conn_wrote(struct hf_serve_conn *conn);

/* Count a request that is answered with `err`, if it is one of the errors that
 * INFO counts. The functions of reply.h do so. */
void hf_serve_conn_count_error(struct hf_serve_conn *conn, enum hf_err err);

/* Continue this connection at the end of this turn, or in the next turn, which
 * then follows at once. */
void hf_serve_conn_set_ready(struct hf_serve_conn *conn);

/* The service may be busy no longer: if requests wait, or reading is paused,
 * continue the connection like hf_serve_conn_set_ready(). */
void hf_serve_conn_resume(struct hf_serve_conn *conn);

/* The service has, or may have, something to stream: continue the connection in
 * this turn of the node or a later one, when the connections before it have
 * been continued and the client has read enough. */
void hf_serve_conn_set_streaming(struct hf_serve_conn *conn);

/* Returns true if there is room for more output. */
bool hf_serve_conn_has_room(const struct hf_serve_conn *conn);

/* Returns true if there is room for the reply to another request of a MUX
 * connection. The limit is higher than that for lists and events, so that these
 * do not delay requests. */
bool hf_serve_conn_has_reply_room(const struct hf_serve_conn *conn);

/* ---- For the server -----------------------------------------------------*/

/* Returns NULL if memory is exhausted. */
struct hf_serve_conn *hf_serve_conn_new(struct hf_server *server,
                                        uint64_t number);
void hf_serve_conn_free(struct hf_serve_conn *conn);

/* Execute the requests that have arrived, until one has to wait, or the limits
 * of this turn are reached. If there may be more to execute, the connection is
 * ready again, after the others that are. */
void hf_serve_conn_take_input(struct hf_serve_conn *conn);

/* Keep input that has arrived for a connection that is ready: it is executed
 * when it is the turn of this connection. */
void hf_serve_conn_keep_input(struct hf_serve_conn *conn);

/* Let the service continue, and then the requests that were kept. */
void hf_serve_conn_continue(struct hf_serve_conn *conn);

/* Execute one request: a command of the server's own here, others by the
 * service. */
void hf_serve_conn_execute(struct hf_serve_conn *conn,
                           const struct hf_resp_message *message);

#endif
