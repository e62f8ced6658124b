/* execute.c - execute one request: here if every node has the command,
 * otherwise by the service. */
#include "serve/reply.h"

static void reply_text(struct hf_serve_conn *conn, enum hf_verb verb)
{
    struct hf_server *server = conn->server;
    struct hf_buf *scratch = hf_server_scratch(server);

    if (verb == HF_VERB_INFO)
        server->opts.ops->add_info(server, scratch);
    else
        server->opts.ops->add_status(server, scratch);
    if (scratch->failed)
        hf_serve_reply_error(conn, HF_ENOMEM, NULL);
    else
        hf_serve_reply_bulk(conn,
                            (struct hf_bytes){scratch->data, scratch->size});
}

/* ---- Plain mode ---------------------------------------------------------*/

static void reply_hello(struct hf_serve_conn *conn)
{
    struct hf_server *server = conn->server;
    struct hf_mux_hello hello = {
        .version = HF_PROTOCOL_VERSION,
        .requests_max = HF_CLIENT_REQUESTS_MAX,
        .frame_max = HF_RESP_FRAME_MAX,
    };

    server->opts.ops->fill_hello(server, &hello);
    hf_mux_hello_encode(&hello, &conn->output);
    hf_serve_conn_wrote(conn);
}

static bool may_mux(struct hf_serve_conn *conn)
{
    const struct hf_service_ops *ops = conn->server->opts.ops;

    return !ops->accept_mux || ops->accept_mux(conn);
}

static void say_hello(struct hf_serve_conn *conn, struct hf_arguments *args)
{
    uint64_t version = hf_arguments_number(args, UINT64_MAX, "HELLO 1 [MUX]");
    bool is_mux = hf_arguments_option(args, "MUX", 0);

    if (args->cause || args->count > 0) {
        hf_serve_reply_error(conn, HF_EINVAL, "HELLO 1 [MUX]");
    } else if (version != HF_PROTOCOL_VERSION) {
        hf_serve_reply_error(conn, HF_EUNSUPPORTED,
                             "this node has version 1 of the protocol only");
    } else if (!is_mux || may_mux(conn)) {
        reply_hello(conn);
        conn->is_mux = is_mux;
        conn->server->mux_count += is_mux;
    }
}

static void reply_ping(struct hf_serve_conn *conn, struct hf_arguments *args)
{
    if (args->count > 0) {
        hf_serve_reply_bulk(conn, hf_resp_bytes(hf_arguments_word(args)));
        return;
    }
    hf_resp_write_simple(&conn->output, "PONG");
    hf_serve_conn_wrote(conn);
}

static void execute_plain(struct hf_serve_conn *conn, enum hf_verb verb,
                          struct hf_arguments *args)
{
    switch (verb) {
    case HF_VERB_PING:
    case HF_VERB_ECHO:
        reply_ping(conn, args);
        break;
    case HF_VERB_QUIT:
        hf_serve_reply_ok(conn);
        hf_serve_conn_close(conn);
        break;
    case HF_VERB_COMMAND: /* redis-cli sends it first */
        hf_resp_write_array(&conn->output, 0);
        hf_serve_conn_wrote(conn);
        break;
    case HF_VERB_HELLO:
        say_hello(conn, args);
        break;
    case HF_VERB_INFO:
    case HF_VERB_STATUS:
        reply_text(conn, verb);
        break;
    default:
        conn->server->opts.ops->execute_plain(conn, verb, args);
    }
}

/* While a connection streams events, it executes almost nothing else, because
 * replies would be hidden among the events. */
static bool may_execute(const struct hf_serve_conn *conn, enum hf_verb verb)
{
    return conn->watch_count == 0 || verb == HF_VERB_UNWATCH ||
           verb == HF_VERB_PING || verb == HF_VERB_QUIT;
}

static void handle_plain(struct hf_serve_conn *conn,
                         const struct hf_resp_message *message)
{
    enum hf_verb verb = hf_verb_find(&message->values[0]);
    struct hf_arguments args = {message->values + 1, message->count - 1, NULL};
    struct hf_verb_words words = {-1, -1};

    if (verb != HF_VERB_COUNT)
        words = hf_verb_words(verb, false);
    if (words.min < 0) {
        hf_serve_reply_error(conn, HF_EPROTO, "unknown command");
        /* A web page can make a browser send an HTTP request to a local port.
         * Its first line is an unknown command: close the connection, so that
         * nothing in its body is executed. */
        if (message->is_inline)
            hf_serve_conn_close(conn);
    } else if (args.count < (size_t)words.min ||
               args.count > (size_t)words.max) {
        hf_serve_reply_error(conn, HF_EINVAL, "wrong number of arguments");
    } else if (!may_execute(conn, verb)) {
        hf_serve_reply_error(conn, HF_ESTATE, "UNWATCH first");
    } else {
        execute_plain(conn, verb, &args);
    }
}

/* ---- MUX mode -----------------------------------------------------------*/

static void reply_mux_status(struct hf_serve_conn *conn, uint64_t id)
{
    struct hf_server *server = conn->server;
    struct hf_buf *scratch = hf_server_scratch(server);
    struct hf_mux_reply reply = {.id = id};

    server->opts.ops->add_status(server, scratch);
    if (scratch->failed) {
        hf_serve_reply_mux_error(conn, id, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    reply.result = (struct hf_bytes){scratch->data, scratch->size};
    hf_serve_reply_mux(conn, &reply, HF_VERB_STATUS);
}

static void execute_mux(struct hf_serve_conn *conn,
                        const struct hf_mux_request *request)
{
    switch (request->verb) {
    case HF_VERB_PING:
        hf_serve_reply_mux_done(conn, request->id);
        break;
    case HF_VERB_STATUS:
        reply_mux_status(conn, request->id);
        break;
    default:
        conn->server->opts.ops->execute_mux(conn, request);
    }
}

static void handle_mux(struct hf_serve_conn *conn,
                       const struct hf_resp_message *message)
{
    struct hf_mux_request request;
    const char *cause;
    enum hf_err err = hf_mux_request_decode(&request, message, &cause);

    if (err && request.id == 0) {
        conn->server->counters.connections_broken++;
        hf_serve_reply_error(conn, err, cause);
        hf_serve_conn_close(conn);
    } else if (err) {
        hf_serve_reply_mux_error(conn, request.id, err, cause);
    } else {
        execute_mux(conn, &request);
    }
}

void hf_serve_conn_execute(struct hf_serve_conn *conn,
                           const struct hf_resp_message *message)
{
    if (conn->is_mux)
        handle_mux(conn, message);
    else
        handle_plain(conn, message);
}
