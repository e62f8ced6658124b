/* watch.c - WATCH: the events of keys that begin with a prefix.
 *
 * A watch is a cursor into the history of the node, so a slow client takes no
 * memory for events: if it does not read, its cursor stays behind, and it gets
 * a DROPPED event when the events that it missed are no longer kept. */
#include <stdlib.h>

#include "quorum/state.h"
#include "serve/reply.h"

struct hf_quorum_watch {
    struct hf_dlist link; /* in conn->watches */
    struct hf_history_cursor cursor;
    uint64_t number;
    bool exact;
    size_t key_size;
    uint8_t key[]; /* the prefix, or the key if `exact` */
};

/* Among many watches, this takes longer than most requests do. */
static struct hf_quorum_watch *find_watch(struct hf_serve_conn *conn,
                                          uint64_t number)
{
    struct hf_quorum_conn *own = hf_quorum_conn_of(conn);
    struct hf_dlist *link = own->watches.next;

    conn->server->work += conn->watch_count / 16;
    for (; link != &own->watches; link = link->next) {
        struct hf_quorum_watch *watch =
            HF_CONTAINER(link, struct hf_quorum_watch, link);

        if (watch->number == number)
            return watch;
    }
    return NULL;
}

static size_t watch_size(size_t key_size)
{
    return sizeof(struct hf_quorum_watch) + key_size;
}

static void remove_watch(struct hf_serve_conn *conn,
                         struct hf_quorum_watch *watch)
{
    struct hf_quorum_conn *own = hf_quorum_conn_of(conn);
    size_t size = watch_size(watch->key_size);

    own->watch_bytes -= size;
    hf_quorum_node_of(conn)->watch_bytes -= size;
    hf_dlist_remove(&watch->link);
    free(watch);
    conn->watch_count--;
    if (conn->watch_count == 0)
        hf_dlist_remove(&own->in_watching);
}

/* Most watches start with the next event, for which there is no need to search
 * the history. */
static struct hf_history_cursor find_cursor(const struct hf_history *history,
                                            uint64_t from)
{
    if (from == 0)
        return (struct hf_history_cursor){history->newest, history->next};
    return hf_history_seek(history, from);
}

/* Returns true if the connection may have another watch of `size` bytes. */
static bool may_watch(struct hf_serve_conn *conn, size_t size)
{
    return conn->watch_count < HF_CLIENT_WATCHES_MAX &&
           (hf_quorum_node_of(conn)->watch_bytes + size <= HF_WATCHES_BYTES ||
            hf_quorum_conn_of(conn)->watch_bytes + size <= HF_CLIENT_SCARCE);
}

static void add_watch(struct hf_serve_conn *conn, struct hf_quorum_watch *watch)
{
    struct hf_quorum_node *node = hf_quorum_node_of(conn);
    struct hf_quorum_conn *own = hf_quorum_conn_of(conn);
    size_t size = watch_size(watch->key_size);

    own->watch_bytes += size;
    node->watch_bytes += size;
    hf_dlist_push_back(&own->watches, &watch->link);
    if (conn->watch_count++ == 0)
        hf_dlist_push_back(&node->watching, &own->in_watching);
    hf_serve_conn_set_streaming(conn); /* there may be events already */
}

enum hf_err hf_quorum_watch_add(struct hf_serve_conn *conn,
                                const struct hf_mux_request *request)
{
    size_t size = watch_size(request->key.size);
    struct hf_quorum_watch *watch;

    if (find_watch(conn, request->watch))
        return HF_EINVAL;
    if (!may_watch(conn, size))
        return HF_ELIMIT;
    watch = malloc(size);
    if (!watch)
        return HF_ENOMEM;
    *watch = (struct hf_quorum_watch){
        .cursor = find_cursor(&hf_quorum_node_of(conn)->history, request->from),
        .number = request->watch,
        .exact = request->exact,
        .key_size = request->key.size,
    };
    hf_copy(watch->key, request->key.data, request->key.size);
    add_watch(conn, watch);
    return HF_OK;
}

