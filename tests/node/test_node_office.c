/* What a leader does while it is in office, and what it may not do before. */
#include "lib/alloc.h"
#include "node/calls.h"

static struct sim_nodes nodes;

static struct sim_node *start(unsigned count)
{
    sim_nodes_init(&nodes, count, 11);
    sim_nodes_start_all(&nodes);
    return await_leader(&nodes);
}

static int tear_down(void **state)
{
    (void)state;
    sim_nodes_fini(&nodes);
    return 0;
}

static bool is_leading(void *arg)
{
    (void)arg;
    return sim_nodes_leader(&nodes) != NULL;
}

/* Let nothing arrive at node `number`. */
static void cut_off(unsigned number)
{
    for (unsigned i = 0; i < nodes.count; i++) {
        if (i != number)
            sim_nodes_cut(&nodes, i, number);
    }
}

/* The lease that a new leader has inherited may have been renewed by an entry
 * that it has not applied yet. */
static void a_new_leader_expires_nothing_before_its_own_entry(void **state)
{
    struct sim_node *leader = start(3);
    uint64_t session = open_session(&nodes, leader->number, 1);
    struct hf_command lock = lock_command(session, 1, "k", 1, 1000);
    uint64_t last;

    (void)state;
    assert_int_equal(call_run(&nodes, leader->number, &lock).result.err, HF_OK);
    sim_nodes_run(&nodes, 900, NULL, NULL);
    sim_nodes_crash(&nodes, leader->number, SIM_CRASH_LOSE, false);
    assert_true(sim_nodes_run(&nodes, 1000, is_leading, NULL));
    leader = sim_nodes_leader(&nodes);
    assert_false(leader->node->in_office);
    cut_off(leader->number);
    last = leader->node->engine.log.last;
    sim_nodes_run(&nodes, 300, NULL, NULL);
    assert_true(leader->node->leading_term != 0);
    assert_false(leader->node->in_office);
    assert_int_equal(leader->node->engine.log.last, last);
    assert_true(hf_state_machine_deadline(&leader->node->machine) <
                leader->node->now);
    sim_nodes_heal(&nodes);
    leader = await_leader(&nodes);
    sim_nodes_run(&nodes, 2000, NULL, NULL);
    assert_null(
        hf_table_find(&leader->node->machine.store->table, key_of("k")));
}

/* A pause of the process, or of its machine, is not the end of a term. */
static void a_pause_of_350_ms_costs_no_election(void **state)
{
    struct sim_node *leader = start(3);
    uint64_t term = leader->node->leading_term;

    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        sim_nodes_run(&nodes, 1000 + 17 * i, NULL, NULL);
        sim_nodes_pause(&nodes, leader->number, 350);
        sim_nodes_run(&nodes, 1000, NULL, NULL);
        assert_ptr_equal(sim_nodes_leader(&nodes), leader);
        assert_int_equal(leader->node->leading_term, term);
    }
    for (unsigned i = 0; i < nodes.count; i++)
        assert_int_equal(hf_engine_term(&nodes.list[i].node->engine), term);
}

/* ---- Expiry -------------------------------------------------------------*/

#define HELD 700

static uint64_t last_seen;
static uint64_t most_added;

/* Note the most entries that were appended in one turn. */
static void on_turn(void *arg, struct sim_node *node)
{
    uint64_t last = node->node->engine.log.last;

    (void)arg;
    if (last - last_seen > most_added)
        most_added = last - last_seen;
    last_seen = last;
}

static void a_turn_proposes_a_limited_number_of_expirations(void **state)
{
    struct sim_node *leader = start(1);
    uint64_t session = open_session(&nodes, 0, 1);
    struct hf_table *table = &leader->node->machine.store->table;
    char key[20];

    (void)state;
    for (unsigned i = 0; i < HELD; i++) {
        struct hf_command lock;

        (void)snprintf(key, sizeof(key), "key-%u", i);
        lock = lock_command(session, i + 1, key, i + 1, 6000);
        assert_int_equal(call_run(&nodes, 0, &lock).result.err, HF_OK);
    }
    assert_int_equal(table->holds.count, HELD);
    last_seen = leader->node->engine.log.last;
    most_added = 0;
    nodes.on_turn = on_turn;
    sim_nodes_pause(&nodes, 0, 9000); /* all leases are due at once */
    sim_nodes_run(&nodes, 9500, NULL, NULL);
    assert_int_equal(most_added, HF_NODE_EXPIRE_MAX);
    assert_int_equal(table->holds.count, 0);
}

/* ---- Reads --------------------------------------------------------------*/

