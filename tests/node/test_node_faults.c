/* Whole nodes with unknown peers, malformed frames, lost connections, and full,
 * slow and broken disks. */
#include <errno.h>

#include "node/calls.h"

static struct sim_nodes nodes;

static struct sim_node *start(unsigned count)
{
    sim_nodes_init(&nodes, count, 5);
    sim_nodes_start_all(&nodes);
    return await_leader(&nodes);
}

static int tear_down(void **state)
{
    (void)state;
    sim_nodes_fini(&nodes);
    return 0;
}

/* ---- Connections --------------------------------------------------------*/

static void one_report_of_a_lost_leader_deposes_nobody(void **state)
{
    struct sim_node *leader = start(3);
    unsigned follower = other_than(&nodes, leader->number);
    uint64_t term = leader->node->leading_term;

    (void)state;
    sim_nodes_run(&nodes, 500, NULL, NULL);
    hf_node_on_peer_down(nodes.list[follower].node, leader->number + 1, true);
    sim_nodes_wake(&nodes, follower);
    sim_nodes_reset(&nodes, follower, leader->number);
    sim_nodes_run(&nodes, 3000, NULL, NULL);
    assert_true(leader->node->leading_term == term);
}

/* Send a HELLO on a new connection to node 0. Returns true if the node refused
 * the connection. */
static bool is_refused(const struct hf_packet_hello *hello)
{
    struct hf_node *node = nodes.list[0].node;
    struct hf_buf frame = {0};
    struct hf_buf body = {0};

    hf_packet_encode_hello(&body, hello);
    hf_buf_bytes(&frame, body.data, body.size);
    nodes.list[0].refused = NULL;
    hf_node_on_link_open(node, 999);
    hf_node_on_link_data(node, 999, frame.data, frame.size);
    hf_node_on_link_closed(node, 999);
    hf_buf_fini(&frame);
    hf_buf_fini(&body);
    return nodes.list[0].refused != NULL;
}

static void strangers_are_refused(void **state)
{
    const struct hf_packet_hello good = {
        .protocol_min = HF_PACKET_PROTOCOL,
        .protocol_max = HF_PACKET_PROTOCOL,
        .from = 2,
        .to = 1,
        .incarnation = 1,
        .version = 1,
    };
    struct hf_packet_hello bad = good;

    (void)state;
    (void)start(3);
    assert_false(is_refused(&good));
    bad.cluster.bytes[3] = 1;
    assert_true(is_refused(&bad));
    bad = good;
    bad.from = 4;
    assert_true(is_refused(&bad));
    bad = good;
    bad.from = 1;
    assert_true(is_refused(&bad));
    bad = good;
    bad.to = 2;
    assert_true(is_refused(&bad));
    bad = good;
    bad.protocol_min = bad.protocol_max = HF_PACKET_PROTOCOL + 1;
    assert_true(is_refused(&bad));
}

static void garbage_is_refused(void **state)
{
    struct hf_node *node;
    uint8_t bytes[64];

    (void)state;
    node = start(3)->node;
    for (unsigned i = 0; i < 200; i++) {
        (void)hf_random_bytes(&nodes.random, bytes, sizeof(bytes));
        if (i % 2 == 0)
            memset(bytes + 1, 0, 3); /* a frame size below 256 */
        hf_node_on_link_open(node, 1000 + i);
        hf_node_on_link_data(node, 1000 + i, bytes, sizeof(bytes));
        hf_node_on_link_closed(node, 1000 + i);
    }
    assert_true(node->leading_term > 0);
}

/* ---- Disks --------------------------------------------------------------*/

static void heartbeats_go_on_while_a_disk_hangs(void **state)
{
    struct sim_node *leader = start(3);
    uint64_t term = leader->node->leading_term;
    struct hf_command open = {.kind = HF_COMMAND_OPEN, .nonce = nonce_of(3)};
    struct call call;

    (void)state;
    nodes.odds.flush_ms = nodes.odds.slow_disk_ms = 0;
    sim_nodes_run(&nodes, 300, NULL, NULL);
    nodes.odds.flush_ms = nodes.odds.slow_disk_ms = 4000;
    call_start(&nodes, leader->number, &call, &open, 30000);
    assert_int_equal(call_wait(&nodes, &call).result.err, HF_OK);
    assert_true(leader->node->leading_term == term);
}

