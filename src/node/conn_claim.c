/* conn_claim.c - a command of a plain client on a lock.
 *
 *            command         queued
 *     IDLE ---------> RUNNING ------> WAITING
 *       ^               |  ^           |  |  | time is up
 *       |     answered  |  |  claim    |  |  v
 *       +---------------+  +--again----+  |  CANCELING
 *       |                                 |    |
 *       |    granted, failed              |    |
 *       +---------------------------------+    |
 *       |             granted at an    |       |
 *       |             unknown time     v       |
 *       +-------------------------- RENEWING   |
 *       +--------------------------------------+
 *
 * A grant may also arrive in RUNNING, before the answer to the LOCK.
 *
 * The node does for a plain client what the library does for a program: it
 * opens a session, numbers commands, withdraws a claim whose wait has timed
 * out, and renews a grant if it is unknown when the lease started. One command
 * runs at a time. hf_conn_claim_on_ready() submits the command of the current
 * state, after opening a session if the connection has none.
 *
 * The leader closes the session of a connection if its node was cut off for too
 * long. Then the connection opens another one. The CANCEL of CANCELING and the
 * RENEW of RENEWING are sent again in the new session, because repeating them
 * is harmless. A LOCK that waited is sent again, because its waiter ended with
 * the session, but only after the table has shown that the claim does not hold
 * the key. Any other command may have been executed before the session ended:
 * it is in doubt. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/hex.h"
#include "node/conn_claim.h"

/* ---- Memory -------------------------------------------------------------*/

/* Allocate conn->claim, unless the connection has it already. */
static enum hf_err ensure_claim(struct hf_conn *conn)
{
    struct hf_clients *clients = conn->clients;
    struct hf_conn_claim *claim;

    if (conn->claim)
        return HF_OK;
    if (hf_heap_reserve(&clients->waits, clients->wait_count + 1))
        return HF_ENOMEM;
    claim = calloc(1, sizeof(*claim));
    if (!claim)
        return HF_ENOMEM;
    claim->conn = conn;
    claim->secret = hf_clients_draw(clients);
    conn->claim = claim;
    clients->wait_count++;
    return HF_OK;
}

static void drop_command(struct hf_conn_claim *claim)
{
    hf_conn_drop_bytes(claim->conn, claim->size);
    claim->size = 0;
    free(claim->bytes);
    claim->bytes = NULL;
}

void hf_conn_claim_free(struct hf_conn *conn)
{
    struct hf_clients *clients = conn->clients;

    if (!conn->claim)
        return;
    hf_heap_drop(&clients->waits, &conn->claim->timer);
    clients->wait_count--;
    drop_command(conn->claim);
    free(conn->claim);
    conn->claim = NULL;
}

static const void *copy_bytes(uint8_t **at, const void *data, size_t size)
{
    uint8_t *start = *at;

    hf_copy(start, data, size);
    *at += size;
    return start;
}

/* Keep a copy of the command until it is answered. A LOCK that waits needs all
 * of it, because it may have to be sent again in another session. */
static enum hf_err keep_command(struct hf_conn_claim *claim,
                                const struct hf_command *command)
{
    struct hf_conn *conn = claim->conn;
    struct hf_command *kept = &claim->command;
    size_t size = command->key.size + command->value.size +
                  command->expected.size + command->note.size;
    uint8_t *at;

    HF_ASSERT(!claim->bytes);
    if (!hf_conn_may_keep(conn, size, command->kind == HF_COMMAND_LOCK))
        return HF_ELIMIT;
    at = malloc(size);
    if (!at)
        return HF_ENOMEM;
    claim->bytes = at;
    claim->size = size;
    hf_conn_keep_bytes(conn, size);
    *kept = *command;
    kept->key.data = copy_bytes(&at, command->key.data, command->key.size);
    kept->value.data =
        copy_bytes(&at, command->value.data, command->value.size);
    kept->expected.data =
        copy_bytes(&at, command->expected.data, command->expected.size);
    kept->note.data = copy_bytes(&at, command->note.data, command->note.size);
    return HF_OK;
}

/* ---- The end of a command -----------------------------------------------*/

