/* test_log_disk.c - the log and a snapshot on a real disk, also when memory or
 * the disk is exhausted. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/alloc.h"
#include "log/one_directory.h"
#include "log/snapshot_file.h"
#include "log/snapshot_writer.h"

/* Run all upkeep that is due, and flush once, even if the upkeep found the disk
 * full. */
static enum hf_err work(struct hf_wal *wal)
{
    struct hf_wal_upkeep upkeep;
    struct hf_wal_flush flush;
    enum hf_err err = HF_OK;

    while (!err && hf_wal_upkeep_begin(wal, &upkeep)) {
        hf_wal_upkeep_run(&upkeep);
        err = hf_wal_upkeep_end(wal, &upkeep);
    }
    if (err && err != HF_ELIMIT)
        return err;
    if (!hf_wal_flush_begin(wal, &flush))
        return hf_wal_is_pending(wal) ? HF_ENOMEM : HF_OK;
    hf_wal_flush_run(&flush);
    return hf_wal_flush_end(wal, &flush);
}

static enum hf_err append_one(struct hf_wal *wal, uint64_t index)
{
    static const uint8_t data[1000];
    struct hf_log_entry entry = {1, 0, {data, sizeof(data)}};

    return hf_wal_append_entries(wal, index, &entry, 1);
}

static void entries_survive_on_a_real_disk(void **state)
{
    struct hf_disk *disk;
    struct hf_wal *wal;
    enum hf_err err;
    uint64_t last;

    (void)state;
    init_directory();
    for (unsigned round = 0; round < 4; round++) {
        disk = open_disk();
        wal = open_log(disk, &err, &last);
        assert_non_null(wal);
        assert_true(last == UINT64_C(100) * round);
        for (uint64_t i = 1; i <= 100; i++) {
            expect_ok(append_one(wal, last + i));
            expect_ok(work(wal));
        }
        assert_true(hf_wal_durable(wal).last_index == last + 100);
        hf_wal_close(wal);
        close_disk(disk);
    }
}

static enum hf_err open_and_append(uint64_t index)
{
    struct hf_disk *disk;
    struct hf_wal *wal;
    enum hf_err err;
    uint64_t last;

    if (hf_disk_posix_open(path, false, &disk))
        return HF_ENOMEM;
    wal = open_log(disk, &err, &last);
    if (!err)
        err = append_one(wal, index);
    if (!err)
        err = work(wal);
    hf_wal_close(wal);
    close_disk(disk);
    return err;
}

static void out_of_memory_is_reported_at_every_allocation(void **state)
{
    enum hf_err err = HF_ENOMEM;

    (void)state;
    init_directory();
    for (unsigned long nth = 1; err; nth++) {
        long blocks = hf_alloc_blocks();

        hf_alloc_fail(nth, 1);
        err = open_and_append(1);
        assert_true(hf_alloc_failed() || !err);
        assert_true(err == HF_OK || err == HF_ENOMEM);
        assert_int_equal(hf_alloc_blocks(), blocks);
        assert_true(nth > 5 || err);
    }
    expect_ok(open_and_append(2));
}

static enum hf_err write_and_read_snapshot(void)
{
    struct hf_snapshot_meta meta = {7, 1, 1, {"members", 7}};
    struct hf_snapshot_writer *writer;
    struct hf_snapshot_file *file = NULL;
    struct hf_error damaged;
    struct hf_disk *disk;
    char data[4] = "";
    enum hf_err err;

    if (hf_disk_posix_open(path, true, &disk))
        return HF_ENOMEM;
    err = hf_snapshot_writer_open(disk, &identity.cluster, &meta, &writer,
                                  &error);
    if (!err) {
        err = hf_snapshot_writer_add(writer, "data", 4, &error);
        assert_int_equal(err, HF_OK);
        err = hf_snapshot_writer_finish(writer, &error);
    }
    if (!err)
        err = hf_snapshot_file_open(disk, &identity.cluster, &file, &damaged,
                                    &error);
    if (!err)
        err = hf_snapshot_file_read_data(file, 0, data, 4, &error);
    assert_true(err || !memcmp(data, "data", 4));
    hf_snapshot_file_close(file);
    close_disk(disk);
    return err;
}

static void a_snapshot_survives_on_a_real_disk(void **state)
{
    enum hf_err err = HF_ENOMEM;
    struct stat about;

    (void)state;
    for (unsigned long nth = 1; err; nth++) {
        long blocks = hf_alloc_blocks();

        hf_alloc_fail(nth, 1);
        err = write_and_read_snapshot();
        assert_true(hf_alloc_failed() || !err);
        assert_true(err == HF_OK || err == HF_ENOMEM);
        assert_int_equal(hf_alloc_blocks(), blocks);
    }
    assert_int_equal(stat(path_of("snapshot-0000000000000007"), &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(about.st_size, 512 + 7 + 4);
}

static void mount_tmpfs(void)
{
    if (unshare(CLONE_NEWNS) ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        hf_test_skip("this user cannot mount a file system");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(mount("full", path, "tmpfs", 0, "size=1m,mode=0700"), 0);
}

static void fill_disk(void)
{
    static const char block[4096] = "x";
    int file = open(path_of("fill"), O_WRONLY | O_CREAT | O_APPEND, 0600);

    assert_true(file >= 0);
    while (write(file, block, sizeof(block)) > 0)
        continue;
    assert_int_equal(errno, ENOSPC);
    assert_int_equal(close(file), 0);
}

static void a_full_disk_refuses_new_work_only(void **state)
{
    struct hf_disk *disk;
    struct hf_wal *wal;
    enum hf_err err;
    uint64_t last, index = 0;

    (void)state;
    mount_tmpfs();
    init_directory();
    disk = open_disk();
    wal = open_log(disk, &err, &last);
    assert_non_null(wal);
    hf_wal_reserve(wal, 0);
    expect_ok(work(wal));
    assert_int_equal(hf_wal_space(wal), HF_WAL_SPACE_OK);
    fill_disk();
    while (hf_wal_space(wal) == HF_WAL_SPACE_OK && index < 1000) {
        expect_ok(append_one(wal, ++index));
        expect_ok(work(wal));
    }
    assert_int_equal(hf_wal_space(wal), HF_WAL_SPACE_LOW);
    for (unsigned i = 0; i < 20; i++) {
        expect_ok(append_one(wal, ++index));
        expect_ok(work(wal));
    }
    assert_int_equal(unlink(path_of("fill")), 0);
    expect_ok(work(wal));
    assert_int_equal(hf_wal_space(wal), HF_WAL_SPACE_OK);
    hf_wal_close(wal);
    close_disk(disk);
    disk = open_disk();
    wal = open_log(disk, &err, &last);
    assert_non_null(wal);
    assert_true(last == index);
    hf_wal_close(wal);
    close_disk(disk);
    assert_int_equal(umount2(path, MNT_DETACH), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(entries_survive_on_a_real_disk),
        CASE(out_of_memory_is_reported_at_every_allocation),
        CASE(a_snapshot_survives_on_a_real_disk),
        CASE(a_full_disk_refuses_new_work_only),
    };

    return hf_test_main("log_disk", cases, HF_TEST_COUNT(cases), 0);
}
