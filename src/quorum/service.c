/* service.c - the requests of clients. */
#include "core/quorum/message.h"
#include "quorum/state.h"
#include "serve/reply.h"

/* ---- Messages to the master ---------------------------------------------*/

static void reply_quorum(struct hf_serve_conn *conn, uint64_t id,
                         const struct hf_quorum_reply *answer)
{
    struct hf_buf *scratch = hf_server_scratch(conn->server);
    struct hf_mux_reply reply = {.id = id};

    hf_message_encode_reply(answer, scratch);
    conn->output.failed |= scratch->failed;
    reply.result = (struct hf_bytes){scratch->data, scratch->size};
    hf_serve_reply_mux(conn, &reply, HF_VERB_QUORUM);
}

/* What is due comes first, so that an event of a timer is not taken for one of
 * the request. */
static enum hf_err handle_quorum(struct hf_serve_conn *conn,
                                 const struct hf_mux_request *request)
{
    struct hf_quorum_node *node = hf_quorum_node_of(conn);
    struct hf_quorum_request message;
    struct hf_quorum_reply answer;
    enum hf_err err = hf_message_decode_request(&message, request->command);

    if (err)
        return err;
    hf_master_advance(&node->master, node->now);
    node->messages++;
    node->request = &message;
    hf_master_receive(&node->master, node->now, conn->number, &message,
                      &answer);
    node->request = NULL;
    hf_serve_conn_count_error(
        conn, answer.kind == HF_QUORUM_REFUSED ? answer.err : HF_OK);
    reply_quorum(conn, request->id, &answer);
    return HF_OK;
}

/* ---- MUX mode -----------------------------------------------------------*/

#define USE_QUORUM                                                             \
    "this node is a master of quorum: and decides only together with the "     \
    "others: use a client of holdfast, or the command holdfast"
#define USE_LOCAL                                                              \
    "one master reports only what it knows: read with LOCAL, or use a client " \
    "of holdfast"

static const char *quorum_refusal_text(enum hf_err err, enum hf_verb verb)
{
    if (err == HF_EUNSUPPORTED)
        return verb == HF_VERB_READ || verb == HF_VERB_LIST ? USE_LOCAL
                                                            : USE_QUORUM;
    if (err == HF_EPROTO)
        return "the message to the master is malformed";
    if (err != HF_ELIMIT)
        return hf_err_text(err);
    return verb == HF_VERB_WATCH
               ? "this connection or this node has too many watches"
               : "too many lists are running";
}

static enum hf_err watch_master(struct hf_serve_conn *conn,
                                const struct hf_mux_request *request)
{
    const struct hf_quorum_node *node = hf_quorum_node_of(conn);

    return hf_serve_watch_start(conn, &node->history, node->index, request);
}

static enum hf_err read_mux(struct hf_serve_conn *conn,
                            const struct hf_mux_request *request)
{
    if (request->linearizable)
        return HF_EUNSUPPORTED;
    if (request->verb == HF_VERB_LIST)
        return hf_quorum_list_start(conn, request);
    hf_quorum_read_reply(conn, request->id, request->key);
    return HF_OK;
}

static enum hf_err execute_quorum_request(struct hf_serve_conn *conn,
                                          const struct hf_mux_request *request)
{
    switch (request->verb) {
    case HF_VERB_QUORUM:
        return handle_quorum(conn, request);
    case HF_VERB_READ:
    case HF_VERB_LIST:
        return read_mux(conn, request);
    case HF_VERB_WATCH:
        return watch_master(conn, request);
    case HF_VERB_UNWATCH:
        hf_serve_watch_remove(conn, request->watch);
        hf_serve_reply_mux_done(conn, request->id);
        return HF_OK;
    default:
        return HF_EUNSUPPORTED;
    }
}

static void execute_quorum_mux(struct hf_serve_conn *conn,
                               const struct hf_mux_request *request)
{
    enum hf_err err = execute_quorum_request(conn, request);

    if (err)
        hf_serve_reply_mux_error(conn, request->id, err,
                                 quorum_refusal_text(err, request->verb));
}

/* ---- Plain mode ---------------------------------------------------------*/

static void read_plain(struct hf_serve_conn *conn, struct hf_arguments *args)
{
    struct hf_mux_request request = {.verb = HF_VERB_READ};

    hf_arguments_read(args, &request);
    if (args->cause)
        hf_serve_reply_error(conn, HF_EINVAL, args->cause);
    else if (request.linearizable)
        hf_serve_reply_error(conn, HF_EUNSUPPORTED, USE_LOCAL);
    else
        hf_quorum_read_reply(conn, 0, request.key);
}

