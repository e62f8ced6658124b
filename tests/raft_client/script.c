#include "raft_client/script.h"

#include <stdio.h>
#include <stdlib.h>

#define START INT64_C(1000000000000) /* later than any CLOCK_BOOTTIME */
#define URL "raft://127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003"
#define HOUR_MS 3600000

struct script script;

/* Assert while the client's mutex is locked. After a failure the client cannot
 * be closed, so forget it. */
static void assert_inside(bool condition)
{
    if (!condition)
        script.client = NULL;
    assert_true(condition);
}

/* ---- Delivery -----------------------------------------------------------*/

static void wake_client(void)
{
    struct hf_waker *waker = script.host->ops->post(script.host, &script.post);

    if (waker)
        hf_waker_wake(waker);
}

static void deliver_to(struct script_stream *stream)
{
    struct hf_net_stream *to = stream->stream;
    struct hf_buf input = stream->input;

    if (!stream->opened && !stream->is_lost) {
        stream->opened = true;
        to->ops->opened(to);
    }
    stream->input = (struct hf_buf){0};
    if (stream->stream && input.size > 0)
        to->ops->data(to, input.data, input.size);
    hf_buf_fini(&input);
    if (stream->stream && stream->is_lost) {
        stream->stream = NULL;
        to->handle = NULL;
        to->ops->lost(to, HF_EUNAVAIL, "Connection reset by peer");
    }
}

static void on_post(struct hf_post *post)
{
    (void)post;
    for (unsigned i = 0; i < script.stream_count; i++)
        if (script.streams[i].stream)
            deliver_to(&script.streams[i]);
}

/* ---- The nodes ----------------------------------------------------------*/

static void queue_reply(struct script_stream *stream, enum hf_verb verb,
                        const struct hf_mux_reply *reply)
{
    hf_mux_reply_encode(reply, verb, &stream->input);
    wake_client();
}

static void answer_hello(struct script_stream *stream)
{
    const struct script_node *node = &script.nodes[stream->node];
    const char *cluster = node->cluster ? node->cluster : "c1";
    char where[32] = "";
    struct hf_mux_hello hello = {
        .version = HF_PROTOCOL_VERSION,
        .cluster = hf_bytes_of(cluster),
        .node = stream->node + 1,
        .leader = node->leader,
        .table_version = 1,
        .requests_max = 1024,
        .frame_max = HF_RESP_FRAME_MAX,
    };

    if (node->leader > 0)
        (void)snprintf(where, sizeof(where), "127.0.0.1:%u",
                       7000 + (unsigned)node->leader);
    hello.address = hf_bytes_of(node->where ? node->where : where);
    if (node->hello)
        hf_buf_raw(&stream->input, node->hello, strlen(node->hello));
    else
        hf_mux_hello_encode(&hello, &stream->input);
    wake_client();
}

static void answer_session(struct script_stream *stream,
                           const struct hf_mux_request *request)
{
    struct hf_mux_reply reply = {.id = request->id, .session = script.session};

    script.secret = request->secret;
    script.opens += request->verb == HF_VERB_OPEN;
    script.attaches += request->verb == HF_VERB_ATTACH;
    if (script.nodes[stream->node].stalled ||
        (script.nodes[stream->node].stalls_open &&
         request->verb == HF_VERB_OPEN))
        return;
    if (request->verb == HF_VERB_ATTACH && script.gone) {
        reply.err = HF_ESTATE;
        reply.session_gone = true;
        script.gone = false;
        script.session++;
    }
    queue_reply(stream, request->verb, &reply);
}

static void keep_request(const struct script_stream *stream,
                         const struct hf_mux_request *request)
{
    struct script_request *kept = &script.requests[script.request_count++];

    assert_inside(script.request_count < SCRIPT_REQUESTS);
    *kept = (struct script_request){
        .mux = *request,
        .stream = (unsigned)(stream - script.streams),
        .at = script.now,
    };
    if (request->verb == HF_VERB_DO)
        assert_inside(!hf_command_decode(&kept->command, request->command.data,
                                         request->command.size));
}

