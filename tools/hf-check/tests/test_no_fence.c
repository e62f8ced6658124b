/* SPDX-License-Identifier: MIT
 * Copyright the holdfast authors
 *
 * The checker of services without fencing tokens: tokens may fall and repeat,
 * and all other violations are found as usual. */
#include "hf-check/check.h"
#include "hf-check/damage.h"
#include "hf-check/simulate.h"
#include "hf-check/tests/planted.h"
#include "lib/runner.h"

#define NO_FENCE "no-fence\n"

/* ---- Tokens are free ----------------------------------------------------*/

static void tokens_may_fall(void **state)
{
    (void)state;
    assert_good(NO_FENCE "1 lock   a1  0 10 ok token 5 until 100\n"
                         "1 unlock a1 20 30 ok token 5\n"
                         "2 lock   b1  5 40 ok token 4 until 200\n"
                         "2 unlock b1 50 60 ok token 4\n"
                         "3 lock   c1 70 80 ok token 3 until 200\n");
}

static void tokens_may_repeat(void **state)
{
    (void)state;
    assert_good(NO_FENCE "1 lock   a1  0 10 ok token 5 until 100\n"
                         "1 unlock a1 20 30 ok token 5\n"
                         "2 lock   b1 40 50 ok token 5 until 200\n"
                         "2 renew  b1 60 70 ok token 5 until 300\n"
                         "2 unlock b1 80 90 ok token 5\n");
}

static void one_nonce_has_a_token_once(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_TOKEN_REPEATED,
                      NO_FENCE "1 lock   a1  0 10 ok token 5 until 100\n"
                               "1 unlock a1 20 30 ok token 5\n"
                               "2 lock   a1 40 50 ok token 5 until 200\n");
}

static void fenced_cells_are_not_checked(void **state)
{
    (void)state;
    assert_good(NO_FENCE "2 write b1 20 30 ok token 6\n"
                         "1 write a1 40 50 ok token 5\n"
                         "3 write c1 60 70 ok token 5\n");
}

/* ---- All other promises hold --------------------------------------------*/

static void two_holders_are_found_in_any_order_of_tokens(void **state)
{
    (void)state;
    assert_finds(HF_CHECK_EXCLUSION,
                 NO_FENCE "1 lock a1 0 10 ok token 5 until 100\n"
                          "2 lock b1 5 99 ok token 4 until 200\n");
    assert_finds(HF_CHECK_EARLY_GRANT,
                 NO_FENCE "1 lock a1 0 10 ok token 5 until 100\n"
                          "2 lock b1 5 99 ok token 4 until 200\n");
}

static void two_holders_with_one_token_are_found(void **state)
{
    (void)state;
    assert_finds(HF_CHECK_EXCLUSION,
                 NO_FENCE "1 lock   a1  0 10 ok token 5 until 100\n"
                          "2 lock   b1  5 40 ok token 5 until 200\n"
                          "1 unlock a1 50 60 ok token 5\n"
                          "2 unlock b1 70 80 ok token 5\n");
}

static void grant_before_the_lease_ends_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_EARLY_GRANT,
                      NO_FENCE "1 lock a1  0 10 ok token 5 until 80 lease 90\n"
                               "2 lock b1 20 85 ok token 4 until 200\n");
    assert_good(NO_FENCE "1 lock a1  0 10 ok token 5 until 80 lease 90\n"
                         "2 lock b1 20 90 ok token 4 until 200\n");
}

static void lost_release_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_FALSE_BUSY,
                      NO_FENCE "1 lock   a1  0 10 ok token 5 until 100\n"
                               "1 unlock a1 20 30 ok token 5\n"
                               "2 lock   b1 31 40 HF_EBUSY\n"
                               "3 lock   c1 50 60 ok token 4 until 200\n");
    assert_finds(HF_CHECK_NOT_HOLDER,
                 NO_FENCE "1 lock   a1  0 10 ok token 5 until 100\n"
                          "1 unlock a1 20 30 ok token 5\n"
                          "2 lock   b1 40 50 ok token 5 until 200\n"
                          "1 unlock a1 60 70 ok token 5\n");
}

static void false_end_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_FALSE_END,
                      NO_FENCE "1 lock   a1  0 10 ok token 5 until 100\n"
                               "1 unlock a1 20 30 ok token 5\n"
                               "2 lock   b1 40 50 ok token 5 until 200\n"
                               "2 renew  b1 60 70 HF_EEXPIRED token 5\n");
}

