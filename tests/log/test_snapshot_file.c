#include "log/snapshot_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "lib/expect.h"
#include "lib/runner.h"
#include "log/snapshot_transfer.h"
#include "log/snapshot_writer.h"
#include "log/wal.h"
#include "sim/sim_disk.h"

static const struct hf_log_cluster cluster = {"a cluster"};
static struct sim_disk *sim;
static struct hf_disk *disk;
static struct hf_error error, damaged;

static int open_disk(void **state)
{
    (void)state;
    sim = sim_disk_new();
    disk = sim_disk_attach(sim);
    return 0;
}

static int close_disk(void **state)
{
    (void)state;
    disk->ops->close_directory(disk);
    sim_disk_free(sim);
    return 0;
}

static void crash_disk(enum sim_crash pattern, uint64_t seed)
{
    disk->ops->close_directory(disk);
    sim_disk_crash(sim, pattern, seed);
    disk = sim_disk_attach(sim);
}

static uint8_t byte_at(uint64_t index, size_t at)
{
    return (uint8_t)(index + at + at / 256);
}

/* Write a snapshot of `size` bytes in chunks of `chunk`. */
static enum hf_err write_snapshot(uint64_t index, size_t size, size_t chunk)
{
    struct hf_snapshot_meta meta = {index, 2, 1, {"members", 7}};
    struct hf_snapshot_writer *writer;
    uint8_t *data = malloc(size + 1);
    enum hf_err err;

    assert_non_null(data);
    for (size_t i = 0; i < size; i++)
        data[i] = byte_at(index, i);
    err = hf_snapshot_writer_open(disk, &cluster, &meta, &writer, &error);
    if (err) {
        free(data);
        return err;
    }
    for (size_t at = 0; at < size && !err; at += chunk) {
        size_t step = size - at < chunk ? size - at : chunk;

        err = hf_snapshot_writer_add(writer, data + at, step, &error);
    }
    free(data);
    if (err)
        hf_snapshot_writer_cancel(writer);
    else
        err = hf_snapshot_writer_finish(writer, &error);
    return err;
}

static struct hf_snapshot_file *open_snapshot(void)
{
    struct hf_snapshot_file *file;

    expect_ok(hf_snapshot_file_open(disk, &cluster, &file, &damaged, &error));
    return file;
}

static void expect_data(struct hf_snapshot_file *file, uint64_t index,
                        size_t size)
{
    const struct hf_snapshot_meta *meta = hf_snapshot_file_meta(file);
    uint8_t *data = malloc(size + 1);

    assert_non_null(data);
    assert_true(meta->index == index && meta->term == 2);
    assert_true(meta->config_index == 1);
    assert_int_equal(meta->config.size, 7);
    assert_memory_equal(meta->config.data, "members", 7);
    assert_true(hf_snapshot_file_data_size(file) == size);
    expect_ok(hf_snapshot_file_read_data(file, 0, data, size, &error));
    for (size_t i = 0; i < size; i++)
        assert_int_equal(data[i], byte_at(index, i));
    expect_err(hf_snapshot_file_read_data(file, size, data, 1, &error),
               HF_EPROTO);
    free(data);
}

static void expect_newest(uint64_t index, size_t size)
{
    struct hf_snapshot_file *file = open_snapshot();

    assert_non_null(file);
    expect_data(file, index, size);
    hf_snapshot_file_close(file);
}

/* ---- Writing and reading ------------------------------------------------*/

static void a_snapshot_is_read_as_it_was_written(void **state)
{
    static const size_t sizes[] = {0,     1,     100,    65536 - 7, 65536,
                                   65537, 70000, 131072, 300000};

    (void)state;
    assert_null(open_snapshot());
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        expect_ok(write_snapshot(i + 1, sizes[i], 1 + sizes[i] / 3));
        expect_newest(i + 1, sizes[i]);
        crash_disk(SIM_CRASH_LOSE, 1);
        expect_newest(i + 1, sizes[i]);
    }
}

