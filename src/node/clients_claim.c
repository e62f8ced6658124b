/* clients_claim.c - a command of a plain client on a lock.
 *
 *             OPEN          command        queued
 *     IDLE --------> OPENING -----> RUNNING ------> WAITING
 *       ^               |            |  ^            |  |  | time is up
 *       |     failed    |   answered |  | command    |  |  v
 *       +---------------+------------+  |    granted |  |  CANCELING
 *       |                               |            |  |      |
 *       +-------------------------------|------------+  |      |
 *       |                               |   no age      v      |
 *       +-------------------------------|---------- RENEWING   |
 *       +-------------------------------|----------------------+
 *
 * The node does for a plain client what the library does for a program: it has
 * a session, numbers commands, withdraws a claim whose wait is over, and renews
 * a grant if it is unknown when the lease started. One command runs at a time.
 * hf_conn_claim_on_ready() submits the command of the current state. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/hex.h"
#include "node/clients_state.h"

#define RECHECK_MS 5000 /* pause between checks for a lost push */

enum claim_state {
    CLAIM_IDLE,
    CLAIM_OPENING,
    CLAIM_RUNNING,
    CLAIM_WAITING,
    CLAIM_CANCELING,
    CLAIM_RENEWING,
};

struct hf_conn_claim {
    struct hf_conn *conn;
    enum claim_state state;
    bool is_due; /* the command of this state is to be submitted */
    struct hf_heap_link timer;
    struct hf_nonce secret;    /* of the session */
    struct hf_command command; /* pointers point to `bytes` */
    uint8_t *bytes;
    uint32_t wait_ms;
    hf_time queued;     /* when the node learned that the claim waits, or that
                           it was granted after a wait */
    hf_time wait_until; /* when the claim is withdrawn */
    hf_time renewed;    /* when the RENEW was submitted */
    uint64_t token;     /* of the grant to renew */
};

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

void hf_conn_claim_free(struct hf_conn *conn)
{
    struct hf_clients *clients = conn->clients;

    if (!conn->claim)
        return;
    hf_heap_drop(&clients->waits, &conn->claim->timer);
    clients->wait_count--;
    free(conn->claim->bytes);
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

static enum hf_err keep_command(struct hf_conn_claim *claim,
                                const struct hf_command *command)
{
    struct hf_command *kept = &claim->command;
    uint8_t *at = malloc(command->key.size + command->value.size +
                         command->expected.size + command->note.size);

    if (!at)
        return HF_ENOMEM;
    HF_ASSERT(!claim->bytes);
    claim->bytes = at;
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
    hf_heap_drop(&conn->clients->waits, &claim->timer);
    free(claim->bytes);
    claim->bytes = NULL;
    if (conn->reader.size > 0 || conn->is_paused)
        hf_conn_set_ready(conn);
}

static void fail_claim(struct hf_conn_claim *claim, enum hf_err err,
                       const char *text)
{
    hf_conn_reply_error(claim->conn, err, text);
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
    fail_claim(claim, HF_EINDOUBT, text);
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
        fail_claim(claim, outcome->err, hf_op_error_text(outcome));
        return;
    }
    hf_resp_write_error(&conn->output, HF_CODE_NOSPACE,
                        hf_op_error_text(outcome));
    hf_conn_wrote(conn);
    finish_plain_claim(claim);
}

static void reply_grant(struct hf_conn_claim *claim, uint64_t token,
                        int64_t age_ms)
{
    struct hf_buf *output = &claim->conn->output;
    char digits[2 * sizeof(struct hf_nonce) + 1];

    hf_hex_encode(digits, claim->command.nonce.bytes,
                  sizeof(claim->command.nonce.bytes));
    hf_resp_write_array(output, 3);
    hf_resp_write_text(output, digits);
    hf_resp_write_integer(output, (int64_t)token);
    hf_resp_write_integer(output, age_ms > 0 ? age_ms : 0);
    hf_conn_wrote(claim->conn);
    finish_plain_claim(claim);
}

