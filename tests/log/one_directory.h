/* one_directory.h - the fixture of cases with a node's directory on a real
 * disk. */
#ifndef HF_TESTS_LOG_ONE_DIRECTORY_H
#define HF_TESTS_LOG_ONE_DIRECTORY_H

#include <stdio.h>

#include "lib/expect.h"
#include "lib/folder.h"
#include "lib/runner.h"
#include "log/directory.h"
#include "log/wal.h"

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

    expect_ok(hf_log_directory_init(disk, &identity, &error));
    close_disk(disk);
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

/* Open the directory and its log, and set `*last` to the index of the last
 * entry. Returns NULL and sets `*err` if one of them is refused. */
static struct hf_wal *open_log(struct hf_disk *disk, enum hf_err *err,
                               uint64_t *last)
{
    const struct hf_log_visitor visitor = {on_base, on_entry, last};
    struct hf_wal_opts opts = {0};
    struct hf_wal_recovered recovered;
    struct hf_wal *wal = NULL;

    *last = 0;
    *err = hf_log_directory_open(disk, &identity.cluster, identity.node,
                                 &opts.identity, &error);
    if (!*err)
        *err = hf_wal_open(disk, &opts, &visitor, &wal, &recovered, &error);
    return wal;
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

#endif
