/* Rows of docs/conformance.md that need whole nodes, over a simulated network
 * and disk. Comments above the cases name the rows. */
#include "core/snapshot.h"
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

static struct hf_node_status status_of(unsigned number)
{
    struct hf_node_status status;

    hf_node_status(nodes.list[number].node, &status);
    return status;
}

static void crash(unsigned number)
{
    sim_nodes_crash(&nodes, number, SIM_CRASH_LOSE, false);
}

static struct hf_node_outcome lock_key(unsigned number, uint64_t session,
                                       unsigned nonce)
{
    struct hf_command lock = lock_command(session, 1, "k", nonce, 600000);

    lock.queue = false;
    return call_run(&nodes, number, &lock);
}

/* ---- Leaders ------------------------------------------------------------*/

static bool all_know_the_leader(void *arg)
{
    struct sim_node *leader = sim_nodes_leader(arg);

    for (unsigned i = 0; leader && i < nodes.count; i++)
        if (status_of(i).leader != status_of(leader->number).id)
            return false;
    return leader != NULL;
}

/* GO-18 */
static void five_nodes_agree_on_one_leader(void **state)
{
    unsigned leaders = 0;

    (void)state;
    start(5);
    assert_true(sim_nodes_run(&nodes, 5000, all_know_the_leader, &nodes));
    for (unsigned i = 0; i < 5; i++) {
        leaders += status_of(i).role == HF_NODE_LEADER;
        assert_int_equal(status_of(i).term, status_of(0).term);
    }
    assert_int_equal(leaders, 1);
}

/* GO-20 */
static void five_nodes_survive_two_failures(void **state)
{
    uint64_t session;

    (void)state;
    start(5);
    crash(await_leader(&nodes)->number);
    crash(await_leader(&nodes)->number);
    session = open_session(&nodes, await_leader(&nodes)->number, 1);
    assert_int_equal(
        lock_key(await_leader(&nodes)->number, session, 1).result.err, HF_OK);
}

/* GO-23 */
static void two_of_five_nodes_grant_nothing(void **state)
{
    uint64_t session;
    struct sim_node *leader;

    (void)state;
    start(5);
    leader = await_leader(&nodes);
    session = open_session(&nodes, leader->number, 1);
    for (unsigned i = 1; i <= 3; i++)
        crash((leader->number + i) % 5);
    assert_int_equal(lock_key(leader->number, session, 1).err, HF_EINDOUBT);
    assert_null(sim_nodes_leader(&nodes));
}

/* GO-22: a cluster that has executed one command loses its leader. */
static void a_leader_with_one_entry_is_replaced(void **state)
{
    struct hf_command open = {.kind = HF_COMMAND_OPEN, .nonce = nonce_of(1)};
    struct sim_node *leader;
    uint64_t session;

    (void)state;
    start(3);
    leader = await_leader(&nodes);
    session = call_run(&nodes, leader->number, &open).result.session;
    crash(leader->number);
    assert_ptr_not_equal(await_leader(&nodes), leader);
    /* OPEN is idempotent by its secret, so the entry is still there. */
    assert_int_equal(call_run(&nodes, other_than(&nodes, leader->number), &open)
                         .result.session,
                     session);
}

static unsigned earlier_seen; /* turns of a leader with such entries */

/* Compare the status of a node with its log, entry by entry. */
static void check_log_status(void *arg, struct sim_node *node)
{
    const struct hf_entries *log = &node->node->engine.log;
    struct hf_node_status status = status_of(node->number);
    bool has_earlier = false;

    (void)arg;
    for (uint64_t i = status.first; i <= status.last; i++) {
        assert_non_null(hf_entries_find(log, i));
        has_earlier |=
            i > status.commit && hf_entries_term(log, i) < status.term;
    }
    assert_null(hf_entries_find(log, status.first - 1));
    assert_null(hf_entries_find(log, status.last + 1));
    assert_int_equal(status.uncommitted_earlier_term, has_earlier);
    earlier_seen += has_earlier && status.role == HF_NODE_LEADER;
}

/* G2-05: when the leader crashes, the others have an entry, and do not know yet
 * that it is committed. The next leader has to commit it. */
static void the_status_shows_uncommitted_entries_of_earlier_terms(void **state)
{
    struct sim_node *leader;

    (void)state;
    sim_nodes_init(&nodes, 3, 1);
    nodes.on_turn = check_log_status;
    nodes.opts.snapshot_bytes = 500;
    nodes.opts.trailing = 4;
    sim_nodes_start_all(&nodes);
    for (unsigned i = 0; i < 20; i++) {
        leader = await_leader(&nodes);
        (void)open_session(&nodes, leader->number, i);
        crash(leader->number);
        (void)await_leader(&nodes);
        sim_nodes_start(&nodes, leader->number);
    }
    sim_nodes_run(&nodes, 1000, NULL, NULL);
    assert_true(earlier_seen > 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_false(status_of(i).uncommitted_earlier_term);
        assert_true(status_of(i).first > 1);
        assert_true(status_of(i).last >= status_of(i).commit);
    }
}