/* ---- Steps --------------------------------------------------------------*/

/* Submit the command of `state` in this turn or the next. */
static void set_due(struct hf_conn_claim *claim, enum claim_state state)
{
    claim->state = state;
    claim->is_due = true;
    hf_heap_drop(&claim->conn->clients->waits, &claim->timer);
    hf_conn_set_ready(claim->conn);
}

static void set_recheck(struct hf_conn_claim *claim)
{
    hf_time recheck = hf_conn_now(claim->conn) + RECHECK_MS;
    hf_time at = claim->wait_until < recheck ? claim->wait_until : recheck;

    hf_heap_set(&claim->conn->clients->waits, &claim->timer, at);
}

static void start_waiting(struct hf_conn_claim *claim)
{
    claim->state = CLAIM_WAITING;
    claim->queued = hf_conn_now(claim->conn);
    claim->wait_until = hf_time_add(claim->queued, claim->wait_ms);
    set_recheck(claim);
}

/* The claim holds the key. If the age is unknown, the lease may have started at
 * any time since the LOCK, so renew it: then the lease counts from the
 * RENEW. */
static void take_claim_grant(struct hf_conn_claim *claim, uint64_t token,
                             int64_t age_ms)
{
    if (age_ms >= 0) {
        reply_grant(claim, token, age_ms);
        return;
    }
    claim->token = token;
    set_due(claim, CLAIM_RENEWING);
}

static void finish_lock(struct hf_conn_claim *claim,
                        const struct hf_node_outcome *outcome)
{
    const struct hf_result *result = &outcome->result;

    if (result->err == HF_EBUSY && result->position > 0)
        start_waiting(claim);
    else if (result->err)
        fail_claim(claim, result->err, NULL);
    else
        /* Without an age, the LOCK was granted at once, or its reply was lost
         * and the LOCK repeated. Age 0 is safe in both cases: the client then
         * assumes that the lease started when it sent the LOCK. */
        reply_grant(claim, result->token, outcome->age_ms);
}

/* The table does not know the session: this node was cut off for long, and the
 * leader has closed the session. The next command opens another one. */
static void forget_session(struct hf_conn *conn)
{
    hf_attachments_remove(conn->clients->opts.node, conn->session, conn->number);
    conn->session = 0;
    conn->highest = 0;
    conn->claim->secret = hf_clients_draw(conn->clients);
}

static bool is_session_lost(const struct hf_node_outcome *outcome)
{
    return !outcome->err && outcome->result.err == HF_EINDOUBT;
}

static void on_claim_command_done(struct hf_op *op,
                                  const struct hf_node_outcome *outcome)
{
    struct hf_conn_claim *claim = op->conn->claim;

    if (is_session_lost(outcome))
        forget_session(op->conn);
    if (claim->state != CLAIM_RUNNING)
        return; /* a pushed grant has come before the outcome */
    if (outcome->err) {
        fail_outcome(claim, outcome);
    } else if (claim->command.kind == HF_COMMAND_LOCK) {
        finish_lock(claim, outcome);
    } else if (outcome->result.err) {
        fail_claim(claim, outcome->result.err, NULL);
    } else {
        hf_conn_reply_ok(op->conn);
        finish_plain_claim(claim);
    }
}

static void on_canceled(struct hf_op *op, const struct hf_node_outcome *outcome)
{
    struct hf_conn_claim *claim = op->conn->claim;

    if (is_session_lost(outcome))
        forget_session(op->conn);
    if (outcome->err || outcome->result.err == HF_EINDOUBT)
        fail_in_doubt(claim);
    else
        fail_claim(claim, HF_ETIMEDOUT, NULL);
}

static void on_renewed(struct hf_op *op, const struct hf_node_outcome *outcome)
{
    struct hf_conn_claim *claim = op->conn->claim;

    if (!outcome->err && outcome->result.err)
        fail_claim(claim, HF_EEXPIRED, NULL);
    else
        reply_grant(claim, claim->token,
                    outcome->err ? 0 : claim->renewed - claim->queued);
}

