/* test_clients.c - connections of clients: limits, hostile input, memory. */
#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"
#include "lib/alloc.h"
#include "lib/expect.h"
#include "lib/runner.h"
#include "node/clients_state.h"
#include "node/fake_node.h"

#define HELLO "*3\r\n$5\r\nHELLO\r\n$1\r\n1\r\n$3\r\nMUX\r\n"
#define OPEN                                                                   \
    "*4\r\n$1\r\n1\r\n$4\r\nOPEN\r\n$16\r\n0123456789abcdef\r\n$0\r\n\r\n"

#define NONCE "000000000000000000000000000000aa"
#define TOO_MANY_REQUESTS                                                      \
    "-LIMIT too many requests without a reply at this node\r\n"

static int set_up(void **state)
{
    static struct hf_node node;

    hf_fake_init(&node);
    hf_fake_open(&node, 1);
    hf_fake_open(&node, 2);
    *state = &node;
    return 0;
}

static int tear_down(void **state)
{
    hf_fake_fini(*state);
    return 0;
}

static const struct hf_server_counters *counters(const struct hf_node *node)
{
    return &node->clients->server.counters;
}

static void switch_to_mux(struct hf_node *node, uint64_t conn)
{
    hf_fake_call(node, conn, HELLO, "*11\r\n~");
}

/* ---- Input --------------------------------------------------------------*/

static void hostile_lengths_close_the_connection(void **state)
{
    struct hf_node *node = *state;
    long before = hf_alloc_bytes();

    /* The replies, but not the announced elements, take memory. */
    hf_fake_send(node, 1, "*100000000\r\n");
    hf_fake_send(node, 2, "*1\r\n$100000000\r\n");
    assert_in_range(hf_alloc_bytes() - before, 0, 4096);
    hf_fake_call(node, 1, "", "-LIMIT the array has too many elements\r\n");
    assert_true(node->conns[1].is_closed);
    hf_fake_expect(node, 2, "-LIMIT the message is too large\r\n");
    assert_true(node->conns[2].is_closed);
    assert_int_equal(counters(node)->connections_broken, 2);
    hf_fake_send(node, 1, "PING\r\n"); /* arrives too late */
    assert_int_equal(node->clients->server.count, 0);
}

static void input_may_come_byte_by_byte(void **state)
{
    static const char text[] = "*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\nPING\r\n";
    struct hf_node *node = *state;

    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        hf_clients_on_data(node->clients, 1, &text[i], 1);
        hf_fake_turn(node, 1000);
    }
    hf_fake_expect(node, 1, "$3\r\nabc\r\n+PONG\r\n");
}

/* Unanswered requests and their replies take memory, so a connection that has
 * too many is not read. */
static void too_many_requests_pause_the_connection(void **state)
{
    struct hf_node *node = *state;

    switch_to_mux(node, 1);
    hf_fake_call(node, 1, OPEN, "*2\r\n:1\r\n:1\r\n");
    node->is_stuck = true;
    for (int i = 0; i < HF_CLIENT_REQUESTS_MAX + 10; i++) {
        assert_int_equal(node->conns[1].is_paused, i >= HF_CLIENT_REQUESTS_MAX);
        if (i % 100 == 0) /* the limit of one turn is another one */
            hf_fake_step(node);
        hf_fake_send(node, 1,
                     "*4\r\n$1\r\n7\r\n$4\r\nREAD\r\n$1\r\nk\r\n$1\r\n1\r\n");
    }
    assert_int_equal(node->submitted, 1 + HF_CLIENT_REQUESTS_MAX);
    assert_int_equal(counters(node)->connections_paused, 1);
    node->is_stuck = false;
    hf_fake_turn(node, 1000);
    assert_false(node->conns[1].is_paused);
    assert_int_equal(node->submitted, 1 + HF_CLIENT_REQUESTS_MAX + 10);
    assert_int_equal(node->clients->unanswered, 0);
}

static void a_plain_client_that_waits_is_not_read_without_bound(void **state)
{
    struct hf_node *node = *state;
    char text[4001];

    hf_fake_call(node, 1, "LOCK k 60000\r\n", "*3\r\n~");
    hf_fake_call(node, 2, "LOCK k 60000 WAIT 5000\r\n", "");
    assert_false(node->conns[2].is_paused);
    memset(text, ' ', sizeof(text));
    (void)snprintf(text + sizeof(text) - 7, 7, "PING\r\n");
    for (int i = 0; i < 50; i++)
        hf_fake_send(node, 2, text);
    assert_true(node->conns[2].is_paused);
    hf_fake_turn(node, 6000);
    assert_false(node->conns[2].is_paused);
    hf_fake_expect(node, 2, "-TIMEDOUT timed out\r\n+PONG\r\n+PONG\r\n~");
}

