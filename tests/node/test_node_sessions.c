/* Leases, sessions and grants of whole nodes. */
#include "node/calls.h"

static struct sim_nodes nodes;
static struct hf_node_grant pushed; /* the last grant that was pushed */
static unsigned push_count;

static void on_grant(void *arg, uint64_t conn,
                     const struct hf_node_grant *grant)
{
    (void)arg;
    assert_int_equal(conn, 7);
    pushed = *grant;
    push_count++;
}

static const struct hf_node_hooks hooks = {.on_grant = on_grant};

static void on_start(void *arg, struct sim_node *node)
{
    (void)arg;
    hf_node_set_hooks(node->node, &hooks, NULL);
}

static struct sim_node *start(unsigned count)
{
    push_count = 0;
    pushed = (struct hf_node_grant){0};
    sim_nodes_init(&nodes, count, 3);
    nodes.on_start = on_start;
    sim_nodes_start_all(&nodes);
    return await_leader(&nodes);
}

static int tear_down(void **state)
{
    (void)state;
    sim_nodes_fini(&nodes);
    return 0;
}

static bool is_held(const struct sim_node *node, const char *key)
{
    return hf_table_find(&node->node->replica.store->table, key_of(key));
}

static bool has_session(const struct sim_node *node, uint64_t id)
{
    const struct hf_session *session =
        hf_table_find_session(&node->node->replica.store->table, id);

    return session && !session->ended;
}

static void attach(unsigned number, uint64_t session)
{
    assert_int_equal(hf_node_attach(nodes.list[number].node, session, 7),
                     HF_OK);
    sim_nodes_wake(&nodes, number);
    sim_nodes_run(&nodes, 50, NULL, NULL);
}

/* Open a second session, which waits for `key`; the first session holds it. */
static uint64_t queue_second(unsigned number, const char *key)
{
    uint64_t session = open_session(&nodes, number, 2);
    struct hf_command lock = lock_command(session, 1, key, 2, 5000);
    struct hf_node_outcome outcome;

    attach(number, session);
    outcome = call_run(&nodes, number, &lock);
    assert_int_equal(outcome.result.err, HF_EBUSY);
    assert_int_equal(outcome.result.position, 1);
    return session;
}

/* ---- Leases -------------------------------------------------------------*/

static void a_lease_expires_when_it_is_over_and_not_before(void **state)
{
    struct sim_node *leader = start(3);
    uint64_t session = open_session(&nodes, leader->number, 1);
    struct hf_command lock = lock_command(session, 1, "k", 1, 1000);

    (void)state;
    assert_int_equal(call_run(&nodes, leader->number, &lock).result.err, HF_OK);
    sim_nodes_run(&nodes, 990, NULL, NULL);
    assert_true(is_held(leader, "k"));
    sim_nodes_run(&nodes, 100, NULL, NULL);
    assert_false(is_held(leader, "k"));
}

/* Followers measure the time of leases too, so a lease does not start again
 * when a follower becomes the leader. */
static void a_new_leader_keeps_and_ends_inherited_leases(void **state)
{
    struct sim_node *leader = start(3);
    uint64_t session = open_session(&nodes, leader->number, 1);
    struct hf_command lock = lock_command(session, 1, "k", 1, 3000);
    hf_time granted;

    (void)state;
    assert_int_equal(call_run(&nodes, leader->number, &lock).result.err, HF_OK);
    granted = nodes.schedule.now;
    sim_nodes_run(&nodes, 500, NULL, NULL);
    sim_nodes_crash(&nodes, leader->number, SIM_CRASH_LOSE, false);
    leader = await_leader(&nodes);
    sim_nodes_run(&nodes, 2900 - (uint32_t)(nodes.schedule.now - granted), NULL,
                  NULL);
    assert_true(is_held(leader, "k"));
    sim_nodes_run(&nodes, 300, NULL, NULL);
    assert_false(is_held(leader, "k"));
}

static void a_restarted_node_counts_leases_in_full(void **state)
{
    struct sim_node *leader = start(1);
    uint64_t session = open_session(&nodes, 0, 1);
    struct hf_command lock = lock_command(session, 1, "k", 1, 1000);

    (void)state;
    assert_int_equal(call_run(&nodes, 0, &lock).result.err, HF_OK);
    sim_nodes_run(&nodes, 900, NULL, NULL);
    sim_nodes_crash(&nodes, 0, SIM_CRASH_LOSE, false);
    sim_nodes_start(&nodes, 0);
    sim_nodes_run(&nodes, 900, NULL, NULL);
    assert_true(is_held(leader, "k"));
    sim_nodes_run(&nodes, 300, NULL, NULL);
    assert_false(is_held(leader, "k"));
}