static void on_claim_session_opened(struct hf_op *op,
                                    const struct hf_node_outcome *outcome)
{
    struct hf_conn *conn = op->conn;
    struct hf_conn_claim *claim = conn->claim;
    enum hf_err err;

    if (outcome->err) {
        fail_outcome(claim, outcome);
        return;
    }
    err = outcome->result.err;
    if (!err)
        err = hf_attachments_add(conn->clients->opts.node, outcome->result.session,
                             conn->number);
    if (err) {
        fail_claim(claim, err, NULL);
        return;
    }
    conn->session = outcome->result.session;
    set_due(claim, CLAIM_RUNNING);
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
    case CLAIM_OPENING:
        return open_plain_session(claim);
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

    if (!claim || !claim->is_due)
        return;
    claim->is_due = false;
    err = submit_step(claim);
    if (!err)
        return;
    if (claim->state == CLAIM_CANCELING)
        fail_in_doubt(claim);
    else if (claim->state == CLAIM_RENEWING)
        reply_grant(claim, claim->token, 0);
    else
        fail_claim(claim, err, NULL);
}

/* ---- For the connection -------------------------------------------------*/

void hf_conn_claim_start(struct hf_conn *conn, const struct hf_command *command,
                         uint32_t wait_ms)
{
    enum hf_err err = ensure_claim(conn);

    if (!err)
        err = keep_command(conn->claim, command);
    if (err) {
        hf_conn_reply_error(conn, err, NULL);
        return;
    }
    conn->claim->wait_ms = wait_ms;
    conn->claim->state = conn->session ? CLAIM_RUNNING : CLAIM_OPENING;
    conn->claim->is_due = true;
    hf_conn_claim_on_ready(conn);
}

bool hf_conn_claim_is_busy(const struct hf_conn *conn)
{
    return conn->claim && conn->claim->state != CLAIM_IDLE;
}

bool hf_conn_claim_is_waiting(const struct hf_conn *conn)
{
    return conn->claim && conn->claim->state == CLAIM_WAITING;
}

static bool may_be_granted(const struct hf_conn_claim *claim)
{
    return claim && (claim->state == CLAIM_WAITING ||
                     (claim->state == CLAIM_RUNNING && !claim->is_due &&
                      claim->command.kind == HF_COMMAND_LOCK));
}

void hf_conn_claim_on_grant(struct hf_conn *conn,
                            const struct hf_node_grant *grant)
{
    struct hf_conn_claim *claim = conn->claim;

    if (!may_be_granted(claim) ||
        !hf_nonce_equal(&claim->command.nonce, &grant->nonce))
        return;
    if (claim->state == CLAIM_RUNNING)
        claim->queued = hf_conn_now(conn);
    take_claim_grant(claim, grant->token, grant->age_ms);
}

/* The push of the grant may have been lost, but sooner or later this node's
 * table shows the grant. */
static void recheck_claim(struct hf_conn_claim *claim)
{
    struct hf_lookup found =
        hf_table_lookup(&hf_conn_store(claim->conn)->table, claim->command.key,
                        &claim->command.nonce);

    if (found.state == HF_LOOKUP_HELD)
        take_claim_grant(claim, found.token, HF_MUX_AGE_UNKNOWN);
    else if (hf_conn_now(claim->conn) >= claim->wait_until)
        set_due(claim, CLAIM_CANCELING);
    else
        set_recheck(claim);
}

void hf_conn_claim_on_timers(struct hf_clients *clients)
{
    hf_time now = hf_clients_now(clients->opts.node);

    while (hf_heap_top_key(&clients->waits) <= now)
        recheck_claim(HF_CONTAINER(hf_heap_top(&clients->waits),
                                   struct hf_conn_claim, timer));
}
