/* test_clients_limits.c - the limits of requests, in both modes, and their
 * counters in INFO. See also test_clients.c. */
#include <stdio.h>
#include <stdlib.h>

#include "lib/expect.h"
#include "lib/runner.h"
#include "node/mux_client.h"

/* The fixture has the MUX clients `one` and `two`, and this plain one. */
#define PLAIN 3

static int set_up(void **state)
{
    struct hf_mux_setup *setup;

    (void)hf_mux_set_up(state);
    setup = *state;
    hf_fake_open(&setup->node, PLAIN);
    return 0;
}

static const struct hf_server_counters *counters(
    const struct hf_mux_setup *setup)
{
    return &setup->node.clients->server.counters;
}

/* Send a plain command that ends with a word of `size` bytes. */
static void send_long(struct hf_mux_setup *setup, const char *const *words,
                      size_t count, size_t size)
{
    struct hf_buf buf = {0};
    char *bytes = malloc(size);

    assert_non_null(bytes);
    memset(bytes, 'x', size);
    hf_resp_write_array(&buf, count + 1);
    for (size_t i = 0; i < count; i++)
        hf_resp_write_text(&buf, words[i]);
    hf_resp_write_bulk(&buf, bytes, size);
    hf_clients_on_data(setup->node.clients, PLAIN, buf.data, buf.size);
    hf_fake_turn(&setup->node, setup->node.now);
    hf_buf_fini(&buf);
    free(bytes);
}

/* ---- Frames -------------------------------------------------------------*/

static void announced_lengths_are_limited_in_mux_mode(void **state)
{
    struct hf_mux_setup *setup = *state;

    hf_fake_call(&setup->node, 1, "*100000000\r\n",
                 "-LIMIT the array has too many elements\r\n");
    hf_fake_call(&setup->node, 2, "*1\r\n$196609\r\n",
                 "-LIMIT the message is too large\r\n");
    assert_true(setup->node.conns[1].is_closed);
    assert_true(setup->node.conns[2].is_closed);
    assert_int_equal(counters(setup)->connections_broken, 2);
}

static void the_largest_elements_are_accepted(void **state)
{
    struct hf_mux_setup *setup = *state;

    hf_fake_send(&setup->node, PLAIN, "*1024\r\n");
    hf_fake_call(&setup->node, 1, "*1024\r\n", "");
    assert_false(setup->node.conns[PLAIN].is_closed);
    assert_false(setup->node.conns[1].is_closed);
    hf_fake_open(&setup->node, 4);
    hf_fake_call(&setup->node, 4, "*1025\r\n",
                 "-LIMIT the array has too many elements\r\n");
    assert_true(setup->node.conns[4].is_closed);
}

/* A frame that does not become complete in time ends its connection, however
 * steadily its bytes arrive. */
static void a_slow_writer_is_closed_in_mux_mode(void **state)
{
    struct hf_mux_setup *setup = *state;

    hf_fake_send(&setup->node, 1, "*2\r\n$1\r\n1\r\n$100\r\n");
    for (hf_time now = 1000; now < 31000; now += 1000) {
        hf_fake_send(&setup->node, 1, "x");
        hf_fake_turn(&setup->node, now);
        assert_false(setup->node.conns[1].is_closed);
    }
    hf_fake_turn(&setup->node, 31000);
    assert_true(setup->node.conns[1].is_closed);
    assert_true(counters(setup)->connections_idle >= 1);
}

/* ---- Strings ------------------------------------------------------------*/

static void strings_are_limited_in_plain_mode(void **state)
{
    static const char *const lock[] = {"LOCK", "k", "60000", "VALUE"};
    static const char *const note[] = {"LOCK", "k", "60000", "NOTE"};
    static const char *const key[] = {"READ"};
    struct hf_mux_setup *setup = *state;

    send_long(setup, key, 1, HF_KEY_MAX + 1);
    hf_fake_expect(&setup->node, PLAIN, "-INVAL a key has 1 to 1024 bytes\r\n");
    send_long(setup, lock, 4, HF_VALUE_MAX + 1);
    hf_fake_expect(&setup->node, PLAIN, "-INVAL a value has at most 65536~");
    send_long(setup, note, 4, HF_NOTE_MAX + 1);
    hf_fake_expect(&setup->node, PLAIN, "-INVAL a value has at most 65536~");
    assert_int_equal(counters(setup)->requests_invalid, 3);
    assert_int_equal(setup->node.store.table.holds.count, 0);
    send_long(setup, key, 1, HF_KEY_MAX);
    hf_fake_expect(&setup->node, PLAIN, "*6\r\n~");
    send_long(setup, lock, 4, HF_VALUE_MAX);
    hf_fake_expect(&setup->node, PLAIN, "*3\r\n~");
    assert_false(setup->node.conns[PLAIN].is_closed);
}

