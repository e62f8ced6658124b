/* A leader that cannot submit for a while: it waits without using the
 * processor, and loses nothing that it has to propose. */
#include "lib/alloc.h"
#include "node/calls.h"

static struct sim_nodes nodes;

static struct sim_node *start(void)
{
    sim_nodes_init(&nodes, 1, 3);
    sim_nodes_start_all(&nodes);
    return await_leader(&nodes);
}

static int tear_down(void **state)
{
    (void)state;
    sim_nodes_fini(&nodes);
    return 0;
}

/* Acquire "k" with a lease of a second. */
static void hold_key(void)
{
    struct hf_command lock =
        lock_command(open_session(&nodes, 0, 1), 1, "k", 1, 1000);

    assert_int_equal(call_run(&nodes, 0, &lock).result.err, HF_OK);
}

static bool is_held(void)
{
    return hf_table_find(&nodes.list[0].node->machine.store->table,
                         key_of("k"));
}

/* Give the node a turn after the lease of hold_key() is due, and assert that it
 * does not ask for the next turn at once. */
static void expect_rest(struct hf_node *node)
{
    hf_time now = node->now + 2000;

    hf_node_turn(node, now);
    assert_true(hf_node_deadline(node) > now);
}

static void a_leader_rests_while_a_flush_is_awaited(void **state)
{
    struct hf_node *node = start()->node;

    (void)state;
    hold_key();
    node->journal.pending_bytes += HF_NODE_PENDING_MAX + 1;
    expect_rest(node);
    node->journal.pending_bytes -= HF_NODE_PENDING_MAX + 1;
}

static void a_leader_rests_while_it_is_leaving(void **state)
{
    struct hf_node *node = start()->node;

    (void)state;
    hold_key();
    hf_node_shutdown(node);
    node->leave_until = HF_NEVER;
    expect_rest(node);
}

static void a_leader_rests_before_it_tries_again(void **state)
{
    struct hf_node *node = start()->node;
    struct hf_command open = {.kind = HF_COMMAND_OPEN, .nonce = nonce_of(9)};
    struct call call;

    (void)state;
    node->proposals.retry = node->now + 3000;
    call_start(&nodes, 0, &call, &open, 10000);
    expect_rest(node);
    sim_nodes_run(&nodes, 1, NULL, NULL);
    node->proposals.retry = HF_NEVER;
    sim_nodes_wake(&nodes, 0);
    assert_int_equal(call_wait(&nodes, &call).err, HF_OK);
}

/* So many writes are not durable that the engine takes no TICK. */
static void a_node_rests_while_it_cannot_tick(void **state)
{
    struct hf_node *node = start()->node;
    struct hf_writes writes = node->engine.writes;

    (void)state;
    node->engine.writes.ring.count = HF_RAFT_WRITES_MAX;
    node->timeout = node->now;
    expect_rest(node);
    node->engine.writes = writes;
}

/* Whichever allocation of the turn fails, the lease expires a little later. */
static void a_lease_expires_after_memory_was_short(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth <= 6; nth++) {
        struct hf_node *node = start()->node;

        hold_key();
        sim_nodes_run(&nodes, 500, NULL, NULL);
        assert_true(is_held());
        nodes.schedule.now += 2000;
        hf_alloc_fail(nth, 1);
        hf_node_turn(node, sim_node_now(&nodes.list[0]));
        (void)hf_alloc_failed();
        sim_nodes_wake(&nodes, 0);
        sim_nodes_run(&nodes, 1000, NULL, NULL);
        assert_false(node->has_failed);
        assert_false(is_held());
        if (nth < 6)
            sim_nodes_fini(&nodes);
    }
}

/* ---- A backlog ----------------------------------------------------------*/

struct backlog {
    struct call calls[HF_NODE_APPLY_MAX + 500];
    uint64_t applied, longest; /* `longest`: entries applied in one turn */
};

static bool is_backlog_done(void *arg)
{
    struct backlog *backlog = arg;
    uint64_t applied = nodes.list[0].node->machine.applied;

    if (applied - backlog->applied > backlog->longest)
        backlog->longest = applied - backlog->applied;
    backlog->applied = applied;
    for (unsigned i = 0; i < HF_TEST_COUNT(backlog->calls); i++) {
        if (!backlog->calls[i].is_done)
            return false;
    }
    return true;
}

static void a_backlog_is_applied_in_parts(void **state)
{
    static struct backlog backlog;
    unsigned count = HF_TEST_COUNT(backlog.calls);
    uint64_t sessions[2];

    (void)state;
    (void)start();
    for (unsigned i = 0; i < 2; i++)
        sessions[i] = open_session(&nodes, 0, i + 1);
    backlog.applied = nodes.list[0].node->machine.applied;
    for (unsigned i = 0; i < count; i++) {
        struct hf_command lock =
            lock_command(sessions[i % 2], i / 2 + 1, "k", i + 1, 600000);

        lock.queue = false;
        lock.done = 1;
        call_start(&nodes, 0, &backlog.calls[i], &lock, 60000);
    }
    assert_true(sim_nodes_run(&nodes, 60000, is_backlog_done, &backlog));
    assert_int_equal(backlog.longest, HF_NODE_APPLY_MAX);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(backlog.calls[i].outcome.err, HF_OK);
        hf_buf_fini(&backlog.calls[i].bytes);
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(a_leader_rests_while_a_flush_is_awaited,
                                  tear_down),
        cmocka_unit_test_teardown(a_leader_rests_while_it_is_leaving,
                                  tear_down),
        cmocka_unit_test_teardown(a_leader_rests_before_it_tries_again,
                                  tear_down),
        cmocka_unit_test_teardown(a_node_rests_while_it_cannot_tick, tear_down),
        cmocka_unit_test_teardown(a_lease_expires_after_memory_was_short,
                                  tear_down),
        cmocka_unit_test_teardown(a_backlog_is_applied_in_parts, tear_down),
    };

    return hf_test_main("node-busy", cases, HF_TEST_COUNT(cases), 0);
}
