#include "serve/watch.h"

#include <stdlib.h>

#include "serve/reply.h"

struct hf_serve_watch {
    struct hf_dlist link; /* in conn->watches */
    struct hf_history_cursor cursor;
    uint64_t number;
    bool exact;
    size_t key_size;
    uint8_t key[]; /* the prefix, or the key if `exact` */
};

/* ---- Start and end ------------------------------------------------------*/

/* Among many watches, this takes longer than most requests do. */
static struct hf_serve_watch *find_watch(const struct hf_serve_conn *conn,
                                         uint64_t number)
{
    struct hf_dlist *link = conn->watches.next;

    conn->server->work += conn->watch_count / 16;
    for (; link != &conn->watches; link = link->next) {
        struct hf_serve_watch *watch =
            HF_CONTAINER(link, struct hf_serve_watch, link);

        if (watch->number == number)
            return watch;
    }
    return NULL;
}

static size_t watch_size(size_t key_size)
{
    return sizeof(struct hf_serve_watch) + key_size;
}

static void remove_watch(struct hf_serve_conn *conn,
                         struct hf_serve_watch *watch)
{
    size_t size = watch_size(watch->key_size);

    conn->watch_bytes -= size;
    conn->server->watch_bytes -= size;
    hf_dlist_remove(&watch->link);
    free(watch);
    conn->watch_count--;
    if (conn->watch_count == 0)
        hf_dlist_remove(&conn->in_watching);
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
static bool may_watch(const struct hf_serve_conn *conn, size_t size)
{
    return conn->watch_count < HF_CLIENT_WATCHES_MAX &&
           (conn->server->watch_bytes + size <= HF_WATCHES_BYTES ||
            conn->watch_bytes + size <= HF_CLIENT_SCARCE);
}

static void add_watch(struct hf_serve_conn *conn, struct hf_serve_watch *watch)
{
    size_t size = watch_size(watch->key_size);

    conn->watch_bytes += size;
    conn->server->watch_bytes += size;
    hf_dlist_push_back(&conn->watches, &watch->link);
    if (conn->watch_count++ == 0)
        hf_dlist_push_back(&conn->server->watching, &conn->in_watching);
    hf_serve_conn_set_streaming(conn); /* there may be events already */
}

static void reply_watch(struct hf_serve_conn *conn, uint64_t id, uint64_t index)
{
    const struct hf_mux_reply reply = {.id = id, .index = index};

    if (conn->is_mux) {
        hf_serve_reply_mux(conn, &reply, HF_VERB_WATCH);
        return;
    }
    hf_resp_write_integer(&conn->output, (int64_t)index);
    hf_serve_conn_wrote(conn);
}

enum hf_err hf_serve_watch_start(struct hf_serve_conn *conn,
                                 const struct hf_history *history,
                                 uint64_t index,
                                 const struct hf_mux_request *request)
{
    size_t size = watch_size(request->key.size);
    struct hf_serve_watch *watch;

    if (find_watch(conn, request->watch))
        return HF_EINVAL;
    if (!may_watch(conn, size))
        return HF_ELIMIT;
    watch = malloc(size);
    if (!watch)
        return HF_ENOMEM;
    *watch = (struct hf_serve_watch){
        .cursor = find_cursor(history, request->from),
        .number = request->watch,
        .exact = request->exact,
        .key_size = request->key.size,
    };
    hf_copy(watch->key, request->key.data, request->key.size);
    add_watch(conn, watch);
    reply_watch(conn, request->id, index);
    return HF_OK;
}

void hf_serve_watch_remove(struct hf_serve_conn *conn, uint64_t number)
{
    struct hf_serve_watch *watch = find_watch(conn, number);

    if (watch)
        remove_watch(conn, watch);
}

void hf_serve_watch_remove_all(struct hf_serve_conn *conn)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&conn->watches)))
        remove_watch(conn, HF_CONTAINER(link, struct hf_serve_watch, link));
}

/* ---- Events -------------------------------------------------------------*/

