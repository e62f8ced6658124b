#include "strategy/raft/connection.h"

#include <stdio.h>

#include "base/assert.h"
#include "strategy/raft/raft.h"

#define PING_MS 500        /* silence before a PING, if something is awaited */
#define SILENCE_MS 1500    /* silence before the node is given up */
#define IDLE_PING_MS 10000 /* silence before a PING, if nothing is awaited */
#define ATTACH_MS 3000     /* how long a node may take to attach the session */
#define LATE_MS 500     /* if a timer is this late, the process was stopped */
#define KEEP_SIZE 65536 /* a larger buffer is freed once it is written */

static void enter_state(struct hf_raft_connection *connection,
                        enum hf_raft_state to)
{
    static const bool allowed[][5] = {
        [HF_RAFT_DOWN] = {[HF_RAFT_CONNECTING] = true},
        [HF_RAFT_CONNECTING] =
            {[HF_RAFT_DOWN] = true, [HF_RAFT_GREETING] = true},
        [HF_RAFT_GREETING] = {[HF_RAFT_DOWN] = true, [HF_RAFT_READY] = true},
        [HF_RAFT_READY] = {[HF_RAFT_DOWN] = true, [HF_RAFT_UP] = true},
        [HF_RAFT_UP] = {[HF_RAFT_DOWN] = true},
    };

    HF_ASSERT(allowed[connection->state][to]);
    connection->state = to;
    connection->since = hf_raft_now(connection->raft);
}

/* ---- Writing ------------------------------------------------------------*/

static void drop_output(struct hf_raft_connection *connection)
{
    connection->output.size = 0;
    connection->output.failed = false;
    if (connection->output.capacity > KEEP_SIZE)
        hf_buf_fini(&connection->output);
}

void hf_raft_connection_flush(struct hf_raft_connection *connection)
{
    struct hf_raft_transport *transport = connection->raft->transport;
    struct hf_buf *output = &connection->output;
    bool failed = output->failed;

    if (connection->state < HF_RAFT_GREETING)
        return;
    if (!failed && output->size > 0)
        failed = !transport->ops->write(transport, &connection->stream,
                                        output->data, output->size);
    drop_output(connection);
    if (failed)
        hf_raft_connection_lose(connection, HF_ENOMEM, hf_err_text(HF_ENOMEM));
}

static void send_output_at_turn_end(struct hf_post *post)
{
    hf_raft_connection_flush(
        HF_CONTAINER(post, struct hf_raft_connection, flush));
}

/* Inside `open` nothing runs at the end of a turn: raft_open.c flushes after
 * each event. */
static void flush_later(struct hf_raft_connection *connection)
{
    struct hf_host *host = connection->raft->host;

    if (!connection->raft->opening)
        host->ops->defer(host, &connection->flush);
}

void hf_raft_connection_send(struct hf_raft_connection *connection,
                             const struct hf_mux_request *request)
{
    HF_ASSERT(connection->state >= HF_RAFT_READY);
    hf_mux_request_encode(request, &connection->output);
    flush_later(connection);
}

/* ---- Silence ------------------------------------------------------------*/

/* Returns true if the node owes a message: a step of the handshake, a reply, or
 * the grant of a waiting claim. */
static bool is_awaiting(const struct hf_raft_connection *connection)
{
    const struct hf_raft *raft = connection->raft;

    return connection->state != HF_RAFT_UP || connection->ping > 0 ||
           (connection == raft->current &&
            (!hf_dlist_is_empty(&raft->requests) || raft->claims.count > 0));
}

/* How long after `heard` hf_raft_connection_tick() has to send a PING or give
 * up the node. */
static uint32_t silence_limit_ms(const struct hf_raft_connection *connection)
{
    if (!is_awaiting(connection))
        return IDLE_PING_MS;
    if (connection->state >= HF_RAFT_READY && connection->ping == 0)
        return PING_MS;
    return SILENCE_MS;
}

hf_time hf_raft_connection_deadline(const struct hf_raft_connection *connection)
{
    hf_time at = hf_time_add(connection->heard, silence_limit_ms(connection));
    hf_time attached = hf_time_add(connection->since, ATTACH_MS);

    if (connection->state == HF_RAFT_DOWN)
        return HF_NEVER;
    return connection->state == HF_RAFT_READY && attached < at ? attached : at;
}

void hf_raft_connection_expect(struct hf_raft_connection *connection)
{
    if (is_awaiting(connection))
        return;
    connection->heard = hf_raft_now(connection->raft);
    hf_raft_wake_at(connection->raft, hf_time_add(connection->heard, PING_MS));
}

static void send_ping(struct hf_raft_connection *connection)
{
    struct hf_mux_request ping = {.verb = HF_VERB_PING,
                                  .id = connection->raft->next_id++};

    if (!is_awaiting(connection)) /* `heard` may be long ago */
        connection->heard = hf_raft_now(connection->raft);
    connection->ping = ping.id;
    hf_raft_connection_send(connection, &ping);
}

