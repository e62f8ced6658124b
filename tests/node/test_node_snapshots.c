/* Whole nodes that make snapshots, send them, and install them. */
#include "core/snapshot.h"
#include "node/calls.h"

static struct sim_nodes nodes;

static void start(unsigned count)
{
    sim_nodes_init(&nodes, count, 1);
    nodes.opts.snapshot_bytes = 4000;
    nodes.opts.trailing = 10;
    sim_nodes_start_all(&nodes);
}

static int tear_down(void **state)
{
    (void)state;
    sim_nodes_fini(&nodes);
    return 0;
}

/* Acquire the keys `first` to `first + count - 1`, through node `number`. */
static void fill(unsigned number, uint64_t session, unsigned first,
                 unsigned count)
{
    char key[20];

    for (unsigned i = first; i < first + count; i++) {
        struct hf_command lock;

        (void)snprintf(key, sizeof(key), "key-%u", i);
        lock = lock_command(session, i + 1, key, i + 1, 600000);
        assert_int_equal(call_run(&nodes, number, &lock).result.err, HF_OK);
    }
}

/* Check that the tables of all nodes are equal. All nodes must have applied the
 * same entries. */
static void check_equal(void)
{
    struct hf_buf first = {0};
    struct hf_buf other = {0};

    hf_snapshot_encode(&nodes.list[0].node->replica.store->table, &first);
    for (unsigned i = 1; i < nodes.count; i++) {
        other.size = 0;
        hf_snapshot_encode(&nodes.list[i].node->replica.store->table, &other);
        assert_int_equal(first.size, other.size);
        assert_memory_equal(first.data, other.data, first.size);
    }
    hf_buf_fini(&first);
    hf_buf_fini(&other);
}

static void snapshots_replace_old_entries(void **state)
{
    struct hf_node *node;

    (void)state;
    start(1);
    fill(0, open_session(&nodes, 0, 1), 0, 200);
    sim_nodes_run(&nodes, 200, NULL, NULL);
    node = nodes.list[0].node;
    assert_true(node->compaction.count > 1);
    assert_true(node->engine.snapshot.index > 0);
    assert_true(node->engine.log.base_index > 0);
}

static void a_node_restarts_from_a_snapshot_and_the_log(void **state)
{
    uint64_t applied;

    (void)state;
    start(1);
    fill(0, open_session(&nodes, 0, 1), 0, 200);
    applied = nodes.list[0].node->replica.applied;
    sim_nodes_crash(&nodes, 0, SIM_CRASH_LOSE, false);
    sim_nodes_start(&nodes, 0);
    assert_true(nodes.list[0].node->engine.snapshot.index > 0);
    (void)await_leader(&nodes);
    assert_true(nodes.list[0].node->replica.applied > applied);
    assert_int_equal(nodes.list[0].node->replica.store->table.holds.count, 200);
}

static void a_follower_that_was_away_gets_a_snapshot(void **state)
{
    struct sim_node *leader;
    unsigned away;
    uint64_t session;

    (void)state;
    start(3);
    leader = await_leader(&nodes);
    away = other_than(&nodes, leader->number);
    session = open_session(&nodes, leader->number, 1);
    sim_nodes_crash(&nodes, away, SIM_CRASH_LOSE, false);
    fill(leader->number, session, 0, 300);
    sim_nodes_start(&nodes, away);
    sim_nodes_run(&nodes, 3000, NULL, NULL);
    fill(leader->number, session, 300, 20);
    sim_nodes_run(&nodes, 1000, NULL, NULL);
    assert_int_equal(nodes.list[away].node->replica.store->table.holds.count,
                     320);
    assert_int_equal(nodes.list[away].node->transfers.installed, 1);
    check_equal();
    sim_nodes_crash(&nodes, away, SIM_CRASH_LOSE, false);
    sim_nodes_start(&nodes, away);
    sim_nodes_run(&nodes, 3000, NULL, NULL);
    check_equal();
}

static void a_snapshot_of_several_parts_arrives(void **state)
{
    static uint8_t value[HF_VALUE_MAX];
    struct sim_node *leader;
    struct hf_command lock;
    unsigned away;
    uint64_t session;

    (void)state;
    sim_nodes_init(&nodes, 3, 1);
    nodes.segment_size = 1 << 20;
    nodes.opts.snapshot_bytes = 100000;
    nodes.opts.trailing = 1;
    sim_nodes_start_all(&nodes);
    leader = await_leader(&nodes);
    away = other_than(&nodes, leader->number);
    session = open_session(&nodes, leader->number, 1);
    sim_nodes_crash(&nodes, away, SIM_CRASH_LOSE, false);
    for (unsigned i = 0; i < 20; i++) {
        char key[20];

        (void)snprintf(key, sizeof(key), "key-%u", i);
        lock = lock_command(session, i + 1, key, i + 1, 600000);
        lock.value = (struct hf_bytes){value, sizeof(value)};
        assert_int_equal(call_run(&nodes, leader->number, &lock).result.err,
                         HF_OK);
    }
    sim_nodes_start(&nodes, away);
    sim_nodes_run(&nodes, 5000, NULL, NULL);
    assert_true(nodes.list[away].node->transfers.installed > 0);
    check_equal();
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(snapshots_replace_old_entries, tear_down),
        cmocka_unit_test_teardown(a_node_restarts_from_a_snapshot_and_the_log,
                                  tear_down),
        cmocka_unit_test_teardown(a_follower_that_was_away_gets_a_snapshot,
                                  tear_down),
        cmocka_unit_test_teardown(a_snapshot_of_several_parts_arrives,
                                  tear_down),
    };

    return hf_test_main("node-snapshots", cases, HF_TEST_COUNT(cases), 0);
}