/* The encoder asserts that strings are short enough, so change a length in an
 * encoded command: the bytes after it belong to the longer string. */
static void expect_refused(struct hf_mux_setup *setup,
                           const struct hf_command *command, size_t offset,
                           uint32_t length)
{
    struct hf_buf buf = {0};
    struct hf_mux_request request = {.verb = HF_VERB_DO, .remaining_ms = 1000};
    size_t before = setup->node.submitted;

    hf_command_encode(command, HF_VERSION_FIRST, &buf);
    for (size_t i = 0; i < sizeof(length); i++)
        buf.data[offset + i] = (uint8_t)(length >> 8 * i);
    for (size_t i = 0; i < 2UL * HF_VALUE_MAX; i++)
        hf_buf_u8(&buf, 0);
    request.command = (struct hf_bytes){buf.data, buf.size};
    expect_err(hf_mux_call(&setup->one, request).err, HF_EPROTO);
    assert_int_equal(setup->node.submitted, before);
    hf_buf_fini(&buf);
}

static void strings_are_limited_in_mux_mode(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_command lock = hf_mux_lock("k", &hf_mux_nonce_a, false);
    const size_t key = 2 + 3 * sizeof(uint64_t);
    const size_t value = key + 4 + 1 + 16 + 4 + 1;
    const size_t note = value + 4;

    lock.session = setup->one.session;
    lock.sequence = lock.done = 1;
    expect_refused(setup, &lock, key, HF_KEY_MAX + 1);
    expect_refused(setup, &lock, value, HF_VALUE_MAX + 1);
    expect_refused(setup, &lock, note, HF_NOTE_MAX + 1);
    assert_int_equal(counters(setup)->requests_invalid, 3);
}

/* ---- Waiters ------------------------------------------------------------*/

/* The cases set a count of waiters to its limit, instead of adding waiters. */
static void expect_no_more_waiters(struct hf_mux_setup *setup)
{
    uint64_t before = counters(setup)->requests_refused;

    hf_fake_call(&setup->node, PLAIN, "LOCK k 1000 WAIT 1000\r\n",
                 "-LIMIT too many waiters for this key, or of this session"
                 "\r\n");
    expect_err(
        hf_mux_do(&setup->two, hf_mux_lock("k", &hf_mux_nonce_b, true)).err,
        HF_ELIMIT);
    assert_int_equal(counters(setup)->requests_refused, before + 2);
}

static void waiters_of_a_key_are_limited(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_hold *hold;

    (void)hf_mux_do(&setup->one, hf_mux_lock("k", &hf_mux_nonce_a, false));
    hold = hf_table_find(&setup->node.store.table, hf_key_of("k"));
    hold->waiters = HF_WAITERS_MAX;
    expect_no_more_waiters(setup);
    hold->waiters = 0;
}

static void waiters_of_a_session_are_limited(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_table *table = &setup->node.store.table;
    uint64_t plain;

    (void)hf_mux_do(&setup->one, hf_mux_lock("k", &hf_mux_nonce_a, false));
    hf_fake_call(&setup->node, PLAIN, "LOCK k 1000\r\n", "-BUSY ~");
    plain = setup->node.conns[PLAIN].session;
    hf_table_find_session(table, plain)->waiters = HF_SESSION_WAITERS_MAX;
    hf_table_find_session(table, setup->two.session)->waiters =
        HF_SESSION_WAITERS_MAX;
    expect_no_more_waiters(setup);
    hf_table_find_session(table, plain)->waiters = 0;
    hf_table_find_session(table, setup->two.session)->waiters = 0;
}

/* ---- Sessions, keys, watches and lists ----------------------------------*/

