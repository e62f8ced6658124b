/* test_clients_cluster.c - clients of whole nodes, over a simulated network and
 * disk. */
#include <stdio.h>

#include "lib/expect.h"
#include "lib/runner.h"
#include "node/clients_state.h"
#include "node/state.h"
#include "sim/nodes.h"

#define NONCE_A "000000000000000000000000000000aa"
#define NONCE_B "000000000000000000000000000000bb"

/* A client of node `number`. The number of its connection is its index in
 * `clients`. */
struct client {
    unsigned number;
    struct hf_buf output;
    bool is_closed;
};

static struct sim_nodes nodes;
static struct client clients[4]; /* 0 is not used */

/* ---- The shell ----------------------------------------------------------*/

static void send_client(void *arg, uint64_t conn, const void *bytes,
                        size_t size)
{
    (void)arg;
    hf_buf_raw(&clients[conn].output, bytes, size);
}

static void close_client(void *arg, uint64_t conn)
{
    (void)arg;
    clients[conn].is_closed = true;
}

static void pause_client(void *arg, uint64_t conn, bool stop_reading)
{
    (void)arg;
    (void)conn;
    (void)stop_reading;
}

static const struct hf_server_shell shell = {
    .send = send_client,
    .close = close_client,
    .pause = pause_client,
};

static struct hf_node *node_of(unsigned conn)
{
    return nodes.list[clients[conn].number].node;
}

static void connect_client(unsigned conn, unsigned number)
{
    struct hf_node *node = nodes.list[number].node;

    hf_buf_fini(&clients[conn].output);
    clients[conn] = (struct client){.number = number};
    node->clients->server.opts.shell = shell;
    hf_node_on_client_open(node, conn);
}

static void send_text(unsigned conn, const char *text)
{
    hf_node_on_client_data(node_of(conn), conn, text, strlen(text));
    sim_nodes_wake(&nodes, clients[conn].number);
}

static bool has_output(void *arg)
{
    return ((const struct client *)arg)->output.size > 0;
}

/* Wait for output, expect that it begins with `start`, and consume it. */
static void await_output(unsigned conn, const char *start)
{
    struct hf_buf *output = &clients[conn].output;

    assert_true(sim_nodes_run(&nodes, 20000, has_output, &clients[conn]));
    hf_buf_u8(output, 0);
    if (strncmp((const char *)output->data, start, strlen(start)) != 0)
        assert_string_equal((const char *)output->data, start);
    output->size = 0;
}

static void call(unsigned conn, const char *text, const char *start)
{
    send_text(conn, text);
    await_output(conn, start);
}

static void run_for(uint32_t ms)
{
    (void)sim_nodes_run(&nodes, ms, NULL, NULL);
}

static bool has_leader(void *arg)
{
    (void)arg;
    return sim_nodes_leader(&nodes) != NULL;
}

/* The numbers of the leader and of the other two nodes. */
static unsigned leader, follower, other;

static int set_up(void **state)
{
    (void)state;
    sim_nodes_init(&nodes, 3, 1);
    sim_nodes_start_all(&nodes);
    assert_true(sim_nodes_run(&nodes, 20000, has_leader, NULL));
    leader = sim_nodes_leader(&nodes)->number;
    follower = (leader + 1) % 3;
    other = (leader + 2) % 3;
    run_for(1000);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sim_nodes_fini(&nodes);
    for (size_t i = 0; i < HF_TEST_COUNT(clients); i++)
        hf_buf_fini(&clients[i].output);
    return 0;
}

/* ---- Cases --------------------------------------------------------------*/

/* GO-13 */
static void every_node_serves_clients(void **state)
{
    (void)state;
    for (unsigned number = 0; number < 3; number++) {
        connect_client(number + 1, number);
        call(number + 1, "LOCK k 10000 NONCE " NONCE_A "\r\n",
             "*3\r\n$32\r\n" NONCE_A "\r\n:");
        call(number + 1, "READ k\r\n", "*22\r\n");
        call(number + 1, "CANCEL k " NONCE_A "\r\n", "+OK\r\n");
        call(number + 1, "READ k\r\n", "*6\r\n");
    }
}

/* The holder and the waiter are at two followers, so the grant goes through the
 * leader. */
static void a_lock_is_handed_over_across_nodes(void **state)
{
    (void)state;
    connect_client(1, follower);
    connect_client(2, other);
    call(1, "LOCK k 60000 NONCE " NONCE_A "\r\n",
         "*3\r\n$32\r\n" NONCE_A "\r\n:1\r\n:0\r\n");
    send_text(2, "LOCK k 60000 WAIT 10000 NONCE " NONCE_B "\r\n");
    run_for(1000);
    assert_int_equal(clients[2].output.size, 0);
    call(1, "UNLOCK k " NONCE_A " 1\r\n", "+OK\r\n");
    await_output(2, "*3\r\n$32\r\n" NONCE_B "\r\n:2\r\n:");
}

/* The client of the second LOCK counts the validity from when it sent that
 * LOCK, so the lease must start after that, too, and last as long as that LOCK
 * wants. */
