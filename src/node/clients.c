#include "node/clients.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/hex.h"
#include "node/clients_state.h"

/* ---- Connections --------------------------------------------------------*/

/* The shell chooses the numbers, so their hash needs no secret. */
static uint64_t hash_number(uint64_t number)
{
    return number * 0x9E3779B97F4A7C15U;
}

struct hf_conn *hf_conn_find(const struct hf_clients *clients, uint64_t number)
{
    struct hf_map_link *link =
        hf_map_find(&clients->by_number, hash_number(number));

    /* The hash is a bijection: no other number has the same hash. */
    return link ? HF_CONTAINER(link, struct hf_conn, by_number) : NULL;
}

hf_time hf_conn_now(const struct hf_conn *conn)
{
    return hf_clients_now(conn->clients->opts.node);
}

struct hf_store *hf_conn_store(const struct hf_conn *conn)
{
    return hf_clients_store(conn->clients->opts.node);
}

static struct hf_conn *new_conn(struct hf_clients *clients, uint64_t number)
{
    struct hf_conn *conn = calloc(1, sizeof(*conn));

    if (!conn)
        return NULL;
    conn->clients = clients;
    conn->number = number;
    conn->heard = hf_conn_now(conn);
    hf_resp_reader_init(&conn->reader, true, HF_PROTOCOL_LIMITS);
    hf_dlist_init(&conn->ops);
    hf_dlist_init(&conn->confirmed);
    hf_dlist_init(&conn->watches);
    hf_dlist_init(&conn->lists);
    hf_map_insert(&clients->by_number, &conn->by_number, hash_number(number));
    hf_dlist_push_back(&clients->conns, &conn->link);
    clients->count++;
    return conn;
}

/* Nobody waits for the requests of a closed connection, so abandon them. In
 * plain mode also close the session, because no other connection uses it. */
static void end_requests(struct hf_conn *conn)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&conn->ops))) {
        struct hf_op *op = HF_CONTAINER(link, struct hf_op, link);

        hf_requests_abandon(conn->clients->opts.node, &op->request);
        hf_op_free(op);
    }
    while ((link = hf_dlist_take(&conn->confirmed)))
        hf_op_free(HF_CONTAINER(link, struct hf_op, link));
    if (conn->session == 0)
        return;
    hf_attachments_remove(conn->clients->opts.node, conn->session, conn->number);
    if (!conn->is_mux)
        hf_op_close_session(conn);
}

static void free_conn(struct hf_conn *conn)
{
    struct hf_clients *clients = conn->clients;

    end_requests(conn);
    hf_conn_watch_remove_all(conn);
    hf_conn_list_free(conn);
    hf_conn_claim_free(conn);
    hf_dlist_remove(&conn->link);
    hf_dlist_remove(&conn->in_output);
    hf_dlist_remove(&conn->in_ready);
    hf_dlist_remove(&conn->in_slow);
    hf_map_remove(&clients->by_number, &conn->by_number);
    clients->count--;
    clients->mux_count -= conn->is_mux;
    clients->input -= conn->input;
    clients->unsent -= conn->unsent;
    hf_resp_reader_fini(&conn->reader);
    hf_buf_fini(&conn->output);
    free(conn);
}

void hf_conn_close(struct hf_conn *conn)
{
    if (conn->is_closing)
        return;
    conn->is_closing = true;
    hf_dlist_remove(&conn->link);
    hf_dlist_push_back(&conn->clients->closing, &conn->link);
}

void hf_conn_wrote(struct hf_conn *conn)
{
    if (!hf_dlist_is_linked(&conn->in_output))
        hf_dlist_push_back(&conn->clients->output, &conn->in_output);
}

void hf_conn_set_ready(struct hf_conn *conn)
{
    if (!hf_dlist_is_linked(&conn->in_ready))
        hf_dlist_push_back(&conn->clients->ready, &conn->in_ready);
}

/* If many clients do not read, each of them gets less room. */
bool hf_conn_has_room(const struct hf_conn *conn)
{
    bool is_scarce = conn->clients->unsent > HF_UNSENT_MAX;

    return conn->unsent + conn->output.size <
           (is_scarce ? HF_RESP_LINE_MAX : HF_CLIENT_ROOM);
}

void hf_conn_set_streaming(struct hf_conn *conn)
{
    conn->is_streaming = !hf_conn_has_room(conn);
    if (!conn->is_streaming)
        hf_conn_set_ready(conn);
}

struct hf_nonce hf_clients_draw(struct hf_clients *clients)
{
    struct hf_nonce nonce;

    for (size_t i = 0; i < sizeof(nonce.bytes); i += sizeof(uint64_t)) {
        const uint64_t input[] = {clients->opts.id, ++clients->drawn};
        uint64_t word = hf_siphash(&clients->opts.seed, input, sizeof(input));

        memcpy(nonce.bytes + i, &word, sizeof(word));
    }
    return nonce;
}

