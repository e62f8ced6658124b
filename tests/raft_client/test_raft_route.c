/* Which node a client of raft: uses, and when it leaves a node. */
#include "raft_client/script.h"

static const struct hf_result granted = {.token = 41};

static void push_leader(unsigned stream, uint64_t leader, const char *address)
{
    const struct hf_mux_push push = {
        .kind = HF_MUX_PUSH_LEADER,
        .leader = leader,
        .address = hf_bytes_of(address),
    };

    script_push(stream, &push);
}

static unsigned current_node(void)
{
    return script.streams[script_stream()].node;
}

/* ---- The leader ---------------------------------------------------------*/

static void clients_begin_at_a_random_node_and_move_to_the_leader(void **state)
{
    (void)state;
    script.nodes[0].leader = 2;
    script.nodes[1].leader = 2;
    script.nodes[2].leader = 2;
    script_open("raft://127.0.0.1:7001,127.0.0.1:7003,127.0.0.1:7002");
    script_run(3000);
    assert_int_equal(current_node(), 1);
    assert_int_equal(script.opens, 1);
    assert_in_range(script.attaches, 0, 1);
}

static void requests_continue_while_the_client_moves(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 0, &lock);
    struct script_request first = *script_take(HF_VERB_DO), second;

    (void)state;
    for (unsigned i = 0; i < SCRIPT_NODES; i++)
        script.nodes[i].leader = 2;
    push_leader(first.stream, 2, "127.0.0.1:7002");
    second = *script_take(HF_VERB_DO);
    assert_int_equal(script.streams[second.stream].node, 1);
    assert_int_equal(second.command.sequence, first.command.sequence);
    assert_int_equal(second.command.session, first.command.session);
    assert_true(second.at - first.at <= 2000);
    assert_int_equal(current_node(), 1);
    script_result(&second, &granted, HF_MUX_AGE_UNKNOWN);
    assert_int_equal(script_wait(future), HF_OK);
    hf_lock_free(lock);
}

static void route_any_stays(void **state)
{
    (void)state;
    script.nodes[0].leader = 2;
    script_open("raft://127.0.0.1:7001?route=any");
    script_run(10000);
    assert_int_equal(current_node(), 0);
    assert_int_equal(script.attaches, 0);
}

static void a_leader_that_the_url_does_not_list_is_found(void **state)
{
    (void)state;
    script.nodes[0].leader = 3;
    script.nodes[2].leader = 3;
    script_open("raft://127.0.0.1:7001");
    script_run(3000);
    assert_int_equal(current_node(), 2);
}

static void a_name_that_the_url_does_not_list_is_not_resolved(void **state)
{
    (void)state;
    script.nodes[0].leader = 3;
    script.nodes[0].where = "leader.example:7003";
    script_open("raft://127.0.0.1:7001");
    script_run(10000);
    assert_int_equal(current_node(), 0);
    assert_int_equal(script.stream_count, 1);
}

static void a_node_that_lost_its_office_is_no_destination(void **state)
{
    (void)state;
    script.nodes[1].leader = 3; /* node 2 reports leader 3, node 1 leader 2 */
    push_leader(script_stream(), 2, "127.0.0.1:7002");
    script_run(4000);
    assert_int_equal(current_node(), 0);
    assert_int_equal(script.attaches, 0);
    assert_int_equal(script.stream_count, 2);
}

static void clients_stay_if_the_leader_is_full(void **state)
{
    const struct hf_mux_push full = {.kind = HF_MUX_PUSH_FULL};

    (void)state;
    push_leader(script_stream(), 2, "127.0.0.1:7002");
    script_run(0);
    script_push(script_stream(), &full);
    script_run(20000);
    assert_int_equal(current_node(), 0);
    assert_int_equal(script.stream_count, 1);
}

static void clients_stay_if_the_leader_refuses_them(void **state)
{
    (void)state;
    script.nodes[1].refuses = true;
    push_leader(script_stream(), 2, "127.0.0.1:7002");
    script_run(4000);
    assert_int_equal(current_node(), 0);
    script.nodes[1].refuses = false;
    script.nodes[1].leader = 2;
    script_run(20000); /* the leader is tried again */
    assert_int_equal(current_node(), 1);
    assert_int_equal(script.opens, 1);
}