static void list_plain(struct hf_serve_conn *conn, struct hf_arguments *args)
{
    struct hf_mux_request request = {.verb = HF_VERB_LIST};
    enum hf_err err;

    hf_arguments_list(args, &request);
    if (args->cause) {
        hf_serve_reply_error(conn, HF_EINVAL, args->cause);
        return;
    }
    err = hf_quorum_list_start(conn, &request);
    if (err)
        hf_serve_reply_error(conn, err, quorum_refusal_text(err, HF_VERB_LIST));
}

static void watch_plain(struct hf_serve_conn *conn, struct hf_arguments *args)
{
    struct hf_mux_request request = {.verb = HF_VERB_WATCH};
    enum hf_err err;

    hf_arguments_watch(args, &request);
    if (args->cause) {
        hf_serve_reply_error(conn, HF_EINVAL, args->cause);
        return;
    }
    err = watch_master(conn, &request);
    if (err)
        hf_serve_reply_error(conn, err,
                             quorum_refusal_text(err, HF_VERB_WATCH));
}

static void debug_plain(struct hf_serve_conn *conn, struct hf_arguments *args)
{
    struct hf_buf *scratch = hf_server_scratch(conn->server);
    struct hf_key key = hf_arguments_key(args, false);

    if (args->cause) {
        hf_serve_reply_error(conn, HF_EINVAL, args->cause);
        return;
    }
    hf_quorum_report_debug(hf_quorum_node_of(conn), key, scratch);
    if (scratch->failed)
        hf_serve_reply_error(conn, HF_ENOMEM, NULL);
    else
        hf_serve_reply_bulk(conn,
                            (struct hf_bytes){scratch->data, scratch->size});
}

static void execute_quorum_plain(struct hf_serve_conn *conn, enum hf_verb verb,
                                 struct hf_arguments *args)
{
    switch (verb) {
    case HF_VERB_READ:
        read_plain(conn, args);
        break;
    case HF_VERB_LIST:
        list_plain(conn, args);
        break;
    case HF_VERB_WATCH:
        watch_plain(conn, args);
        break;
    case HF_VERB_UNWATCH:
        hf_serve_watch_remove_all(conn);
        hf_serve_reply_ok(conn);
        break;
    case HF_VERB_DEBUG:
        debug_plain(conn, args);
        break;
    default:
        hf_serve_reply_error(conn, HF_EUNSUPPORTED, USE_QUORUM);
    }
}

/* ---- Connections --------------------------------------------------------*/

static void fini_conn(struct hf_serve_conn *conn)
{
    struct hf_quorum_node *node = hf_quorum_node_of(conn);

    hf_master_disconnect(&node->master, node->now, conn->number);
}

/* The reply to a plain LIST is written before the next request is executed. */
static bool is_quorum_busy(const struct hf_serve_conn *conn)
{
    return !conn->is_mux && conn->list_count > 0;
}

/* Lists get half of the units at most, so that they do not starve the events of
 * the same connection. */
static unsigned stream_output(struct hf_serve_conn *conn)
{
    size_t before = conn->output.size;
    unsigned work = hf_serve_list_continue(conn, HF_CLIENT_WORK / 2);

    work += hf_serve_watch_continue(conn, &hf_quorum_node_of(conn)->history,
                                    HF_CLIENT_WORK / 2);
    return work + (unsigned)((conn->output.size - before) / 64);
}

static void fill_hello(struct hf_server *server, struct hf_mux_hello *hello)
{
    struct hf_quorum_node *node =
        HF_CONTAINER(server, struct hf_quorum_node, server);

    hello->cluster = hf_bytes_of(node->cluster);
    hello->node = node->id;
    hello->mode = hf_bytes_of("quorum");
    hello->members =
        (struct hf_bytes){node->member_text.data, node->member_text.size};
    hello->highest = node->master.highest < HF_MUX_ID_MAX ? node->master.highest
                                                          : HF_MUX_ID_MAX;
}

const struct hf_service_ops hf_quorum_service = {
    .conn_size = sizeof(struct hf_serve_conn),
    .fini_conn = fini_conn,
    .execute_plain = execute_quorum_plain,
    .execute_mux = execute_quorum_mux,
    .is_busy = is_quorum_busy,
    .stream = stream_output,
    .fill_hello = fill_hello,
    .add_info = hf_quorum_report_info,
    .add_status = hf_quorum_report_status,
};