/* ---- Limits of the node -------------------------------------------------*/

static void too_many_connections_are_refused(void **state)
{
    struct hf_node *node = *state;

    for (uint64_t conn = 100; node->clients->server.count < HF_CLIENTS_MAX;
         conn++)
        hf_fake_open(node, conn);
    hf_fake_open(node, 3);
    hf_fake_expect(node, 3, "-LIMIT this node has too many connections\r\n");
    assert_true(node->conns[3].is_closed);
    assert_int_equal(counters(node)->connections_refused, 1);
    hf_clients_on_closed(node->clients, 100);
    hf_fake_open(node, 3);
    hf_fake_call(node, 3, "PING\r\n", "+PONG\r\n");
}

static void a_full_leader_sends_mux_clients_away(void **state)
{
    struct hf_node *node = *state;

    node->leader = 1;
    for (uint64_t conn = 100;
         node->clients->server.count <= HF_CLIENTS_FULL(HF_CLIENTS_MAX); conn++)
        hf_fake_open(node, conn);
    hf_fake_call(node, 1, "HELLO 1\r\n", "*~");
    hf_fake_call(node, 1, "HELLO 1 MUX\r\n", "*2\r\n:0\r\n$4\r\nFULL\r\n");
    assert_true(node->conns[1].is_closed);
    node->leader = 2;
    hf_fake_open(node, 3);
    hf_fake_call(node, 3, "HELLO 1 MUX\r\n", "*~");
    assert_false(node->conns[3].is_closed);
}

/* The shell may have fewer descriptors than HF_CLIENTS_MAX. */
static void the_shell_lowers_the_number_of_connections(void **state)
{
    struct hf_node *node = *state;

    node->clients->server.opts.max = 32;
    for (uint64_t conn = 100; node->clients->server.count < 30; conn++)
        hf_fake_open(node, conn);
    hf_fake_call(node, 1, "HELLO 1 MUX\r\n", "*11\r\n~");
    hf_fake_open(node, 3);
    hf_fake_call(node, 2, "HELLO 1 MUX\r\n", "*2\r\n:0\r\n$4\r\nFULL\r\n");
    hf_fake_open(node, 4);
    hf_fake_open(node, 5);
    hf_fake_open(node, 6);
    hf_fake_expect(node, 6, HF_SERVER_REFUSAL);
    hf_clients_on_refused(node->clients);
    assert_int_equal(counters(node)->connections_refused, 3);
    hf_fake_send(node, 5, "INFO\r\n");
    hf_fake_turn(node, 1000);
    assert_non_null(memmem(node->conns[5].output.data,
                           node->conns[5].output.size, "\r\nmaxclients:32\r\n",
                           17));
}

/* Seem to keep `size` bytes of requests of the connection 1, more than
 * HF_CLIENT_SCARCE. */
static void keep_bytes(struct hf_node *node, size_t size)
{
    hf_conn_keep_bytes(hf_conn_find(node->clients, 1), size);
}

static void drop_bytes(struct hf_node *node, size_t size)
{
    hf_conn_drop_bytes(hf_conn_find(node->clients, 1), size);
}

/* LOCKs are refused first, so that holders can still unlock. */
static void unanswered_bytes_are_limited(void **state)
{
    struct hf_node *node = *state;

    hf_fake_call(node, 1, "LOCK k 60000\r\n", "*3\r\n~");
    keep_bytes(node, HF_UNANSWERED_LOCK_MAX);
    hf_fake_call(node, 1, "LOCK k 60000\r\n", TOO_MANY_REQUESTS);
    hf_fake_call(node, 1, "UNLOCK k 00000000000000000000000000000000 1\r\n",
                 "-NOTOWNER held by another claim\r\n");
    keep_bytes(node, HF_UNANSWERED_MAX - HF_UNANSWERED_LOCK_MAX);
    hf_fake_call(node, 1, "READ k\r\n", TOO_MANY_REQUESTS);
    hf_fake_call(node, 1, "PING\r\n", "+PONG\r\n");
    assert_int_equal(counters(node)->requests_refused, 2);
    drop_bytes(node, HF_UNANSWERED_MAX);
    assert_int_equal(node->clients->unanswered, 0);
}

/* A client that does not read the replies to its READs, for example, may use
 * up the limit for as long as it likes. */
