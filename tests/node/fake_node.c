#include "node/fake_node.h"

#include <string.h>

#include "base/assert.h"
#include "core/snapshot.h"

static const struct hf_seed seed = {"0123456789abcde"};

/* ---- The shell ----------------------------------------------------------*/

static void send_client(void *arg, uint64_t conn, const void *bytes,
                        size_t size)
{
    struct hf_node *node = arg;

    if (conn >= HF_FAKE_CONNS)
        return;
    HF_ASSERT(!node->conns[conn].is_closed);
    hf_buf_raw(&node->conns[conn].output, bytes, size);
    node->conns[conn].output.failed = false; /* a test may make malloc() fail */
    node->conns[conn].sends++;
}

static void close_client(void *arg, uint64_t conn)
{
    struct hf_node *node = arg;

    node->closed_conns++;
    if (conn < HF_FAKE_CONNS)
        node->conns[conn].is_closed = true;
}

static void pause_client(void *arg, uint64_t conn, bool stop_reading)
{
    struct hf_node *node = arg;

    if (conn < HF_FAKE_CONNS)
        node->conns[conn].is_paused = stop_reading;
}

static const struct hf_node_ops ops = {
    .send_client = send_client,
    .close_client = close_client,
    .pause_client = pause_client,
};

void hf_fake_open(struct hf_node *node, uint64_t conn)
{
    if (conn < HF_FAKE_CONNS) {
        hf_buf_fini(&node->conns[conn].output);
        node->conns[conn] = (struct hf_fake_conn){0};
    }
    hf_clients_on_open(node->clients, conn);
}

void hf_fake_send(struct hf_node *node, uint64_t conn, const char *text)
{
    hf_clients_on_data(node->clients, conn, text, strlen(text));
}

/* ---- The replication half -----------------------------------------------*/

hf_time hf_clients_now(const struct hf_node *node)
{
    return node->now;
}

struct hf_store *hf_clients_store(const struct hf_node *node)
{
    return (struct hf_store *)&node->store;
}

enum hf_err hf_requests_submit(struct hf_node *node,
                               struct hf_node_request *request)
{
    hf_dlist_push_back(&node->requests, &request->link);
    node->submitted++;
    return HF_OK;
}

void hf_requests_abandon(struct hf_node *node, struct hf_node_request *request)
{
    hf_dlist_remove(&request->link);
    node->abandoned++;
}

enum hf_err hf_attachments_add(struct hf_node *node, uint64_t session,
                               uint64_t conn)
{
    for (size_t i = 0; i < HF_FAKE_CONNS; i++)
        if (node->conns[i].session == session)
            node->conns[i].session = 0;
    if (conn < HF_FAKE_CONNS)
        node->conns[conn].session = session;
    return HF_OK;
}

void hf_attachments_remove(struct hf_node *node, uint64_t session,
                           uint64_t conn)
{
    if (conn < HF_FAKE_CONNS && node->conns[conn].session == session)
        node->conns[conn].session = 0;
}

void hf_node_status(const struct hf_node *node, struct hf_node_status *status)
{
    *status = (struct hf_node_status){
        .id = 1,
        .role = node->leader == 1 ? HF_NODE_LEADER : HF_NODE_FOLLOWER,
        .term = 3,
        .leader = node->leader,
        .commit = 8,
        .applied = 7 + node->submitted - node->behind,
        .version = 2,
        .holds = node->store.table.holds.count,
        .members = {{1, "127.0.0.1:1", "127.0.0.1:11", true, 0},
                    {2, "127.0.0.1:2", "127.0.0.1:12", false, 5}},
        .member_count = 2,
    };
}

static void on_event(void *arg, const struct hf_table_event *event)
{
    struct hf_node *node = arg;
    struct hf_table_waiter *waiter = hf_table_take_waiter(event);

    node->has_granted = event->kind == HF_EVENT_GRANTED && !event->waited;
    if (waiter)
        hf_dlist_push_back(&node->granted, &waiter->in_queue);
}

static void report_grant(struct hf_node *node,
                         const struct hf_table_waiter *waiter)
{
    const struct hf_hold *hold = waiter->hold;
    const struct hf_node_grant grant = {
        .session = hold->session->id,
        .nonce = waiter->nonce,
        .token = hold->token,
        .age_ms = node->age_ms,
    };

    for (size_t i = 1; i < HF_FAKE_CONNS && !node->loses_grants; i++)
        if (node->conns[i].session == grant.session)
            hf_clients_hooks.on_grant(node->clients, i, &grant);
}

