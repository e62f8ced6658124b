/* Whole nodes that make snapshots, send them, and install them. */
#include "core/snapshot.h"
#include "log/segment.h"
#include "log/snapshot_file.h"
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

    hf_snapshot_encode(&nodes.list[0].node->machine.store->table, &first);
    for (unsigned i = 1; i < nodes.count; i++) {
        other.size = 0;
        hf_snapshot_encode(&nodes.list[i].node->machine.store->table, &other);
        assert_int_equal(first.size, other.size);
        assert_memory_equal(first.data, other.data, first.size);
    }
    hf_buf_fini(&first);
    hf_buf_fini(&other);
}

/* G2-10 */
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

#define PAIRS 50000
#define BOUND_EVERY 500

static void count_file(void *arg, const char *name)
{
    (void)name;
    ++*(unsigned *)arg;
}

/* Check what a node keeps, whatever the number of commands it has applied. */
static void check_bounds(const struct sim_node *node)
{
    const struct hf_table *table = &node->node->machine.store->table;
    const struct hf_entries *log = &node->node->engine.log;

    unsigned files = 0;

    assert_int_equal(
        node->attached->ops->list(node->attached, count_file, &files), 0);
    assert_true(files < 20);
    assert_true(log->last - log->base_index < 1000);
    assert_true(sim_disk_used(node->disk) < 8 * nodes.segment_size);
    assert_true(table->holds.count <= 1);
    assert_true(hf_table_bytes(table) < 4000);
}

/* G2-10 */
static void fifty_thousand_pairs_leave_a_bounded_log(void **state)
{
    unsigned number;
    uint64_t session;

    (void)state;
    start(3);
    number = await_leader(&nodes)->number;
    session = open_session(&nodes, number, 1);
    assert_int_equal(hf_attachments_add(nodes.list[number].node, session, 7),
                     HF_OK);
    for (unsigned i = 0; i < PAIRS; i++) {
        struct hf_command lock =
            lock_command(session, 2 * i + 1, "k", i, 60000);
        struct hf_node_outcome outcome = call_run(&nodes, number, &lock);
        struct hf_command unlock =
            unlock_command(session, 2 * i + 2, "k", i, outcome.result.token);

        assert_int_equal(outcome.result.err, HF_OK);
        assert_int_equal(call_run(&nodes, number, &unlock).result.err, HF_OK);
        for (unsigned n = 0; i % BOUND_EVERY == 0 && n < nodes.count; n++)
            check_bounds(&nodes.list[n]);
    }
    assert_true(nodes.list[number].node->machine.applied > 2UL * PAIRS);
    assert_true(nodes.list[number].node->compaction.count > 500);
}

static void a_node_restarts_from_a_snapshot_and_the_log(void **state)
{
    uint64_t applied;

    (void)state;
    start(1);
    fill(0, open_session(&nodes, 0, 1), 0, 200);
    applied = nodes.list[0].node->machine.applied;
    sim_nodes_crash(&nodes, 0, SIM_CRASH_LOSE, false);
    sim_nodes_start(&nodes, 0);
    assert_true(nodes.list[0].node->engine.snapshot.index > 0);
    (void)await_leader(&nodes);
    assert_true(nodes.list[0].node->machine.applied > applied);
    assert_int_equal(nodes.list[0].node->machine.store->table.holds.count, 200);
}

/* G2-10 */
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
    assert_int_equal(nodes.list[away].node->machine.store->table.holds.count,
                     320);
    assert_int_equal(nodes.list[away].node->transfers.installed, 1);
    check_equal();
    sim_nodes_crash(&nodes, away, SIM_CRASH_LOSE, false);
    sim_nodes_start(&nodes, away);
    sim_nodes_run(&nodes, 3000, NULL, NULL);
    check_equal();
}

/* ---- Snapshots of the leader --------------------------------------------*/

/* Let `node` receive the newest snapshot of `leader`, as if `leader` had sent
 * it. Returns its index. */
