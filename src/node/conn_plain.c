/* conn_plain.c - the commands of plain mode, as a person types them. */
#include "node/clients_state.h"

/* ---- Commands on locks --------------------------------------------------*/

/* Take a ttl and return its lease, which is a little longer, so that the lock
 * is valid for the ttl even if the rate of each clock is off by 1 %. */
static uint32_t take_lease(struct hf_arguments *args)
{
    uint64_t ttl_ms = hf_arguments_number(args, (uint64_t)HF_TTL_MAX_MS,
                                          "a ttl has 1 to 604800000 ms");

    if (ttl_ms < HF_TTL_MIN_MS)
        args->cause = "a ttl has 1 to 604800000 ms";
    return (uint32_t)(ttl_ms + ttl_ms / 16 + 50);
}

static uint32_t take_lock_options(struct hf_arguments *args,
                                  struct hf_command *command)
{
    uint32_t wait_ms = 0;

    while (args->count > 0 && !args->cause) {
        if (hf_arguments_option(args, "WAIT", 1))
            wait_ms = (uint32_t)hf_arguments_number(
                args, UINT32_MAX, "WAIT needs a number of ms");
        else if (hf_arguments_option(args, "NONCE", 1))
            hf_arguments_nonce(args, &command->nonce);
        else if (hf_arguments_option(args, "VALUE", 1))
            command->value = hf_resp_bytes(hf_arguments_word(args));
        else if (hf_arguments_option(args, "NOTE", 1))
            command->note = hf_resp_bytes(hf_arguments_word(args));
        else
            args->cause = "options of LOCK: WAIT, NONCE, VALUE, NOTE";
    }
    return wait_ms;
}

/* Take the arguments of a LOCK. Returns how long it waits, in ms. */
static uint32_t take_lock_words(struct hf_conn *conn, struct hf_arguments *args,
                                struct hf_command *command)
{
    uint32_t wait_ms;

    command->kind = HF_COMMAND_LOCK;
    command->lease_ms = take_lease(args);
    command->nonce = hf_clients_draw(conn->clients);
    wait_ms = take_lock_options(args, command);
    command->queue = wait_ms > 0;
    return wait_ms;
}

static void take_update_options(struct hf_arguments *args,
                                struct hf_command *command)
{
    if (hf_arguments_option(args, "IF", 1)) {
        command->has_expected = true;
        command->expected = hf_resp_bytes(hf_arguments_word(args));
    }
    if (args->count > 0)
        args->cause = "UPDATE key nonce token value [IF expected]";
}

static uint64_t take_token(struct hf_arguments *args)
{
    return hf_arguments_number(args, UINT64_MAX, "a token is a number");
}

static void take_grant_words(struct hf_arguments *args,
                             struct hf_command *command)
{
    hf_arguments_nonce(args, &command->nonce);
    command->token = take_token(args);
}

static uint32_t take_command(struct hf_conn *conn, enum hf_verb verb,
                             struct hf_arguments *args,
                             struct hf_command *command)
{
    command->key = hf_arguments_key(args, false);
    switch (verb) {
    case HF_VERB_LOCK:
        return take_lock_words(conn, args, command);
    case HF_VERB_UNLOCK:
        command->kind = HF_COMMAND_UNLOCK;
        take_grant_words(args, command);
        break;
    case HF_VERB_RENEW:
        command->kind = HF_COMMAND_RENEW;
        take_grant_words(args, command);
        command->lease_ms = take_lease(args);
        break;
    case HF_VERB_UPDATE:
        command->kind = HF_COMMAND_UPDATE;
        take_grant_words(args, command);
        command->value = hf_resp_bytes(hf_arguments_word(args));
        take_update_options(args, command);
        break;
    case HF_VERB_CANCEL:
        command->kind = HF_COMMAND_CANCEL;
        hf_arguments_nonce(args, &command->nonce);
        break;
    default:
        command->kind = HF_COMMAND_FORCE;
        command->token = take_token(args);
        command->now = hf_arguments_option(args, "NOW", 0);
        if (args->count > 0)
            args->cause = "FORCE key token [NOW]";
    }
    return 0;
}

static void start_plain_command(struct hf_conn *conn, enum hf_verb verb,
                                struct hf_arguments *args)
{
    struct hf_command command = {.session = 1, .sequence = 1, .done = 1};
    uint32_t wait_ms = take_command(conn, verb, args, &command);

    if (!args->cause && !hf_command_is_valid(&command))
        args->cause = "a value has at most 65536 bytes, a note 255";
    if (args->cause)
        hf_serve_reply_error(&conn->serve, HF_EINVAL, args->cause);
    else
        hf_conn_claim_start(conn, &command, wait_ms);
}

