/* test_raft_cases.c - scripted cases of raft clusters, which random seeds
 * rarely reach. */
#include "lib/runner.h"
#include "sim/cluster.h"

static const struct sim_plan three = {.nodes = 3};
static const struct sim_plan five = {.nodes = 5};
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

/* ---- Entries of older terms ---------------------------------------------*/

/* Figure 8 of the Raft paper, before the old leader is elected again: entry 2
 * is of term 2 at nodes 1 and 2, of term 3 at node 5, and nowhere else. */
static void begin_figure_8(void)
{
    sim_cluster_init(&cluster, 1, &five);
    crash_all();
    for (unsigned i = 0; i < 5; i++) {
        struct sim_node *node = &cluster.nodes[i];

        node->config.inflight_max = 1; /* the no-op follows alone */
        node->storage.term = i < 2 ? 2 : 3;
        node->storage.vote = i < 2 ? 1 : 5;
    }
    store_entry(&cluster.nodes[0], 2);
    store_entry(&cluster.nodes[1], 2);
    store_entry(&cluster.nodes[4], 3);
}

/* Returns true if a leader knows that a majority has entry 2. */
static bool has_counted_entry_2(void)
{
    struct sim_node *leader = sim_cluster_leader(&cluster);
    unsigned count = 1;

    for (uint64_t id = 1; leader && id <= cluster.count; id++)
        count += id != leader->id && hf_engine_match(&leader->engine, id) >= 2;
    return count > cluster.count / 2;
}

/* Nodes 1 and 2 die, and all that they have sent is lost. */
static void lose_first_two(void)
{
    for (unsigned i = 0; i < 2; i++) {
        sim_node_crash(&cluster.nodes[i]);
        for (unsigned to = 2; to < cluster.count; to++)
            cluster.network.is_cut[i][to] = true;
    }
}

/* A majority has entry 2, but not the no-op of the leader's term, so node 5 can
 * still be elected and replace the entry. sim_checks_leader() fails if the
 * entry was committed. */