/* A node that knows no leader may be cut off from the others. */
static void a_node_without_a_leader_is_left(void **state)
{
    (void)state;
    script.nodes[1].leader = 3;
    script.nodes[2].leader = 3;
    push_leader(script_stream(), 0, "");
    script_run(900);
    assert_int_equal(current_node(), 0);
    script_run(5000);
    assert_int_not_equal(current_node(), 0);
    script_run(5000);
    assert_int_equal(current_node(), 2); /* the leader */
    assert_int_equal(script.opens, 1);
}

static void an_election_is_waited_for(void **state)
{
    unsigned stream = script_stream();

    (void)state;
    push_leader(stream, 0, "");
    script_run(900);
    push_leader(stream, 1, "127.0.0.1:7001");
    script_run(20000);
    assert_int_equal(script_stream(), stream);
    assert_int_equal(script.stream_count, 1);
}

static void the_current_node_may_die_during_a_move(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 0, &lock);
    struct script_request first = *script_take(HF_VERB_DO), second;

    (void)state;
    script.nodes[1].leader = 2;
    script.nodes[1].stalled = true;
    push_leader(first.stream, 2, "127.0.0.1:7002");
    script_run(2000);
    assert_int_equal(script_streams(), 2);
    script_kill(0);
    script_run(100);
    assert_int_equal(current_node(), 1);
    script.nodes[1].stalled = false;
    second = *script_take(HF_VERB_DO);
    assert_int_equal(second.command.sequence, first.command.sequence);
    script_result(&second, &granted, HF_MUX_AGE_UNKNOWN);
    assert_int_equal(script_wait(future), HF_OK);
    hf_lock_free(lock);
}

static void a_node_of_another_cluster_is_refused(void **state)
{
    (void)state;
    script.nodes[1].cluster = "c2";
    script.nodes[2].cluster = "c2";
    script_kill(0);
    script_run(5000);
    assert_int_equal(script.attaches, 0);
    script.nodes[0].refuses = false;
    script_run(5000);
    assert_int_equal(script.attaches, 1);
    assert_int_equal(current_node(), 0);
}

/* ---- Loss and silence ---------------------------------------------------*/

static void a_lost_node_is_replaced_at_once(void **state)
{
    (void)state;
    script_kill(0);
    script_run(0);
    assert_int_equal(script.attaches, 1);
    assert_int_not_equal(current_node(), 0);
}

static void every_node_that_fails_is_named(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future;
    struct hf_error error;

    (void)state;
    script_kill(1);
    script_kill(2);
    script_kill(0);
    script_run(100);
    future = script_lock("a", 0, &lock);
    script_run(20000);
    hf_future_error(future, &error);
    assert_non_null(strstr(error.text, "127.0.0.1:7001: Connection refused"));
    assert_non_null(strstr(error.text, "127.0.0.1:7002: Connection refused"));
    assert_non_null(strstr(error.text, "127.0.0.1:7003: Connection refused"));
    assert_int_equal(script_wait(future), HF_EUNAVAIL);
}

static void attempts_back_off(void **state)
{
    unsigned before;

    (void)state;
    script_kill(1);
    script_kill(2);
    script_kill(0);
    script_run(10000);
    before = script.stream_count;
    for (unsigned i = 0; i < SCRIPT_NODES; i++) {
        script.nodes[i].refuses = false;
        script.nodes[i].hello = "-LIMIT too many connections\r\n";
    }
    script_run(10000);
    assert_in_range(script.stream_count - before, 5, 25);
}

static void an_idle_connection_is_pinged(void **state)
{
    (void)state;
    script_run(9000);
    assert_int_equal(script.pings, 0);
    script_run(24000);
    assert_int_equal(script.pings, 3);
    assert_int_equal(script_stream(), 0);
}

static void a_busy_node_is_pinged_and_kept(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 0, &lock);
    struct script_request request = *script_take(HF_VERB_DO);

    (void)state;
    script_run(400);
    assert_int_equal(script.pings, 0);
    script_run(3000);
    assert_in_range(script.pings, 5, 7);
    script_result(&request, &granted, HF_MUX_AGE_UNKNOWN);
    assert_int_equal(script_wait(future), HF_OK);
    assert_int_equal(script_stream(), request.stream);
    hf_lock_free(lock);
}

static void a_silent_node_is_left_after_1500_ms(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 0, &lock);
    struct script_request first = *script_take(HF_VERB_DO), second;

    (void)state;
    script.nodes[0].stopped = true;
    script_run(1400);
    assert_int_equal(script_stream(), first.stream);
    second = *script_take(HF_VERB_DO);
    assert_int_equal(second.at - first.at, 1500);
    assert_int_not_equal(script.streams[second.stream].node, 0);
    script_result(&second, &granted, HF_MUX_AGE_UNKNOWN);
    assert_int_equal(script_wait(future), HF_OK);
    hf_lock_free(lock);
}

