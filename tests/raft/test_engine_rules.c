/* test_engine_rules.c - the rules against defects of libraft
 * (src/raft/rules.h), each in the smallest situation in which it matters.
 * Random simulations reach some of these situations once in thousands of
 * seeds. */
#include "raft/one_engine.h"
#include "raft/rules.h"

/* ---- Rule 3 -------------------------------------------------------------*/

static void a_sole_voter_leads_in_a_new_term(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 1);
    one_load_first(&one);
    one.loaded.term = 5;
    one_start(&one);
    assert_int_equal(one.update.role, HF_ENGINE_LEADER);
    assert_int_equal(one.update.term, 6);
    assert_int_equal(one.update.vote, 1);
    assert_true(one.update.changes & HF_ENGINE_HARD_STATE);
    assert_int_equal(hf_entries_term(&one.engine.log, one.engine.log.last), 6);
    one_fini(&one);
}

/* ---- Rule 4 -------------------------------------------------------------*/

/* A follower whose log begins after its snapshot at 10. */
static void start_compacted(struct one *one, struct hf_buf *members)
{
    one_init(one, 3);
    one_load_snapshot(one, 10, 2, members);
    one->loaded.term = 2;
    one_start(one);
}

/* The append has entries 6 to 12, and the follower has forgotten entry 5. */
static void an_append_from_before_the_snapshot_is_accepted(void **state)
{
    struct hf_buf members = {0};
    struct one one;

    (void)state;
    start_compacted(&one, &members);
    assert_int_equal(one_append(&one, 2, 2, 5, 2, 7, 10), HF_OK);
    assert_int_equal(one.update.first, 11);
    assert_int_equal(one.update.last, 12);
    one_persist(&one);
    assert_int_equal(
        one_find(&one, HF_MESSAGE_APPEND_RESULT, 2)->append_result.last_index,
        12);
    one_fini(&one);
    hf_buf_fini(&members);
}

/* The library does not compare a prev_index of 0 with the log, so without the
 * rule it would overwrite committed entries. */
static void an_append_from_the_beginning_overwrites_nothing(void **state)
{
    struct hf_buf members = {0};
    struct one one;

    (void)state;
    start_compacted(&one, &members);
    assert_int_equal(one_append(&one, 2, 2, 0, 0, 3, 3), HF_OK);
    assert_false(one.update.changes & HF_ENGINE_ENTRIES);
    assert_int_equal(one.engine.log.last, 10);
    assert_int_equal(one.update.commit, 10);
    assert_int_equal(
        one_find(&one, HF_MESSAGE_APPEND_RESULT, 2)->append_result.last_index,
        10);
    one_fini(&one);
    hf_buf_fini(&members);
}

/* GO-26 */
static void an_append_of_an_older_term_is_rejected_as_it_is(void **state)
{
    struct hf_buf members = {0};
    const struct hf_message *result;
    struct one one;

    (void)state;
    start_compacted(&one, &members);
    assert_int_equal(one_append(&one, 2, 1, 5, 1, 7, 10), HF_OK);
    result = one_find(&one, HF_MESSAGE_APPEND_RESULT, 2);
    assert_int_equal(result->append_result.rejected, 5);
    assert_int_equal(result->term, 2);
    one_fini(&one);
    hf_buf_fini(&members);
}

/* ---- Rules 6 and 7 ------------------------------------------------------*/

/* The candidate has the better log, so it must become the leader; but it must
 * first learn that we are in term 9. */
static void a_refused_pre_vote_reports_our_term(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one.loaded.term = 9;
    one_start(&one);
    assert_int_equal(
        one_receive(&one, 2,
                    (struct hf_message){.kind = HF_MESSAGE_VOTE,
                                        .term = 4,
                                        .vote = {20, 3, true, false}}),
        HF_OK);
    assert_int_equal(one.update.message_count, 1);
    assert_int_equal(one.update.messages[0].kind, HF_MESSAGE_VOTE_RESULT);
    assert_false(one.update.messages[0].vote_result.granted);
    assert_int_equal(one.update.messages[0].term, 9);
    one_fini(&one);
}

static void a_candidate_learns_a_higher_term_from_a_refused_pre_vote(
    void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    one_tick_after(&one, 2 * ELECTION_MS);
    assert_int_equal(
        one_receive(&one, 2,
                    (struct hf_message){.kind = HF_MESSAGE_VOTE_RESULT,
                                        .term = 9,
                                        .vote_result = {false, true, 0, 0}}),
        HF_OK);
    assert_int_equal(one.update.term, 9);
    assert_true(one.update.changes & HF_ENGINE_HARD_STATE);
    one_fini(&one);
}

