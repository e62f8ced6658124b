#include "node/mux_client.h"

#include <stdio.h>

#include "lib/expect.h"
#include "lib/runner.h"

const struct hf_nonce hf_mux_secret = {"secret of a sess"};
const struct hf_nonce hf_mux_nonce_a = {"nonce a, 16 byte"};
const struct hf_nonce hf_mux_nonce_b = {"nonce b, 16 byte"};

/* Feed the output of the connection to the client's reader. */
static void receive(struct hf_mux_client *client)
{
    struct hf_buf *output = &client->node->conns[client->conn].output;

    expect_ok(hf_resp_reader_keep(&client->reader));
    expect_ok(hf_resp_reader_feed(&client->reader, output->data, output->size));
    expect_ok(hf_resp_reader_keep(&client->reader));
    output->size = 0;
}

bool hf_mux_take(struct hf_mux_client *client)
{
    receive(client);
    return hf_resp_reader_next(&client->reader, &client->message) ==
           HF_RESP_MESSAGE;
}

void hf_mux_send(struct hf_mux_client *client, struct hf_mux_request request)
{
    struct hf_buf buf = {0};

    request.id = ++client->id;
    hf_mux_request_encode(&request, &buf);
    hf_clients_on_data(client->node->clients, client->conn, buf.data, buf.size);
    hf_buf_fini(&buf);
}

struct hf_mux_reply hf_mux_take_reply(struct hf_mux_client *client,
                                      enum hf_verb verb)
{
    struct hf_mux_reply reply;

    assert_true(hf_mux_take(client));
    expect_ok(hf_mux_reply_decode(&reply, verb, &client->message));
    return reply;
}

struct hf_mux_reply hf_mux_call(struct hf_mux_client *client,
                                struct hf_mux_request request)
{
    struct hf_mux_reply reply;

    hf_mux_send(client, request);
    hf_fake_turn(client->node, client->node->now);
    reply = hf_mux_take_reply(client, request.verb);
    assert_true(reply.id == client->id);
    return reply;
}

static void encode_command(struct hf_mux_client *client,
                           struct hf_command command, struct hf_buf *buf)
{
    command.session = client->session;
    command.sequence = ++client->sequence;
    command.done = command.sequence;
    buf->size = 0;
    hf_command_encode(&command, HF_VERSION_FIRST, buf);
}

void hf_mux_send_command(struct hf_mux_client *client,
                         struct hf_command command)
{
    struct hf_buf buf = {0};

    encode_command(client, command, &buf);
    hf_mux_send(client, (struct hf_mux_request){
                            .verb = HF_VERB_DO,
                            .remaining_ms = 1000,
                            .command = {buf.data, buf.size},
                        });
    hf_buf_fini(&buf);
}

struct hf_result hf_mux_do(struct hf_mux_client *client,
                           struct hf_command command)
{
    struct hf_mux_reply reply;
    struct hf_result result;

    hf_mux_send_command(client, command);
    hf_fake_turn(client->node, client->node->now);
    reply = hf_mux_take_reply(client, HF_VERB_DO);
    expect_ok(reply.err);
    assert_true(reply.id == client->id);
    expect_ok(hf_command_decode_result(&result, reply.result.data,
                                       reply.result.size));
    return result;
}

struct hf_command hf_mux_lock(const char *key, const struct hf_nonce *nonce,
                              bool queue)
{
    return (struct hf_command){
        .kind = HF_COMMAND_LOCK,
        .key = hf_key_of(key),
        .nonce = *nonce,
        .lease_ms = 60000,
        .queue = queue,
    };
}

void hf_mux_connect(struct hf_mux_client *client, struct hf_node *node,
                    uint64_t conn)
{
    struct hf_mux_hello hello;
    struct hf_bytes text;
    struct hf_buf buf = {0};

    *client = (struct hf_mux_client){.node = node, .conn = conn};
    hf_resp_reader_init(&client->reader, false, HF_PROTOCOL_LIMITS);
    hf_fake_open(node, conn);
    hf_mux_write_hello(&buf);
    hf_clients_on_data(node->clients, conn, buf.data, buf.size);
    hf_buf_fini(&buf);
    hf_fake_turn(node, node->now);
    assert_true(hf_mux_take(client));
    expect_ok(hf_mux_hello_decode(&hello, &client->message, &text));
    assert_true(hello.node == 1 && hello.leader == 1);
}

static void open_session(struct hf_mux_client *client)
{
    struct hf_mux_request open = {
        .verb = HF_VERB_OPEN,
        .secret = hf_mux_secret,
        .label = {"label", 5},
    };
    struct hf_mux_reply reply;

    open.secret.bytes[0] = (uint8_t)client->conn;
    reply = hf_mux_call(client, open);
    expect_ok(reply.err);
    client->session = reply.session;
    assert_true(client->session != 0);
    assert_true(client->node->conns[client->conn].session == client->session);
}

void hf_mux_hold_keys(struct hf_mux_client *client, int count)
{
    for (int i = 0; i < count; i++) {
        char key[16];

        (void)snprintf(key, sizeof(key), "%s%d", i % 2 ? "a" : "b", i);
        (void)hf_mux_do(client,
                        hf_mux_lock(key, &(struct hf_nonce){{0}}, false));
    }
}

int hf_mux_set_up(void **state)
{
    static struct hf_mux_setup setup;

    hf_fake_init(&setup.node);
    hf_mux_connect(&setup.one, &setup.node, 1);
    hf_mux_connect(&setup.two, &setup.node, 2);
    open_session(&setup.one);
    open_session(&setup.two);
    *state = &setup;
    return 0;
}

int hf_mux_tear_down(void **state)
{
    struct hf_mux_setup *setup = *state;

    hf_resp_reader_fini(&setup->one.reader);
    hf_resp_reader_fini(&setup->two.reader);
    hf_fake_fini(&setup->node);
    return 0;
}
