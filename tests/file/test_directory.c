/* What can be wrong with the directory and its files: each has an error that
 * names the culprit, and nothing is lost that others hold. */
#include <fcntl.h>
#include <holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/folder.h"
#include "lib/runner.h"

static char directory[] = HF_TEST_FOLDER;

static int set_up(void **state)
{
    (void)state;
    return hf_test_folder_make(directory) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return hf_test_folder_remove(directory) ? 0 : -1;
}

static char *inside(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

static enum hf_err try_open(const char *name, const char *options,
                            struct hf_error *error, struct hf_client **client)
{
    struct hf_client_opts opts;
    char url[192];

    hf_client_opts_init(&opts);
    opts.error = error;
    (void)snprintf(url, sizeof(url), "file:%s%s", inside(name), options);
    return hf_open(url, &opts, client);
}

static void expect_refusal(const char *name, const char *options,
                           enum hf_err expected, const char *words)
{
    struct hf_client *client;
    struct hf_error error = {.text = ""};
    enum hf_err err = try_open(name, options, &error, &client);

    if (err != expected || !strstr(error.text, words))
        fail_msg("%s (%s), should be %s and say \"%s\"", hf_err_name(err),
                 error.text, hf_err_name(expected), words);
}

static struct hf_client *open_good(const char *name, const char *options)
{
    struct hf_client *client;
    struct hf_error error = {.text = ""};

    if (try_open(name, options, &error, &client))
        fail_msg("%s", error.text);
    return client;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(inside(name), "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void directory_is_private_whatever_the_umask(void **state)
{
    struct hf_client *client;
    struct stat st;

    (void)state;
    umask(0);
    client = open_good("locks", "");
    assert_int_equal(stat(inside("locks"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(inside("locks/arena"), &st), 0);
    assert_int_equal(st.st_mode & 077, 0);
    hf_close(client, 1000);
}

static void shared_directory_has_the_mode_that_the_url_states(void **state)
{
    struct hf_client *client;
    struct stat st;

    (void)state;
    client = open_good("locks", "?mode=0770");
    assert_int_equal(stat(inside("locks"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0770);
    assert_int_equal(stat(inside("locks/arena"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    hf_close(client, 1000);
    expect_refusal("locks", "", HF_EUNAVAIL, "others may write");
    expect_refusal("locks", "?mode=777x", HF_EINVAL, "mode '777x'");
    expect_refusal("locks", "?mode=0070", HF_EINVAL, "mode '0070'");
}

static void link_in_place_of_the_directory_is_not_followed(void **state)
{
    char target[128];

    (void)state;
    (void)snprintf(target, sizeof(target), "%s", inside("elsewhere"));
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(symlink(target, inside("locks")), 0);
    expect_refusal("locks", "", HF_ESYSTEM, "/locks");
}

static void what_is_no_arena_is_left_alone(void **state)
{
    (void)state;
    assert_int_equal(mkdir(inside("locks"), 0700), 0);
    write_file("locks/arena", "a shopping list");
    expect_refusal("locks", "", HF_EPROTO, "/locks/arena: is no arena");
    assert_int_equal(access(inside("locks/arena"), F_OK), 0);
}

static void token_mark_that_is_scribbled_is_refused(void **state)
{
    (void)state;
    assert_int_equal(mkdir(inside("locks"), 0700), 0);
    write_file("locks/token", "many\n");
    expect_refusal("locks", "", HF_EPROTO, "/locks/token: is no number");
}

static void token_mark_is_where_tokens_go_on(void **state)
{
    struct hf_client *client;
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(mkdir(inside("locks"), 0700), 0);
    write_file("locks/token", "123456789\n");
    client = open_good("locks", "");
    assert_int_equal(hf_lock(client, hf_key("k"), NULL, &lock), HF_OK);
    assert_true(hf_token(lock) > 123456789);
    hf_lock_free(lock);
    hf_close(client, 1000);
}

static void arena_of_another_boot_is_made_anew(void **state)
{
    struct hf_client *client = open_good("locks", "");
    struct hf_lock *lock;
    uint64_t token;
    int file;

    (void)state;
    assert_int_equal(hf_lock(client, hf_key("k"), NULL, &lock), HF_OK);
    token = hf_token(lock);
    hf_lock_free(lock);
    hf_close(client, 1000);
    /* The boot is named in the first line of the file. */
    file = open(inside("locks/arena"), O_RDWR);
    assert_true(file >= 0);
    assert_int_equal(pwrite(file, "00000000", 8, 16), 8);
    close(file);
    client = open_good("locks", "");
    assert_int_equal(hf_lock(client, hf_key("k"), NULL, &lock), HF_OK);
    assert_true(hf_token(lock) > token);
    hf_lock_free(lock);
    hf_close(client, 1000);
}

static void arena_removed_while_it_is_used_is_not_made_twice(void **state)
{
    struct hf_client *client = open_good("locks", "");
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_lock(client, hf_key("k"), NULL, &lock), HF_OK);
    assert_int_equal(remove(inside("locks/arena")), 0);
    expect_refusal("locks", "", HF_EUNAVAIL, "was removed while others use it");
    hf_lock_free(lock);
    hf_close(client, 1000);
}

static void full_disk_is_told_when_the_arena_is_made(void **state)
{
    (void)state;
    assert_int_equal(mkdir(inside("small"), 0700), 0);
    if (mount("none", inside("small"), "tmpfs", 0, "size=256k,mode=0700"))
        hf_test_skip("mounting a small file system needs root");
    expect_refusal("small/locks", "", HF_ESYSTEM, "no room");
    assert_int_equal(umount(inside("small")), 0);
}

static void directory_that_cannot_be_written_is_named(void **state)
{
    (void)state;
    assert_int_equal(mkdir(inside("fixed"), 0700), 0);
    if (mount("none", inside("fixed"), "tmpfs", MS_RDONLY, "size=64k"))
        hf_test_skip("mounting a read-only file system needs root");
    expect_refusal("fixed/locks", "", HF_ESYSTEM, "/fixed/locks");
    assert_int_equal(umount(inside("fixed")), 0);
}

static void arena_cut_short_while_it_is_used_is_an_error(void **state)
{
    struct hf_client *client = open_good("locks", "");
    struct hf_error error;
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_lock(client, hf_key("k"), NULL, &lock), HF_OK);
    assert_int_equal(truncate(inside("locks/arena"), 0), 0);
    assert_int_equal(hf_unlock(lock), HF_EPROTO);
    hf_lock_error(lock, &error);
    assert_non_null(strstr(error.text, "/locks/arena"));
    hf_lock_free(lock);
    hf_close(client, 1000);
}

static void arena_that_is_scribbled_over_is_an_error(void **state)
{
    struct hf_client *client = open_good("locks", "");
    struct hf_error error;
    struct hf_lock *lock;
    char junk[65536];
    int file;

    (void)state;
    assert_int_equal(hf_lock(client, hf_key("k"), NULL, &lock), HF_OK);
    hf_lock_free(lock);
    memset(junk, 0xa5, sizeof(junk));
    file = open(inside("locks/arena"), O_RDWR);
    for (off_t at = 64; at < 1500000; at += (off_t)sizeof(junk))
        assert_int_equal(pwrite(file, junk, sizeof(junk), at), sizeof(junk));
    close(file);
    assert_int_not_equal(hf_lock(client, hf_key("k"), NULL, &lock), HF_OK);
    hf_client_error(client, &error);
    assert_non_null(strstr(error.text, "/locks"));
    hf_close(client, 100);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(directory_is_private_whatever_the_umask),
        CASE(shared_directory_has_the_mode_that_the_url_states),
        CASE(link_in_place_of_the_directory_is_not_followed),
        CASE(what_is_no_arena_is_left_alone),
        CASE(token_mark_that_is_scribbled_is_refused),
        CASE(token_mark_is_where_tokens_go_on),
        CASE(arena_of_another_boot_is_made_anew),
        CASE(arena_removed_while_it_is_used_is_not_made_twice),
        CASE(arena_cut_short_while_it_is_used_is_an_error),
        CASE(arena_that_is_scribbled_over_is_an_error),
        CASE(full_disk_is_told_when_the_arena_is_made),
        CASE(directory_that_cannot_be_written_is_named),
    };

    return hf_test_main("directory", cases, HF_TEST_COUNT(cases), 0);
}
