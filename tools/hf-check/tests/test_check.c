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
#include "lib/runner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Histories are planted as lines of words. All lines are about key "k" and
 * cell "c", and instants are small numbers:
 *
 *     1 lock a1 0 10 ok token 5 until 100
 *
 * Client 1 called lock at 0 and received ok at 10, with nonce a1, token 5 and
 * deadline 100. In place of "ok" there may be "unknown", an error such as
 * HF_EBUSY, or "open" for a call that did not return (its second instant means
 * nothing). The nonce "-" means none. Further words are lease, queued, value
 * and unfenced 1. Other lines are:
 *
 *     1 dies 40
 *     1 lost 5 40          notified at 40 that token 5 is lost
 *     fifo                 arrival order is promised */

static void plant_field(struct hf_op *op, const char *name, uint64_t number)
{
    if (strcmp(name, "token") == 0)
        op->token = number;
    else if (strcmp(name, "until") == 0)
        op->deadline = number;
    else if (strcmp(name, "lease") == 0)
        op->lease = number;
    else if (strcmp(name, "queued") == 0)
        op->queued = number;
    else if (strcmp(name, "value") == 0)
        op->value = number;
    else if (strcmp(name, "unfenced") == 0)
        op->fenced = false;
    else
        fail_msg("planted field \"%s\" is not known", name);
}

static enum hf_op_kind kind_of(const char *name)
{
    unsigned kind = 0;

    while (kind < HF_OP_KINDS && strcmp(name, hf_op_kind_name(kind)) != 0)
        kind++;
    assert_int_not_equal(kind, HF_OP_KINDS);
    return kind;
}

static void plant_result(struct hf_check_history *h, struct hf_op *op,
                         const char *result, uint64_t answer)
{
    if (strcmp(result, "open") == 0)
        return;
    op->answered = true;
    op->answer = answer;
    if (strcmp(result, "ok") == 0) {
        op->result = HF_OP_OK;
    } else if (strcmp(result, "unknown") != 0) {
        op->result = HF_OP_FAIL;
        hf_op_set_error(op, &h->strings, result, strlen(result));
    }
}

/* All planted lines are in this file, and none of their numbers is out of
 * range.
 * NOLINTBEGIN(cert-err34-c) */
static void plant_op(struct hf_check_history *h, const char *line)
{
    char kind[16], nonce[16], result[16], name[16];
    uint64_t invoke, answer, number;
    uint32_t client;
    int used;

    if (sscanf(line, "%" SCNu32 " %15s %15s %" SCNu64 " %" SCNu64 " %15s%n",
               &client, kind, nonce, &invoke, &answer, result, &used) != 6)
        fail_msg("planted line \"%s\" makes no sense", line);
    struct hf_op op = hf_op_make(kind_of(kind), client, invoke);

    op.id = h->op_count;
    op.key = hf_intern_add(&h->strings, "k", 1);
    if (op.kind == HF_OP_WRITE)
        op.cell = hf_intern_add(&h->strings, "c", 1);
    if (strcmp(nonce, "-") != 0)
        op.nonce = hf_intern_add(&h->strings, nonce, strlen(nonce));
    plant_result(h, &op, result, answer);
    while (line += used,
           sscanf(line, "%15s %" SCNu64 "%n", name, &number, &used) == 2)
        plant_field(&op, name, number);
    if (hf_op_fault(&op))
        fail_msg("planted: %s", hf_op_fault(&op));
    hf_check_history_add(h, &op);
}

static void plant_line(struct hf_check_history *h, const char *line)
{
    struct hf_op_death death;
    struct hf_op_lost lost;

    if (strcmp(line, "fifo") == 0) {
        h->fifo = true;
    } else if (sscanf(line, "%" SCNu32 " dies %" SCNu64, &death.client,
                      &death.time) == 2) {
        hf_check_history_add_death(h, death);
    } else if (sscanf(line, "%" SCNu32 " lost %" SCNu64 " %" SCNu64,
                      &lost.client, &lost.token, &lost.time) == 3) {
        lost.key = hf_intern_add(&h->strings, "k", 1);
        hf_check_history_add_lost(h, lost);
    } else {
        plant_op(h, line);
    }
}
/* NOLINTEND(cert-err34-c) */

static void plant_history(struct hf_check_history *h, const char *text)
{
    hf_check_history_init(h, false);
    while (*text) {
        size_t len = strcspn(text, "\n");
        char line[128];

        assert_true(len < sizeof line);
        memcpy(line, text, len);
        line[len] = '\0';
        plant_line(h, line);
        text += len + (text[len] == '\n');
    }
}

static void check_planted(const char *text, struct hf_check_report *report)
{
    struct hf_check_history h;

    plant_history(&h, text);
    hf_check_run(&h, report);
    assert_int_equal(report->linearizable,
                     hf_search_run(&h) == HF_SEARCH_LINEARIZABLE);
    hf_check_history_fini(&h);
}

/* Check that the history has a violation of this kind, perhaps among others. */
static void assert_finds(enum hf_check_kind kind, const char *text)
{
    struct hf_check_report report;

    check_planted(text, &report);
    for (size_t i = 0; i < report.violation_count; i++) {
        if (report.violations[i].kind == kind)
            return;
    }
    fail_msg("%s was not found in\n%s", hf_check_kind_name(kind), text);
}

/* Check that the history has a violation of this kind and no other. */
static void assert_finds_only(enum hf_check_kind kind, const char *text)
{
    struct hf_check_report report;

    assert_finds(kind, text);
    check_planted(text, &report);
    assert_int_equal(report.violation_count, 1);
}

static void assert_good(const char *text)
{
    struct hf_check_report report;

    check_planted(text, &report);
    if (report.violation_count)
        fail_msg("%s was found in\n%s",
                 hf_check_kind_name(report.violations[0].kind), text);
}

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
