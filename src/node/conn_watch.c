/* conn_watch.c - WATCH: the events of keys that begin with a prefix.
 *
 * A watch is a cursor into the history of the store, so a slow client takes no
 * memory for events: if it does not read, its cursor stays behind, and it gets
 * a DROPPED event when the events that it missed are no longer kept. */
#include <stdlib.h>

#include "node/clients_state.h"

struct hf_conn_watch {
    struct hf_dlist link; /* in conn->watches */
    struct hf_history_cursor cursor;
    uint64_t number;
    bool exact;
    size_t key_size;
    uint8_t key[]; /* the prefix, or the key if `exact` */
};

/* Among many watches, this takes longer than most requests do. */
static struct hf_conn_watch *find_watch(const struct hf_conn *conn,
                                        uint64_t number)
{
    struct hf_dlist *link = conn->watches.next;

    conn->serve.server->work += conn->serve.watch_count / 16;
    for (; link != &conn->watches; link = link->next) {
        struct hf_conn_watch *watch =
            HF_CONTAINER(link, struct hf_conn_watch, link);

        if (watch->number == number)
            return watch;
    }
    return NULL;
}

static size_t watch_size(size_t key_size)
{
    return sizeof(struct hf_conn_watch) + key_size;
}

static void remove_watch(struct hf_conn *conn, struct hf_conn_watch *watch)
{
    conn->watch_bytes -= watch_size(watch->key_size);
    conn->clients->watch_bytes -= watch_size(watch->key_size);
    hf_dlist_remove(&watch->link);
    free(watch);
    conn->serve.watch_count--;
    if (conn->serve.watch_count == 0)
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
static bool may_watch(const struct hf_conn *conn, size_t size)
{
    return conn->serve.watch_count < HF_CLIENT_WATCHES_MAX &&
           (conn->clients->watch_bytes + size <= HF_WATCHES_BYTES ||
            conn->watch_bytes + size <= HF_CLIENT_SCARCE);
}

enum hf_err hf_conn_watch_add(struct hf_conn *conn,
                              const struct hf_mux_request *request)
{
    const struct hf_store *store = hf_conn_store(conn);
    size_t size = watch_size(request->key.size);
    struct hf_conn_watch *watch;

    if (find_watch(conn, request->watch))
        return HF_EINVAL;
    if (!may_watch(conn, size))
        return HF_ELIMIT;
    watch = malloc(size);
    if (!watch)
        return HF_ENOMEM;
    *watch = (struct hf_conn_watch){
        .cursor = find_cursor(&store->history, request->from),
        .number = request->watch,
        .exact = request->exact,
        .key_size = request->key.size,
    };
    hf_copy(watch->key, request->key.data, request->key.size);
    conn->watch_bytes += size;
    conn->clients->watch_bytes += size;
    hf_dlist_push_back(&conn->watches, &watch->link);
    if (conn->serve.watch_count++ == 0)
        hf_dlist_push_back(&conn->clients->watching, &conn->in_watching);
    /* There may be events to send already. */
    hf_serve_conn_set_streaming(&conn->serve);
    return HF_OK;
}

void hf_conn_watch_remove(struct hf_conn *conn, uint64_t number)
{
    struct hf_conn_watch *watch = find_watch(conn, number);

    if (watch)
        remove_watch(conn, watch);
}

void hf_conn_watch_remove_all(struct hf_conn *conn)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&conn->watches)))
        remove_watch(conn, HF_CONTAINER(link, struct hf_conn_watch, link));
}

static bool is_key_watched(const struct hf_conn_watch *watch,
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

static void write_event(struct hf_conn *conn, const struct hf_conn_watch *watch,
                        const struct hf_event *event)
{
    struct hf_clients *clients = conn->clients;
    struct hf_buf *scratch = hf_server_scratch(&clients->server);
    struct hf_mux_push push = {
        .kind = HF_MUX_PUSH_EVENT,
        .watch = watch->number,
    };

    clients->server.counters.events++;
    clients->server.counters.events_dropped += event->kind == HF_EVENT_DROPPED;
    if (!conn->serve.is_mux) {
        write_plain_event(&conn->serve.output, event);
        return;
    }
    hf_protocol_encode_event(event, scratch);
    conn->serve.output.failed |= scratch->failed;
    push.event = (struct hf_bytes){scratch->data, scratch->size};
    hf_mux_push_encode(&push, &conn->serve.output);
}

/* Returns true if there may be more events to write. Adds the events that were
 * read to `*work`. */
static bool continue_watch(struct hf_conn *conn, struct hf_conn_watch *watch,
                           unsigned *work)
{
    const struct hf_history *history = &hf_conn_store(conn)->history;
    struct hf_event event;

    for (int i = 0;
         i < HF_CLIENT_WORK_PART && hf_serve_conn_has_room(&conn->serve); i++) {
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
unsigned hf_conn_watch_continue(struct hf_conn *conn, unsigned max)
{
    size_t before = conn->serve.output.size;
    uint32_t visits = 0;
    unsigned work = 0;
    bool more = false;

    for (; visits < conn->serve.watch_count && work < max &&
           hf_serve_conn_has_room(&conn->serve);
         visits++) {
        struct hf_dlist *link = hf_dlist_take(&conn->watches);

        hf_dlist_push_back(&conn->watches, link);
        more |= continue_watch(
            conn, HF_CONTAINER(link, struct hf_conn_watch, link), &work);
    }
    if (conn->serve.output.size > before)
        hf_serve_conn_wrote(&conn->serve);
    if (more || visits < conn->serve.watch_count)
        hf_serve_conn_set_streaming(&conn->serve);
    return work;
}

void hf_conn_watch_on_restored(struct hf_conn *conn)
{
    const struct hf_history *history = &hf_conn_store(conn)->history;
    struct hf_dlist *link = conn->watches.next;

    for (; link != &conn->watches; link = link->next) {
        struct hf_conn_watch *watch =
            HF_CONTAINER(link, struct hf_conn_watch, link);

        watch->cursor = hf_history_seek(history, watch->cursor.index);
        hf_serve_conn_set_streaming(&conn->serve);
    }
}
