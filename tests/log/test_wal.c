/* test_wal.c - appending, flushing and recycling, without faults. */
#include "log/wal.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "lib/expect.h"
#include "lib/runner.h"
#include "log/directory.h"
#include "log/model.h"

static void a_record_is_valid_only_as_a_whole_and_in_its_epoch(void **state)
{
    const struct hf_seed secret = {"secret"}, other = {"other"};
    struct hf_record record = {.epoch = 7, .previous = 9}, read;
    struct hf_log_entry entry = {1, 2, {"data", 4}};
    struct hf_buf buf = {0};

    (void)state;
    hf_record_start(&buf);
    hf_record_add_entries(&buf, 1, &entry, 1);
    record.size = (uint32_t)buf.size;
    hf_record_pad(&buf);
    hf_record_seal(buf.data, buf.size, &record, &secret);
    assert_true(hf_record_check(buf.data, buf.size, 7, &secret, &read));
    assert_true(read.checksum == record.checksum);
    assert_true(read.previous == 9);
    assert_false(hf_record_check(buf.data, buf.size, 8, &secret, &read));
    assert_false(hf_record_check(buf.data, buf.size, 7, &other, &read));
    assert_false(hf_record_check(buf.data, buf.size - 1, 7, &secret, &read));
    for (size_t i = 0; i < buf.size; i++) {
        buf.data[i] ^= 0x10;
        assert_false(hf_record_check(buf.data, buf.size, 7, &secret, &read));
        buf.data[i] ^= 0x10;
    }
    hf_buf_fini(&buf);
}

static void term_and_vote_are_recovered_without_entries(void **state)
{
    struct run *run = run_new(1);

    (void)state;
    assert_true(run_vote(run, 5, 0));
    assert_true(run_flush(run));
    assert_true(run_vote(run, 5, 2));
    assert_true(run_flush(run));
    run_close(run);
    expect_ok(run_open(run));
    assert_true(run->now.state.term == 5);
    assert_true(run->now.state.vote == 2);
    run_free(run);
}

/* Flush everything, with the upkeep that this needs. */
static void flush_all(struct hf_wal *wal)
{
    struct hf_wal_flush flush;
    struct hf_wal_upkeep upkeep;

    while (hf_wal_is_pending(wal)) {
        while (hf_wal_upkeep_begin(wal, &upkeep)) {
            hf_wal_upkeep_run(&upkeep);
            expect_ok(hf_wal_upkeep_end(wal, &upkeep));
        }
        assert_true(hf_wal_flush_begin(wal, &flush));
        hf_wal_flush_run(&flush);
        expect_ok(hf_wal_flush_end(wal, &flush));
    }
}

static void entries_that_exceed_a_record_are_split(void **state)
{
    struct run *run = run_new(1);

    (void)state;
    assert_true(run_vote(run, 1, 1));
    assert_true(run_append(run, 1, 8, 1000));
    assert_true(run_append(run, 9, 8, 700));
    flush_all(run->wal);
    *run_flushed(run, run->acked) = run->now;
    assert_true(hf_wal_durable(run->wal).last_index == 16);
    run_close(run);
    expect_ok(run_open(run));
    assert_true(run->now.state.last_index == 16);
    run_free(run);
}

static void an_entry_that_is_too_long_is_refused(void **state)
{
    struct run *run = run_new(1);
    size_t max = hf_wal_entry_max(run->wal);
    uint8_t *data = calloc(1, max + 1);
    struct hf_log_entry entry = {1, 0, {data, max + 1}};

    (void)state;
    assert_non_null(data);
    expect_ok(hf_wal_append_state(run->wal, 1, 0));
    expect_err(hf_wal_append_entries(run->wal, 1, &entry, 1), HF_ELIMIT);
    entry.data.size = max;
    expect_ok(hf_wal_append_entries(run->wal, 1, &entry, 1));
    flush_all(run->wal);
    assert_true(hf_wal_durable(run->wal).last_index == 1);
    free(data);
    run_free(run);
}

static void bytes_that_wait_for_a_flush_are_limited(void **state)
{
    struct run *run = run_new(1);
    size_t max = hf_wal_entry_max(run->wal);
    uint8_t *data = calloc(1, max);
    struct hf_log_entry entries[64];
    size_t appended = 0;
    enum hf_err err;

    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i < 64; i++)
        entries[i] = (struct hf_log_entry){1, 0, {data, max}};
    do {
        err = hf_wal_append_entries(run->wal, appended + 1, entries, 64);
        appended += err ? 0 : 64;
    } while (!err);
    assert_int_equal(err, HF_ELIMIT);
    assert_true(appended * max <= HF_WAL_PENDING_MAX);
    assert_true((appended + 64) * (max + 64) > HF_WAL_PENDING_MAX);
    free(data);
    run_free(run);
}

