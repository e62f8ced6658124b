/* The disk is full while locks are held on it: calls that need room fail and
 * say why, and calls succeed again as soon as there is room. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/expect.h"
#include "lib/site.h"
#include "strategy/file/layout.h"

#define SHORT_MS 500

/* ---- Disks --------------------------------------------------------------*/

static void create_mount_point(void)
{
    if (unshare(CLONE_NEWNS) ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        hf_test_skip("this user cannot mount a file system");
    assert_int_equal(mkdir(hf_site_path("disk"), 0700), 0);
}

static void mount_tmpfs(void)
{
    create_mount_point();
    assert_int_equal(
        mount("full", hf_site_path("disk"), "tmpfs", 0, "size=4m,mode=0700"),
        0);
}

static void unmount_disk(void)
{
    assert_int_equal(umount2(hf_site_path("disk"), MNT_DETACH), 0);
}

static void fill_disk(void)
{
    static char block[4096];
    int file =
        open(hf_site_path("disk/fill"), O_WRONLY | O_CREAT | O_APPEND, 0600);

    assert_true(file >= 0);
    memset(block, 'x', sizeof(block));
    while (write(file, block, sizeof(block)) > 0)
        continue;
    assert_int_equal(errno, ENOSPC);
    close(file);
}

/* Write dirty pages back, so that the next write to them needs room: a page
 * that is already dirty needs none. */
static void sync_disk(void)
{
    int disk = open(hf_site_path("disk"), O_RDONLY | O_DIRECTORY);

    assert_true(disk >= 0);
    assert_int_equal(syncfs(disk), 0);
    close(disk);
}

/* Deallocate a part of the log that is not used yet, so that writing to it
 * needs room, as any write does on a file system with copy on write. */
static void punch_log(void)
{
    int file = open(hf_site_path("disk/locks/arena"), O_RDWR);
    off_t begin = (off_t)(HF_ARENA_RING_AT + 8192) & ~(off_t)4095;

    assert_true(file >= 0);
    assert_int_equal(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                               begin, HF_ARENA_RING_FIRST / 2),
                     0);
    close(file);
}

/* ---- Locks --------------------------------------------------------------*/

static enum hf_err lock_once(struct hf_client *client, struct hf_error *error)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    enum hf_err err;

    hf_lock_opts_init(&opts);
    opts.timeout_ms = SHORT_MS;
    opts.ttl_ms = SHORT_MS;
    err = hf_acquire(client, hf_key_of("k"), &opts, &lock);
    if (!err) {
        err = hf_release(lock);
        hf_lock_free(lock);
    }
    if (err)
        hf_client_error(client, error);
    return err;
}

static enum hf_err lock_until_full(struct hf_client *client)
{
    struct hf_error error = {.text = ""};
    enum hf_err err = HF_OK;

    while (!err)
        err = lock_once(client, &error);
    if (!strstr(error.text, "disk/locks/arena: cannot be written") ||
        !strstr(error.text, "the disk is full"))
        fail_msg("\"%s\" does not say that the disk is full", error.text);
    return err;
}

static void open_and_fail(void *arg)
{
    struct hf_error error = {.text = ""};
    struct hf_client *client = NULL;
    enum hf_err err;

    (void)arg;
    err = hf_site_try("disk/locks", "", &error, &client);
    if (!err)
        (void)lock_until_full(client);
    else if (!strstr(error.text, "full") && !strstr(error.text, "No space"))
        fail_msg("\"%s\" does not say that the disk is full", error.text);
}

