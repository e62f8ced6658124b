#include "quorum/node.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/hex.h"
#include "core/quorum/message.h"
#include "quorum/state.h"
#include "serve/reply.h"

/* ---- The master ---------------------------------------------------------*/

/* A push that is lost with its connection does no harm: the claim asks
 * again. */
static void on_push(void *arg, uint64_t number, const struct hf_claim_id *id,
                    const struct hf_quorum_reply *reply)
{
    struct hf_quorum_node *node = arg;
    struct hf_serve_conn *conn = hf_server_find(&node->server, number);
    struct hf_buf *scratch = hf_server_scratch(&node->server);
    struct hf_mux_push push = {
        .kind = HF_MUX_PUSH_VOTE,
        .claim = {id->bytes, sizeof(id->bytes)},
    };

    if (!conn || conn->is_closing || !conn->is_mux)
        return;
    node->pushes++;
    hf_message_encode_reply(reply, scratch);
    conn->output.failed |= scratch->failed;
    push.reply = (struct hf_bytes){scratch->data, scratch->size};
    hf_serve_reply_push(conn, &push);
}

_Static_assert(sizeof(struct hf_claim_id) == HF_MUX_CLAIM_SIZE, "VOTE");

static const struct hf_master_ops master_ops = {
    .push = on_push,
    .changing = hf_quorum_events_changing,
    .changed = hf_quorum_events_changed,
};

/* ---- New and free -------------------------------------------------------*/

static void init_master(struct hf_quorum_node *node,
                        const struct hf_quorum_node_opts *opts)
{
    uint32_t lease_max_ms = node->members.lease_max_ms;
    const struct hf_master_opts master = {
        .seed = opts->seed,
        .mark = opts->mark,
        .floor = opts->mark,
        .quiet_until =
            opts->mark > 0 ? hf_time_add(node->now, lease_max_ms) : 0,
        .lease_max_ms = lease_max_ms,
        .bytes_max = opts->table_bytes ? opts->table_bytes : HF_QUORUM_BYTES,
    };

    hf_master_init(&node->master, &master, &master_ops, node);
}

static void init_server(struct hf_quorum_node *node,
                        const struct hf_quorum_node_opts *opts)
{
    const struct hf_server_opts server = {
        .ops = &hf_quorum_service,
        .shell = {.send = node->ops->send_client,
                  .close = node->ops->close_client,
                  .pause = node->ops->pause_client,
                  .arg = node->arg},
        .max = opts->clients_max && opts->clients_max < HF_CLIENTS_MAX
                   ? opts->clients_max
                   : HF_CLIENTS_MAX,
    };

    hf_server_init(&node->server, &server);
}

enum hf_err hf_quorum_node_new(const struct hf_quorum_node_opts *opts,
                               const struct hf_quorum_node_ops *ops, void *arg,
                               hf_time now, struct hf_quorum_node **node)
{
    struct hf_quorum_node *made = calloc(1, sizeof(*made));

    if (!made)
        return HF_ENOMEM;
    made->members = *opts->members;
    made->id = opts->id;
    made->ops = ops;
    made->arg = arg;
    made->now = now;
    made->index = opts->mark;
    HF_ASSERT(hf_members_find(&made->members, made->id));
    hf_hex_encode(made->cluster, made->members.cluster,
                  sizeof(made->members.cluster));
    init_master(made, opts);
    init_server(made, opts);
    hf_members_write(&made->members, &made->member_text);
    if (made->member_text.failed ||
        hf_history_init(&made->history,
                        opts->history_bytes ? opts->history_bytes
                                            : HF_NODE_HISTORY_BYTES,
                        made->index + 1)) {
        hf_quorum_node_free(made);
        return HF_ENOMEM;
    }
    *node = made;
    return HF_OK;
}

void hf_quorum_node_free(struct hf_quorum_node *node)
{
    if (!node)
        return;
    hf_server_fini(&node->server); /* frees lists, which walk over records */
    hf_master_fini(&node->master);
    hf_history_fini(&node->history);
    hf_buf_fini(&node->member_text);
    free(node);
}