/* The reads arrive before the round starts, so it serves all of them. */
static void one_round_serves_all_reads_that_wait(void **state)
{
    struct sim_node *leader = start(3);
    struct call calls[20];
    uint64_t before;

    (void)state;
    sim_nodes_run(&nodes, 500, NULL, NULL);
    before = leader->node->reads.rounds.number;
    for (unsigned i = 0; i < HF_TEST_COUNT(calls); i++)
        call_start(&nodes, leader->number, &calls[i], NULL, 10000);
    for (unsigned i = 0; i < HF_TEST_COUNT(calls); i++)
        assert_int_equal(call_wait(&nodes, &calls[i]).err, HF_OK);
    assert_int_equal(leader->node->reads.rounds.number, before + 1);
}

/* ---- Space --------------------------------------------------------------*/

/* Let nothing more be written to the disk of node `number` but what its
 * reserve takes. */
static void limit_disk(unsigned number)
{
    struct sim_disk *limited = nodes.list[number].disk;

    sim_disk_set_capacity(limited, sim_disk_used(limited));
}

/* Acquire `count` keys of 200 bytes through node `number`, or fewer if one is
 * refused. Returns the last outcome. */
static struct hf_node_outcome fill_keys(unsigned number, uint64_t session,
                                        uint64_t first, unsigned count)
{
    struct hf_node_outcome outcome = {0};
    char key[HF_KEY_MAX + 1];

    for (uint64_t i = first; i < first + count && !outcome.err; i++) {
        struct hf_command lock;

        (void)snprintf(key, sizeof(key), "%0200u", (unsigned)i);
        lock = lock_command(session, i, key, (unsigned)i, 600000);
        outcome = call_run(&nodes, number, &lock);
    }
    return outcome;
}

/* An entry needs a majority of disks. One full disk of three does not matter,
 * two do, although the disk of the leader is not full. */
static void two_full_disks_of_three_refuse_locks(void **state)
{
    unsigned leader = start(3)->number;
    unsigned full = other_than(&nodes, leader);
    uint64_t session = open_session(&nodes, leader, 1);
    struct hf_node *node = nodes.list[leader].node;
    struct hf_node_outcome outcome;

    (void)state;
    sim_nodes_run(&nodes, 500, NULL, NULL); /* writes the reserves */
    limit_disk(full);
    assert_int_equal(fill_keys(leader, session, 1, 500).err, HF_OK);
    assert_true(hf_consensus_is_low_on_space(nodes.list[full].node));
    assert_false(hf_consensus_is_low_on_space(node));
    limit_disk(other_than(&nodes, full));
    outcome = fill_keys(leader, session, 501, 500);
    assert_int_equal(outcome.err, HF_ELIMIT);
    assert_true(outcome.no_space);
    assert_int_equal(hf_wal_space(node->journal.wal), HF_WAL_SPACE_OK);
}

/* ---- Memory -------------------------------------------------------------*/

static bool has_commit_to_apply(void *arg)
{
    const struct hf_node *node = arg;

    return node->commit > node->machine.applied;
}

/* A node that skipped an entry would differ from the others. */
static void a_node_that_cannot_apply_for_lack_of_memory_stops(void **state)
{
    struct sim_node *leader = start(1);
    struct hf_command lock =
        lock_command(open_session(&nodes, 0, 1), 1, "k", 1, 60000);
    struct call call;

    (void)state;
    call_start(&nodes, 0, &call, &lock, 1000);
    assert_true(sim_nodes_run(&nodes, 1000, has_commit_to_apply, leader->node));
    hf_alloc_fail(1, 1);
    hf_apply_entries(leader->node);
    assert_true(hf_alloc_failed());
    assert_true(leader->node->has_failed);
    assert_non_null(
        strstr(leader->error.text, "cannot apply a command: out of memory"));
    sim_nodes_run(&nodes, 2000, NULL, NULL);
    assert_false(call.is_done);
    hf_buf_fini(&call.bytes);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(
            a_new_leader_expires_nothing_before_its_own_entry, tear_down),
        cmocka_unit_test_teardown(a_pause_of_350_ms_costs_no_election,
                                  tear_down),
        cmocka_unit_test_teardown(
            a_turn_proposes_a_limited_number_of_expirations, tear_down),
        cmocka_unit_test_teardown(one_round_serves_all_reads_that_wait,
                                  tear_down),
        cmocka_unit_test_teardown(two_full_disks_of_three_refuse_locks,
                                  tear_down),
        cmocka_unit_test_teardown(
            a_node_that_cannot_apply_for_lack_of_memory_stops, tear_down),
    };

    return hf_test_main("node-office", cases, HF_TEST_COUNT(cases), 0);
}
