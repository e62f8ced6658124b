/* test_clients_mux.c - the client port of a node, as the library uses it. */
#include <stdio.h>
#include <stdlib.h>

#include "lib/expect.h"
#include "lib/runner.h"
#include "node/clients_state.h"
#include "node/fake_node.h"

static const struct hf_nonce secret = {"secret of a sess"};
static const struct hf_nonce nonce_a = {"nonce a, 16 byte"};
static const struct hf_nonce nonce_b = {"nonce b, 16 byte"};

/* A client with one connection, which takes one message at a time. */
struct client {
    struct hf_node *node;
    uint64_t conn;
    uint64_t id; /* of the last request */
    uint64_t session;
    uint64_t sequence;
    struct hf_resp_reader reader;
    struct hf_resp_message message; /* the last one taken */
};

struct setup {
    struct hf_node node;
    struct client one, two;
};

/* ---- The client ---------------------------------------------------------*/

/* Feed the output of the connection to the client's reader. */
static void receive(struct client *client)
{
    struct hf_buf *output = &client->node->conns[client->conn].output;

    expect_ok(hf_resp_reader_keep(&client->reader));
    expect_ok(hf_resp_reader_feed(&client->reader, output->data, output->size));
    expect_ok(hf_resp_reader_keep(&client->reader));
    output->size = 0;
}

static bool take_message(struct client *client)
{
    receive(client);
    return hf_resp_reader_next(&client->reader, &client->message) ==
           HF_RESP_MESSAGE;
}

static void send_request(struct client *client, struct hf_mux_request request)
{
    struct hf_buf buf = {0};

    request.id = ++client->id;
    hf_mux_request_encode(&request, &buf);
    hf_clients_on_data(client->node->clients, client->conn, buf.data, buf.size);
    hf_buf_fini(&buf);
}

static struct hf_mux_reply take_reply(struct client *client, enum hf_verb verb)
{
    struct hf_mux_reply reply;

    assert_true(take_message(client));
    expect_ok(hf_mux_reply_decode(&reply, verb, &client->message));
    return reply;
}

/* Send a request and take its reply, which is the next message. */
static struct hf_mux_reply call(struct client *client,
                                struct hf_mux_request request)
{
    struct hf_mux_reply reply;

    send_request(client, request);
    hf_fake_turn(client->node, client->node->now);
    reply = take_reply(client, request.verb);
    assert_true(reply.id == client->id);
    return reply;
}

static void encode_command(struct client *client, struct hf_command command,
                           struct hf_buf *buf)
{
    command.session = client->session;
    command.sequence = ++client->sequence;
    command.done = command.sequence;
    buf->size = 0;
    hf_command_encode(&command, HF_VERSION_FIRST, buf);
}

static void send_command(struct client *client, struct hf_command command)
{
    struct hf_buf buf = {0};

    encode_command(client, command, &buf);
    send_request(client, (struct hf_mux_request){
                             .verb = HF_VERB_DO,
                             .remaining_ms = 1000,
                             .command = {buf.data, buf.size},
                         });
    hf_buf_fini(&buf);
}

static struct hf_result do_command(struct client *client,
                                   struct hf_command command)
{
    struct hf_mux_reply reply;
    struct hf_result result;

    send_command(client, command);
    hf_fake_turn(client->node, client->node->now);
    reply = take_reply(client, HF_VERB_DO);
    expect_ok(reply.err);
    assert_true(reply.id == client->id);
    expect_ok(hf_command_decode_result(&result, reply.result.data,
                                       reply.result.size));
    return result;
}

static struct hf_command lock_command(const char *key,
                                      const struct hf_nonce *nonce, bool queue)
{
    return (struct hf_command){
        .kind = HF_COMMAND_LOCK,
        .key = hf_key_of(key),
        .nonce = *nonce,
        .lease_ms = 60000,
        .queue = queue,
    };
}

