/* test_wal_faults.c - the log survives a full disk, unless a sync fails, and a
 * lack of descriptors during upkeep. Any other error of an operation on its
 * files ends the log. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "lib/expect.h"
#include "lib/runner.h"
#include "log/model.h"

#define STEPS 120

/* Flush and maintain until everything is durable. */
static void settle(struct run *run)
{
    while (hf_wal_is_pending(run->wal))
        assert_true(run_flush(run));
    assert_true(run_upkeep(run));
}

static void expect_recovered(struct run *run)
{
    run_close(run);
    sim_disk_crash(run->sim, SIM_CRASH_LOSE, 1);
    expect_ok(run_open(run));
}

/* ---- EIO ----------------------------------------------------------------*/

static void expect_dead(struct run *run)
{
    struct hf_wal_flush flush;
    struct hf_wal_upkeep upkeep;
    struct hf_error error;

    hf_wal_error(run->wal, &error);
    assert_int_equal(error.code, HF_ESYSTEM);
    assert_non_null(strstr(error.text, "/sim/"));
    assert_non_null(strstr(error.text, strerror(EIO)));
    assert_false(hf_wal_flush_begin(run->wal, &flush));
    assert_false(hf_wal_upkeep_begin(run->wal, &upkeep));
    expect_err(hf_wal_append_state(run->wal, run->now.state.term + 1, 0),
               HF_ESYSTEM);
}

/* Run random steps until operation `op` fails with EIO. Then crash with
 * `pattern`, and recover. Returns false if the steps end first. */
static bool fail_with_eio(uint64_t op, enum sim_crash pattern)
{
    struct run *run = run_new(11);
    struct hf_error error;
    bool failed = false;

    sim_disk_fail_at(run->sim, sim_disk_ops(run->sim) + op, -EIO, false);
    for (int i = 0; i < STEPS && !failed; i++)
        failed = !run_step(run);
    hf_wal_error(run->wal, &error);
    if (error.code)
        expect_dead(run);
    else
        /* A step that failed without ending the log was writing a snapshot. */
        assert_true(!failed || run->error.code == HF_ESYSTEM);
    run_close(run);
    sim_disk_crash(run->sim, pattern, op);
    expect_ok(run_open(run));
    run_free(run);
    return failed;
}

static void an_error_at_any_operation_ends_the_log(void **state)
{
    uint64_t op = 1;

    (void)state;
    while (fail_with_eio(op, SIM_CRASH_KEEP) &&
           fail_with_eio(op, SIM_CRASH_LOSE))
        op++;
    assert_true(op > 100);
}

/* A lack of descriptors may end, so upkeep is tried again later. */
static void upkeep_survives_a_lack_of_descriptors(void **state)
{
    struct run *run = run_new(14);
    struct hf_wal_upkeep upkeep;
    struct hf_error error;

    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        while (!hf_wal_upkeep_begin(run->wal, &upkeep))
            assert_true(run_step(run));
        sim_disk_fail_at(run->sim, sim_disk_ops(run->sim) + 1,
                         i % 2 ? -EMFILE : -ENFILE, false);
        hf_wal_upkeep_run(&upkeep);
        assert_int_equal(hf_wal_upkeep_end(run->wal, &upkeep), HF_ENOMEM);
        assert_int_equal(hf_wal_space(run->wal), HF_WAL_SPACE_OK);
        settle(run);
    }
    hf_wal_error(run->wal, &error);
    assert_int_equal(error.code, HF_OK);
    expect_recovered(run);
    run_free(run);
}

/* After a failed sync, the kernel may regard pages as clean that it has not
 * written. So the record does not count as durable, and repeating the flush
 * would not make it durable. */
static void a_failed_sync_is_never_repeated(void **state)
{
    struct run *run = run_new(12);
    struct hf_wal_flush flush;

    (void)state;
    assert_true(run_vote(run, 1, 1));
    assert_true(run_append(run, 1, 1, 10));
    assert_true(hf_wal_flush_begin(run->wal, &flush));
    /* The log is dead even if the sync fails because of a full disk. */
    sim_disk_fail_at(run->sim, sim_disk_ops(run->sim) + 2, -ENOSPC, false);
    hf_wal_flush_run(&flush);
    assert_int_equal(flush.write_rc, 0);
    assert_int_equal(flush.sync_rc, -ENOSPC);
    expect_err(hf_wal_flush_end(run->wal, &flush), HF_ESYSTEM);
    assert_true(hf_wal_durable(run->wal).term == 0);
    assert_true(hf_wal_durable(run->wal).last_index == 0);
    assert_false(hf_wal_flush_begin(run->wal, &flush));
    run_free(run);
}