static void a_configuration_that_is_too_long_is_refused(void **state)
{
    static const uint8_t config[HF_SNAPSHOT_CONFIG_MAX + 1];
    struct hf_snapshot_meta meta = {1, 1, 1, {config, sizeof(config)}};
    struct hf_snapshot_writer *writer;

    (void)state;
    expect_err(hf_snapshot_writer_open(disk, &cluster, &meta, &writer, &error),
               HF_ELIMIT);
    meta.config.size--;
    expect_ok(hf_snapshot_writer_open(disk, &cluster, &meta, &writer, &error));
    hf_snapshot_writer_cancel(writer);
    assert_null(open_snapshot());
    assert_true(sim_disk_used(sim) == 0 || !sim_disk_has(sim, "tmp-snapshot"));
}

static void the_newest_of_many_snapshots_is_opened(void **state)
{
    uint64_t newest = 0;

    (void)state;
    for (uint64_t i = 1; i <= HF_SNAPSHOTS_MAX + 6; i++) {
        uint64_t index = i * 37 % 97;

        expect_ok(write_snapshot(index, 10, 10));
        newest = index > newest ? index : newest;
        expect_newest(newest, 10);
    }
}

static void a_reader_keeps_a_snapshot_that_was_removed(void **state)
{
    struct hf_snapshot_file *file;

    (void)state;
    expect_ok(write_snapshot(5, 1000, 100));
    file = open_snapshot();
    expect_ok(write_snapshot(9, 2000, 100));
    expect_ok(hf_snapshot_file_remove_old(disk, 9, &error));
    assert_false(sim_disk_has(sim, "snapshot-0000000000000005"));
    expect_data(file, 5, 1000);
    hf_snapshot_file_close(file);
    expect_newest(9, 2000);
}

/* ---- Crashes ------------------------------------------------------------*/

static void a_crash_leaves_the_old_or_the_new_snapshot(void **state)
{
    (void)state;
    for (int pattern = 0; pattern <= SIM_CRASH_RANDOM; pattern++) {
        bool is_off = true;

        for (uint64_t change = 1; is_off; change++) {
            struct hf_snapshot_file *file;
            uint64_t index;
            enum hf_err err;

            (void)close_disk(NULL);
            (void)open_disk(NULL);
            expect_ok(write_snapshot(3, 900, 900));
            sim_disk_power_off_at(sim, sim_disk_changes(sim) + change);
            err = write_snapshot(8, 70000, 1000);
            is_off = sim_disk_is_off(sim);
            assert_true(is_off == (err != HF_OK));
            crash_disk((enum sim_crash)pattern, change);
            file = open_snapshot();
            assert_non_null(file);
            assert_int_equal(damaged.code, HF_OK);
            index = hf_snapshot_file_meta(file)->index;
            assert_true(index == 8 || (err && index == 3));
            expect_data(file, index, index == 8 ? 70000 : 900);
            hf_snapshot_file_close(file);
        }
    }
}

static void a_snapshot_overwrites_the_reserve_on_a_full_disk(void **state)
{
    struct hf_disk_file *file;

    (void)state;
    assert_int_equal(disk->ops->create(disk, HF_WAL_RESERVE_FILE, &file), 0);
    assert_int_equal(disk->ops->prewrite(file, 10000), 0);
    hf_disk_close(file);
    sim_disk_set_capacity(sim, sim_disk_used(sim));
    expect_ok(write_snapshot(4, 9000, 1000));
    expect_newest(4, 9000);
    assert_true(sim_disk_file_size(sim, "snapshot-0000000000000004") ==
                512 + 7 + 9000);
    assert_false(sim_disk_has(sim, HF_WAL_RESERVE_FILE));
    /* The reserve has been used, so the next snapshot finds the disk full. */
    expect_err(write_snapshot(5, 9000, 1000), HF_ELIMIT);
    expect_newest(4, 9000);
    assert_false(sim_disk_has(sim, "tmp-snapshot"));
}

/* ---- Damage -------------------------------------------------------------*/

#define NAME "snapshot-0000000000000009"

static void expect_refused(enum hf_err err, const char *text)
{
    struct hf_snapshot_file *file;

    expect_err(hf_snapshot_file_open(disk, &cluster, &file, &damaged, &error),
               err);
    if (!strstr(error.text, text))
        fail_msg("expected \"%s\" in: %s", text, error.text);
}

