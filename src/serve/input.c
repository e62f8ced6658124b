/* input.c - execute the requests of a connection, and stop reading from it
 * while they have to wait. */
#include "serve/reply.h"

/* Returns true if the connection, or all of them together, have executed as
 * many requests as they may in one turn. All other clients, and the other nodes
 * of the cluster, wait for the end of the turn, and the input that arrives
 * between two turns has no limit. */
static bool has_used_turn(const struct hf_serve_conn *conn)
{
    return conn->server->work >= HF_CLIENTS_REQUEST_WORK ||
           (conn->turn == conn->server->turn &&
            conn->turn_requests >= HF_CLIENT_TURN_MAX);
}

/* Returns true if there is room for the reply to the next request. A plain
 * client has to read the replies before its next requests are executed. */
static bool has_room_for_reply(const struct hf_serve_conn *conn)
{
    return conn->is_mux ? hf_serve_conn_has_reply_room(conn)
                        : hf_serve_conn_has_room(conn);
}

/* Returns true if the next request has to wait for something else than another
 * turn. Whatever it waits for continues the connection. */
static bool is_busy(const struct hf_serve_conn *conn)
{
    const struct hf_service_ops *ops = conn->server->opts.ops;

    return !has_room_for_reply(conn) || (ops->is_busy && ops->is_busy(conn));
}

/* Pause reading while requests have to wait. A plain connection that is busy is
 * read up to HF_RESP_FRAME_MAX bytes even then, because only reading detects
 * that the client has closed it. */
static void set_paused(struct hf_serve_conn *conn)
{
    const struct hf_server_shell *shell = &conn->server->opts.shell;
    bool pause = hf_dlist_is_linked(&conn->in_ready) ||
                 (is_busy(conn) &&
                  (conn->is_mux || conn->reader.size > HF_RESP_FRAME_MAX));

    if (pause == conn->is_paused)
        return;
    conn->is_paused = pause;
    conn->active_at = conn->server->now; /* it may be silent meanwhile */
    conn->server->counters.connections_paused += pause;
    shell->pause(shell->arg, conn->number, pause);
}

static void reject_input(struct hf_serve_conn *conn)
{
    conn->server->counters.connections_broken++;
    hf_serve_reply_error(conn, conn->reader.parser.err,
                         conn->reader.parser.cause);
    hf_serve_conn_close(conn);
}

static void count_request(struct hf_serve_conn *conn)
{
    struct hf_server *server = conn->server;

    if (conn->turn != server->turn)
        conn->turn_requests = 0;
    conn->turn = server->turn;
    conn->turn_requests++;
    server->counters.requests++;
}

static void handle_message(struct hf_serve_conn *conn,
                           const struct hf_resp_message *message)
{
    count_request(conn);
    conn->active_at = conn->server->now;
    hf_serve_conn_execute(conn, message);
}

static void count_input(struct hf_serve_conn *conn)
{
    conn->server->input += conn->reader.size;
    conn->server->input -= conn->input;
    conn->input = conn->reader.size;
}

/* Returns true if all connections together would keep more than HF_INPUT_MAX
 * bytes, and this one more than HF_RESP_LINE_MAX. */
static bool has_too_much_input(const struct hf_serve_conn *conn)
{
    size_t others = conn->server->input - conn->input;

    return others + conn->reader.size > HF_INPUT_MAX &&
           conn->reader.size > HF_RESP_LINE_MAX;
}

/* Keep the bytes of requests that have to wait or are incomplete. Close the
 * connection if there are too many, so that clients that send slowly or in
 * parts cannot use up the memory of the node. */
void hf_serve_conn_keep_input(struct hf_serve_conn *conn)
{
    if (!conn->is_closing && !has_too_much_input(conn) &&
        !hf_resp_reader_keep(&conn->reader)) {
        count_input(conn);
        set_paused(conn);
        return;
    }
    hf_resp_reader_fini(&conn->reader);
    count_input(conn);
    if (conn->is_closing)
        return;
    conn->server->counters.connections_broken++;
    hf_serve_reply_error(conn, HF_ELIMIT, "this node has too many requests");
    hf_serve_conn_close(conn);
}

/* Take and execute the next request. */
static enum hf_resp_status execute_next(struct hf_serve_conn *conn)
{
    size_t input = conn->reader.size;
    size_t output = conn->output.size;
    struct hf_resp_message message;
    enum hf_resp_status status = hf_resp_reader_next(&conn->reader, &message);

    if (status == HF_RESP_MESSAGE)
        handle_message(conn, &message);
    else if (status == HF_RESP_BROKEN)
        reject_input(conn);
    conn->server->work +=
        1 +
        (unsigned)((input - conn->reader.size + conn->output.size - output) /
                   64);
    return status;
}

/* Returns true if it is the turn of another connection. `work` is that of all
 * connections when the turn of this one began. */
static bool has_used_part(const struct hf_serve_conn *conn, unsigned work)
{
    const struct hf_server *server = conn->server;

    return server->work - work >= HF_CLIENT_REQUEST_PART &&
           !hf_dlist_is_empty(&server->ready);
}

void hf_serve_conn_take_input(struct hf_serve_conn *conn)
{
    enum hf_resp_status status = HF_RESP_MESSAGE;
    unsigned work = conn->server->work;

    while (!conn->is_closing && !is_busy(conn) && !has_used_turn(conn) &&
           !has_used_part(conn, work) && status == HF_RESP_MESSAGE)
        status = execute_next(conn);
    if (status == HF_RESP_MESSAGE && conn->reader.size > 0 && !is_busy(conn))
        hf_serve_conn_set_ready(conn);
    hf_serve_conn_keep_input(conn);
    conn->is_streaming |= !hf_serve_conn_has_room(conn);
}
