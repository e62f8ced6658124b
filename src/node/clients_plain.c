/* clients_plain.c - the commands of plain mode, as a person types them. */
#include "base/hex.h"
#include "node/clients_state.h"

/* ---- Replies ------------------------------------------------------------*/

void hf_conn_reply_error(struct hf_conn *conn, enum hf_err err,
                         const char *text)
{
    hf_code_write(&conn->output, err, text);
    hf_conn_wrote(conn);
}

void hf_conn_reply_ok(struct hf_conn *conn)
{
    hf_resp_write_simple(&conn->output, "OK");
    hf_conn_wrote(conn);
}

static void reply_bulk(struct hf_conn *conn, struct hf_bytes bytes)
{
    hf_resp_write_bulk(&conn->output, bytes.data, bytes.size);
    hf_conn_wrote(conn);
}

/* ---- Arguments ----------------------------------------------------------*/

/* The words after the name of the command that are not read yet. */
struct arguments {
    const struct hf_resp_value *words;
    size_t count;
    const char *cause; /* what is wrong with one of them; NULL: nothing */
};

/* Take the next word. The caller has checked that there is one. */
static const struct hf_resp_value *take_word(struct arguments *args)
{
    args->count--;
    return args->words++;
}

static uint64_t take_number(struct arguments *args, uint64_t max,
                            const char *cause)
{
    uint64_t number = 0;

    if (!hf_resp_number(take_word(args), max, &number))
        args->cause = cause;
    return number;
}

static void take_nonce(struct arguments *args, struct hf_nonce *nonce)
{
    if (!hf_resp_nonce(take_word(args), nonce))
        args->cause = "a nonce has 32 hexadecimal digits";
}

static struct hf_key take_key(struct arguments *args, bool is_prefix)
{
    struct hf_bytes bytes = hf_resp_bytes(take_word(args));

    if (bytes.size > HF_KEY_MAX || (bytes.size == 0 && !is_prefix))
        args->cause = "a key has 1 to 1024 bytes";
    return (struct hf_key){bytes.data, bytes.size};
}

/* Take a ttl and return its lease, which is a little longer, so that the lock
 * is valid for the ttl even if the rate of each clock is off by 1 %. */
static uint32_t take_lease(struct arguments *args)
{
    uint64_t ttl_ms = take_number(args, (uint64_t)HF_TTL_MAX_MS,
                                  "a ttl has 1 to 604800000 ms");

    if (ttl_ms < HF_TTL_MIN_MS)
        args->cause = "a ttl has 1 to 604800000 ms";
    return (uint32_t)(ttl_ms + ttl_ms / 16 + 50);
}

/* Take the next word, if it is `name` and at least `more` words follow it. */
static bool take_option(struct arguments *args, const char *name, size_t more)
{
    if (args->count < 1 + more || !hf_resp_equals(args->words, name))
        return false;
    (void)take_word(args);
    return true;
}

/* ---- Commands on locks --------------------------------------------------*/

static uint32_t take_lock_options(struct arguments *args,
                                  struct hf_command *command)
{
    uint32_t wait_ms = 0;

    while (args->count > 0 && !args->cause) {
        if (take_option(args, "WAIT", 1))
            wait_ms = (uint32_t)take_number(args, UINT32_MAX,
                                            "WAIT needs a number of ms");
        else if (take_option(args, "NONCE", 1))
            take_nonce(args, &command->nonce);
        else if (take_option(args, "VALUE", 1))
            command->value = hf_resp_bytes(take_word(args));
        else if (take_option(args, "NOTE", 1))
            command->note = hf_resp_bytes(take_word(args));
        else
            args->cause = "options of LOCK: WAIT, NONCE, VALUE, NOTE";
    }
    return wait_ms;
}