static void the_number_of_sessions_is_limited(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_map *sessions = &setup->node.store.table.sessions;
    size_t count = sessions->count;
    struct hf_mux_client other;

    hf_mux_connect(&other, &setup->node, 4);
    sessions->count = HF_SESSIONS_MAX;
    hf_fake_call(&setup->node, PLAIN, "LOCK k 1000\r\n",
                 "-LIMIT the cluster has too many sessions\r\n");
    hf_fake_call(&setup->node, 4, "1 OPEN 0123456789abcdef x\r\n",
                 "*2\r\n:1\r\n-LIMIT the cluster has too many sessions\r\n");
    sessions->count = count;
    hf_fake_call(&setup->node, PLAIN, "LOCK k 1000\r\n", "*3\r\n~");
    hf_resp_reader_fini(&other.reader);
}

static void the_number_of_keys_is_limited(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_map *holds = &setup->node.store.table.holds;
    size_t count = holds->count;

    hf_fake_call(&setup->node, PLAIN, "LOCK k 1000\r\n", "*3\r\n~");
    holds->count = HF_HOLDS_MAX;
    hf_fake_call(&setup->node, PLAIN, "LOCK l 1000\r\n",
                 "-LIMIT the lock table has too many keys\r\n");
    hf_fake_call(&setup->node, PLAIN, "LOCK l 1000 WAIT 1000\r\n",
                 "-LIMIT the lock table has too many keys\r\n");
    holds->count = count + 1;
}

static void limits_of_a_connection_are_named(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_conn *conn = hf_conn_find(setup->node.clients, 1);

    conn->serve.watch_count = HF_CLIENT_WATCHES_MAX;
    hf_fake_call(&setup->node, 1, "9 WATCH 7 k 0 0\r\n",
                 "*2\r\n:9\r\n-LIMIT this connection or this node has too "
                 "many watches\r\n");
    conn->serve.watch_count = 0;
    conn->serve.list_count = HF_CLIENT_LISTS_MAX;
    hf_fake_call(&setup->node, 1, "9 LIST k 0\r\n",
                 "*2\r\n:9\r\n-LIMIT too many lists are running\r\n");
    hf_fake_send(&setup->node, 1, "9 LIST k 1\r\n");
    for (int i = 0; i < 3; i++) /* the lists that seem to run never end */
        hf_fake_step(&setup->node);
    hf_fake_expect(&setup->node, 1,
                   "*2\r\n:9\r\n-LIMIT too many lists are running\r\n");
    conn->serve.list_count = 0;
}

/* Add a watch of a key of HF_KEY_MAX bytes. Returns false if it is refused. */
static bool add_long_watch(struct hf_mux_client *client, uint64_t number)
{
    static const char key[HF_KEY_MAX] = "k";
    const struct hf_mux_request watch = {
        .verb = HF_VERB_WATCH,
        .watch = number,
        .key = {key, sizeof(key)},
    };
    enum hf_err err = hf_mux_call(client, watch).err;

    if (err)
        expect_err(err, HF_ELIMIT);
    return !err;
}

/* The prefixes of watches take memory. When there are too many, a client still
 * gets the few that it needs. */
static void the_memory_of_watches_is_limited(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_clients *clients = setup->node.clients;
    uint64_t count = 0;

    clients->server.watch_bytes += HF_WATCHES_BYTES - (size_t)64 * HF_KEY_MAX;
    while (add_long_watch(&setup->one, count + 1))
        count++;
    assert_in_range(count, 16, 63);
    assert_true(clients->server.watch_bytes <= HF_WATCHES_BYTES);
    assert_true(add_long_watch(&setup->two, 1));
    assert_true(add_long_watch(&setup->two, 2));
    while (add_long_watch(&setup->two, ++count))
        assert_in_range(count, 1, 100);
    (void)hf_mux_call(&setup->two, (struct hf_mux_request){
                                       .verb = HF_VERB_UNWATCH, .watch = 1});
    assert_true(add_long_watch(&setup->two, 1));
    clients->server.watch_bytes -= HF_WATCHES_BYTES - (size_t)64 * HF_KEY_MAX;
}

/* ---- Unanswered requests ------------------------------------------------*/

