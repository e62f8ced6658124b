/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * The checker finds each planted violation, names it, and accepts correct
 * histories. */
#include "hf-check/check.h"
#include "hf-check/damage.h"
#include "hf-check/fence.h"
#include "hf-check/search.h"
#include "hf-check/simulate.h"
#include "hf-check/tests/planted.h"
#include "lib/runner.h"

/* ---- 1. One valid holder ------------------------------------------------*/

static void good_history_passes(void **state)
{
    (void)state;
    assert_good("1 lock   a1  0 10 ok token 5 until 100\n"
                "1 unlock a1 50 60 ok token 5\n"
                "2 lock   b1  5 70 ok token 6 until 200\n");
}

static void two_valid_holders_are_found(void **state)
{
    (void)state;
    assert_finds(HF_CHECK_EXCLUSION, "1 lock a1 0 10 ok token 5 until 100\n"
                                     "2 lock b1 5 99 ok token 6 until 200\n");
}

static void validity_may_touch(void **state)
{
    (void)state;
    assert_good("1 lock a1 0  10 ok token 5 until 100\n"
                "2 lock b1 5 100 ok token 6 until 200\n");
}

static void validity_ends_when_unlock_is_invoked(void **state)
{
    (void)state;
    assert_good("1 lock   a1  0 10 ok token 5 until 100\n"
                "1 unlock a1 20 90 ok token 5\n"
                "2 lock   b1  5 30 ok token 6 until 200\n");
}

static void validity_of_a_killed_holder_ends_at_its_death(void **state)
{
    (void)state;
    assert_good("1 lock a1  0 10 ok token 5 until 100\n"
                "1 dies 40\n"
                "2 lock b1 30 41 ok token 6 until 200\n");
    assert_finds(HF_CHECK_EXCLUSION, "1 lock a1  0 10 ok token 5 until 100\n"
                                     "1 dies 42\n"
                                     "2 lock b1 30 41 ok token 6 until 200\n");
}

static void the_dead_lived_until_their_last_act(void **state)
{
    (void)state;
    assert_finds(HF_CHECK_EXCLUSION, "1 lock a1  0 10 ok token 5 until 100\n"
                                     "1 dies 40\n"
                                     "1 read -  44 45 ok token 5\n"
                                     "2 lock b1 30 41 ok token 6 until 200\n");
}

static void validity_ends_when_the_loss_is_told(void **state)
{
    (void)state;
    /* Client 1 knows that its lock is lost, so there is no exclusion violation.
     * But the service granted the key too early. */
    assert_finds_only(HF_CHECK_EARLY_GRANT,
                      "1 lock a1  0 10 ok token 5 until 100\n"
                      "1 lost 5 40\n"
                      "2 lock b1 30 41 ok token 6 until 200\n");
}

static void renewal_extends_validity(void **state)
{
    (void)state;
    assert_good("1 lock  a1  0  10 ok token 5 until 100\n"
                "1 renew a1 50  60 ok token 5 until 150\n"
                "2 lock  b1 20 150 ok token 6 until 300\n");
    assert_finds(HF_CHECK_EXCLUSION,
                 "1 lock  a1  0  10 ok token 5 until 100\n"
                 "1 renew a1 50  60 ok token 5 until 150\n"
                 "2 lock  b1 20 149 ok token 6 until 300\n");
}

static void renewal_never_shortens_validity(void **state)
{
    (void)state;
    assert_finds(HF_CHECK_EXCLUSION, "1 lock  a1  0 10 ok token 5 until 100\n"
                                     "1 renew a1 50 60 ok token 5 until 70\n"
                                     "2 lock  b1 20 80 ok token 6 until 300\n");
}

static void renewal_revives_only_from_its_return_on(void **state)
{
    (void)state;
    /* Grant 5 was not valid from 100 to 120, so it did not overlap grant 6. But
     * the service granted the key too early. */
    assert_finds_only(HF_CHECK_EARLY_GRANT,
                      "1 lock   a1   0  10 ok token 5 until 100\n"
                      "2 lock   b1  20 105 ok token 6 until 115\n"
                      "2 unlock b1 110 112 ok token 6\n"
                      "1 renew  a1  90 120 ok token 5 until 200\n");
}

