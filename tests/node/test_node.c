/* Whole nodes over a simulated network and disk. */
#include "node/calls.h"

static struct sim_nodes nodes;

static void start(unsigned count)
{
    sim_nodes_init(&nodes, count, 1);
    sim_nodes_start_all(&nodes);
}

static int tear_down(void **state)
{
    (void)state;
    sim_nodes_fini(&nodes);
    return 0;
}

static void check_pair(unsigned number)
{
    uint64_t session = open_session(&nodes, number, 1);
    struct hf_command lock = lock_command(session, 1, "k", 1, 10000);
    struct hf_node_outcome locked = call_run(&nodes, number, &lock);
    struct hf_command unlock =
        unlock_command(session, 2, "k", 1, locked.result.token);

    assert_int_equal(locked.err, HF_OK);
    assert_int_equal(locked.result.err, HF_OK);
    assert_true(locked.result.token > 0);
    assert_int_equal(call_run(&nodes, number, &unlock).result.err, HF_OK);
}

/* GO-21 */
static void one_node_commits_alone(void **state)
{
    (void)state;
    start(1);
    check_pair(0);
}

static void three_nodes_elect_a_leader_and_commit(void **state)
{
    (void)state;
    start(3);
    check_pair(await_leader(&nodes)->number);
}

static void a_follower_forwards_to_the_leader(void **state)
{
    (void)state;
    start(3);
    check_pair(other_than(&nodes, await_leader(&nodes)->number));
}

/* GO-14 */
static void a_request_is_held_until_there_is_a_leader(void **state)
{
    (void)state;
    start(3);
    check_pair(1); /* no leader is elected yet */
}

static void a_restarted_cluster_still_has_its_locks(void **state)
{
    struct hf_command lock;
    struct hf_node_outcome outcome;
    uint64_t session;

    (void)state;
    start(3);
    session = open_session(&nodes, 0, 1);
    lock = lock_command(session, 1, "k", 1, 60000);
    outcome = call_run(&nodes, 0, &lock);
    assert_int_equal(outcome.result.err, HF_OK);
    for (unsigned i = 0; i < 3; i++)
        sim_nodes_crash(&nodes, i, SIM_CRASH_LOSE, false);
    sim_nodes_start_all(&nodes);
    lock = lock_command(open_session(&nodes, 1, 2), 1, "k", 2, 60000);
    lock.queue = false;
    assert_int_equal(call_run(&nodes, 1, &lock).result.err, HF_EBUSY);
}

static void a_minority_answers_unavailable_or_in_doubt(void **state)
{
    struct sim_node *leader;
    struct hf_command open = {.kind = HF_COMMAND_OPEN, .nonce = nonce_of(9)};
    struct call at_leader;
    struct call at_follower;
    unsigned follower;

    (void)state;
    start(3);
    leader = await_leader(&nodes);
    follower = other_than(&nodes, leader->number);
    sim_nodes_crash(&nodes, 3 - leader->number - follower, SIM_CRASH_LOSE,
                    false);
    sim_nodes_run(&nodes, 50, NULL, NULL);
    sim_nodes_crash(&nodes, follower, SIM_CRASH_LOSE, false);
    call_start(&nodes, leader->number, &at_leader, &open, 200);
    assert_int_equal(call_wait(&nodes, &at_leader).err, HF_EINDOUBT);
    sim_nodes_crash(&nodes, leader->number, SIM_CRASH_LOSE, false);
    sim_nodes_start(&nodes, follower);
    call_start(&nodes, follower, &at_follower, &open, 2000);
    assert_int_equal(call_wait(&nodes, &at_follower).err, HF_EUNAVAIL);
}