/* ---- Reads --------------------------------------------------------------*/

static void on_plain_read_confirmed(struct hf_op *op,
                                    const struct hf_node_outcome *outcome)
{
    if (outcome->err)
        hf_serve_reply_error(&op->conn->serve, outcome->err,
                             hf_op_error_text(outcome));
    else
        hf_conn_read_confirmed(op);
}

static void confirm_read(struct hf_conn *conn,
                         const struct hf_mux_request *request)
{
    struct hf_op *op;
    enum hf_err err = hf_op_new_read(conn, request, &op);

    if (!err)
        err = hf_op_submit(op, HF_NODE_READ_INDEX, HF_CLIENT_TIMEOUT_MS,
                           on_plain_read_confirmed);
    if (err)
        hf_serve_reply_error(&conn->serve, err,
                             hf_op_refusal_text(err, HF_VERB_READ));
}

static void take_lookup_words(struct hf_arguments *args,
                              struct hf_mux_request *request)
{
    request->key = hf_arguments_key(args, false);
    hf_arguments_nonce(args, &request->secret);
    if (args->count > 0)
        args->cause = "LOOKUP key nonce";
}

static void start_plain_read(struct hf_conn *conn, enum hf_verb verb,
                             struct hf_arguments *args)
{
    struct hf_mux_request request = {.verb = verb, .linearizable = true};

    if (verb == HF_VERB_LIST)
        hf_arguments_list(args, &request);
    else if (verb == HF_VERB_LOOKUP)
        take_lookup_words(args, &request);
    else
        hf_arguments_read(args, &request);
    if (args->cause)
        hf_serve_reply_error(&conn->serve, HF_EINVAL, args->cause);
    else if (request.linearizable)
        confirm_read(conn, &request);
    else
        hf_conn_read_reply(conn, &request);
}

static void start_watch(struct hf_conn *conn, struct hf_arguments *args)
{
    struct hf_mux_request request = {.verb = HF_VERB_WATCH};
    enum hf_err err;

    hf_arguments_watch(args, &request);
    if (args->cause) {
        hf_serve_reply_error(&conn->serve, HF_EINVAL, args->cause);
        return;
    }
    err = hf_conn_watch(conn, &request);
    if (err)
        hf_serve_reply_error(&conn->serve, err,
                             hf_op_refusal_text(err, HF_VERB_WATCH));
}

/* ---- Connections --------------------------------------------------------*/

/* A leader that has too many clients sends the next ones to the other nodes,
 * which forward their commands. The connections that are left are for plain
 * clients, such as redis-cli, which cannot be sent to another node. */
static bool is_sent_away(const struct hf_conn *conn)
{
    const struct hf_server *server = conn->serve.server;
    struct hf_node_status status;

    if (server->count <= HF_CLIENTS_FULL(server->opts.max))
        return false;
    hf_node_status(conn->clients->opts.node, &status);
    return status.role == HF_NODE_LEADER && status.member_count > 1;
}

static void send_away(struct hf_conn *conn)
{
    const struct hf_mux_push push = {.kind = HF_MUX_PUSH_FULL};

    conn->clients->server.counters.connections_refused++;
    hf_serve_reply_push(&conn->serve, &push);
    hf_serve_conn_close(&conn->serve);
}

bool hf_conn_accept_mux(struct hf_serve_conn *serve)
{
    struct hf_conn *conn = hf_conn_of(serve);

    if (conn->session != 0) {
        hf_serve_reply_error(serve, HF_ESTATE,
                             "HELLO 1 MUX is for a new connection");
        return false;
    }
    if (is_sent_away(conn)) {
        send_away(conn);
        return false;
    }
    return true;
}

void hf_conn_execute_plain(struct hf_serve_conn *serve, enum hf_verb verb,
                           struct hf_arguments *args)
{
    struct hf_conn *conn = hf_conn_of(serve);

    switch (verb) {
    case HF_VERB_READ:
    case HF_VERB_LIST:
    case HF_VERB_LOOKUP:
        start_plain_read(conn, verb, args);
        break;
    case HF_VERB_WATCH:
        start_watch(conn, args);
        break;
    case HF_VERB_UNWATCH:
        hf_serve_watch_remove_all(serve);
        hf_serve_reply_ok(serve);
        break;
    case HF_VERB_DEBUG:
        hf_serve_reply_error(serve, HF_EUNSUPPORTED,
                             "DEBUG is for masters of quorum:; see INFO");
        break;
    default:
        start_plain_command(conn, verb, args);
    }
}