void hf_raft_connection_tick(struct hf_raft_connection *connection)
{
    hf_time now = hf_raft_now(connection->raft);
    hf_time at = hf_raft_connection_deadline(connection);

    if (now < at)
        return;
    if (connection->state == HF_RAFT_READY &&
        now >= hf_time_add(connection->since, ATTACH_MS))
        hf_raft_connection_lose(
            connection, HF_EUNAVAIL,
            "the node cannot attach the session, because it knows no leader: "
            "fewer than a majority of the nodes are up or connected");
    else if (connection->state >= HF_RAFT_READY && connection->ping == 0)
        send_ping(connection);
    else if (now >= hf_time_add(at, LATE_MS))
        /* This process was stopped and could not read what the node sent: wait
         * once more. */
        connection->heard = now;
    else
        hf_raft_connection_lose(connection, HF_EUNAVAIL,
                                "the node does not answer");
}

/* ---- Messages -----------------------------------------------------------*/

static void on_push(struct hf_raft_connection *connection,
                    const struct hf_resp_message *message)
{
    struct hf_raft *raft = connection->raft;
    struct hf_mux_push push;
    enum hf_err err = hf_mux_push_decode(&push, message);

    if (err == HF_EUNSUPPORTED)
        return; /* of a later version */
    if (err) {
        hf_raft_connection_lose(connection, HF_EPROTO,
                                "the node sent a malformed message");
        return;
    }
    switch (push.kind) {
    case HF_MUX_PUSH_GRANT:
        hf_raft_claims_on_grant(raft, &push);
        break;
    case HF_MUX_PUSH_EVENT:
        hf_raft_watches_on_event(connection, &push);
        break;
    case HF_MUX_PUSH_LEADER:
        hf_raft_route_on_leader(connection, push.leader, push.address);
        break;
    case HF_MUX_PUSH_FULL:
        hf_raft_route_on_full(connection);
        break;
    default:
        break;
    }
}

/* Decode the reply to HELLO. If it is an error, is malformed, or has another
 * version of the protocol, sets `error` and returns its code. */
static enum hf_err check_hello_reply(struct hf_mux_hello *hello,
                                     const struct hf_resp_message *message,
                                     struct hf_error *error)
{
    struct hf_bytes text = {NULL, 0};
    enum hf_err err = hf_mux_hello_decode(hello, message, &text);

    if (err && text.size > 0)
        return hf_error_set(error, err, "%.*s", (int)text.size,
                            (const char *)text.data);
    if (err)
        return hf_error_set(error, err,
                            "the answer is not one of a holdfastd node: is "
                            "this its client port?");
    if (hello->version != HF_PROTOCOL_VERSION)
        return hf_error_set(error, HF_EUNSUPPORTED,
                            "the node uses version %llu of the protocol, and "
                            "this client version %d",
                            (unsigned long long)hello->version,
                            HF_PROTOCOL_VERSION);
    return HF_OK;
}

/* The newest version of the command format that both sides know. A cluster also
 * accepts commands of a version older than that of its table. */
static uint8_t command_version(const struct hf_mux_hello *hello)
{
    if (hello->table_version >= HF_VERSION_NEWEST)
        return HF_VERSION_NEWEST;
    return hello->table_version > 0 ? (uint8_t)hello->table_version
                                    : HF_VERSION_FIRST;
}

static void on_hello(struct hf_raft_connection *connection,
                     const struct hf_resp_message *message)
{
    struct hf_mux_hello hello;
    struct hf_error error;

    if (check_hello_reply(&hello, message, &error)) {
        hf_raft_connection_lose(connection, error.code, error.text);
        return;
    }
    connection->node = hello.node;
    connection->leader = hello.leader;
    connection->version = command_version(&hello);
    enter_state(connection, HF_RAFT_READY);
    hf_raft_route_on_hello(connection, &hello);
}

static void on_pong(struct hf_raft_connection *connection)
{
    connection->ping = 0;
    hf_raft_wake_at(connection->raft, hf_raft_connection_deadline(connection));
}

static void on_message(struct hf_raft_connection *connection,
                       const struct hf_resp_message *message)
{
    uint64_t id;

    if (connection->state == HF_RAFT_GREETING)
        on_hello(connection, message);
    else if (hf_mux_reply_id(message, &id))
        hf_raft_connection_lose(connection, HF_EPROTO,
                                "the node sent a malformed message");
    else if (id == 0)
        on_push(connection, message);
    else if (id == connection->ping)
        on_pong(connection);
    else if (id == connection->handshake)
        hf_raft_session_on_reply(connection, message);
    else
        hf_raft_requests_on_reply(connection, id, message);
}

/* Handling a message may close the connection, and even open it again: then
 * `incarnation` has changed, and the rest of the data is dropped. */
