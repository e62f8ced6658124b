/* test_log_directory.c - which directories a node may start with. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/child.h"
#include "log/one_directory.h"

#define FIRST "log-0000000000000001"

static void expect_text(const char *text)
{
    if (!strstr(error.text, text))
        fail_msg("expected \"%s\" in: %s", text, error.text);
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

/* ---- Initialising and opening -------------------------------------------*/

static void a_directory_is_initialised_once(void **state)
{
    struct hf_disk *disk = open_disk();
    struct stat about;

    (void)state;
    expect_ok(hf_log_directory_init(disk, &identity, &error));
    close_disk(disk);
    disk = open_disk();
    expect_err(hf_log_directory_init(disk, &identity, &error), HF_ESTATE);
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
    /* The refused start has not made the directory a valid one. */
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
    expect_err(hf_log_directory_init(disk, &identity, &error), HF_ESTATE);
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
    expect_err(hf_log_directory_open(disk, &other, 2, &found, &error),
               HF_EINVAL);
    expect_text("belongs to node 2 of cluster 636c7573");
    close_disk(disk);
    disk = open_disk();
    expect_err(
        hf_log_directory_open(disk, &identity.cluster, 3, &found, &error),
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
        expect_err(hf_log_directory_init(disk, &wrong, &error), HF_EINVAL);
        expect_text("the segment size is");
    }
    wrong = identity;
    wrong.node = 0;
    expect_err(hf_log_directory_init(disk, &wrong, &error), HF_EINVAL);
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
    };

    return hf_test_main("log_directory", cases, HF_TEST_COUNT(cases), 0);
}
