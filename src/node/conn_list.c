/* conn_list.c - LIST: the holds of this node's table, in order of their
 * tokens. */
#include "node/clients_state.h"

struct hf_conn_list {
    struct hf_serve_list serve; /* first: see hf_serve_list_ops.size */
    struct hf_table_walk walk;
};

static struct hf_conn_list *conn_list_of(struct hf_serve_list *list)
{
    return HF_CONTAINER(list, struct hf_conn_list, serve);
}

static void begin_holds(struct hf_serve_list *list)
{
    struct hf_conn *conn = hf_conn_of(list->conn);
    struct hf_table_walk *walk = &conn_list_of(list)->walk;

    hf_table_walk_begin(&hf_conn_store(conn)->table, walk);
    hf_list_cursors_take(&conn->clients->cursors, walk, list->after);
}

static void end_holds(struct hf_serve_list *list)
{
    hf_table_walk_end(&conn_list_of(list)->walk);
}

static bool visit_hold(struct hf_serve_list *list)
{
    struct hf_conn *conn = hf_conn_of(list->conn);
    const struct hf_store *store = hf_conn_store(conn);
    const struct hf_hold *hold =
        hf_table_walk_next(&store->table, &conn_list_of(list)->walk);
    char note[HF_NOTE_MAX + 1];
    struct hf_info info;

    if (!hold)
        return false;
    if (!hf_serve_list_has(list, hold->token, hf_hold_key(hold)))
        return true;
    info = hf_store_info(store, hf_conn_now(conn), hold, note);
    hf_serve_list_add(list, hold->token, &info);
    return true;
}

static void keep_list_cursor(struct hf_serve_list *list)
{
    struct hf_conn *conn = hf_conn_of(list->conn);

    hf_list_cursors_keep(&conn->clients->cursors, &hf_conn_store(conn)->table,
                         &conn_list_of(list)->walk, list->after);
}

static uint64_t table_index(const struct hf_serve_list *list)
{
    return hf_conn_store(hf_conn_of(list->conn))->table.index;
}

static const struct hf_serve_list_ops list_ops = {
    .size = sizeof(struct hf_conn_list),
    .begin = begin_holds,
    .end = end_holds,
    .visit = visit_hold,
    .on_page = keep_list_cursor,
    .index = table_index,
};

enum hf_err hf_conn_list_start(struct hf_conn *conn,
                               const struct hf_mux_request *request)
{
    return hf_serve_list_start(&conn->serve, &list_ops, request);
}
