/* test_log_directory.c - the directory of a node on a real disk. */
#include "log/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "lib/alloc.h"
#include "lib/child.h"
#include "lib/expect.h"
#include "lib/folder.h"
#include "lib/runner.h"
#include "log/snapshot_file.h"
#include "log/wal.h"

#define FIRST "log-0000000000000001"

static const struct hf_log_identity identity = {
    .cluster = {"cluster"},
    .node = 2,
    .secret = {"secret"},
    .segment_size = 65536,
};
static char folder[] = HF_TEST_FOLDER;
static char path[64];
static struct hf_error error;

static int make_folder(void **state)
{
    (void)state;
    if (!hf_test_folder_make(folder))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/node", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return hf_test_folder_remove(folder) ? 0 : -1;
}

static const char *path_of(const char *name)
{
    static char full[128];

    (void)snprintf(full, sizeof(full), "%s/%s", path, name);
    return full;
}

static struct hf_disk *open_disk(void)
{
    struct hf_disk *disk;

    assert_int_equal(hf_disk_posix_open(path, true, &disk), 0);
    return disk;
}

static void close_disk(struct hf_disk *disk)
{
    disk->ops->close_directory(disk);
}

static void init_directory(void)
{
    struct hf_disk *disk = open_disk();

    expect_ok(hf_directory_init(disk, &identity, &error));
    close_disk(disk);
}

static void expect_text(const char *text)
{
    if (!strstr(error.text, text))
        fail_msg("expected \"%s\" in: %s", text, error.text);
}

static void on_base(void *arg, uint64_t index, uint64_t term)
{
    (void)term;
    *(uint64_t *)arg = index;
}

static enum hf_err on_entry(void *arg, uint64_t index,
                            const struct hf_log_entry *entry)
{
    (void)entry;
    *(uint64_t *)arg = index;
    return HF_OK;
}

/* Open the directory and its log. Returns NULL and an error if one of them is
 * refused. */
static struct hf_wal *open_log(struct hf_disk *disk, enum hf_err *err,
                               uint64_t *last)
{
    const struct hf_log_visitor visitor = {on_base, on_entry, last};
    struct hf_wal_opts opts = {0};
    struct hf_wal_recovered recovered;
    struct hf_wal *wal = NULL;

    *last = 0;
    *err = hf_directory_open(disk, &identity.cluster, identity.node,
                             &opts.identity, &error);
    if (!*err)
        *err = hf_wal_open(disk, &opts, &visitor, &wal, &recovered, &error);
    return wal;
}

static void expect_refused(enum hf_err wanted, const char *text)
{
    struct hf_disk *disk = open_disk();
    enum hf_err err;
    uint64_t last;

    assert_null(open_log(disk, &err, &last));
    expect_err(err, wanted);
    expect_text(text);
    close_disk(disk);
}

/* Flush and maintain; stop at the first error. */
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

/* ---- Initialising and opening -------------------------------------------*/