static void a_flush_does_not_see_later_appends(void **state)
{
    struct run *run = run_new(1);
    struct hf_wal_flush flush, second;
    uint8_t copy[2048];

    (void)state;
    assert_true(run_vote(run, 1, 0));
    assert_true(run_append(run, 1, 2, 100));
    assert_true(hf_wal_flush_begin(run->wal, &flush));
    assert_true(flush.size <= sizeof(copy));
    memcpy(copy, flush.data, flush.size);
    assert_true(run_append(run, 3, 8, 100));
    assert_true(run_vote(run, 2, 3));
    assert_false(hf_wal_flush_begin(run->wal, &second));
    assert_memory_equal(copy, flush.data, flush.size);
    hf_wal_flush_run(&flush);
    expect_ok(hf_wal_flush_end(run->wal, &flush));
    assert_true(hf_wal_durable(run->wal).last_index == 2);
    assert_true(hf_wal_durable(run->wal).term == 1);
    assert_true(hf_wal_is_pending(run->wal));
    run_free(run);
}

static void nothing_is_durable_before_its_flush_has_ended(void **state)
{
    struct run *run = run_new(1);
    struct hf_wal_flush flush;

    (void)state;
    assert_true(run_vote(run, 3, 1));
    assert_true(run_append(run, 1, 2, 100));
    assert_true(hf_wal_durable(run->wal).last_index == 0);
    assert_true(hf_wal_flush_begin(run->wal, &flush));
    assert_true(hf_wal_durable(run->wal).last_index == 0);
    assert_true(hf_wal_durable(run->wal).term == 0);
    hf_wal_flush_run(&flush);
    assert_true(hf_wal_durable(run->wal).last_index == 0);
    expect_ok(hf_wal_flush_end(run->wal, &flush));
    assert_true(hf_wal_durable(run->wal).last_index == 2);
    run_free(run);
}

/* If a durable entry is replaced, its index is not durable until the new entry
 * is. */
static void a_replaced_entry_is_not_durable(void **state)
{
    struct run *run = run_new(1);
    struct hf_wal_flush flush;

    (void)state;
    assert_true(run_vote(run, 1, 0));
    assert_true(run_append(run, 1, 5, 10));
    flush_all(run->wal);
    assert_true(run_vote(run, 2, 0));
    assert_true(run_append(run, 3, 1, 10));
    assert_true(hf_wal_durable(run->wal).last_index == 2);
    assert_true(hf_wal_flush_begin(run->wal, &flush));
    assert_true(run_append(run, 2, 4, 10));
    assert_true(hf_wal_durable(run->wal).last_index == 1);
    hf_wal_flush_run(&flush);
    expect_ok(hf_wal_flush_end(run->wal, &flush));
    assert_true(hf_wal_durable(run->wal).last_index == 1);
    flush_all(run->wal);
    assert_true(hf_wal_durable(run->wal).last_index == 5);
    expect_ok(hf_wal_append_base(run->wal, (struct hf_log_snapshot){9, 2}));
    assert_true(hf_wal_durable(run->wal).last_index == 0);
    flush_all(run->wal);
    assert_true(hf_wal_durable(run->wal).last_index == 9);
    assert_true(hf_wal_durable(run->wal).last_term == 2);
    run_free(run);
}

/* ---- Recycling ----------------------------------------------------------*/

#define APPENDS 1000000
#define PER_FLUSH 100
#define PER_SNAPSHOT 10000

static void append_numbered(struct hf_wal *wal, uint64_t index)
{
    struct hf_log_entry entries[PER_FLUSH];
    char data[PER_FLUSH][32];

    for (size_t i = 0; i < PER_FLUSH; i++) {
        memset(data[i], (int)(index + i), sizeof(data[i]));
        entries[i] = (struct hf_log_entry){1, 1, {data[i], sizeof(data[i])}};
    }
    expect_ok(hf_wal_append_entries(wal, index, entries, PER_FLUSH));
    flush_all(wal);
}

static void on_base(void *arg, uint64_t index, uint64_t term)
{
    (void)term;
    *(uint64_t *)arg = index;
}

static enum hf_err on_entry(void *arg, uint64_t index,
                            const struct hf_log_entry *entry)
{
    uint64_t *last = arg;

    assert_true(index == *last + 1);
    assert_int_equal(entry->data.size, 32);
    assert_int_equal(((const uint8_t *)entry->data.data)[31], (uint8_t)index);
    *last = index;
    return HF_OK;
}