/* LOCKs are refused first, so that holders can still unlock. */
static void unanswered_bytes_are_limited_in_mux_mode(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_conn *conn = hf_conn_find(setup->node.clients, 1);
    struct hf_command unlock = {
        .kind = HF_COMMAND_UNLOCK,
        .key = {"k", 1},
        .nonce = hf_mux_nonce_b,
        .token = 1,
    };
    const struct hf_mux_request read = {
        .verb = HF_VERB_READ,
        .key = {"k", 1},
        .linearizable = true,
    };

    hf_conn_keep_bytes(conn, HF_UNANSWERED_LOCK_MAX);
    hf_mux_send_command(&setup->one, hf_mux_lock("k", &hf_mux_nonce_a, true));
    hf_fake_turn(&setup->node, 1000);
    expect_err(hf_mux_take_reply(&setup->one, HF_VERB_DO).err, HF_ELIMIT);
    expect_err(hf_mux_do(&setup->one, unlock).err, HF_ENOTHELD);
    hf_conn_keep_bytes(conn, HF_UNANSWERED_MAX - HF_UNANSWERED_LOCK_MAX);
    expect_err(hf_mux_call(&setup->one, read).err, HF_ELIMIT);
    assert_int_equal(counters(setup)->requests_refused, 2);
    hf_conn_drop_bytes(conn, HF_UNANSWERED_MAX);
}

/* ---- Output -------------------------------------------------------------*/

/* A plain client that sends requests and does not read the replies is stopped
 * when its output is full: the node executes no more of them. */
static void a_plain_client_that_does_not_read_is_not_served(void **state)
{
    struct hf_mux_setup *setup = *state;
    uint64_t requests;

    hf_clients_on_unsent(setup->node.clients, PLAIN, HF_CLIENT_ROOM);
    hf_fake_turn(&setup->node, 1000);
    requests = counters(setup)->requests;
    for (int i = 0; i < 100; i++)
        hf_fake_call(&setup->node, PLAIN, "INFO\r\n", "");
    assert_int_equal(counters(setup)->requests, requests);
    hf_fake_turn(&setup->node, 11000);
    assert_true(setup->node.conns[PLAIN].is_closed);
    assert_int_equal(counters(setup)->connections_slow, 1);
}

/* Send `count` copies of `text` at once, as they arrive between two turns. */
static void send_copies(struct hf_mux_setup *setup, uint64_t conn,
                        const char *text, size_t count)
{
    struct hf_buf buf = {0};

    while (count-- > 0)
        hf_buf_raw(&buf, text, strlen(text));
    assert_false(buf.failed);
    hf_clients_on_data(setup->node.clients, conn, buf.data, buf.size);
    hf_buf_fini(&buf);
}

/* Run turns until nothing more is due, while the client does not read. */
static void run_without_reading(struct hf_mux_setup *setup, uint64_t conn)
{
    struct hf_node *node = &setup->node;
    size_t unsent;

    do {
        unsent = node->conns[conn].output.size;
        hf_fake_step(node);
        hf_clients_on_unsent(node->clients, conn,
                             node->conns[conn].output.size);
    } while (node->conns[conn].output.size > unsent);
}

/* Requests that create no op, such as STATUS, are limited by their replies: 2
 * MiB of them would have 70 MiB of replies. */
static void requests_wait_until_their_replies_are_read(void **state)
{
    enum {
        COUNT = 200000,
        EACH = 512
    };
    struct hf_mux_setup *setup = *state;
    struct hf_fake_conn *fake = &setup->node.conns[1];
    struct hf_conn *conn = hf_conn_find(setup->node.clients, 1);
    size_t reply_size, total = 0;

    hf_fake_send(&setup->node, 1, "1 STATUS\r\n");
    hf_fake_turn(&setup->node, 1000);
    reply_size = fake->output.size;
    assert_in_range(reply_size, 100, EACH);
    fake->output.size = 0;
    send_copies(setup, 1, "1 STATUS\r\n", COUNT);
    assert_true(fake->is_paused);
    assert_true(conn->serve.output.size < HF_CLIENT_REPLY_ROOM + EACH);
    while (total < COUNT * reply_size) {
        run_without_reading(setup, 1);
        assert_in_range(fake->output.size, 1, HF_CLIENT_REPLY_ROOM + EACH);
        total += fake->output.size;
        fake->output.size = 0;
        hf_clients_on_unsent(setup->node.clients, 1, 0);
    }
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(total, COUNT * reply_size);
    assert_int_equal(fake->output.size, 0);
    assert_false(fake->is_paused);
    assert_false(fake->is_closed);
}

/* All clients wait for the end of a turn, so one of them cannot make it last
 * as long as it likes. */
