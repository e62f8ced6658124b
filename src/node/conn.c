/* conn.c - a connection of a client: when it is busy, and how it ends. */
#include "node/clients_state.h"

_Static_assert(offsetof(struct hf_conn, serve) == 0,
               "the server allocates a struct hf_conn");

struct hf_conn *hf_conn_find(const struct hf_clients *clients, uint64_t number)
{
    struct hf_serve_conn *serve = hf_server_find(&clients->server, number);

    return serve ? hf_conn_of(serve) : NULL;
}

hf_time hf_conn_now(const struct hf_conn *conn)
{
    return hf_clients_now(conn->clients->opts.node);
}

struct hf_store *hf_conn_store(const struct hf_conn *conn)
{
    return hf_clients_store(conn->clients->opts.node);
}

enum hf_err hf_conn_watch(struct hf_conn *conn,
                          const struct hf_mux_request *request)
{
    const struct hf_store *store = hf_conn_store(conn);

    return hf_serve_watch_start(&conn->serve, &store->history,
                                store->table.index, request);
}

void hf_conn_init(struct hf_serve_conn *serve)
{
    struct hf_conn *conn = hf_conn_of(serve);

    conn->clients = hf_clients_of(serve->server);
    hf_dlist_init(&conn->ops);
    hf_dlist_init(&conn->confirmed);
}

/* Nobody waits for the requests of a closed connection, so abandon them. In
 * plain mode also close the session, because no other connection uses it. */
static void end_requests(struct hf_conn *conn)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&conn->ops))) {
        struct hf_op *op = HF_CONTAINER(link, struct hf_op, link);

        hf_requests_abandon(conn->clients->opts.node, &op->request);
        hf_op_free(op);
    }
    while ((link = hf_dlist_take(&conn->confirmed)))
        hf_op_free(HF_CONTAINER(link, struct hf_op, link));
    if (conn->session == 0)
        return;
    hf_attachments_remove(conn->clients->opts.node, conn->session,
                          conn->serve.number);
    if (!conn->serve.is_mux)
        hf_op_close_session(conn);
}

void hf_conn_fini(struct hf_serve_conn *serve)
{
    struct hf_conn *conn = hf_conn_of(serve);

    end_requests(conn);
    hf_conn_claim_free(conn);
}

/* In MUX mode requests wait while too many are unanswered. A paused connection
 * continues when fewer than half of HF_CLIENT_REQUESTS_MAX are unanswered, so
 * that it is not paused by every request. */
static bool is_mux_busy(const struct hf_conn *conn)
{
    uint32_t max = conn->serve.is_paused ? HF_CLIENT_REQUESTS_MAX / 2
                                         : HF_CLIENT_REQUESTS_MAX;

    return conn->op_count >= max;
}

/* In plain mode requests are executed one after the other. */
static bool is_plain_busy(const struct hf_conn *conn)
{
    return conn->op_count > 0 || conn->serve.list_count > 0 ||
           hf_conn_claim_is_busy(conn);
}

bool hf_conn_is_busy(const struct hf_serve_conn *serve)
{
    const struct hf_conn *conn = hf_conn_of(serve);

    return serve->is_mux ? is_mux_busy(conn) : is_plain_busy(conn);
}

bool hf_conn_may_be_silent(const struct hf_serve_conn *serve)
{
    return hf_conn_claim_is_busy(hf_conn_of(serve));
}

void hf_conn_on_ready(struct hf_serve_conn *serve)
{
    hf_conn_claim_on_ready(hf_conn_of(serve));
}

/* Lists get half of the units at most, so that they do not starve the events of
 * the same connection. */
unsigned hf_conn_stream(struct hf_serve_conn *serve)
{
    struct hf_conn *conn = hf_conn_of(serve);
    unsigned work = hf_conn_read_continue(conn, HF_CLIENT_WORK_PART);
    size_t before = serve->output.size;

    work += hf_serve_list_continue(serve, HF_CLIENT_WORK / 2);
    work += hf_serve_watch_continue(serve, &hf_conn_store(conn)->history,
                                    HF_CLIENT_WORK / 2);
    work += (unsigned)((serve->output.size - before) / 64);
    return work;
}