static void a_client_with_few_bytes_is_served_beyond_their_limit(void **state)
{
    struct hf_node *node = *state;
    struct hf_conn *conn;

    keep_bytes(node, HF_UNANSWERED_MAX);
    hf_fake_call(node, 2, "LOCK k 60000 NONCE " NONCE "\r\n", "*3\r\n~");
    hf_fake_call(node, 2, "RENEW k " NONCE " 1 60000\r\n", "+OK\r\n");
    hf_fake_call(node, 2, "READ k\r\n", "*22\r\n~");
    hf_fake_call(node, 2, "UNLOCK k " NONCE " 1\r\n", "+OK\r\n");
    conn = hf_conn_find(node->clients, 2);
    assert_int_equal(conn->unanswered, 0);
    hf_conn_keep_bytes(conn, HF_CLIENT_SCARCE);
    hf_fake_call(node, 2, "READ k\r\n", TOO_MANY_REQUESTS);
    hf_conn_drop_bytes(conn, HF_CLIENT_SCARCE);
    drop_bytes(node, HF_UNANSWERED_MAX);
    assert_int_equal(node->clients->unanswered, 0);
}

/* Write a LOCK of "k" that waits, with the largest value. */
static void write_long_lock(struct hf_buf *buf)
{
    static const char *const words[] = {"LOCK", "k",    "60000",
                                        "WAIT", "5000", "VALUE"};
    static const char value[HF_VALUE_MAX];

    hf_resp_write_array(buf, HF_TEST_COUNT(words) + 1);
    for (size_t i = 0; i < HF_TEST_COUNT(words); i++)
        hf_resp_write_text(buf, words[i]);
    hf_resp_write_bulk(buf, value, sizeof(value));
}

/* A plain LOCK is kept while its session is opened, and for as long as it
 * waits. */
static void bytes_of_waiting_locks_are_limited(void **state)
{
    struct hf_node *node = *state;
    struct hf_clients *clients = node->clients;
    struct hf_buf lock = {0};
    long before;

    write_long_lock(&lock);
    hf_fake_open(node, 3);
    hf_fake_call(node, 1, "LOCK k 60000\r\n", "*3\r\n~");
    hf_clients_on_data(clients, 2, lock.data, lock.size);
    hf_fake_turn(node, 1000);
    assert_in_range(clients->unanswered, HF_VALUE_MAX, HF_VALUE_MAX + 10);
    clients->unanswered += HF_UNANSWERED_LOCK_MAX - 2 * HF_VALUE_MAX;
    before = hf_alloc_bytes();
    hf_clients_on_data(clients, 3, lock.data, lock.size);
    assert_in_range(hf_alloc_bytes() - before, 0, 4096);
    hf_fake_call(node, 3, "", TOO_MANY_REQUESTS);
    clients->unanswered -= HF_UNANSWERED_LOCK_MAX - 2 * HF_VALUE_MAX;
    hf_fake_turn(node, 6000);
    hf_fake_expect(node, 2, "-TIMEDOUT timed out\r\n");
    assert_int_equal(clients->unanswered, 0);
    hf_clients_on_data(clients, 2, lock.data, lock.size);
    hf_fake_turn(node, 6000);
    hf_clients_on_closed(clients, 2);
    hf_fake_turn(node, 6000);
    assert_int_equal(clients->unanswered, 0);
    hf_buf_fini(&lock);
}

/* Clients that send large requests in parts must not use up the memory. */
static void bytes_of_incomplete_requests_are_limited(void **state)
{
    struct hf_node *node = *state;
    struct hf_buf part = {0};
    uint64_t conn = 100;
    long before = 0;

    hf_resp_write_array(&part, 2);
    hf_resp_write_bulk(&part, NULL, 0);
    hf_buf_raw(&part, "$190000\r\n", 9);
    while (part.size < 180000)
        hf_buf_raw(&part, "0123456789", 10);
    for (; conn < 1000 && counters(node)->connections_broken == 0; conn++) {
        hf_fake_open(node, conn);
        before = hf_alloc_bytes();
        hf_clients_on_data(node->clients, conn, part.data, part.size);
        assert_true(node->clients->server.input <= HF_INPUT_MAX);
    }
    assert_true(conn < 1000);
    assert_true(node->clients->server.input + part.size > HF_INPUT_MAX);
    assert_in_range(hf_alloc_bytes() - before, 0, 4096);
    hf_fake_turn(node, 1000);
    assert_int_equal(node->clients->server.count, conn - 100 + 1);
    hf_fake_call(node, 1, "PING\r\n", "+PONG\r\n");
    while (--conn >= 100)
        hf_clients_on_closed(node->clients, conn);
    assert_int_equal(node->clients->server.input, 0);
    hf_buf_fini(&part);
}