static void connect_client(struct client *client, struct hf_node *node,
                           uint64_t conn)
{
    struct hf_mux_hello hello;
    struct hf_bytes text;
    struct hf_buf buf = {0};

    *client = (struct client){.node = node, .conn = conn};
    hf_resp_reader_init(&client->reader, false, HF_PROTOCOL_LIMITS);
    hf_fake_open(node, conn);
    hf_mux_write_hello(&buf);
    hf_clients_on_data(node->clients, conn, buf.data, buf.size);
    hf_buf_fini(&buf);
    hf_fake_turn(node, node->now);
    assert_true(take_message(client));
    expect_ok(hf_mux_hello_decode(&hello, &client->message, &text));
    assert_true(hello.node == 1 && hello.leader == 1);
}

static void open_session(struct client *client)
{
    struct hf_mux_request open = {
        .verb = HF_VERB_OPEN,
        .secret = secret,
        .label = {"label", 5},
    };
    struct hf_mux_reply reply;

    open.secret.bytes[0] = (uint8_t)client->conn;
    reply = call(client, open);
    expect_ok(reply.err);
    client->session = reply.session;
    assert_true(client->session != 0);
    assert_true(client->node->conns[client->conn].session == client->session);
}

static int set_up(void **state)
{
    static struct setup setup;

    hf_fake_init(&setup.node);
    connect_client(&setup.one, &setup.node, 1);
    connect_client(&setup.two, &setup.node, 2);
    open_session(&setup.one);
    open_session(&setup.two);
    *state = &setup;
    return 0;
}

static int tear_down(void **state)
{
    struct setup *setup = *state;

    hf_resp_reader_fini(&setup->one.reader);
    hf_resp_reader_fini(&setup->two.reader);
    hf_fake_fini(&setup->node);
    return 0;
}

/* ---- Sessions -----------------------------------------------------------*/

static void a_connection_has_one_session(void **state)
{
    struct setup *setup = *state;
    struct client three;
    struct hf_mux_request open = {.verb = HF_VERB_OPEN, .secret = secret};

    expect_err(call(&setup->one, open).err, HF_ESTATE);
    open.verb = HF_VERB_ATTACH;
    open.session = setup->two.session;
    expect_err(call(&setup->one, open).err, HF_ESTATE);
    /* A second OPEN is refused while the first is unanswered: otherwise the
     * first session would stay attached after the connection is closed. */
    connect_client(&three, &setup->node, 3);
    open.verb = HF_VERB_OPEN;
    send_request(&three, open);
    send_request(&three, open);
    hf_fake_turn(&setup->node, 1000);
    expect_err(take_reply(&three, HF_VERB_OPEN).err, HF_ESTATE);
    expect_ok(take_reply(&three, HF_VERB_OPEN).err);
    hf_resp_reader_fini(&three.reader);
}

static void a_session_is_attached_again_by_its_secret(void **state)
{
    struct setup *setup = *state;
    struct hf_mux_request attach = {
        .verb = HF_VERB_ATTACH,
        .session = setup->one.session,
        .secret = secret,
    };
    struct client three;

    connect_client(&three, &setup->node, 3);
    expect_err(call(&three, attach).err, HF_ESTATE);
    attach.secret.bytes[0] = 2; /* the secret of another session */
    expect_err(call(&three, attach).err, HF_ESTATE);
    attach.secret.bytes[0] = 1;
    expect_ok(call(&three, attach).err);
    assert_true(setup->node.conns[3].session == setup->one.session);
    hf_resp_reader_fini(&three.reader);
}

/* A node that is behind may not know the session, so it must confirm its table
 * before it reports that the session is gone. */