static void expect_limited_turns(struct hf_mux_setup *setup, uint64_t conn,
                                 const char *ping, const char *pong)
{
    enum {
        COUNT = 8 * HF_CLIENT_TURN_MAX + 1
    };
    struct hf_fake_conn *fake = &setup->node.conns[conn];
    uint64_t before = counters(setup)->requests;

    send_copies(setup, conn, ping, COUNT);
    hf_fake_step(&setup->node);
    assert_int_equal(counters(setup)->requests, before + HF_CLIENT_TURN_MAX);
    hf_fake_step(&setup->node);
    assert_int_equal(counters(setup)->requests,
                     before + 2UL * HF_CLIENT_TURN_MAX);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(counters(setup)->requests, before + COUNT);
    assert_int_equal(fake->output.size, COUNT * strlen(pong));
    assert_false(fake->is_paused);
    fake->output.size = 0;
}

static void a_turn_executes_a_limited_number_of_requests(void **state)
{
    struct hf_mux_setup *setup = *state;

    expect_limited_turns(setup, 1, "1 PING\r\n", "*2\r\n:1\r\n+OK\r\n");
    expect_limited_turns(setup, PLAIN, "PING\r\n", "+PONG\r\n");
}

/* ---- Many connections with many requests --------------------------------*/

enum {
    CROWD_FIRST = 100,
    CROWD = 400, /* connections of a crowd */
    CROWD_REQUESTS = 2 * HF_CLIENT_TURN_MAX,
};

/* Let a crowd of plain connections send PINGs between two turns. */
static void send_pings_of_crowd(struct hf_mux_setup *setup)
{
    for (uint64_t i = 0; i < CROWD; i++) {
        hf_fake_open(&setup->node, CROWD_FIRST + i);
        send_copies(setup, CROWD_FIRST + i, "PING\r\n", CROWD_REQUESTS);
    }
}

/* However many connections send requests at once, a turn ends: the other nodes
 * take a leader for dead whose turns take too long. */
static void a_turn_executes_a_limited_number_of_requests_of_a_crowd(
    void **state)
{
    struct hf_mux_setup *setup = *state;
    uint64_t before = counters(setup)->requests;

    send_pings_of_crowd(setup);
    assert_in_range(counters(setup)->requests - before, 1,
                    HF_CLIENTS_REQUEST_WORK);
    for (int turns = 0; turns < 3; turns++) {
        uint64_t count = counters(setup)->requests;

        hf_fake_step(&setup->node);
        assert_in_range(counters(setup)->requests - count,
                        HF_CLIENTS_REQUEST_WORK / 2, HF_CLIENTS_REQUEST_WORK);
    }
    assert_true(counters(setup)->turns_full >= 3);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(counters(setup)->requests - before,
                     (uint64_t)CROWD * CROWD_REQUESTS);
    assert_int_equal(setup->node.clients->server.input, 0);
}

/* Connections that have sent too much wait for each other. One that sends a
 * request now and then does not wait for them. */
static void a_client_does_not_wait_for_a_crowd(void **state)
{
    struct hf_mux_setup *setup = *state;

    send_pings_of_crowd(setup);
    hf_fake_send(&setup->node, PLAIN, "PING\r\n");
    for (int turns = 0; turns < 4; turns++) {
        hf_fake_step(&setup->node);
        assert_false(hf_dlist_is_empty(&setup->node.clients->server.ready));
        hf_fake_send(&setup->node, PLAIN, "PING\r\n");
    }
    hf_fake_step(&setup->node);
    assert_true(setup->node.conns[PLAIN].output.size >=
                4 * strlen("+PONG\r\n"));
}

static uint32_t requests_of(struct hf_mux_setup *setup, uint64_t conn)
{
    return hf_conn_find(setup->node.clients, conn)->serve.turn_requests;
}

