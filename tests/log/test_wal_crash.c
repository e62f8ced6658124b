/* test_wal_crash.c - the power fails at every change of the disk, with each
 * pattern of enum sim_crash. Recovery must find the log as it was at the last
 * flush that was acknowledged, or at the one that was running. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/expect.h"
#include "lib/runner.h"
#include "log/model.h"

#define RANDOM_PATTERNS 6

/* Recover from a crash, continue, and crash again: what was cut must not
 * reappear, and what was recovered must be durable. */
static void continue_after_crash(struct run *run, enum sim_crash pattern,
                                 uint64_t seed)
{
    uint64_t last;

    expect_ok(run_open(run));
    last = run->now.state.last_index;
    run_close(run);
    sim_disk_crash(run->sim, SIM_CRASH_LOSE, seed);
    expect_ok(run_open(run));
    assert_true(run->now.state.last_index == last);

    assert_true(run_vote(run, run->now.state.term + 1, 2));
    for (int i = 0; i < 6; i++) {
        last = run->now.state.last_index;
        assert_true(run_append(run, last + 1, 1, seed % 3 * 100));
        assert_true(run_flush(run));
    }
    run_close(run);
    sim_disk_crash(run->sim, pattern, seed + 1);
    expect_ok(run_open(run));
    run_close(run);
}

/* Try one pattern of losses on a copy of the run's disk. */
static void try_pattern(const struct run *run, enum sim_crash pattern,
                        uint64_t seed)
{
    struct run *copy = malloc(sizeof(*copy));

    assert_non_null(copy);
    *copy = *run;
    copy->sim = sim_disk_clone(run->sim);
    sim_disk_crash(copy->sim, pattern, seed);
    continue_after_crash(copy, pattern, seed);
    run_free(copy);
}

static void try_patterns(const struct run *run, uint64_t seed)
{
    for (int pattern = 0; pattern < SIM_CRASH_PATTERNS; pattern++)
        try_pattern(run, (enum sim_crash)pattern, seed);
    for (uint64_t i = 0; i < RANDOM_PATTERNS; i++)
        try_pattern(run, SIM_CRASH_RANDOM, seed * RANDOM_PATTERNS + i);
}

/* Run up to `steps` random steps of `seed`, until the power fails at `change`.
 * Then recover from each pattern of losses. Returns false if the steps end
 * first. */
static bool crash_at(uint64_t seed, uint64_t change, size_t steps,
                     bool short_writes)
{
    struct run *run = run_new(seed);
    bool is_off;

    sim_disk_short_writes(run->sim, short_writes);
    sim_disk_power_off_at(run->sim, sim_disk_changes(run->sim) + change);
    for (size_t i = 0; i < steps && !sim_disk_is_off(run->sim); i++) {
        bool done = run_step(run);

        assert_true(done || sim_disk_is_off(run->sim));
    }
    is_off = sim_disk_is_off(run->sim);
    run_close(run);
    try_patterns(run, seed * 1000 + change);
    run_free(run);
    return is_off;
}

static void crash_everywhere(uint64_t seed, size_t steps, bool short_writes)
{
    uint64_t change = 1;

    while (crash_at(seed, change, steps, short_writes))
        change++;
    assert_true(change > 50);
}

static void a_crash_at_any_change_loses_nothing_durable(void **state)
{
    size_t steps = 220 / hf_test_slowness();

    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        crash_everywhere(seed, steps < 60 ? 60 : steps, false);
}

static void a_crash_between_short_writes_loses_nothing_durable(void **state)
{
    (void)state;
    crash_everywhere(7, 60, true);
}

/* A sync fails, and the process stops with a record in the page cache only. The
 * next process finds the record, so it must survive a later power failure. */
static void a_record_that_was_recovered_is_durable(void **state)
{
    struct run *run = run_new(1);
    struct hf_wal_flush flush;

    (void)state;
    assert_true(run_vote(run, 1, 2));
    assert_true(run_append(run, 1, 3, 300));
    *run_flushed(run, ++run->begun) = run->now;
    assert_true(hf_wal_flush_begin(run->wal, &flush));
    sim_disk_fail_at(run->sim, sim_disk_ops(run->sim) + 2, -EIO, false);
    hf_wal_flush_run(&flush);
    assert_int_equal(flush.write_rc, 0);
    expect_err(hf_wal_flush_end(run->wal, &flush), HF_ESYSTEM);
    run_close(run);
    expect_ok(run_open(run));
    assert_true(run->now.state.last_index == 3);
    run_close(run);
    sim_disk_crash(run->sim, SIM_CRASH_LOSE, 1);
    expect_ok(run_open(run));
    assert_true(run->now.state.last_index == 3);
    run_free(run);
}

/* Fill the first segment, and write one record to the second. In the model, the
 * flush of that record has begun but is not acknowledged, so it may be lost. */