static void a_flipped_bit_is_found_before_anything_is_read(void **state)
{
    uint64_t size;

    (void)state;
    expect_ok(write_snapshot(9, 400, 100));
    size = sim_disk_file_size(sim, NAME);
    for (uint64_t at = 0; at < size; at++) {
        uint8_t byte = sim_disk_peek(sim, NAME, at);
        struct hf_snapshot_file *file = NULL;
        enum hf_err err;

        sim_disk_poke(sim, NAME, at, (uint8_t)(byte ^ 1 << at % 8));
        err = hf_snapshot_file_open(disk, &cluster, &file, &damaged, &error);
        /* The rest of the header's sector is not used. */
        assert_true(err || (at >= 80 && at < 512));
        assert_true(!err || strstr(error.text, NAME));
        hf_snapshot_file_close(file);
        sim_disk_poke(sim, NAME, at, byte);
    }
    expect_newest(9, 400);
}

static void a_snapshot_of_a_wrong_size_is_refused(void **state)
{
    static const uint64_t sizes[] = {0, 100, 512, 900, 920, 2000};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        expect_ok(write_snapshot(9, 400, 100));
        sim_disk_resize(sim, NAME, sizes[i]);
        expect_refused(HF_EPROTO, NAME);
    }
}

static void an_older_snapshot_replaces_a_damaged_one(void **state)
{
    struct hf_snapshot_file *file;

    (void)state;
    expect_ok(write_snapshot(7, 300, 100));
    expect_ok(write_snapshot(9, 400, 100));
    sim_disk_poke(sim, NAME, 600, 0xff);
    file = open_snapshot();
    assert_non_null(file);
    assert_true(hf_snapshot_file_meta(file)->index == 7);
    assert_int_equal(damaged.code, HF_EPROTO);
    assert_non_null(strstr(damaged.text, NAME));
    hf_snapshot_file_close(file);
}

/* Change a byte of the header, and correct the checksum. */
static void change_header(uint64_t offset, uint8_t byte)
{
    static const struct hf_seed zero;
    uint8_t header[72];
    uint64_t sum;

    sim_disk_poke(sim, NAME, offset, byte);
    for (size_t i = 0; i < sizeof(header); i++)
        header[i] = sim_disk_peek(sim, NAME, i);
    sum = hf_siphash(&zero, header, sizeof(header));
    for (size_t i = 0; i < 8; i++)
        sim_disk_poke(sim, NAME, 72 + i, (uint8_t)(sum >> (8 * i)));
}

static void a_foreign_snapshot_is_refused(void **state)
{
    const struct hf_log_cluster other = {"another"};
    struct hf_snapshot_file *file;

    (void)state;
    expect_ok(write_snapshot(9, 400, 100));
    expect_err(hf_snapshot_file_open(disk, &other, &file, &damaged, &error),
               HF_EINVAL);
    assert_non_null(strstr(error.text, NAME ": a snapshot of another cluster"));
    change_header(8, 2);
    expect_refused(HF_EUNSUPPORTED, NAME ": written by a newer version");
}

static void a_snapshot_under_another_name_is_refused(void **state)
{
    (void)state;
    expect_ok(write_snapshot(8, 400, 100));
    assert_int_equal(hf_disk_rename(disk, "snapshot-0000000000000008", NAME),
                     0);
    expect_refused(HF_EPROTO, NAME ": the snapshot has the name of another");
}

/* ---- Transfers ----------------------------------------------------------*/

/* The bytes of a snapshot file, which the caller frees. */
static uint8_t *read_file(uint64_t *size)
{
    struct hf_snapshot_file *file = open_snapshot();
    uint8_t *data;

    assert_non_null(file);
    *size = hf_snapshot_file_size(file);
    data = malloc(*size);
    assert_non_null(data);
    expect_ok(hf_snapshot_file_read(file, 0, data, *size, &error));
    hf_snapshot_file_close(file);
    return data;
}

/* Write a snapshot file, read it, and replace the disk with an empty one, like
 * that of a node that receives the snapshot. */
static uint8_t *read_and_forget(uint64_t *size)
{
    uint8_t *data;

    expect_ok(write_snapshot(9, 70000, 1000));
    data = read_file(size);
    (void)close_disk(NULL);
    (void)open_disk(NULL);
    return data;
}