/* Make each operation of opening a log fail once; the next attempt succeeds.
 * With `with_reset`, there is a snapshot newer than the log, so that opening
 * resets the log. */
static void fail_while_opening(bool with_reset)
{
    enum hf_err err = HF_ESYSTEM;

    for (uint64_t op = 1; err; op++) {
        struct run *run = run_new(13);

        for (int i = 0; i < 60; i++)
            assert_true(run_step(run));
        settle(run);
        if (with_reset)
            assert_true(run_write_snapshot(
                run, (struct hf_log_snapshot){900, run->now.state.term}));
        run_close(run);
        sim_disk_fail_at(run->sim, sim_disk_ops(run->sim) + op, -EIO, false);
        memset(&run->error, 0, sizeof(run->error));
        err = run_open(run);
        if (err) {
            assert_int_equal(err, HF_ESYSTEM);
            assert_int_equal(run->error.code, HF_ESYSTEM);
            assert_non_null(strstr(run->error.text, "/sim"));
        }
        sim_disk_fail_at(run->sim, 0, 0, false);
        expect_recovered(run);
        assert_true(op > 15 || err);
        assert_true(run->now.state.last_index == 900 || !with_reset);
        run_free(run);
    }
}

static void an_error_while_opening_is_reported(void **state)
{
    (void)state;
    fail_while_opening(false);
    fail_while_opening(true);
}

/* ---- A full disk --------------------------------------------------------*/

static bool is_dead(const struct run *run)
{
    struct hf_error error;

    hf_wal_error(run->wal, &error);
    return error.code != HF_OK || run->has_stopped;
}

/* The disk is full at operation `op`, and from then on if `forever`. When there
 * is space again, the run continues as if nothing had happened, unless a sync
 * or the installation of a snapshot failed. Returns false if the run ends
 * before the operation. */
static bool fill_disk_at(uint64_t op, bool forever)
{
    struct run *run = run_new(14);
    bool failed = false;

    sim_disk_fail_at(run->sim, sim_disk_ops(run->sim) + op, -ENOSPC, forever);
    for (int i = 0; i < STEPS && !failed; i++)
        failed = !run_step(run);
    if (failed && !is_dead(run)) {
        for (int i = 0; i < 5; i++)
            (void)run_step(run);
        hf_wal_reserve_return(run->wal);
    }
    sim_disk_fail_at(run->sim, 0, 0, false);
    if (!is_dead(run)) {
        settle(run);
        assert_int_equal(hf_wal_space(run->wal), HF_WAL_SPACE_OK);
    }
    expect_recovered(run);
    run_free(run);
    return failed;
}

static void a_full_disk_at_any_operation_is_survived(void **state)
{
    uint64_t op = 1;

    (void)state;
    while (fill_disk_at(op, true)) {
        (void)fill_disk_at(op, false);
        op++;
    }
    assert_true(op > 100);
}

static void append_one(struct run *run)
{
    assert_true(run_append(run, run->now.state.last_index + 1, 1, 300));
}

/* On a full disk the log reports low space, but still writes what it accepts. A
 * snapshot fits into the reserve and frees segments, so that space is no longer
 * low. */
static void a_full_disk_leaves_room_for_releasing_work(void **state)
{
    struct run *run = run_new(15);
    unsigned records = 0;

    (void)state;
    assert_true(run_vote(run, 1, 1));
    append_one(run);
    settle(run);
    assert_true(run_snapshot(run, 0));
    settle(run);
    assert_int_equal(hf_wal_space(run->wal), HF_WAL_SPACE_OK);
    /* The disk has less space left than a segment needs. */
    sim_disk_set_capacity(run->sim, sim_disk_used(run->sim) + 2048);
    while (hf_wal_space(run->wal) == HF_WAL_SPACE_OK && records < 1000) {
        append_one(run);
        assert_true(run_flush(run));
        (void)run_upkeep(run);
        records++;
    }
    assert_int_equal(hf_wal_space(run->wal), HF_WAL_SPACE_LOW);

    /* While space is low, the log still writes what it accepts. */
    for (unsigned i = 0; i < MODEL_SEGMENT_SIZE / 1024; i++) {
        append_one(run);
        assert_true(run_flush(run));
        (void)run_upkeep(run);
    }
    assert_int_equal(hf_wal_space(run->wal), HF_WAL_SPACE_LOW);

    assert_true(run_snapshot(run, 0));
    assert_true(run_upkeep(run));
    assert_int_equal(hf_wal_space(run->wal), HF_WAL_SPACE_OK);
    assert_true(sim_disk_has(run->sim, "reserve"));
    settle(run);
    expect_recovered(run);
    run_free(run);
}