/* G2-08: a node returns after it was down, and after it was cut off, for longer
 * than an election timeout. */
static void a_node_that_returns_deposes_nobody(void **state)
{
    struct sim_node *leader;
    uint64_t term;
    unsigned away;

    (void)state;
    start(3);
    leader = await_leader(&nodes);
    away = other_than(&nodes, leader->number);
    term = status_of(leader->number).term;
    crash(away);
    sim_nodes_run(&nodes, 5000, NULL, NULL);
    sim_nodes_start(&nodes, away);
    sim_nodes_run(&nodes, 5000, NULL, NULL);
    for (unsigned i = 0; i < 3; i++) /* and one that receives nothing */
        sim_nodes_cut(&nodes, i, away);
    sim_nodes_run(&nodes, 5000, NULL, NULL);
    sim_nodes_heal(&nodes);
    sim_nodes_run(&nodes, 5000, NULL, NULL);
    assert_ptr_equal(sim_nodes_leader(&nodes), leader);
    assert_int_equal(status_of(leader->number).term, term);
    assert_int_equal(status_of(away).term, term);
}

/* G2-06: within two election timeouts. */
static void an_isolated_leader_steps_down(void **state)
{
    struct sim_node *leader;

    (void)state;
    start(3);
    leader = await_leader(&nodes);
    sim_nodes_run(&nodes, 1000, NULL, NULL);
    for (unsigned i = 0; i < 3; i++) {
        sim_nodes_cut(&nodes, i, leader->number);
        sim_nodes_cut(&nodes, leader->number, i);
    }
    sim_nodes_run(&nodes, 1000, NULL, NULL);
    assert_int_not_equal(status_of(leader->number).role, HF_NODE_LEADER);
}

/* GO-33: an election starts when nothing was received for the election
 * timeout. */
static void the_election_timeout_is_a_setting(void **state)
{
    (void)state;
    sim_nodes_init(&nodes, 3, 1);
    nodes.opts.election_ms = 5000;
    nodes.opts.heartbeat_ms = 1000;
    sim_nodes_start_all(&nodes);
    sim_nodes_run(&nodes, 4900, NULL, NULL);
    assert_null(sim_nodes_leader(&nodes));
    assert_non_null(await_leader(&nodes));
}

static unsigned follower_turns;

static void count_follower_turn(void *arg, struct sim_node *node)
{
    (void)arg;
    follower_turns += node->node->leading_term == 0;
}

/* Returns how often the two followers of an idle leader wake in 4 s. */
static unsigned count_turns(uint32_t heartbeat_ms)
{
    sim_nodes_init(&nodes, 3, 1);
    nodes.opts.election_ms = 2000;
    nodes.opts.heartbeat_ms = heartbeat_ms;
    sim_nodes_start_all(&nodes);
    (void)await_leader(&nodes);
    sim_nodes_run(&nodes, 1000, NULL, NULL);
    follower_turns = 0;
    nodes.on_turn = count_follower_turn;
    sim_nodes_run(&nodes, 4000, NULL, NULL);
    return follower_turns;
}

/* GO-33: each heartbeat wakes each follower. */
static void the_heartbeat_is_a_setting(void **state)
{
    unsigned often;

    (void)state;
    often = count_turns(40);
    sim_nodes_fini(&nodes);
    assert_in_range(often, 2 * 4000 / 50, 5 * 4000 / 40);
    assert_in_range(count_turns(800), 2 * 4000 / 1000, 5 * 4000 / 800);
}

/* ---- Commands -----------------------------------------------------------*/

static bool all_applied(void *arg)
{
    (void)arg;
    for (unsigned i = 1; i < nodes.count; i++)
        if (nodes.list[i].node->machine.applied !=
            nodes.list[0].node->machine.applied)
            return false;
    return true;
}