/* A node sends no vote, and no request for votes, before its term and vote are
 * durable. So without flushes no leader is elected. */
static void messages_wait_for_term_and_vote(void **state)
{
    struct sim_node *leader;
    uint64_t term;

    (void)state;
    leader = start(3);
    term = leader->node->leading_term;
    sim_nodes_run(&nodes, 500, NULL, NULL);
    /* Flushes take so long from now on that hardly any ends in this test. */
    nodes.odds.flush_ms = nodes.odds.slow_disk_ms = 100000000;
    sim_nodes_crash(&nodes, leader->number, SIM_CRASH_LOSE, true);
    sim_nodes_run(&nodes, 10000, NULL, NULL);
    for (unsigned i = 0; i < 3; i++) {
        if (i == leader->number)
            continue;
        assert_true(hf_engine_term(&nodes.list[i].node->engine) <= term + 1);
        assert_true(nodes.list[i].node->leading_term == 0);
    }
}

static void a_broken_disk_stops_the_node(void **state)
{
    struct sim_node *leader = start(1);
    struct hf_command open = {.kind = HF_COMMAND_OPEN, .nonce = nonce_of(3)};
    struct call call;

    (void)state;
    sim_nodes_run(&nodes, 1000, NULL, NULL);
    sim_disk_fail_at(leader->disk, sim_disk_ops(leader->disk) + 1, -EIO, true);
    call_start(&nodes, 0, &call, &open, 1000);
    sim_nodes_run(&nodes, 2000, NULL, NULL);
    assert_int_equal(leader->error.code, HF_ESYSTEM);
    assert_false(call.is_done);
    hf_buf_fini(&call.bytes);
}

static bool is_low(void *arg)
{
    (void)arg;
    return hf_node_is_low_on_space(nodes.list[0].node);
}

static bool is_not_low(void *arg)
{
    return !is_low(arg);
}

static void a_full_disk_refuses_locks_and_lets_go(void **state)
{
    struct hf_command lock;
    struct hf_command unlock;
    struct hf_node_outcome outcome;
    uint64_t session;
    char key[20];

    (void)state;
    (void)start(1);
    session = open_session(&nodes, 0, 1);
    lock = lock_command(session, 1, "k", 1, 600000);
    outcome = call_run(&nodes, 0, &lock);
    unlock = unlock_command(session, 10, "k", 1, outcome.result.token);
    sim_disk_set_capacity(nodes.list[0].disk,
                          sim_disk_used(nodes.list[0].disk));
    for (unsigned i = 2; i < 2000 && !outcome.err; i++) {
        (void)snprintf(key, sizeof(key), "key-%u", i);
        lock = lock_command(session, i, key, i, 600000);
        outcome = call_run(&nodes, 0, &lock);
        unlock.sequence = unlock.done = i + 1;
    }
    assert_true(is_low(NULL));
    assert_int_equal(outcome.err, HF_ELIMIT);
    assert_true(outcome.no_space);
    assert_int_equal(call_run(&nodes, 0, &unlock).result.err, HF_OK);
    sim_disk_set_capacity(nodes.list[0].disk, 0);
    assert_true(sim_nodes_run(&nodes, 10000, is_not_low, NULL));
    lock.sequence = lock.done = unlock.sequence + 1;
    assert_int_equal(call_run(&nodes, 0, &lock).result.err, HF_OK);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(one_report_of_a_lost_leader_deposes_nobody,
                                  tear_down),
        cmocka_unit_test_teardown(strangers_are_refused, tear_down),
        cmocka_unit_test_teardown(garbage_is_refused, tear_down),
        cmocka_unit_test_teardown(heartbeats_go_on_while_a_disk_hangs,
                                  tear_down),
        cmocka_unit_test_teardown(messages_wait_for_term_and_vote, tear_down),
        cmocka_unit_test_teardown(a_broken_disk_stops_the_node, tear_down),
        cmocka_unit_test_teardown(a_full_disk_refuses_locks_and_lets_go,
                                  tear_down),
    };

    return hf_test_main("node-faults", cases, HF_TEST_COUNT(cases), 0);
}