void hf_serve_watch_notify(struct hf_server *server)
{
    struct hf_dlist *link = server->watching.next;

    for (; link != &server->watching; link = link->next)
        hf_serve_conn_set_streaming(
            HF_CONTAINER(link, struct hf_serve_conn, in_watching));
}

void hf_serve_watch_seek(struct hf_serve_conn *conn,
                         const struct hf_history *history)
{
    struct hf_dlist *link = conn->watches.next;

    for (; link != &conn->watches; link = link->next) {
        struct hf_serve_watch *watch =
            HF_CONTAINER(link, struct hf_serve_watch, link);

        watch->cursor = hf_history_seek(history, watch->cursor.index);
        hf_serve_conn_set_streaming(conn);
    }
}

static bool is_key_watched(const struct hf_serve_watch *watch,
                           const struct hf_event *event)
{
    const struct hf_key key = {watch->key, watch->key_size};

    if (event->kind == HF_EVENT_DROPPED)
        return true;
    return watch->exact ? hf_key_equal(event->key, key)
                        : hf_key_has_prefix(event->key, key);
}

static void write_plain_event(struct hf_serve_conn *conn,
                              const struct hf_event *event)
{
    struct hf_buf *output = &conn->output;

    hf_resp_write_array(output, 7);
    hf_resp_write_text(output, "event");
    hf_resp_write_integer(output, (int64_t)event->index);
    hf_resp_write_text(output, hf_event_name(event->kind));
    hf_resp_write_bulk(output, event->key.data, event->key.size);
    hf_resp_write_integer(output, (int64_t)event->token);
    hf_resp_write_text(output, event->owner);
    hf_resp_write_integer(output, event->freed);
    hf_serve_conn_wrote(conn);
}

static void push_event(struct hf_serve_conn *conn, uint64_t number,
                       const struct hf_event *event)
{
    struct hf_buf *scratch = hf_server_scratch(conn->server);
    struct hf_mux_push push = {.kind = HF_MUX_PUSH_EVENT, .watch = number};

    hf_protocol_encode_event(event, scratch);
    conn->output.failed |= scratch->failed;
    push.event = (struct hf_bytes){scratch->data, scratch->size};
    hf_serve_reply_push(conn, &push);
}

static void write_watched_event(struct hf_serve_conn *conn,
                                const struct hf_serve_watch *watch,
                                const struct hf_event *event)
{
    struct hf_server_counters *counters = &conn->server->counters;

    counters->events++;
    counters->events_dropped += event->kind == HF_EVENT_DROPPED;
    if (conn->is_mux)
        push_event(conn, watch->number, event);
    else
        write_plain_event(conn, event);
}

/* Returns true if there may be more events to write. Adds the events that were
 * read to `*work`. */
static bool continue_watch(struct hf_serve_conn *conn,
                           const struct hf_history *history,
                           struct hf_serve_watch *watch, unsigned *work)
{
    struct hf_event event;

    for (int i = 0; i < HF_CLIENT_WORK_PART && hf_serve_conn_has_room(conn);
         i++) {
        ++*work;
        if (!hf_history_read(history, &watch->cursor, &event))
            return false;
        if (is_key_watched(watch, &event))
            write_watched_event(conn, watch, &event);
    }
    return true;
}

/* A watch that was continued goes to the end of the list: otherwise the first
 * watches could starve the others. */
unsigned hf_serve_watch_continue(struct hf_serve_conn *conn,
                                 const struct hf_history *history, unsigned max)
{
    uint32_t visits = 0;
    unsigned work = 0;
    bool more = false;

    for (; visits < conn->watch_count && work < max &&
           hf_serve_conn_has_room(conn);
         visits++) {
        struct hf_dlist *link = hf_dlist_take(&conn->watches);

        hf_dlist_push_back(&conn->watches, link);
        more |= continue_watch(conn, history,
                               HF_CONTAINER(link, struct hf_serve_watch, link),
                               &work);
    }
    if (more || visits < conn->watch_count)
        hf_serve_conn_set_streaming(conn);
    return work;
}
