/* clients_list.c - LIST: the held keys that begin with a prefix, in pages.
 *
 * A list visits the keys in order of their tokens, HF_LIST_STEP_KEYS per turn,
 * and only while the connection has room for output: a long list delays nobody,
 * and a client that does not read its list takes little memory. */
#include <stdlib.h>

#include "base/assert.h"
#include "node/clients_state.h"

struct hf_conn_list {
    struct hf_dlist link; /* in conn->lists */
    struct hf_table_walk walk;
    uint64_t id;        /* MUX mode: of the request */
    uint64_t after;     /* plain mode: skip tokens up to this */
    uint32_t count;     /* plain mode: keys still wanted */
    struct hf_buf page; /* infos, encoded for the connection's mode */
    size_t page_count;
    size_t key_size;
    uint8_t key[]; /* the prefix */
};

/* Why a step over the table has ended. */
enum list_step {
    STEP_DONE, /* there are no more keys */
    STEP_PAGE, /* the page is full, or has all keys that are wanted */
    STEP_MORE, /* the rest is left to the next turn */
};

static void end_list(struct hf_conn *conn, struct hf_conn_list *list)
{
    hf_table_walk_end(&list->walk);
    hf_dlist_remove(&list->link);
    conn->list_count--;
    hf_buf_fini(&list->page);
    free(list);
}

static void fail_listing(struct hf_conn *conn, struct hf_conn_list *list,
                         enum hf_err err, const char *text)
{
    if (conn->is_mux)
        hf_conn_reply_mux_error(conn, list->id, err, text);
    else
        hf_conn_reply_error(conn, err, text);
    end_list(conn, list);
}

enum hf_err hf_conn_list_start(struct hf_conn *conn,
                               const struct hf_mux_request *request)
{
    struct hf_key prefix = request->key;
    struct hf_conn_list *list;

    if (conn->list_count == HF_CLIENT_LISTS_MAX) {
        conn->clients->counters.requests_refused++;
        return HF_ELIMIT;
    }
    list = malloc(sizeof(*list) + prefix.size);
    if (!list)
        return HF_ENOMEM;
    *list = (struct hf_conn_list){
        .id = request->id,
        .after = conn->is_mux ? 0 : HF_LIST_AFTER(request),
        .count = conn->is_mux ? UINT32_MAX : HF_LIST_COUNT(request),
        .key_size = prefix.size,
    };
    hf_copy(list->key, prefix.data, prefix.size);
    hf_table_walk_begin(&hf_conn_store(conn)->table, &list->walk);
    hf_dlist_push_back(&conn->lists, &list->link);
    conn->list_count++;
    hf_conn_set_ready(conn);
    return HF_OK;
}

static bool is_listed(const struct hf_conn_list *list,
                      const struct hf_hold *hold)
{
    const struct hf_key prefix = {list->key, list->key_size};

    return hold->token > list->after &&
           hf_key_has_prefix(hf_hold_key(hold), prefix);
}

static void add_to_page(struct hf_conn *conn, struct hf_conn_list *list,
                        const struct hf_hold *hold)
{
    struct hf_buf *scratch = hf_clients_scratch(conn->clients);
    char note[HF_NOTE_MAX + 1];
    struct hf_info info =
        hf_conn_read_info(hf_conn_store(conn), hf_conn_now(conn), hold, note);

    list->page_count++;
    list->count--;
    if (!conn->is_mux) {
        list->after = hold->token;
        hf_conn_read_write_pairs(&list->page, &info);
        return;
    }
    hf_protocol_encode_info(&info, scratch);
    list->page.failed |= scratch->failed;
    hf_resp_write_bulk(&list->page, scratch->data, scratch->size);
}

static enum list_step fill_page(struct hf_conn *conn, struct hf_conn_list *list)
{
    const struct hf_table *table = &hf_conn_store(conn)->table;

    for (unsigned visited = 0; visited < HF_LIST_STEP_KEYS; visited++) {
        const struct hf_hold *hold;

        if (list->count == 0 || list->page_count == HF_LIST_PAGE_KEYS ||
            list->page.size >= HF_LIST_PAGE_BYTES)
            return STEP_PAGE;
        hold = hf_table_walk_next(table, &list->walk);
        if (!hold)
            return STEP_DONE;
        if (is_listed(list, hold))
            add_to_page(conn, list, hold);
    }
    return STEP_MORE;
}

static void send_page(struct hf_conn *conn, struct hf_conn_list *list,
                      bool more)
{
    const struct hf_mux_reply reply = {
        .id = list->id,
        .index = hf_conn_store(conn)->table.index,
        .more = more,
    };
    struct hf_buf *output = &conn->output;

    if (conn->is_mux) {
        hf_mux_reply_encode_infos(&reply, HF_VERB_LIST, list->page_count,
                                  output);
    } else {
        hf_resp_write_array(output, 1 + list->page_count);
        hf_resp_write_integer(output, more ? (int64_t)list->after : 0);
    }
    hf_buf_raw(output, list->page.data, list->page.size);
    list->page.size = 0;
    list->page_count = 0;
    hf_conn_wrote(conn);
}

/* A plain LIST ends with its first page; the client has to send another LIST
 * for the next one. */
static void continue_listing(struct hf_conn *conn, struct hf_conn_list *list)
{
    enum list_step step = fill_page(conn, list);

    if (list->page.failed) {
        fail_listing(conn, list, HF_ENOMEM, NULL);
    } else if (step == STEP_DONE || (step == STEP_PAGE && !conn->is_mux)) {
        send_page(conn, list, step == STEP_PAGE);
        end_list(conn, list);
    } else if (step == STEP_PAGE) {
        send_page(conn, list, true);
    }
}

void hf_conn_list_continue(struct hf_conn *conn)
{
    struct hf_dlist *link = conn->lists.next;

    while (link != &conn->lists && hf_conn_has_room(conn)) {
        struct hf_conn_list *list =
            HF_CONTAINER(link, struct hf_conn_list, link);

        link = link->next;
        continue_listing(conn, list);
    }
    if (conn->list_count > 0)
        hf_conn_set_streaming(conn);
}

void hf_conn_list_on_restored(struct hf_conn *conn)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&conn->lists)))
        fail_listing(conn, HF_CONTAINER(link, struct hf_conn_list, link),
                     HF_EUNAVAIL,
                     "this node has loaded a snapshot: list again");
}

void hf_conn_list_free(struct hf_conn *conn)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&conn->lists)))
        end_list(conn, HF_CONTAINER(link, struct hf_conn_list, link));
    HF_ASSERT(conn->list_count == 0);
}
