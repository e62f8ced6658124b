/* clients_read.c - READ and LOOKUP, from this node's table. */
#include "node/clients_state.h"

struct hf_info hf_conn_read_info(const struct hf_store *store, hf_time now,
                                 const struct hf_hold *hold,
                                 char note[HF_NOTE_MAX + 1])
{
    struct hf_bytes bytes = hf_hold_note(hold);

    hf_copy(note, bytes.data, bytes.size);
    note[bytes.size] = '\0';
    return (struct hf_info){
        .key = hf_hold_key(hold),
        .held = true,
        .forced = hold->forced,
        .token = hold->token,
        .held_ms = hf_time_left(now, hold->since),
        .left_ms = hf_time_left(hf_store_deadline(store, hold), now),
        .waiters = hold->waiters,
        .value = hf_hold_value(hold),
        .owner = hold->session->label,
        .note = note,
        .index = store->table.index,
    };
}

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
    struct hf_buf *output = &conn->output;

    if (conn->is_mux) {
        hf_conn_reply_mux(conn, &reply, HF_VERB_LOOKUP);
        return;
    }
    hf_resp_write_array(output, 3);
    hf_resp_write_text(output, hf_protocol_claim_name(reply.state));
    hf_resp_write_integer(output, (int64_t)reply.token);
    hf_resp_write_integer(output, reply.position);
    hf_conn_wrote(conn);
}

static void write_pair(struct hf_buf *buf, const char *name, uint64_t number)
{
    hf_resp_write_text(buf, name);
    hf_resp_write_integer(buf, (int64_t)number);
}

void hf_conn_read_write_pairs(struct hf_buf *buf, const struct hf_info *info)
{
    hf_resp_write_array(buf, info->held ? 22 : 6);
    hf_resp_write_text(buf, "key");
    hf_resp_write_bulk(buf, info->key.data, info->key.size);
    write_pair(buf, "held", info->held);
    write_pair(buf, "index", info->index);
    if (!info->held)
        return;
    write_pair(buf, "token", info->token);
    write_pair(buf, "held_ms", info->held_ms);
    write_pair(buf, "left_ms", info->left_ms);
    write_pair(buf, "waiters", info->waiters);
    write_pair(buf, "forced", info->forced);
    hf_resp_write_text(buf, "owner");
    hf_resp_write_text(buf, info->owner);
    hf_resp_write_text(buf, "note");
    hf_resp_write_text(buf, info->note);
    hf_resp_write_text(buf, "value");
    hf_resp_write_bulk(buf, info->value.data, info->value.size);
}

static void reply_read(struct hf_conn *conn,
                       const struct hf_mux_request *request)
{
    const struct hf_store *store = hf_conn_store(conn);
    const struct hf_hold *hold = hf_table_find(&store->table, request->key);
    const struct hf_mux_reply reply = {
        .id = request->id,
        .index = store->table.index,
    };
    char note[HF_NOTE_MAX + 1];
    struct hf_buf *scratch = hf_clients_scratch(conn->clients);
    struct hf_info info = {
        .key = request->key,
        .owner = "",
        .note = "",
        .index = store->table.index,
    };

    if (hold)
        info = hf_conn_read_info(store, hf_conn_now(conn), hold, note);
    if (!conn->is_mux) {
        hf_conn_read_write_pairs(&conn->output, &info);
        hf_conn_wrote(conn);
        return;
    }
    hf_protocol_encode_info(&info, scratch);
    conn->output.failed |= scratch->failed;
    hf_mux_reply_encode_infos(&reply, HF_VERB_READ, 1, &conn->output);
    hf_resp_write_bulk(&conn->output, scratch->data, scratch->size);
    hf_conn_wrote(conn);
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
    enum hf_err err;

    if (request->verb != HF_VERB_LIST) {
        hf_conn_read_reply(conn, request);
        return;
    }
    err = hf_conn_list_start(conn, request);
    if (err && conn->is_mux)
        hf_conn_reply_mux_error(conn, request->id, err, NULL);
    else if (err)
        hf_conn_reply_error(conn, err, NULL);
}

void hf_conn_read_confirmed(struct hf_op *op)
{
    struct hf_conn *conn = op->conn;

    if (hf_conn_has_room(conn)) {
        execute_read(conn, &op->mux);
        return;
    }
    op->is_confirmed = true;
    hf_dlist_remove(&op->link);
    hf_dlist_push_back(&conn->confirmed, &op->link);
    hf_conn_set_streaming(conn);
}

void hf_conn_read_continue(struct hf_conn *conn)
{
    struct hf_dlist *link = hf_dlist_first(&conn->confirmed);

    for (; link && hf_conn_has_room(conn);
         link = hf_dlist_first(&conn->confirmed)) {
        struct hf_op *op = HF_CONTAINER(link, struct hf_op, link);

        execute_read(conn, &op->mux);
        hf_op_free(op);
    }
    if (link)
        hf_conn_set_streaming(conn);
}
