/* test_wal_damage.c - damaged, missing and foreign files are refused with a
 * text that names them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/expect.h"
#include "lib/runner.h"
#include "log/model.h"
#include "log/segment.h"

#define FIRST "log-0000000000000001"
#define SECOND "log-0000000000000002"

/* Make a durable log of at least `records` records, in as many segments as they
 * need, and a next segment without records. */
static struct run *new_log(unsigned records)
{
    struct run *run = run_new(5);

    assert_true(run_vote(run, 1, 1));
    for (unsigned i = 0; i < records; i++) {
        uint64_t next = run->now.state.last_index + 1;

        assert_true(run_append(run, next, 1 + i % 3, 100 + i % 4 * 150));
        while (hf_wal_is_pending(run->wal))
            assert_true(run_flush(run));
        assert_true(run_upkeep(run));
    }
    run_close(run);
    sim_disk_crash(run->sim, SIM_CRASH_LOSE, 1);
    return run;
}

static void expect_refused(struct run *run, enum hf_err err, const char *text)
{
    expect_err(run_open(run), err);
    if (!strstr(run->error.text, text))
        fail_msg("expected \"%s\" in: %s", text, run->error.text);
}

/* Open a copy of a log with one changed byte in the file `name`. Returns true
 * if the log was refused. Otherwise it may lack the last record, which then
 * looks like a torn one. */
static bool try_flip(const struct run *run, const char *name)
{
    static struct run copy;
    enum hf_err err;

    copy = *run;
    copy.sim = sim_disk_clone(run->sim);
    copy.acked = copy.begun - 1;
    err = run_open(&copy);
    if (err) {
        assert_true(err == HF_EPROTO || err == HF_EINVAL ||
                    err == HF_EUNSUPPORTED);
        assert_non_null(strstr(copy.error.text, name));
        assert_true(err != HF_EPROTO || strstr(copy.error.text, "offset"));
    }
    run_close(&copy);
    sim_disk_free(copy.sim);
    return err != HF_OK;
}

static size_t flip_everywhere(struct run *run, const char *name)
{
    uint64_t size = sim_disk_file_size(run->sim, name);
    uint64_t step = hf_test_slowness();
    size_t refused = 0;

    for (uint64_t at = 0; at < size; at += step) {
        uint8_t byte = sim_disk_peek(run->sim, name, at);

        sim_disk_poke(run->sim, name, at, (uint8_t)(byte ^ 1 << at % 8));
        refused += try_flip(run, name);
        sim_disk_poke(run->sim, name, at, byte);
    }
    return refused;
}

static void a_flipped_bit_is_refused_or_cuts_the_last_record(void **state)
{
    struct run *run = new_log(11);
    uint64_t step = hf_test_slowness();

    (void)state;
    /* A changed byte of a record is found, unless it is in the last one, which
     * is in the second segment. */
    assert_true(flip_everywhere(run, FIRST) * step > 6000);
    assert_true(flip_everywhere(run, SECOND) * step > 1000);
    expect_ok(run_open(run));
    run_free(run);
}

static void zero_sector(struct run *run, const char *name, uint64_t offset)
{
    for (uint64_t i = 0; i < 512; i++)
        sim_disk_poke(run->sim, name, offset + i, 0);
}

/* The offset of the last record in a segment of new_log(). */
static uint64_t last_record(struct run *run, const char *name)
{
    uint64_t last = 0;

    for (uint64_t at = 512; at + 512 <= MODEL_SEGMENT_SIZE; at += 512) {
        if (sim_disk_peek(run->sim, name, at + 8) == 0x21 &&
            sim_disk_peek(run->sim, name, at + 11) == 0x52)
            last = at;
    }
    return last;
}

/* A lost last record looks like the unused end of its segment. Only the first
 * record of the next segment reveals the loss: it has the checksum of the
 * record before it (log/record.h). */
static void a_record_lost_at_the_end_of_a_segment_is_refused(void **state)
{
    struct run *run = new_log(11);
    uint64_t offset = last_record(run, FIRST);
    char text[64];

    (void)state;
    assert_true(offset > 0);
    zero_sector(run, FIRST, offset);
    (void)snprintf(text, sizeof(text), FIRST ": damaged at offset %u",
                   (unsigned)offset);
    expect_refused(run, HF_EPROTO, text);
    run_free(run);
}

static void damage_before_a_valid_record_is_refused_with_its_place(void **state)
{
    struct run *run = new_log(4);

    (void)state;
    zero_sector(run, FIRST, 512);
    expect_refused(run, HF_EPROTO, FIRST ": damaged at offset 512");
    run_free(run);
}