static void a_directory_is_initialised_once(void **state)
{
    struct hf_disk *disk = open_disk();
    struct stat about;

    (void)state;
    expect_ok(hf_directory_init(disk, &identity, &error));
    close_disk(disk);
    disk = open_disk();
    expect_err(hf_directory_init(disk, &identity, &error), HF_ESTATE);
    expect_text("already initialised");
    close_disk(disk);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0700);
    assert_int_equal(stat(path_of("identity"), &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(stat(path_of(FIRST), &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(about.st_size, 65536);
}

static void an_empty_directory_is_not_started(void **state)
{
    struct hf_disk *disk;

    (void)state;
    assert_int_equal(hf_disk_posix_open(path, false, &disk), -ENOENT);
    expect_refused(HF_ESTATE, "not initialised. If this node is new");
    /* Refusing has not made it a valid one. */
    expect_refused(HF_ESTATE, "not initialised. If this node is new");
}

static void a_directory_without_identity_is_not_started(void **state)
{
    struct hf_disk *disk;

    (void)state;
    init_directory();
    assert_int_equal(unlink(path_of("identity")), 0);
    expect_refused(HF_ESTATE, "the file identity is missing");
    disk = open_disk();
    expect_err(hf_directory_init(disk, &identity, &error), HF_ESTATE);
    expect_text("not empty: it contains " FIRST);
    close_disk(disk);
}

static void a_foreign_directory_is_not_started(void **state)
{
    const struct hf_log_cluster other = {"other"};
    struct hf_log_identity found;
    struct hf_disk *disk;

    (void)state;
    init_directory();
    disk = open_disk();
    expect_err(hf_directory_open(disk, &other, 2, &found, &error), HF_EINVAL);
    expect_text("belongs to node 2 of cluster 636c7573");
    close_disk(disk);
    disk = open_disk();
    expect_err(hf_directory_open(disk, &identity.cluster, 3, &found, &error),
               HF_EINVAL);
    expect_text("expected node 3");
    close_disk(disk);
}

static void write_byte(const char *name, off_t offset, char byte)
{
    int file = open(path_of(name), O_WRONLY);

    assert_true(file >= 0);
    assert_int_equal(pwrite(file, &byte, 1, offset), 1);
    assert_int_equal(close(file), 0);
}

static void a_damaged_or_newer_identity_is_refused(void **state)
{
    (void)state;
    init_directory();
    write_byte("identity", 30, 'x');
    expect_refused(HF_EPROTO, "/identity: damaged");
    write_byte("identity", 8, 2);
    expect_refused(HF_EUNSUPPORTED, "/identity: version 2 is newer");
    assert_int_equal(truncate(path_of("identity"), 5), 0);
    expect_refused(HF_EPROTO, "/identity: damaged");
    assert_int_equal(truncate(path_of("identity"), 0), 0);
    expect_refused(HF_EPROTO, "/identity: damaged");
}

static void segment_sizes_are_checked(void **state)
{
    static const uint64_t sizes[] = {1, 2048, 4097, 1ULL << 31};
    struct hf_log_identity wrong = identity;
    struct hf_disk *disk = open_disk();

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        wrong.segment_size = sizes[i];
        expect_err(hf_directory_init(disk, &wrong, &error), HF_EINVAL);
        expect_text("the segment size is");
    }
    wrong = identity;
    wrong.node = 0;
    expect_err(hf_directory_init(disk, &wrong, &error), HF_EINVAL);
    close_disk(disk);
}

static bool try_open(void)
{
    struct hf_disk *disk = open_disk();
    enum hf_err err;
    uint64_t last;

    assert_null(open_log(disk, &err, &last));
    expect_text("another process is using this directory");
    return err == HF_EBUSY;
}

static void two_processes_cannot_use_one_directory(void **state)
{
    struct hf_disk *disk;
    struct hf_wal *wal;
    enum hf_err err;
    uint64_t last;

    (void)state;
    init_directory();
    disk = open_disk();
    wal = open_log(disk, &err, &last);
    assert_non_null(wal);
    assert_true(hf_child_try(try_open));
    expect_refused(HF_EBUSY, "another process is using this directory");
    hf_wal_close(wal);
    close_disk(disk);
    disk = open_disk();
    wal = open_log(disk, &err, &last);
    assert_non_null(wal);
    hf_wal_close(wal);
    close_disk(disk);
}

static void temporary_files_are_removed(void **state)
{
    struct hf_disk *disk;
    struct hf_wal *wal;
    enum hf_err err;
    uint64_t last;

    (void)state;
    init_directory();
    for (int i = 0; i < 40; i++) {
        char name[32];
        int file;

        (void)snprintf(name, sizeof(name), "tmp-%d", i);
        file = open(path_of(name), O_WRONLY | O_CREAT, 0600);
        assert_true(file >= 0);
        assert_int_equal(close(file), 0);
    }
    disk = open_disk();
    wal = open_log(disk, &err, &last);
    assert_non_null(wal);
    assert_int_equal(access(path_of("tmp-0"), F_OK), -1);
    assert_int_equal(access(path_of("tmp-39"), F_OK), -1);
    hf_wal_close(wal);
    close_disk(disk);
}

/* ---- Strange files ------------------------------------------------------*/

static void a_symbolic_link_is_refused(void **state)
{
    char aside[128];

    (void)state;
    init_directory();
    (void)snprintf(aside, sizeof(aside), "%s", path_of("elsewhere"));
    assert_int_equal(rename(path_of(FIRST), aside), 0);
    assert_int_equal(symlink(aside, path_of(FIRST)), 0);
    expect_refused(HF_ESYSTEM, FIRST ": cannot read the log: it is a symbolic "
                                     "link");
    assert_int_equal(unlink(path_of(FIRST)), 0);
    assert_int_equal(mkfifo(path_of(FIRST), 0600), 0);
    expect_refused(HF_ESYSTEM, FIRST ": cannot read the log: it is not a "
                                     "regular file");
    assert_int_equal(unlink(path_of(FIRST)), 0);
    assert_int_equal(mkdir(path_of(FIRST), 0700), 0);
    expect_refused(HF_ESYSTEM, FIRST ": cannot read the log: ");
    assert_int_equal(rmdir(path_of(FIRST)), 0);
    expect_refused(HF_EPROTO, FIRST ": this segment of the log is missing");
}

/* ---- The log ------------------------------------------------------------*/

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

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_directory_is_initialised_once),
        CASE(an_empty_directory_is_not_started),
        CASE(a_directory_without_identity_is_not_started),
        CASE(a_foreign_directory_is_not_started),
        CASE(a_damaged_or_newer_identity_is_refused),
        CASE(segment_sizes_are_checked),
        CASE(two_processes_cannot_use_one_directory),
        CASE(temporary_files_are_removed),
        CASE(a_symbolic_link_is_refused),
        CASE(entries_survive_on_a_real_disk),
        CASE(out_of_memory_is_reported_at_every_allocation),
        CASE(a_snapshot_survives_on_a_real_disk),
        CASE(a_full_disk_refuses_new_work_only),
    };

    return hf_test_main("log_directory", cases, HF_TEST_COUNT(cases), 0);
}
