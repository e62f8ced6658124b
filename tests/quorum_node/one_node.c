#include "quorum_node/one_node.h"

#include <stdlib.h>
#include <string.h>

#include "core/quorum/message.h"
#include "lib/runner.h"

/* ---- The shell ----------------------------------------------------------*/

static void on_send(void *arg, uint64_t conn, const void *bytes, size_t size)
{
    struct one_node *one = arg;
    struct node_client *client = &one->clients[conn];

    if (client->drops)
        return;
    if (client->is_deaf)
        client->unsent += size;
    else
        assert_int_equal(hf_resp_reader_feed(&client->reader, bytes, size),
                         HF_OK);
    (void)hf_resp_reader_keep(&client->reader);
}

static void on_close(void *arg, uint64_t conn)
{
    struct one_node *one = arg;

    one->clients[conn].is_closed = true;
}

static void on_pause(void *arg, uint64_t conn, bool stop_reading)
{
    struct one_node *one = arg;

    one->clients[conn].is_paused = stop_reading;
}

static void on_write_mark(void *arg, uint64_t mark)
{
    struct one_node *one = arg;

    assert_int_equal(one->mark, 0);
    one->mark = mark;
    one->marks++;
}

static const struct hf_quorum_node_ops ops = {
    .send_client = on_send,
    .close_client = on_close,
    .pause_client = on_pause,
    .write_mark = on_write_mark,
};

/* ---- The node -----------------------------------------------------------*/

static void fill_members(struct hf_members *members)
{
    static const char *const addresses[] = {"127.0.0.1:7001", "127.0.0.1:7002",
                                            "[::1]:7003"};

    *members = (struct hf_members){
        .cluster = {0x11, 0x22},
        .set = 1,
        .lease_max_ms = ONE_LEASE_MAX_MS,
        .count = 3,
    };
    for (size_t i = 0; i < members->count; i++) {
        members->masters[i].id = i + 1;
        memcpy(members->masters[i].address, addresses[i],
               strlen(addresses[i]) + 1);
    }
}

enum hf_err one_node_init_with(struct one_node *one, uint64_t mark,
                               size_t clients_max)
{
    struct hf_members members;
    const struct hf_quorum_node_opts opts = {
        .members = &members,
        .id = 2,
        .mark = mark,
        .history_bytes = HF_HISTORY_MIN,
        .clients_max = clients_max,
    };

    *one = (struct one_node){.now = 1000};
    fill_members(&members);
    return hf_quorum_node_new(&opts, &ops, one, one->now, &one->node);
}

void one_node_init(struct one_node *one)
{
    assert_int_equal(one_node_init_with(one, 0, 0), HF_OK);
    one_node_run(one);
    one_node_end_mark(one, true);
    one_node_run(one);
}

void one_node_fini(struct one_node *one)
{
    hf_quorum_node_free(one->node);
    for (size_t i = 0; i < NODE_CLIENTS; i++)
        hf_resp_reader_fini(&one->clients[i].reader);
}

/* The shell reports what a client has not read, and closed sockets, between
 * turns. */
static void report_clients(struct one_node *one)
{
    for (uint64_t i = 1; i < NODE_CLIENTS; i++) {
        struct node_client *client = &one->clients[i];

        if (client->is_open && !client->is_closed && client->is_deaf)
            hf_quorum_node_on_client_unsent(one->node, i, client->unsent);
    }
}

void one_node_run(struct one_node *one)
{
    for (int turns = 0; turns < 1000; turns++) {
        hf_quorum_node_turn(one->node, one->now);
        report_clients(one);
        if (hf_quorum_node_deadline(one->node) > one->now)
            return;
    }
    fail_msg("turns are due without an end");
}

void one_node_advance(struct one_node *one, hf_time ms)
{
    one->now += ms;
    one_node_run(one);
}

void one_node_end_mark(struct one_node *one, bool ok)
{
    uint64_t mark = one->mark;

    assert_int_not_equal(mark, 0);
    one->mark = 0;
    hf_quorum_node_set_time(one->node, one->now);
    hf_quorum_node_on_mark(one->node, mark, ok);
}

/* ---- Clients ------------------------------------------------------------*/

struct node_client *one_node_connect(struct one_node *one, uint64_t conn)
{
    struct node_client *client = &one->clients[conn];

    hf_resp_reader_fini(&client->reader); /* of an earlier connection */
    hf_resp_reader_init(&client->reader, false,
                        (struct hf_resp_limits){1 << 20, 1 << 24});
    client->is_open = true;
    hf_quorum_node_set_time(one->node, one->now);
    hf_quorum_node_on_client_open(one->node, conn);
    return client;
}