/* G2-07, MJ-08 */
static void a_request_survives_the_death_of_the_leader(void **state)
{
    struct sim_node *leader;
    struct hf_command open = {.kind = HF_COMMAND_OPEN, .nonce = nonce_of(9)};
    struct call call;
    unsigned follower;

    (void)state;
    start(3);
    leader = await_leader(&nodes);
    follower = other_than(&nodes, leader->number);
    sim_nodes_pause(&nodes, leader->number, 1000);
    call_start(&nodes, follower, &call, &open, 10000);
    sim_nodes_run(&nodes, 20, NULL, NULL);
    assert_int_equal(call.request.copies, 1);
    sim_nodes_crash(&nodes, leader->number, SIM_CRASH_LOSE, false);
    assert_int_equal(call_wait(&nodes, &call).err, HF_OK);
    assert_int_equal(call.outcome.result.err, HF_OK);
}

static void a_dead_leader_is_replaced_before_any_timeout(void **state)
{
    struct sim_node *leader;
    hf_time died;

    (void)state;
    start(3);
    leader = await_leader(&nodes);
    sim_nodes_run(&nodes, 500, NULL, NULL);
    died = nodes.schedule.now;
    sim_nodes_crash(&nodes, leader->number, SIM_CRASH_LOSE, false);
    assert_ptr_not_equal(await_leader(&nodes), leader);
    assert_true(nodes.schedule.now - died < 200);
}

/* GO-33 */
static void an_idle_follower_applies_without_a_heartbeat(void **state)
{
    struct sim_node *leader;
    struct sim_node *follower;
    struct hf_node_outcome outcome;
    struct hf_command open = {.kind = HF_COMMAND_OPEN, .nonce = nonce_of(9)};

    (void)state;
    start(3);
    leader = await_leader(&nodes);
    follower = &nodes.list[other_than(&nodes, leader->number)];
    for (unsigned i = 0; i < 5; i++) {
        open.nonce = nonce_of(100 + i);
        outcome = call_run(&nodes, leader->number, &open);
        sim_nodes_run(&nodes, 20, NULL, NULL);
        assert_true(follower->node->machine.applied >= outcome.index);
    }
}

/* Returns true if the leader has not sent the commit index yet to a follower
 * that has all entries. */
static bool is_commit_unsent(struct hf_node *leader)
{
    struct hf_message message;

    for (size_t i = 0; i < leader->peers.count; i++) {
        if (hf_engine_send_commit(&leader->engine, leader->peers.list[i].id,
                                  &message))
            return true;
    }
    return false;
}

static void a_commit_is_not_sent_alone_at_once(void **state)
{
    struct sim_node *leader;
    struct hf_command open = {.kind = HF_COMMAND_OPEN, .nonce = nonce_of(9)};

    (void)state;
    start(3);
    leader = await_leader(&nodes);
    (void)call_run(&nodes, leader->number, &open);
    assert_true(is_commit_unsent(leader->node));
}

static void a_read_at_a_follower_gets_the_commit_at_once(void **state)
{
    struct sim_node *leader;
    struct hf_command open = {.kind = HF_COMMAND_OPEN};
    unsigned follower;

    (void)state;
    start(3);
    leader = await_leader(&nodes);
    follower = other_than(&nodes, leader->number);
    for (unsigned i = 0; i < 10; i++) {
        hf_time began;

        leader->node->send_commit_at = HF_NEVER;
        open.nonce = nonce_of(100 + i);
        (void)call_run(&nodes, leader->number, &open);
        began = nodes.schedule.now;
        assert_int_equal(call_run(&nodes, follower, NULL).err, HF_OK);
        assert_true(nodes.schedule.now - began < 30); /* before a heartbeat */
    }
}

static void a_read_is_confirmed_by_a_majority(void **state)
{
    struct sim_node *leader;
    struct call call;
    unsigned follower;

    (void)state;
    start(3);
    leader = await_leader(&nodes);
    follower = other_than(&nodes, leader->number);
    assert_int_equal(call_run(&nodes, leader->number, NULL).err, HF_OK);
    assert_int_equal(call_run(&nodes, follower, NULL).err, HF_OK);
    for (unsigned i = 0; i < 3; i++) {
        sim_nodes_cut(&nodes, i, leader->number);
        sim_nodes_cut(&nodes, leader->number, i);
    }
    call_start(&nodes, leader->number, &call, NULL, 300);
    assert_int_equal(call_wait(&nodes, &call).err, HF_EUNAVAIL);
    assert_int_equal(call_run(&nodes, follower, NULL).err, HF_OK);
}

