/* conn_mux.c - the requests of MUX mode. */
#include "node/clients_state.h"

/* ---- Replies ------------------------------------------------------------*/

/* Returns true if the outcome is an error, after replying with it. */
static bool reply_outcome_error(const struct hf_op *op,
                                const struct hf_node_outcome *outcome)
{
    const char *text = hf_op_error_text(outcome);
    const struct hf_mux_reply reply = {
        .id = op->mux.id,
        .err = outcome->err,
        .no_space = outcome->no_space,
        .text = hf_bytes_of(text),
    };

    if (!outcome->err)
        return false;
    hf_serve_reply_mux(&op->conn->serve, &reply, op->mux.verb);
    return true;
}

/* The same for a command that the node has made: its result may be an error,
 * too. */
static bool reply_command_error(const struct hf_op *op,
                                const struct hf_node_outcome *outcome)
{
    if (reply_outcome_error(op, outcome))
        return true;
    if (!outcome->result.err)
        return false;
    hf_serve_reply_mux_error(&op->conn->serve, op->mux.id, outcome->result.err,
                             NULL);
    return true;
}

/* ---- Sessions -----------------------------------------------------------*/

static void attach_session(struct hf_conn *conn, uint64_t session,
                           const struct hf_mux_request *request)
{
    const struct hf_mux_reply reply = {.id = request->id, .session = session};
    enum hf_err err = hf_attachments_add(conn->clients->opts.node, session,
                                         conn->serve.number);

    if (err) {
        hf_serve_reply_mux_error(&conn->serve, request->id, err, NULL);
        return;
    }
    conn->session = session;
    hf_serve_reply_mux(&conn->serve, &reply, request->verb);
}

static void on_mux_session_opened(struct hf_op *op,
                                  const struct hf_node_outcome *outcome)
{
    op->conn->is_attaching = false;
    if (reply_outcome_error(op, outcome))
        return;
    if (outcome->result.err)
        hf_serve_reply_mux_error(&op->conn->serve, op->mux.id,
                                 outcome->result.err,
                                 hf_op_open_text(outcome->result.err));
    else
        attach_session(op->conn, outcome->result.session, &op->mux);
}

static enum hf_err open_mux_session(struct hf_conn *conn,
                                    const struct hf_mux_request *request)
{
    const struct hf_command open = {
        .kind = HF_COMMAND_OPEN,
        .nonce = request->secret,
        .note = request->label,
    };

    return hf_op_submit_command(conn, &open, request, on_mux_session_opened);
}

static bool is_session_here(const struct hf_conn *conn,
                            const struct hf_mux_request *request)
{
    const struct hf_session *session =
        hf_table_find_secret(&hf_conn_store(conn)->table, &request->secret);

    return session && session->id == request->session;
}

static void reply_gone(struct hf_conn *conn, uint64_t id)
{
    const struct hf_mux_reply reply = {
        .id = id,
        .err = HF_ESTATE,
        .session_gone = true,
        .text = hf_bytes_of("there is no such session"),
    };

    hf_serve_reply_mux(&conn->serve, &reply, HF_VERB_ATTACH);
}

static void on_attach_read(struct hf_op *op,
                           const struct hf_node_outcome *outcome)
{
    op->conn->is_attaching = false;
    if (reply_outcome_error(op, outcome))
        return;
    if (is_session_here(op->conn, &op->mux))
        attach_session(op->conn, op->mux.session, &op->mux);
    else
        reply_gone(op->conn, op->mux.id);
}

/* Submit a READ_INDEX for the request. */
static enum hf_err submit_read(struct hf_conn *conn,
                               const struct hf_mux_request *request,
                               hf_op_done_fn *done)
{
    struct hf_op *op;
    enum hf_err err = hf_op_new_read(conn, request, &op);

    if (err)
        return err;
    return hf_op_submit(op, HF_NODE_READ_INDEX, HF_CLIENT_TIMEOUT_MS, done);
}

/* A session that this node knows is attached at once: if the cluster has closed
 * it meanwhile, its commands are answered with HF_EINDOUBT. A session that this
 * node does not know may still exist, because the node may be behind, so a
 * READ_INDEX comes first. */
static enum hf_err begin_attach(struct hf_conn *conn,
                                const struct hf_mux_request *request)
{
    if (!is_session_here(conn, request))
        return submit_read(conn, request, on_attach_read);
    attach_session(conn, request->session, request);
    return HF_OK;
}

/* Open or attach a session. Returns HF_ESTATE if the connection has a session,
 * or if an OPEN or ATTACH is unanswered. */
static enum hf_err begin_session(struct hf_conn *conn,
                                 const struct hf_mux_request *request)
{
    enum hf_err err;

    if (conn->session != 0 || conn->is_attaching)
        return HF_ESTATE;
    err = request->verb == HF_VERB_OPEN ? open_mux_session(conn, request)
                                        : begin_attach(conn, request);
    conn->is_attaching = !err && conn->session == 0;
    return err;
}

static void on_detached(struct hf_op *op, const struct hf_node_outcome *outcome)
{
    if (!reply_command_error(op, outcome))
        hf_serve_reply_mux_done(&op->conn->serve, op->mux.id);
}

