/* op.c - requests of clients that wait for the replication half. */
#include <stdlib.h>

#include "base/assert.h"
#include "node/clients_state.h"

bool hf_conn_may_keep(const struct hf_conn *conn, size_t size, bool is_lock)
{
    size_t max = is_lock ? HF_UNANSWERED_LOCK_MAX : HF_UNANSWERED_MAX;

    return conn->clients->unanswered + size <= max ||
           conn->unanswered + size <= HF_CLIENT_SCARCE;
}

void hf_conn_keep_bytes(struct hf_conn *conn, size_t size)
{
    conn->unanswered += size;
    conn->clients->unanswered += size;
}

void hf_conn_drop_bytes(struct hf_conn *conn, size_t size)
{
    conn->unanswered -= size;
    conn->clients->unanswered -= size;
}

enum hf_err hf_op_new(struct hf_conn *conn, struct hf_bytes bytes, bool is_lock,
                      struct hf_op **op)
{
    struct hf_clients *clients = conn->clients;
    struct hf_op *made;

    if (!hf_conn_may_keep(conn, sizeof(*made) + bytes.size, is_lock))
        return HF_ELIMIT;
    made = malloc(sizeof(*made) + bytes.size);
    if (!made)
        return HF_ENOMEM;
    *made = (struct hf_op){.clients = clients, .conn = conn};
    made->size = sizeof(*made) + bytes.size;
    hf_copy(made->bytes, bytes.data, bytes.size);
    made->request.command = (struct hf_bytes){made->bytes, bytes.size};
    hf_conn_keep_bytes(conn, made->size);
    clients->server.work += HF_CLIENT_OP_WORK;
    hf_dlist_push_back(&conn->ops, &made->link);
    conn->op_count++;
    *op = made;
    return HF_OK;
}

enum hf_err hf_op_new_read(struct hf_conn *conn,
                           const struct hf_mux_request *request,
                           struct hf_op **op)
{
    const struct hf_bytes key = {request->key.data, request->key.size};
    enum hf_err err = hf_op_new(conn, key, false, op);

    if (err)
        return err;
    (*op)->mux = *request;
    (*op)->mux.key.data = (*op)->bytes;
    return HF_OK;
}

void hf_op_free(struct hf_op *op)
{
    hf_dlist_remove(&op->link);
    if (op->conn) {
        hf_conn_drop_bytes(op->conn, op->size);
        op->conn->op_count--;
    } else {
        op->clients->unanswered -= op->size;
    }
    free(op);
}

static void on_request_done(struct hf_node_request *request,
                            const struct hf_node_outcome *outcome)
{
    struct hf_op *op = HF_CONTAINER(request, struct hf_op, request);
    struct hf_conn *conn = op->conn;

    if (conn && !conn->serve.is_closing)
        op->done(op, outcome);
    if (!op->is_confirmed)
        hf_op_free(op);
    /* Requests that the reader keeps may be waiting for this op. */
    if (conn)
        hf_serve_conn_resume(&conn->serve);
}

enum hf_err hf_op_submit(struct hf_op *op, enum hf_node_request_kind kind,
                         uint32_t remaining_ms, hf_op_done_fn *done)
{
    struct hf_node *node = op->clients->opts.node;
    enum hf_err err;

    op->done = done;
    op->request.kind = kind;
    op->request.done = on_request_done;
    op->request.deadline = hf_time_add(hf_clients_now(node), remaining_ms);
    err = hf_requests_submit(node, &op->request);
    if (err)
        hf_op_free(op);
    return err;
}

enum hf_err hf_op_submit_command(struct hf_conn *conn,
                                 const struct hf_command *command,
                                 const struct hf_mux_request *mux,
                                 hf_op_done_fn *done)
{
    struct hf_buf *scratch = hf_server_scratch(&conn->clients->server);
    bool is_lock = command->kind == HF_COMMAND_LOCK;
    struct hf_op *op;
    enum hf_err err;

    hf_command_encode(command, hf_conn_store(conn)->table.version, scratch);
    if (scratch->failed)
        return HF_ENOMEM;
    err = hf_op_new(conn, (struct hf_bytes){scratch->data, scratch->size},
                    is_lock, &op);
    if (err)
        return err;
    if (mux)
        op->mux = *mux;
    return hf_op_submit(op, HF_NODE_COMMAND, HF_CLIENT_TIMEOUT_MS, done);
}

void hf_op_close_session(struct hf_conn *conn)
{
    const struct hf_command close = {
        .kind = HF_COMMAND_CLOSE,
        .session = conn->session,
        .sequence = conn->highest,
    };
    struct hf_op *op;

    /* If the CLOSE cannot be submitted, the leader closes the session, which
     * has no client, after HF_NODE_DETACHED_MS. */
    conn->session = 0;
    if (hf_op_submit_command(conn, &close, NULL, NULL))
        return;
    op = HF_CONTAINER(conn->ops.prev, struct hf_op, link);
    op->conn = NULL;
    conn->unanswered -= op->size;
    conn->op_count--;
    hf_dlist_remove(&op->link);
    hf_dlist_push_back(&conn->clients->orphans, &op->link);
}

const char *hf_op_error_text(const struct hf_node_outcome *outcome)
{
    switch (outcome->err) {
    case HF_EUNAVAIL:
        return "no leader answered in time; nothing was changed";
    case HF_EINDOUBT:
        return "no leader answered in time; the change may have been made";
    case HF_ELIMIT:
        if (outcome->no_space)
            return "the disk of a node is full: free space on it; open "
                   "sessions can unlock and renew";
        return outcome->is_full
                   ? "the lock table is full; unlock and force still work"
                   : "the leader has too many requests without an answer";
    default:
        return hf_err_text(outcome->err);
    }
}

const char *hf_op_refusal_text(enum hf_err err, enum hf_verb verb)
{
    if (err != HF_ELIMIT)
        return hf_err_text(err);
    switch (verb) {
    case HF_VERB_WATCH:
        return "this connection or this node has too many watches";
    case HF_VERB_LIST:
        return "too many lists are running";
    default:
        return "too many requests without a reply at this node";
    }
}

const char *hf_op_open_text(enum hf_err err)
{
    return err == HF_ELIMIT ? "the cluster has too many sessions"
                            : hf_err_text(err);
}