static void a_follower_ignores_results_of_votes(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(
        one_receive(&one, 2,
                    (struct hf_message){.kind = HF_MESSAGE_VOTE_RESULT,
                                        .term = 7,
                                        .vote_result = {false, true, 0, 0}}),
        HF_OK);
    assert_int_equal(hf_engine_term(&one.engine), 1);
    assert_int_equal(one.update.changes, 0);
    one_fini(&one);
}

/* ---- Rule 8 -------------------------------------------------------------*/

static void a_candidate_that_failed_starts_with_a_pre_vote_again(void **state)
{
    const struct hf_message *vote;
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    one_tick_after(&one, 2 * ELECTION_MS);
    vote = one_find(&one, HF_MESSAGE_VOTE, 2);
    assert_true(vote->vote.pre_vote);
    assert_int_equal(
        one_receive(&one, 2,
                    (struct hf_message){.kind = HF_MESSAGE_VOTE_RESULT,
                                        .term = 2,
                                        .vote_result = {true, true, 0, 0}}),
        HF_OK);
    vote = one_find(&one, HF_MESSAGE_VOTE, 2);
    assert_false(vote->vote.pre_vote);
    assert_int_equal(one.update.term, 2);
    one_persist(&one);
    /* Nobody votes. */
    for (unsigned i = 0; i < 5; i++) {
        one_tick_after(&one, 2 * ELECTION_MS);
        vote = one_find(&one, HF_MESSAGE_VOTE, 2);
        assert_true(vote->vote.pre_vote);
        assert_int_equal(one.update.term, 2);
    }
    one_fini(&one);
}

static void a_failed_replacement_of_the_leader_disrupts_no_more(void **state)
{
    const struct hf_message *vote;
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 0, 1), HF_OK);
    assert_int_equal(
        one_step(&one, (struct hf_engine_event){.kind = HF_ENGINE_LEADER_LOST,
                                                .peer = 2}),
        HF_OK);
    assert_true(one_find(&one, HF_MESSAGE_VOTE, 3)->vote.disrupt);
    one_persist(&one);
    one_tick_after(&one, 2 * ELECTION_MS);
    vote = one_find(&one, HF_MESSAGE_VOTE, 3);
    assert_false(vote->vote.disrupt);
    assert_true(vote->vote.pre_vote);
    one_fini(&one);
}

/* ---- Rule 9 -------------------------------------------------------------*/

static void ask_for_pre_vote(struct one *one)
{
    assert_int_equal(
        one_receive(one, 3,
                    (struct hf_message){.kind = HF_MESSAGE_VOTE,
                                        .term = 3,
                                        .vote = {9, 2, true, false}}),
        HF_OK);
}

static void a_silent_leader_is_forgotten_after_the_minimum_timeout(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 1, 1), HF_OK);
    one_persist(&one);
    one.now += ELECTION_MS - 1;
    ask_for_pre_vote(&one);
    assert_false(
        one_find(&one, HF_MESSAGE_VOTE_RESULT, 3)->vote_result.granted);
    one.now += 1;
    ask_for_pre_vote(&one);
    assert_true(one_find(&one, HF_MESSAGE_VOTE_RESULT, 3)->vote_result.granted);
    one_fini(&one);
}

/* The node forgets the leader while entries of that leader are being
 * flushed. */
static void nothing_is_sent_to_a_forgotten_leader(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 1, 1), HF_OK);
    one.now += ELECTION_MS;
    ask_for_pre_vote(&one);
    one_persist(&one);
    assert_int_equal(one.update.message_count, 0);
    one_fini(&one);
}

/* ---- Rules 10, 11 and 13 ------------------------------------------------*/

static void a_delayed_append_does_not_lower_the_commit_index(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 8, 5), HF_OK);
    assert_int_equal(one.update.commit, 5);
    assert_int_equal(one_append(&one, 2, 2, 2, 2, 0, 7), HF_OK);
    assert_int_equal(one.update.commit, 5);
    assert_int_equal(one_append(&one, 2, 2, 9, 2, 0, 7), HF_OK);
    assert_int_equal(one.update.commit, 7);
    one_fini(&one);
}

/* A heartbeat moves the election timeout, and a timeout sets the next one. */
static void each_step_returns_the_next_timeout(void **state)
{
    struct one one;
    hf_time timeout;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    timeout = one.update.timeout;
    one.now += 100;
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 0, 1), HF_OK);
    assert_int_equal(one.update.timeout, timeout + 100);
    one_persist(&one);
    assert_int_equal(one.update.timeout, timeout + 100);
    for (unsigned i = 0; i < 10; i++) {
        one_tick_after(&one, (uint32_t)(one.update.timeout - one.now));
        assert_true(one.update.timeout > one.now);
    }
    one_fini(&one);
}

