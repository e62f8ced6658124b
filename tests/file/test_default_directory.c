/* The default directory, which `file:` without a path means. It depends on the
 * user and the user's home, not on the environment, and is refused if it does
 * not belong to the user.
 *
 * Each case has its own password database, home and /var/tmp in a mount
 * namespace, so nothing of a real user is touched. */
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/alloc.h"
#include "lib/child.h"
#include "lib/expect.h"
#include "lib/remote.h"
#include "lib/site.h"

#define USER 64001 /* a uid that no real user is likely to have */
#define FALLBACK "/var/tmp/holdfast-64001"
#define STATE "home/.local/state/holdfast"

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(hf_site_path(name), "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void bind_mount(const char *path, const char *name)
{
    assert_int_equal(mount(hf_site_path(name), path, NULL, MS_BIND, NULL), 0);
}

static bool unshare_mounts(void)
{
    return !unshare(CLONE_NEWNS) &&
           !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static void write_database(const char *home)
{
    char line[192];

    (void)snprintf(line, sizeof(line), "somebody:x:%d:%d::%s:/bin/sh\n", USER,
                   USER, hf_site_path(home));
    write_file("passwd", line);
}

/* Create a user whose home is "home". */
static int set_up(void **state)
{
    if (!hf_child_try(unshare_mounts))
        hf_test_skip("a mount namespace needs root");
    if (hf_site_set_up(state) || chmod(hf_site_path(""), 0711) ||
        mkdir(hf_site_path("home"), 0700) ||
        chown(hf_site_path("home"), USER, USER))
        return -1;
    write_database("home");
    write_file("nsswitch.conf", "passwd: files\n");
    return 0;
}

/* Create the mount namespace of the case, which needs root. It hides nscd,
 * which would answer from the real password database. */
static void enter_namespace(void)
{
    assert_true(unshare_mounts());
    bind_mount("/etc/passwd", "passwd");
    if (access("/etc/nsswitch.conf", F_OK) == 0)
        bind_mount("/etc/nsswitch.conf", "nsswitch.conf");
    (void)mount("none", "/run/nscd", "tmpfs", 0, NULL);
    assert_int_equal(mount("none", "/var/tmp", "tmpfs", 0, "mode=1777"), 0);
    umask(0);
}

static void become_user(void)
{
    assert_int_equal(setgroups(0, NULL), 0);
    assert_int_equal(setgid(USER), 0);
    assert_int_equal(setuid(USER), 0);
}

static enum hf_err open_default(struct hf_error *error,
                                struct hf_client **client)
{
    struct hf_client_opts opts;

    hf_client_opts_init(&opts);
    opts.error = error;
    return hf_open("file:", &opts, client);
}

static struct hf_client *open_client(void)
{
    struct hf_error error = {.text = ""};
    struct hf_client *client;

    if (open_default(&error, &client))
        fail_msg("%s", error.text);
    return client;
}

static void expect_refusal(const char *path, enum hf_err expected,
                           const char *words)
{
    struct hf_error error = {.text = ""};
    struct hf_client *client;
    enum hf_err err = open_default(&error, &client);

    if (err != expected || !strstr(error.text, path) ||
        !strstr(error.text, words))
        fail_msg("%s (%s), expected %s and \"%s\" about %s", hf_err_name(err),
                 error.text, hf_err_name(expected), words, path);
}

static void expect_private(const char *path)
{
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(st.st_uid, USER);
}

static void expect_at(const char *path)
{
    char arena[192];
    struct hf_client *client = open_client();

    (void)snprintf(arena, sizeof(arena), "%s/arena", path);
    expect_private(path);
    assert_int_equal(access(arena, F_OK), 0);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

/* ---- The path -----------------------------------------------------------*/

/* A shell and a cron job use the same directory, whatever their environment
 * says. */
static void expect_same_directory(void *arg)
{
    static const char *const names[] = {"HOME", "XDG_STATE_HOME",
                                        "XDG_RUNTIME_DIR", "TMPDIR", "USER"};
    struct hf_client *shell, *cron;
    struct hf_lock *lock, *other;
    struct hf_lock_opts opts;

    (void)arg;
    enter_namespace();
    become_user();
    hf_lock_opts_init(&opts);
    opts.wait_ms = 0;
    shell = open_client();
    assert_int_equal(hf_acquire(shell, hf_key_of("k"), &opts, &lock), HF_OK);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(setenv(names[i], "/var/tmp", 1), 0);
    cron = open_client();
    assert_int_equal(hf_acquire(cron, hf_key_of("k"), &opts, &other), HF_EBUSY);
    assert_int_equal(clearenv(), 0);
    cron = open_client();
    assert_int_equal(hf_acquire(cron, hf_key_of("k"), &opts, &other), HF_EBUSY);
    expect_at(hf_site_path(STATE));
}

static void default_directory_is_in_the_home_of_the_password_database(
    void **state)
{
    (void)state;
    hf_child_join(hf_child_start(expect_same_directory, NULL));
}

static void open_without_a_home(void *arg)
{
    (void)arg;
    enter_namespace();
    become_user();
    expect_at(FALLBACK);
    expect_at(FALLBACK);
}

static void default_directory_is_in_var_tmp_if_the_home_is_missing(void **state)
{
    (void)state;
    write_database("no-such-home");
    hf_child_join(hf_child_start(open_without_a_home, NULL));
}

static void default_directory_is_in_var_tmp_if_the_user_is_unknown(void **state)
{
    (void)state;
    write_file("passwd", "root:x:0:0::/root:/bin/sh\n");
    hf_child_join(hf_child_start(open_without_a_home, NULL));
}

static void default_directory_is_in_var_tmp_if_the_home_is_on_a_network(
    void **state)
{
    (void)state;
    hf_remote_mount(hf_site_path("home"));
    hf_child_join(hf_child_start(open_without_a_home, NULL));
    assert_int_equal(umount2(hf_site_path("home"), MNT_DETACH), 0);
}

static void open_as_user(void *arg)
{
    become_user();
    expect_at(arg);
}

static void expect_at_as_user(const char *path)
{
    char copy[192];

    (void)snprintf(copy, sizeof(copy), "%s", path);
    hf_child_join(hf_child_start(open_as_user, copy));
}

/* ---- A home that cannot be written --------------------------------------*/

/* A fallback would be a second store, so opening fails, and the error text
 * names two solutions. */
static void expect_no_second_store(const char *path)
{
    expect_refusal(path, HF_EUNAVAIL, "--url file:DIR or HOLDFAST_URL");
    expect_refusal(path, HF_EUNAVAIL, "ReadWritePaths=");
    assert_int_not_equal(access(FALLBACK, F_OK), 0);
}

static void open_in_a_home_of_root(void *arg)
{
    (void)arg;
    enter_namespace();
    assert_int_equal(chown(hf_site_path("home"), 0, 0), 0);
    assert_int_equal(chmod(hf_site_path("home"), 0755), 0);
    become_user();
    expect_no_second_store(hf_site_path(STATE));
}

static void home_that_cannot_be_written_is_refused(void **state)
{
    (void)state;
    hf_child_join(hf_child_start(open_in_a_home_of_root, NULL));
}

static void open_in_a_hidden_home(void *arg)
{
    (void)arg;
    enter_namespace();
    become_user();
    expect_no_second_store(hf_site_path("hidden/home"));
}

/* This is what a service with ProtectHome=yes in its systemd unit sees. */
static void home_that_cannot_be_seen_is_refused(void **state)
{
    (void)state;
    write_database("hidden/home");
    assert_int_equal(mkdir(hf_site_path("hidden"), 0), 0);
    hf_child_join(hf_child_start(open_in_a_hidden_home, NULL));
}

/* Call hf_open() with its nth allocation failing, for n = 1, 2, ..., until it
 * makes fewer than n allocations. No attempt may create the fallback directory,
 * which would be a second store. */
static void open_without_memory(void *arg)
{
    struct hf_client *client;
    bool failed = true;

    (void)arg;
    enter_namespace();
    become_user();
    for (unsigned long nth = 1; failed && nth < 1000; nth++) {
        enum hf_err err;

        hf_alloc_fail(nth, 1);
        err = hf_open("file:", NULL, &client);
        failed = hf_alloc_failed();
        if (err == HF_OK)
            (void)hf_close(client, 1000);
        assert_int_not_equal(access(FALLBACK, F_OK), 0);
    }
    assert_false(failed);
}

static void lack_of_memory_leads_to_no_second_store(void **state)
{
    (void)state;
    hf_child_join(hf_child_start(open_without_memory, NULL));
}

static void open_in_a_read_only_home(void *arg)
{
    const char *home = hf_site_path("home");

    enter_namespace();
    if (arg)
        expect_at_as_user(hf_site_path(STATE));
    assert_int_equal(mount(home, home, NULL, MS_BIND, NULL), 0);
    assert_int_equal(
        mount(NULL, home, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
    become_user();
    expect_refusal(hf_site_path(STATE), arg ? HF_ESYSTEM : HF_EUNAVAIL,
                   "ReadWritePaths=");
    assert_int_not_equal(access(FALLBACK, F_OK), 0);
}

/* This is what a service with ProtectHome=read-only sees, before and after the
 * first lock. */
static void home_that_is_mounted_read_only_is_refused(void **state)
{
    bool is_used = true;

    (void)state;
    hf_child_join(hf_child_start(open_in_a_read_only_home, NULL));
    hf_child_join(hf_child_start(open_in_a_read_only_home, &is_used));
}

/* ---- The owner ----------------------------------------------------------*/

static void create_parents(void)
{
    static const char *const names[] = {"home/.local", "home/.local/state"};

    for (int i = 0; i < 2; i++) {
        assert_int_equal(mkdir(hf_site_path(names[i]), 0700), 0);
        assert_int_equal(chown(hf_site_path(names[i]), USER, USER), 0);
    }
}

static void expect_link_refused(void *arg)
{
    (void)arg;
    enter_namespace();
    create_parents();
    become_user();
    assert_int_equal(mkdir(hf_site_path("home/elsewhere"), 0700), 0);
    assert_int_equal(
        symlink(hf_site_path("home/elsewhere"), hf_site_path(STATE)), 0);
    expect_refusal(hf_site_path(STATE), HF_ESYSTEM, "cannot open it");
    assert_int_equal(rmdir(hf_site_path("home/elsewhere")), 0);
    expect_refusal(hf_site_path(STATE), HF_ESYSTEM, "cannot open it");
}

static void link_in_place_of_the_default_directory_is_not_followed(void **state)
{
    (void)state;
    hf_child_join(hf_child_start(expect_link_refused, NULL));
}

static void expect_foreign_refused(void *arg)
{
    (void)arg;
    enter_namespace();
    create_parents();
    assert_int_equal(mkdir(hf_site_path(STATE), 0777), 0);
    become_user();
    expect_refusal(hf_site_path(STATE), HF_EUNAVAIL, "belongs to user 0");
}

static void directory_of_another_user_is_refused(void **state)
{
    (void)state;
    hf_child_join(hf_child_start(expect_foreign_refused, NULL));
}

/* Any user can create a directory in /var/tmp before this user does, so the
 * directory of another user has to be refused. */
static void expect_squatter_refused(void *arg)
{
    (void)arg;
    enter_namespace();
    assert_int_equal(mkdir(FALLBACK, 0777), 0);
    become_user();
    expect_refusal(FALLBACK, HF_EUNAVAIL, "belongs to user 0");
}

static void squatter_in_var_tmp_is_refused(void **state)
{
    (void)state;
    write_database("no-such-home");
    hf_child_join(hf_child_start(expect_squatter_refused, NULL));
}

static void expect_writable_refused(void *arg)
{
    (void)arg;
    enter_namespace();
    become_user();
    expect_at(hf_site_path(STATE));
    assert_int_equal(chmod(hf_site_path(STATE), 0722), 0);
    expect_refusal(hf_site_path(STATE), HF_EUNAVAIL, "other users may write");
}

static void directory_that_others_may_write_to_is_refused(void **state)
{
    (void)state;
    hf_child_join(hf_child_start(expect_writable_refused, NULL));
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_site_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(default_directory_is_in_the_home_of_the_password_database),
        CASE(default_directory_is_in_var_tmp_if_the_home_is_missing),
        CASE(default_directory_is_in_var_tmp_if_the_user_is_unknown),
        CASE(default_directory_is_in_var_tmp_if_the_home_is_on_a_network),
        CASE(home_that_cannot_be_written_is_refused),
        CASE(home_that_cannot_be_seen_is_refused),
        CASE(home_that_is_mounted_read_only_is_refused),
        CASE(lack_of_memory_leads_to_no_second_store),
        CASE(link_in_place_of_the_default_directory_is_not_followed),
        CASE(directory_of_another_user_is_refused),
        CASE(squatter_in_var_tmp_is_refused),
        CASE(directory_that_others_may_write_to_is_refused),
    };

    return hf_test_main("default_directory", cases, HF_TEST_COUNT(cases), 0);
}