/* ---- Input --------------------------------------------------------------*/

void hf_quorum_node_set_time(struct hf_quorum_node *node, hf_time now)
{
    if (now > node->now)
        node->now = now;
}

void hf_quorum_node_on_client_open(struct hf_quorum_node *node, uint64_t conn)
{
    hf_server_on_open(&node->server, node->now, conn);
}

void hf_quorum_node_on_client_data(struct hf_quorum_node *node, uint64_t conn,
                                   const void *bytes, size_t size)
{
    hf_server_on_data(&node->server, node->now, conn, bytes, size);
}

void hf_quorum_node_on_client_closed(struct hf_quorum_node *node, uint64_t conn)
{
    hf_server_on_closed(&node->server, conn);
}

void hf_quorum_node_on_client_refused(struct hf_quorum_node *node)
{
    hf_server_on_refused(&node->server);
}

void hf_quorum_node_on_client_unsent(struct hf_quorum_node *node, uint64_t conn,
                                     size_t size)
{
    hf_server_on_unsent(&node->server, node->now, conn, size);
}

/* ---- Marks --------------------------------------------------------------*/

uint64_t hf_quorum_node_wanted_mark(const struct hf_quorum_node *node)
{
    return node->is_marking ? 0 : hf_master_wanted_mark(&node->master);
}

static void begin_mark(struct hf_quorum_node *node)
{
    uint64_t mark = hf_quorum_node_wanted_mark(node);

    if (mark == 0 || node->now < node->mark_at)
        return;
    node->is_marking = true;
    node->mark_writes++;
    node->ops->write_mark(node->arg, mark);
}

void hf_quorum_node_on_mark(struct hf_quorum_node *node, uint64_t mark, bool ok)
{
    node->is_marking = false;
    node->mark_failed = !ok;
    if (ok) {
        node->mark_pause_ms = 0;
        node->mark_at = 0;
        hf_master_set_mark(&node->master, mark);
        return;
    }
    node->mark_pause_ms =
        node->mark_pause_ms ? 2 * node->mark_pause_ms : HF_QUORUM_MARK_RETRY_MS;
    if (node->mark_pause_ms > HF_QUORUM_MARK_RETRY_MAX_MS)
        node->mark_pause_ms = HF_QUORUM_MARK_RETRY_MAX_MS;
    node->mark_at = hf_time_add(node->now, node->mark_pause_ms);
}

/* ---- Time ---------------------------------------------------------------*/

void hf_quorum_node_turn(struct hf_quorum_node *node, hf_time now)
{
    hf_quorum_node_set_time(node, now);
    hf_master_advance(&node->master, node->now);
    hf_server_turn(&node->server, node->now);
    begin_mark(node);
}

/* A connection that ends at the end of a turn may cause a push to another one,
 * which the next turn sends. */
hf_time hf_quorum_node_deadline(const struct hf_quorum_node *node)
{
    hf_time at = hf_server_deadline(&node->server, node->now);

    if (!hf_dlist_is_empty(&node->server.output))
        return node->now;
    at = hf_time_min(at, hf_master_deadline(&node->master));
    if (hf_quorum_node_wanted_mark(node))
        at = hf_time_min(at, node->mark_at);
    if (node->now < node->master.opts.quiet_until)
        at = hf_time_min(at, node->master.opts.quiet_until);
    return at;
}

/* ---- Status -------------------------------------------------------------*/

void hf_quorum_node_status(const struct hf_quorum_node *node,
                           struct hf_quorum_node_status *status)
{
    *status = (struct hf_quorum_node_status){
        .quiet_ms = hf_time_left(node->master.opts.quiet_until, node->now),
        .mark = node->master.mark,
        .mark_failed = node->mark_failed,
        .mark_writes = node->mark_writes,
    };
}