static void leases_of_a_snapshot_start_again(void **state)
{
    struct sim_node *leader;
    uint64_t session;
    struct hf_command lock;

    (void)state;
    sim_nodes_init(&nodes, 1, 3);
    nodes.opts.snapshot_bytes = 100;
    sim_nodes_start_all(&nodes);
    leader = await_leader(&nodes);
    session = open_session(&nodes, 0, 1);
    lock = lock_command(session, 1, "k", 1, 1000);
    assert_int_equal(call_run(&nodes, 0, &lock).result.err, HF_OK);
    for (unsigned i = 0; i < 20; i++)
        (void)open_session(&nodes, 0, 10 + i);
    sim_nodes_run(&nodes, 700, NULL, NULL);
    sim_nodes_crash(&nodes, 0, SIM_CRASH_LOSE, false);
    sim_nodes_start(&nodes, 0);
    assert_true(is_held(leader, "k")); /* restored from the snapshot */
    sim_nodes_run(&nodes, 900, NULL, NULL);
    assert_true(is_held(leader, "k"));
    sim_nodes_run(&nodes, 300, NULL, NULL);
    assert_false(is_held(leader, "k"));
}

/* ---- Grants -------------------------------------------------------------*/

static void a_grant_is_pushed_through_the_origin_with_its_age(void **state)
{
    struct sim_node *leader = start(3);
    unsigned origin = other_than(&nodes, leader->number);
    uint64_t session = open_session(&nodes, origin, 1);
    struct hf_command lock = lock_command(session, 1, "k", 1, 60000);
    struct hf_node_outcome outcome = call_run(&nodes, origin, &lock);
    struct hf_command unlock;
    uint64_t second = queue_second(origin, "k");

    (void)state;
    sim_nodes_run(&nodes, 1000, NULL, NULL);
    assert_int_equal(push_count, 0);
    unlock = unlock_command(session, 2, "k", 1, outcome.result.token);
    assert_int_equal(call_run(&nodes, origin, &unlock).result.err, HF_OK);
    sim_nodes_run(&nodes, 200, NULL, NULL);
    assert_int_equal(push_count, 1);
    assert_true(pushed.session == second);
    assert_true(pushed.token > outcome.result.token);
    assert_true(pushed.age_ms >= 1000);
    assert_true(pushed.age_ms <= 1100);
}

static void a_grant_of_a_new_leader_has_no_age(void **state)
{
    struct sim_node *leader = start(3);
    unsigned origin = other_than(&nodes, leader->number);
    uint64_t session = open_session(&nodes, origin, 1);
    struct hf_command lock = lock_command(session, 1, "k", 1, 60000);
    struct hf_node_outcome outcome = call_run(&nodes, origin, &lock);
    struct hf_command unlock =
        unlock_command(session, 2, "k", 1, outcome.result.token);
    struct call call;

    (void)state;
    (void)queue_second(origin, "k");
    /* The entries of the leader reach the others, but it receives no
     * answers. */
    sim_nodes_cut(&nodes, origin, leader->number);
    sim_nodes_cut(&nodes, 3 - origin - leader->number, leader->number);
    call_start(&nodes, leader->number, &call, &unlock, 10000);
    sim_nodes_run(&nodes, 100, NULL, NULL);
    assert_int_equal(push_count, 0);
    sim_nodes_crash(&nodes, leader->number, SIM_CRASH_LOSE, false);
    hf_buf_fini(&call.bytes);
    (void)await_leader(&nodes);
    sim_nodes_run(&nodes, 500, NULL, NULL);
    assert_true(push_count > 0);
    assert_int_equal(pushed.age_ms, -1);
}

/* ---- Sessions -----------------------------------------------------------*/