/* Nothing but the outcomes of its commands continues this connection. */
static void outcomes_of_commands_resume_a_paused_connection(void **state)
{
    enum {
        COUNT = HF_CLIENT_REQUESTS_MAX + 10
    };
    struct hf_mux_setup *setup = *state;
    struct hf_fake_conn *fake = &setup->node.conns[1];
    struct hf_command lock = hf_mux_lock("k", &hf_mux_nonce_a, false);
    size_t submitted = setup->node.submitted;

    setup->node.is_stuck = true;
    for (int i = 0; i < COUNT; i++) {
        if (i % 100 == 0) /* the limit of one turn is another one */
            hf_fake_step(&setup->node);
        hf_mux_send_command(&setup->one, lock);
    }
    assert_true(fake->is_paused);
    assert_int_equal(setup->node.submitted - submitted, HF_CLIENT_REQUESTS_MAX);
    setup->node.is_stuck = false;
    hf_fake_turn(&setup->node, 1000);
    assert_false(fake->is_paused);
    assert_int_equal(setup->node.submitted - submitted, COUNT);
}

/* The first connection does not use up the turn of the others. */
static void connections_with_many_requests_take_turns(void **state)
{
    struct hf_mux_setup *setup = *state;

    send_pings_of_crowd(setup);
    assert_int_equal(requests_of(setup, CROWD_FIRST), HF_CLIENT_TURN_MAX);
    assert_in_range(requests_of(setup, CROWD_FIRST + 1), 1,
                    HF_CLIENT_REQUEST_PART);
    for (int turns = 0; turns < 3; turns++)
        hf_fake_step(&setup->node);
    for (uint64_t i = 0; i < CROWD; i++)
        assert_true(requests_of(setup, CROWD_FIRST + i) > 0);
}

/* The requests of a connection whose turn it is not are not read: they would
 * only take memory. */
static void a_ready_connection_is_not_read(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_fake_conn *fake = &setup->node.conns[PLAIN];

    send_pings_of_crowd(setup);
    send_copies(setup, PLAIN, "PING\r\n", 10);
    assert_true(fake->is_paused);
    send_copies(setup, PLAIN, "PING\r\n", 10);
    assert_int_equal(hf_conn_find(setup->node.clients, PLAIN)->serve.input,
                     20 * strlen("PING\r\n"));
    hf_fake_turn(&setup->node, 1000);
    assert_false(fake->is_paused);
    assert_int_equal(fake->output.size, 20 * strlen("+PONG\r\n"));
}

/* The replies to other requests of the same turn use up the room. */
static void confirmed_reads_wait_for_room_after_other_replies(void **state)
{
    enum {
        READS = 10,
        OTHERS = 4 * HF_CLIENT_TURN_MAX
    };
    struct hf_mux_setup *setup = *state;
    struct hf_conn *conn = hf_conn_find(setup->node.clients, 1);

    setup->node.is_stuck = true;
    send_copies(setup, 1, "1 READ k 1\r\n", READS);
    hf_fake_step(&setup->node);
    send_copies(setup, 1, "1 STATUS\r\n", OTHERS);
    setup->node.is_stuck = false;
    for (int turns = 0; turns < 2; turns++) {
        setup->node.conns[1].output.size = 0;
        hf_fake_step(&setup->node);
        assert_true(setup->node.conns[1].output.size >= HF_CLIENT_ROOM);
        assert_int_equal(conn->op_count, READS);
    }
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(conn->op_count, 0);
}

static size_t count_reads_of_crowd(struct hf_mux_setup *setup)
{
    size_t count = 0;

    for (uint64_t i = 0; i < CROWD; i++)
        count += hf_conn_find(setup->node.clients, CROWD_FIRST + i)->op_count;
    return count;
}

/* A round of ReadIndex may confirm all of them at once. */
static void a_turn_answers_a_limited_number_of_reads(void **state)
{
    enum {
        EACH = 200
    };
    struct hf_mux_setup *setup = *state;
    size_t left;

    setup->node.is_stuck = true;
    for (uint64_t i = 0; i < CROWD; i++) {
        hf_fake_open(&setup->node, CROWD_FIRST + i);
        send_copies(setup, CROWD_FIRST + i, "HELLO 1 MUX\r\n", 1);
        send_copies(setup, CROWD_FIRST + i, "1 READ k 1\r\n", EACH);
    }
    hf_fake_turn(&setup->node, 1000);
    left = count_reads_of_crowd(setup);
    assert_int_equal(left, CROWD * EACH);
    setup->node.is_stuck = false;
    for (int turns = 0; turns < 4; turns++) {
        size_t before = left;

        hf_fake_step(&setup->node);
        left = count_reads_of_crowd(setup);
        assert_in_range(before - left, 1, HF_CLIENTS_WORK);
    }
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(count_reads_of_crowd(setup), 0);
}