static void on_data(struct hf_raft_stream *stream, const void *data,
                    size_t size)
{
    struct hf_raft_connection *connection =
        HF_CONTAINER(stream, struct hf_raft_connection, stream);
    unsigned incarnation = connection->incarnation;
    enum hf_resp_status status = HF_RESP_MESSAGE;
    struct hf_resp_message message;

    connection->heard = hf_raft_now(connection->raft);
    if (hf_resp_reader_feed(&connection->reader, data, size)) {
        hf_raft_connection_lose(connection, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    while (status == HF_RESP_MESSAGE) {
        status = hf_resp_reader_next(&connection->reader, &message);
        if (status == HF_RESP_MESSAGE)
            on_message(connection, &message);
        if (connection->incarnation != incarnation)
            return;
    }
    if (status == HF_RESP_BROKEN)
        hf_raft_connection_lose(connection, connection->reader.parser.err,
                                connection->reader.parser.cause);
    else if (hf_resp_reader_keep(&connection->reader))
        hf_raft_connection_lose(connection, HF_ENOMEM, hf_err_text(HF_ENOMEM));
}

/* ---- Opening and closing ------------------------------------------------*/

static void on_session_opened(struct hf_raft_stream *stream)
{
    struct hf_raft_connection *connection =
        HF_CONTAINER(stream, struct hf_raft_connection, stream);

    connection->heard = hf_raft_now(connection->raft);
    enter_state(connection, HF_RAFT_GREETING);
    hf_mux_write_hello(&connection->output);
    flush_later(connection);
}

/* Set the connection to DOWN, and free everything but its stream, which is
 * closed already. */
static void reset_connection(struct hf_raft_connection *connection)
{
    struct hf_host *host = connection->raft->host;

    enter_state(connection, HF_RAFT_DOWN);
    connection->incarnation++;
    connection->node = 0;
    connection->leader = 0;
    connection->ping = 0;
    connection->handshake = 0;
    host->ops->unpost(host, &connection->flush);
    hf_resp_reader_fini(&connection->reader);
    hf_buf_fini(&connection->output);
}

static void report_connection_loss(struct hf_raft_connection *connection,
                                   enum hf_err err, const char *text)
{
    bool was_up = connection->state == HF_RAFT_UP;
    struct hf_error failure;

    (void)hf_error_set(&failure, err, "%s: %s", connection->address->name,
                       text);
    reset_connection(connection);
    hf_raft_route_on_lost(connection, was_up, &failure);
}

static void on_lost(struct hf_raft_stream *stream, enum hf_err err,
                    const char *text)
{
    report_connection_loss(
        HF_CONTAINER(stream, struct hf_raft_connection, stream), err, text);
}

static const struct hf_raft_stream_ops stream_ops = {
    .opened = on_session_opened,
    .data = on_data,
    .lost = on_lost,
};

void hf_raft_connection_init(struct hf_raft_connection *connection,
                             struct hf_raft *raft)
{
    connection->raft = raft;
    connection->stream.ops = &stream_ops;
    connection->flush.run = send_output_at_turn_end;
}

void hf_raft_connection_open(struct hf_raft_connection *connection,
                             struct hf_raft_address *address)
{
    struct hf_raft *raft = connection->raft;
    struct hf_error error;

    enter_state(connection, HF_RAFT_CONNECTING);
    connection->incarnation++;
    connection->address = address;
    connection->heard = hf_raft_now(raft);
    hf_resp_reader_init(&connection->reader, false, HF_PROTOCOL_LIMITS);
    hf_raft_wake_at(raft, hf_raft_connection_deadline(connection));
    if (!raft->transport->ops->connect(raft->transport, &connection->stream,
                                       address, &error))
        return;
    reset_connection(connection);
    hf_raft_route_on_lost(connection, false, &error);
}

static void close_transport(struct hf_raft_connection *connection)
{
    struct hf_raft_transport *transport = connection->raft->transport;

    transport->ops->close(transport, &connection->stream);
}

void hf_raft_connection_close(struct hf_raft_connection *connection)
{
    struct hf_raft_transport *transport = connection->raft->transport;

    if (connection->state == HF_RAFT_DOWN)
        return;
    if (connection->state >= HF_RAFT_READY && !connection->output.failed &&
        connection->output.size > 0)
        (void)transport->ops->write(transport, &connection->stream,
                                    connection->output.data,
                                    connection->output.size);
    close_transport(connection);
    reset_connection(connection);
}

void hf_raft_connection_lose(struct hf_raft_connection *connection,
                             enum hf_err err, const char *text)
{
    HF_ASSERT(connection->state != HF_RAFT_DOWN);
    close_transport(connection);
    report_connection_loss(connection, err, text);
}

void hf_raft_connection_set_up(struct hf_raft_connection *connection)
{
    enter_state(connection, HF_RAFT_UP);
}