static void a_session_without_client_is_closed_after_a_while(void **state)
{
    struct sim_node *leader = start(3);
    unsigned origin = other_than(&nodes, leader->number);
    uint64_t session = open_session(&nodes, origin, 1);

    (void)state;
    attach(origin, session);
    sim_nodes_run(&nodes, 30000, NULL, NULL);
    assert_true(has_session(leader, session));
    hf_node_detach(nodes.list[origin].node, session, 7);
    sim_nodes_wake(&nodes, origin);
    sim_nodes_run(&nodes, HF_NODE_DETACHED_MS - 100, NULL, NULL);
    assert_true(has_session(leader, session));
    sim_nodes_run(&nodes, 300, NULL, NULL);
    assert_false(has_session(leader, session));
}

static void a_dead_origin_detaches_its_sessions(void **state)
{
    struct sim_node *leader = start(3);
    unsigned origin = other_than(&nodes, leader->number);
    uint64_t session = open_session(&nodes, origin, 1);

    (void)state;
    attach(origin, session);
    sim_nodes_run(&nodes, 20000, NULL, NULL);
    sim_nodes_crash(&nodes, origin, SIM_CRASH_LOSE, false);
    sim_nodes_run(&nodes, HF_NODE_DETACHED_MS - 100, NULL, NULL);
    assert_true(has_session(leader, session));
    sim_nodes_run(&nodes, 300, NULL, NULL);
    assert_false(has_session(leader, session));
}

/* The other nodes need time to report which sessions are attached to them. */
static void a_new_leader_waits_before_it_closes_sessions(void **state)
{
    struct sim_node *leader = start(3);
    unsigned origin = other_than(&nodes, leader->number);
    uint64_t attached = open_session(&nodes, origin, 1);
    uint64_t lonely;

    (void)state;
    attach(origin, attached);
    sim_nodes_run(&nodes, 20000, NULL, NULL);
    lonely = open_session(&nodes, origin, 2);
    sim_nodes_run(&nodes, 5000, NULL, NULL);
    sim_nodes_crash(&nodes, leader->number, SIM_CRASH_LOSE, false);
    leader = await_leader(&nodes);
    sim_nodes_run(&nodes, HF_NODE_DETACHED_MS - 300, NULL, NULL);
    assert_true(has_session(leader, lonely));
    sim_nodes_run(&nodes, 1000, NULL, NULL);
    assert_false(has_session(leader, lonely));
    assert_true(has_session(leader, attached));
}

/* In the log, the LOCK is right before a CLOSE of its session. The CLOSE has no
 * effect, because its sequence is lower than that of the LOCK. */
static void a_command_that_races_ahead_of_close_saves_its_session(void **state)
{
    struct sim_node *leader = start(1);
    uint64_t session = open_session(&nodes, 0, 1);
    struct hf_command lock = lock_command(session, 1, "k", 1, 60000);
    struct call call;

    (void)state;
    sim_nodes_run(&nodes, HF_NODE_DETACHED_MS - 50, NULL, NULL);
    assert_true(has_session(leader, session));
    sim_nodes_pause(&nodes, 0, 200);
    call_start(&nodes, 0, &call, &lock, 10000);
    assert_int_equal(call_wait(&nodes, &call).result.err, HF_OK);
    sim_nodes_run(&nodes, 500, NULL, NULL);
    assert_true(has_session(leader, session));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(
            a_lease_expires_when_it_is_over_and_not_before, tear_down),
        cmocka_unit_test_teardown(a_new_leader_keeps_and_ends_inherited_leases,
                                  tear_down),
        cmocka_unit_test_teardown(a_restarted_node_counts_leases_in_full,
                                  tear_down),
        cmocka_unit_test_teardown(leases_of_a_snapshot_start_again, tear_down),
        cmocka_unit_test_teardown(
            a_grant_is_pushed_through_the_origin_with_its_age, tear_down),
        cmocka_unit_test_teardown(a_grant_of_a_new_leader_has_no_age,
                                  tear_down),
        cmocka_unit_test_teardown(
            a_session_without_client_is_closed_after_a_while, tear_down),
        cmocka_unit_test_teardown(a_dead_origin_detaches_its_sessions,
                                  tear_down),
        cmocka_unit_test_teardown(a_new_leader_waits_before_it_closes_sessions,
                                  tear_down),
        cmocka_unit_test_teardown(
            a_command_that_races_ahead_of_close_saves_its_session, tear_down),
    };

    return hf_test_main("node-sessions", cases, HF_TEST_COUNT(cases), 0);
}