static void a_silent_node_is_noticed_while_a_claim_waits(void **state)
{
    static const struct hf_result queued = {.err = HF_EBUSY, .position = 1};
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 60000, &lock);

    (void)state;
    script_result(script_take(HF_VERB_DO), &queued, HF_MUX_AGE_UNKNOWN);
    script_run(10);
    script.nodes[0].stopped = true;
    script_run(2000);
    assert_int_not_equal(current_node(), 0);
    hf_future_cancel(future);
    (void)script_wait(future);
}

static void a_silent_idle_node_is_left(void **state)
{
    (void)state;
    script.nodes[0].stopped = true;
    script_run(11300);
    assert_int_equal(script_stream(), 0);
    script_run(200);
    assert_int_not_equal(current_node(), 0);
}

static void a_node_that_never_answers_hello_is_left(void **state)
{
    (void)state;
    script.nodes[1].stopped = true;
    script.nodes[2].stopped = true;
    script_kill(0);
    script_run(1400);
    assert_int_equal(script_streams(), 1);
    script.nodes[0].refuses = false;
    script_run(4000);
    assert_int_equal(current_node(), 0);
    assert_int_equal(script.attaches, 1);
}

static void a_node_that_cannot_attach_is_left(void **state)
{
    (void)state;
    script.nodes[1].stalled = true;
    script.nodes[2].stalled = true;
    script_kill(0);
    script.nodes[0].refuses = false;
    script_run(10000);
    assert_int_equal(current_node(), 0);
}

/* A client that was stopped finds its timers due, but the node had no chance to
 * answer. */
static void a_stopped_client_does_not_blame_the_node(void **state)
{
    struct hf_lock *lock;
    struct hf_future *future = script_lock("a", 0, &lock);
    struct script_request request = *script_take(HF_VERB_DO);

    (void)state;
    script_run(600);
    script.now += 3000;
    script_run(200);
    assert_int_equal(script_stream(), request.stream);
    script_result(&request, &granted, HF_MUX_AGE_UNKNOWN);
    assert_int_equal(script_wait(future), HF_OK);
    hf_lock_free(lock);
}

static void closing_detaches_the_session(void **state)
{
    (void)state;
    assert_int_equal(hf_close(script.client, 0), HF_OK);
    script.client = NULL;
    assert_int_equal(script.detaches, 1);
    assert_int_equal(script_streams(), 0);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, script_set_up, script_tear_down)
#define OPEN_CASE(name)                                                        \
    cmocka_unit_test_setup_teardown(name, script_set_up_open, script_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(clients_begin_at_a_random_node_and_move_to_the_leader),
        OPEN_CASE(requests_continue_while_the_client_moves),
        CASE(route_any_stays),
        CASE(a_leader_that_the_url_does_not_list_is_found),
        CASE(a_name_that_the_url_does_not_list_is_not_resolved),
        OPEN_CASE(a_node_that_lost_its_office_is_no_destination),
        OPEN_CASE(clients_stay_if_the_leader_is_full),
        OPEN_CASE(clients_stay_if_the_leader_refuses_them),
        OPEN_CASE(a_node_without_a_leader_is_left),
        OPEN_CASE(an_election_is_waited_for),
        OPEN_CASE(the_current_node_may_die_during_a_move),
        OPEN_CASE(a_node_of_another_cluster_is_refused),
        OPEN_CASE(a_lost_node_is_replaced_at_once),
        OPEN_CASE(every_node_that_fails_is_named),
        OPEN_CASE(attempts_back_off),
        OPEN_CASE(an_idle_connection_is_pinged),
        OPEN_CASE(a_busy_node_is_pinged_and_kept),
        OPEN_CASE(a_silent_node_is_left_after_1500_ms),
        OPEN_CASE(a_silent_node_is_noticed_while_a_claim_waits),
        OPEN_CASE(a_silent_idle_node_is_left),
        OPEN_CASE(a_node_that_never_answers_hello_is_left),
        OPEN_CASE(a_node_that_cannot_attach_is_left),
        OPEN_CASE(a_stopped_client_does_not_blame_the_node),
        OPEN_CASE(closing_detaches_the_session),
    };

    return hf_test_main("raft_route", cases, HF_TEST_COUNT(cases), 0);
}