static void many_appends_leave_a_bounded_number_of_segments(void **state)
{
    struct sim_disk *sim = sim_disk_new();
    struct hf_disk *disk = sim_disk_attach(sim);
    struct hf_wal_opts opts = {.identity = model_identity};
    struct hf_wal_recovered recovered;
    struct hf_error error;
    struct hf_wal *wal;
    uint64_t last = 0, snapshot = 0, used_most = 0;
    const struct hf_log_visitor visitor = {on_base, on_entry, &last};

    (void)state;
    opts.identity.segment_size = 131072;
    expect_ok(hf_log_directory_init(disk, &opts.identity, &error));
    expect_ok(hf_wal_open(disk, &opts, &visitor, &wal, &recovered, &error));
    expect_ok(hf_wal_append_state(wal, 1, 1));
    for (uint64_t index = 1; index < APPENDS; index += PER_FLUSH) {
        append_numbered(wal, index);
        if (index % PER_SNAPSHOT == 1 && index > PER_SNAPSHOT) {
            snapshot = index;
            hf_wal_compact(wal, snapshot - 1000);
        }
        if (sim_disk_used(sim) > used_most)
            used_most = sim_disk_used(sim);
        /* Up to 6 segments for the entries of one snapshot interval and 1,000
         * more, 2 that are partly filled at both ends, the next one, and the
         * spares. */
        assert_true(hf_wal_segment_count(wal) <= 6 + 2 + 1 + HF_WAL_SPARES_MAX);
    }
    assert_true(used_most <= 16 * opts.identity.segment_size);
    hf_wal_close(wal);
    opts.snapshot = (struct hf_log_snapshot){snapshot, 1};
    last = 0;
    expect_ok(hf_wal_open(disk, &opts, &visitor, &wal, &recovered, &error));
    assert_true(last == APPENDS);
    assert_true(recovered.base.index <= snapshot - 1000);
    hf_wal_close(wal);
    disk->ops->close_directory(disk);
    sim_disk_free(sim);
}

/* Compaction keeps the last 20 entries that the snapshot contains. */
static void trailing_entries_are_kept(void **state)
{
    struct run *run = run_new(1);

    (void)state;
    assert_true(run_vote(run, 1, 1));
    for (int i = 0; i < 60; i++) {
        assert_true(run_append(run, run->now.state.last_index + 1, 1, 300));
        assert_true(run_flush(run));
        assert_true(run_upkeep(run));
    }
    assert_true(run_snapshot(run, 20));
    assert_true(run_upkeep(run));
    assert_true(hf_wal_segment_count(run->wal) < 12);
    run_close(run);
    expect_ok(run_open(run));
    assert_true(run->recovered.base.index > 0);
    assert_true(run->recovered.base.index + 20 <= run->snapshot.index);
    run_free(run);
}

/* A base makes older segments free, whatever entries they contain. */
static void a_base_frees_all_older_segments(void **state)
{
    struct run *run = run_new(1);
    size_t before;

    (void)state;
    assert_true(run_vote(run, 1, 1));
    for (int i = 0; i < 100; i++) {
        assert_true(run_append(run, run->now.state.last_index + 1, 1, 300));
        assert_true(run_flush(run));
        assert_true(run_upkeep(run));
    }
    before = hf_wal_segment_count(run->wal);
    assert_true(before > 8);
    assert_true(run_install(run, run->now.state.last_index + 1));
    assert_true(run_upkeep(run));
    assert_true(hf_wal_segment_count(run->wal) <= 2 + HF_WAL_SPARES_MAX);
    run_close(run);
    expect_ok(run_open(run));
    run_free(run);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_record_is_valid_only_as_a_whole_and_in_its_epoch),
        cmocka_unit_test(term_and_vote_are_recovered_without_entries),
        cmocka_unit_test(entries_that_exceed_a_record_are_split),
        cmocka_unit_test(an_entry_that_is_too_long_is_refused),
        cmocka_unit_test(bytes_that_wait_for_a_flush_are_limited),
        cmocka_unit_test(a_flush_does_not_see_later_appends),
        cmocka_unit_test(nothing_is_durable_before_its_flush_has_ended),
        cmocka_unit_test(a_replaced_entry_is_not_durable),
        cmocka_unit_test(many_appends_leave_a_bounded_number_of_segments),
        cmocka_unit_test(trailing_entries_are_kept),
        cmocka_unit_test(a_base_frees_all_older_segments),
    };

    return hf_test_main("wal", cases, HF_TEST_COUNT(cases), 0);
}
