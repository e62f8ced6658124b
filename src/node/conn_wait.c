/* conn_wait.c - a LOCK of a plain client that waits in the queue of its key. */
#include "node/conn_claim.h"

#define RECHECK_MS 5000 /* interval of checks for a lost push */

static void set_recheck(struct hf_conn_claim *claim)
{
    hf_time recheck = hf_conn_now(claim->conn) + RECHECK_MS;
    hf_time at = hf_time_min(claim->wait_until, recheck);

    hf_heap_set(&claim->conn->clients->waits, &claim->timer, at);
}

void hf_conn_wait_start(struct hf_conn_claim *claim, uint64_t index)
{
    claim->state = CLAIM_WAITING;
    claim->index = index;
    claim->queued = hf_conn_now(claim->conn);
    claim->wait_until = hf_time_add(claim->queued, claim->wait_ms);
    set_recheck(claim);
}

static bool may_be_granted(const struct hf_conn_claim *claim)
{
    return claim && (claim->state == CLAIM_WAITING ||
                     (claim->state == CLAIM_RUNNING && !claim->is_due &&
                      claim->command.kind == HF_COMMAND_LOCK));
}

void hf_conn_wait_on_grant(struct hf_conn *conn,
                           const struct hf_node_grant *grant)
{
    struct hf_conn_claim *claim = conn->claim;

    if (!may_be_granted(claim) ||
        !hf_nonce_equal(&claim->command.nonce, &grant->nonce))
        return;
    if (claim->state == CLAIM_RUNNING)
        claim->queued = hf_conn_now(conn);
    hf_conn_claim_take_grant(claim, grant->token, grant->age_ms);
}

/* Returns true if this node's table has the log entry that put the claim into
 * the queue: if it does not know the claim, then the claim has left the
 * queue. */
static bool is_table_new_enough(const struct hf_conn_claim *claim)
{
    struct hf_node_status status;

    hf_node_status(claim->conn->clients->opts.node, &status);
    return status.applied >= claim->index;
}

static bool is_session_open(const struct hf_conn *conn)
{
    const struct hf_session *session =
        hf_table_find_session(&hf_conn_store(conn)->table, conn->session);

    return session && !session->ended;
}

/* The claim has left the queue, and does not hold the key. If it left with its
 * session, claim again for the rest of the wait. Otherwise another client has
 * canceled it, or the push of the grant was lost and the lease has ended. */
static void on_claim_left(struct hf_conn_claim *claim)
{
    hf_time now = hf_conn_now(claim->conn);

    if (is_session_open(claim->conn)) {
        hf_conn_claim_fail(claim, HF_ENOTHELD,
                           "the claim was canceled, or its lease has ended");
        return;
    }
    hf_conn_claim_forget_session(claim->conn);
    if (now >= claim->wait_until) {
        hf_conn_claim_fail(claim, HF_ETIMEDOUT, NULL);
        return;
    }
    claim->wait_ms = (uint32_t)(claim->wait_until - now);
    hf_conn_claim_set_due(claim, CLAIM_RUNNING);
}

/* The push of the grant may have been lost, but this node's table shows
 * eventually what became of the claim. */
static void recheck_claim(struct hf_conn_claim *claim)
{
    struct hf_lookup found =
        hf_table_lookup(&hf_conn_store(claim->conn)->table, claim->command.key,
                        &claim->command.nonce);

    if (found.state == HF_LOOKUP_HELD)
        hf_conn_claim_take_grant(claim, found.token, HF_MUX_AGE_UNKNOWN);
    else if (found.state == HF_LOOKUP_UNKNOWN && is_table_new_enough(claim))
        on_claim_left(claim);
    else if (hf_conn_now(claim->conn) >= claim->wait_until)
        hf_conn_claim_set_due(claim, CLAIM_CANCELING);
    else
        set_recheck(claim);
}

void hf_conn_wait_on_timers(struct hf_clients *clients)
{
    hf_time now = hf_clients_now(clients->opts.node);

    while (hf_heap_top_key(&clients->waits) <= now)
        recheck_claim(HF_CONTAINER(hf_heap_top(&clients->waits),
                                   struct hf_conn_claim, timer));
}