/* ---- Anything -----------------------------------------------------------*/

static const char *const words[] = {
    "PING",
    "ECHO",
    "HELLO",
    "1",
    "MUX",
    "INFO",
    "STATUS",
    "LOCK",
    "k",
    "k2",
    "60000",
    "WAIT",
    "10",
    "NONCE",
    "UNLOCK",
    "RENEW",
    "READ",
    "LOCAL",
    "UPDATE",
    "CANCEL",
    "FORCE",
    "NOW",
    "LIST",
    "AFTER",
    "COUNT",
    "LOOKUP",
    "WATCH",
    "UNWATCH",
    "OPEN",
    "DO",
    "0",
    "ATTACH",
    "DETACH",
    "FROM",
    "VALUE",
    "\1\3\1",
    "0123456789abcdef",
    "000000000000000000000000000000aa",
};

/* Write a valid request, or one of random words. */
static void write_random_request(struct hf_random *random, struct hf_buf *buf)
{
    static const char *const good[] = {
        "*3\r\n$4\r\nLOCK\r\n$1\r\nk\r\n$5\r\n60000\r\n",
        "LOCK k 60000 WAIT 50\r\n",
        "LIST\r\n",
        "READ k\r\n",
        "WATCH k FROM 1\r\n",
        "UNWATCH\r\n",
        "HELLO 1 MUX\r\n",
        "1 OPEN 0123456789abcdef x\r\n",
        "2 WATCH 1 k 1 0\r\n",
        "3 LIST k 1\r\n",
        "4 READ k 1\r\n",
        "5 DETACH\r\n",
    };
    uint32_t count = 1 + hf_random_below(random, 6);

    if (hf_random_below(random, 2) == 0) {
        const char *text = good[hf_random_below(random, HF_TEST_COUNT(good))];

        hf_buf_raw(buf, text, strlen(text));
        return;
    }
    hf_resp_write_array(buf, count);
    for (uint32_t i = 0; i < count; i++)
        hf_resp_write_text(
            buf, words[hf_random_below(random, HF_TEST_COUNT(words))]);
}

/* Send a random request, sometimes with one changed bit, over a random
 * connection. If the connection is closed, and sometimes if it is not, first
 * reopen it. */
static void disturb(struct hf_node *node, struct hf_random *random)
{
    uint64_t conn = 1 + hf_random_below(random, HF_FAKE_CONNS - 1);
    struct hf_buf buf = {0};
    uint32_t size;

    if (node->conns[conn].is_closed || hf_random_below(random, 50) == 0) {
        if (!node->conns[conn].is_closed)
            hf_clients_on_closed(node->clients, conn);
        hf_attachments_remove(node, node->conns[conn].session, conn);
        hf_fake_open(node, conn);
    }
    write_random_request(random, &buf);
    size = (uint32_t)buf.size;
    if (hf_random_below(random, 20) == 0)
        buf.data[hf_random_below(random, size)] ^= 1;
    hf_clients_on_data(node->clients, conn, buf.data, size);
    if (hf_random_below(random, 10) == 0)
        hf_clients_on_unsent(node->clients, conn,
                             hf_random_below(random, 2 * HF_CLIENT_ROOM));
    else
        hf_clients_on_unsent(node->clients, conn, 0);
    hf_buf_fini(&buf);
}

/* After valid and random requests, closed connections, lost grants and
 * failures, the node has freed everything. */
static void anything_leaves_the_node_in_order(void **state)
{
    struct hf_node *node = *state;
    struct hf_random random;

    hf_random_init(&random, 7);
    for (uint64_t conn = 3; conn < HF_FAKE_CONNS; conn++)
        hf_fake_open(node, conn);
    for (int i = 0; i < 50000 / (int)hf_test_slowness(); i++) {
        disturb(node, &random);
        node->is_stuck = hf_random_below(&random, 4) == 0;
        node->loses_grants = hf_random_below(&random, 4) == 0;
        node->age_ms = hf_random_below(&random, 3) - 1;
        node->failure.err =
            hf_random_below(&random, 20) == 0 ? HF_EINDOUBT : HF_OK;
        hf_fake_turn(node, node->now + hf_random_below(&random, 100));
        for (size_t conn = 1; conn < HF_FAKE_CONNS; conn++)
            node->conns[conn].output.size = 0;
        if (hf_random_below(&random, 1000) == 0)
            hf_fake_restore(node, node->store.table.index + 5);
    }
    assert_true(node->submitted > 5000 / hf_test_slowness());
    assert_true(counters(node)->events > 500 / hf_test_slowness());
    node->is_stuck = false;
    node->failure.err = HF_OK;
    for (uint64_t conn = 1; conn < HF_FAKE_CONNS; conn++)
        hf_clients_on_closed(node->clients, conn);
    hf_fake_turn(node, node->now);
    assert_int_equal(node->clients->server.count, 0);
    assert_int_equal(node->clients->unanswered, 0);
    assert_int_equal(node->clients->server.input, 0);
    assert_int_equal(node->clients->server.unsent, 0);
    assert_int_equal(node->clients->wait_count, 0);
    assert_int_equal(node->clients->server.mux_count, 0);
    assert_true(hf_dlist_is_empty(&node->clients->server.watching));
}

