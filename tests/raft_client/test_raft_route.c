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

/* Returns how long a client with `seed` stays at a node that follows. */
static hf_time time_of_move(uint64_t seed)
{
    hf_time began;

    script.seed = seed;
    for (unsigned i = 0; i < SCRIPT_NODES; i++)
        script.nodes[i].leader = 2;
    began = script.now;
    script_open("raft://127.0.0.1:7001");
    while (script.now - began < 5000 &&
           (script_streams() != 1 || current_node() != 1))
        script_run(1);
    return script.now - began;
}

/* After a failover all clients learn of the leader at once, and must not all
 * arrive there at once. */
static void clients_move_to_the_leader_at_different_times(void **state)
{
    hf_time earliest = HF_NEVER;
    hf_time latest = 0;

    for (uint64_t seed = 1; seed <= 10; seed++) {
        hf_time moved = time_of_move(seed);

        assert_true(moved < 2500);
        earliest = moved < earliest ? moved : earliest;
        latest = moved > latest ? moved : latest;
        (void)script_tear_down(state);
        (void)script_set_up(state);
    }
    assert_true(latest - earliest > 1000);
}

static enum hf_err read_url(struct hf_raft *raft, const char *text,
                            struct hf_error *error)
{
    struct hf_url url;
    enum hf_err err;

    assert_int_equal(hf_url_parse(&url, text, error), HF_OK);
    err = hf_raft_read_url(raft, &url, error);
    hf_url_fini(&url);
    return err;
}

static void the_url_has_a_route(void **state)
{
    struct hf_raft raft = {0};
    struct hf_error error;

    (void)state;
    assert_int_equal(read_url(&raft, "raft://a:1", &error), HF_OK);
    assert_false(raft.route_any);
    assert_int_equal(read_url(&raft, "raft://a:1?route=any", &error), HF_OK);
    assert_true(raft.route_any);
    assert_int_equal(read_url(&raft, "raft://a:1?route=leader", &error), HF_OK);
    assert_false(raft.route_any);
    assert_int_equal(read_url(&raft, "raft://a:1?route=near", &error),
                     HF_EINVAL);
    assert_string_equal(error.text,
                        "url: route: 'near' is not 'leader' or 'any'");
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
    script_run(59000);
    assert_int_equal(current_node(), 0);
    assert_int_equal(script.stream_count, 1);
    script.nodes[1].leader = 2;
    script_run(62000);
    assert_int_equal(current_node(), 1);
}

/* The leader sends FULL, instead of answering HELLO. */
static void a_leader_that_is_full_is_no_destination(void **state)
{
    static const char full[] = "*2\r\n:0\r\n$4\r\nFULL\r\n";

    (void)state;
    script.nodes[1].hello = full;
    push_leader(script_stream(), 2, "127.0.0.1:7002");
    script_run(55000);
    assert_int_equal(current_node(), 0);
    assert_int_equal(script.stream_count, 2);
}

static void a_node_that_is_full_is_not_the_first(void **state)
{
    static const char full[] = "*2\r\n:0\r\n$4\r\nFULL\r\n";

    (void)state;
    script.nodes[0].hello = full;
    script.nodes[1].hello = full;
    script.nodes[2].leader = 3;
    script_open(NULL);
    script_run(1000);
    assert_int_equal(current_node(), 2);
}

/* Clients that cannot move to the leader try less and less often. */
static void moves_to_the_leader_back_off(void **state)
{
    (void)state;
    script.nodes[1].hello = "-DENIED\r\n";
    push_leader(script_stream(), 2, "127.0.0.1:7002");
    script_run(600000);
    assert_int_equal(current_node(), 0);
    assert_in_range(script.stream_count, 5, 14);
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

/* The node's locks are not those of the cluster, even if it uses the same
 * protocol. */
static void a_node_of_another_mode_is_refused(void **state)
{
    static const char hello[] = "*10\r\n:1\r\n$0\r\n\r\n:1\r\n:0\r\n$0\r\n\r\n"
                                ":1\r\n:9\r\n:9\r\n$6\r\nquorum\r\n"
                                "$3\r\n1 x\r\n";
    struct hf_lock *lock;
    struct hf_future *future;
    struct hf_error error;

    (void)state;
    for (unsigned i = 0; i < SCRIPT_NODES; i++) {
        script.nodes[i].hello = hello;
        script_kill(i);
        script.nodes[i].refuses = false;
    }
    script_run(100);
    future = script_lock("a", 0, &lock);
    script_run(20000);
    hf_future_error(future, &error);
    assert_non_null(strstr(error.text, "does not serve raft:"));
    assert_int_equal(script_wait(future), HF_EUNAVAIL);
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
        CASE(clients_move_to_the_leader_at_different_times),
        CASE(the_url_has_a_route),
        CASE(route_any_stays),
        CASE(a_leader_that_the_url_does_not_list_is_found),
        CASE(a_name_that_the_url_does_not_list_is_not_resolved),
        OPEN_CASE(a_node_that_lost_its_office_is_no_destination),
        OPEN_CASE(clients_stay_if_the_leader_is_full),
        OPEN_CASE(a_leader_that_is_full_is_no_destination),
        CASE(a_node_that_is_full_is_not_the_first),
        OPEN_CASE(moves_to_the_leader_back_off),
        OPEN_CASE(clients_stay_if_the_leader_refuses_them),
        OPEN_CASE(a_node_without_a_leader_is_left),
        OPEN_CASE(an_election_is_waited_for),
        OPEN_CASE(the_current_node_may_die_during_a_move),
        OPEN_CASE(a_node_of_another_cluster_is_refused),
        OPEN_CASE(a_lost_node_is_replaced_at_once),
        OPEN_CASE(every_node_that_fails_is_named),
        OPEN_CASE(attempts_back_off),
        OPEN_CASE(a_node_of_another_mode_is_refused),
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