static void damage_of_the_last_record_looks_like_a_torn_one(void **state)
{
    struct run *run = new_log(4);

    (void)state;
    zero_sector(run, FIRST, last_record(run, FIRST));
    run->acked = run->begun - 1;
    expect_ok(run_open(run));
    run_free(run);
}

static void a_missing_segment_is_refused(void **state)
{
    struct run *run = new_log(30);

    (void)state;
    sim_disk_delete(run->sim, SECOND);
    expect_refused(run, HF_EPROTO,
                   SECOND ": this segment of the log is "
                          "missing");
    run_free(run);

    run = new_log(30);
    sim_disk_delete(run->sim, FIRST);
    expect_refused(run, HF_EPROTO, "a snapshot or a segment is missing");
    run_free(run);

    run = new_log(1);
    sim_disk_delete(run->sim, FIRST);
    expect_refused(run, HF_EPROTO, FIRST);
    run_free(run);

    run = new_log(1);
    sim_disk_delete(run->sim, FIRST);
    sim_disk_delete(run->sim, SECOND);
    expect_refused(run, HF_EPROTO,
                   FIRST ": this segment of the log is "
                         "missing");
    run_free(run);
}

static void a_file_of_a_wrong_size_is_refused(void **state)
{
    static const uint64_t sizes[] = {0,
                                     100,
                                     512,
                                     MODEL_SEGMENT_SIZE - 512,
                                     MODEL_SEGMENT_SIZE + 1,
                                     MODEL_SEGMENT_SIZE + 512};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct run *run = new_log(4);
        char text[64];

        sim_disk_resize(run->sim, FIRST, sizes[i]);
        (void)snprintf(text, sizeof(text), FIRST ": has %u bytes instead of",
                       (unsigned)sizes[i]);
        expect_refused(run, HF_EPROTO, text);
        run_free(run);
    }
}

/* Change a byte of a segment's header, and correct the checksum. */
static void change_header(struct run *run, uint64_t offset, uint8_t byte)
{
    static const struct hf_seed zero;
    uint8_t header[60];
    uint64_t sum;

    sim_disk_poke(run->sim, FIRST, offset, byte);
    for (size_t i = 0; i < sizeof(header); i++)
        header[i] = sim_disk_peek(run->sim, FIRST, i);
    sum = hf_siphash(&zero, header, sizeof(header));
    for (size_t i = 0; i < 8; i++)
        sim_disk_poke(run->sim, FIRST, 60 + i, (uint8_t)(sum >> (8 * i)));
}

static void a_segment_of_a_newer_version_is_refused(void **state)
{
    struct run *run = new_log(4);

    (void)state;
    change_header(run, 8, 2);
    expect_refused(run, HF_EUNSUPPORTED, FIRST ": written by a newer version");
    run_free(run);
}

static void a_foreign_segment_is_refused(void **state)
{
    struct run *run = new_log(4);

    (void)state;
    change_header(run, 12, 'x');
    expect_refused(run, HF_EINVAL, FIRST ": belongs to another cluster");
    run_free(run);

    run = new_log(4);
    change_header(run, 28, 4); /* the node */
    expect_refused(run, HF_EINVAL, FIRST ": belongs to another cluster");
    run_free(run);

    run = new_log(4);
    change_header(run, 44, 9); /* the epoch */
    expect_refused(run, HF_EPROTO, FIRST ": bad header at offset 0: belongs");
    run_free(run);
}

/* Change a byte of the record at `record` in the first segment, and correct the
 * record's checksum. */
static void change_record(struct run *run, uint64_t record, uint64_t offset,
                          uint8_t byte)
{
    uint8_t data[MODEL_SEGMENT_SIZE] = {0};
    size_t size;
    uint64_t sum;

    sim_disk_poke(run->sim, FIRST, record + offset, byte);
    for (size_t i = 0; record + i < sizeof(data); i++)
        data[i] = sim_disk_peek(run->sim, FIRST, record + i);
    size = hf_record_padded(data[12] + 256U * data[13]);
    sum = hf_siphash(&model_identity.secret, data + 8, size - 8);
    for (size_t i = 0; i < 8; i++)
        sim_disk_poke(run->sim, FIRST, record + i, (uint8_t)(sum >> (8 * i)));
}

