/* test_rounds.c - rounds for linearizable reads (rounds.h), and reports of a
 * lost leader (lost.h). */
#include "base/limits.h"
#include "lib/runner.h"
#include "raft/lost.h"
#include "raft/rounds.h"

static const struct hf_membership three = {{1, 2, 3}, 3};
static const struct hf_membership four = {{1, 2, 3, 4}, 4};

/* ---- rounds.c -----------------------------------------------------------*/

static void lead(struct hf_rounds *rounds, const struct hf_membership *voters)
{
    hf_rounds_init(rounds, 1, voters);
    hf_rounds_lead(rounds, 5);
}

static void a_read_needs_the_echo_of_a_majority(void **state)
{
    struct hf_rounds rounds;
    struct hf_read read;
    uint64_t number;

    (void)state;
    lead(&rounds, &four);
    assert_int_equal(hf_rounds_add(&rounds, 7, 99), HF_OK);
    assert_false(hf_rounds_take(&rounds, 100, &read));
    number = hf_rounds_start(&rounds, false);
    assert_true(number > 0);
    assert_false(hf_rounds_take(&rounds, 100, &read));
    hf_rounds_echo(&rounds, 2, 5, number);
    hf_rounds_echo(&rounds, 2, 5, number);             /* counts once */
    assert_false(hf_rounds_take(&rounds, 100, &read)); /* 2 of 4 */
    hf_rounds_echo(&rounds, 3, 5, number);
    assert_false(hf_rounds_take(&rounds, 6, &read)); /* not applied */
    assert_true(hf_rounds_take(&rounds, 7, &read));
    assert_int_equal(read.tag, 99);
    assert_false(hf_rounds_take(&rounds, 100, &read));
    hf_rounds_fini(&rounds);
}

static void a_round_that_started_before_the_read_does_not_count(void **state)
{
    struct hf_rounds rounds;
    struct hf_read read;
    uint64_t first;

    (void)state;
    lead(&rounds, &three);
    assert_int_equal(hf_rounds_add(&rounds, 1, 1), HF_OK);
    first = hf_rounds_start(&rounds, false);
    assert_int_equal(hf_rounds_add(&rounds, 1, 2), HF_OK);
    hf_rounds_echo(&rounds, 2, 5, first);
    assert_true(hf_rounds_take(&rounds, 1, &read));
    assert_int_equal(read.tag, 1);
    assert_false(hf_rounds_take(&rounds, 1, &read));
    hf_rounds_echo(&rounds, 2, 5, hf_rounds_start(&rounds, false));
    assert_true(hf_rounds_take(&rounds, 1, &read));
    assert_int_equal(read.tag, 2);
    assert_int_equal(hf_rounds_start(&rounds, true), 0); /* nothing waits */
    hf_rounds_fini(&rounds);
}

static void echoes_of_another_term_or_of_strangers_do_not_count(void **state)
{
    struct hf_rounds rounds;
    struct hf_read read;
    uint64_t number;

    (void)state;
    lead(&rounds, &three);
    assert_int_equal(hf_rounds_add(&rounds, 1, 1), HF_OK);
    number = hf_rounds_start(&rounds, false);
    hf_rounds_echo(&rounds, 2, 4, number);
    hf_rounds_echo(&rounds, 2, 6, number);
    hf_rounds_echo(&rounds, 4, 5, number);
    hf_rounds_echo(&rounds, 2, 5, number + 1); /* not started */
    assert_false(hf_rounds_take(&rounds, 1, &read));
    hf_rounds_fini(&rounds);
}

static void a_deposed_leader_answers_nothing(void **state)
{
    struct hf_rounds rounds;
    struct hf_read read;
    uint64_t number;

    (void)state;
    lead(&rounds, &three);
    assert_int_equal(hf_rounds_add(&rounds, 1, 1), HF_OK);
    number = hf_rounds_start(&rounds, false);
    hf_rounds_lead(&rounds, 0);
    hf_rounds_echo(&rounds, 2, 5, number);
    assert_false(hf_rounds_take(&rounds, 1, &read));
    assert_int_equal(hf_rounds_add(&rounds, 1, 2), HF_ESTATE);
    hf_rounds_lead(&rounds, 9); /* the node leads again */
    assert_int_equal(hf_rounds_add(&rounds, 1, 3), HF_OK);
    hf_rounds_echo(&rounds, 2, 9, number);
    assert_false(hf_rounds_take(&rounds, 1, &read));
    hf_rounds_fini(&rounds);
}

static void a_lost_round_is_repeated(void **state)
{
    struct hf_rounds rounds;
    struct hf_read read;
    uint64_t number;

    (void)state;
    lead(&rounds, &three);
    assert_int_equal(hf_rounds_add(&rounds, 1, 1), HF_OK);
    assert_true(hf_rounds_start(&rounds, false) > 0);
    assert_int_equal(hf_rounds_start(&rounds, false), 0);
    number = hf_rounds_start(&rounds, true);
    assert_true(number > 0);
    hf_rounds_echo(&rounds, 3, 5, number);
    assert_true(hf_rounds_take(&rounds, 1, &read));
    hf_rounds_fini(&rounds);
}

static void a_sole_voter_needs_no_echo(void **state)
{
    struct hf_membership one = {{1}, 1};
    struct hf_rounds rounds;
    struct hf_read read;

    (void)state;
    lead(&rounds, &one);
    assert_int_equal(hf_rounds_add(&rounds, 1, 1), HF_OK);
    assert_true(hf_rounds_start(&rounds, false) > 0);
    assert_true(hf_rounds_take(&rounds, 1, &read));
    hf_rounds_fini(&rounds);
}

