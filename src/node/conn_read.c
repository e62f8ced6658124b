/* conn_read.c - READ and LOOKUP, from this node's table. */
#include "node/clients_state.h"

_Static_assert((int)HF_CLAIM_UNKNOWN == (int)HF_LOOKUP_UNKNOWN, "UNKNOWN");
_Static_assert((int)HF_CLAIM_QUEUED == (int)HF_LOOKUP_QUEUED, "QUEUED");
_Static_assert((int)HF_CLAIM_HELD == (int)HF_LOOKUP_HELD, "HELD");

static void reply_lookup(struct hf_conn *conn,
                         const struct hf_mux_request *request)
{
    const struct hf_table *table = &hf_conn_store(conn)->table;
    struct hf_lookup found =
        hf_table_lookup(table, request->key, &request->secret);
    const struct hf_mux_reply reply = {
        .id = request->id,
        .index = table->index,
        .state = (enum hf_claim_state)found.state,
        .token = found.token,
        .generation = found.generation,
        .position = found.position,
    };
    struct hf_buf *output = &conn->serve.output;

    if (conn->serve.is_mux) {
        hf_serve_reply_mux(&conn->serve, &reply, HF_VERB_LOOKUP);
        return;
    }
    hf_resp_write_array(output, 3);
    hf_resp_write_text(output, hf_protocol_claim_name(reply.state));
    hf_resp_write_integer(output, (int64_t)reply.token);
    hf_resp_write_integer(output, reply.position);
    hf_serve_conn_wrote(&conn->serve);
}

static void reply_read(struct hf_conn *conn,
                       const struct hf_mux_request *request)
{
    const struct hf_store *store = hf_conn_store(conn);
    const struct hf_hold *hold = hf_table_find(&store->table, request->key);
    char note[HF_NOTE_MAX + 1];
    struct hf_info info = {
        .key = request->key,
        .owner = "",
        .note = "",
        .index = store->table.index,
    };

    if (hold)
        info = hf_store_info(store, hf_conn_now(conn), hold, note);
    hf_serve_reply_info(&conn->serve, request->id, &info);
}

void hf_conn_read_reply(struct hf_conn *conn,
                        const struct hf_mux_request *request)
{
    if (request->verb == HF_VERB_READ)
        reply_read(conn, request);
    else
        reply_lookup(conn, request);
}

static void execute_read(struct hf_conn *conn,
                         const struct hf_mux_request *request)
{
    const char *text;
    enum hf_err err;

    if (request->verb != HF_VERB_LIST) {
        hf_conn_read_reply(conn, request);
        return;
    }
    err = hf_conn_list_start(conn, request);
    text = hf_op_refusal_text(err, HF_VERB_LIST);
    if (err && conn->serve.is_mux)
        hf_serve_reply_mux_error(&conn->serve, request->id, err, text);
    else if (err)
        hf_serve_reply_error(&conn->serve, err, text);
}

/* A round of ReadIndex may confirm the reads of many connections at once, so
 * they take turns, as LISTs do. */
void hf_conn_read_confirmed(struct hf_op *op)
{
    struct hf_conn *conn = op->conn;

    op->is_confirmed = true;
    hf_dlist_remove(&op->link);
    hf_dlist_push_back(&conn->confirmed, &op->link);
    hf_serve_conn_set_streaming(&conn->serve);
}

unsigned hf_conn_read_continue(struct hf_conn *conn, unsigned max)
{
    size_t before = conn->serve.output.size;
    unsigned work = 0;
    struct hf_dlist *link;

    while (work < max && hf_serve_conn_has_room(&conn->serve) &&
           (link = hf_dlist_first(&conn->confirmed))) {
        struct hf_op *op = HF_CONTAINER(link, struct hf_op, link);

        execute_read(conn, &op->mux);
        hf_op_free(op);
        work += 1 + (unsigned)((conn->serve.output.size - before) / 64);
        before = conn->serve.output.size;
    }
    if (!hf_dlist_is_empty(&conn->confirmed))
        hf_serve_conn_set_streaming(&conn->serve);
    return work;
}