static void a_repeated_lock_is_valid_from_its_own_send(void **state)
{
    (void)state;
    for (unsigned conn = 1; conn <= 3; conn++)
        connect_client(conn, conn - 1);
    call(1, "LOCK k 1000 NONCE " NONCE_A "\r\n",
         "*3\r\n$32\r\n" NONCE_A "\r\n:1\r\n:0\r\n");
    run_for(900);
    call(2, "LOCK k 2000 NONCE " NONCE_A "\r\n",
         "*3\r\n$32\r\n" NONCE_A "\r\n:1\r\n:");
    run_for(1900);
    call(3, "LOCK k 1000 NONCE " NONCE_B "\r\n", "-BUSY");
    run_for(300);
    call(3, "LOCK k 1000 NONCE " NONCE_B "\r\n",
         "*3\r\n$32\r\n" NONCE_B "\r\n:2\r\n:0\r\n");
}

static void a_closed_connection_withdraws_its_waiter(void **state)
{
    (void)state;
    connect_client(1, leader);
    connect_client(2, follower);
    call(1, "LOCK k 60000 NONCE " NONCE_A "\r\n", "*3\r\n");
    send_text(2, "LOCK k 60000 WAIT 10000 NONCE " NONCE_B "\r\n");
    run_for(1000);
    call(1, "LOOKUP k " NONCE_B "\r\n", "*3\r\n$6\r\nqueued\r\n");
    hf_node_on_client_closed(node_of(2), 2);
    sim_nodes_wake(&nodes, follower);
    run_for(1000);
    call(1, "LOOKUP k " NONCE_B "\r\n", "*3\r\n$7\r\nunknown\r\n");
}

/* CF-03 */
static void a_wait_survives_the_leader(void **state)
{
    (void)state;
    connect_client(1, follower);
    connect_client(2, other);
    call(1, "LOCK k 60000 NONCE " NONCE_A "\r\n", "*3\r\n");
    send_text(2, "LOCK k 60000 WAIT 60000 NONCE " NONCE_B "\r\n");
    run_for(1000);
    sim_nodes_crash(&nodes, leader, SIM_CRASH_LOSE, false);
    call(1, "UNLOCK k " NONCE_A " 1\r\n", "+OK\r\n");
    await_output(2, "*3\r\n$32\r\n" NONCE_B "\r\n:2\r\n:");
}

/* GO-16, G2-02, MJ-08 */
static void requests_without_a_majority_fail_by_their_deadline(void **state)
{
    (void)state;
    connect_client(1, follower);
    call(1, "LOCK k 60000 NONCE " NONCE_A "\r\n", "*3\r\n");
    run_for(1000); /* until the follower has applied the LOCK */
    sim_nodes_crash(&nodes, leader, SIM_CRASH_LOSE, false);
    sim_nodes_crash(&nodes, other, SIM_CRASH_LOSE, false);
    call(1, "RENEW k " NONCE_A " 1 60000\r\n", "-");
    call(1, "READ k\r\n", "-");
    call(1, "READ k LOCAL\r\n", "*22\r\n");
    call(1, "STATUS\r\n", "$");
}

/* A MUX client loses its node and returns to its session at another one. */
static void a_session_moves_to_another_node(void **state)
{
    static const char secret[] = "0123456789abcdef";
    char text[200];

    (void)state;
    connect_client(1, follower);
    call(1, "HELLO 1 MUX\r\n", "*11\r\n");
    (void)snprintf(text, sizeof(text), "1 OPEN %s label\r\n", secret);
    call(1, text, "*2\r\n:1\r\n:1\r\n");
    sim_nodes_crash(&nodes, follower, SIM_CRASH_LOSE, false);
    connect_client(2, other);
    call(2, "HELLO 1 MUX\r\n", "*11\r\n");
    (void)snprintf(text, sizeof(text), "5 ATTACH 1 %s\r\n", secret);
    call(2, text, "*2\r\n:5\r\n+OK\r\n");
    run_for(15000); /* longer than a detached session is kept */
    connect_client(3, leader);
    call(3, "HELLO 1 MUX\r\n", "*11\r\n");
    call(3, text, "*2\r\n:5\r\n+OK\r\n");
    hf_node_on_client_closed(node_of(2), 2);
    hf_node_on_client_closed(node_of(3), 3);
    run_for(20000);
    connect_client(2, other);
    call(2, "HELLO 1 MUX\r\n", "*11\r\n");
    call(2, text, "*2\r\n:5\r\n-GONE there is no such session\r\n");
}

static void events_reach_watches_at_every_node(void **state)
{
    (void)state;
    connect_client(1, leader);
    connect_client(2, follower);
    call(2, "WATCH k\r\n", ":0\r\n");
    call(1, "LOCK k 60000 NONCE " NONCE_A "\r\n", "*3\r\n");
    await_output(2, "*7\r\n$5\r\nevent\r\n:1\r\n$7\r\ngranted\r\n");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(every_node_serves_clients),
        CASE(a_lock_is_handed_over_across_nodes),
        CASE(a_repeated_lock_is_valid_from_its_own_send),
        CASE(a_closed_connection_withdraws_its_waiter),
        CASE(a_wait_survives_the_leader),
        CASE(requests_without_a_majority_fail_by_their_deadline),
        CASE(a_session_moves_to_another_node),
        CASE(events_reach_watches_at_every_node),
    };

    return hf_test_main("clients_cluster", cases, HF_TEST_COUNT(cases), 0);
}
