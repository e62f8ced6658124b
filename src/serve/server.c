#include "serve/server.h"

#include "base/assert.h"
#include "serve/conn.h"
#include "serve/text.h"

/* ---- Input --------------------------------------------------------------*/

void hf_server_on_open(struct hf_server *server, hf_time now, uint64_t number)
{
    const struct hf_server_shell *shell = &server->opts.shell;
    static const char refusal[] = HF_SERVER_REFUSAL;

    server->now = now;
    if (server->count < server->opts.max && hf_serve_conn_new(server, number)) {
        server->counters.connections_accepted++;
        return;
    }
    server->counters.connections_refused++;
    shell->send(shell->arg, number, refusal, sizeof(refusal) - 1);
    shell->close(shell->arg, number);
}

void hf_server_on_data(struct hf_server *server, hf_time now, uint64_t number,
                       const void *data, size_t size)
{
    struct hf_serve_conn *conn = hf_server_find(server, number);

    server->now = now;
    if (!conn || conn->is_closing)
        return;
    if (hf_resp_reader_feed(&conn->reader, data, size)) {
        server->counters.connections_broken++;
        hf_serve_conn_close(conn);
        return;
    }
    if (hf_dlist_is_linked(&conn->in_ready))
        hf_serve_conn_keep_input(conn);
    else
        hf_serve_conn_take_input(conn);
}

void hf_server_on_closed(struct hf_server *server, uint64_t number)
{
    struct hf_serve_conn *conn = hf_server_find(server, number);

    if (conn)
        hf_serve_conn_free(conn);
}

void hf_server_on_refused(struct hf_server *server)
{
    server->counters.connections_refused++;
}

void hf_server_on_unsent(struct hf_server *server, hf_time now, uint64_t number,
                         size_t size)
{
    struct hf_serve_conn *conn = hf_server_find(server, number);

    server->now = now;
    if (!conn)
        return;
    if (size == 0)
        hf_dlist_remove(&conn->in_slow);
    else if (!hf_dlist_is_linked(&conn->in_slow))
        hf_dlist_push_back(&server->slow, &conn->in_slow);
    if (size < conn->unsent || conn->unsent == 0)
        conn->unsent_since = now;
    server->unsent += size;
    server->unsent -= conn->unsent;
    conn->unsent = size;
    if (conn->is_streaming)
        hf_serve_conn_set_streaming(conn);
}

/* ---- Connections that are ready or streaming ----------------------------*/

/* Continue every connection that is ready when this is called, one after the
 * other, until the limit of a turn is reached. Those that are left come first
 * in the next turn. */
static void continue_ready_once(struct hf_server *server)
{
    struct hf_dlist *last = server->ready.prev;
    struct hf_dlist *link;
    bool was_last = hf_dlist_is_empty(&server->ready);

    while (!was_last && server->work < HF_CLIENTS_REQUEST_WORK &&
           (link = hf_dlist_take(&server->ready))) {
        struct hf_serve_conn *conn =
            HF_CONTAINER(link, struct hf_serve_conn, in_ready);

        was_last = link == last;
        if (!conn->is_closing)
            hf_serve_conn_continue(conn);
    }
}

/* Continue the connections that are ready, again and again, as long as any of
 * them may execute more requests in this turn. */
static void continue_ready(struct hf_server *server)
{
    unsigned before;

    server->work = 0;
    do {
        before = server->work;
        continue_ready_once(server);
    } while (server->work > before && server->work < HF_CLIENTS_REQUEST_WORK);
    server->counters.turns_full += server->work >= HF_CLIENTS_REQUEST_WORK;
}

/* Let a connection write about HF_CLIENT_WORK units. Its requests come first,
 * because lists and events may use up the room for their replies. Requests that
 * wait for a list or a read continue after it. Returns the work, which is not
 * 0. */
static unsigned continue_stream(struct hf_serve_conn *conn)
{
    const struct hf_service_ops *ops = conn->server->opts.ops;
    unsigned work = 1;

    if (!conn->is_closing)
        hf_serve_conn_continue(conn);
    if (conn->is_closing)
        return work;
    if (ops->stream)
        work += ops->stream(conn);
    hf_serve_conn_continue(conn);
    return work;
}

/* The connections that are streaming take turns. The work in one turn of the
 * node is limited, because all other clients wait for its end. */
static void continue_streams(struct hf_server *server)
{
    struct hf_dlist *link;
    unsigned work = 0;

    while (work < HF_CLIENTS_WORK && (link = hf_dlist_take(&server->streams)))
        work += continue_stream(
            HF_CONTAINER(link, struct hf_serve_conn, in_streams));
    server->counters.turns_full += !hf_dlist_is_empty(&server->streams);
}

/* ---- Idle and slow clients ----------------------------------------------*/

/* Returns true if a silent client is not idle: the node does not read from it,
 * or it is a plain client that waits for an answer or for events. */
static bool may_be_silent(const struct hf_serve_conn *conn)
{
    const struct hf_service_ops *ops = conn->server->opts.ops;

    if (conn->is_paused)
        return true;
    if (conn->is_mux)
        return false;
    return conn->watch_count > 0 ||
           (ops->may_be_silent && ops->may_be_silent(conn));
}

static void close_idle(struct hf_server *server)
{
    struct hf_dlist *link = server->conns.next;

    while (link != &server->conns) {
        struct hf_serve_conn *conn =
            HF_CONTAINER(link, struct hf_serve_conn, link);

        link = link->next;
        if (conn->active_at + HF_CLIENT_IDLE_MS > server->now ||
            may_be_silent(conn))
            continue;
        server->counters.connections_idle++;
        hf_serve_conn_close(conn);
    }
}

