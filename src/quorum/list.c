/* list.c - LIST: the keys that this master shows as held, in pages.
 *
 * A list visits the records in order of their creation, in parts, and only
 * while the connection has room for output. So a long list delays no other
 * client, and a client that does not read its list takes little memory. */
#include <stdlib.h>

#include "base/assert.h"
#include "quorum/state.h"
#include "serve/reply.h"

struct hf_quorum_list {
    struct hf_dlist link; /* in conn->lists */
    struct hf_master_walk walk;
    uint64_t id;        /* MUX mode: of the request */
    uint64_t after;     /* plain mode: skip records created up to this */
    uint32_t count;     /* plain mode: keys still wanted */
    struct hf_buf page; /* infos, encoded for the connection's mode */
    size_t page_count;
    size_t key_size;
    uint8_t key[]; /* the prefix */
};

/* Why a step over the records has ended. */
enum list_step {
    STEP_DONE, /* there are no more records */
    STEP_PAGE, /* the page is full, or has all keys that are wanted */
    STEP_MORE, /* the limit of this step is reached */
};

static void end_list(struct hf_serve_conn *conn, struct hf_quorum_list *list)
{
    hf_master_walk_end(&list->walk);
    hf_dlist_remove(&list->link);
    hf_quorum_conn_of(conn)->list_count--;
    hf_quorum_node_of(conn)->list_count--;
    hf_buf_fini(&list->page);
    free(list);
}

static void fail_listing(struct hf_serve_conn *conn,
                         struct hf_quorum_list *list)
{
    if (conn->is_mux)
        hf_serve_reply_mux_error(conn, list->id, HF_ENOMEM,
                                 hf_err_text(HF_ENOMEM));
    else
        hf_serve_reply_error(conn, HF_ENOMEM, NULL);
    end_list(conn, list);
}

static uint32_t lists_max(const struct hf_quorum_node *node)
{
    return node->list_count < HF_LISTS_MAX ? HF_CLIENT_LISTS_MAX : 1;
}

enum hf_err hf_quorum_list_start(struct hf_serve_conn *conn, uint64_t id,
                                 struct hf_key prefix, uint64_t after,
                                 uint32_t count)
{
    struct hf_quorum_node *node = hf_quorum_node_of(conn);
    struct hf_quorum_conn *own = hf_quorum_conn_of(conn);
    struct hf_quorum_list *list;

    if (own->list_count >= lists_max(node))
        return HF_ELIMIT;
    list = malloc(sizeof(*list) + prefix.size);
    if (!list)
        return HF_ENOMEM;
    *list = (struct hf_quorum_list){
        .id = id,
        .after = after,
        .count = count,
        .key_size = prefix.size,
    };
    hf_copy(list->key, prefix.data, prefix.size);
    hf_master_walk_begin(&node->master, &list->walk);
    hf_dlist_push_back(&own->lists, &list->link);
    own->list_count++;
    node->list_count++;
    hf_serve_conn_set_streaming(conn);
    return HF_OK;
}

static bool is_listed(const struct hf_quorum_list *list,
                      const struct hf_record *record)
{
    const struct hf_key prefix = {list->key, list->key_size};

    return record->order > list->after && !hf_record_is_free(record) &&
           hf_key_has_prefix(hf_record_key(record), prefix);
}

static void add_to_page(struct hf_serve_conn *conn, struct hf_quorum_list *list,
                        const struct hf_record *record)
{
    struct hf_quorum_texts texts;
    struct hf_info info = hf_quorum_read_info(
        hf_quorum_node_of(conn), hf_record_key(record), record, &texts);

    list->page_count++;
    list->count--;
    if (!conn->is_mux)
        list->after = record->order;
    hf_serve_reply_add_info(conn, &info, &list->page);
}

/* Visit at most `max` records; `*work` counts them. */
static enum list_step fill_page(struct hf_serve_conn *conn,
                                struct hf_quorum_list *list, unsigned max,
                                unsigned *work)
{
    const struct hf_master *master = &hf_quorum_node_of(conn)->master;

    for (unsigned visited = 0; visited < max; visited++, (*work)++) {
        const struct hf_record *record;

        if (list->count == 0 || list->page_count == HF_LIST_PAGE_KEYS ||
            list->page.size >= HF_LIST_PAGE_BYTES)
            return STEP_PAGE;
        record = hf_master_walk_next(master, &list->walk);
        if (!record)
            return STEP_DONE;
        if (is_listed(list, record))
            add_to_page(conn, list, record);
    }
    return STEP_MORE;
}

static void send_page(struct hf_serve_conn *conn, struct hf_quorum_list *list,
                      bool more)
{
    const struct hf_mux_reply reply = {
        .id = list->id,
        .index = hf_quorum_node_of(conn)->index,
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
    hf_serve_conn_wrote(conn);
}

/* A plain LIST ends with its first page; the client has to send another LIST
 * for the next one. Returns the work. */
static unsigned continue_listing(struct hf_serve_conn *conn,
                                 struct hf_quorum_list *list, unsigned max)
{
    unsigned work = 1;
    enum list_step step = fill_page(conn, list, max, &work);

    if (list->page.failed) {
        fail_listing(conn, list);
    } else if (step == STEP_DONE || (step == STEP_PAGE && !conn->is_mux)) {
        send_page(conn, list, step == STEP_PAGE);
        end_list(conn, list);
    } else if (step == STEP_PAGE) {
        send_page(conn, list, true);
    }
    return work;
}

unsigned hf_quorum_list_continue(struct hf_serve_conn *conn, unsigned max)
{
    struct hf_quorum_conn *own = hf_quorum_conn_of(conn);
    struct hf_dlist *link;
    unsigned work = 0;

    while (work < max && hf_serve_conn_has_room(conn) &&
           (link = hf_dlist_take(&own->lists))) {
        hf_dlist_push_back(&own->lists, link);
        work += continue_listing(
            conn, HF_CONTAINER(link, struct hf_quorum_list, link),
            HF_CLIENT_WORK_PART);
    }
    if (own->list_count > 0)
        hf_serve_conn_set_streaming(conn);
    return work;
}

void hf_quorum_list_free(struct hf_serve_conn *conn)
{
    struct hf_quorum_conn *own = hf_quorum_conn_of(conn);
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&own->lists)))
        end_list(conn, HF_CONTAINER(link, struct hf_quorum_list, link));
    HF_ASSERT(own->list_count == 0);
}