/* End the command, after the caller has written the reply. */
static void finish_plain_claim(struct hf_conn_claim *claim)
{
    struct hf_conn *conn = claim->conn;

    claim->state = CLAIM_IDLE;
    claim->is_due = false;
    /* A client may be silent while it waits: count its idle time from here. */
    conn->serve.active_at = hf_conn_now(conn);
    hf_heap_drop(&conn->clients->waits, &claim->timer);
    drop_command(claim);
    hf_serve_conn_resume(&conn->serve);
}

void hf_conn_claim_fail(struct hf_conn_claim *claim, enum hf_err err,
                        const char *text)
{
    hf_serve_reply_error(&claim->conn->serve, err, text);
    finish_plain_claim(claim);
}

/* The claim may hold the key. The reply contains the nonce, because the client
 * needs it to cancel the claim and may not have chosen it. */
static void fail_in_doubt(struct hf_conn_claim *claim)
{
    static const char start[] = "the answer was lost; CANCEL this nonce: ";
    char text[sizeof(start) + 2 * sizeof(struct hf_nonce)];

    memcpy(text, start, sizeof(start));
    hf_hex_encode(text + sizeof(start) - 1, claim->command.nonce.bytes,
                  sizeof(claim->command.nonce.bytes));
    hf_conn_claim_fail(claim, HF_EINDOUBT, text);
}

static void fail_outcome(struct hf_conn_claim *claim,
                         const struct hf_node_outcome *outcome)
{
    struct hf_conn *conn = claim->conn;

    if (outcome->err == HF_EINDOUBT && claim->command.kind == HF_COMMAND_LOCK) {
        fail_in_doubt(claim);
        return;
    }
    if (!outcome->no_space) {
        hf_conn_claim_fail(claim, outcome->err, hf_op_error_text(outcome));
        return;
    }
    hf_serve_conn_count_error(&conn->serve, outcome->err);
    hf_resp_write_error(&conn->serve.output, HF_CODE_NOSPACE,
                        hf_op_error_text(outcome));
    hf_serve_conn_wrote(&conn->serve);
    finish_plain_claim(claim);
}

static void reply_grant(struct hf_conn_claim *claim, uint64_t token,
                        int64_t age_ms)
{
    struct hf_buf *output = &claim->conn->serve.output;
    char digits[2 * sizeof(struct hf_nonce) + 1];

    hf_hex_encode(digits, claim->command.nonce.bytes,
                  sizeof(claim->command.nonce.bytes));
    hf_resp_write_array(output, 3);
    hf_resp_write_text(output, digits);
    hf_resp_write_integer(output, (int64_t)token);
    hf_resp_write_integer(output, age_ms > 0 ? age_ms : 0);
    hf_serve_conn_wrote(&claim->conn->serve);
    finish_plain_claim(claim);
}

/* ---- Steps --------------------------------------------------------------*/

void hf_conn_claim_set_due(struct hf_conn_claim *claim, enum claim_state state)
{
    claim->state = state;
    claim->is_due = true;
    hf_heap_drop(&claim->conn->clients->waits, &claim->timer);
    hf_serve_conn_set_ready(&claim->conn->serve);
}

/* If the age is unknown, the lease may have started at any time since the LOCK.
 * After a RENEW, it counts from the RENEW. */
void hf_conn_claim_take_grant(struct hf_conn_claim *claim, uint64_t token,
                              int64_t age_ms)
{
    if (age_ms >= 0) {
        reply_grant(claim, token, age_ms);
        return;
    }
    claim->token = token;
    hf_conn_claim_set_due(claim, CLAIM_RENEWING);
}

/* The text of a LOCK that the table has refused with `err`. */
static const char *lock_error_text(const struct hf_conn_claim *claim,
                                   enum hf_err err)
{
    const struct hf_table *table = &hf_conn_store(claim->conn)->table;

    if (err != HF_ELIMIT)
        return hf_err_text(err);
    return claim->command.queue && table->holds.count < HF_HOLDS_MAX
               ? "too many waiters for this key, or of this session"
               : "the lock table has too many keys";
}

/* Without an age, this LOCK repeats another one that made the grant. The client
 * counts the lease from this LOCK, and the lease may have started long before
 * it. */