static void on_request(struct script_stream *stream,
                       const struct hf_mux_request *request)
{
    struct hf_mux_reply ok = {.id = request->id};

    switch (request->verb) {
    case HF_VERB_OPEN:
    case HF_VERB_ATTACH:
        answer_session(stream, request);
        break;
    case HF_VERB_PING:
        script.pings++;
        queue_reply(stream, request->verb, &ok);
        break;
    case HF_VERB_UNWATCH:
        script.unwatches++;
        queue_reply(stream, request->verb, &ok);
        break;
    case HF_VERB_DETACH:
        script.detaches++;
        break;
    default:
        keep_request(stream, request);
    }
}

static void on_client_message(struct script_stream *stream,
                              const struct hf_resp_message *message)
{
    struct hf_mux_request request;
    const char *cause;

    if (!stream->has_hello) {
        stream->has_hello = true;
        answer_hello(stream);
        return;
    }
    assert_inside(!hf_mux_request_decode(&request, message, &cause));
    on_request(stream, &request);
}

/* ---- The transport ------------------------------------------------------*/

static enum hf_err script_connect(struct hf_net_transport *transport,
                                  struct hf_net_stream *stream,
                                  struct hf_net_address *address,
                                  struct hf_error *error)
{
    unsigned node = address->port - 7001u;
    struct script_stream *opened = &script.streams[script.stream_count];

    (void)transport;
    assert_inside(script.stream_count < SCRIPT_STREAMS);
    assert_inside(node < SCRIPT_NODES);
    if (script.nodes[node].refuses)
        return hf_error_set(error, HF_EUNAVAIL, "%s: Connection refused",
                            address->name);
    script.stream_count++;
    *opened = (struct script_stream){.stream = stream, .node = node};
    hf_resp_reader_init(&opened->reader, true, HF_PROTOCOL_LIMITS);
    stream->handle = opened;
    wake_client();
    return HF_OK;
}

static bool script_write(struct hf_net_transport *transport,
                         struct hf_net_stream *stream, const void *data,
                         size_t size)
{
    struct script_stream *to = stream->handle;
    struct hf_resp_message message;

    (void)transport;
    to->writes++;
    if (to->is_lost || script.nodes[to->node].stopped)
        return true;
    if (!hf_resp_reader_feed(&to->reader, data, size)) {
        while (hf_resp_reader_next(&to->reader, &message) == HF_RESP_MESSAGE)
            on_client_message(to, &message);
        if (!hf_resp_reader_keep(&to->reader))
            return true;
    }
    to->is_lost = true; /* memory was exhausted in the node */
    wake_client();
    return true;
}

static void script_close(struct hf_net_transport *transport,
                         struct hf_net_stream *stream)
{
    struct script_stream *closed = stream->handle;

    (void)transport;
    closed->stream = NULL;
    stream->handle = NULL;
}

static const struct hf_net_transport_ops transport_ops = {
    .connect = script_connect,
    .write = script_write,
    .close = script_close,
};

/* ---- The client ---------------------------------------------------------*/

static hf_time script_clock(void *arg)
{
    (void)arg;
    return script.now;
}

static enum hf_err open_script(void *self, struct hf_url *url,
                               struct hf_host *host, struct hf_error *error)
{
    script.host = host;
    return hf_raft_open_with(self, url, host, &script.transport, error);
}

void script_open(const char *url)
{
    struct hf_strategy strategy = hf_strategy_raft;
    struct hf_env env = {.clock = script_clock,
                         .strategy = &strategy,
                         .seed = script.seed ? script.seed : 1};
    static struct hf_strategy kept;
    struct hf_client_opts opts;

    kept = strategy;
    kept.open = open_script;
    env.strategy = &kept;
    hf_client_opts_init(&opts);
    opts.owner = "script";
    assert_int_equal(
        hf_client_open(url ? url : URL, &opts, &env, &script.client), HF_OK);
}

/* Run one turn. If nothing is due, advance the clock to the next timer first.
 * If that timer is later than `until`, only set the clock to `until` and return
 * false. */
static bool step_client(hf_time until)
{
    hf_time next = hf_loop_next_timer(script.client);
    bool busy = !hf_dlist_is_empty(&script.client->loop.posts) ||
                !hf_dlist_is_empty(&script.client->loop.callbacks);

    if (!busy && next > script.now) {
        if (next > until) {
            script.now = until;
            return false;
        }
        script.now = next;
    }
    assert_int_equal(hf_process(script.client), HF_OK);
    return true;
}

