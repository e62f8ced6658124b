/* conn_list.c - LIST: the held keys that begin with a prefix, in pages.
 *
 * A list visits the keys in order of their tokens, in parts, and only while the
 * connection has room for output. So a long list delays no other client, and a
 * client that does not read its list takes little memory. */
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
    STEP_MORE, /* the limit of this step is reached */
};

static void end_list(struct hf_conn *conn, struct hf_conn_list *list)
{
    hf_table_walk_end(&list->walk);
    hf_dlist_remove(&list->link);
    conn->list_count--;
    conn->clients->list_count--;
    hf_buf_fini(&list->page);
    free(list);
}

static void fail_listing(struct hf_conn *conn, struct hf_conn_list *list,
                         enum hf_err err, const char *text)
{
    if (conn->serve.is_mux)
        hf_serve_reply_mux_error(&conn->serve, list->id, err, text);
    else
        hf_serve_reply_error(&conn->serve, err, text);
    end_list(conn, list);
}

static uint32_t lists_max(const struct hf_clients *clients)
{
    return clients->list_count < HF_LISTS_MAX ? HF_CLIENT_LISTS_MAX : 1;
}

enum hf_err hf_conn_list_start(struct hf_conn *conn,
                               const struct hf_mux_request *request)
{
    struct hf_key prefix = request->key;
    struct hf_conn_list *list;

    if (conn->list_count >= lists_max(conn->clients))
        return HF_ELIMIT;
    list = malloc(sizeof(*list) + prefix.size);
    if (!list)
        return HF_ENOMEM;
    *list = (struct hf_conn_list){
        .id = request->id,
        .after = conn->serve.is_mux ? 0 : HF_LIST_AFTER(request),
        .count = conn->serve.is_mux ? UINT32_MAX : HF_LIST_COUNT(request),
        .key_size = prefix.size,
    };
    hf_copy(list->key, prefix.data, prefix.size);
    hf_table_walk_begin(&hf_conn_store(conn)->table, &list->walk);
    hf_list_cursors_take(&conn->clients->cursors, &list->walk, list->after);
    hf_dlist_push_back(&conn->lists, &list->link);
    conn->list_count++;
    conn->clients->list_count++;
    hf_serve_conn_set_streaming(&conn->serve);
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
    char note[HF_NOTE_MAX + 1];
    struct hf_info info =
        hf_store_info(hf_conn_store(conn), hf_conn_now(conn), hold, note);

    list->page_count++;
    list->count--;
    if (!conn->serve.is_mux)
        list->after = hold->token;
    hf_serve_reply_add_info(&conn->serve, &info, &list->page);
}

/* Visit at most `max` keys; `*work` counts them. */
static enum list_step fill_page(struct hf_conn *conn, struct hf_conn_list *list,
                                unsigned max, unsigned *work)
{
    const struct hf_table *table = &hf_conn_store(conn)->table;

    for (unsigned visited = 0; visited < max; visited++, (*work)++) {
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
    struct hf_buf *output = &conn->serve.output;

    if (conn->serve.is_mux) {
        hf_mux_reply_encode_infos(&reply, HF_VERB_LIST, list->page_count,
                                  output);
    } else {
        hf_resp_write_array(output, 1 + list->page_count);
        hf_resp_write_integer(output, more ? (int64_t)list->after : 0);
    }
    hf_buf_raw(output, list->page.data, list->page.size);
    list->page.size = 0;
    list->page_count = 0;
    hf_serve_conn_wrote(&conn->serve);
}

/* A plain LIST ends with its first page; the client has to send another LIST
 * for the next one. Returns the work, see hf_conn_list_continue(). */
static unsigned continue_listing(struct hf_conn *conn,
                                 struct hf_conn_list *list, unsigned max)
{
    unsigned work = 1;
    enum list_step step = fill_page(conn, list, max, &work);

    if (list->page.failed) {
        fail_listing(conn, list, HF_ENOMEM, NULL);
    } else if (step == STEP_DONE ||
               (step == STEP_PAGE && !conn->serve.is_mux)) {
        send_page(conn, list, step == STEP_PAGE);
        if (step == STEP_PAGE)
            hf_list_cursors_keep(&conn->clients->cursors,
                                 &hf_conn_store(conn)->table, &list->walk,
                                 list->after);
        end_list(conn, list);
    } else if (step == STEP_PAGE) {
        send_page(conn, list, true);
    }
    return work;
}

unsigned hf_conn_list_continue(struct hf_conn *conn, unsigned max)
{
    struct hf_dlist *link;
    unsigned work = 0;

    while (work < max && hf_serve_conn_has_room(&conn->serve) &&
           (link = hf_dlist_take(&conn->lists))) {
        hf_dlist_push_back(&conn->lists, link);
        work += continue_listing(conn,
                                 HF_CONTAINER(link, struct hf_conn_list, link),
                                 HF_CLIENT_WORK_PART);
    }
    if (conn->list_count > 0)
        hf_serve_conn_set_streaming(&conn->serve);
    return work;
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
