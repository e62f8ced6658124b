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