static void fill_segment(struct run *run)
{
    uint64_t index = 1;

    assert_true(run_vote(run, 1, 0));
    while (hf_wal_segment_count(run->wal) < 4) {
        struct hf_wal_flush flush;

        assert_true(run_append(run, index++, 1, 800));
        *run_flushed(run, ++run->begun) = run->now;
        assert_true(hf_wal_flush_begin(run->wal, &flush));
        if (flush.in_next) {
            hf_wal_flush_run(&flush);
            assert_int_equal(hf_wal_flush_end(run->wal, &flush), HF_OK);
            return;
        }
        hf_wal_flush_run(&flush);
        assert_int_equal(hf_wal_flush_end(run->wal, &flush), HF_OK);
        run->acked = run->begun;
    }
    fail();
}

/* A torn record in the next segment is cut. The log continues in the segment
 * before it, where shorter records fit. If the torn bytes come back later, they
 * do not count. */
static void a_record_that_was_cut_never_comes_back(void **state)
{
    struct run *run = run_new(2);
    const char *name = "log-0000000000000002";
    uint64_t offset = 512 + 100;
    uint8_t byte;

    (void)state;
    fill_segment(run);
    run_close(run);
    byte = sim_disk_peek(run->sim, name, offset);
    sim_disk_poke(run->sim, name, offset, (uint8_t)(byte ^ 1));
    expect_ok(run_open(run));
    assert_true(run_append(run, run->now.state.last_index + 1, 1, 0));
    assert_true(run_flush(run));
    run_close(run);
    sim_disk_poke(run->sim, name, offset, byte);
    expect_ok(run_open(run));
    run_free(run);
}

/* The power fails at every change that recovery makes. */
static void a_crash_during_recovery_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t change = 1; change < 40; change++) {
        struct run *run = run_new(3);
        uint64_t last;

        for (int i = 0; i < 80; i++)
            assert_true(run_step(run));
        last = run_flushed(run, run->acked)->state.last_index;
        run_close(run);
        sim_disk_delete(run->sim, "reserve");
        sim_disk_crash(run->sim, SIM_CRASH_ODD, change);
        sim_disk_power_off_at(run->sim, change);
        (void)run_open(run);
        run_close(run);
        sim_disk_crash(run->sim, SIM_CRASH_RANDOM, change);
        expect_ok(run_open(run));
        assert_true(run->now.state.last_index >= last);
        run_free(run);
    }
}

/* Installing first makes the snapshot durable, and then resets the log. */
static void a_crash_before_the_reset_discards_the_entries(void **state)
{
    struct run *run = run_new(4);

    (void)state;
    assert_true(run_vote(run, 2, 1));
    assert_true(run_append(run, 1, 4, 10));
    assert_true(run_flush(run));
    assert_true(run_flush(run));
    assert_true(run_install(run, 50));
    run_close(run);
    expect_ok(run_open(run));
    assert_false(run->recovered.discarded);
    run_free(run);

    for (uint64_t change = 1; change < 12; change++) {
        run = run_new(4);
        assert_true(run_vote(run, 2, 1));
        assert_true(run_append(run, 1, 4, 10));
        assert_true(run_flush(run));
        sim_disk_power_off_at(run->sim, sim_disk_changes(run->sim) + change);
        (void)run_install(run, 50);
        run_close(run);
        sim_disk_crash(run->sim, SIM_CRASH_LOSE, 1);
        expect_ok(run_open(run));
        if (run->snapshot.index == 50)
            assert_true(run->now.state.last_index >= 50);
        assert_true(run->now.state.term == 2);
        assert_true(run->now.state.vote == 1);
        run_free(run);
    }
}

/* After a power failure, a directory is either completely initialised, or
 * counts as not initialised. */
static void an_interrupted_initialisation_never_looks_like_a_node(void **state)
{
    bool is_off = true;

    (void)state;
    for (uint64_t change = 1; is_off; change++) {
        for (int pattern = 0; pattern < SIM_CRASH_PATTERNS; pattern++) {
            struct run *run = calloc(1, sizeof(*run));
            enum hf_err err;

            assert_non_null(run);
            run->sim = sim_disk_new();
            sim_disk_power_off_at(run->sim, change);
            err = run_init(run);
            is_off = sim_disk_is_off(run->sim);
            assert_true(is_off == (err != HF_OK));
            sim_disk_crash(run->sim, (enum sim_crash)pattern, change);
            if (!sim_disk_has(run->sim, "identity"))
                expect_err(run_open(run), HF_ESTATE);
            else
                expect_ok(run_open(run));
            assert_true(is_off || sim_disk_has(run->sim, "identity"));
            run_free(run);
        }
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_crash_at_any_change_loses_nothing_durable),
        cmocka_unit_test(a_crash_between_short_writes_loses_nothing_durable),
        cmocka_unit_test(a_record_that_was_recovered_is_durable),
        cmocka_unit_test(a_record_that_was_cut_never_comes_back),
        cmocka_unit_test(a_crash_during_recovery_changes_nothing),
        cmocka_unit_test(a_crash_before_the_reset_discards_the_entries),
        cmocka_unit_test(an_interrupted_initialisation_never_looks_like_a_node),
    };

    return hf_test_main("wal_crash", cases, HF_TEST_COUNT(cases), 0);
}