static uint64_t pass_snapshot(struct sim_node *leader, struct hf_node *node)
{
    struct hf_snapshot_file *file = NULL;
    struct hf_packet_snapshot part;
    struct hf_error damaged;
    struct hf_error error;
    uint8_t *data;

    assert_int_equal(hf_snapshot_file_open(leader->attached,
                                           &nodes.opts.cluster, &file, &damaged,
                                           &error),
                     HF_OK);
    part = (struct hf_packet_snapshot){
        .term = hf_engine_term(&node->engine),
        .index = hf_snapshot_file_meta(file)->index,
        .index_term = hf_snapshot_file_meta(file)->term,
        .size = hf_snapshot_file_size(file),
    };
    data = malloc(part.size);
    assert_int_equal(hf_snapshot_file_read(file, 0, data, part.size, &error),
                     HF_OK);
    part.data = (struct hf_bytes){data, part.size};
    hf_transfers_on_part(node, hf_peers_find(node, leader->number + 1), &part);
    hf_snapshot_file_close(file);
    free(data);
    return part.index;
}

static bool has_snapshot(const struct sim_node *node, uint64_t index)
{
    char name[HF_DISK_NAME];

    hf_segment_name(name, "snapshot-", index);
    return sim_disk_has(node->disk, name);
}

/* The follower already has the entries that the snapshot contains. */
static void a_snapshot_that_is_not_needed_is_removed(void **state)
{
    struct sim_node *leader;
    struct sim_node *follower;
    uint64_t session, index, count;

    (void)state;
    start(3);
    leader = await_leader(&nodes);
    follower = &nodes.list[other_than(&nodes, leader->number)];
    session = open_session(&nodes, leader->number, 1);
    fill(leader->number, session, 0, 100);
    sim_nodes_run(&nodes, 500, NULL, NULL);
    count = follower->node->compaction.count;
    assert_true(count > 0);
    follower->node->opts.snapshot_bytes = 1 << 30;
    fill(leader->number, session, 100, 300);
    sim_nodes_run(&nodes, 500, NULL, NULL);
    assert_int_equal(follower->node->compaction.count, count);
    index = pass_snapshot(leader, follower->node);
    assert_true(index > follower->node->engine.snapshot.index);
    sim_nodes_run(&nodes, 500, NULL, NULL);
    assert_int_equal(follower->node->transfers.installed, 0);
    assert_false(has_snapshot(follower, index));
    /* The follower can still make snapshots of its own. */
    follower->node->opts.snapshot_bytes = 4000;
    sim_nodes_run(&nodes, 500, NULL, NULL);
    assert_true(follower->node->compaction.count > count);
    check_equal();
}

static bool has_installed(void *arg)
{
    return ((struct sim_node *)arg)->node->transfers.installed > 0;
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
    assert_true(sim_nodes_run(&nodes, 5000, has_installed, &nodes.list[away]));
    /* The next snapshot may be as large, and needs a reserve of that size. */
    assert_true(nodes.list[away].node->compaction.size > 10UL * HF_VALUE_MAX);
    sim_nodes_run(&nodes, 5000, NULL, NULL);
    check_equal();
}

/* ---- The limit of the log -----------------------------------------------*/

#define LOG_BYTES 60000

/* Acquire and release a key with a large value `pairs` times, through node
 * `number`. Returns the next sequence number. */
static uint64_t run_large_pairs(unsigned number, uint64_t session,
                                uint64_t sequence, unsigned pairs)
{
    static uint8_t value[3000];

    for (unsigned i = 0; i < pairs; i++) {
        struct hf_command command =
            lock_command(session, sequence++, "k", 1, 600000);
        struct hf_node_outcome outcome;

        command.value = (struct hf_bytes){value, sizeof(value)};
        outcome = call_run(&nodes, number, &command);
        assert_int_equal(outcome.err, HF_OK);
        assert_int_equal(outcome.result.err, HF_OK);
        command =
            unlock_command(session, sequence++, "k", 1, outcome.result.token);
        outcome = call_run(&nodes, number, &command);
        assert_int_equal(outcome.err, HF_OK);
    }
    return sequence;
}

/* The log may keep 8192 entries before a snapshot, but with these commands it
 * reaches its limit in bytes, LOG_BYTES, after about 20 pairs. */