/* ---- Lists and events ---------------------------------------------------*/

/* When output is scarce, a LIST uses up the room of its connection whenever the
 * client has read. */
static void a_list_does_not_starve_requests(void **state)
{
    struct hf_mux_setup *setup = *state;
    struct hf_clients *clients = setup->node.clients;
    struct hf_buf *output = &setup->node.conns[2].output;

    hf_mux_hold_keys(&setup->one, 1300);
    clients->server.unsent += HF_UNSENT_MAX + 1;
    hf_mux_send(&setup->two, (struct hf_mux_request){.verb = HF_VERB_LIST});
    run_without_reading(setup, 2);
    hf_fake_send(&setup->node, 2, "7 PING\r\n");
    run_without_reading(setup, 2);
    assert_null(memmem(output->data, output->size, ":7\r\n+OK\r\n", 9));
    output->size = 0;
    hf_clients_on_unsent(clients, 2, 0);
    run_without_reading(setup, 2);
    assert_non_null(memmem(output->data, output->size, ":7\r\n+OK\r\n", 9));
    assert_int_equal(hf_conn_find(clients, 2)->serve.list_count, 1);
    clients->server.unsent -= HF_UNSENT_MAX + 1;
}

static void a_slow_plain_watch_gets_dropped_events(void **state)
{
    struct hf_mux_setup *setup = *state;

    hf_fake_call(&setup->node, PLAIN, "WATCH a\r\n", ":0\r\n");
    hf_clients_on_unsent(setup->node.clients, PLAIN, HF_CLIENT_ROOM);
    hf_mux_hold_keys(&setup->one, 3000);
    hf_fake_expect(&setup->node, PLAIN, "");
    hf_clients_on_unsent(setup->node.clients, PLAIN, 0);
    hf_fake_turn(&setup->node, 1000);
    assert_int_equal(counters(setup)->events_dropped, 1);
    hf_fake_expect(&setup->node, PLAIN, "*7\r\n$5\r\nevent\r\n:~");
    assert_false(setup->node.conns[PLAIN].is_closed);
}

/* ---- INFO ---------------------------------------------------------------*/

static void info_shows_every_counter(void **state)
{
#define NAME(name) "\r\n" #name ":",
    static const char *const names[] = {HF_SERVER_COUNTERS(NAME)};
#undef NAME
    struct hf_mux_setup *setup = *state;
    struct hf_buf *output = &setup->node.conns[PLAIN].output;

    hf_fake_send(&setup->node, PLAIN, "INFO\r\n");
    hf_fake_turn(&setup->node, 1000);
    for (size_t i = 0; i < HF_TEST_COUNT(names); i++)
        assert_non_null(
            memmem(output->data, output->size, names[i], strlen(names[i])));
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_mux_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(announced_lengths_are_limited_in_mux_mode),
        CASE(the_largest_elements_are_accepted),
        CASE(a_slow_writer_is_closed_in_mux_mode),
        CASE(strings_are_limited_in_plain_mode),
        CASE(strings_are_limited_in_mux_mode),
        CASE(waiters_of_a_key_are_limited),
        CASE(waiters_of_a_session_are_limited),
        CASE(the_number_of_sessions_is_limited),
        CASE(the_number_of_keys_is_limited),
        CASE(limits_of_a_connection_are_named),
        CASE(the_memory_of_watches_is_limited),
        CASE(unanswered_bytes_are_limited_in_mux_mode),
        CASE(a_plain_client_that_does_not_read_is_not_served),
        CASE(requests_wait_until_their_replies_are_read),
        CASE(a_turn_executes_a_limited_number_of_requests),
        CASE(a_turn_executes_a_limited_number_of_requests_of_a_crowd),
        CASE(a_client_does_not_wait_for_a_crowd),
        CASE(outcomes_of_commands_resume_a_paused_connection),
        CASE(connections_with_many_requests_take_turns),
        CASE(a_ready_connection_is_not_read),
        CASE(confirmed_reads_wait_for_room_after_other_replies),
        CASE(a_turn_answers_a_limited_number_of_reads),
        CASE(a_list_does_not_starve_requests),
        CASE(a_slow_plain_watch_gets_dropped_events),
        CASE(info_shows_every_counter),
    };

    return hf_test_main("clients_limits", cases, HF_TEST_COUNT(cases), 0);
}