static void a_missing_session_is_confirmed_first(void **state)
{
    struct setup *setup = *state;
    struct client three;

    connect_client(&three, &setup->node, 3);
    setup->node.is_stuck = true;
    send_request(&three, (struct hf_mux_request){.verb = HF_VERB_ATTACH,
                                                 .session = 77,
                                                 .secret = secret});
    hf_fake_turn(&setup->node, 1000);
    assert_false(take_message(&three));
    setup->node.failure.err = HF_EUNAVAIL;
    setup->node.is_stuck = false;
    hf_fake_turn(&setup->node, 1000);
    expect_err(take_reply(&three, HF_VERB_ATTACH).err, HF_EUNAVAIL);
    hf_resp_reader_fini(&three.reader);
}

static void detach_closes_the_session_at_once(void **state)
{
    struct setup *setup = *state;
    uint64_t session = setup->one.session;

    expect_ok(
        call(&setup->one, (struct hf_mux_request){.verb = HF_VERB_DETACH}).err);
    assert_null(hf_table_find_session(&setup->node.store.table, session));
    assert_true(setup->node.conns[1].session == 0);
    expect_err(
        call(&setup->one, (struct hf_mux_request){.verb = HF_VERB_DETACH}).err,
        HF_ESTATE);
}

/* The session stays open, because the client may attach it again, at any
 * node. */
static void a_closed_connection_leaves_its_session(void **state)
{
    struct setup *setup = *state;

    expect_err(do_command(&setup->one, lock_command("k", &nonce_a, true)).err,
               HF_OK);
    expect_err(do_command(&setup->two, lock_command("k", &nonce_b, true)).err,
               HF_EBUSY);
    hf_clients_on_closed(setup->node.clients, 2);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(
        hf_table_find(&setup->node.store.table, hf_key_of("k"))->waiters, 1);
    assert_true(setup->node.conns[2].session == 0);
}

/* ---- Commands -----------------------------------------------------------*/

static void replies_come_in_any_order(void **state)
{
    struct setup *setup = *state;
    struct hf_mux_reply reply;

    setup->node.is_stuck = true;
    send_command(&setup->one, lock_command("k", &nonce_a, false));
    reply = call(&setup->one, (struct hf_mux_request){.verb = HF_VERB_PING});
    expect_ok(reply.err);
    assert_false(take_message(&setup->one));
    setup->node.is_stuck = false;
    hf_fake_turn(&setup->node, 1000);
    reply = take_reply(&setup->one, HF_VERB_DO);
    assert_true(reply.id == setup->one.id - 1);
}

static void output_is_sent_once_per_turn(void **state)
{
    struct setup *setup = *state;
    size_t before = setup->node.conns[1].sends;

    for (int i = 0; i < 100; i++)
        send_request(&setup->one,
                     (struct hf_mux_request){.verb = HF_VERB_PING});
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(setup->node.conns[1].sends, before + 1);
}

static void grants_are_pushed(void **state)
{
    struct setup *setup = *state;
    struct hf_result result;
    struct hf_mux_push push;
    struct hf_command unlock = {
        .kind = HF_COMMAND_UNLOCK,
        .key = {"k", 1},
        .nonce = nonce_a,
    };

    result = do_command(&setup->one, lock_command("k", &nonce_a, false));
    unlock.token = result.token;
    result = do_command(&setup->two, lock_command("k", &nonce_b, true));
    expect_err(result.err, HF_EBUSY);
    assert_int_equal(result.position, 1);
    setup->node.age_ms = 42;
    expect_ok(do_command(&setup->one, unlock).err);
    assert_true(take_message(&setup->two));
    expect_ok(hf_mux_push_decode(&push, &setup->two.message));
    assert_int_equal(push.kind, HF_MUX_PUSH_GRANT);
    assert_true(hf_nonce_equal(&push.nonce, &nonce_b));
    assert_true(push.token == unlock.token + 1 && push.age_ms == 42);
}