static void force_waives_the_promise(void **state)
{
    (void)state;
    assert_good("1 lock  a1  0 10 ok token 5 until 100\n"
                "9 force -  20 30 ok token 5\n"
                "2 lock  b1  5 31 ok token 6 until 200\n");
}

static void lock_without_deadline_is_valid_until_unlocked(void **state)
{
    (void)state;
    assert_finds(HF_CHECK_EXCLUSION, "1 lock a1 0   10 ok token 5\n"
                                     "2 lock b1 5 9000 ok token 6\n");
}

/* ---- 2. Tokens grow -----------------------------------------------------*/

static void repeated_token_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_TOKEN_REPEATED,
                      "1 lock   a1  0 10 ok token 5 until 100\n"
                      "1 unlock a1 20 30 ok token 5\n"
                      "2 lock   b1 40 50 ok token 5 until 200\n");
}

static void falling_token_is_found(void **state)
{
    (void)state;
    assert_finds(HF_CHECK_TOKEN_ORDER,
                 "1 lock   a1  0 10 ok token 5 until 100\n"
                 "1 unlock a1 20 30 ok token 5\n"
                 "2 lock   b1 40 50 ok token 4 until 200\n");
}

/* ---- 3. The lock is linearizable ----------------------------------------*/

static void grant_before_the_lawful_expiry_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_EARLY_GRANT,
                      "1 lock a1  0 10 ok token 5 until 80 lease 90\n"
                      "2 lock b1 20 85 ok token 6 until 200\n");
    assert_good("1 lock a1  0 10 ok token 5 until 80 lease 90\n"
                "2 lock b1 20 90 ok token 6 until 200\n");
}

static void unknown_unlock_may_have_freed_the_key(void **state)
{
    (void)state;
    assert_good("1 lock   a1  0 10 ok token 5 until 100\n"
                "1 unlock a1 20 30 unknown token 5\n"
                "2 lock   b1 40 50 ok token 6 until 200\n");
}

static void call_without_return_may_have_taken_effect(void **state)
{
    (void)state;
    assert_good("1 lock   a1  0 10 ok token 5 until 100\n"
                "1 unlock a1 20  0 open token 5\n"
                "2 lock   b1 40 50 ok token 6 until 200\n");
}

static void unknown_lock_explains_a_busy_answer(void **state)
{
    (void)state;
    assert_good("1 lock a1  0 10 unknown\n"
                "2 lock b1 20 30 HF_EBUSY\n");
    assert_finds_only(HF_CHECK_FALSE_BUSY, "1 lock a1 31 40 unknown\n"
                                           "2 lock b1 20 30 HF_EBUSY\n");
}

static void lock_that_timed_out_explains_nothing(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_FALSE_BUSY, "1 lock a1 0 10 HF_ETIMEDOUT\n"
                                           "2 lock b1 5 30 HF_EBUSY\n");
}

static void one_unknown_lock_explains_one_gap(void **state)
{
    (void)state;
    assert_good("9 lock   99  0  0 open\n"
                "2 lock   b1  1  2 HF_EBUSY\n"
                "1 lock   a1 10 11 ok token 5 until 100\n"
                "1 unlock a1 12 13 ok token 5\n");
    assert_finds_only(HF_CHECK_FALSE_BUSY,
                      "9 lock   99  0  0 open\n"
                      "2 lock   b1  1  2 HF_EBUSY\n"
                      "1 lock   a1 10 11 ok token 5 until 100\n"
                      "1 unlock a1 12 13 ok token 5\n"
                      "3 lock   c1 20 21 HF_EBUSY\n");
}

static void unknown_lock_needs_a_token_of_its_own(void **state)
{
    (void)state;
    /* No token is below 1, so the unknown lock cannot have held the key before
     * the lock with token 1. */
    assert_finds_only(HF_CHECK_FALSE_BUSY, "9 lock 99  0  0 open\n"
                                           "2 lock b1  1  2 HF_EBUSY\n"
                                           "1 lock a1 10 11 ok token 1\n");
}

