#include "strategy/net/link.h"

#include <stdio.h>

#include "base/assert.h"

#define PING_MS 500        /* silence before a PING, if something is awaited */
#define SILENCE_MS 1500    /* silence before the node is given up */
#define IDLE_PING_MS 10000 /* silence of either side before a PING */
#define LATE_MS 500     /* if a timer is this late, the process was stopped */
#define KEEP_SIZE 65536 /* a larger buffer is freed once it is written */

static void enter_state(struct hf_net_link *link, enum hf_net_link_state to)
{
    static const bool allowed[][5] = {
        [HF_NET_LINK_DOWN] = {[HF_NET_LINK_CONNECTING] = true},
        [HF_NET_LINK_CONNECTING] =
            {[HF_NET_LINK_DOWN] = true, [HF_NET_LINK_HELLO] = true},
        [HF_NET_LINK_HELLO] =
            {[HF_NET_LINK_DOWN] = true, [HF_NET_LINK_READY] = true},
        [HF_NET_LINK_READY] =
            {[HF_NET_LINK_DOWN] = true, [HF_NET_LINK_UP] = true},
        [HF_NET_LINK_UP] = {[HF_NET_LINK_DOWN] = true},
    };

    HF_ASSERT(allowed[link->state][to]);
    link->state = to;
    link->since = hf_net_now(link->net);
}

/* ---- Writing ------------------------------------------------------------*/

static void drop_output(struct hf_net_link *link)
{
    link->output.size = 0;
    link->output.failed = false;
    if (link->output.capacity > KEEP_SIZE)
        hf_buf_fini(&link->output);
}

void hf_net_link_flush(struct hf_net_link *link)
{
    struct hf_net_transport *transport = link->net->transport;
    struct hf_buf *output = &link->output;
    bool failed = output->failed;

    if (link->state < HF_NET_LINK_HELLO)
        return;
    if (!failed && output->size > 0)
        failed = !transport->ops->write(transport, &link->stream, output->data,
                                        output->size);
    drop_output(link);
    if (failed)
        hf_net_link_lose(link, HF_ENOMEM, hf_err_text(HF_ENOMEM));
}

static void send_output_at_turn_end(struct hf_post *post)
{
    hf_net_link_flush(HF_CONTAINER(post, struct hf_net_link, flush));
}

/* Inside hf_strategy.open nothing runs at the end of a turn: the strategy
 * flushes after each event. */
static void flush_later(struct hf_net_link *link)
{
    struct hf_host *host = link->net->host;

    if (!link->net->opening)
        host->ops->defer(host, &link->flush);
}

void hf_net_link_send(struct hf_net_link *link,
                      const struct hf_mux_request *request)
{
    HF_ASSERT(link->state >= HF_NET_LINK_READY);
    hf_mux_request_encode(request, &link->output);
    link->sent = hf_net_now(link->net);
    flush_later(link);
}

/* ---- Silence ------------------------------------------------------------*/

static bool is_awaiting(const struct hf_net_link *link)
{
    return link->state != HF_NET_LINK_UP || link->ping > 0 ||
           link->ops->is_awaiting(link);
}

/* How long after `received_at` hf_net_link_tick() has to send a PING or
 * give up the node. */
static uint32_t silence_limit_ms(const struct hf_net_link *link)
{
    if (!is_awaiting(link))
        return IDLE_PING_MS;
    if (link->state >= HF_NET_LINK_READY && link->ping == 0)
        return PING_MS;
    return SILENCE_MS;
}

/* A node closes a connection on which it receives nothing, even if it sends
 * events all the time. So an UP link also sends a PING if it has sent
 * nothing else for IDLE_PING_MS. */
hf_time hf_net_link_deadline(const struct hf_net_link *link)
{
    hf_time at = hf_time_add(link->received_at, silence_limit_ms(link));
    hf_time silent = hf_time_add(link->sent, IDLE_PING_MS);

    if (link->state == HF_NET_LINK_DOWN)
        return HF_NEVER;
    if (link->state == HF_NET_LINK_UP && link->ping == 0 && silent < at)
        return silent;
    return at;
}

void hf_net_link_expect(struct hf_net_link *link)
{
    if (is_awaiting(link))
        return;
    link->received_at = hf_net_now(link->net);
    hf_net_wake_at(link->net, hf_time_add(link->received_at, PING_MS));
}

static void send_ping(struct hf_net_link *link)
{
    struct hf_mux_request ping = {.verb = HF_VERB_PING,
                                  .id = link->net->next_id++};

    if (!is_awaiting(link)) /* `received_at` may be long ago */
        link->received_at = hf_net_now(link->net);
    link->ping = ping.id;
    hf_net_link_send(link, &ping);
}

void hf_net_link_tick(struct hf_net_link *link)
{
    hf_time now = hf_net_now(link->net);
    hf_time at = hf_net_link_deadline(link);

    if (now < at)
        return;
    if (link->state >= HF_NET_LINK_READY && link->ping == 0)
        send_ping(link);
    else if (now >= hf_time_add(at, LATE_MS))
        /* This process was stopped and could not read what the node sent: wait
         * once more. */
        link->received_at = now;
    else
        hf_net_link_lose(link, HF_EUNAVAIL, "the node does not answer");
}

/* ---- Messages -----------------------------------------------------------*/

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