static void commands_of_nodes_are_refused(void **state)
{
    static const enum hf_command_kind kinds[] = {
        HF_COMMAND_OPEN, HF_COMMAND_CLOSE, HF_COMMAND_EXPIRE,
        HF_COMMAND_VERSION};
    struct setup *setup = *state;
    size_t before;

    expect_ok(do_command(&setup->one, lock_command("k", &nonce_a, false)).err);
    before = setup->node.submitted;
    for (size_t i = 0; i < HF_TEST_COUNT(kinds); i++) {
        send_command(&setup->one, (struct hf_command){.kind = kinds[i],
                                                      .key = {"k", 1},
                                                      .nonce = nonce_b,
                                                      .version = 1,
                                                      .token = 1});
        hf_fake_turn(&setup->node, 1000);
        expect_err(take_reply(&setup->one, HF_VERB_DO).err, HF_EDENIED);
    }
    assert_int_equal(setup->node.submitted, before);
}

static void commands_of_other_sessions_are_refused(void **state)
{
    struct setup *setup = *state;

    setup->one.session = setup->two.session;
    send_command(&setup->one, lock_command("k", &nonce_a, false));
    hf_fake_turn(&setup->node, 1000);
    expect_err(take_reply(&setup->one, HF_VERB_DO).err, HF_ESTATE);
    assert_int_equal(setup->node.store.table.holds.count, 0);
}

static void malformed_commands_are_refused(void **state)
{
    struct setup *setup = *state;
    struct hf_mux_request request = {
        .verb = HF_VERB_DO,
        .command = {"\1x", 2},
    };

    expect_err(call(&setup->one, request).err, HF_EPROTO);
    request.command = hf_bytes_of("\377"); /* a command of a newer version */
    expect_err(call(&setup->one, request).err, HF_EUNSUPPORTED);
}

static void outcomes_without_a_result_are_errors(void **state)
{
    struct setup *setup = *state;
    struct hf_mux_reply reply;

    setup->node.failure =
        (struct hf_node_outcome){.err = HF_ELIMIT, .no_space = true};
    send_command(&setup->one, lock_command("k", &nonce_a, false));
    hf_fake_turn(&setup->node, 1000);
    reply = take_reply(&setup->one, HF_VERB_DO);
    expect_err(reply.err, HF_ELIMIT);
    assert_true(reply.no_space);
    setup->node.failure = (struct hf_node_outcome){.err = HF_EINDOUBT};
    send_command(&setup->one, lock_command("k", &nonce_a, false));
    hf_fake_turn(&setup->node, 1000);
    expect_err(take_reply(&setup->one, HF_VERB_DO).err, HF_EINDOUBT);
}

/* ---- Reads --------------------------------------------------------------*/

static void keys_are_read(void **state)
{
    struct setup *setup = *state;
    struct hf_mux_request read = {.verb = HF_VERB_READ, .key = {"k", 1}};
    struct hf_mux_reply reply;
    struct hf_info info;
    size_t before;

    expect_ok(do_command(&setup->one, lock_command("k", &nonce_a, false)).err);
    before = setup->node.submitted;
    reply = call(&setup->two, read);
    assert_int_equal(reply.info_count, 1);
    assert_true(reply.index == 1);
    expect_ok(hf_protocol_decode_info(&info, hf_resp_bytes(reply.infos)));
    assert_true(info.held && info.token == 1 && info.left_ms == 60000);
    assert_string_equal(info.owner, "label");
    assert_int_equal(setup->node.submitted, before);
    read.linearizable = true;
    reply = call(&setup->two, read);
    assert_int_equal(setup->node.submitted, before + 1);
    expect_ok(hf_protocol_decode_info(&info, hf_resp_bytes(reply.infos)));
    assert_true(info.held);
    read.key = hf_key_of("free");
    reply = call(&setup->two, read);
    expect_ok(hf_protocol_decode_info(&info, hf_resp_bytes(reply.infos)));
    assert_false(info.held);
}

/* Unsent replies take memory, so a read waits until there is room for its
 * reply. */
