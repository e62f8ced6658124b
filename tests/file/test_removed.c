/* The directory is removed, renamed or replaced while locks are held in it. The
 * next client that opens the path finds another directory, so clients of the
 * old one must notice: a holder loses its lock within the lease, a waiter gets
 * an error, and both errors name the directory. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/expect.h"
#include "lib/folder.h"
#include "lib/site.h"

#define TTL_MS 1000

static void pause_briefly(void)
{
    const struct timespec delay = {.tv_nsec = 5000000};

    nanosleep(&delay, NULL);
}

static void rename_locks(void)
{
    assert_int_equal(rename(hf_site_path("locks"), hf_site_path("moved")), 0);
}

static void remove_locks(void)
{
    assert_true(hf_test_folder_remove(hf_site_path("locks")));
}

static void replace_locks(void)
{
    rename_locks();
    assert_int_equal(mkdir(hf_site_path("locks"), 0700), 0);
}

static void rename_parent(void)
{
    assert_int_equal(rename(hf_site_path("parent"), hf_site_path("moved")), 0);
}

static void expect_named(const struct hf_error *error, const char *name)
{
    if (!strstr(error->text, hf_site_path(name)))
        fail_msg("\"%s\" does not contain %s", error->text, name);
}

/* ---- Holders ------------------------------------------------------------*/

static void expect_holder_lost(const char *name, void (*damage)(void))
{
    struct hf_client *client = hf_site_open_at(name, "");
    struct hf_lock_opts opts;
    struct hf_error error;
    struct hf_lock *lock;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = TTL_MS;
    opts.renew = true;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    damage();
    while (hf_lock_state(lock) != HF_LOCK_LOST)
        pause_briefly();
    hf_lock_error(lock, &error);
    expect_named(&error, name);
    hf_lock_free(lock);
    (void)hf_close(client, 0);
}

static void holder_loses_its_lock_when_the_directory_is_renamed(void **state)
{
    (void)state;
    expect_holder_lost("locks", rename_locks);
}

static void holder_loses_its_lock_when_the_directory_is_removed(void **state)
{
    (void)state;
    expect_holder_lost("locks", remove_locks);
}

static void holder_loses_its_lock_when_the_directory_is_replaced(void **state)
{
    (void)state;
    expect_holder_lost("locks", replace_locks);
}

static void holder_loses_its_lock_when_the_parent_is_renamed(void **state)
{
    (void)state;
    assert_int_equal(mkdir(hf_site_path("parent"), 0700), 0);
    expect_holder_lost("parent/locks", rename_parent);
}

/* A relative URL means the directory that it named when the client was
 * opened. */
static void holder_keeps_its_lock_when_the_program_changes_directory(
    void **state)
{
    struct hf_client *client;
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(chdir(hf_site_path("")), 0);
    assert_int_equal(hf_open("file:locks", NULL, &client), HF_OK);
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    assert_int_equal(chdir("/"), 0);
    for (int i = 0; i < 50;
         i++) { /* repeat for longer than the interval between two checks */
        assert_int_equal(hf_renew(lock, 0), HF_OK);
        pause_briefly();
    }
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

/* The path now leads elsewhere, but the directory is still the same, so the
 * client must not report that it was removed. */
static void holder_keeps_its_lock_when_the_program_changes_its_root(
    void **state)
{
    struct hf_client *client = hf_site_open();
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(mkdir(hf_site_path("root"), 0700), 0);
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    if (chroot(hf_site_path("root")))
        hf_test_skip("changing the root needs root");
    for (int i = 0; i < 50; i++) {
        assert_int_equal(hf_renew(lock, 0), HF_OK);
        pause_briefly();
    }
    assert_int_equal(hf_release(lock), HF_OK);
    assert_int_equal(chroot("../../../../../.."), 0);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

/* ---- Waiters ------------------------------------------------------------*/

static void expect_waiter_refused(void (*damage)(void))
{
    struct hf_client *holder = hf_site_open(), *waiter = hf_site_open();
    struct hf_lock_opts opts = hf_site_wait_opts();
    struct hf_future *future;
    struct hf_lock *held, *lock = NULL;
    struct hf_error error;
    enum hf_err err = HF_OK;

    opts.ttl_ms = 3600000;
    assert_int_equal(hf_acquire(holder, hf_key_of("k"), &opts, &held), HF_OK);
    assert_int_equal(hf_acquire_start(waiter, hf_key_of("k"), &opts, &lock,
                                      NULL, NULL, &future),
                     HF_OK);
    hf_site_await_waiters(holder, "k", 1);
    damage();
    assert_int_equal(hf_future_wait(future, HF_FOREVER, &err), HF_OK);
    assert_int_equal(err, HF_EPROTO);
    hf_future_error(future, &error);
    expect_named(&error, "locks");
    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(held);
    (void)hf_close(waiter, 0);
    (void)hf_close(holder, 0);
}

static void waiter_fails_when_the_directory_is_renamed(void **state)
{
    (void)state;
    expect_waiter_refused(rename_locks);
}

static void waiter_fails_when_the_directory_is_removed(void **state)
{
    (void)state;
    expect_waiter_refused(remove_locks);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        HF_SITE_CASE(holder_loses_its_lock_when_the_directory_is_renamed),
        HF_SITE_CASE(holder_loses_its_lock_when_the_directory_is_removed),
        HF_SITE_CASE(holder_loses_its_lock_when_the_directory_is_replaced),
        HF_SITE_CASE(holder_loses_its_lock_when_the_parent_is_renamed),
        HF_SITE_CASE(holder_keeps_its_lock_when_the_program_changes_directory),
        HF_SITE_CASE(holder_keeps_its_lock_when_the_program_changes_its_root),
        HF_SITE_CASE(waiter_fails_when_the_directory_is_renamed),
        HF_SITE_CASE(waiter_fails_when_the_directory_is_removed),
    };

    return hf_test_main("removed", cases, HF_TEST_COUNT(cases), 0);
}