/* A timer that is due again at once would keep the caller busy for ever. */
static void a_timeout_in_the_past_is_delayed_after_a_timeout(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    one.now += 10000;
    assert_true(hf_rules_next_timeout(one.engine.raft, one.now, false) <
                one.now);
    assert_true(hf_rules_next_timeout(one.engine.raft, one.now, true) >
                one.now);
    one_fini(&one);
}

static void a_contradiction_stops_the_engine(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(one_append(&one, 2, 2, 1, 1, 8, 9), HF_OK);
    assert_int_equal(one.update.commit, 9);
    /* Another leader claims that entry 3 is of term 1. */
    assert_int_equal(one_append(&one, 3, 3, 3, 1, 1, 9), HF_ESYSTEM);
    assert_non_null(one.engine.failure);
    assert_int_equal(one_append(&one, 2, 3, 9, 2, 0, 9), HF_ESYSTEM);
    one_fini(&one);
}

static void a_second_leader_of_our_term_stops_the_engine(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    one_elect(&one);
    assert_int_equal(one_append(&one, 3, 2, 1, 1, 1, 1), HF_ESYSTEM);
    one_fini(&one);
}

/* ---- Rules 16 and 17 ----------------------------------------------------*/

/* Let node 1 win the pre-vote of term 2, of three nodes or five. It has asked
 * for votes then, and its own vote is not durable. */
static void one_stand(struct one *one, uint64_t voters)
{
    one_init(one, voters);
    one_load_first(one);
    one_start(one);
    one_tick_after(one, 2 * ELECTION_MS);
    for (uint64_t i = 2; i <= voters / 2 + 1; i++)
        assert_int_equal(
            one_receive(one, i,
                        (struct hf_message){.kind = HF_MESSAGE_VOTE_RESULT,
                                            .term = 2,
                                            .vote_result = {true, true, 0, 0}}),
            HF_OK);
    assert_false(one_find(one, HF_MESSAGE_VOTE, 2)->vote.pre_vote);
    assert_int_equal(hf_engine_term(&one->engine), 2);
}

static void one_receive_vote(struct one *one, uint64_t from, uint64_t term)
{
    assert_int_equal(
        one_receive(one, from,
                    (struct hf_message){.kind = HF_MESSAGE_VOTE_RESULT,
                                        .term = term,
                                        .vote_result = {true, false, 0, 0}}),
        HF_OK);
}

/* It waits for its own vote, and for as long again: the voters have to store
 * theirs. */
static void a_candidate_waits_for_slow_disks(void **state)
{
    struct one one;

    (void)state;
    one_stand(&one, 3);
    for (unsigned i = 0; i < 10; i++) {
        one_tick_after(&one, ELECTION_MS);
        assert_int_equal(one.update.message_count, 0);
        assert_true(one.update.timeout > one.now);
    }
    one_persist(&one);
    one_tick_after(&one, 10 * ELECTION_MS);
    assert_int_equal(one.update.message_count, 0);
    one_tick_after(&one, 2 * ELECTION_MS);
    assert_true(one_find(&one, HF_MESSAGE_VOTE, 2)->vote.pre_vote);
    one_fini(&one);
}

static void a_voter_does_not_stand_before_its_vote_is_durable(void **state)
{
    struct one one;

    (void)state;
    one_init(&one, 3);
    one_load_first(&one);
    one_start(&one);
    assert_int_equal(
        one_receive(&one, 2,
                    (struct hf_message){.kind = HF_MESSAGE_VOTE,
                                        .term = 2,
                                        .vote = {1, 1, false, false}}),
        HF_OK);
    assert_true(one.update.messages[0].vote_result.granted);
    one_tick_after(&one, 4 * ELECTION_MS);
    assert_int_equal(one.update.message_count, 0);
    one_persist(&one);
    one_tick_after(&one, ELECTION_MS - 1);
    assert_int_equal(one.update.message_count, 0);
    one_tick_after(&one, ELECTION_MS + 1);
    assert_true(one_find(&one, HF_MESSAGE_VOTE, 3)->vote.pre_vote);
    one_fini(&one);
}

