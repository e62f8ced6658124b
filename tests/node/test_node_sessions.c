/* Leases, sessions and grants of whole nodes. */
#include "node/calls.h"

static struct sim_nodes nodes;
static struct hf_node_grant pushed; /* the last grant that was pushed */
static unsigned push_count;
static uint64_t forced; /* token of the last lock reported as broken */

static void on_grant(void *arg, uint64_t conn,
                     const struct hf_node_grant *grant)
{
    (void)arg;
    assert_int_equal(conn, 7);
    pushed = *grant;
    push_count++;
}

static void on_forced(void *arg, uint64_t conn, uint64_t token)
{
    (void)arg;
    assert_int_equal(conn, 7);
    forced = token;
}

static const struct hf_node_hooks hooks = {
    .on_grant = on_grant,
    .on_forced = on_forced,
};

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
    return hf_table_find(&node->node->machine.store->table, key_of(key));
}

static bool has_session(const struct sim_node *node, uint64_t id)
{
    const struct hf_session *session =
        hf_table_find_session(&node->node->machine.store->table, id);

    return session && !session->ended;
}

static void attach(unsigned number, uint64_t session)
{
    assert_int_equal(hf_attachments_add(nodes.list[number].node, session, 7),
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

/* The holder is at one node, and the operator at another. */
static void check_forced(bool now)
{
    struct sim_node *leader = start(3);
    unsigned origin = other_than(&nodes, leader->number);
    uint64_t session = open_session(&nodes, origin, 1);
    struct hf_command lock = lock_command(session, 1, "k", 1, 60000);
    uint64_t token = call_run(&nodes, origin, &lock).result.token;
    struct hf_command force = {
        .kind = HF_COMMAND_FORCE,
        .session = open_session(&nodes, leader->number, 2),
        .sequence = 1,
        .key = key_of("k"),
        .token = token,
        .now = now,
    };

    forced = 0;
    attach(origin, session);
    attach(leader->number, force.session);
    assert_int_equal(call_run(&nodes, leader->number, &force).result.err,
                     HF_OK);
    sim_nodes_run(&nodes, 50, NULL, NULL);
    assert_true(forced == token);
}

static void a_broken_lock_is_reported_to_its_holder(void **state)
{
    (void)state;
    check_forced(false);
    sim_nodes_fini(&nodes);
    check_forced(true);
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
    hf_attachments_remove(nodes.list[origin].node, session, 7);
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

/* Two clients were at a node that stands still. One of them has ended, and the
 * other one has moved to the leader. */
static void a_stopped_origin_detaches_its_sessions(void **state)
{
    struct sim_node *leader = start(3);
    unsigned origin = other_than(&nodes, leader->number);
    uint64_t ended = open_session(&nodes, origin, 1);
    uint64_t moved = open_session(&nodes, origin, 2);

    (void)state;
    attach(origin, ended);
    attach(origin, moved);
    sim_nodes_run(&nodes, 20000, NULL, NULL);
    sim_nodes_pause(&nodes, origin, 60000);
    attach(leader->number, moved);
    sim_nodes_run(&nodes, HF_NODE_SILENT_MS + HF_NODE_DETACHED_MS - 500, NULL,
                  NULL);
    assert_true(has_session(leader, ended));
    sim_nodes_run(&nodes, 1000, NULL, NULL);
    assert_false(has_session(leader, ended));
    assert_true(has_session(leader, moved));
}

/* A node that stood still reports its sessions once more. */
static void a_stopped_origin_attaches_its_sessions_again(void **state)
{
    struct sim_node *leader = start(3);
    unsigned origin = other_than(&nodes, leader->number);
    uint64_t session = open_session(&nodes, origin, 1);

    (void)state;
    attach(origin, session);
    sim_nodes_pause(&nodes, origin, HF_NODE_SILENT_MS + 5000);
    sim_nodes_run(&nodes, HF_NODE_SILENT_MS + 4000, NULL, NULL);
    assert_int_equal(hf_sessions_origins(leader->node, session), 0);
    sim_nodes_run(&nodes, 3 * HF_NODE_DETACHED_MS, NULL, NULL);
    assert_true(has_session(leader, session));
}

/* The process of a waiter was killed, so its connection is closed and nothing
 * is canceled. */
static void the_waiter_of_a_killed_client_leaves_within_12_s(void **state)
{
    struct sim_node *leader = start(3);
    unsigned origin = other_than(&nodes, leader->number);
    uint64_t session = open_session(&nodes, origin, 1);
    struct hf_command lock = lock_command(session, 1, "k", 1, 60000);
    uint64_t killed;

    (void)state;
    assert_int_equal(call_run(&nodes, origin, &lock).result.err, HF_OK);
    attach(origin, session);
    killed = queue_second(origin, "k");
    hf_attachments_remove(nodes.list[origin].node, killed, 7);
    sim_nodes_wake(&nodes, origin);
    sim_nodes_run(&nodes, 12000, NULL, NULL);
    lock = lock_command(session, 2, "k", 3, 60000);
    assert_int_equal(call_run(&nodes, origin, &lock).result.position, 1);
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

static void detach(unsigned number, uint64_t session)
{
    hf_attachments_remove(nodes.list[number].node, session, 7);
    sim_nodes_wake(&nodes, number);
    sim_nodes_run(&nodes, 50, NULL, NULL);
}

/* A client has moved from one node to another. The first one was cut off: it
 * reports the session again when it returns, and notices only later that the
 * client has left. */
static void an_old_connection_does_not_take_a_session_away(void **state)
{
    struct sim_node *leader = start(3);
    unsigned left = other_than(&nodes, leader->number);
    unsigned entered = other_than(&nodes, left);
    uint64_t session = open_session(&nodes, left, 1);

    (void)state;
    attach(left, session);
    attach(entered, session);
    sim_nodes_reset(&nodes, left, leader->number);
    sim_nodes_run(&nodes, 1000, NULL, NULL);
    detach(left, session);
    sim_nodes_run(&nodes, 2 * HF_NODE_DETACHED_MS, NULL, NULL);
    assert_true(has_session(leader, session));
    detach(entered, session);
    sim_nodes_run(&nodes, HF_NODE_DETACHED_MS + 100, NULL, NULL);
    assert_false(has_session(leader, session));
}

/* The leader does not know that the session was detached. It learns of it from
 * the next report of all sessions. */
static void a_report_of_all_sessions_replaces_the_last_one(void **state)
{
    struct sim_node *leader = start(3);
    unsigned origin = other_than(&nodes, leader->number);
    uint64_t session = open_session(&nodes, origin, 1);

    (void)state;
    attach(origin, session);
    nodes.list[origin].node->attachments.is_announced = false;
    detach(origin, session);
    sim_nodes_run(&nodes, HF_NODE_DETACHED_MS + 100, NULL, NULL);
    assert_false(has_session(leader, session));
}

/* Memory was short while the node wrote what it sends to the leader, so nothing
 * of that turn is sent. */
static void a_report_that_is_not_sent_is_repeated(void **state)
{
    struct sim_node *leader = start(3);
    struct sim_node *origin = &nodes.list[other_than(&nodes, leader->number)];
    uint64_t session = open_session(&nodes, origin->number, 1);
    struct hf_peer *peer = hf_peers_find(origin->node, leader->number + 1);

    (void)state;
    assert_int_equal(hf_attachments_add(origin->node, session, 7), HF_OK);
    assert_true(peer->out.size > 0);
    peer->out.failed = true;
    sim_nodes_wake(&nodes, origin->number);
    sim_nodes_run(&nodes, 2 * HF_NODE_DETACHED_MS, NULL, NULL);
    assert_true(has_session(leader, session));
}

/* Let the node receive an empty APPEND of its leader in the next term. */
static void receive_next_term(struct hf_node *node)
{
    const struct hf_entries *log = &node->engine.log;
    const struct hf_message message = {
        .kind = HF_MESSAGE_APPEND,
        .peer = node->leader,
        .term = node->leader_term + 1,
        .append = {.prev_index = log->last,
                   .prev_term = hf_entries_term(log, log->last),
                   .commit = node->commit},
    };
    struct hf_buf bytes = {0};
    struct hf_reader reader;

    hf_message_encode(&bytes, &message);
    reader = (struct hf_reader){.data = bytes.data, .size = bytes.size};
    hf_receive_message(node, hf_peers_find(node, node->leader), HF_PACKET_RAFT,
                       &reader);
    hf_buf_fini(&bytes);
}

/* The leader was elected again, and this node has seen nothing of that but the
 * later term. The leader has forgotten which sessions are attached here. */
static void sessions_are_reported_to_a_leader_elected_again(void **state)
{
    struct sim_node *leader = start(3);
    unsigned origin = other_than(&nodes, leader->number);
    struct hf_node *node = nodes.list[origin].node;
    uint64_t session = open_session(&nodes, origin, 1);

    (void)state;
    attach(origin, session);
    assert_true(node->attachments.is_announced);
    receive_next_term(node);
    assert_true(node->leader == leader->node->opts.id);
    assert_false(node->attachments.is_announced);
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
        cmocka_unit_test_teardown(a_broken_lock_is_reported_to_its_holder,
                                  tear_down),
        cmocka_unit_test_teardown(
            a_session_without_client_is_closed_after_a_while, tear_down),
        cmocka_unit_test_teardown(
            the_waiter_of_a_killed_client_leaves_within_12_s, tear_down),
        cmocka_unit_test_teardown(a_dead_origin_detaches_its_sessions,
                                  tear_down),
        cmocka_unit_test_teardown(a_stopped_origin_detaches_its_sessions,
                                  tear_down),
        cmocka_unit_test_teardown(a_stopped_origin_attaches_its_sessions_again,
                                  tear_down),
        cmocka_unit_test_teardown(a_new_leader_waits_before_it_closes_sessions,
                                  tear_down),
        cmocka_unit_test_teardown(
            an_old_connection_does_not_take_a_session_away, tear_down),
        cmocka_unit_test_teardown(
            a_report_of_all_sessions_replaces_the_last_one, tear_down),
        cmocka_unit_test_teardown(a_report_that_is_not_sent_is_repeated,
                                  tear_down),
        cmocka_unit_test_teardown(
            sessions_are_reported_to_a_leader_elected_again, tear_down),
        cmocka_unit_test_teardown(
            a_command_that_races_ahead_of_close_saves_its_session, tear_down),
    };

    return hf_test_main("node-sessions", cases, HF_TEST_COUNT(cases), 0);
}