static void read_of_a_free_key_that_is_held_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_FALSE_FREE,
                      NO_FENCE "1 lock   a1  0 10 ok token 7 until 100\n"
                               "1 unlock a1 20 30 ok token 7\n"
                               "2 lock   b1 40 50 ok token 5 until 200\n"
                               "3 read   -  60 70 ok\n");
}

static void release_that_nobody_can_make_is_found(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_NOT_HOLDER,
                      NO_FENCE "1 lock   a1  0 10 ok token 5 until 100\n"
                               "2 unlock b1 40 50 ok token 5\n");
    assert_finds(HF_CHECK_NOT_HOLDER, NO_FENCE "1 unlock a1 20 30 ok token 5\n"
                                               "1 lock   a1 31 40 unknown\n");
}

static void overtaking_is_found_without_tokens(void **state)
{
    (void)state;
    assert_finds_only(HF_CHECK_FIFO, NO_FENCE
                      "fifo\n"
                      "1 lock a1  0 90 ok token 1 until 200 queued 10\n"
                      "2 lock b1 20 30 ok token 5 until 80\n");
}

/* ---- What the order of returns cannot tell ------------------------------*/

/* Grant a1 expired on its way to client 1, and b1 returned before it. */
static void grant_that_returns_expired_has_no_rank(void **state)
{
    (void)state;
    assert_good(NO_FENCE "1 lock   a1  0 120 ok token 4 until 50\n"
                         "1 unlock a1 125 130 HF_EEXPIRED token 4\n"
                         "2 lock   b1 60  70 ok token 5 until 300\n"
                         "2 unlock b1 140 150 ok token 5\n");
    /* Its release was ok, so it still held the key when it returned. */
    assert_finds(HF_CHECK_EARLY_GRANT,
                 NO_FENCE "1 lock   a1  0 120 ok token 4 until 50\n"
                          "1 unlock a1 125 130 ok token 4\n"
                          "2 lock   b1 60  70 ok token 5 until 300\n"
                          "2 unlock b1 140 150 ok token 5\n");
}

static void grant_that_is_forced_before_its_return_has_no_rank(void **state)
{
    (void)state;
    assert_good(NO_FENCE "1 lock  a1  0 90 ok token 4 until 100\n"
                         "9 force -  20 30 ok token 4\n"
                         "2 lock  b1 40 50 ok token 5 until 300\n");
}

static void ambiguous_force_may_have_ended_either_grant(void **state)
{
    (void)state;
    assert_good(NO_FENCE "1 lock   a1  0  10 ok token 5 until 100\n"
                         "1 unlock a1 20  30 ok token 5\n"
                         "2 lock   b1 40  50 ok token 5 until 200\n"
                         "9 force  -  60  70 ok token 5\n"
                         "3 lock   c1 80  90 ok token 4 until 300\n");
    assert_finds(HF_CHECK_EXCLUSION,
                 NO_FENCE "1 lock   a1  0  10 ok token 5 until 100\n"
                          "1 unlock a1 20  30 ok token 5\n"
                          "9 force  -  32  34 ok token 5\n"
                          "2 lock   b1 40  50 ok token 5 until 200\n"
                          "3 lock   c1 80  90 ok token 4 until 300\n");
}

static void ambiguous_read_is_left_out(void **state)
{
    (void)state;
    assert_good(NO_FENCE "1 lock   a1  0 10 ok token 5 until 100\n"
                         "1 unlock a1 20 30 ok token 5\n"
                         "2 lock   b1 40 50 ok token 5 until 200\n"
                         "3 read   -  60 70 ok token 5\n");
    assert_good(NO_FENCE "1 lock   a1  0 10 ok token 5 until 100\n"
                         "1 unlock a1 20 30 ok token 5\n"
                         "2 lock   b1 40 50 unknown\n"
                         "3 read   -  60 70 ok token 5\n");
    assert_finds_only(HF_CHECK_NOT_HOLDER,
                      NO_FENCE "1 lock   a1  0 10 ok token 5 until 100\n"
                               "1 unlock a1 20 30 ok token 5\n"
                               "3 read   -  60 70 ok token 5\n");
}

static void unknown_lock_fits_between_any_grants(void **state)
{
    (void)state;
    assert_good(NO_FENCE "9 lock   99  0  0 open\n"
                         "2 lock   b1  1  2 HF_EBUSY\n"
                         "1 lock   a1 10 11 ok token 1\n"
                         "9 unlock 99 12 13 unknown token 7\n");
    assert_good(NO_FENCE "1 lock   a1  0 10 unknown\n"
                         "1 unlock a1 20 30 ok token 5\n"
                         "2 lock   b1  5 25 ok token 5 until 200\n");
}