/* A record with a valid checksum must also fit the state before it. */
static void a_record_that_contradicts_the_log_is_refused(void **state)
{
    static const struct {
        uint64_t offset;
        uint8_t byte;
    } changes[] = {
        {32, 0},  /* the term decreases */
        {40, 2},  /* another vote in the same term */
        {48, 99}, /* another last index */
        {56, 99}, /* another last term */
        {64, 7},  /* an unknown item */
        {65, 99}, /* entries after a gap */
        {73, 0},  /* no entries */
        {73, 99}, /* too many entries */
        {77, 0},  /* an entry without a term */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct run *run = new_log(4);

        change_record(run, last_record(run, FIRST), changes[i].offset,
                      changes[i].byte);
        expect_refused(run, HF_EPROTO, "contradicts the one before it");
        run_free(run);
    }
}

static void a_segment_without_records_before_others_is_refused(void **state)
{
    struct run *run = new_log(30);

    (void)state;
    for (uint64_t at = 512; at < MODEL_SEGMENT_SIZE; at += 512)
        zero_sector(run, SECOND, at);
    expect_refused(run, HF_EPROTO, SECOND ": damaged at offset 512");
    run_free(run);

    run = new_log(30);
    sim_disk_delete(run->sim, FIRST);
    for (uint64_t at = 512; at < MODEL_SEGMENT_SIZE; at += 512)
        zero_sector(run, SECOND, at);
    expect_refused(run, HF_EPROTO, SECOND ": damaged at offset 512");
    run_free(run);
}

/* Only one segment is prepared in advance, so a second one without records
 * means that records are lost. */
static void two_segments_without_records_are_refused(void **state)
{
    struct run *run = new_log(2);
    struct hf_disk *disk = sim_disk_attach(run->sim);
    struct hf_disk_file *file;

    (void)state;
    assert_int_equal(hf_segment_prepare(disk, &model_identity, 3, NULL, &file),
                     0);
    hf_disk_close(file);
    disk->ops->close_directory(disk);
    expect_refused(run, HF_EPROTO, SECOND ": damaged at offset 512");
    run_free(run);
}

static enum hf_err refuse_entry(void *arg, uint64_t index,
                                const struct hf_log_entry *entry)
{
    (void)arg;
    (void)index;
    (void)entry;
    return HF_ENOMEM;
}

static void an_error_of_the_visitor_is_returned(void **state)
{
    struct run *run = new_log(2);
    struct hf_disk *disk = sim_disk_attach(run->sim);
    struct hf_wal_opts opts = {.identity = model_identity};
    struct hf_log_visitor visitor = model_visitor(&run->now);
    struct hf_wal *wal;

    (void)state;
    visitor.entry = refuse_entry;
    expect_err(
        hf_wal_open(disk, &opts, &visitor, &wal, &run->recovered, &run->error),
        HF_ENOMEM);
    disk->ops->close_directory(disk);
    run_free(run);
}

/* The log begins after an installed snapshot, and that snapshot is gone. */
static void a_missing_snapshot_is_refused(void **state)
{
    struct run *run = run_new(6);

    (void)state;
    assert_true(run_vote(run, 1, 1));
    assert_true(run_install(run, 100));
    while (hf_wal_is_pending(run->wal))
        assert_true(run_flush(run));
    run_close(run);
    sim_disk_crash(run->sim, SIM_CRASH_LOSE, 1);
    sim_disk_delete(run->sim, "snapshot-0000000000000064");
    run->snapshot = run->snapshot_begun = (struct hf_log_snapshot){0};
    expect_refused(run, HF_EPROTO,
                   "the log begins after entry 100, but the newest valid "
                   "snapshot ends at entry 0");
    run_free(run);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_flipped_bit_is_refused_or_cuts_the_last_record),
        cmocka_unit_test(a_record_lost_at_the_end_of_a_segment_is_refused),
        cmocka_unit_test(
            damage_before_a_valid_record_is_refused_with_its_place),
        cmocka_unit_test(damage_of_the_last_record_looks_like_a_torn_one),
        cmocka_unit_test(a_missing_segment_is_refused),
        cmocka_unit_test(a_file_of_a_wrong_size_is_refused),
        cmocka_unit_test(a_segment_of_a_newer_version_is_refused),
        cmocka_unit_test(a_foreign_segment_is_refused),
        cmocka_unit_test(a_record_that_contradicts_the_log_is_refused),
        cmocka_unit_test(a_segment_without_records_before_others_is_refused),
        cmocka_unit_test(two_segments_without_records_are_refused),
        cmocka_unit_test(an_error_of_the_visitor_is_returned),
        cmocka_unit_test(a_missing_snapshot_is_refused),
    };

    return hf_test_main("wal_damage", cases, HF_TEST_COUNT(cases), 0);
}