static void check_tables_are_equal(void)
{
    struct hf_buf first = {0}, other = {0};

    assert_true(sim_nodes_run(&nodes, 10000, all_applied, NULL));
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

/* G2-01: claims of one key queue up, in an order that the tables contain. */
static void commands_of_all_nodes_have_one_order(void **state)
{
    static struct call calls[99];
    uint64_t sessions[3];

    (void)state;
    start(3);
    for (unsigned i = 0; i < 3; i++)
        sessions[i] = open_session(&nodes, i, i + 1);
    for (unsigned i = 0; i < 99; i++) {
        struct hf_command lock =
            lock_command(sessions[i % 3], i / 3 + 1, "k", i + 1, 600000);

        lock.done = 1;
        call_start(&nodes, i % 3, &calls[i], &lock, 10000);
    }
    for (unsigned i = 0; i < 99; i++)
        assert_int_equal(call_wait(&nodes, &calls[i]).err, HF_OK);
    check_tables_are_equal();
}

/* MJ-09 */
static void a_confirmed_release_survives_the_leader(void **state)
{
    struct hf_command unlock;
    struct sim_node *leader;
    uint64_t session;

    (void)state;
    start(3);
    leader = await_leader(&nodes);
    session = open_session(&nodes, leader->number, 1);
    unlock = unlock_command(session, 2, "k", 1,
                            lock_key(leader->number, session, 1).result.token);
    assert_int_equal(call_run(&nodes, leader->number, &unlock).result.err,
                     HF_OK);
    crash(leader->number);
    leader = await_leader(&nodes);
    session = open_session(&nodes, leader->number, 2);
    assert_int_equal(lock_key(leader->number, session, 2).result.err, HF_OK);
}

/* ---- Times --------------------------------------------------------------*/

/* A lock through a follower costs one more round trip than at the leader: four
 * messages and a flush, which take 5 ms each at most. A heartbeat, or a timer
 * as long as one, would make some of these calls longer. GO-33 */
static void a_lock_through_an_idle_follower_awaits_no_heartbeat(void **state)
{
    uint64_t session;
    unsigned follower;

    (void)state;
    start(3);
    follower = other_than(&nodes, await_leader(&nodes)->number);
    session = open_session(&nodes, follower, 1);
    for (unsigned i = 1; i <= 30; i++) {
        struct hf_command lock = lock_command(session, i, "k", i, 600000);
        hf_time began;

        sim_nodes_run(&nodes, 500 + 7 * i, NULL, NULL);
        began = nodes.schedule.now;
        assert_int_equal(call_run(&nodes, follower, &lock).err, HF_OK);
        assert_true(nodes.schedule.now - began < 30);
    }
}

/* Submit `command` with a timeout of `ms`, which must end in `err`, and at the
 * deadline: not before, and not with a later timer. */
static void expect_timeout(unsigned number, const struct hf_command *command,
                           uint32_t ms, enum hf_err err)
{
    hf_time began = nodes.schedule.now;
    struct call call;

    call_start(&nodes, number, &call, command, ms);
    assert_int_equal(call_wait(&nodes, &call).err, err);
    assert_in_range(nodes.schedule.now - began, ms, ms + 5);
}

/* GO-16, G2-02 */
static void a_request_without_a_majority_ends_at_its_deadline(void **state)
{
    struct hf_command unlock;
    uint64_t session;
    unsigned alive;

    (void)state;
    start(3);
    alive = other_than(&nodes, await_leader(&nodes)->number);
    session = open_session(&nodes, alive, 1);
    unlock = unlock_command(session, 2, "k", 1,
                            lock_key(alive, session, 1).result.token);
    crash((alive + 1) % 3);
    crash((alive + 2) % 3);
    sim_nodes_run(&nodes, 3000, NULL, NULL);
    expect_timeout(alive, &unlock, 5000, HF_EUNAVAIL);
    expect_timeout(alive, &unlock, 777, HF_EUNAVAIL);
    expect_timeout(alive, &unlock, 1, HF_EUNAVAIL);
    expect_timeout(alive, NULL, 1234, HF_EUNAVAIL);
}

/* The leader has appended the command, so nobody knows whether it will be
 * applied. GO-16, G2-02 */
static void a_command_in_doubt_ends_at_its_deadline(void **state)
{
    struct hf_command open = {.kind = HF_COMMAND_OPEN, .nonce = nonce_of(9)};
    unsigned leader;

    (void)state;
    start(3);
    leader = await_leader(&nodes)->number;
    sim_nodes_run(&nodes, 500, NULL, NULL);
    for (unsigned i = 0; i < 3; i++)
        sim_nodes_cut(&nodes, i, leader);
    expect_timeout(leader, &open, 5000, HF_EINDOUBT);
}

#define CASE(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(five_nodes_agree_on_one_leader),
        CASE(five_nodes_survive_two_failures),
        CASE(two_of_five_nodes_grant_nothing),
        CASE(a_leader_with_one_entry_is_replaced),
        CASE(the_status_shows_uncommitted_entries_of_earlier_terms),
        CASE(a_node_that_returns_deposes_nobody),
        CASE(an_isolated_leader_steps_down),
        CASE(the_election_timeout_is_a_setting),
        CASE(the_heartbeat_is_a_setting),
        CASE(commands_of_all_nodes_have_one_order),
        CASE(a_confirmed_release_survives_the_leader),
        CASE(a_lock_through_an_idle_follower_awaits_no_heartbeat),
        CASE(a_request_without_a_majority_ends_at_its_deadline),
        CASE(a_command_in_doubt_ends_at_its_deadline),
    };

    return hf_test_main("node-conformance", cases, HF_TEST_COUNT(cases), 0);
}
