/* test_clients_silent.c - clients that do not read, or send nothing. */
#include "lib/runner.h"
#include "node/clients_state.h"
#include "node/fake_node.h"

#define HELLO "*3\r\n$5\r\nHELLO\r\n$1\r\n1\r\n$3\r\nMUX\r\n"

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

static void a_client_that_does_not_read_is_closed(void **state)
{
    struct hf_node *node = *state;

    switch_to_mux(node, 1);
    hf_fake_send(node, 1, "1 PING\r\n");
    hf_clients_on_unsent(node->clients, 1, HF_CLIENT_OUTPUT_MAX);
    hf_fake_turn(node, 1000);
    hf_fake_expect(node, 1, "");
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

/* The node does not read from a paused connection, so it does not know whether
 * the client is silent. */
static void a_paused_connection_is_not_silent(void **state)
{
    struct hf_node *node = *state;

    switch_to_mux(node, 1);
    node->is_stuck = true;
    for (int i = 0; i < HF_CLIENT_REQUESTS_MAX; i++)
        hf_fake_send(node, 1,
                     "*4\r\n$1\r\n7\r\n$4\r\nREAD\r\n$1\r\nk\r\n$1\r\n1\r\n");
    hf_fake_turn(node, 40000);
    assert_true(node->conns[1].is_paused);
    assert_false(node->conns[1].is_closed);
    node->is_stuck = false;
    hf_fake_turn(node, 50000);
    assert_false(node->conns[1].is_paused);
    hf_fake_turn(node, 79000);
    assert_false(node->conns[1].is_closed);
    hf_fake_turn(node, 80000);
    assert_true(node->conns[1].is_closed);
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

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_client_that_does_not_read_is_closed),
        CASE(a_client_that_reads_nothing_for_long_is_closed),
        CASE(a_client_that_reads_everything_is_not_slow),
        CASE(silent_connections_are_closed),
        CASE(a_paused_connection_is_not_silent),
        CASE(a_request_must_not_take_forever),
        CASE(plain_clients_that_wait_may_be_silent),
    };

    return hf_test_main("clients_silent", cases, HF_TEST_COUNT(cases), 0);
}