static void busy_while_the_key_is_free_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_FALSE_BUSY,
                      "1 lock   a1  0 10 ok token 5 until 100\n"
                      "1 unlock a1 20 30 ok token 5\n"
                      "2 lock   b1 31 40 HF_EBUSY\n");
    assert_good("1 lock   a1  0 10 ok token 5 until 100\n"
                "1 unlock a1 20 30 ok token 5\n"
                "2 lock   b1 30 40 HF_EBUSY\n");
}

static void second_unlock_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_NOT_HOLDER,
                      "1 lock   a1  0 10 ok token 5 until 100\n"
                      "1 unlock a1 20 30 ok token 5\n"
                      "1 unlock a1 40 50 ok token 5\n");
}

static void unlock_by_a_stranger_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_NOT_HOLDER,
                      "1 lock   a1  0 10 ok token 5 until 100\n"
                      "2 unlock b1 40 50 ok token 5\n");
    assert_finds_only(HF_CHECK_NOT_HOLDER, "2 unlock b1 40 50 ok token 5\n");
}

static void renewal_after_the_end_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_NOT_HOLDER,
                      "1 lock   a1  0 10 ok token 5 until 100\n"
                      "1 unlock a1 20 30 ok token 5\n"
                      "1 renew  a1 40 50 ok token 5 until 200\n");
}

static void read_of_a_grant_that_is_over_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_NOT_HOLDER,
                      "1 lock   a1  0 10 ok token 5 until 100\n"
                      "1 unlock a1 20 30 ok token 5\n"
                      "3 read   -  40 50 ok token 5\n");
}

static void read_of_a_free_key_that_is_held_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_FALSE_FREE,
                      "1 lock a1  0 10 ok token 5 until 100\n"
                      "3 read -  11 99 ok\n");
    assert_good("1 lock a1  0 10 ok token 5 until 100\n"
                "3 read -  10 99 ok\n"
                "3 read - 11 100 ok\n");
}

static void key_is_free_before_the_first_and_after_the_last_grant(void **state)
{
    (void)state;
    assert_good("3 read   -   0  1 ok\n"
                "1 lock   a1  2 10 ok token 5 until 100\n"
                "1 unlock a1 20 30 ok token 5\n"
                "3 read   -  21 22 ok\n"
                "3 read   -  40 50 ok\n");
}

static void key_is_held_from_the_first_use_of_its_grant(void **state)
{
    (void)state;
    /* The renewal shows that the lock had taken effect by 20. */
    assert_finds_only(HF_CHECK_FALSE_FREE,
                      "1 lock  a1  0 50 ok token 5 until 100\n"
                      "1 renew a1 15 20 ok token 5 until 110\n"
                      "3 read  -  21 30 ok\n");
}

static void key_may_be_free_between_two_grants(void **state)
{
    (void)state;
    assert_good("1 lock   a1  0 10 ok token 5 until 100\n"
                "1 unlock a1 20 30 ok token 5\n"
                "2 lock   b1 25 40 ok token 6 until 200\n"
                "3 read   -  26 27 ok\n");
    assert_finds_only(HF_CHECK_FALSE_FREE,
                      "1 lock   a1  0 10 ok token 5 until 100\n"
                      "1 unlock a1 20 30 ok token 5\n"
                      "2 lock   b1 25 40 ok token 6 until 200\n"
                      "3 read   -  41 42 ok\n");
}

static void free_key_needs_an_end_that_may_have_come(void **state)
{
    (void)state;
    assert_good("1 lock   a1  0 10 ok token 5 until 100\n"
                "1 unlock a1 20 30 unknown token 5\n"
                "3 read   -  40 50 ok\n");
    assert_good("1 lock   a1  0 10 ok token 5 until 100\n"
                "1 dies 40\n"
                "3 read   -  40 50 ok\n");
    assert_finds_only(HF_CHECK_FALSE_FREE,
                      "1 lock   a1  0 10 ok token 5 until 100\n"
                      "1 dies 40\n"
                      "3 read   -  11 39 ok\n");
}