static void a_late_vote_elects(void **state)
{
    struct one one;

    (void)state;
    one_stand(&one, 3);
    one_persist(&one);
    one_tick_after(&one, 2 * ELECTION_MS);
    assert_true(one_find(&one, HF_MESSAGE_VOTE, 2)->vote.pre_vote);
    one_receive_vote(&one, 3, 2);
    assert_int_equal(hf_engine_role(&one.engine), HF_ENGINE_LEADER);
    assert_int_equal(hf_engine_term(&one.engine), 2);
    one_fini(&one);
}

/* A grant of the pre-vote of term 3 is no vote in term 2. */
static void grants_of_a_pre_vote_are_no_late_votes(void **state)
{
    struct one one;

    (void)state;
    one_stand(&one, 5);
    one_persist(&one);
    one_receive_vote(&one, 2, 2);
    one_tick_after(&one, 2 * ELECTION_MS);
    assert_int_equal(
        one_receive(&one, 3,
                    (struct hf_message){.kind = HF_MESSAGE_VOTE_RESULT,
                                        .term = 3,
                                        .vote_result = {true, true, 0, 0}}),
        HF_OK);
    one_receive_vote(&one, 2, 2);
    assert_int_equal(hf_engine_role(&one.engine), HF_ENGINE_CANDIDATE);
    one_receive_vote(&one, 4, 1);
    assert_int_equal(hf_engine_role(&one.engine), HF_ENGINE_CANDIDATE);
    one_receive_vote(&one, 5, 2);
    assert_int_equal(hf_engine_role(&one.engine), HF_ENGINE_LEADER);
    one_fini(&one);
}

/* ---- The version of the library -----------------------------------------*/

/* Each of these fields would be elsewhere in a struct raft of another
 * layout. */
static void a_library_of_another_layout_is_not_expected(void **state)
{
    struct hf_engine_config config;
    struct raft *raft;
    struct one one;

    (void)state;
    one_init(&one, 3);
    config = one.engine.config;
    raft = one.engine.raft;
    assert_true(hf_engine_is_expected_library(raft, &config));
    config.id++;
    assert_false(hf_engine_is_expected_library(raft, &config));
    config = one.engine.config;
    config.election_ms++;
    assert_false(hf_engine_is_expected_library(raft, &config));
    config = one.engine.config;
    config.heartbeat_ms++;
    assert_false(hf_engine_is_expected_library(raft, &config));
    config = one.engine.config;
    config.inflight_max++;
    assert_false(hf_engine_is_expected_library(raft, &config));
    config = one.engine.config;
    raft->pre_vote = false;
    assert_false(hf_engine_is_expected_library(raft, &config));
    raft->pre_vote = true;
    raft->follower_state.randomized_election_timeout = 2 * ELECTION_MS + 1;
    assert_false(hf_engine_is_expected_library(raft, &config));
    raft->follower_state.randomized_election_timeout = ELECTION_MS;
    assert_true(hf_engine_is_expected_library(raft, &config));
    one_fini(&one);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_sole_voter_leads_in_a_new_term),
        cmocka_unit_test(an_append_from_before_the_snapshot_is_accepted),
        cmocka_unit_test(an_append_from_the_beginning_overwrites_nothing),
        cmocka_unit_test(an_append_of_an_older_term_is_rejected_as_it_is),
        cmocka_unit_test(a_refused_pre_vote_reports_our_term),
        cmocka_unit_test(
            a_candidate_learns_a_higher_term_from_a_refused_pre_vote),
        cmocka_unit_test(a_follower_ignores_results_of_votes),
        cmocka_unit_test(a_candidate_that_failed_starts_with_a_pre_vote_again),
        cmocka_unit_test(a_failed_replacement_of_the_leader_disrupts_no_more),
        cmocka_unit_test(
            a_silent_leader_is_forgotten_after_the_minimum_timeout),
        cmocka_unit_test(nothing_is_sent_to_a_forgotten_leader),
        cmocka_unit_test(a_delayed_append_does_not_lower_the_commit_index),
        cmocka_unit_test(each_step_returns_the_next_timeout),
        cmocka_unit_test(a_timeout_in_the_past_is_delayed_after_a_timeout),
        cmocka_unit_test(a_contradiction_stops_the_engine),
        cmocka_unit_test(a_second_leader_of_our_term_stops_the_engine),
        cmocka_unit_test(a_candidate_waits_for_slow_disks),
        cmocka_unit_test(a_voter_does_not_stand_before_its_vote_is_durable),
        cmocka_unit_test(a_late_vote_elects),
        cmocka_unit_test(grants_of_a_pre_vote_are_no_late_votes),
        cmocka_unit_test(a_library_of_another_layout_is_not_expected),
    };

    return hf_test_main("engine rules", cases, HF_TEST_COUNT(cases), 0);
}