static void large_replies_wait_for_room(void **state)
{
    struct setup *setup = *state;
    struct hf_mux_request read = {.verb = HF_VERB_READ, .key = {"k", 1}};
    struct hf_command lock = lock_command("k", &nonce_a, false);
    struct hf_conn *conn = hf_conn_find(setup->node.clients, 2);
    char *value = calloc(1, HF_VALUE_MAX);

    assert_non_null(value);
    lock.value = (struct hf_bytes){value, HF_VALUE_MAX};
    expect_ok(do_command(&setup->one, lock).err);
    free(value);
    for (int i = 0; i < 100; i++) {
        read.linearizable = i >= 50;
        send_request(&setup->two, read);
        assert_true(conn->output.size < HF_CLIENT_ROOM + 2 * HF_VALUE_MAX);
    }
    setup->node.is_stuck = true;
    hf_fake_turn(&setup->node, 1000);
    setup->node.is_stuck = false;
    hf_clients_on_unsent(setup->node.clients, 2, HF_CLIENT_ROOM);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(conn->op_count, 50);
    assert_int_equal(conn->output.size, 0);
    hf_clients_on_unsent(setup->node.clients, 2, 0);
    hf_fake_turn(&setup->node, 1000);
    for (int i = 0; i < 100; i++)
        expect_ok(take_reply(&setup->two, HF_VERB_READ).err);
    assert_int_equal(conn->op_count, 0);
    assert_false(setup->node.conns[2].is_closed);
}

static void claims_are_looked_up(void **state)
{
    struct setup *setup = *state;
    struct hf_mux_request lookup = {
        .verb = HF_VERB_LOOKUP,
        .key = {"k", 1},
        .secret = nonce_a,
    };
    struct hf_mux_reply reply;

    expect_ok(do_command(&setup->one, lock_command("k", &nonce_a, false)).err);
    (void)do_command(&setup->two, lock_command("k", &nonce_b, true));
    reply = call(&setup->one, lookup);
    assert_int_equal(reply.state, HF_CLAIM_HELD);
    assert_true(reply.token == 1);
    lookup.secret = nonce_b;
    lookup.linearizable = true;
    reply = call(&setup->one, lookup);
    assert_int_equal(reply.state, HF_CLAIM_QUEUED);
    assert_int_equal(reply.position, 1);
    lookup.secret = secret;
    assert_int_equal(call(&setup->one, lookup).state, HF_CLAIM_UNKNOWN);
}

/* Take the pages of a list, and count its keys. */
static size_t take_pages(struct client *client, size_t *pages)
{
    size_t keys = 0;
    bool more = true;

    *pages = 0;
    while (more) {
        struct hf_mux_reply reply;

        reply = take_reply(client, HF_VERB_LIST);
        expect_ok(reply.err);
        keys += reply.info_count;
        more = reply.more;
        (*pages)++;
    }
    return keys;
}

static void hold_keys(struct client *client, int count)
{
    for (int i = 0; i < count; i++) {
        char key[16];

        (void)snprintf(key, sizeof(key), "%s%d", i % 2 ? "a" : "b", i);
        (void)do_command(client,
                         lock_command(key, &(struct hf_nonce){{0}}, false));
    }
}

static void lists_have_pages(void **state)
{
    struct setup *setup = *state;
    struct hf_mux_request list = {.verb = HF_VERB_LIST};
    size_t pages;

    hold_keys(&setup->one, 1300);
    send_request(&setup->two, list);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(take_pages(&setup->two, &pages), 1300);
    assert_int_equal(pages, 3);
    list.linearizable = true;
    list.key = hf_key_of("a");
    send_request(&setup->two, list);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(take_pages(&setup->two, &pages), 650);
    list.key = hf_key_of("none");
    send_request(&setup->two, list);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(take_pages(&setup->two, &pages), 0);
}