static void entries_of_older_terms_are_not_committed_by_counting(void **state)
{
    (void)state;
    begin_figure_8();
    for (unsigned i = 0; i < 3; i++)
        sim_node_start(&cluster.nodes[i]);
    while (!has_counted_entry_2())
        assert_true(sim_schedule_step(&cluster.schedule, 20000));
    lose_first_two();
    sim_cluster_run(&cluster, 100); /* what is in flight is lost */
    assert_int_equal(cluster.nodes[2].engine.log.last, 2);
    assert_int_equal(hf_entries_term(&cluster.nodes[2].engine.log, 2), 2);
    sim_node_start(&cluster.nodes[3]);
    sim_node_start(&cluster.nodes[4]);
    assert_int_equal(sim_cluster_await_leader(&cluster)->id, 5);
    assert_int_equal(hf_entries_term(&cluster.nodes[2].engine.log, 2), 3);
    sim_cluster_heal(&cluster, 0);
    sim_cluster_check_progress(&cluster);
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

/* ---- The rules of the engine (raft/rules.h) -----------------------------*/

static void cut_off(const struct sim_node *node, bool out, bool in)
{
    for (unsigned i = 0; i < cluster.count; i++) {
        if (i == node->number)
            continue;
        cluster.network.is_cut[node->number][i] = out;
        cluster.network.is_cut[i][node->number] = in;
    }
}

/* Rule 4. The follower receives all entries and compacts its log, but the
 * leader, which does not hear from it, sends them again from before its
 * snapshot. */
static void a_follower_may_compact_more_than_it_has_acknowledged(void **state)
{
    struct sim_node *leader;
    struct sim_node *follower;

    (void)state;
    sim_cluster_init(&cluster, 1, &three);
    crash_all();
    for (unsigned i = 0; i < cluster.count; i++) {
        cluster.nodes[i].config.trailing = 0;
        sim_node_start(&cluster.nodes[i]);
    }
    leader = sim_cluster_await_leader(&cluster);
    follower = find_other(leader);
    follower->snapshot_every = 5;
    cut_off(follower, true, false);
    for (unsigned i = 0; i < 20; i++)
        write_one(leader);
    sim_cluster_run(&cluster, 1000);
    assert_ptr_equal(sim_cluster_leader(&cluster), leader);
    assert_true(follower->engine.log.base_index >
                hf_engine_match(&leader->engine, follower->id));
    cut_off(follower, false, false);
    sim_cluster_check_progress(&cluster);
    assert_int_equal(cluster.checks.installs, 0);
}

/* A frame from one node to another, which the network delivers once more. */
static struct {
    unsigned from, to;
    uint8_t data[256];
    size_t size;
} kept;

/* Keep the last frame with a report of a lost leader. */
static hf_time keep_report(void *arg, unsigned from, unsigned to,
                           const uint8_t *data, size_t size)
{
    struct sim_cluster *owner = arg;
    struct hf_reader reader = {.data = data, .size = size};
    struct hf_frames frames = {0};
    struct hf_message message;

    (void)hf_frames_sender(&reader);
    (void)hf_frames_check(&frames, 0, &reader);
    if (from == kept.from && to == kept.to && size <= sizeof(kept.data) &&
        !hf_message_decode(&reader, &message)) {
        if (message.kind == HF_MESSAGE_LEADER_LOST) {
            memcpy(kept.data, data, size);
            kept.size = size;
        }
        hf_message_fini(&message);
    }
    return sim_node_deliver(&owner->nodes[to], from, data, size);
}

/* Rule 5. Both followers lose their connections to the leader, one long after
 * the other. If the report of the first one counted again, a majority would
 * have lost the leader. */
static void a_frame_that_arrives_again_deposes_no_leader(void **state)
{
    struct sim_node *leader;
    uint64_t term;

    (void)state;
    sim_cluster_init(&cluster, 1, &three);
    cluster.network.deliver = keep_report;
    leader = sim_cluster_await_leader(&cluster);
    /* Of two equal logs, that of the lower id is elected. */
    kept.to = leader->number == 0 ? 1 : 0;
    kept.from = 3 - leader->number - kept.to;
    kept.size = 0;
    term = hf_engine_term(&leader->engine);
    sim_node_lose_leader(&cluster.nodes[kept.from]);
    sim_cluster_run(&cluster, 1000);
    assert_true(kept.size > 0);
    sim_network_send(&cluster.network, kept.from, kept.to, kept.data,
                     kept.size);
    sim_cluster_run(&cluster, 10);
    sim_node_lose_leader(&cluster.nodes[kept.to]);
    sim_cluster_run(&cluster, 1000);
    assert_ptr_equal(sim_cluster_leader(&cluster), leader);
    assert_int_equal(hf_engine_term(&leader->engine), term);
}

/* Let time pass until a node that runs asks for votes in a new term, which has
 * just begun, and return it. */
static struct sim_node *await_candidate(uint64_t term)
{
    for (;;) {
        for (unsigned i = 0; i < cluster.count; i++) {
            struct sim_node *node = &cluster.nodes[i];

            if (node->is_up && hf_engine_term(&node->engine) > term &&
                hf_engine_role(&node->engine) == HF_ENGINE_CANDIDATE)
                return node;
        }
        assert_true(sim_schedule_step(&cluster.schedule, 20000));
    }
}

/* Rule 8. A candidate has won the pre-vote and is cut off before anybody gets
 * its request for votes. It must not raise its term again and again, or it
 * deposes the leader when it is back. */
static void a_candidate_that_was_cut_off_deposes_no_leader(void **state)
{
    struct sim_node *old;
    struct sim_node *candidate;
    struct sim_node *leader;
    uint64_t term;

    (void)state;
    sim_cluster_init(&cluster, 1, &three);
    old = sim_cluster_await_leader(&cluster);
    sim_cluster_run(&cluster, 100);
    sim_node_crash(old);
    candidate = await_candidate(hf_engine_term(&find_other(old)->engine));
    cut_off(candidate, true, true);
    term = hf_engine_term(&candidate->engine);
    sim_node_start(old);
    leader = sim_cluster_await_leader(&cluster);
    assert_ptr_not_equal(leader, candidate);
    sim_cluster_run(&cluster, 10000);
    assert_int_equal(hf_engine_term(&candidate->engine), term);
    term = hf_engine_term(&leader->engine);
    cut_off(candidate, false, false);
    sim_cluster_run(&cluster, 3000);
    assert_ptr_equal(sim_cluster_leader(&cluster), leader);
    assert_int_equal(hf_engine_term(&leader->engine), term);
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
        CASE(entries_of_older_terms_are_not_committed_by_counting),
        CASE(a_deposed_leader_answers_no_read),
        CASE(a_leader_answers_reads_without_new_entries),
        CASE(one_broken_connection_deposes_no_leader),
        CASE(a_dead_leader_is_replaced_before_any_timeout),
        CASE(a_follower_may_compact_more_than_it_has_acknowledged),
        CASE(a_frame_that_arrives_again_deposes_no_leader),
        CASE(a_candidate_that_was_cut_off_deposes_no_leader),
        CASE(a_crash_between_snapshot_and_reset_loses_nothing),
        CASE(a_node_that_is_far_behind_gets_a_snapshot),
    };

    return hf_test_main("raft cases", cases, HF_TEST_COUNT(cases), 0);
}
