/* conn.c - a connection of a client: its output, and the lists that it is
 * in. */
#include "serve/conn.h"

#include <stdlib.h>

#include "serve/list.h"
#include "serve/watch.h"

struct hf_serve_conn *hf_serve_conn_new(struct hf_server *server,
                                        uint64_t number)
{
    const struct hf_service_ops *ops = server->opts.ops;
    struct hf_serve_conn *conn = calloc(1, ops->conn_size);

    if (!conn)
        return NULL;
    conn->server = server;
    conn->number = number;
    conn->active_at = server->now;
    hf_dlist_init(&conn->watches);
    hf_dlist_init(&conn->lists);
    hf_resp_reader_init(&conn->reader, true, HF_PROTOCOL_LIMITS);
    if (ops->init_conn)
        ops->init_conn(conn);
    hf_map_insert(&server->by_number, &conn->by_number,
                  hf_map_hash_number(number));
    hf_dlist_push_back(&server->conns, &conn->link);
    server->count++;
    return conn;
}

void hf_serve_conn_free(struct hf_serve_conn *conn)
{
    struct hf_server *server = conn->server;

    hf_serve_watch_remove_all(conn);
    hf_serve_list_end_all(conn);
    if (server->opts.ops->fini_conn)
        server->opts.ops->fini_conn(conn);
    hf_dlist_remove(&conn->link);
    hf_dlist_remove(&conn->in_output);
    hf_dlist_remove(&conn->in_ready);
    hf_dlist_remove(&conn->in_streams);
    hf_dlist_remove(&conn->in_slow);
    hf_map_remove(&server->by_number, &conn->by_number);
    server->count--;
    server->mux_count -= conn->is_mux;
    server->input -= conn->input;
    server->unsent -= conn->unsent;
    hf_resp_reader_fini(&conn->reader);
    hf_buf_fini(&conn->output);
    free(conn);
}

void hf_serve_conn_close(struct hf_serve_conn *conn)
{
    if (conn->is_closing)
        return;
    conn->is_closing = true;
    hf_dlist_remove(&conn->link);
    hf_dlist_push_back(&conn->server->closing, &conn->link);
}

void hf_serve_conn_wrote(struct hf_serve_conn *conn)
{
    if (!hf_dlist_is_linked(&conn->in_output))
        hf_dlist_push_back(&conn->server->output, &conn->in_output);
}

void hf_serve_conn_count_error(struct hf_serve_conn *conn, enum hf_err err)
{
    struct hf_server_counters *counters = &conn->server->counters;

    counters->requests_refused += err == HF_ELIMIT;
    counters->requests_invalid += err == HF_EINVAL || err == HF_EPROTO;
}

void hf_serve_conn_set_ready(struct hf_serve_conn *conn)
{
    if (!hf_dlist_is_linked(&conn->in_ready))
        hf_dlist_push_back(&conn->server->ready, &conn->in_ready);
}

static bool has_more_input(const struct hf_serve_conn *conn)
{
    return conn->reader.size > 0 || conn->is_paused;
}

void hf_serve_conn_resume(struct hf_serve_conn *conn)
{
    if (has_more_input(conn))
        hf_serve_conn_set_ready(conn);
}

void hf_serve_conn_continue(struct hf_serve_conn *conn)
{
    const struct hf_service_ops *ops = conn->server->opts.ops;

    if (ops->on_ready)
        ops->on_ready(conn);
    if (has_more_input(conn))
        hf_serve_conn_take_input(conn);
}

/* If many clients do not read, each of them gets less room. */
static bool has_output_room(const struct hf_serve_conn *conn, size_t room)
{
    bool is_scarce = conn->server->unsent > HF_UNSENT_MAX;

    return conn->unsent + conn->output.size <
           (is_scarce ? room / HF_UNSENT_SCARCE : room);
}

bool hf_serve_conn_has_room(const struct hf_serve_conn *conn)
{
    return has_output_room(conn, HF_CLIENT_ROOM);
}

bool hf_serve_conn_has_reply_room(const struct hf_serve_conn *conn)
{
    return has_output_room(conn, HF_CLIENT_REPLY_ROOM);
}

void hf_serve_conn_set_streaming(struct hf_serve_conn *conn)
{
    conn->is_streaming = !hf_serve_conn_has_room(conn);
    if (!conn->is_streaming && !hf_dlist_is_linked(&conn->in_streams))
        hf_dlist_push_back(&conn->server->streams, &conn->in_streams);
}