/* ---- The shell ------------------------------------------------------------*/

void hf_clients_on_open(struct hf_clients *clients, uint64_t number)
{
    const struct hf_node_ops *ops = clients->opts.ops;
    static const char refusal[] =
        "-LIMIT this node has too many connections\r\n";

    if (clients->count < HF_CLIENTS_MAX && new_conn(clients, number)) {
        clients->counters.connections_accepted++;
        return;
    }
    clients->counters.connections_refused++;
    ops->send_client(clients->opts.arg, number, refusal, sizeof(refusal) - 1);
    ops->close_client(clients->opts.arg, number);
}

void hf_clients_on_closed(struct hf_clients *clients, uint64_t number)
{
    struct hf_conn *conn = hf_conn_find(clients, number);

    if (conn)
        free_conn(conn);
}

void hf_clients_on_unsent(struct hf_clients *clients, uint64_t number,
                          size_t size)
{
    struct hf_conn *conn = hf_conn_find(clients, number);

    if (!conn)
        return;
    if (size == 0)
        hf_dlist_remove(&conn->in_slow);
    else if (!hf_dlist_is_linked(&conn->in_slow))
        hf_dlist_push_back(&clients->slow, &conn->in_slow);
    if (size < conn->unsent || conn->unsent == 0)
        conn->unsent_since = hf_conn_now(conn);
    clients->unsent += size;
    clients->unsent -= conn->unsent;
    conn->unsent = size;
    if (conn->is_streaming)
        hf_conn_set_streaming(conn);
}

/* ---- Turns --------------------------------------------------------------*/

static void on_client_grant(void *arg, uint64_t number,
                            const struct hf_node_grant *grant)
{
    struct hf_conn *conn = hf_conn_find(arg, number);
    const struct hf_mux_push push = {
        .kind = HF_MUX_PUSH_GRANT,
        .nonce = grant->nonce,
        .token = grant->token,
        .age_ms = grant->age_ms,
    };

    if (!conn || conn->is_closing || conn->session != grant->session)
        return;
    if (!conn->is_mux) {
        hf_conn_claim_on_grant(conn, grant);
        return;
    }
    hf_mux_push_encode(&push, &conn->output);
    hf_conn_wrote(conn);
}

static void on_applied(void *arg)
{
    struct hf_clients *clients = arg;
    struct hf_dlist *link = clients->watching.next;

    for (; link != &clients->watching; link = link->next)
        hf_conn_set_ready(HF_CONTAINER(link, struct hf_conn, in_watching));
}

static void restore_conns(struct hf_dlist *conns)
{
    struct hf_dlist *link = conns->next;

    for (; link != conns; link = link->next) {
        struct hf_conn *conn = HF_CONTAINER(link, struct hf_conn, link);

        hf_conn_watch_on_restored(conn);
        hf_conn_list_on_restored(conn);
    }
}

static void on_restored(void *arg)
{
    struct hf_clients *clients = arg;

    restore_conns(&clients->conns);
    restore_conns(&clients->closing);
}

static void on_leader_changed(void *arg, uint64_t leader)
{
    struct hf_clients *clients = arg;
    struct hf_buf *push = hf_clients_scratch(clients);
    struct hf_dlist *link = clients->conns.next;

    hf_report_leader(clients, leader, push);
    for (; link != &clients->conns; link = link->next) {
        struct hf_conn *conn = HF_CONTAINER(link, struct hf_conn, link);

        if (!conn->is_mux)
            continue;
        hf_buf_raw(&conn->output, push->data, push->size);
        conn->output.failed |= push->failed;
        hf_conn_wrote(conn);
    }
}

/* Continue every connection that is ready when this is called. Those that
 * become ready meanwhile wait for the next turn. */
static void continue_ready(struct hf_clients *clients)
{
    struct hf_dlist *last = clients->ready.prev;
    struct hf_dlist *link;
    bool was_last = hf_dlist_is_empty(&clients->ready);

    while (!was_last && (link = hf_dlist_take(&clients->ready))) {
        struct hf_conn *conn = HF_CONTAINER(link, struct hf_conn, in_ready);

        was_last = link == last;
        if (conn->is_closing)
            continue;
        hf_conn_claim_on_ready(conn);
        hf_conn_read_continue(conn);
        hf_conn_list_continue(conn);
        hf_conn_watch_continue(conn);
        if (conn->reader.size > 0 || conn->is_paused)
            hf_conn_take_input(conn);
    }
}

static bool may_be_silent(const struct hf_conn *conn)
{
    return !conn->is_mux &&
           (hf_conn_claim_is_waiting(conn) || conn->watch_count > 0);
}