/* The pages of a LIST are made only as fast as the client reads them. */
static void a_list_waits_for_its_reader(void **state)
{
    struct setup *setup = *state;
    struct hf_conn *conn = hf_conn_find(setup->node.clients, 2);
    size_t pages;

    hold_keys(&setup->one, 1300);
    hf_clients_on_unsent(setup->node.clients, 2, HF_CLIENT_ROOM);
    send_request(&setup->two, (struct hf_mux_request){.verb = HF_VERB_LIST});
    hf_fake_turn(&setup->node, 1000);
    assert_false(take_message(&setup->two));
    assert_int_equal(conn->list_count, 1);
    hf_clients_on_unsent(setup->node.clients, 2, 0);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(take_pages(&setup->two, &pages), 1300);
    assert_int_equal(conn->list_count, 0);
}

static void lists_end_when_a_snapshot_is_loaded(void **state)
{
    struct setup *setup = *state;

    hold_keys(&setup->one, 600);
    hf_clients_on_unsent(setup->node.clients, 2, HF_CLIENT_ROOM);
    for (int i = 0; i <= HF_CLIENT_LISTS_MAX; i++)
        send_request(&setup->two,
                     (struct hf_mux_request){.verb = HF_VERB_LIST});
    hf_fake_turn(&setup->node, 1000);
    expect_err(take_reply(&setup->two, HF_VERB_LIST).err, HF_ELIMIT);
    hf_fake_restore(&setup->node, 1000);
    hf_fake_turn(&setup->node, 1000);
    for (int i = 0; i < HF_CLIENT_LISTS_MAX; i++)
        expect_err(take_reply(&setup->two, HF_VERB_LIST).err, HF_EUNAVAIL);
    assert_false(take_message(&setup->two));
}

/* ---- Watches ------------------------------------------------------------*/

static struct hf_event take_event(struct client *client, uint64_t watch)
{
    struct hf_mux_push push;
    struct hf_event event;

    assert_true(take_message(client));
    expect_ok(hf_mux_push_decode(&push, &client->message));
    assert_int_equal(push.kind, HF_MUX_PUSH_EVENT);
    assert_true(push.watch == watch);
    expect_ok(hf_protocol_decode_event(&event, push.event));
    return event;
}

static void watch_keys(struct client *client, uint64_t number,
                       const char *prefix, uint64_t from, bool exact)
{
    expect_ok(call(client, (struct hf_mux_request){.verb = HF_VERB_WATCH,
                                                   .watch = number,
                                                   .key = hf_key_of(prefix),
                                                   .from = from,
                                                   .exact = exact})
                  .err);
}

static void events_are_pushed_to_watches(void **state)
{
    struct setup *setup = *state;
    struct hf_event event;

    watch_keys(&setup->two, 5, "k", 0, false);
    (void)do_command(&setup->one, lock_command("k1", &nonce_a, false));
    event = take_event(&setup->two, 5);
    assert_int_equal(event.kind, HF_EVENT_GRANTED);
    assert_true(event.index == 1);
    assert_string_equal(event.owner, "label");
    (void)do_command(&setup->one, lock_command("x", &nonce_b, false));
    assert_false(take_message(&setup->two));
    watch_keys(&setup->two, 6, "x", 1, true);
    event = take_event(&setup->two, 6);
    assert_true(event.index == 2);
    expect_ok(call(&setup->two,
                   (struct hf_mux_request){.verb = HF_VERB_UNWATCH, .watch = 5})
                  .err);
    (void)do_command(&setup->one, lock_command("k2", &secret, false));
    (void)do_command(&setup->one, lock_command("xx", &secret, false));
    assert_false(take_message(&setup->two));
}

/* The history keeps a few hundred events; the watch falls behind by more. */
static void a_slow_watch_gets_dropped_events(void **state)
{
    struct setup *setup = *state;
    struct hf_event event;
    uint64_t next;

    watch_keys(&setup->two, 5, "", 0, false);
    hf_clients_on_unsent(setup->node.clients, 2, HF_CLIENT_ROOM);
    hold_keys(&setup->one, 3000);
    assert_false(take_message(&setup->two));
    hf_clients_on_unsent(setup->node.clients, 2, 0);
    hf_fake_turn(&setup->node, 1000);
    event = take_event(&setup->two, 5);
    assert_int_equal(event.kind, HF_EVENT_DROPPED);
    next = event.index;
    assert_true(next > 1);
    for (; next <= 3000; next++)
        assert_true(take_event(&setup->two, 5).index == next);
    assert_false(take_message(&setup->two));
}

