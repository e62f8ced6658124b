/* test_raft_cases.c - scripted cases of raft clusters, which random seeds
 * rarely reach. */
#include "lib/runner.h"
#include "sim/cluster.h"

static const struct sim_plan three = {.nodes = 3};
static const struct sim_plan three_with_snapshots = {
    .nodes = 3,
    .snapshots = true,
};

static struct sim_cluster cluster;

static int end_cluster(void **state)
{
    (void)state;
    sim_cluster_fini(&cluster);
    return 0;
}

static void crash_all(void)
{
    for (unsigned i = 0; i < cluster.count; i++)
        sim_node_crash(&cluster.nodes[i]);
}

static void store_entry(struct sim_node *node, uint64_t term)
{
    struct hf_entry entry = {term, HF_ENTRY_COMMAND, {"x", 1}};

    assert_int_equal(hf_entries_append(&node->storage.log, &entry, 1), HF_OK);
}

/* ---- Elections ----------------------------------------------------------*/

/* Node 1 has the higher term and cannot win, because node 2 has the better log.
 * Node 2 can win only after it has learned the term. */
static void a_better_log_with_an_older_term_is_elected(void **state)
{
    (void)state;
    sim_cluster_init(&cluster, 1, &three);
    crash_all();
    cluster.nodes[0].storage.term = 9;
    cluster.nodes[1].storage.term = 4;
    store_entry(&cluster.nodes[1], 3);
    sim_node_start(&cluster.nodes[0]);
    sim_node_start(&cluster.nodes[1]);
    assert_int_equal(sim_cluster_await_leader(&cluster)->id, 2);
}

/* Let `candidate` ask `node` for its vote in term 7. */
static void ask_for_vote(struct sim_node *node, uint64_t candidate)
{
    struct hf_message message = {
        .kind = HF_MESSAGE_VOTE,
        .peer = candidate,
        .term = 7,
        .version = 2,
        .vote = {.last_index = 1, .last_term = 1},
    };

    (void)sim_node_step(node,
                        (struct hf_engine_event){.kind = HF_ENGINE_RECEIVE,
                                                 .message = &message});
}

/* sim_checks_vote() fails if the node sends votes for both candidates. */
static void a_vote_that_a_crash_forgets_was_never_sent(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct sim_node *node = &cluster.nodes[0];

        sim_cluster_init(&cluster, seed, &three);
        crash_all();
        sim_node_start(node);
        ask_for_vote(node, 2);
        sim_node_crash(node); /* before the flush has ended */
        sim_node_start(node);
        ask_for_vote(node, 3);
        sim_cluster_run(&cluster, 100);
        if (seed < 20)
            sim_cluster_fini(&cluster);
    }
}

/* ---- Reads --------------------------------------------------------------*/

static struct sim_node *find_other(const struct sim_node *node)
{
    return &cluster.nodes[(node->number + 1) % cluster.count];
}

/* Submit a command, which must be acknowledged within 100 ms. */
static void write_one(struct sim_node *leader)
{
    uint64_t before = cluster.checks.acknowledged;

    assert_int_equal(sim_cluster_submit(&cluster, leader), HF_OK);
    sim_cluster_run(&cluster, 100);
    assert_true(cluster.checks.acknowledged > before);
}

static void a_deposed_leader_answers_no_read(void **state)
{
    struct sim_node *old;
    struct sim_node *new;
    uint64_t reads;

    (void)state;
    sim_cluster_init(&cluster, 1, &three);
    old = sim_cluster_await_leader(&cluster);
    write_one(old);
    old->stopped_until = HF_NEVER / (1 << 21);
    sim_cluster_run(&cluster, 3000);
    new = sim_cluster_leader(&cluster);
    assert_ptr_not_equal(new, old);
    write_one(new);
    reads = cluster.checks.reads;
    /* The old leader runs again, and does not know that it was deposed. */
    old->stopped_until = 0;
    assert_int_equal(hf_engine_role(&old->engine), HF_ENGINE_LEADER);
    assert_int_equal(sim_node_read(old), HF_OK);
    sim_cluster_run(&cluster, 1000);
    assert_int_equal(cluster.checks.reads, reads);
    assert_int_equal(hf_engine_role(&old->engine), HF_ENGINE_FOLLOWER);
}