/* Take the arguments of a LOCK. Returns how long it waits, in ms. */
static uint32_t take_lock_words(struct hf_conn *conn, struct arguments *args,
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

static void take_update_options(struct arguments *args,
                                struct hf_command *command)
{
    if (take_option(args, "IF", 1)) {
        command->has_expected = true;
        command->expected = hf_resp_bytes(take_word(args));
    }
    if (args->count > 0)
        args->cause = "UPDATE key nonce token value [IF expected]";
}

static uint64_t take_token(struct arguments *args)
{
    return take_number(args, UINT64_MAX, "a token is a number");
}

static void take_pushed_grant(struct arguments *args,
                              struct hf_command *command)
{
    take_nonce(args, &command->nonce);
    command->token = take_token(args);
}

static uint32_t take_command(struct hf_conn *conn, enum hf_verb verb,
                             struct arguments *args, struct hf_command *command)
{
    command->key = take_key(args, false);
    switch (verb) {
    case HF_VERB_LOCK:
        return take_lock_words(conn, args, command);
    case HF_VERB_UNLOCK:
        command->kind = HF_COMMAND_UNLOCK;
        take_pushed_grant(args, command);
        break;
    case HF_VERB_RENEW:
        command->kind = HF_COMMAND_RENEW;
        take_pushed_grant(args, command);
        command->lease_ms = take_lease(args);
        break;
    case HF_VERB_UPDATE:
        command->kind = HF_COMMAND_UPDATE;
        take_pushed_grant(args, command);
        command->value = hf_resp_bytes(take_word(args));
        take_update_options(args, command);
        break;
    case HF_VERB_CANCEL:
        command->kind = HF_COMMAND_CANCEL;
        take_nonce(args, &command->nonce);
        break;
    default:
        command->kind = HF_COMMAND_FORCE;
        command->token = take_token(args);
        command->now = take_option(args, "NOW", 0);
        if (args->count > 0)
            args->cause = "FORCE key token [NOW]";
    }
    return 0;
}

static void start_plain_command(struct hf_conn *conn, enum hf_verb verb,
                                struct arguments *args)
{
    struct hf_command command = {.session = 1, .sequence = 1, .done = 1};
    uint32_t wait_ms = take_command(conn, verb, args, &command);

    if (!args->cause && !hf_command_is_valid(&command))
        args->cause = "a value has at most 65536 bytes, a note 255";
    if (args->cause)
        hf_conn_reply_error(conn, HF_EINVAL, args->cause);
    else
        hf_conn_claim_start(conn, &command, wait_ms);
}

/* ---- Reads --------------------------------------------------------------*/

static void on_plain_read_confirmed(struct hf_op *op,
                                    const struct hf_node_outcome *outcome)
{
    if (outcome->err)
        hf_conn_reply_error(op->conn, outcome->err, hf_op_error_text(outcome));
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
        hf_conn_reply_error(conn, err, NULL);
}

static void take_list_options(struct arguments *args,
                              struct hf_mux_request *request)
{
    HF_LIST_COUNT(request) = HF_LIST_PAGE_KEYS;
    if (args->count % 2 == 1)
        request->key = take_key(args, true);
    while (args->count > 0 && !args->cause) {
        if (take_option(args, "AFTER", 1))
            HF_LIST_AFTER(request) =
                take_number(args, UINT64_MAX, "AFTER needs a cursor");
        else if (take_option(args, "COUNT", 1))
            HF_LIST_COUNT(request) = (uint32_t)take_number(
                args, HF_LIST_PAGE_KEYS, "COUNT needs a number up to 500");
        else
            args->cause = "LIST [prefix] [AFTER cursor] [COUNT n]";
    }
    if (HF_LIST_COUNT(request) == 0)
        args->cause = "COUNT needs a number up to 500";
}

static void start_plain_read(struct hf_conn *conn, enum hf_verb verb,
                             struct arguments *args)
{
    struct hf_mux_request request = {.verb = verb, .linearizable = true};

    if (verb == HF_VERB_LIST) {
        take_list_options(args, &request);
    } else {
        request.key = take_key(args, false);
        if (verb == HF_VERB_LOOKUP)
            take_nonce(args, &request.secret);
        else
            request.linearizable = !take_option(args, "LOCAL", 0);
        if (args->count > 0)
            args->cause = "READ key [LOCAL]";
    }
    if (args->cause)
        hf_conn_reply_error(conn, HF_EINVAL, args->cause);
    else if (request.linearizable)
        confirm_read(conn, &request);
    else
        hf_conn_read_reply(conn, &request);
}

static void start_watch(struct hf_conn *conn, struct arguments *args)
{
    struct hf_mux_request request = {.verb = HF_VERB_WATCH};
    enum hf_err err;

    request.key = take_key(args, true);
    if (take_option(args, "FROM", 1))
        request.from = take_number(args, UINT64_MAX, "FROM needs an index");
    if (args->count > 0)
        args->cause = "WATCH prefix [FROM index]";
    if (args->cause) {
        hf_conn_reply_error(conn, HF_EINVAL, args->cause);
        return;
    }
    err = hf_conn_watch_add(conn, &request);
    if (err) {
        hf_conn_reply_error(conn, err, NULL);
        return;
    }
    hf_resp_write_integer(&conn->output,
                          (int64_t)hf_conn_store(conn)->table.index);
    hf_conn_wrote(conn);
}

/* ---- Other commands -----------------------------------------------------*/

static void say_hello(struct hf_conn *conn, struct arguments *args)
{
    uint64_t version = take_number(args, UINT64_MAX, "HELLO 1 [MUX]");
    bool is_mux = take_option(args, "MUX", 0);

    if (args->cause || args->count > 0) {
        hf_conn_reply_error(conn, HF_EINVAL, "HELLO 1 [MUX]");
    } else if (version != HF_PROTOCOL_VERSION) {
        hf_conn_reply_error(conn, HF_EUNSUPPORTED,
                            "this node has version 1 of the protocol only");
    } else if (is_mux && conn->session != 0) {
        hf_conn_reply_error(conn, HF_ESTATE,
                            "HELLO 1 MUX is for a new connection");
    } else {
        hf_report_hello(conn->clients, &conn->output);
        hf_conn_wrote(conn);
        conn->is_mux = is_mux;
        conn->clients->mux_count += is_mux;
    }
}

static void reply_text(struct hf_conn *conn, enum hf_verb verb)
{
    struct hf_buf *scratch = hf_clients_scratch(conn->clients);

    if (verb == HF_VERB_INFO)
        hf_report_info(conn->clients, scratch);
    else
        hf_report_status(conn->clients, scratch);
    if (scratch->failed)
        hf_conn_reply_error(conn, HF_ENOMEM, NULL);
    else
        reply_bulk(conn, (struct hf_bytes){scratch->data, scratch->size});
}

static void reply_ping(struct hf_conn *conn, struct arguments *args)
{
    if (args->count > 0) {
        reply_bulk(conn, hf_resp_bytes(take_word(args)));
        return;
    }
    hf_resp_write_simple(&conn->output, "PONG");
    hf_conn_wrote(conn);
}

static void execute_plain(struct hf_conn *conn, enum hf_verb verb,
                          struct arguments *args)
{
    switch (verb) {
    case HF_VERB_PING:
    case HF_VERB_ECHO:
        reply_ping(conn, args);
        break;
    case HF_VERB_QUIT:
        hf_conn_reply_ok(conn);
        hf_conn_close(conn);
        break;
    case HF_VERB_COMMAND: /* redis-cli sends it first */
        hf_resp_write_array(&conn->output, 0);
        hf_conn_wrote(conn);
        break;
    case HF_VERB_HELLO:
        say_hello(conn, args);
        break;
    case HF_VERB_INFO:
    case HF_VERB_STATUS:
        reply_text(conn, verb);
        break;
    case HF_VERB_READ:
    case HF_VERB_LIST:
    case HF_VERB_LOOKUP:
        start_plain_read(conn, verb, args);
        break;
    case HF_VERB_WATCH:
        start_watch(conn, args);
        break;
    case HF_VERB_UNWATCH:
        hf_conn_watch_remove_all(conn);
        hf_conn_reply_ok(conn);
        break;
    default:
        start_plain_command(conn, verb, args);
    }
}

/* While a connection streams events, it executes almost nothing else, because
 * replies would be hidden among the events. */
static bool may_execute(const struct hf_conn *conn, enum hf_verb verb)
{
    return conn->watch_count == 0 || verb == HF_VERB_UNWATCH ||
           verb == HF_VERB_PING || verb == HF_VERB_QUIT;
}

void hf_conn_handle_plain(struct hf_conn *conn,
                          const struct hf_resp_message *message)
{
    enum hf_verb verb = hf_verb_find(&message->values[0]);
    struct arguments args = {message->values + 1, message->count - 1, NULL};
    struct hf_verb_words words = {-1, -1};

    if (verb != HF_VERB_COUNT)
        words = hf_verb_words(verb, false);
    if (words.min < 0) {
        hf_conn_reply_error(conn, HF_EPROTO, "unknown command");
        /* A web page can make a browser send an HTTP request to a local port.
         * Its first line is an unknown command: close the connection, so that
         * nothing in its body is executed. */
        if (message->is_inline)
            hf_conn_close(conn);
    } else if (args.count < (size_t)words.min ||
               args.count > (size_t)words.max) {
        hf_conn_reply_error(conn, HF_EINVAL, "wrong number of arguments");
    } else if (!may_execute(conn, verb)) {
        hf_conn_reply_error(conn, HF_ESTATE, "UNWATCH first");
    } else {
        execute_plain(conn, verb, &args);
    }
}
