/* Requests of whole nodes: copies of commands, and what their answers mean. */
#include "node/calls.h"

static struct sim_nodes nodes;

static struct sim_node *start(unsigned count)
{
    sim_nodes_init(&nodes, count, 3);
    sim_nodes_start_all(&nodes);
    return await_leader(&nodes);
}

static int tear_down(void **state)
{
    (void)state;
    sim_nodes_fini(&nodes);
    return 0;
}

/* Let the node refuse all further commands, once it leads. */
static void refuse_all(unsigned number)
{
    nodes.list[number].node->proposals.count = HF_NODE_PROPOSALS_MAX;
}

static struct hf_command open_command(unsigned n)
{
    return (struct hf_command){.kind = HF_COMMAND_OPEN, .nonce = nonce_of(n)};
}

/* ---- Refusals -----------------------------------------------------------*/

static void a_refused_command_has_no_effect(void **state)
{
    struct sim_node *leader = start(3);
    struct hf_command open = open_command(1);

    (void)state;
    refuse_all(leader->number);
    assert_int_equal(call_run(&nodes, leader->number, &open).err, HF_ELIMIT);
    assert_int_equal(
        call_run(&nodes, other_than(&nodes, leader->number), &open).err,
        HF_ELIMIT);
    assert_int_equal(leader->node->machine.store->table.sessions.count, 0);
}

/* The first copy is sent to a leader that dies, and may be in a log. The next
 * leader refuses the second copy. */
static void a_refused_copy_leaves_the_command_in_doubt(void **state)
{
    struct sim_node *leader = start(3);
    struct hf_command open = open_command(1);
    struct call calls[3];

    (void)state;
    sim_nodes_pause(&nodes, leader->number, 1000);
    for (unsigned i = 0; i < 3; i++) {
        if (i == leader->number)
            continue;
        call_start(&nodes, i, &calls[i], &open, 10000);
        refuse_all(i);
    }
    sim_nodes_run(&nodes, 20, NULL, NULL);
    sim_nodes_crash(&nodes, leader->number, SIM_CRASH_LOSE, false);
    for (unsigned i = 0; i < 3; i++) {
        if (i != leader->number)
            assert_int_equal(call_wait(&nodes, &calls[i]).err, HF_EINDOUBT);
    }
}

static struct hf_command renew_command(const struct hf_command *lock,
                                       uint64_t sequence, uint64_t token)
{
    struct hf_command renew = *lock;

    renew.kind = HF_COMMAND_RENEW;
    renew.sequence = renew.done = sequence;
    renew.token = token;
    return renew;
}

/* Acquire keys with values of 4 KiB, through node `origin`, until one is
 * refused. Returns how many were acquired. */
static unsigned fill_table(unsigned origin, uint64_t session,
                           struct hf_node_outcome *refusal)
{
    static const uint8_t value[4096];
    char key[16];
    unsigned i = 0;

    for (;; i++) {
        struct hf_command lock;

        (void)snprintf(key, sizeof(key), "%u", i);
        lock = lock_command(session, 1 + i, key, 1 + i, 600000);
        lock.value = (struct hf_bytes){value, sizeof(value)};
        *refusal = call_run(&nodes, origin, &lock);
        if (refusal->err)
            return i;
        assert_int_equal(refusal->result.err, HF_OK);
    }
}

/* A full table accepts sessions for a while, then none. */
static void open_until_full(unsigned origin)
{
    struct hf_node_outcome outcome;
    unsigned count = 0;

    do {
        struct hf_command open = open_command(100 + count);

        outcome = call_run(&nodes, origin, &open);
        count++;
    } while (!outcome.err);
    assert_int_equal(outcome.err, HF_ELIMIT);
    assert_true(outcome.is_full);
    assert_in_range(count, 5, 100);
}

static void a_full_table_refuses_locks_and_lets_go(void **state)
{
    struct hf_node_outcome outcome;
    struct hf_command lock, next, open = open_command(2);
    struct sim_node *leader;
    uint64_t session;
    unsigned origin, count;

    (void)state;
    sim_nodes_init(&nodes, 3, 3);
    nodes.opts.table_bytes = 100000;
    sim_nodes_start_all(&nodes);
    leader = await_leader(&nodes);
    origin = other_than(&nodes, leader->number);
    session = open_session(&nodes, origin, 1);
    assert_int_equal(hf_attachments_add(nodes.list[origin].node, session, 7),
                     HF_OK);
    count = fill_table(origin, session, &outcome);
    assert_int_equal(outcome.err, HF_ELIMIT);
    assert_true(outcome.is_full && !outcome.no_space);
    assert_true(count >= 20 && count <= 25);
    open_until_full(origin);

    lock = lock_command(session, 0, "0", 1, 600000);
    next = renew_command(&lock, count + 1, 1);
    assert_int_equal(call_run(&nodes, origin, &next).result.err, HF_OK);
    next = unlock_command(session, count + 2, "0", 1, 1);
    assert_int_equal(call_run(&nodes, origin, &next).result.err, HF_OK);
    assert_int_equal(call_run(&nodes, origin, &open).err, HF_OK);
}

