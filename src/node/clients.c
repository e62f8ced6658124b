#include "node/clients.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/hex.h"
#include "node/clients_state.h"

/* ---- The shell ----------------------------------------------------------*/

void hf_clients_on_open(struct hf_clients *clients, uint64_t number)
{
    hf_server_on_open(&clients->server, hf_clients_now(clients->opts.node),
                      number);
}

void hf_clients_on_data(struct hf_clients *clients, uint64_t number,
                        const void *data, size_t size)
{
    hf_server_on_data(&clients->server, hf_clients_now(clients->opts.node),
                      number, data, size);
}

void hf_clients_on_closed(struct hf_clients *clients, uint64_t number)
{
    hf_server_on_closed(&clients->server, number);
}

void hf_clients_on_refused(struct hf_clients *clients)
{
    hf_server_on_refused(&clients->server);
}

void hf_clients_on_unsent(struct hf_clients *clients, uint64_t number,
                          size_t size)
{
    hf_server_on_unsent(&clients->server, hf_clients_now(clients->opts.node),
                        number, size);
}

/* ---- Hooks --------------------------------------------------------------*/

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

    if (!conn || conn->serve.is_closing || conn->session != grant->session)
        return;
    if (!conn->serve.is_mux) {
        hf_conn_wait_on_grant(conn, grant);
        return;
    }
    hf_serve_reply_push(&conn->serve, &push);
}

static void on_client_forced(void *arg, uint64_t number, uint64_t token)
{
    struct hf_conn *conn = hf_conn_find(arg, number);
    const struct hf_mux_push push = {
        .kind = HF_MUX_PUSH_RECHECK,
        .token = token,
    };

    if (!conn || conn->serve.is_closing || !conn->serve.is_mux)
        return;
    hf_serve_reply_push(&conn->serve, &push);
}

static void on_applied(void *arg)
{
    struct hf_clients *clients = arg;

    hf_serve_watch_notify(&clients->server);
}

static void restore_conns(struct hf_dlist *conns)
{
    struct hf_dlist *link = conns->next;

    for (; link != conns; link = link->next) {
        struct hf_conn *conn = HF_CONTAINER(link, struct hf_conn, serve.link);

        hf_serve_watch_seek(&conn->serve, &hf_conn_store(conn)->history);
        hf_serve_list_fail_all(&conn->serve, HF_EUNAVAIL,
                               "this node has loaded a snapshot: list again");
    }
}

static void on_restored(void *arg)
{
    struct hf_clients *clients = arg;

    hf_list_cursors_clear(&clients->cursors);
    restore_conns(&clients->server.conns);
    restore_conns(&clients->server.closing);
}

static void on_leader_changed(void *arg, uint64_t leader)
{
    struct hf_clients *clients = arg;
    struct hf_buf *push = hf_server_scratch(&clients->server);

    hf_report_leader(clients, leader, push);
    hf_server_push_all(&clients->server, push);
}

static void on_turn(void *arg)
{
    struct hf_clients *clients = arg;

    hf_conn_wait_on_timers(clients);
    hf_server_turn(&clients->server, hf_clients_now(clients->opts.node));
}

static hf_time clients_deadline(void *arg)
{
    const struct hf_clients *clients = arg;
    hf_time now = hf_clients_now(clients->opts.node);

    return hf_time_min(hf_heap_top_key(&clients->waits),
                       hf_server_deadline(&clients->server, now));
}

const struct hf_node_hooks hf_clients_hooks = {
    .on_grant = on_client_grant,
    .on_forced = on_client_forced,
    .on_applied = on_applied,
    .on_restored = on_restored,
    .on_leader = on_leader_changed,
    .on_turn = on_turn,
    .deadline = clients_deadline,
};

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

/* ---- New and free -------------------------------------------------------*/

static const struct hf_service_ops service_ops = {
    .conn_size = sizeof(struct hf_conn),
    .init_conn = hf_conn_init,
    .fini_conn = hf_conn_fini,
    .execute_plain = hf_conn_execute_plain,
    .execute_mux = hf_conn_execute_mux,
    .is_busy = hf_conn_is_busy,
    .may_be_silent = hf_conn_may_be_silent,
    .on_ready = hf_conn_on_ready,
    .stream = hf_conn_stream,
    .accept_mux = hf_conn_accept_mux,
    .fill_hello = hf_report_hello,
    .add_info = hf_report_info,
    .add_status = hf_report_status,
};

struct hf_clients *hf_clients_new(const struct hf_clients_opts *opts)
{
    const struct hf_server_opts server_opts = {
        .ops = &service_ops,
        .shell =
            {
                .send = opts->ops->send_client,
                .close = opts->ops->close_client,
                .pause = opts->ops->pause_client,
                .arg = opts->arg,
            },
        .max = opts->max,
    };
    struct hf_clients *clients = calloc(1, sizeof(*clients));

    if (!clients)
        return NULL;
    clients->opts = *opts;
    hf_server_init(&clients->server, &server_opts);
    hf_hex_encode(clients->cluster, opts->cluster.bytes,
                  sizeof(opts->cluster.bytes));
    hf_dlist_init(&clients->orphans);
    return clients;
}

/* Submit no CLOSE when the connections are freed: the leader closes the
 * sessions. */
static void forget_sessions(struct hf_dlist *conns)
{
    struct hf_dlist *link = conns->next;

    for (; link != conns; link = link->next)
        HF_CONTAINER(link, struct hf_conn, serve.link)->session = 0;
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
    if (!clients)
        return;
    forget_sessions(&clients->server.conns);
    forget_sessions(&clients->server.closing);
    hf_server_fini(&clients->server);
    free_orphans(clients);
    hf_list_cursors_clear(&clients->cursors);
    HF_ASSERT(clients->unanswered == 0);
    hf_heap_fini(&clients->waits);
    free(clients);
}
