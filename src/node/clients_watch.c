/* clients_watch.c - WATCH: the events of keys that begin with a prefix.
 *
 * A watch is a cursor into the history of the store, so a slow client takes no
 * memory for events: if it does not read, its cursor stays behind, and it gets
 * a DROPPED event when the events that it missed are no longer kept. */
#include <stdlib.h>

#include "node/clients_state.h"

#define EVENTS_PER_TURN 256 /* events that a watch reads at most in a turn */

struct hf_conn_watch {
    struct hf_dlist link; /* in conn->watches */
    struct hf_history_cursor cursor;
    uint64_t number;
    bool exact;
    size_t key_size;
    uint8_t key[]; /* the prefix, or the key if `exact` */
};

static struct hf_conn_watch *find_watch(const struct hf_conn *conn,
                                        uint64_t number)
{
    struct hf_dlist *link = conn->watches.next;

    for (; link != &conn->watches; link = link->next) {
        struct hf_conn_watch *watch =
            HF_CONTAINER(link, struct hf_conn_watch, link);

        if (watch->number == number)
            return watch;
    }
    return NULL;
}

static void remove_watch(struct hf_conn *conn, struct hf_conn_watch *watch)
{
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

enum hf_err hf_conn_watch_add(struct hf_conn *conn,
                              const struct hf_mux_request *request)
{
    const struct hf_store *store = hf_conn_store(conn);
    struct hf_conn_watch *watch;

    if (find_watch(conn, request->watch))
        return HF_EINVAL;
    if (conn->watch_count == HF_CLIENT_WATCHES_MAX) {
        conn->clients->counters.requests_refused++;
        return HF_ELIMIT;
    }
    watch = malloc(sizeof(*watch) + request->key.size);
    if (!watch)
        return HF_ENOMEM;
    *watch = (struct hf_conn_watch){
        .cursor = find_cursor(&store->history, request->from),
        .number = request->watch,
        .exact = request->exact,
        .key_size = request->key.size,
    };
    hf_copy(watch->key, request->key.data, request->key.size);
    hf_dlist_push_back(&conn->watches, &watch->link);
    if (conn->watch_count++ == 0)
        hf_dlist_push_back(&conn->clients->watching, &conn->in_watching);
    hf_conn_set_ready(conn); /* there may be events to send already */
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
    struct hf_buf *scratch = hf_clients_scratch(clients);
    struct hf_mux_push push = {
        .kind = HF_MUX_PUSH_EVENT,
        .watch = watch->number,
    };

    clients->counters.events++;
    clients->counters.events_dropped += event->kind == HF_EVENT_DROPPED;
    if (!conn->is_mux) {
        write_plain_event(&conn->output, event);
        return;
    }
    hf_protocol_encode_event(event, scratch);
    conn->output.failed |= scratch->failed;
    push.event = (struct hf_bytes){scratch->data, scratch->size};
    hf_mux_push_encode(&push, &conn->output);
}

/* Returns true if there may be more events to write. */
static bool continue_watch(struct hf_conn *conn, struct hf_conn_watch *watch)
{
    const struct hf_history *history = &hf_conn_store(conn)->history;
    struct hf_event event;

    for (int i = 0; i < EVENTS_PER_TURN && hf_conn_has_room(conn); i++) {
        if (!hf_history_read(history, &watch->cursor, &event))
            return false;
        if (is_key_watched(watch, &event))
            write_event(conn, watch, &event);
    }
    return true;
}

/* The watch that used up the room goes to the end of the list: otherwise the
 * first watch could starve the others. */
void hf_conn_watch_continue(struct hf_conn *conn)
{
    struct hf_dlist *link = conn->watches.next;
    size_t before = conn->output.size;
    bool more = false;

    while (link != &conn->watches && hf_conn_has_room(conn)) {
        struct hf_conn_watch *watch =
            HF_CONTAINER(link, struct hf_conn_watch, link);

        link = link->next;
        more |= continue_watch(conn, watch);
        if (!hf_conn_has_room(conn)) {
            hf_dlist_remove(&watch->link);
            hf_dlist_push_back(&conn->watches, &watch->link);
        }
    }
    if (conn->output.size > before)
        hf_conn_wrote(conn);
    if (more || link != &conn->watches)
        hf_conn_set_streaming(conn);
}

void hf_conn_watch_on_restored(struct hf_conn *conn)
{
    const struct hf_history *history = &hf_conn_store(conn)->history;
    struct hf_dlist *link = conn->watches.next;

    for (; link != &conn->watches; link = link->next) {
        struct hf_conn_watch *watch =
            HF_CONTAINER(link, struct hf_conn_watch, link);

        watch->cursor = hf_history_seek(history, watch->cursor.index);
        hf_conn_set_ready(conn);
    }
}
