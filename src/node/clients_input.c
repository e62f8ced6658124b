/* clients_input.c - execute the requests of a connection, and stop reading from
 * it while too many are unanswered. */
#include "node/clients_state.h"

/* Returns true if the next request has to wait. In MUX mode it waits while too
 * many requests are unanswered. In plain mode requests are executed one after
 * the other, and the client has to read the replies. A paused MUX connection
 * continues when fewer than half of HF_CLIENT_REQUESTS_MAX are unanswered, so
 * that it is not paused by every request. */
static bool is_busy(const struct hf_conn *conn)
{
    uint32_t max =
        conn->is_paused ? HF_CLIENT_REQUESTS_MAX / 2 : HF_CLIENT_REQUESTS_MAX;

    if (conn->is_mux)
        return conn->op_count >= max;
    return !hf_conn_has_room(conn) || conn->op_count > 0 ||
           conn->list_count > 0 || hf_conn_claim_is_busy(conn);
}

/* Pause reading while requests have to wait. A plain connection is read up to
 * HF_RESP_FRAME_MAX bytes even then, because only reading detects that the
 * client has closed it. */
static void set_paused(struct hf_conn *conn)
{
    bool pause = is_busy(conn) &&
                 (conn->is_mux || conn->reader.size > HF_RESP_FRAME_MAX);

    if (pause == conn->is_paused)
        return;
    conn->is_paused = pause;
    conn->clients->counters.connections_paused += pause;
    conn->clients->opts.ops->pause_client(conn->clients->opts.arg, conn->number,
                                          pause);
}

static void reject_input(struct hf_conn *conn)
{
    conn->clients->counters.connections_broken++;
    hf_conn_reply_error(conn, conn->reader.parser.err,
                        conn->reader.parser.cause);
    hf_conn_close(conn);
}

static void handle_message(struct hf_conn *conn,
                           const struct hf_resp_message *message)
{
    conn->clients->counters.requests++;
    conn->heard = hf_conn_now(conn);
    if (conn->is_mux)
        hf_conn_handle_mux(conn, message);
    else
        hf_conn_handle_plain(conn, message);
}

/* Keep the bytes of requests that have to wait or are incomplete. If all
 * connections together keep more than HF_INPUT_MAX bytes, close this one if it
 * keeps more than HF_RESP_LINE_MAX, so that clients that send slowly or in
 * parts cannot use up the memory of the node. */
static void keep_input(struct hf_conn *conn)
{
    struct hf_clients *clients = conn->clients;
    bool failed = hf_resp_reader_keep(&conn->reader) != HF_OK;

    clients->input += conn->reader.size;
    clients->input -= conn->input;
    conn->input = conn->reader.size;
    if (clients->input > HF_INPUT_MAX && conn->input > HF_RESP_LINE_MAX)
        failed = true;
    if (!failed || conn->is_closing)
        return;
    clients->counters.connections_broken++;
    hf_conn_reply_error(conn, HF_ELIMIT, "this node has too many requests");
    hf_conn_close(conn);
}

void hf_conn_take_input(struct hf_conn *conn)
{
    enum hf_resp_status status = HF_RESP_MESSAGE;
    struct hf_resp_message message;

    while (!conn->is_closing && !is_busy(conn) && status == HF_RESP_MESSAGE) {
        status = hf_resp_reader_next(&conn->reader, &message);
        if (status == HF_RESP_MESSAGE)
            handle_message(conn, &message);
        else if (status == HF_RESP_BROKEN)
            reject_input(conn);
    }
    keep_input(conn);
    set_paused(conn);
    conn->is_streaming |= !hf_conn_has_room(conn);
}

void hf_clients_on_data(struct hf_clients *clients, uint64_t number,
                        const void *data, size_t size)
{
    struct hf_conn *conn = hf_conn_find(clients, number);

    if (!conn || conn->is_closing)
        return;
    if (hf_resp_reader_feed(&conn->reader, data, size)) {
        hf_conn_close(conn);
        return;
    }
    hf_conn_take_input(conn);
}