struct node_client *one_node_connect_mux(struct one_node *one, uint64_t conn)
{
    struct node_client *client = one_node_connect(one, conn);

    one_node_type(one, conn, "HELLO 1 MUX");
    assert_true(one_node_take(one, conn));
    return client;
}

void one_node_close(struct one_node *one, uint64_t conn)
{
    one->clients[conn].is_open = false;
    hf_quorum_node_set_time(one->node, one->now);
    hf_quorum_node_on_client_closed(one->node, conn);
    one_node_run(one);
}

void one_node_send(struct one_node *one, uint64_t conn, const void *data,
                   size_t size)
{
    hf_quorum_node_set_time(one->node, one->now);
    hf_quorum_node_on_client_data(one->node, conn, data, size);
    one_node_run(one);
}

void one_node_type(struct one_node *one, uint64_t conn, const char *line)
{
    struct hf_buf buf = {0};

    hf_buf_raw(&buf, line, strlen(line));
    hf_buf_raw(&buf, "\r\n", 2);
    one_node_send(one, conn, buf.data, buf.size);
    hf_buf_fini(&buf);
}

void one_node_request(struct one_node *one, uint64_t conn,
                      struct hf_mux_request request)
{
    struct hf_buf buf = {0};

    request.id = ++one->clients[conn].id;
    hf_mux_request_encode(&request, &buf);
    one_node_send(one, conn, buf.data, buf.size);
    hf_buf_fini(&buf);
}

bool one_node_take(struct one_node *one, uint64_t conn)
{
    struct node_client *client = &one->clients[conn];
    enum hf_resp_status status =
        hf_resp_reader_next(&client->reader, &client->message);

    assert_int_not_equal(status, HF_RESP_BROKEN);
    return status == HF_RESP_MESSAGE;
}

struct hf_mux_reply one_node_call(struct one_node *one, uint64_t conn,
                                  struct hf_mux_request request)
{
    struct hf_mux_reply reply;

    one_node_request(one, conn, request);
    assert_true(one_node_take(one, conn));
    assert_int_equal(
        hf_mux_reply_decode(&reply, request.verb, &one->clients[conn].message),
        HF_OK);
    assert_int_equal(reply.id, one->clients[conn].id);
    return reply;
}

struct hf_quorum_reply one_node_ask(struct one_node *one, uint64_t conn,
                                    struct hf_quorum_request request)
{
    struct hf_buf buf = {0};
    struct hf_quorum_reply answer;
    struct hf_mux_reply reply;

    if (request.serial == 0)
        request.serial = (uint32_t)one->clients[conn].id + 1;
    hf_message_encode_request(&request, &buf);
    reply =
        one_node_call(one, conn,
                      (struct hf_mux_request){.verb = HF_VERB_QUORUM,
                                              .command = {buf.data, buf.size}});
    hf_buf_fini(&buf);
    assert_int_equal(reply.err, HF_OK);
    assert_int_equal(hf_message_decode_reply(&answer, reply.result), HF_OK);
    return answer;
}

struct hf_mux_push one_node_take_push(struct one_node *one, uint64_t conn,
                                      enum hf_mux_push_kind kind)
{
    struct hf_mux_push push;

    assert_true(one_node_take(one, conn));
    assert_int_equal(hf_mux_push_decode(&push, &one->clients[conn].message),
                     HF_OK);
    assert_int_equal(push.kind, kind);
    return push;
}

struct hf_quorum_reply one_node_take_vote(struct one_node *one, uint64_t conn,
                                          unsigned claim)
{
    struct hf_mux_push push = one_node_take_push(one, conn, HF_MUX_PUSH_VOTE);
    struct hf_claim_id id = one_id(claim);
    struct hf_quorum_reply reply;

    assert_int_equal(push.claim.size, sizeof(id));
    assert_memory_equal(push.claim.data, &id, sizeof(id));
    assert_int_equal(hf_message_decode_reply(&reply, push.reply), HF_OK);
    return reply;
}

char *one_node_text(struct one_node *one, uint64_t conn, const char *line)
{
    struct hf_bytes bytes;
    char *text;

    (void)one_node_connect(one, conn);
    one_node_type(one, conn, line);
    assert_true(one_node_take(one, conn));
    bytes = hf_resp_bytes(&one->clients[conn].message.values[0]);
    text = calloc(1, bytes.size + 1);
    assert_non_null(text);
    memcpy(text, bytes.data, bytes.size);
    one_node_close(one, conn);
    return text;
}