void hf_quorum_watch_remove(struct hf_serve_conn *conn, uint64_t number)
{
    struct hf_quorum_watch *watch = find_watch(conn, number);

    if (watch)
        remove_watch(conn, watch);
}

void hf_quorum_watch_remove_all(struct hf_serve_conn *conn)
{
    struct hf_quorum_conn *own = hf_quorum_conn_of(conn);
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&own->watches)))
        remove_watch(conn, HF_CONTAINER(link, struct hf_quorum_watch, link));
}

void hf_quorum_watch_notify(struct hf_quorum_node *node)
{
    struct hf_dlist *link = node->watching.next;

    for (; link != &node->watching; link = link->next)
        hf_serve_conn_set_streaming(
            &HF_CONTAINER(link, struct hf_quorum_conn, in_watching)->serve);
}

/* ---- Events -------------------------------------------------------------*/

static bool is_key_watched(const struct hf_quorum_watch *watch,
                           const struct hf_event *event)
{
    const struct hf_key key = {watch->key, watch->key_size};

    if (event->kind == HF_EVENT_DROPPED)
        return true;
    return watch->exact ? hf_key_equal(event->key, key)
                        : hf_key_has_prefix(event->key, key);
}

static void write_plain_event(struct hf_buf *output,
                              const struct hf_event *event)
{
    hf_resp_write_array(output, 7);
    hf_resp_write_text(output, "event");
    hf_resp_write_integer(output, (int64_t)event->index);
    hf_resp_write_text(output, hf_event_name(event->kind));
    hf_resp_write_bulk(output, event->key.data, event->key.size);
    hf_resp_write_integer(output, (int64_t)event->token);
    hf_resp_write_text(output, event->owner);
    hf_resp_write_integer(output, event->freed);
}

static void write_event(struct hf_serve_conn *conn,
                        const struct hf_quorum_watch *watch,
                        const struct hf_event *event)
{
    struct hf_server *server = conn->server;
    struct hf_buf *scratch = hf_server_scratch(server);
    struct hf_mux_push push = {
        .kind = HF_MUX_PUSH_EVENT,
        .watch = watch->number,
    };

    server->counters.events++;
    server->counters.events_dropped += event->kind == HF_EVENT_DROPPED;
    if (!conn->is_mux) {
        write_plain_event(&conn->output, event);
        hf_serve_conn_wrote(conn);
        return;
    }
    hf_protocol_encode_event(event, scratch);
    conn->output.failed |= scratch->failed;
    push.event = (struct hf_bytes){scratch->data, scratch->size};
    hf_serve_reply_push(conn, &push);
}

/* Returns true if there may be more events to write. Adds the events that were
 * read to `*work`. */
static bool continue_watch(struct hf_serve_conn *conn,
                           struct hf_quorum_watch *watch, unsigned *work)
{
    const struct hf_history *history = &hf_quorum_node_of(conn)->history;
    struct hf_event event;

    for (int i = 0; i < HF_CLIENT_WORK_PART && hf_serve_conn_has_room(conn);
         i++) {
        ++*work;
        if (!hf_history_read(history, &watch->cursor, &event))
            return false;
        if (is_key_watched(watch, &event))
            write_event(conn, watch, &event);
    }
    return true;
}

/* A watch that was continued goes to the end of the list: otherwise the first
 * watches could starve the others. */
unsigned hf_quorum_watch_continue(struct hf_serve_conn *conn, unsigned max)
{
    struct hf_quorum_conn *own = hf_quorum_conn_of(conn);
    uint32_t visits = 0;
    unsigned work = 0;
    bool more = false;

    for (; visits < conn->watch_count && work < max &&
           hf_serve_conn_has_room(conn);
         visits++) {
        struct hf_dlist *link = hf_dlist_take(&own->watches);

        hf_dlist_push_back(&own->watches, link);
        more |= continue_watch(
            conn, HF_CONTAINER(link, struct hf_quorum_watch, link), &work);
    }
    if (more || visits < conn->watch_count)
        hf_serve_conn_set_streaming(conn);
    return work;
}