static void a_leader_answers_reads_without_new_entries(void **state)
{
    struct sim_node *leader;
    uint64_t last;

    (void)state;
    sim_cluster_init(&cluster, 1, &three);
    leader = sim_cluster_await_leader(&cluster);
    write_one(leader);
    last = leader->engine.log.last;
    assert_int_equal(sim_node_read(leader), HF_OK);
    sim_cluster_run(&cluster, 100);
    assert_int_equal(cluster.checks.reads, 1);
    assert_int_equal(leader->engine.log.last, last);
}

/* ---- Lost leaders -------------------------------------------------------*/

static void one_broken_connection_deposes_no_leader(void **state)
{
    struct sim_node *leader;
    uint64_t term;

    (void)state;
    sim_cluster_init(&cluster, 1, &three);
    leader = sim_cluster_await_leader(&cluster);
    term = hf_engine_term(&leader->engine);
    for (unsigned i = 0; i < 10; i++) {
        sim_node_lose_leader(find_other(leader));
        sim_cluster_run(&cluster, 100);
    }
    assert_ptr_equal(sim_cluster_leader(&cluster), leader);
    assert_int_equal(hf_engine_term(&leader->engine), term);
}

/* The case waits 100 ms, which is less than the shortest election timeout. */
static void a_dead_leader_is_replaced_before_any_timeout(void **state)
{
    struct sim_node *leader;

    (void)state;
    sim_cluster_init(&cluster, 1, &three);
    leader = sim_cluster_await_leader(&cluster);
    sim_cluster_run(&cluster, 500);
    sim_node_crash(leader);
    sim_cluster_run(&cluster, 10); /* the last frames of the leader arrive */
    for (unsigned i = 0; i < cluster.count; i++) {
        if (cluster.nodes[i].is_up)
            sim_node_lose_leader(&cluster.nodes[i]);
    }
    sim_cluster_run(&cluster, 100);
    assert_non_null(sim_cluster_leader(&cluster));
}

/* ---- Snapshots ----------------------------------------------------------*/

/* A node crashes after a received snapshot is durable, and before its log is
 * reset. */
static void a_crash_between_snapshot_and_reset_loses_nothing(void **state)
{
    struct sim_node *behind;
    struct sim_node *leader;

    (void)state;
    sim_cluster_init(&cluster, 1, &three_with_snapshots);
    behind = find_other(sim_cluster_await_leader(&cluster));
    sim_cluster_run(&cluster, 100);
    sim_node_crash(behind);
    for (unsigned i = 0; i < 100; i++)
        write_one(sim_cluster_await_leader(&cluster));
    leader = sim_cluster_leader(&cluster);
    assert_true(leader->storage.snapshot.index > behind->storage.log.last);
    behind->storage.snapshot = leader->storage.snapshot;
    sim_node_start(behind);
    assert_int_equal(behind->applied, leader->storage.snapshot.index);
    sim_cluster_check_progress(&cluster);
}

/* While a node is down, the others forget the entries that it lacks. */
static void a_node_that_is_far_behind_gets_a_snapshot(void **state)
{
    struct sim_node *behind;

    (void)state;
    sim_cluster_init(&cluster, 1, &three_with_snapshots);
    behind = find_other(sim_cluster_await_leader(&cluster));
    sim_node_crash(behind);
    for (unsigned i = 0; i < 100; i++)
        write_one(sim_cluster_await_leader(&cluster));
    sim_node_start(behind);
    sim_cluster_check_progress(&cluster);
    assert_true(cluster.checks.installs > 0);
}

#define CASE(name) cmocka_unit_test_teardown(name, end_cluster)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_better_log_with_an_older_term_is_elected),
        CASE(a_vote_that_a_crash_forgets_was_never_sent),
        CASE(a_deposed_leader_answers_no_read),
        CASE(a_leader_answers_reads_without_new_entries),
        CASE(one_broken_connection_deposes_no_leader),
        CASE(a_dead_leader_is_replaced_before_any_timeout),
        CASE(a_crash_between_snapshot_and_reset_loses_nothing),
        CASE(a_node_that_is_far_behind_gets_a_snapshot),
    };

    return hf_test_main("raft cases", cases, HF_TEST_COUNT(cases), 0);
}