/* While the follower lacks the command, its read waits. */
static void a_read_sees_what_was_answered_before(void **state)
{
    struct sim_node *leader;
    struct hf_node_outcome outcome;
    struct hf_command open = {.kind = HF_COMMAND_OPEN, .nonce = nonce_of(9)};
    unsigned behind;

    (void)state;
    start(3);
    leader = await_leader(&nodes);
    behind = other_than(&nodes, leader->number);
    sim_nodes_run(&nodes, 300, NULL, NULL);
    for (unsigned i = 0; i < 20; i++) {
        open.nonce = nonce_of(100 + i);
        sim_nodes_cut(&nodes, leader->number, behind);
        outcome = call_run(&nodes, leader->number, &open);
        sim_nodes_heal(&nodes);
        assert_int_equal(call_run(&nodes, behind, NULL).err, HF_OK);
        assert_true(nodes.list[behind].node->machine.applied >= outcome.index);
    }
}

static void the_incarnation_is_higher_after_a_restart(void **state)
{
    uint64_t first;

    (void)state;
    start(1);
    first = nodes.list[0].node->incarnation;
    for (unsigned i = 1; i < 4; i++) {
        sim_nodes_crash(&nodes, 0, SIM_CRASH_LOSE, false);
        sim_nodes_start(&nodes, 0);
        assert_true(nodes.list[0].node->incarnation >= first + i);
    }
}

static bool has_left(void *arg)
{
    return hf_node_has_left(arg);
}

static void a_leader_that_leaves_hands_over(void **state)
{
    struct sim_node *leader;
    hf_time left;

    (void)state;
    start(3);
    leader = await_leader(&nodes);
    left = nodes.schedule.now;
    hf_node_shutdown(leader->node);
    sim_nodes_wake(&nodes, leader->number);
    assert_true(sim_nodes_run(&nodes, 1000, has_left, leader->node));
    assert_ptr_not_equal(await_leader(&nodes), leader);
    assert_true(nodes.schedule.now - left < 100);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(one_node_commits_alone, tear_down),
        cmocka_unit_test_teardown(three_nodes_elect_a_leader_and_commit,
                                  tear_down),
        cmocka_unit_test_teardown(a_follower_forwards_to_the_leader, tear_down),
        cmocka_unit_test_teardown(a_request_is_held_until_there_is_a_leader,
                                  tear_down),
        cmocka_unit_test_teardown(a_restarted_cluster_still_has_its_locks,
                                  tear_down),
        cmocka_unit_test_teardown(a_minority_answers_unavailable_or_in_doubt,
                                  tear_down),
        cmocka_unit_test_teardown(a_request_survives_the_death_of_the_leader,
                                  tear_down),
        cmocka_unit_test_teardown(a_dead_leader_is_replaced_before_any_timeout,
                                  tear_down),
        cmocka_unit_test_teardown(an_idle_follower_applies_without_a_heartbeat,
                                  tear_down),
        cmocka_unit_test_teardown(a_commit_is_not_sent_alone_at_once,
                                  tear_down),
        cmocka_unit_test_teardown(a_read_at_a_follower_gets_the_commit_at_once,
                                  tear_down),
        cmocka_unit_test_teardown(a_read_is_confirmed_by_a_majority, tear_down),
        cmocka_unit_test_teardown(a_read_sees_what_was_answered_before,
                                  tear_down),
        cmocka_unit_test_teardown(the_incarnation_is_higher_after_a_restart,
                                  tear_down),
        cmocka_unit_test_teardown(a_leader_that_leaves_hands_over, tear_down),
    };

    return hf_test_main("node", cases, HF_TEST_COUNT(cases), 0);
}