static struct hf_snapshot_transfer *open_transfer(uint64_t index, uint64_t size)
{
    struct hf_snapshot_transfer *transfer;

    expect_ok(hf_snapshot_transfer_open(disk, &cluster, index, 2, size,
                                        &transfer, &error));
    return transfer;
}

static void a_transfer_continues_where_it_was_interrupted(void **state)
{
    struct hf_snapshot_transfer *transfer;
    uint64_t size;
    uint8_t *data = read_and_forget(&size);

    (void)state;
    transfer = open_transfer(9, size);
    assert_true(hf_snapshot_transfer_have(transfer) == 0);
    expect_ok(hf_snapshot_transfer_add(transfer, 0, data, 1000, &error));
    /* Add bytes after a gap, which are ignored; then bytes that have arrived
     * already; then a mix of old and new bytes. */
    expect_ok(
        hf_snapshot_transfer_add(transfer, 2000, data + 2000, 500, &error));
    assert_true(hf_snapshot_transfer_have(transfer) == 1000);
    expect_ok(hf_snapshot_transfer_add(transfer, 0, data, 1000, &error));
    assert_true(hf_snapshot_transfer_have(transfer) == 1000);
    expect_ok(
        hf_snapshot_transfer_add(transfer, 500, data + 500, 1000, &error));
    assert_true(hf_snapshot_transfer_have(transfer) == 1500);
    expect_ok(hf_snapshot_transfer_add(transfer, 1500, data + 1500,
                                       (size_t)size - 1500, &error));
    assert_null(open_snapshot());
    expect_ok(hf_snapshot_transfer_finish(transfer, &error));
    crash_disk(SIM_CRASH_LOSE, 1);
    expect_newest(9, 70000);
    free(data);
}

static void expect_transfer_refused(uint64_t index, uint8_t *data,
                                    uint64_t size, uint64_t sent)
{
    struct hf_snapshot_transfer *transfer = open_transfer(index, size);

    expect_ok(
        hf_snapshot_transfer_add(transfer, 0, data, (size_t)sent, &error));
    expect_err(hf_snapshot_transfer_finish(transfer, &error), HF_EPROTO);
    assert_null(open_snapshot());
    assert_false(sim_disk_has(sim, "tmp-transfer"));
}

static void a_damaged_or_wrong_transfer_is_dropped(void **state)
{
    struct hf_snapshot_transfer *transfer;
    uint64_t size;
    uint8_t *data = read_and_forget(&size);

    (void)state;
    expect_transfer_refused(9, data, size, size - 1);
    expect_transfer_refused(8, data, size, size);
    expect_transfer_refused(9, data, size - 1, size - 1);
    data[size / 2] ^= 1;
    expect_transfer_refused(9, data, size, size);
    transfer = open_transfer(9, size);
    expect_err(
        hf_snapshot_transfer_add(transfer, 0, data, (size_t)size + 1, &error),
        HF_EPROTO);
    expect_err(hf_snapshot_transfer_add(transfer, UINT64_MAX, data, 1, &error),
               HF_EPROTO);
    hf_snapshot_transfer_cancel(transfer);
    free(data);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_disk, close_disk)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_snapshot_is_read_as_it_was_written),
        CASE(a_configuration_that_is_too_long_is_refused),
        CASE(the_newest_of_many_snapshots_is_opened),
        CASE(a_reader_keeps_a_snapshot_that_was_removed),
        CASE(a_crash_leaves_the_old_or_the_new_snapshot),
        CASE(a_snapshot_overwrites_the_reserve_on_a_full_disk),
        CASE(a_flipped_bit_is_found_before_anything_is_read),
        CASE(a_snapshot_of_a_wrong_size_is_refused),
        CASE(an_older_snapshot_replaces_a_damaged_one),
        CASE(a_foreign_snapshot_is_refused),
        CASE(a_snapshot_under_another_name_is_refused),
        CASE(a_transfer_continues_where_it_was_interrupted),
        CASE(a_damaged_or_wrong_transfer_is_dropped),
    };

    return hf_test_main("snapshot_file", cases, HF_TEST_COUNT(cases), 0);
}