/* A peer that is not a leader may not propose what leaders propose. */
static void commands_of_leaders_are_not_forwarded(void **state)
{
    struct sim_node *leader = start(3);
    unsigned origin = other_than(&nodes, leader->number);
    struct hf_command expire = {
        .kind = HF_COMMAND_EXPIRE,
        .key = key_of("k"),
        .token = 1,
    };
    struct hf_command version = {
        .kind = HF_COMMAND_VERSION,
        .version = HF_VERSION_NEWEST,
    };

    (void)state;
    assert_int_equal(call_run(&nodes, origin, &expire).err, HF_EDENIED);
    assert_int_equal(call_run(&nodes, origin, &version).err, HF_EDENIED);
}

/* Commands that free memory are still accepted when those that need memory are
 * refused. */
static void the_memory_of_commands_is_limited(void **state)
{
    struct hf_node *node = start(1)->node;
    struct hf_command lock = lock_command(1, 1, "k", 1, 1000);
    struct hf_command unlock = unlock_command(1, 1, "k", 1, 1);

    (void)state;
    node->proposals.bytes += HF_NODE_PROPOSALS_LOCK_BYTES;
    assert_int_equal(call_run(&nodes, 0, &lock).err, HF_ELIMIT);
    assert_int_equal(call_run(&nodes, 0, &unlock).err, HF_OK);
    node->proposals.bytes +=
        HF_NODE_PROPOSALS_BYTES - HF_NODE_PROPOSALS_LOCK_BYTES;
    assert_int_equal(call_run(&nodes, 0, &unlock).err, HF_ELIMIT);
    node->proposals.bytes -= HF_NODE_PROPOSALS_BYTES;
    assert_int_equal(node->proposals.bytes, 0);
}

/* ---- Repeats ------------------------------------------------------------*/

static void only_late_commands_are_sent_again(void **state)
{
    struct sim_node *leader = start(3);
    unsigned origin = other_than(&nodes, leader->number);
    struct hf_command first = open_command(1);
    struct hf_command second = open_command(2);
    struct call calls[2];

    (void)state;
    leader->node->proposals.retry = sim_node_now(leader) + 60000;
    call_start(&nodes, origin, &calls[0], &first, 10000);
    sim_nodes_run(&nodes, 600, NULL, NULL);
    call_start(&nodes, origin, &calls[1], &second, 10000);
    sim_nodes_run(&nodes, 500, NULL, NULL);
    assert_int_equal(calls[0].request.copies, 2);
    assert_int_equal(calls[1].request.copies, 1);
    leader->node->proposals.retry = HF_NEVER;
    sim_nodes_wake(&nodes, leader->number);
    assert_int_equal(call_wait(&nodes, &calls[0]).err, HF_OK);
    assert_int_equal(call_wait(&nodes, &calls[1]).err, HF_OK);
}

/* ---- Replies ------------------------------------------------------------*/

/* Start a call at the leader, whose proposals wait. */
static void start_waiting(struct sim_node *leader, struct call *call,
                          const struct hf_command *command)
{
    leader->node->proposals.retry = sim_node_now(leader) + 1000;
    call_start(&nodes, leader->number, call, command, 10000);
    sim_nodes_run(&nodes, 10, NULL, NULL);
    assert_int_equal(leader->node->proposals.count, 1);
}

/* The node has sent the command to the former leader, whose answer arrives when
 * the node itself leads and is about to submit a second copy. */
static void a_late_reply_ends_the_copy_of_the_new_leader(void **state)
{
    struct sim_node *leader = start(1);
    const struct hf_node_outcome outcome = {.index = 5, .age_ms = -1};
    struct hf_command open = open_command(1);
    struct call call;

    (void)state;
    start_waiting(leader, &call, &open);
    hf_requests_on_reply(leader->node, call.request.number, &outcome);
    sim_nodes_wake(&nodes, 0);
    assert_int_equal(call_wait(&nodes, &call).index, 5);
    assert_int_equal(leader->node->proposals.count, 0);
}

static void a_reply_does_not_complete_a_read(void **state)
{
    struct sim_node *leader = start(3);
    const struct hf_node_outcome outcome = {.index = 5, .age_ms = -1};
    unsigned origin = other_than(&nodes, leader->number);
    struct call call;

    (void)state;
    sim_nodes_pause(&nodes, leader->number, 100);
    call_start(&nodes, origin, &call, NULL, 10000);
    hf_requests_on_reply(nodes.list[origin].node, call.request.number,
                         &outcome);
    sim_nodes_run(&nodes, 50, NULL, NULL);
    assert_false(call.is_done);
    assert_int_equal(call_wait(&nodes, &call).err, HF_OK);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test_teardown(a_refused_command_has_no_effect, tear_down),
        cmocka_unit_test_teardown(a_refused_copy_leaves_the_command_in_doubt,
                                  tear_down),
        cmocka_unit_test_teardown(a_full_table_refuses_locks_and_lets_go,
                                  tear_down),
        cmocka_unit_test_teardown(commands_of_leaders_are_not_forwarded,
                                  tear_down),
        cmocka_unit_test_teardown(the_memory_of_commands_is_limited, tear_down),
        cmocka_unit_test_teardown(only_late_commands_are_sent_again, tear_down),
        cmocka_unit_test_teardown(a_late_reply_ends_the_copy_of_the_new_leader,
                                  tear_down),
        cmocka_unit_test_teardown(a_reply_does_not_complete_a_read, tear_down),
    };

    return hf_test_main("node-requests", cases, HF_TEST_COUNT(cases), 0);
}