static void a_watch_continues_after_a_snapshot(void **state)
{
    struct setup *setup = *state;
    struct hf_event event;

    watch_keys(&setup->two, 5, "", 0, false);
    hf_fake_restore(&setup->node, 100);
    hf_fake_turn(&setup->node, 1000);
    event = take_event(&setup->two, 5);
    assert_int_equal(event.kind, HF_EVENT_DROPPED);
    assert_true(event.index == 101);
    assert_false(take_message(&setup->two));
}

static void the_number_of_watches_is_limited(void **state)
{
    struct setup *setup = *state;
    struct hf_mux_request watch = {.verb = HF_VERB_WATCH};

    for (watch.watch = 0; watch.watch < HF_CLIENT_WATCHES_MAX; watch.watch++)
        expect_ok(call(&setup->two, watch).err);
    expect_err(call(&setup->two, watch).err, HF_ELIMIT);
    watch.watch = 3;
    expect_err(call(&setup->two, watch).err, HF_EINVAL);
}

/* ---- Pushes of the leader -----------------------------------------------*/

static void a_new_leader_is_pushed(void **state)
{
    struct setup *setup = *state;
    struct hf_mux_push push;

    setup->node.leader = 2;
    hf_clients_hooks.on_leader(setup->node.clients, 2);
    hf_fake_turn(&setup->node, 1000);
    assert_true(take_message(&setup->one));
    expect_ok(hf_mux_push_decode(&push, &setup->one.message));
    assert_int_equal(push.kind, HF_MUX_PUSH_LEADER);
    assert_true(push.leader == 2);
    assert_true(hf_bytes_equal(push.address, hf_bytes_of("127.0.0.1:12")));
}

static void requests_without_an_id_close_the_connection(void **state)
{
    struct setup *setup = *state;

    hf_fake_call(&setup->node, 1, "1 NONSENSE\r\n",
                 "*2\r\n:1\r\n-PROTO unknown command\r\n");
    assert_false(setup->node.conns[1].is_closed);
    hf_fake_call(&setup->node, 1, "PING\r\n",
                 "-PROTO a request begins with an id from 1 to 2^63 - 1\r\n");
    assert_true(setup->node.conns[1].is_closed);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_connection_has_one_session),
        CASE(a_session_is_attached_again_by_its_secret),
        CASE(a_missing_session_is_confirmed_first),
        CASE(detach_closes_the_session_at_once),
        CASE(a_closed_connection_leaves_its_session),
        CASE(replies_come_in_any_order),
        CASE(output_is_sent_once_per_turn),
        CASE(grants_are_pushed),
        CASE(commands_of_nodes_are_refused),
        CASE(commands_of_other_sessions_are_refused),
        CASE(malformed_commands_are_refused),
        CASE(outcomes_without_a_result_are_errors),
        CASE(keys_are_read),
        CASE(large_replies_wait_for_room),
        CASE(claims_are_looked_up),
        CASE(lists_have_pages),
        CASE(a_list_waits_for_its_reader),
        CASE(lists_end_when_a_snapshot_is_loaded),
        CASE(events_are_pushed_to_watches),
        CASE(a_slow_watch_gets_dropped_events),
        CASE(a_watch_continues_after_a_snapshot),
        CASE(the_number_of_watches_is_limited),
        CASE(a_new_leader_is_pushed),
        CASE(requests_without_an_id_close_the_connection),
    };

    return hf_test_main("clients_mux", cases, HF_TEST_COUNT(cases), 0);
}
