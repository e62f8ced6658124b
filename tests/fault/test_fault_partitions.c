/* A cluster whose network is cut: by packets that disappear and by connections
 * that are reset, in both directions and in one. */
#include "fault/load.h"
#include "fault/partition.h"
#include "lib/expect.h"
#include "lib/recorded.h"

#define cluster hf_load_cluster

static int set_up(void **state)
{
    hf_partition_set_up();
    return hf_load_set_up(state);
}

/* Wait until another node than `old` leads, while `old` cannot. */
static unsigned await_other_leader(unsigned old)
{
    unsigned leader = old;

    while (leader == old)
        leader = hf_test_cluster_leader(&cluster);
    return leader;
}

/* Wait until a node has found out that it does not lead. G2-06 */
static void await_step_down(unsigned node)
{
    uint64_t leader = node + 1;

    while (!hf_test_node_info(&cluster, node, "leader", &leader) ||
           leader == node + 1)
        hf_test_pause();
}

/* A client that reaches only the minority is granted nothing. GO-23 */
static void expect_no_grant(struct hf_client *client)
{
    struct hf_lock_opts opts = hf_test_opts(1000, 0, 1000);
    struct hf_lock *lock;
    enum hf_err err =
        recorded_acquire(client, hf_key_of("minority"), &opts, &lock);

    assert_true(err == HF_EUNAVAIL || err == HF_EINDOUBT);
}

static void isolate_leaders(enum hf_cut how)
{
    hf_load_start(HF_TEST_LONG_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 1); i++) {
        unsigned leader = hf_test_cluster_leader(&cluster);
        struct hf_client *client = hf_load_client_of(leader);

        hf_load_await_grants(10);
        hf_partition_isolate(&cluster, leader, how);
        (void)await_other_leader(leader);
        hf_load_await_grants(10);
        await_step_down(leader);
        expect_no_grant(client);
        hf_partition_heal();
        (void)recorded_close(client, HF_TEST_TIMEOUT_MS);
    }
    hf_load_await_grants(10);
    hf_load_check();
}

/* GO-19, GO-23, G2-06 */
static void a_leader_cut_off_by_drops_loses_nothing(void **state)
{
    (void)state;
    isolate_leaders(HF_CUT_DROP);
}

/* GO-19, GO-23, G2-06 */
static void a_leader_cut_off_by_resets_loses_nothing(void **state)
{
    (void)state;
    isolate_leaders(HF_CUT_RESET);
}

/* Returns the index up to which a node has applied the log. */
static uint64_t applied_by(unsigned node)
{
    uint64_t applied = 0;

    while (!hf_test_node_info(&cluster, node, "applied", &applied))
        hf_test_pause();
    return applied;
}

/* A follower that is cut off learns nothing while the others go on. */
static void expect_left_behind(unsigned follower)
{
    uint64_t before;

    hf_load_await_grants(10); /* what was on its way has arrived */
    before = applied_by(follower);
    hf_load_await_grants(20);
    assert_int_equal(applied_by(follower), before);
}

static void isolate_followers(enum hf_cut how)
{
    hf_load_start(HF_TEST_LONG_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 1); i++) {
        unsigned leader = hf_test_cluster_leader(&cluster);
        unsigned follower = (leader + 1 + i % 2) % 3;
        uint64_t before;

        hf_partition_isolate(&cluster, follower, how);
        expect_left_behind(follower);
        before = applied_by(follower);
        hf_partition_heal();
        while (applied_by(follower) == before)
            hf_test_pause();
    }
    hf_load_check();
}

/* GO-20, G2-08 */
static void a_follower_cut_off_by_drops_stops_nobody(void **state)
{
    (void)state;
    isolate_followers(HF_CUT_DROP);
}

/* GO-20, G2-08 */
static void a_follower_cut_off_by_resets_stops_nobody(void **state)
{
    (void)state;
    isolate_followers(HF_CUT_RESET);
}

/* The leader receives from the others, and they receive nothing from it: they
 * elect another. */
static void a_leader_whose_messages_are_lost_is_replaced(void **state)
{
    (void)state;
    hf_load_start(HF_TEST_LONG_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 1); i++) {
        unsigned leader = hf_test_cluster_leader(&cluster);

        hf_partition_cut(&cluster, leader, (leader + 1) % 3, HF_CUT_DROP);
        hf_partition_cut(&cluster, leader, (leader + 2) % 3, HF_CUT_DROP);
        (void)await_other_leader(leader);
        hf_load_await_grants(10);
        hf_partition_heal();
    }
    hf_load_await_grants(10);
    hf_load_check();
}

/* The others receive from the leader, and it receives nothing from them: it has
 * to step down by itself, because its heartbeats keep them from an election.
 * G2-06 */
static void a_leader_that_receives_nothing_steps_down(void **state)
{
    (void)state;
    hf_load_start(HF_TEST_LONG_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 1); i++) {
        unsigned leader = hf_test_cluster_leader(&cluster);

        hf_partition_cut(&cluster, (leader + 1) % 3, leader, HF_CUT_DROP);
        hf_partition_cut(&cluster, (leader + 2) % 3, leader, HF_CUT_DROP);
        await_step_down(leader);
        (void)await_other_leader(leader);
        hf_load_await_grants(10);
        hf_partition_heal();
    }
    hf_load_await_grants(10);
    hf_load_check();
}

/* Two nodes do not reach each other, and both reach the third: a majority is
 * connected whichever of them leads. */
static void a_cut_between_two_nodes_stops_nobody(void **state)
{
    (void)state;
    hf_load_start(HF_TEST_LONG_MS);
    for (unsigned i = 0; hf_load_goes_on(i, 1); i++) {
        unsigned leader = hf_test_cluster_leader(&cluster);
        unsigned follower = (leader + 1) % 3;

        hf_partition_cut(&cluster, leader, follower, HF_CUT_DROP);
        hf_partition_cut(&cluster, follower, leader, HF_CUT_DROP);
        hf_load_await_grants(20);
        hf_partition_heal();
        hf_load_await_grants(10);
    }
    hf_load_check();
}

/* Clients do not reach the leader, and the nodes reach each other: requests go
 * through the followers. GO-13 */
static void clients_go_around_a_leader_that_they_do_not_reach(void **state)
{
    (void)state;
    hf_load_start(HF_TEST_LONG_MS);
    hf_load_await_grants(10);
    hf_partition_cut_clients(&cluster, hf_test_cluster_leader(&cluster),
                             HF_CUT_DROP);
    hf_load_await_grants(20);
    hf_partition_heal();
    hf_load_check();
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_load_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_leader_cut_off_by_drops_loses_nothing),
        CASE(a_leader_cut_off_by_resets_loses_nothing),
        CASE(a_follower_cut_off_by_drops_stops_nobody),
        CASE(a_follower_cut_off_by_resets_stops_nobody),
        CASE(a_leader_whose_messages_are_lost_is_replaced),
        CASE(a_leader_that_receives_nothing_steps_down),
        CASE(a_cut_between_two_nodes_stops_nobody),
        CASE(clients_go_around_a_leader_that_they_do_not_reach),
    };

    return hf_test_main("fault_partitions", cases, HF_TEST_COUNT(cases), 4);
}