void script_run(uint32_t ms)
{
    hf_time until = script.now + ms;

    while (step_client(until))
        ;
}

struct script_request *script_take(enum hf_verb verb)
{
    hf_time until = script.now + HOUR_MS;
    struct script_request *request;

    while (script.taken == script.request_count)
        assert_true(step_client(until));
    request = &script.requests[script.taken++];
    assert_int_equal(request->mux.verb, verb);
    return request;
}

void script_expect_nothing(void)
{
    script_run(0);
    assert_int_equal(script.taken, script.request_count);
}

enum hf_err script_wait(struct hf_future *future)
{
    hf_time until = script.now + HOUR_MS;
    enum hf_err err = HF_OK;

    while (!hf_future_done(future, &err))
        assert_true(step_client(until));
    hf_future_free(future);
    return err;
}

struct hf_future *script_lock(const char *key, uint32_t wait_ms,
                              struct hf_lock **lock)
{
    struct hf_lock_opts opts;
    struct hf_future *future;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = 10000;
    opts.wait_ms = wait_ms;
    opts.renew = false;
    assert_int_equal(hf_acquire_start(script.client, hf_key_of(key), &opts,
                                      lock, NULL, NULL, &future),
                     HF_OK);
    return future;
}

/* ---- Replies ------------------------------------------------------------*/

void script_bytes(unsigned stream, const void *data, size_t size)
{
    hf_buf_raw(&script.streams[stream].input, data, size);
    wake_client();
}

void script_reply(const struct script_request *request,
                  const struct hf_mux_reply *reply)
{
    struct hf_mux_reply with_id = *reply;

    with_id.id = request->mux.id;
    queue_reply(&script.streams[request->stream], request->mux.verb, &with_id);
}

void script_result(const struct script_request *request,
                   const struct hf_result *result, int64_t age_ms)
{
    struct hf_buf bytes = {0};
    struct hf_mux_reply reply = {.age_ms = age_ms, .index = 1};

    hf_command_encode_result(result, &bytes);
    reply.result = (struct hf_bytes){bytes.data, bytes.size};
    script_reply(request, &reply);
    hf_buf_fini(&bytes);
}

void script_error(const struct script_request *request, enum hf_err err,
                  const char *text)
{
    const struct hf_mux_reply reply = {.err = err, .text = hf_bytes_of(text)};

    script_reply(request, &reply);
}

void script_push(unsigned stream, const struct hf_mux_push *push)
{
    hf_mux_push_encode(push, &script.streams[stream].input);
    wake_client();
}

unsigned script_streams(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < script.stream_count; i++)
        count += script.streams[i].stream != NULL;
    return count;
}

unsigned script_stream(void)
{
    unsigned found = 0;

    assert_int_equal(script_streams(), 1);
    while (!script.streams[found].stream)
        found++;
    return found;
}

void script_kill(unsigned node)
{
    script.nodes[node].refuses = true;
    for (unsigned i = 0; i < script.stream_count; i++)
        if (script.streams[i].stream && script.streams[i].node == node)
            script.streams[i].is_lost = true;
    wake_client();
}

/* ---- Fixtures -----------------------------------------------------------*/

int script_set_up(void **state)
{
    (void)state;
    script = (struct script){
        .now = START,
        .session = 7,
        .transport.ops = &transport_ops,
        .post.run = on_post,
    };
    for (unsigned i = 0; i < SCRIPT_NODES; i++)
        script.nodes[i].leader = 1;
    return 0;
}

int script_set_up_open(void **state)
{
    (void)script_set_up(state);
    for (unsigned i = 1; i < SCRIPT_NODES; i++)
        script.nodes[i].refuses = true;
    script_open(NULL);
    script_run(100);
    assert_int_equal(script.opens, 1);
    for (unsigned i = 1; i < SCRIPT_NODES; i++)
        script.nodes[i].refuses = false;
    return 0;
}

int script_tear_down(void **state)
{
    (void)state;
    if (script.client)
        (void)hf_close(script.client, 0);
    for (unsigned i = 0; i < script.stream_count; i++) {
        hf_resp_reader_fini(&script.streams[i].reader);
        hf_buf_fini(&script.streams[i].input);
    }
    return 0;
}
