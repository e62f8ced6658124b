#include "serve/list.h"

#include <stdlib.h>

#include "base/assert.h"
#include "serve/reply.h"

/* Why a step over the keys has ended. */
enum list_step {
    STEP_DONE, /* there are no more keys */
    STEP_PAGE, /* the page is full, or has all keys that are wanted */
    STEP_MORE, /* the limit of this step is reached */
};

/* ---- Start and end ------------------------------------------------------*/

static void end_list(struct hf_serve_list *list)
{
    struct hf_serve_conn *conn = list->conn;

    list->ops->end(list);
    hf_dlist_remove(&list->link);
    conn->list_count--;
    conn->server->list_count--;
    hf_buf_fini(&list->page);
    free(list);
}

static void fail_listing(struct hf_serve_list *list, enum hf_err err,
                         const char *text)
{
    if (list->conn->is_mux)
        hf_serve_reply_mux_error(list->conn, list->id, err, text);
    else
        hf_serve_reply_error(list->conn, err, text);
    end_list(list);
}

static uint32_t lists_max(const struct hf_server *server)
{
    return server->list_count < HF_LISTS_MAX ? HF_CLIENT_LISTS_MAX : 1;
}

static struct hf_serve_list *make_list(struct hf_serve_conn *conn,
                                       const struct hf_serve_list_ops *ops,
                                       const struct hf_mux_request *request)
{
    struct hf_serve_list *list = calloc(1, ops->size + request->key.size);
    uint8_t *prefix = (uint8_t *)list + ops->size;

    if (!list)
        return NULL;
    hf_copy(prefix, request->key.data, request->key.size);
    *list = (struct hf_serve_list){
        .conn = conn,
        .ops = ops,
        .id = request->id,
        .after = conn->is_mux ? 0 : HF_LIST_AFTER(request),
        .count = conn->is_mux ? UINT32_MAX : HF_LIST_COUNT(request),
        .prefix = {prefix, request->key.size},
    };
    return list;
}

enum hf_err hf_serve_list_start(struct hf_serve_conn *conn,
                                const struct hf_serve_list_ops *ops,
                                const struct hf_mux_request *request)
{
    struct hf_serve_list *list;

    HF_ASSERT(ops->size >= sizeof(struct hf_serve_list));
    if (conn->list_count >= lists_max(conn->server))
        return HF_ELIMIT;
    list = make_list(conn, ops, request);
    if (!list)
        return HF_ENOMEM;
    ops->begin(list);
    hf_dlist_push_back(&conn->lists, &list->link);
    conn->list_count++;
    conn->server->list_count++;
    hf_serve_conn_set_streaming(conn);
    return HF_OK;
}

void hf_serve_list_fail_all(struct hf_serve_conn *conn, enum hf_err err,
                            const char *text)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&conn->lists)))
        fail_listing(HF_CONTAINER(link, struct hf_serve_list, link), err, text);
}

void hf_serve_list_end_all(struct hf_serve_conn *conn)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&conn->lists)))
        end_list(HF_CONTAINER(link, struct hf_serve_list, link));
    HF_ASSERT(conn->list_count == 0);
}

/* ---- Pages --------------------------------------------------------------*/

bool hf_serve_list_has(const struct hf_serve_list *list, uint64_t order,
                       struct hf_key key)
{
    return order > list->after && hf_key_has_prefix(key, list->prefix);
}

void hf_serve_list_add(struct hf_serve_list *list, uint64_t order,
                       const struct hf_info *info)
{
    list->page_count++;
    list->count--;
    if (!list->conn->is_mux)
        list->after = order;
    hf_serve_reply_add_info(list->conn, info, &list->page);
}

/* Visit at most `max` keys; `*work` counts them. */
static enum list_step fill_page(struct hf_serve_list *list, unsigned max,
                                unsigned *work)
{
    for (unsigned visited = 0; visited < max; visited++, (*work)++) {
        if (list->count == 0 || list->page_count == HF_LIST_PAGE_KEYS ||
            list->page.size >= HF_LIST_PAGE_BYTES)
            return STEP_PAGE;
        if (!list->ops->visit(list))
            return STEP_DONE;
    }
    return STEP_MORE;
}

static void send_page(struct hf_serve_list *list, bool more)
{
    const struct hf_mux_reply reply = {
        .id = list->id,
        .index = list->ops->index(list),
        .more = more,
    };
    struct hf_buf *output = &list->conn->output;

    if (list->conn->is_mux) {
        hf_mux_reply_encode_infos(&reply, HF_VERB_LIST, list->page_count,
                                  output);
    } else {
        hf_resp_write_array(output, 1 + list->page_count);
        hf_resp_write_integer(output, more ? (int64_t)list->after : 0);
    }
    hf_buf_raw(output, list->page.data, list->page.size);
    list->page.size = 0;
    list->page_count = 0;
    hf_serve_conn_wrote(list->conn);
}

/* A plain LIST ends with its first page; the client has to send another LIST
 * for the next one. Returns the work, see hf_serve_list_continue(). */
static unsigned continue_listing(struct hf_serve_list *list, unsigned max)
{
    unsigned work = 1;
    enum list_step step = fill_page(list, max, &work);

    if (list->page.failed) {
        fail_listing(list, HF_ENOMEM, NULL);
    } else if (step == STEP_DONE ||
               (step == STEP_PAGE && !list->conn->is_mux)) {
        send_page(list, step == STEP_PAGE);
        if (step == STEP_PAGE && list->ops->on_page)
            list->ops->on_page(list);
        end_list(list);
    } else if (step == STEP_PAGE) {
        send_page(list, true);
    }
    return work;
}

unsigned hf_serve_list_continue(struct hf_serve_conn *conn, unsigned max)
{
    struct hf_dlist *link;
    unsigned work = 0;

    while (work < max && hf_serve_conn_has_room(conn) &&
           (link = hf_dlist_take(&conn->lists))) {
        hf_dlist_push_back(&conn->lists, link);
        work += continue_listing(HF_CONTAINER(link, struct hf_serve_list, link),
                                 HF_CLIENT_WORK_PART);
    }
    if (conn->list_count > 0)
        hf_serve_conn_set_streaming(conn);
    return work;
}