static void low_space_ends_by_itself_when_space_returns(void **state)
{
    struct run *run = run_new(16);

    (void)state;
    assert_true(run_vote(run, 1, 1));
    settle(run);
    sim_disk_set_capacity(run->sim, sim_disk_used(run->sim));
    hf_wal_reserve(run->wal, 1000000);
    assert_false(run_upkeep(run));
    assert_int_equal(hf_wal_space(run->wal), HF_WAL_SPACE_LOW);
    assert_false(run_upkeep(run));
    assert_int_equal(hf_wal_space(run->wal), HF_WAL_SPACE_LOW);
    sim_disk_set_capacity(run->sim, 0);
    assert_true(run_upkeep(run));
    assert_int_equal(hf_wal_space(run->wal), HF_WAL_SPACE_OK);
    assert_true(sim_disk_file_size(run->sim, HF_WAL_RESERVE_FILE) >=
                1000000 + MODEL_SEGMENT_SIZE);
    run_free(run);
}

/* A log on a full disk can be opened and appended to; it reports low space. */
static void a_log_opens_on_a_full_disk(void **state)
{
    struct run *run = run_new(17);

    (void)state;
    assert_true(run_vote(run, 1, 1));
    settle(run);
    run_close(run);
    sim_disk_delete(run->sim, "spare-0000000000000000");
    sim_disk_delete(run->sim, "reserve");
    sim_disk_set_capacity(run->sim, UINT64_C(2) * MODEL_SEGMENT_SIZE);
    expect_ok(run_open(run));
    assert_int_equal(hf_wal_space(run->wal), HF_WAL_SPACE_LOW);
    append_one(run);
    assert_true(run_flush(run));
    run_free(run);
}

static void the_number_of_segments_is_limited(void **state)
{
    struct run *run = run_new(18);
    struct hf_wal_opts opts = {.identity = model_identity, .segments_max = 6};
    struct model recovered = {0};
    struct hf_log_visitor visitor = model_visitor(&recovered);
    unsigned flushes = 0;

    (void)state;
    hf_wal_close(run->wal);
    run->wal = NULL;
    expect_ok(hf_wal_open(run->disk, &opts, &visitor, &run->wal,
                          &run->recovered, &run->error));
    assert_true(run_vote(run, 1, 1));
    do {
        append_one(run);
        flushes++;
    } while (run_flush(run) && flushes < 300);
    assert_true(flushes < 300);
    assert_true(hf_wal_segment_count(run->wal) <= 6 + 1);
    assert_int_equal(hf_wal_space(run->wal), HF_WAL_SPACE_NONE);
    assert_true(run_snapshot(run, 0));
    settle(run);
    assert_int_equal(hf_wal_space(run->wal), HF_WAL_SPACE_OK);
    for (flushes = 0; flushes < 40; flushes++) {
        append_one(run);
        assert_true(run_flush(run));
    }
    hf_wal_close(run->wal);
    run->wal = NULL;
    opts.segments_max = 1;
    expect_err(hf_wal_open(run->disk, &opts, &visitor, &run->wal,
                           &run->recovered, &run->error),
               HF_ELIMIT);
    run_free(run);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(an_error_at_any_operation_ends_the_log),
        cmocka_unit_test(upkeep_survives_a_lack_of_descriptors),
        cmocka_unit_test(a_failed_sync_is_never_repeated),
        cmocka_unit_test(an_error_while_opening_is_reported),
        cmocka_unit_test(a_full_disk_at_any_operation_is_survived),
        cmocka_unit_test(a_full_disk_leaves_room_for_releasing_work),
        cmocka_unit_test(low_space_ends_by_itself_when_space_returns),
        cmocka_unit_test(a_log_opens_on_a_full_disk),
        cmocka_unit_test(the_number_of_segments_is_limited),
    };

    return hf_test_main("wal_faults", cases, HF_TEST_COUNT(cases), 0);
}