/* ---- Memory -------------------------------------------------------------*/

/* An idle connection takes less than 2 KiB, so that a node can have many. */
static void idle_connections_are_small(void **state)
{
    struct hf_node *node = *state;
    long before;

    hf_fake_turn(node, 1000);
    before = hf_alloc_bytes();
    for (uint64_t conn = 1000; conn < 2000; conn++) {
        hf_fake_open(node, conn);
        hf_fake_send(node, conn, HELLO);
        hf_fake_turn(node, 1000);
    }
    assert_true((hf_alloc_bytes() - before) / 1000 < 2048);
}

static const char *const script[] = {
    "PING\r\n",
    "LOCK a 60000 NONCE 000000000000000000000000000000aa\r\n",
    "WATCH a FROM 1\r\nUNWATCH\r\n",
    "LIST\r\nREAD a\r\nREAD a LOCAL\r\nINFO\r\nSTATUS\r\n",
    "LOOKUP a 000000000000000000000000000000aa\r\n",
    "UNLOCK a 000000000000000000000000000000aa 1\r\n",
    HELLO,
};

static void run_script(struct hf_node *node)
{
    hf_fake_open(node, 3);
    for (size_t i = 0; i < HF_TEST_COUNT(script); i++) {
        if (node->conns[3].is_closed)
            return;
        hf_fake_send(node, 3, script[i]);
        hf_fake_turn(node, 1000);
        node->conns[3].output.size = 0;
    }
    hf_clients_on_closed(node->clients, 3);
    hf_fake_turn(node, 1000);
}

/* If memory is exhausted, a request fails or its connection is closed; the node
 * and the other connections go on. */
static void running_out_of_memory_harms_one_connection(void **state)
{
    struct hf_node *node = *state;
    bool failed = true;

    for (unsigned long nth = 1; failed; nth++) {
        hf_alloc_fail(nth, 1);
        run_script(node);
        failed = hf_alloc_failed();
        hf_fake_call(node, 2, "PING\r\n", "+PONG\r\n");
        if (!node->conns[3].is_closed)
            hf_clients_on_closed(node->clients, 3);
        hf_fake_turn(node, 1000);
        assert_int_equal(node->clients->unanswered, 0);
        assert_int_equal(node->clients->server.count, 2);
    }
}

static void input_without_memory_breaks_its_connection(void **state)
{
    static const char rest[4096];
    struct hf_node *node = *state;

    hf_fake_send(node, 1, "*2\r\n$4\r\nECHO\r\n$9000\r\n");
    hf_alloc_fail(1, 1);
    hf_clients_on_data(node->clients, 1, rest, sizeof(rest));
    assert_true(hf_alloc_failed());
    hf_fake_turn(node, 1000);
    assert_true(node->conns[1].is_closed);
    assert_int_equal(counters(node)->connections_broken, 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(hostile_lengths_close_the_connection),
        CASE(input_may_come_byte_by_byte),
        CASE(too_many_requests_pause_the_connection),
        CASE(a_plain_client_that_waits_is_not_read_without_bound),
        CASE(too_many_connections_are_refused),
        CASE(a_full_leader_sends_mux_clients_away),
        CASE(the_shell_lowers_the_number_of_connections),
        CASE(unanswered_bytes_are_limited),
        CASE(a_client_with_few_bytes_is_served_beyond_their_limit),
        CASE(bytes_of_waiting_locks_are_limited),
        CASE(bytes_of_incomplete_requests_are_limited),
        CASE(anything_leaves_the_node_in_order),
        CASE(idle_connections_are_small),
        CASE(running_out_of_memory_harms_one_connection),
        CASE(input_without_memory_breaks_its_connection),
    };

    return hf_test_main("clients", cases, HF_TEST_COUNT(cases), 0);
}