static void take_lock_grant(struct hf_conn_claim *claim, uint64_t token,
                            int64_t age_ms)
{
    claim->queued = hf_conn_now(claim->conn);
    claim->is_older = age_ms < 0;
    hf_conn_claim_take_grant(claim, token, age_ms);
}

static void finish_lock(struct hf_conn_claim *claim,
                        const struct hf_node_outcome *outcome)
{
    const struct hf_result *result = &outcome->result;

    if (result->err == HF_EBUSY && result->position > 0)
        hf_conn_wait_start(claim, outcome->index);
    else if (result->err == HF_EINDOUBT)
        fail_in_doubt(claim);
    else if (result->err)
        hf_conn_claim_fail(claim, result->err,
                           lock_error_text(claim, result->err));
    else
        take_lock_grant(claim, result->token, outcome->age_ms);
}

/* ---- Lost sessions ------------------------------------------------------*/

/* Returns true if the table has refused the command because its session is
 * closed: HF_EINDOUBT as the result, in contrast to HF_EINDOUBT as the error of
 * the outcome, has no other cause (core/table.h). */
static bool is_session_lost(const struct hf_node_outcome *outcome)
{
    return !outcome->err && outcome->result.err == HF_EINDOUBT;
}

/* The next OPEN has another secret, so that it cannot be confused with a late
 * copy of the OPEN of the closed session. */
void hf_conn_claim_forget_session(struct hf_conn *conn)
{
    hf_attachments_remove(conn->clients->opts.node, conn->session,
                          conn->serve.number);
    conn->session = 0;
    conn->highest = 0;
    conn->claim->secret = hf_clients_draw(conn->clients);
}

static void on_claim_command_done(struct hf_op *op,
                                  const struct hf_node_outcome *outcome)
{
    struct hf_conn_claim *claim = op->conn->claim;

    if (is_session_lost(outcome))
        hf_conn_claim_forget_session(op->conn);
    if (claim->state != CLAIM_RUNNING)
        return; /* a pushed grant has come before the outcome */
    if (outcome->err) {
        fail_outcome(claim, outcome);
    } else if (claim->command.kind == HF_COMMAND_LOCK) {
        finish_lock(claim, outcome);
    } else if (outcome->result.err) {
        hf_conn_claim_fail(claim, outcome->result.err, NULL);
    } else {
        hf_serve_reply_ok(&op->conn->serve);
        finish_plain_claim(claim);
    }
}

static void on_canceled(struct hf_op *op, const struct hf_node_outcome *outcome)
{
    struct hf_conn_claim *claim = op->conn->claim;

    if (is_session_lost(outcome)) {
        hf_conn_claim_forget_session(op->conn);
        hf_conn_claim_set_due(claim, CLAIM_CANCELING);
    } else if (outcome->err) {
        fail_in_doubt(claim);
    } else {
        hf_conn_claim_fail(claim, HF_ETIMEDOUT, NULL);
    }
}

/* The grant could not be renewed. A claim that has waited was granted after its
 * LOCK was sent, so with age 0 its lease is not overestimated. */
static void finish_unrenewed(struct hf_conn_claim *claim)
{
    if (claim->is_older)
        fail_in_doubt(claim);
    else
        reply_grant(claim, claim->token, 0);
}

static void on_renewed(struct hf_op *op, const struct hf_node_outcome *outcome)
{
    struct hf_conn_claim *claim = op->conn->claim;

    if (is_session_lost(outcome)) {
        hf_conn_claim_forget_session(op->conn);
        hf_conn_claim_set_due(claim, CLAIM_RENEWING);
    } else if (outcome->err) {
        finish_unrenewed(claim);
    } else if (outcome->result.err) {
        hf_conn_claim_fail(
            claim, outcome->result.err == HF_EFORCED ? HF_EFORCED : HF_EEXPIRED,
            NULL);
    } else {
        reply_grant(claim, claim->token, claim->renewed - claim->queued);
    }
}

/* The command of the current state cannot be submitted. `outcome` is that of
 * the OPEN, or has an error of this node as its result. `text` is the text of
 * the result. */