static void unknown_lock_does_not_contradict_a_free_key(void **state)
{
    (void)state;
    assert_good("1 lock a1  0 10 unknown\n"
                "3 read -  20 30 ok\n");
    assert_good("1 lock a1  0  0 open\n"
                "2 lock b1 20 30 HF_EBUSY\n"
                "3 read -  40 50 ok\n");
}

static void unknown_read_says_nothing(void **state)
{
    (void)state;
    assert_good("1 lock a1  0 10 ok token 5 until 100\n"
                "3 read -  20 30 unknown\n"
                "3 read -  40 50 HF_EUNAVAIL\n"
                "3 read -  60  0 open\n");
}

static void false_news_of_an_end_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_FALSE_END,
                      "1 lock  a1  0 10 ok token 5 until 100\n"
                      "1 renew a1 40 50 HF_EEXPIRED token 5\n");
    assert_good("1 lock  a1  0  10 ok token 5 until 100\n"
                "1 renew a1 40 100 HF_EEXPIRED token 5\n");
}

static void unlock_that_failed_has_no_effect(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_EARLY_GRANT,
                      "1 lock   a1  0 10 ok token 5 until 100\n"
                      "1 unlock a1 20 30 HF_EUNAVAIL token 5\n"
                      "2 lock   b1 40 50 ok token 6 until 200\n");
}

static void unknown_lock_may_be_known_by_its_unlock(void **state)
{
    (void)state;
    assert_good("1 lock   a1  0 10 unknown\n"
                "1 unlock a1 20 30 ok token 5\n"
                "2 lock   b1 31 40 ok token 6 until 200\n");
    assert_finds_only(HF_CHECK_NOT_HOLDER, "1 unlock a1 20 30 ok token 5\n"
                                           "1 lock   a1 31 40 unknown\n");
}

/* ---- 4. The fence holds -------------------------------------------------*/

static void cell_refuses_the_old_and_the_stranger(void **state)
{
    struct hf_fence cell = {0};

    (void)state;
    assert_false(hf_fence_write(&cell, 0, "", 1));
    assert_true(hf_fence_write(&cell, 5, "a1", 1));
    assert_true(hf_fence_write(&cell, 5, "a1", 2));
    assert_false(hf_fence_write(&cell, 5, "b1", 3));
    assert_false(hf_fence_write(&cell, 4, "a1", 4));
    assert_true(hf_fence_write(&cell, 7, "b1", 5));
    assert_int_equal(cell.value, 5);
}

static void accepted_token_that_falls_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_FENCE_ORDER, "1 write a1  0 10 ok token 5\n"
                                            "2 write b1 20 30 ok token 6\n"
                                            "1 write a1 40 50 ok token 5\n");
    assert_good("1 write a1  0 10 ok token 5\n"
                "2 write b1 20 30 ok token 6\n"
                "1 write a1 30 50 ok token 5\n");
    assert_good("2 write b1 20 30 ok token 6\n"
                "1 write a1 40 50 HF_EEXPIRED token 5\n");
}

static void token_that_writes_for_two_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_FENCE_SHARED, "1 write a1  0 10 ok token 5\n"
                                             "2 write b1 20 30 ok token 5\n");
    assert_good("1 write a1  0 10 ok token 5\n"
                "1 write a1 20 30 ok token 5\n");
}

static void lost_bumps_are_counted_not_blamed(void **state)
{
    struct hf_check_report report;

    (void)state;
    check_planted("1 write a1 0 10 ok token 5 value 1 unfenced 1\n"
                  "2 write b1 0 10 ok token 6 value 2 unfenced 1\n"
                  "3 write c1 0 10 ok token 4 value 2 unfenced 1\n",
                  &report);
    assert_int_equal(report.violation_count, 0);
    assert_int_equal(report.bump_count, 3);
    assert_int_equal(report.lost_bump_count, 1);
}

/* ---- 5. First come, first served ----------------------------------------*/