static void on_hello(struct hf_net_link *link,
                     const struct hf_resp_message *message)
{
    struct hf_mux_hello hello;
    struct hf_error error;

    if (check_hello_reply(&hello, message, &error)) {
        hf_net_link_lose(link, error.code, error.text);
        return;
    }
    link->hello_ms = hf_time_left(hf_net_now(link->net), link->since);
    enter_state(link, HF_NET_LINK_READY);
    link->ops->ready(link, &hello);
}

static void on_pong(struct hf_net_link *link)
{
    link->ping = 0;
    hf_net_wake_at(link->net, hf_net_link_deadline(link));
}

static void on_message(struct hf_net_link *link,
                       const struct hf_resp_message *message)
{
    uint64_t id;
    bool has_id = !hf_mux_reply_id(message, &id);

    if (link->state == HF_NET_LINK_HELLO && !(has_id && id == 0))
        on_hello(link, message);
    else if (!has_id)
        hf_net_link_lose(link, HF_EPROTO, "the node sent a malformed message");
    else if (id > 0 && id == link->ping)
        on_pong(link);
    else
        link->ops->message(link, id, message);
}

/* Handling a message may close the link, and even open it again: then
 * `incarnation` has changed, and the rest of the data is dropped. */
static void on_data(struct hf_net_stream *stream, const void *data, size_t size)
{
    struct hf_net_link *link = HF_CONTAINER(stream, struct hf_net_link, stream);
    unsigned incarnation = link->incarnation;
    enum hf_resp_status status = HF_RESP_MESSAGE;
    struct hf_resp_message message;

    link->received_at = hf_net_now(link->net);
    if (hf_resp_reader_feed(&link->reader, data, size)) {
        hf_net_link_lose(link, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    while (status == HF_RESP_MESSAGE) {
        status = hf_resp_reader_next(&link->reader, &message);
        if (status == HF_RESP_MESSAGE)
            on_message(link, &message);
        if (link->incarnation != incarnation)
            return;
    }
    if (status == HF_RESP_BROKEN)
        hf_net_link_lose(link, link->reader.parser.err,
                         link->reader.parser.cause);
    else if (hf_resp_reader_keep(&link->reader))
        hf_net_link_lose(link, HF_ENOMEM, hf_err_text(HF_ENOMEM));
}

/* ---- Opening and closing ------------------------------------------------*/

static void on_stream_opened(struct hf_net_stream *stream)
{
    struct hf_net_link *link = HF_CONTAINER(stream, struct hf_net_link, stream);

    link->received_at = hf_net_now(link->net);
    enter_state(link, HF_NET_LINK_HELLO);
    hf_mux_write_hello(&link->output);
    flush_later(link);
}

/* Set the link to DOWN, and free everything but its stream, which is
 * closed already. */
static void reset_link(struct hf_net_link *link)
{
    struct hf_host *host = link->net->host;

    enter_state(link, HF_NET_LINK_DOWN);
    link->incarnation++;
    link->ping = 0;
    host->ops->unpost(host, &link->flush);
    hf_resp_reader_fini(&link->reader);
    hf_buf_fini(&link->output);
}

static void report_link_loss(struct hf_net_link *link, enum hf_err err,
                             const char *text)
{
    bool was_up = link->state == HF_NET_LINK_UP;
    struct hf_error failure;

    (void)hf_error_set(&failure, err, "%s: %s", link->address->name, text);
    reset_link(link);
    link->ops->lost(link, was_up, &failure);
}

static void on_lost(struct hf_net_stream *stream, enum hf_err err,
                    const char *text)
{
    report_link_loss(HF_CONTAINER(stream, struct hf_net_link, stream), err,
                     text);
}

static const struct hf_net_stream_ops stream_ops = {
    .opened = on_stream_opened,
    .data = on_data,
    .lost = on_lost,
};

void hf_net_link_init(struct hf_net_link *link, struct hf_net *net,
                      const struct hf_net_link_ops *ops)
{
    link->net = net;
    link->ops = ops;
    link->stream.ops = &stream_ops;
    link->flush.run = send_output_at_turn_end;
}

void hf_net_link_open(struct hf_net_link *link, struct hf_net_address *address)
{
    struct hf_net *net = link->net;
    struct hf_error error;

    enter_state(link, HF_NET_LINK_CONNECTING);
    link->incarnation++;
    link->address = address;
    link->received_at = hf_net_now(net);
    hf_resp_reader_init(&link->reader, false, HF_PROTOCOL_LIMITS);
    hf_net_wake_at(net, hf_net_link_deadline(link));
    if (!net->transport->ops->connect(net->transport, &link->stream, address,
                                      &error))
        return;
    reset_link(link);
    link->ops->lost(link, false, &error);
}

static void close_transport(struct hf_net_link *link)
{
    struct hf_net_transport *transport = link->net->transport;

    transport->ops->close(transport, &link->stream);
}

void hf_net_link_close(struct hf_net_link *link)
{
    struct hf_net_transport *transport = link->net->transport;

    if (link->state == HF_NET_LINK_DOWN)
        return;
    if (link->state >= HF_NET_LINK_READY && !link->output.failed &&
        link->output.size > 0)
        (void)transport->ops->write(transport, &link->stream, link->output.data,
                                    link->output.size);
    close_transport(link);
    reset_link(link);
}

void hf_net_link_lose(struct hf_net_link *link, enum hf_err err,
                      const char *text)
{
    HF_ASSERT(link->state != HF_NET_LINK_DOWN);
    close_transport(link);
    report_link_loss(link, err, text);
}

void hf_net_link_set_up(struct hf_net_link *link)
{
    enter_state(link, HF_NET_LINK_UP);
}