static void close_idle(struct hf_clients *clients, hf_time now)
{
    struct hf_dlist *link = clients->conns.next;

    while (link != &clients->conns) {
        struct hf_conn *conn = HF_CONTAINER(link, struct hf_conn, link);

        link = link->next;
        if (conn->heard + HF_CLIENT_IDLE_MS > now || may_be_silent(conn))
            continue;
        clients->counters.connections_idle++;
        hf_conn_close(conn);
    }
}

static void close_slow(struct hf_conn *conn)
{
    conn->clients->counters.connections_slow += !conn->is_closing;
    conn->output.size = 0;
    hf_conn_close(conn);
}

static void sweep(struct hf_clients *clients, hf_time now)
{
    struct hf_dlist *link = clients->slow.next;

    if (now < clients->next_sweep)
        return;
    clients->next_sweep = now + HF_CLIENT_SWEEP_MS;
    close_idle(clients, now);
    for (; link != &clients->slow; link = link->next) {
        struct hf_conn *conn = HF_CONTAINER(link, struct hf_conn, in_slow);

        if (conn->unsent_since + HF_CLIENT_SLOW_MS <= now)
            close_slow(conn);
    }
}

static void send_output(struct hf_conn *conn)
{
    struct hf_clients *clients = conn->clients;
    struct hf_buf *output = &conn->output;

    if (output->failed || conn->unsent + output->size > HF_CLIENT_OUTPUT_MAX) {
        close_slow(conn);
        return;
    }
    if (output->size > 0)
        clients->opts.ops->send_client(clients->opts.arg, conn->number,
                                       output->data, output->size);
    output->size = 0;
    if (output->capacity > HF_RESP_LINE_MAX)
        hf_buf_fini(output); /* keep idle connections small */
    if (conn->is_streaming)
        hf_conn_set_streaming(conn);
}

static void on_turn(void *arg)
{
    struct hf_clients *clients = arg;
    struct hf_dlist *link;

    hf_conn_claim_on_timers(clients);
    continue_ready(clients);
    sweep(clients, hf_clients_now(clients->opts.node));
    while ((link = hf_dlist_take(&clients->output)))
        send_output(HF_CONTAINER(link, struct hf_conn, in_output));
    while ((link = hf_dlist_take(&clients->closing))) {
        struct hf_conn *conn = HF_CONTAINER(link, struct hf_conn, link);

        clients->opts.ops->close_client(clients->opts.arg, conn->number);
        free_conn(conn);
    }
}

static hf_time deadline(void *arg)
{
    const struct hf_clients *clients = arg;
    hf_time at = hf_heap_top_key(&clients->waits);

    if (!hf_dlist_is_empty(&clients->ready))
        return hf_clients_now(clients->opts.node);
    if (clients->count > 0 && clients->next_sweep < at)
        at = clients->next_sweep;
    return at;
}

const struct hf_node_hooks hf_clients_hooks = {
    .on_grant = on_client_grant,
    .on_applied = on_applied,
    .on_restored = on_restored,
    .on_leader = on_leader_changed,
    .on_turn = on_turn,
    .deadline = deadline,
};

/* ---- All of them --------------------------------------------------------*/

struct hf_clients *hf_clients_new(const struct hf_clients_opts *opts)
{
    struct hf_clients *clients = calloc(1, sizeof(*clients));

    if (!clients)
        return NULL;
    clients->opts = *opts;
    hf_hex_encode(clients->cluster, opts->cluster.bytes,
                  sizeof(opts->cluster.bytes));
    hf_map_init(&clients->by_number);
    hf_dlist_init(&clients->conns);
    hf_dlist_init(&clients->closing);
    hf_dlist_init(&clients->output);
    hf_dlist_init(&clients->ready);
    hf_dlist_init(&clients->slow);
    hf_dlist_init(&clients->watching);
    hf_dlist_init(&clients->orphans);
    return clients;
}

static void free_orphans(struct hf_clients *clients)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&clients->orphans))) {
        struct hf_op *op = HF_CONTAINER(link, struct hf_op, link);

        hf_requests_abandon(clients->opts.node, &op->request);
        hf_op_free(op);
    }
}

void hf_clients_free(struct hf_clients *clients)
{
    struct hf_dlist *link;

    if (!clients)
        return;
    while ((link = hf_dlist_take(&clients->conns)) ||
           (link = hf_dlist_take(&clients->closing))) {
        struct hf_conn *conn = HF_CONTAINER(link, struct hf_conn, link);

        conn->session = 0; /* submit no CLOSE; the leader closes the session */
        free_conn(conn);
    }
    free_orphans(clients);
    HF_ASSERT(clients->count == 0);
    HF_ASSERT(clients->unanswered == 0);
    hf_map_fini(&clients->by_number);
    hf_heap_fini(&clients->waits);
    hf_buf_fini(&clients->scratch);
    free(clients);
}