static void fail_step(struct hf_conn_claim *claim,
                      const struct hf_node_outcome *outcome, const char *text)
{
    struct hf_node_outcome unsent = *outcome;

    if (claim->state == CLAIM_CANCELING) {
        fail_in_doubt(claim);
    } else if (claim->state == CLAIM_RENEWING) {
        finish_unrenewed(claim);
    } else if (outcome->err == HF_OK) {
        hf_conn_claim_fail(claim, outcome->result.err, text);
    } else {
        /* The OPEN is in doubt, but the command was not sent. */
        if (unsent.err == HF_EINDOUBT)
            unsent.err = HF_EUNAVAIL;
        fail_outcome(claim, &unsent);
    }
}

static void on_claim_session_opened(struct hf_op *op,
                                    const struct hf_node_outcome *outcome)
{
    struct hf_conn *conn = op->conn;
    struct hf_node_outcome opened = *outcome;

    conn->claim->is_opening = false;
    if (!opened.err && !opened.result.err)
        opened.result.err =
            hf_attachments_add(conn->clients->opts.node, opened.result.session,
                               conn->serve.number);
    if (opened.err || opened.result.err) {
        fail_step(conn->claim, &opened, hf_op_open_text(opened.result.err));
        return;
    }
    conn->session = opened.result.session;
    hf_serve_conn_set_ready(&conn->serve);
}

static enum hf_err open_plain_session(struct hf_conn_claim *claim)
{
    static const char label[] = "plain client";
    const struct hf_command open = {
        .kind = HF_COMMAND_OPEN,
        .nonce = claim->secret,
        .note = {label, sizeof(label) - 1},
    };

    return hf_op_submit_command(claim->conn, &open, NULL,
                                on_claim_session_opened);
}

/* Submit a command with the next sequence number of the session. `command.done`
 * tells the cluster that no earlier result is needed any more, and `done` is
 * called with the outcome. */
static enum hf_err submit_numbered(struct hf_conn_claim *claim,
                                   struct hf_command command,
                                   hf_op_done_fn *done)
{
    struct hf_conn *conn = claim->conn;

    command.session = conn->session;
    command.sequence = ++conn->highest;
    command.done = command.sequence;
    return hf_op_submit_command(conn, &command, NULL, done);
}

static enum hf_err submit_step(struct hf_conn_claim *claim)
{
    struct hf_command command = {
        .key = claim->command.key,
        .nonce = claim->command.nonce,
    };

    switch (claim->state) {
    case CLAIM_RUNNING:
        return submit_numbered(claim, claim->command, on_claim_command_done);
    case CLAIM_CANCELING:
        command.kind = HF_COMMAND_CANCEL;
        return submit_numbered(claim, command, on_canceled);
    default:
        HF_ASSERT(claim->state == CLAIM_RENEWING);
        command.kind = HF_COMMAND_RENEW;
        command.token = claim->token;
        command.lease_ms = claim->command.lease_ms;
        claim->renewed = hf_conn_now(claim->conn);
        return submit_numbered(claim, command, on_renewed);
    }
}

void hf_conn_claim_on_ready(struct hf_conn *conn)
{
    struct hf_conn_claim *claim = conn->claim;
    enum hf_err err;

    if (!claim || !claim->is_due || claim->is_opening)
        return;
    claim->is_opening = conn->session == 0;
    claim->is_due = claim->is_opening;
    err = claim->is_opening ? open_plain_session(claim) : submit_step(claim);
    if (!err)
        return;
    claim->is_opening = false;
    fail_step(claim, &(struct hf_node_outcome){.result = {.err = err}},
              hf_op_refusal_text(err, HF_VERB_LOCK));
}

/* ---- For the connection -------------------------------------------------*/

void hf_conn_claim_start(struct hf_conn *conn, const struct hf_command *command,
                         uint32_t wait_ms)
{
    enum hf_err err = ensure_claim(conn);

    if (!err)
        err = keep_command(conn->claim, command);
    if (err) {
        hf_serve_reply_error(&conn->serve, err,
                             hf_op_refusal_text(err, HF_VERB_LOCK));
        return;
    }
    conn->claim->wait_ms = wait_ms;
    conn->claim->is_older = false;
    conn->claim->state = CLAIM_RUNNING;
    conn->claim->is_due = true;
    hf_conn_claim_on_ready(conn);
}

bool hf_conn_claim_is_busy(const struct hf_conn *conn)
{
    return conn->claim && conn->claim->state != CLAIM_IDLE;
}
