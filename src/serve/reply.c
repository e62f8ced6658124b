#include "serve/reply.h"

/* ---- Plain mode ---------------------------------------------------------*/

void hf_serve_reply_error(struct hf_serve_conn *conn, enum hf_err err,
                          const char *text)
{
    hf_serve_conn_count_error(conn, err);
    hf_code_write(&conn->output, err, text);
    hf_serve_conn_wrote(conn);
}

void hf_serve_reply_ok(struct hf_serve_conn *conn)
{
    hf_resp_write_simple(&conn->output, "OK");
    hf_serve_conn_wrote(conn);
}

void hf_serve_reply_bulk(struct hf_serve_conn *conn, struct hf_bytes bytes)
{
    hf_resp_write_bulk(&conn->output, bytes.data, bytes.size);
    hf_serve_conn_wrote(conn);
}

/* ---- MUX mode -----------------------------------------------------------*/

void hf_serve_reply_mux(struct hf_serve_conn *conn,
                        const struct hf_mux_reply *reply, enum hf_verb verb)
{
    hf_serve_conn_count_error(conn, reply->err);
    hf_mux_reply_encode(reply, verb, &conn->output);
    hf_serve_conn_wrote(conn);
}

void hf_serve_reply_mux_error(struct hf_serve_conn *conn, uint64_t id,
                              enum hf_err err, const char *text)
{
    const struct hf_mux_reply reply = {
        .id = id,
        .err = err,
        .text = hf_bytes_of(text),
    };

    hf_serve_reply_mux(conn, &reply, HF_VERB_COUNT);
}

void hf_serve_reply_mux_done(struct hf_serve_conn *conn, uint64_t id)
{
    hf_serve_reply_mux(conn, &(struct hf_mux_reply){.id = id}, HF_VERB_PING);
}

void hf_serve_reply_push(struct hf_serve_conn *conn,
                         const struct hf_mux_push *push)
{
    hf_mux_push_encode(push, &conn->output);
    hf_serve_conn_wrote(conn);
}

/* ---- Either mode --------------------------------------------------------*/

static void write_info_number(struct hf_buf *buf, const char *name,
                              uint64_t number)
{
    hf_resp_write_text(buf, name);
    hf_resp_write_integer(buf, (int64_t)number);
}

static void write_plain_info(struct hf_buf *buf, const struct hf_info *info)
{
    hf_resp_write_array(buf, info->held ? 22 : 6);
    hf_resp_write_text(buf, "key");
    hf_resp_write_bulk(buf, info->key.data, info->key.size);
    write_info_number(buf, "held", info->held);
    write_info_number(buf, "index", info->index);
    if (!info->held)
        return;
    write_info_number(buf, "token", info->token);
    write_info_number(buf, "held_ms", info->held_ms);
    write_info_number(buf, "left_ms", info->left_ms);
    write_info_number(buf, "waiters", info->waiters);
    write_info_number(buf, "forced", info->forced);
    hf_resp_write_text(buf, "owner");
    hf_resp_write_text(buf, info->owner);
    hf_resp_write_text(buf, "note");
    hf_resp_write_text(buf, info->note);
    hf_resp_write_text(buf, "value");
    hf_resp_write_bulk(buf, info->value.data, info->value.size);
}

void hf_serve_reply_add_info(struct hf_serve_conn *conn,
                             const struct hf_info *info, struct hf_buf *buf)
{
    struct hf_buf *scratch = hf_server_scratch(conn->server);

    if (!conn->is_mux) {
        write_plain_info(buf, info);
        return;
    }
    hf_protocol_encode_info(info, scratch);
    buf->failed |= scratch->failed;
    hf_resp_write_bulk(buf, scratch->data, scratch->size);
}

void hf_serve_reply_info(struct hf_serve_conn *conn, uint64_t id,
                         const struct hf_info *info)
{
    const struct hf_mux_reply reply = {.id = id, .index = info->index};

    if (conn->is_mux)
        hf_mux_reply_encode_infos(&reply, HF_VERB_READ, 1, &conn->output);
    hf_serve_reply_add_info(conn, info, &conn->output);
    hf_serve_conn_wrote(conn);
}