static void run_command(struct hf_node *node, const struct hf_command *command,
                        struct hf_result *result)
{
    struct hf_dlist *link;

    (void)hf_store_run(&node->store, node->now, command, result);
    while ((link = hf_dlist_take(&node->granted))) {
        struct hf_table_waiter *waiter =
            HF_CONTAINER(link, struct hf_table_waiter, in_queue);

        report_grant(node, waiter);
        hf_table_waiter_free(waiter);
    }
}

static bool must_fail(const struct hf_node *node,
                      const struct hf_node_request *request)
{
    struct hf_command command;

    if (node->failing == 0)
        return node->failure.err != HF_OK;
    return request->kind == HF_NODE_COMMAND &&
           !hf_command_decode(&command, request->command.data,
                              request->command.size) &&
           command.kind == node->failing;
}

static void run_request(struct hf_node *node, struct hf_node_request *request)
{
    struct hf_node_outcome outcome = {0};
    struct hf_command command;

    node->has_granted = false;
    if (must_fail(node, request)) {
        outcome = node->failure;
    } else if (request->kind == HF_NODE_COMMAND) {
        HF_ASSERT(!hf_command_decode(&command, request->command.data,
                                     request->command.size));
        run_command(node, &command, &outcome.result);
    }
    outcome.age_ms = node->has_granted ? 0 : -1;
    outcome.index = 7 + node->submitted;
    request->done(request, &outcome);
}

static void expire_leases(struct hf_node *node)
{
    struct hf_command expire;
    struct hf_result result;

    while (hf_store_take_due(&node->store, node->now, &expire, 1) == 1)
        run_command(node, &expire, &result);
}

void hf_fake_step(struct hf_node *node)
{
    struct hf_dlist requests;
    struct hf_dlist *link;

    hf_dlist_init(&requests);
    expire_leases(node);
    while (!node->is_stuck && (link = hf_dlist_take(&node->requests)))
        hf_dlist_push_back(&requests, link);
    while ((link = hf_dlist_take(&requests)))
        run_request(node, HF_CONTAINER(link, struct hf_node_request, link));
    hf_clients_hooks.on_applied(node->clients);
    hf_clients_hooks.on_turn(node->clients);
}

static bool has_work(const struct hf_node *node)
{
    return (!node->is_stuck && !hf_dlist_is_empty(&node->requests)) ||
           hf_clients_hooks.deadline(node->clients) <= node->now;
}

void hf_fake_turn(struct hf_node *node, hf_time now)
{
    node->now = now;
    do {
        hf_fake_step(node);
    } while (has_work(node));
}

void hf_fake_restore(struct hf_node *node, uint64_t index)
{
    struct hf_buf snapshot = {0};
    struct hf_table table;

    hf_table_init(&table, &seed, NULL, NULL);
    table.index = index;
    hf_snapshot_encode(&table, &snapshot);
    hf_table_fini(&table);
    HF_ASSERT(!hf_store_restore(&node->store, node->now, snapshot.data,
                                snapshot.size));
    hf_buf_fini(&snapshot);
    hf_clients_hooks.on_restored(node->clients);
}

void hf_fake_init(struct hf_node *node)
{
    struct hf_clients_opts opts = {
        .node = node,
        .ops = &ops,
        .arg = node,
        .cluster = {"cluster identity"},
        .id = 1,
        .max = HF_CLIENTS_MAX,
        .seed = seed,
    };

    *node = (struct hf_node){.now = 1000, .leader = 1};
    hf_dlist_init(&node->requests);
    hf_dlist_init(&node->granted);
    HF_ASSERT(!hf_store_init(&node->store, &seed, 65536, on_event, node));
    node->clients = hf_clients_new(&opts);
    HF_ASSERT(node->clients);
}

void hf_fake_fini(struct hf_node *node)
{
    hf_clients_free(node->clients);
    HF_ASSERT(hf_dlist_is_empty(&node->requests));
    hf_store_fini(&node->store);
    for (size_t i = 0; i < HF_FAKE_CONNS; i++)
        hf_buf_fini(&node->conns[i].output);
}
