/* test_clients.c - connections of clients: limits, slow and silent clients,
 * hostile input, memory. */
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

static const struct hf_clients_counters *counters(const struct hf_node *node)
{
    return &node->clients->counters;
}

static void switch_to_mux(struct hf_node *node, uint64_t conn)
{
    hf_fake_call(node, conn, HELLO, "*10\r\n~");
}

/* ---- Input --------------------------------------------------------------*/

static void hostile_lengths_close_the_connection(void **state)
{
    struct hf_node *node = *state;

    hf_fake_call(node, 1, "*100000000\r\n",
                 "-LIMIT the array has too many elements\r\n");
    assert_true(node->conns[1].is_closed);
    hf_fake_call(node, 2, "*1\r\n$100000000\r\n",
                 "-LIMIT the message is too large\r\n");
    assert_true(node->conns[2].is_closed);
    assert_int_equal(counters(node)->connections_broken, 2);
    hf_fake_send(node, 1, "PING\r\n"); /* arrives too late */
    assert_int_equal(node->clients->count, 0);
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

    for (uint64_t conn = 100; node->clients->count < HF_CLIENTS_MAX; conn++)
        hf_fake_open(node, conn);
    hf_fake_open(node, 3);
    hf_fake_expect(node, 3, "-LIMIT this node has too many connections\r\n");
    assert_true(node->conns[3].is_closed);
    assert_int_equal(counters(node)->connections_refused, 1);
    hf_clients_on_closed(node->clients, 100);
    hf_fake_open(node, 3);
    hf_fake_call(node, 3, "PING\r\n", "+PONG\r\n");
}

/* LOCKs are refused first, so that holders can still unlock. */
static void unanswered_bytes_are_limited(void **state)
{
    struct hf_node *node = *state;

    hf_fake_call(node, 1, "LOCK k 60000\r\n", "*3\r\n~");
    node->clients->unanswered += HF_UNANSWERED_LOCK_MAX;
    hf_fake_call(node, 1, "LOCK k 60000\r\n", "-LIMIT limit reached\r\n");
    hf_fake_call(node, 1, "UNLOCK k 00000000000000000000000000000000 1\r\n",
                 "-NOTOWNER held by another claim\r\n");
    node->clients->unanswered += HF_UNANSWERED_MAX - HF_UNANSWERED_LOCK_MAX;
    hf_fake_call(node, 1, "READ k\r\n", "-LIMIT limit reached\r\n");
    hf_fake_call(node, 1, "PING\r\n", "+PONG\r\n");
    assert_int_equal(counters(node)->requests_refused, 2);
    node->clients->unanswered -= HF_UNANSWERED_MAX;
    assert_int_equal(node->clients->unanswered, 0);
}

/* Clients that send large requests in parts must not use up the memory. */
static void bytes_of_incomplete_requests_are_limited(void **state)
{
    struct hf_node *node = *state;
    struct hf_buf part = {0};
    uint64_t conn = 100;

    hf_resp_write_array(&part, 2);
    hf_resp_write_bulk(&part, NULL, 0);
    hf_buf_raw(&part, "$190000\r\n", 9);
    while (part.size < 180000)
        hf_buf_raw(&part, "0123456789", 10);
    for (; conn < 1000 && counters(node)->connections_broken == 0; conn++) {
        hf_fake_open(node, conn);
        hf_clients_on_data(node->clients, conn, part.data, part.size);
    }
    assert_true(conn < 1000);
    assert_true(node->clients->input > HF_INPUT_MAX);
    hf_fake_turn(node, 1000);
    assert_true(node->clients->input <= HF_INPUT_MAX);
    hf_fake_call(node, 1, "PING\r\n", "+PONG\r\n");
    while (--conn >= 100)
        hf_clients_on_closed(node->clients, conn);
    assert_int_equal(node->clients->input, 0);
    hf_buf_fini(&part);
}

/* ---- Slow and silent clients --------------------------------------------*/