static enum hf_err detach_session(struct hf_conn *conn,
                                  const struct hf_mux_request *request)
{
    const struct hf_command close = {
        .kind = HF_COMMAND_CLOSE,
        .session = conn->session,
        .sequence = UINT64_MAX, /* the client sends nothing more */
    };
    enum hf_err err = hf_op_submit_command(conn, &close, request, on_detached);

    if (err)
        return err;
    hf_attachments_remove(conn->clients->opts.node, conn->session,
                          conn->serve.number);
    conn->session = 0;
    return HF_OK;
}

/* ---- Commands -----------------------------------------------------------*/

static void on_mux_command_done(struct hf_op *op,
                                const struct hf_node_outcome *outcome)
{
    struct hf_buf *scratch = hf_server_scratch(&op->clients->server);
    struct hf_mux_reply reply = {
        .id = op->mux.id,
        .age_ms = outcome->age_ms,
        .index = outcome->index,
    };

    if (reply_outcome_error(op, outcome))
        return;
    hf_serve_conn_count_error(&op->conn->serve, outcome->result.err);
    hf_command_encode_result(&outcome->result, scratch);
    op->conn->serve.output.failed |= scratch->failed;
    reply.result = (struct hf_bytes){scratch->data, scratch->size};
    hf_serve_reply_mux(&op->conn->serve, &reply, HF_VERB_DO);
}

/* Returns true for the commands that a client may send with DO. The others are
 * commands of nodes, and OPEN, which has a request of its own. */
static bool is_client_command(enum hf_command_kind kind)
{
    switch (kind) {
    case HF_COMMAND_LOCK:
    case HF_COMMAND_UNLOCK:
    case HF_COMMAND_RENEW:
    case HF_COMMAND_UPDATE:
    case HF_COMMAND_CANCEL:
    case HF_COMMAND_FORCE:
        return true;
    default:
        return false;
    }
}

static enum hf_err do_command(struct hf_conn *conn,
                              const struct hf_mux_request *request)
{
    struct hf_command command;
    struct hf_op *op;
    enum hf_err err;

    err = hf_command_decode(&command, request->command.data,
                            request->command.size);
    if (err)
        return err;
    if (!is_client_command(command.kind))
        return HF_EDENIED;
    if (conn->session == 0 || command.session != conn->session)
        return HF_ESTATE;
    err =
        hf_op_new(conn, request->command, command.kind == HF_COMMAND_LOCK, &op);
    if (err)
        return err;
    op->mux = *request;
    return hf_op_submit(op, HF_NODE_COMMAND, request->remaining_ms,
                        on_mux_command_done);
}

/* ---- Reads --------------------------------------------------------------*/

static void on_mux_read_confirmed(struct hf_op *op,
                                  const struct hf_node_outcome *outcome)
{
    if (!reply_outcome_error(op, outcome))
        hf_conn_read_confirmed(op);
}

static enum hf_err lookup_state(struct hf_conn *conn,
                                const struct hf_mux_request *request)
{
    struct hf_op *op;
    enum hf_err err;

    if (request->linearizable)
        return submit_read(conn, request, on_mux_read_confirmed);
    if (hf_serve_conn_has_room(&conn->serve)) {
        hf_conn_read_reply(conn, request);
        return HF_OK;
    }
    err = hf_op_new_read(conn, request, &op);
    if (!err)
        hf_conn_read_confirmed(op);
    return err;
}

static enum hf_err list_keys(struct hf_conn *conn,
                             const struct hf_mux_request *request)
{
    if (request->linearizable)
        return submit_read(conn, request, on_mux_read_confirmed);
    return hf_conn_list_start(conn, request);
}

/* ---- Requests -----------------------------------------------------------*/

static enum hf_err execute_request(struct hf_conn *conn,
                                   const struct hf_mux_request *request)
{
    switch (request->verb) {
    case HF_VERB_OPEN:
    case HF_VERB_ATTACH:
        return begin_session(conn, request);
    case HF_VERB_DETACH:
        return conn->session ? detach_session(conn, request) : HF_ESTATE;
    case HF_VERB_DO:
        return do_command(conn, request);
    case HF_VERB_LOOKUP:
    case HF_VERB_READ:
        return lookup_state(conn, request);
    case HF_VERB_LIST:
        return list_keys(conn, request);
    case HF_VERB_WATCH:
        return hf_conn_watch(conn, request);
    case HF_VERB_QUORUM:
        return HF_EUNSUPPORTED;
    default: /* UNWATCH */
        hf_serve_watch_remove(&conn->serve, request->watch);
        hf_serve_reply_mux_done(&conn->serve, request->id);
        return HF_OK;
    }
}

static const char *refusal_text(enum hf_err err,
                                const struct hf_mux_request *request)
{
    switch (err) {
    case HF_EDENIED:
        return "this command is for nodes only";
    case HF_ESTATE:
        return "first OPEN or ATTACH one session, then send only its commands";
    case HF_EUNSUPPORTED:
        if (request->verb == HF_VERB_QUORUM)
            return "this node serves raft: and has no masters";
        return "the command has a version that this node does not know";
    default:
        /* A linearizable request has not become more than a READ_INDEX. */
        return hf_op_refusal_text(err, request->linearizable ? HF_VERB_READ
                                                             : request->verb);
    }
}

void hf_conn_execute_mux(struct hf_serve_conn *serve,
                         const struct hf_mux_request *request)
{
    enum hf_err err = execute_request(hf_conn_of(serve), request);

    if (err)
        hf_serve_reply_mux_error(serve, request->id, err,
                                 refusal_text(err, request));
}