static void close_slow(struct hf_serve_conn *conn)
{
    conn->server->counters.connections_slow += !conn->is_closing;
    conn->output.size = 0;
    hf_serve_conn_close(conn);
}

static void sweep_conns(struct hf_server *server)
{
    struct hf_dlist *link = server->slow.next;

    if (server->now < server->next_sweep)
        return;
    server->next_sweep = server->now + HF_CLIENT_SWEEP_MS;
    close_idle(server);
    for (; link != &server->slow; link = link->next) {
        struct hf_serve_conn *conn =
            HF_CONTAINER(link, struct hf_serve_conn, in_slow);

        if (conn->unsent_since + HF_CLIENT_SLOW_MS <= server->now)
            close_slow(conn);
    }
}

/* ---- Turns --------------------------------------------------------------*/

static void send_output(struct hf_serve_conn *conn)
{
    const struct hf_server_shell *shell = &conn->server->opts.shell;
    struct hf_buf *output = &conn->output;

    if (output->failed || conn->unsent + output->size > HF_CLIENT_OUTPUT_MAX) {
        close_slow(conn);
        return;
    }
    if (output->size > 0)
        shell->send(shell->arg, conn->number, output->data, output->size);
    output->size = 0;
    if (output->capacity > HF_RESP_LINE_MAX)
        hf_buf_fini(output); /* keep idle connections small */
    if (conn->is_streaming)
        hf_serve_conn_set_streaming(conn);
}

void hf_server_turn(struct hf_server *server, hf_time now)
{
    const struct hf_server_shell *shell = &server->opts.shell;
    struct hf_dlist *link;

    server->now = now;
    continue_ready(server);
    continue_streams(server);
    sweep_conns(server);
    while ((link = hf_dlist_take(&server->output)))
        send_output(HF_CONTAINER(link, struct hf_serve_conn, in_output));
    while ((link = hf_dlist_take(&server->closing))) {
        struct hf_serve_conn *conn =
            HF_CONTAINER(link, struct hf_serve_conn, link);

        shell->close(shell->arg, conn->number);
        hf_serve_conn_free(conn);
    }
    server->turn++;
    server->work = 0;
}

hf_time hf_server_deadline(const struct hf_server *server, hf_time now)
{
    if (!hf_dlist_is_empty(&server->ready) ||
        !hf_dlist_is_empty(&server->streams))
        return now;
    return server->count > 0 ? server->next_sweep : HF_NEVER;
}

/* ---- For the service ----------------------------------------------------*/

struct hf_serve_conn *hf_server_find(const struct hf_server *server,
                                     uint64_t number)
{
    struct hf_map_link *link =
        hf_map_find(&server->by_number, hf_map_hash_number(number));

    /* No other number has the same hash. */
    return link ? HF_CONTAINER(link, struct hf_serve_conn, by_number) : NULL;
}

void hf_server_push_all(struct hf_server *server, const struct hf_buf *bytes)
{
    struct hf_dlist *link = server->conns.next;

    for (; link != &server->conns; link = link->next) {
        struct hf_serve_conn *conn =
            HF_CONTAINER(link, struct hf_serve_conn, link);

        if (!conn->is_mux)
            continue;
        hf_buf_raw(&conn->output, bytes->data, bytes->size);
        conn->output.failed |= bytes->failed;
        hf_serve_conn_wrote(conn);
    }
}

void hf_server_add_connections(const struct hf_server *server,
                               struct hf_buf *text)
{
    hf_text_section(text, "Clients");
    hf_text_count(text, "connected_clients", server->count);
    hf_text_count(text, "mux_clients", server->mux_count);
    hf_text_count(text, "maxclients", server->opts.max);
}

void hf_server_add_bytes(const struct hf_server *server, struct hf_buf *text)
{
    hf_text_count(text, "input_bytes", server->input);
    hf_text_count(text, "input_bytes_max", HF_INPUT_MAX);
    hf_text_count(text, "unsent_bytes", server->unsent);
    hf_text_count(text, "unsent_bytes_max", HF_UNSENT_MAX);
    hf_text_count(text, "watch_bytes", server->watch_bytes);
    hf_text_count(text, "watch_bytes_max", HF_WATCHES_BYTES);
}

void hf_server_add_counters(const struct hf_server *server, struct hf_buf *text)
{
    const struct hf_server_counters *counters = &server->counters;

#define ROW(name) hf_text_count(text, #name, counters->name);
    HF_SERVER_COUNTERS(ROW)
#undef ROW
}

/* ---- Init and fini ------------------------------------------------------*/

void hf_server_init(struct hf_server *server, const struct hf_server_opts *opts)
{
    HF_ASSERT(opts->ops->conn_size >= sizeof(struct hf_serve_conn));
    *server = (struct hf_server){.opts = *opts};
    hf_map_init(&server->by_number);
    hf_dlist_init(&server->conns);
    hf_dlist_init(&server->closing);
    hf_dlist_init(&server->output);
    hf_dlist_init(&server->ready);
    hf_dlist_init(&server->streams);
    hf_dlist_init(&server->slow);
    hf_dlist_init(&server->watching);
}

void hf_server_fini(struct hf_server *server)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&server->conns)) ||
           (link = hf_dlist_take(&server->closing)))
        hf_serve_conn_free(HF_CONTAINER(link, struct hf_serve_conn, link));
    HF_ASSERT(server->count == 0);
    HF_ASSERT(server->input == 0);
    HF_ASSERT(server->unsent == 0);
    HF_ASSERT(server->watch_bytes == 0);
    HF_ASSERT(server->list_count == 0);
    hf_map_fini(&server->by_number);
    hf_buf_fini(&server->scratch);
}