static void full_disk_is_reported_until_there_is_room(void **state)
{
    struct hf_client *client, *other;
    struct hf_lock_opts opts = hf_site_wait_opts();
    struct hf_error error;
    struct hf_lock *held;

    (void)state;
    mount_tmpfs();
    client = hf_site_open_at("disk/locks", "");
    other = hf_site_open_at("disk/locks", "");
    assert_int_equal(hf_acquire(client, hf_key_of("held"), &opts, &held),
                     HF_OK);
    punch_log();
    fill_disk();
    assert_int_equal(lock_until_full(client), HF_EUNAVAIL);
    assert_int_equal(lock_until_full(other), HF_EUNAVAIL);
    hf_child_join(hf_child_start(open_and_fail, NULL));
    assert_true(hf_lock_valid_for(held, 0));
    assert_int_equal(remove(hf_site_path("disk/fill")), 0);
    assert_int_equal(lock_once(other, &error), HF_OK);
    assert_int_equal(lock_once(client, &error), HF_OK);
    assert_int_equal(hf_renew(held, 0), HF_OK);
    assert_int_equal(hf_release(held), HF_OK);
    hf_lock_free(held);
    assert_int_equal(hf_close(other, HF_TEST_TIMEOUT_MS), HF_OK);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
    unmount_disk();
}

/* The thread that opens a client accesses the mapping too, so it has to survive
 * a SIGBUS as well. */
static void client_that_opens_in_a_thread_survives_a_full_disk(void **state)
{
    struct hf_client *client, *late;
    struct hf_future *future;
    struct hf_error error;
    enum hf_err err = HF_OK;

    (void)state;
    mount_tmpfs();
    client = hf_site_open_at("disk/locks", "");
    assert_int_equal(lock_once(client, &error), HF_OK);
    punch_log();
    fill_disk();
    (void)lock_until_full(client);
    for (int i = 0; i < 20 && !err; i++) {
        char url[512];

        (void)snprintf(url, sizeof(url), "file:%s", hf_site_path("disk/locks"));
        assert_int_equal(hf_open_start(url, NULL, &late, NULL, NULL, &future),
                         HF_OK);
        assert_int_equal(hf_future_wait(future, HF_FOREVER, &err), HF_OK);
        hf_future_free(future);
        (void)hf_close(late, HF_TEST_TIMEOUT_MS);
    }
    assert_true(err == HF_EUNAVAIL || err == HF_ESYSTEM);
    (void)hf_close(client, HF_TEST_TIMEOUT_MS);
    unmount_disk();
}

/* ---- Copy on write ------------------------------------------------------*/

static bool mount_btrfs(void)
{
    char command[1024];

    create_mount_point();
    (void)snprintf(command, sizeof(command),
                   "PATH=$PATH:/sbin:/usr/sbin; truncate -s 120M %s && "
                   "mkfs.btrfs -q %s >/dev/null 2>&1 && mount -o loop %s %s "
                   "2>/dev/null",
                   hf_site_path("image"), hf_site_path("image"),
                   hf_site_path("image"), hf_site_path("disk"));
    return system(command) == 0;
}

static void full_btrfs_blocks_no_client(void **state)
{
    struct hf_lock_opts opts = hf_site_wait_opts();
    struct hf_client *client;
    struct hf_error error;
    struct hf_lock *held;

    (void)state;
    if (!mount_btrfs())
        hf_test_skip("btrfs cannot be created or mounted here");
    client = hf_site_open_at("disk/locks", "");
    assert_int_equal(hf_acquire(client, hf_key_of("held"), &opts, &held),
                     HF_OK);
    for (int i = 0; i < 4; i++) {
        fill_disk();
        sync_disk();
        assert_int_equal(lock_once(client, &error), HF_OK);
        assert_int_equal(hf_renew(held, 0), HF_OK);
    }
    assert_int_equal(hf_release(held), HF_OK);
    hf_lock_free(held);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
    unmount_disk();
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        HF_SITE_CASE(full_disk_is_reported_until_there_is_room),
        HF_SITE_CASE(client_that_opens_in_a_thread_survives_a_full_disk),
        HF_SITE_CASE(full_btrfs_blocks_no_client),
    };

    return hf_test_main("full_disk", cases, HF_TEST_COUNT(cases), 0);
}