static void waiting_reads_have_a_limit(void **state)
{
    struct hf_rounds rounds;
    struct hf_read read;

    (void)state;
    lead(&rounds, &three);
    for (uint64_t i = 0; i < HF_RAFT_ROUNDS_MAX; i++)
        assert_int_equal(hf_rounds_add(&rounds, 1, i), HF_OK);
    assert_int_equal(hf_rounds_add(&rounds, 1, 0), HF_ELIMIT);
    hf_rounds_echo(&rounds, 2, 5, hf_rounds_start(&rounds, false));
    for (uint64_t i = 0; i < HF_RAFT_ROUNDS_MAX; i++) {
        assert_true(hf_rounds_take(&rounds, 1, &read));
        assert_int_equal(read.tag, i);
    }
    hf_rounds_fini(&rounds);
}

/* ---- lost.c -------------------------------------------------------------*/

static void report(struct hf_lost *lost, uint64_t voter, uint64_t term,
                   uint64_t last_term, uint64_t last_index)
{
    hf_lost_report(lost, voter, term,
                   &(struct hf_lost_log){1000, last_term, last_index});
}

static void one_broken_connection_deposes_no_leader(void **state)
{
    struct hf_lost lost;

    (void)state;
    hf_lost_init(&lost, 1, &four, 100);
    report(&lost, 1, 5, 5, 10);
    assert_false(hf_lost_elects(&lost, 5, 1000));
    report(&lost, 2, 5, 5, 10);
    report(&lost, 2, 5, 5, 10);
    assert_false(hf_lost_elects(&lost, 5, 1000)); /* 2 of 4 */
    report(&lost, 9, 5, 5, 10);                   /* not a voter */
    assert_false(hf_lost_elects(&lost, 5, 1000));
    report(&lost, 3, 5, 5, 10);
    assert_true(hf_lost_elects(&lost, 5, 1000));
}

static void the_most_complete_log_stands_for_election(void **state)
{
    struct hf_lost lost;

    (void)state;
    hf_lost_init(&lost, 2, &three, 100);
    report(&lost, 2, 5, 4, 12);
    report(&lost, 3, 5, 5, 10);
    assert_false(hf_lost_elects(&lost, 5, 1000)); /* node 3: later last term */
    report(&lost, 2, 5, 5, 9);
    assert_false(hf_lost_elects(&lost, 5, 1000)); /* node 3 has a longer log */
    report(&lost, 2, 5, 5, 11);
    assert_true(hf_lost_elects(&lost, 5, 1000));
    report(&lost, 3, 5, 5, 11);
    assert_true(hf_lost_elects(&lost, 5, 1000)); /* equal logs: the lowest id */
    report(&lost, 1, 5, 5, 11);
    assert_false(hf_lost_elects(&lost, 5, 1000));
}

static void reports_of_other_terms_do_not_count(void **state)
{
    struct hf_lost lost;

    (void)state;
    hf_lost_init(&lost, 1, &three, 100);
    report(&lost, 1, 5, 5, 10);
    report(&lost, 2, 4, 4, 10);
    assert_false(hf_lost_elects(&lost, 5, 1000));
    report(&lost, 2, 6, 5, 10); /* removes the reports of term 5 */
    assert_false(hf_lost_elects(&lost, 5, 1000));
    assert_false(hf_lost_elects(&lost, 6, 1000));
    report(&lost, 1, 6, 5, 10);
    assert_false(hf_lost_elects(&lost, 5, 1000));
    assert_true(hf_lost_elects(&lost, 6, 1000));
}

static void a_leader_that_is_heard_again_is_not_lost(void **state)
{
    struct hf_lost lost;

    (void)state;
    hf_lost_init(&lost, 1, &three, 100);
    report(&lost, 1, 5, 5, 10);
    report(&lost, 2, 5, 5, 10);
    assert_true(hf_lost_elects(&lost, 5, 1000));
    hf_lost_clear(&lost);
    assert_false(hf_lost_elects(&lost, 5, 1000));
    report(&lost, 1, 5, 5, 10); /* the report of node 2 still counts */
    assert_true(hf_lost_elects(&lost, 5, 1000));
}

static void an_old_report_does_not_count(void **state)
{
    struct hf_lost lost;

    (void)state;
    hf_lost_init(&lost, 1, &three, 100);
    hf_lost_report(&lost, 2, 5, &(struct hf_lost_log){900, 5, 10});
    hf_lost_report(&lost, 1, 5, &(struct hf_lost_log){999, 5, 10});
    assert_true(hf_lost_elects(&lost, 5, 999));
    assert_false(hf_lost_elects(&lost, 5, 1000));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_read_needs_the_echo_of_a_majority),
        cmocka_unit_test(a_round_that_started_before_the_read_does_not_count),
        cmocka_unit_test(echoes_of_another_term_or_of_strangers_do_not_count),
        cmocka_unit_test(a_deposed_leader_answers_nothing),
        cmocka_unit_test(a_lost_round_is_repeated),
        cmocka_unit_test(a_sole_voter_needs_no_echo),
        cmocka_unit_test(waiting_reads_have_a_limit),
        cmocka_unit_test(one_broken_connection_deposes_no_leader),
        cmocka_unit_test(the_most_complete_log_stands_for_election),
        cmocka_unit_test(reports_of_other_terms_do_not_count),
        cmocka_unit_test(a_leader_that_is_heard_again_is_not_lost),
        cmocka_unit_test(an_old_report_does_not_count),
    };

    return hf_test_main("rounds", cases, HF_TEST_COUNT(cases), 0);
}