static void a_client_that_does_not_read_is_closed(void **state)
{
    struct hf_node *node = *state;

    switch_to_mux(node, 1);
    hf_clients_on_unsent(node->clients, 1, HF_CLIENT_OUTPUT_MAX);
    hf_fake_call(node, 1, "1 PING\r\n", "");
    assert_true(node->conns[1].is_closed);
    assert_int_equal(counters(node)->connections_slow, 1);
}

static void a_client_that_reads_nothing_for_long_is_closed(void **state)
{
    struct hf_node *node = *state;

    hf_clients_on_unsent(node->clients, 1, 500);
    hf_fake_turn(node, 9000);
    hf_clients_on_unsent(node->clients, 1, 400); /* the client reads a little */
    hf_fake_turn(node, 18000);
    assert_false(node->conns[1].is_closed);
    hf_fake_turn(node, 19999);
    assert_true(node->conns[1].is_closed);
    assert_int_equal(counters(node)->connections_slow, 1);
}

static void a_client_that_reads_everything_is_not_slow(void **state)
{
    struct hf_node *node = *state;

    hf_clients_on_unsent(node->clients, 1, 500);
    hf_clients_on_unsent(node->clients, 1, 0);
    hf_fake_turn(node, 25000);
    assert_false(node->conns[1].is_closed);
}

static void silent_connections_are_closed(void **state)
{
    struct hf_node *node = *state;

    switch_to_mux(node, 1);
    hf_fake_turn(node, 20000);
    hf_fake_call(node, 1, "1 PING\r\n", "*2\r\n:1\r\n+OK\r\n");
    hf_fake_turn(node, 31000);
    assert_false(node->conns[1].is_closed);
    assert_true(node->conns[2].is_closed);
    hf_fake_turn(node, 50000);
    assert_true(node->conns[1].is_closed);
    assert_int_equal(counters(node)->connections_idle, 2);
}

/* Only whole requests reset the idle time, so a client cannot keep a connection
 * open by sending single bytes. */
static void a_request_must_not_take_forever(void **state)
{
    struct hf_node *node = *state;

    for (hf_time now = 1000; now < 31000; now += 1000) {
        hf_fake_send(node, 1, "x");
        hf_fake_turn(node, now);
        assert_false(node->conns[1].is_closed);
    }
    hf_fake_turn(node, 31000);
    assert_true(node->conns[1].is_closed);
}

static void plain_clients_that_wait_may_be_silent(void **state)
{
    struct hf_node *node = *state;

    hf_fake_open(node, 3);
    hf_fake_call(node, 3, "LOCK k 600000\r\n", "*3\r\n~");
    hf_fake_call(node, 1, "LOCK k 60000 WAIT 100000\r\n", "");
    hf_fake_call(node, 2, "WATCH k\r\n", ":2\r\n");
    hf_fake_turn(node, 90000);
    assert_false(node->conns[1].is_closed);
    assert_false(node->conns[2].is_closed);
    assert_true(node->conns[3].is_closed);
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
    assert_int_equal(node->clients->count, 0);
    assert_int_equal(node->clients->unanswered, 0);
    assert_int_equal(node->clients->input, 0);
    assert_int_equal(node->clients->unsent, 0);
    assert_int_equal(node->clients->wait_count, 0);
    assert_int_equal(node->clients->mux_count, 0);
    assert_true(hf_dlist_is_empty(&node->clients->watching));
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
        assert_int_equal(node->clients->count, 2);
    }
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
        CASE(unanswered_bytes_are_limited),
        CASE(bytes_of_incomplete_requests_are_limited),
        CASE(a_client_that_does_not_read_is_closed),
        CASE(a_client_that_reads_nothing_for_long_is_closed),
        CASE(a_client_that_reads_everything_is_not_slow),
        CASE(silent_connections_are_closed),
        CASE(a_request_must_not_take_forever),
        CASE(plain_clients_that_wait_may_be_silent),
        CASE(anything_leaves_the_node_in_order),
        CASE(idle_connections_are_small),
        CASE(running_out_of_memory_harms_one_connection),
    };

    return hf_test_main("clients", cases, HF_TEST_COUNT(cases), 0);
}