static void loss_ends_only_the_grant_of_its_client(void **state)
{
    (void)state;
    assert_finds(HF_CHECK_EXCLUSION,
                 NO_FENCE "1 lock   a1  0 10 ok token 5 until 300\n"
                          "2 lost 5 40\n"
                          "3 lock   c1 50 60 ok token 4 until 200\n");
    assert_finds_only(HF_CHECK_EARLY_GRANT,
                      NO_FENCE "1 lock   a1  0 10 ok token 5 until 300\n"
                               "1 lost 5 40\n"
                               "3 lock   c1 50 60 ok token 4 until 200\n");
}

/* ---- Simulated histories ------------------------------------------------*/

/* Change tokens so that most of them fall and many repeat, but those of one
 * nonce stay the same. */
static void spoil_tokens(struct hf_check_history *h)
{
    for (size_t i = 0; i < h->op_count; i++) {
        if (h->ops[i].token)
            h->ops[i].token = 1 + (h->ops[i].token * 7919) % 11;
    }
    for (size_t i = 0; i < h->lost_count; i++)
        h->losts[i].token = 1 + (h->losts[i].token * 7919) % 11;
    h->no_fence = true;
}

static void simulate(struct hf_check_history *h, uint64_t seed, size_t ops)
{
    struct hf_simulate_opts opts = {.seed = seed,
                                    .ops = ops,
                                    .clients = 8,
                                    .keys = 3,
                                    .lease_max = 40,
                                    .unit_ns = 1000,
                                    .trouble = 50};

    hf_check_history_init(h, false);
    hf_simulate_run(h, &opts);
}

static void simulated_lock_needs_no_tokens(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct hf_check_report report;
        struct hf_check_history h;

        simulate(&h, seed, 2000);
        spoil_tokens(&h);
        hf_check_run(&h, &report);
        hf_check_history_fini(&h);
        if (report.violation_count)
            fail_msg("seed %u: %s", (unsigned)seed,
                     hf_check_kind_name(report.violations[0].kind));
        assert_true(report.grant_count > 100);
        assert_true(report.busy_count > 10);
    }
}

static bool is_good(const struct hf_check_history *h)
{
    struct hf_check_report report;

    hf_check_run(h, &report);
    return report.violation_count == 0;
}

/* What is correct with tokens is correct without them. Of the damage that
 * tokens show, much is found without them. */
static void correct_histories_need_no_tokens(void **state)
{
    unsigned good = 0, bad = 0, found = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        struct hf_check_history h;
        bool with, without;

        simulate(&h, seed, 12);
        hf_damage_history(&h, seed);
        with = is_good(&h);
        h.no_fence = true;
        without = is_good(&h);
        if (with && !without)
            fail_msg("seed %u", (unsigned)seed);
        good += with;
        bad += !with;
        found += !without;
        hf_check_history_fini(&h);
    }
    assert_true(good > 10000);
    assert_true(found > bad / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_may_fall),
        cmocka_unit_test(tokens_may_repeat),
        cmocka_unit_test(one_nonce_has_a_token_once),
        cmocka_unit_test(fenced_cells_are_not_checked),
        cmocka_unit_test(two_holders_are_found_in_any_order_of_tokens),
        cmocka_unit_test(two_holders_with_one_token_are_found),
        cmocka_unit_test(grant_before_the_lease_ends_is_found),
        cmocka_unit_test(lost_release_is_found),
        cmocka_unit_test(false_end_is_found),
        cmocka_unit_test(read_of_a_free_key_that_is_held_is_found),
        cmocka_unit_test(release_that_nobody_can_make_is_found),
        cmocka_unit_test(overtaking_is_found_without_tokens),
        cmocka_unit_test(grant_that_returns_expired_has_no_rank),
        cmocka_unit_test(grant_that_is_forced_before_its_return_has_no_rank),
        cmocka_unit_test(ambiguous_force_may_have_ended_either_grant),
        cmocka_unit_test(ambiguous_read_is_left_out),
        cmocka_unit_test(unknown_lock_fits_between_any_grants),
        cmocka_unit_test(loss_ends_only_the_grant_of_its_client),
        cmocka_unit_test(simulated_lock_needs_no_tokens),
        cmocka_unit_test(correct_histories_need_no_tokens),
    };

    return hf_test_main("no fence", tests, HF_TEST_COUNT(tests), 0);
}