static void large_commands_do_not_fill_the_log_for_ever(void **state)
{
    uint64_t sequence;
    uint64_t session;
    unsigned number;

    (void)state;
    sim_nodes_init(&nodes, 3, 1);
    nodes.opts.log_bytes = LOG_BYTES;
    sim_nodes_start_all(&nodes);
    number = await_leader(&nodes)->number;
    session = open_session(&nodes, number, 1);
    sequence = run_large_pairs(number, session, 1, 100);
    assert_true(nodes.list[number].node->compaction.count > 1);
    for (unsigned i = 0; i < nodes.count; i++) {
        assert_true(nodes.list[i].node->engine.log.bytes <= 2UL * LOG_BYTES);
        assert_true(hf_wal_segment_count(nodes.list[i].node->journal.wal) < 10);
        sim_nodes_crash(&nodes, i, SIM_CRASH_LOSE, false);
    }
    sim_nodes_start_all(&nodes);
    number = await_leader(&nodes)->number;
    (void)run_large_pairs(number, session, sequence, 100);
}

/* The snapshot is larger than the limit of the log. */
static void a_large_table_does_not_prevent_snapshots(void **state)
{
    uint64_t session;
    uint64_t before;

    (void)state;
    sim_nodes_init(&nodes, 1, 1);
    nodes.opts.log_bytes = LOG_BYTES;
    sim_nodes_start(&nodes, 0);
    session = open_session(&nodes, 0, 1);
    fill(0, session, 0, 2000);
    sim_nodes_run(&nodes, 200, NULL, NULL);
    assert_true(nodes.list[0].node->compaction.size > LOG_BYTES);
    before = nodes.list[0].node->compaction.count;
    fill(0, session, 2000, 1000);
    sim_nodes_run(&nodes, 200, NULL, NULL);
    assert_true(nodes.list[0].node->compaction.count > before + 1);
}

static void a_long_log_is_recovered_whatever_the_limit(void **state)
{
    struct hf_node *node;

    (void)state;
    sim_nodes_init(&nodes, 1, 1);
    nodes.opts.snapshot_bytes = 1 << 30;
    sim_nodes_start(&nodes, 0);
    (void)await_leader(&nodes);
    (void)run_large_pairs(0, open_session(&nodes, 0, 1), 1, 50);
    assert_true(nodes.list[0].node->engine.log.bytes > 2UL * LOG_BYTES);
    assert_int_equal(nodes.list[0].node->compaction.count, 0);
    sim_nodes_crash(&nodes, 0, SIM_CRASH_LOSE, false);
    nodes.opts.log_bytes = LOG_BYTES;
    sim_nodes_start(&nodes, 0);
    (void)await_leader(&nodes);
    sim_nodes_run(&nodes, 500, NULL, NULL);
    node = nodes.list[0].node;
    assert_true(node->compaction.count > 0);
    assert_true(node->engine.log.bytes <= LOG_BYTES / 2);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(snapshots_replace_old_entries, tear_down),
        cmocka_unit_test_teardown(fifty_thousand_pairs_leave_a_bounded_log,
                                  tear_down),
        cmocka_unit_test_teardown(a_node_restarts_from_a_snapshot_and_the_log,
                                  tear_down),
        cmocka_unit_test_teardown(a_follower_that_was_away_gets_a_snapshot,
                                  tear_down),
        cmocka_unit_test_teardown(a_snapshot_that_is_not_needed_is_removed,
                                  tear_down),
        cmocka_unit_test_teardown(a_snapshot_of_several_parts_arrives,
                                  tear_down),
        cmocka_unit_test_teardown(large_commands_do_not_fill_the_log_for_ever,
                                  tear_down),
        cmocka_unit_test_teardown(a_large_table_does_not_prevent_snapshots,
                                  tear_down),
        cmocka_unit_test_teardown(a_long_log_is_recovered_whatever_the_limit,
                                  tear_down),
    };

    return hf_test_main("node-snapshots", cases, HF_TEST_COUNT(cases), 0);
}