static void overtaking_is_found_where_order_is_promised(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_FIFO,
                      "fifo\n"
                      "1 lock a1  0 90 ok token 6 until 200 queued 10\n"
                      "2 lock b1 20 30 ok token 5 until 80\n");
    assert_good("1 lock a1  0 90 ok token 6 until 200 queued 10\n"
                "2 lock b1 20 30 ok token 5 until 80\n");
    assert_good("fifo\n"
                "1 lock a1  0 90 ok token 6 until 200 queued 20\n"
                "2 lock b1 20 30 ok token 5 until 80\n");
}

/* ---- All promises -------------------------------------------------------*/

static void simulated_lock_keeps_its_promises(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct hf_simulate_opts opts = {.seed = seed,
                                        .ops = 2000,
                                        .clients = 8,
                                        .keys = 3,
                                        .lease_max = 40,
                                        .unit_ns = 1000,
                                        .trouble = 50};
        struct hf_check_report report;
        struct hf_check_history h;

        hf_check_history_init(&h, false);
        hf_simulate_run(&h, &opts);
        hf_check_run(&h, &report);
        hf_check_history_fini(&h);
        assert_int_equal(report.violation_count, 0);
        assert_true(report.grant_count > 100);
        assert_true(report.busy_count > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_history_passes),
        cmocka_unit_test(two_valid_holders_are_found),
        cmocka_unit_test(validity_may_touch),
        cmocka_unit_test(validity_ends_when_unlock_is_invoked),
        cmocka_unit_test(validity_of_a_killed_holder_ends_at_its_death),
        cmocka_unit_test(the_dead_lived_until_their_last_act),
        cmocka_unit_test(validity_ends_when_the_loss_is_told),
        cmocka_unit_test(renewal_extends_validity),
        cmocka_unit_test(renewal_never_shortens_validity),
        cmocka_unit_test(renewal_revives_only_from_its_return_on),
        cmocka_unit_test(force_waives_the_promise),
        cmocka_unit_test(lock_without_deadline_is_valid_until_unlocked),
        cmocka_unit_test(repeated_token_is_found),
        cmocka_unit_test(falling_token_is_found),
        cmocka_unit_test(grant_before_the_lawful_expiry_is_found),
        cmocka_unit_test(unknown_unlock_may_have_freed_the_key),
        cmocka_unit_test(call_without_return_may_have_taken_effect),
        cmocka_unit_test(unknown_lock_explains_a_busy_answer),
        cmocka_unit_test(lock_that_timed_out_explains_nothing),
        cmocka_unit_test(one_unknown_lock_explains_one_gap),
        cmocka_unit_test(unknown_lock_needs_a_token_of_its_own),
        cmocka_unit_test(busy_while_the_key_is_free_is_found),
        cmocka_unit_test(second_unlock_is_found),
        cmocka_unit_test(unlock_by_a_stranger_is_found),
        cmocka_unit_test(renewal_after_the_end_is_found),
        cmocka_unit_test(read_of_a_grant_that_is_over_is_found),
        cmocka_unit_test(read_of_a_free_key_that_is_held_is_found),
        cmocka_unit_test(key_is_free_before_the_first_and_after_the_last_grant),
        cmocka_unit_test(key_is_held_from_the_first_use_of_its_grant),
        cmocka_unit_test(key_may_be_free_between_two_grants),
        cmocka_unit_test(free_key_needs_an_end_that_may_have_come),
        cmocka_unit_test(unknown_lock_does_not_contradict_a_free_key),
        cmocka_unit_test(unknown_read_says_nothing),
        cmocka_unit_test(false_news_of_an_end_is_found),
        cmocka_unit_test(unlock_that_failed_has_no_effect),
        cmocka_unit_test(unknown_lock_may_be_known_by_its_unlock),
        cmocka_unit_test(cell_refuses_the_old_and_the_stranger),
        cmocka_unit_test(accepted_token_that_falls_is_found),
        cmocka_unit_test(token_that_writes_for_two_is_found),
        cmocka_unit_test(lost_bumps_are_counted_not_blamed),
        cmocka_unit_test(overtaking_is_found_where_order_is_promised),
        cmocka_unit_test(simulated_lock_keeps_its_promises),
    };

    return hf_test_main("check", tests, HF_TEST_COUNT(tests), 0);
}
