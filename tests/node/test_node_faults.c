/* Whole nodes with unknown peers, malformed frames, lost connections, and full,
 * slow and broken disks. */
#include <errno.h>

#include "node/calls.h"
#include "node/incarnation.h"

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

/* Returns true if a new connection to node 0 is refused when it announces a
 * first frame of `size` bytes. */
static bool is_first_frame_refused(uint32_t size)
{
    struct hf_node *node = nodes.list[0].node;
    struct hf_buf frame = {0};

    hf_buf_u32(&frame, size);
    nodes.list[0].refused = NULL;
    hf_node_on_link_open(node, 999);
    hf_node_on_link_data(node, 999, frame.data, frame.size);
    hf_node_turn(node, sim_node_now(&nodes.list[0]));
    hf_node_on_link_closed(node, 999);
    hf_buf_fini(&frame);
    return nodes.list[0].refused != NULL;
}

static void a_stranger_gets_little_memory(void **state)
{
    (void)state;
    (void)start(3);
    assert_false(is_first_frame_refused(HF_NODE_HELLO_MAX));
    assert_true(is_first_frame_refused(HF_NODE_HELLO_MAX + 1));
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

/* Let operation `op` of the next flush (1: the write, 2: the sync) fail with
 * `rc`, and expect the node to stop. */
static void expect_stop(unsigned op, int rc)
{
    struct sim_node *leader = start(1);
    struct hf_command open = {.kind = HF_COMMAND_OPEN, .nonce = nonce_of(3)};
    struct call call;

    sim_nodes_run(&nodes, 1000, NULL, NULL);
    sim_disk_fail_at(leader->disk, sim_disk_ops(leader->disk) + op, rc,
                     op == 1);
    call_start(&nodes, 0, &call, &open, 1000);
    sim_nodes_run(&nodes, 2000, NULL, NULL);
    assert_int_equal(leader->error.code, HF_ESYSTEM);
    assert_false(call.is_done);
    hf_buf_fini(&call.bytes);
}

static void a_broken_disk_stops_the_node(void **state)
{
    (void)state;
    expect_stop(1, -EIO);
}

/* After a failed sync nobody knows what is on the disk, whatever the cause. */
static void a_failed_sync_stops_the_node(void **state)
{
    (void)state;
    expect_stop(2, -ENOSPC);
}

static bool is_low(void *arg)
{
    (void)arg;
    return hf_consensus_is_low_on_space(nodes.list[0].node);
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

/* Fill the disk of node 0 until a LOCK is refused. Returns the next sequence
 * number of the session, whose first LOCK was of the key "k" with nonce 1. */
static uint64_t fill_disk(uint64_t session)
{
    struct hf_node_outcome outcome = {0};
    uint64_t sequence = 2;
    char key[20];

    sim_nodes_run(&nodes, 500, NULL, NULL); /* writes the reserve */
    sim_disk_set_capacity(nodes.list[0].disk,
                          sim_disk_used(nodes.list[0].disk));
    for (; sequence < 2000 && !outcome.err; sequence++) {
        struct hf_command lock;

        (void)snprintf(key, sizeof(key), "key-%u", (unsigned)sequence);
        lock = lock_command(session, sequence, key, (unsigned)sequence, 600000);
        outcome = call_run(&nodes, 0, &lock);
    }
    assert_true(outcome.no_space);
    return sequence;
}

static void a_full_disk_does_not_slow_releases_down(void **state)
{
    struct hf_command command;
    uint64_t sequence;
    uint64_t session;
    uint64_t token;
    hf_time before;

    (void)state;
    (void)start(1);
    session = open_session(&nodes, 0, 1);
    command = lock_command(session, 1, "k", 1, 600000);
    token = call_run(&nodes, 0, &command).result.token;
    sequence = fill_disk(session);
    before = nodes.schedule.now;
    command = unlock_command(session, 0, "k", 1, token);
    command.kind = HF_COMMAND_RENEW;
    command.lease_ms = 600000;
    for (unsigned i = 0; i < 20; i++) {
        command.sequence = command.done = sequence++;
        assert_int_equal(call_run(&nodes, 0, &command).result.err, HF_OK);
    }
    assert_true(is_low(NULL));
    /* A command needs a flush, but must not wait for the next try of upkeep:
     * all of them together take less than one such wait, in virtual time. */
    assert_true(nodes.schedule.now - before < HF_NODE_DISK_RETRY_MS);
}

static void a_node_restarts_on_a_full_disk(void **state)
{
    struct hf_command command;
    uint64_t sequence;
    uint64_t session;
    uint64_t token;

    (void)state;
    (void)start(1);
    session = open_session(&nodes, 0, 1);
    command = lock_command(session, 1, "k", 1, 600000);
    token = call_run(&nodes, 0, &command).result.token;
    sequence = fill_disk(session);
    for (unsigned i = 0; i < 5; i++) {
        uint64_t incarnation = nodes.list[0].node->incarnation;

        sim_nodes_crash(&nodes, 0, SIM_CRASH_LOSE, false);
        sim_disk_set_capacity(nodes.list[0].disk,
                              sim_disk_used(nodes.list[0].disk));
        sim_nodes_start(&nodes, 0);
        assert_true(nodes.list[0].node->incarnation > incarnation);
        assert_true(is_low(NULL)); /* before the first command */
        (void)await_leader(&nodes);
    }
    command = lock_command(session, sequence++, "other", 2000, 600000);
    assert_true(call_run(&nodes, 0, &command).no_space);
    command = unlock_command(session, sequence++, "k", 1, token);
    assert_int_equal(call_run(&nodes, 0, &command).result.err, HF_OK);
}

/* Renew "k" until node 0 has made `count` more snapshots. */
static void renew_for_snapshots(struct hf_command *renew, unsigned count)
{
    uint64_t goal = nodes.list[0].node->compaction.count + count;

    for (unsigned i = 0;
         i < 20000 && nodes.list[0].node->compaction.count < goal; i++) {
        renew->done = ++renew->sequence;
        assert_int_equal(call_run(&nodes, 0, renew).err, HF_OK);
    }
    assert_true(nodes.list[0].node->compaction.count >= goal);
}

/* As long as a LOCK is accepted, there is space for a snapshot of the table
 * with its value; and for the next one, after that. */
static void a_full_disk_has_room_for_the_whole_table(void **state)
{
    static char value[HF_VALUE_MAX];
    struct hf_node_outcome outcome = {0};
    struct hf_command lock;
    struct hf_command renew;
    uint64_t session;
    uint64_t locks = 0;
    char key[20];

    (void)state;
    sim_nodes_init(&nodes, 1, 5);
    nodes.segment_size = 1 << 20;
    nodes.opts.snapshot_bytes = 4000;
    nodes.opts.trailing = 1;
    sim_nodes_start_all(&nodes);
    (void)await_leader(&nodes);
    session = open_session(&nodes, 0, 1);
    lock = lock_command(session, 1, "k", 1, 600000);
    renew = unlock_command(session, 0, "k", 1,
                           call_run(&nodes, 0, &lock).result.token);
    renew.kind = HF_COMMAND_RENEW;
    renew.lease_ms = 600000;
    sim_nodes_run(&nodes, 500, NULL, NULL); /* for the reserve */
    sim_disk_set_capacity(nodes.list[0].disk,
                          sim_disk_used(nodes.list[0].disk));
    nodes.list[0].node->opts.snapshot_bytes = 1 << 30;
    for (; locks < 1000 && !outcome.err; locks++) {
        (void)snprintf(key, sizeof(key), "key-%u", (unsigned)locks);
        lock =
            lock_command(session, locks + 2, key, (unsigned)locks + 2, 600000);
        lock.value = (struct hf_bytes){value, sizeof(value)};
        outcome = call_run(&nodes, 0, &lock);
    }
    assert_true(outcome.no_space && locks > 2);
    nodes.list[0].node->opts.snapshot_bytes = 4000;
    renew.sequence = locks + 2;
    renew_for_snapshots(&renew, 3);
}

/* ---- The incarnation ----------------------------------------------------*/

static struct sim_disk *disk;
static struct hf_error error;

static enum hf_err raise_incarnation(uint64_t *number)
{
    struct hf_disk *attached = sim_disk_attach(disk);
    enum hf_err err = hf_incarnation_raise(attached, true, number, &error);

    attached->ops->close_directory(attached);
    return err;
}

/* The number is higher after each start, wherever the start before crashed. */
static void a_crash_does_not_lower_the_incarnation(void **state)
{
    uint64_t last = 0;
    uint64_t number;

    (void)state;
    disk = sim_disk_new();
    for (unsigned i = 0; i < 200; i++) {
        if (i % 3 != 0)
            sim_disk_power_off_at(disk, 1 + i % 5);
        if (!raise_incarnation(&number)) {
            assert_true(number > last);
            last = number;
        }
        sim_disk_crash(disk, (enum sim_crash)(i % SIM_CRASH_PATTERNS), i);
    }
    assert_true(last > 60);
    sim_disk_free(disk);
}

static void a_damaged_slot_does_not_lower_the_incarnation(void **state)
{
    uint64_t number;
    uint64_t last;

    (void)state;
    disk = sim_disk_new();
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(raise_incarnation(&last), HF_OK);
    sim_disk_poke(disk, "incarnation", 512, 0xee);
    assert_int_equal(raise_incarnation(&number), HF_OK);
    assert_true(number > last);
    sim_disk_poke(disk, "incarnation", 0, 0xee);
    sim_disk_poke(disk, "incarnation", 512, 0xee);
    assert_int_not_equal(raise_incarnation(&number), HF_OK);
    assert_non_null(strstr(error.text, "/sim/incarnation"));
    sim_disk_free(disk);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(one_report_of_a_lost_leader_deposes_nobody,
                                  tear_down),
        cmocka_unit_test_teardown(strangers_are_refused, tear_down),
        cmocka_unit_test_teardown(garbage_is_refused, tear_down),
        cmocka_unit_test_teardown(a_stranger_gets_little_memory, tear_down),
        cmocka_unit_test_teardown(heartbeats_go_on_while_a_disk_hangs,
                                  tear_down),
        cmocka_unit_test_teardown(messages_wait_for_term_and_vote, tear_down),
        cmocka_unit_test_teardown(a_broken_disk_stops_the_node, tear_down),
        cmocka_unit_test_teardown(a_failed_sync_stops_the_node, tear_down),
        cmocka_unit_test_teardown(a_full_disk_refuses_locks_and_lets_go,
                                  tear_down),
        cmocka_unit_test_teardown(a_full_disk_does_not_slow_releases_down,
                                  tear_down),
        cmocka_unit_test_teardown(a_node_restarts_on_a_full_disk, tear_down),
        cmocka_unit_test_teardown(a_full_disk_has_room_for_the_whole_table,
                                  tear_down),
        cmocka_unit_test(a_crash_does_not_lower_the_incarnation),
        cmocka_unit_test(a_damaged_slot_does_not_lower_the_incarnation),
    };

    return hf_test_main("node-faults", cases, HF_TEST_COUNT(cases), 0);
}
