/* Directories and files that are unsuitable, damaged, copied or replaced. A
 * client refuses them with an error that names the file, or replaces the arena
 * if no client uses it and no lease runs. No token is repeated. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/remote.h"
#include "lib/site.h"

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(hf_site_path(name), "we");

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
    client = hf_site_open();
    assert_int_equal(stat(hf_site_path("locks"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(hf_site_path("locks/arena"), &st), 0);
    assert_int_equal(st.st_mode & 077, 0);
    hf_close(client, 1000);
}

static void shared_directory_has_the_mode_that_the_url_states(void **state)
{
    struct hf_client *client;
    struct stat st;

    (void)state;
    client = hf_site_open_at("locks", "?mode=0770");
    assert_int_equal(stat(hf_site_path("locks"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0770);
    assert_int_equal(stat(hf_site_path("locks/arena"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    hf_close(client, 1000);
    hf_site_refuse("locks", "", HF_EUNAVAIL, "other users may write");
    hf_site_refuse("locks", "?mode=777x", HF_EINVAL, "mode '777x'");
    hf_site_refuse("locks", "?mode=0070", HF_EINVAL, "mode '0070'");
}

static void link_in_place_of_the_directory_is_not_followed(void **state)
{
    const char *target = hf_site_path("elsewhere");

    (void)state;
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(symlink(target, hf_site_path("locks")), 0);
    hf_site_refuse("locks", "", HF_ESYSTEM, "/locks");
}

static void file_that_is_not_an_arena_is_left_alone(void **state)
{
    (void)state;
    assert_int_equal(mkdir(hf_site_path("locks"), 0700), 0);
    write_file("locks/arena", "a shopping list");
    hf_site_refuse("locks", "", HF_EPROTO, "/locks/arena: is not an arena");
    assert_int_equal(access(hf_site_path("locks/arena"), F_OK), 0);
}

static void token_file_without_a_number_is_refused(void **state)
{
    (void)state;
    assert_int_equal(mkdir(hf_site_path("locks"), 0700), 0);
    write_file("locks/token", "many\n");
    hf_site_refuse("locks", "", HF_EPROTO,
                   "/locks/token: does not contain a number");
}

static void tokens_continue_above_the_token_file(void **state)
{
    struct hf_client *client;
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(mkdir(hf_site_path("locks"), 0700), 0);
    write_file("locks/token", "123456789\n");
    client = hf_site_open();
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    assert_true(hf_lock_token(lock) > 123456789);
    hf_lock_free(lock);
    hf_close(client, 1000);
}

static void arena_of_another_boot_is_replaced(void **state)
{
    /* The clock starts at 0 at each boot, so after a reboot the time of the
     * last command may be ahead of it. */
    const int64_t later = INT64_MAX;
    struct hf_client *client = hf_site_open();
    struct hf_lock *lock;
    uint64_t token;
    int file;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    token = hf_lock_token(lock);
    hf_lock_free(lock);
    hf_close(client, 1000);
    /* Offset 16 has the boot id, offset 72 the time of the last command
     * (layout.h). */
    file = open(hf_site_path("locks/arena"), O_RDWR);
    assert_true(file >= 0);
    assert_int_equal(pwrite(file, "00000000", 8, 16), 8);
    assert_int_equal(pwrite(file, &later, sizeof(later), 72), sizeof(later));
    close(file);
    client = hf_site_open();
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    assert_true(hf_lock_token(lock) > token);
    hf_lock_free(lock);
    hf_close(client, 1000);
}

static uint64_t take_token(void)
{
    struct hf_client *client = hf_site_open();
    struct hf_lock *lock;
    uint64_t token;

    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    token = hf_lock_token(lock);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
    hf_close(client, 1000);
    return token;
}

/* Copy the start of the arena. Few locks were taken, so the rest is zeros. */
static void copy_arena(const char *to)
{
    static char bytes[2 << 20];
    int from = open(hf_site_path("locks/arena"), O_RDONLY);
    int file = open(hf_site_path(to), O_WRONLY | O_CREAT | O_EXCL, 0600);
    struct stat st;

    assert_int_equal(fstat(from, &st), 0);
    assert_int_equal(read(from, bytes, sizeof(bytes)), sizeof(bytes));
    assert_int_equal(write(file, bytes, sizeof(bytes)), sizeof(bytes));
    assert_int_equal(ftruncate(file, st.st_size), 0);
    close(file);
    close(from);
}

/* A backup does not have the tokens that were granted after it was made, so
 * tokens must not continue from it. */
static void copied_arena_never_repeats_a_token(void **state)
{
    char copy[128];
    uint64_t token;

    (void)state;
    (void)take_token();
    copy_arena("copy");
    token = take_token();
    (void)snprintf(copy, sizeof(copy), "%s", hf_site_path("copy"));
    assert_int_equal(rename(copy, hf_site_path("locks/arena")), 0);
    assert_true(take_token() > token);
    assert_true(take_token() > token + 1);
}

static void arena_replaced_by_a_copy_while_in_use_is_refused(void **state)
{
    struct hf_client *client = hf_site_open();
    struct hf_lock *lock;
    char copy[128];

    (void)state;
    copy_arena("copy");
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    (void)snprintf(copy, sizeof(copy), "%s", hf_site_path("copy"));
    assert_int_equal(rename(copy, hf_site_path("locks/arena")), 0);
    hf_site_refuse("locks", "", HF_EUNAVAIL,
                   "replaced while other programs use it");
    hf_lock_free(lock);
    hf_close(client, 1000);
    (void)take_token();
}

/* The version is at offset 8 (layout.h). */
static void write_version(uint32_t version)
{
    int file = open(hf_site_path("locks/arena"), O_RDWR);

    assert_true(file >= 0);
    assert_int_equal(pwrite(file, &version, sizeof(version), 8),
                     sizeof(version));
    close(file);
}

static void arena_of_another_version_is_replaced_when_unused(void **state)
{
    const struct timespec delay = {.tv_nsec = 10000000};
    struct hf_client *client = hf_site_open();
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    uint64_t token;

    (void)state;
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 200;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    token = hf_lock_token(lock);
    hf_lock_free(lock);
    write_version(4000000);
    hf_site_refuse("locks", "", HF_EPROTO, "in use by another version");
    hf_close(client, 1000);
    while (hf_site_try("locks", "", NULL, &client) == HF_EUNAVAIL)
        nanosleep(&delay, NULL); /* until the lease has expired */
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    assert_true(hf_lock_token(lock) > token);
    hf_lock_free(lock);
    hf_close(client, 1000);
}

static void exit_without_release(void *arg)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    (void)arg;
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 3600000;
    assert_int_equal(hf_acquire(hf_site_open(), hf_key_of("k"), &opts, &lock),
                     HF_OK);
}

static void arena_of_another_version_is_kept_while_a_lease_runs(void **state)
{
    (void)state;
    hf_child_join(hf_child_start(exit_without_release, NULL));
    write_version(4000000);
    hf_site_refuse("locks", "", HF_EUNAVAIL, "may run for another");
}

static void arena_removed_while_in_use_is_not_created_again(void **state)
{
    struct hf_client *client = hf_site_open();
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    assert_int_equal(remove(hf_site_path("locks/arena")), 0);
    hf_site_refuse("locks", "", HF_EUNAVAIL, "was removed or replaced");
    hf_lock_free(lock);
    hf_close(client, 1000);
}

static void full_disk_is_reported_when_the_arena_is_created(void **state)
{
    (void)state;
    assert_int_equal(mkdir(hf_site_path("small"), 0700), 0);
    if (mount("none", hf_site_path("small"), "tmpfs", 0, "size=256k,mode=0700"))
        hf_test_skip("mounting a small file system needs root");
    hf_site_refuse("small/locks", "", HF_ESYSTEM, "cannot allocate it");
    assert_int_equal(umount(hf_site_path("small")), 0);
}

static void file_size_limit_is_an_error_without_a_signal(void **state)
{
    const rlim_t limits[] = {0, 4096, 1 << 20};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct rlimit limit = {limits[i], RLIM_INFINITY};

        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        hf_site_refuse("locks", "", HF_ESYSTEM, "ulimit -f");
    }
}

static void directory_that_cannot_be_written_is_named(void **state)
{
    (void)state;
    assert_int_equal(mkdir(hf_site_path("fixed"), 0700), 0);
    if (mount("none", hf_site_path("fixed"), "tmpfs", MS_RDONLY, "size=64k"))
        hf_test_skip("mounting a read-only file system needs root");
    hf_site_refuse("fixed/locks", "", HF_ESYSTEM, "/fixed/locks");
    assert_int_equal(umount(hf_site_path("fixed")), 0);
}

static void arena_truncated_while_in_use_is_an_error(void **state)
{
    struct hf_client *client = hf_site_open();
    struct hf_error error;
    struct hf_lock *lock;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    assert_int_equal(truncate(hf_site_path("locks/arena"), 0), 0);
    assert_int_equal(hf_release(lock), HF_EPROTO);
    hf_lock_error(lock, &error);
    assert_non_null(strstr(error.text, "/locks/arena"));
    hf_lock_free(lock);
    hf_close(client, 1000);
}

static void arena_overwritten_while_in_use_is_an_error(void **state)
{
    struct hf_client *client = hf_site_open();
    struct hf_error error;
    struct hf_lock *lock;
    char junk[65536];
    int file;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    hf_lock_free(lock);
    memset(junk, 0xa5, sizeof(junk));
    file = open(hf_site_path("locks/arena"), O_RDWR);
    for (off_t at = 64; at < 1500000; at += (off_t)sizeof(junk))
        assert_int_equal(pwrite(file, junk, sizeof(junk), at), sizeof(junk));
    close(file);
    assert_int_not_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock),
                         HF_OK);
    hf_client_error(client, &error);
    assert_non_null(strstr(error.text, "/locks"));
    hf_close(client, 100);
}

/* A lock on a network file system would only exclude clients on the same
 * machine. */
static void network_file_system_is_refused_by_name(void **state)
{
    (void)state;
    assert_int_equal(mkdir(hf_site_path("remote"), 0700), 0);
    hf_remote_mount(hf_site_path("remote"));
    hf_site_refuse("remote", "?mode=0755", HF_EUNSUPPORTED,
                   "/remote: is on a network file system (FUSE)");
    assert_int_equal(umount2(hf_site_path("remote"), MNT_DETACH), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        HF_SITE_CASE(directory_is_private_whatever_the_umask),
        HF_SITE_CASE(shared_directory_has_the_mode_that_the_url_states),
        HF_SITE_CASE(link_in_place_of_the_directory_is_not_followed),
        HF_SITE_CASE(file_that_is_not_an_arena_is_left_alone),
        HF_SITE_CASE(token_file_without_a_number_is_refused),
        HF_SITE_CASE(tokens_continue_above_the_token_file),
        HF_SITE_CASE(arena_of_another_boot_is_replaced),
        HF_SITE_CASE(copied_arena_never_repeats_a_token),
        HF_SITE_CASE(arena_replaced_by_a_copy_while_in_use_is_refused),
        HF_SITE_CASE(arena_of_another_version_is_replaced_when_unused),
        HF_SITE_CASE(arena_of_another_version_is_kept_while_a_lease_runs),
        HF_SITE_CASE(arena_removed_while_in_use_is_not_created_again),
        HF_SITE_CASE(arena_truncated_while_in_use_is_an_error),
        HF_SITE_CASE(arena_overwritten_while_in_use_is_an_error),
        HF_SITE_CASE(full_disk_is_reported_when_the_arena_is_created),
        HF_SITE_CASE(file_size_limit_is_an_error_without_a_signal),
        HF_SITE_CASE(directory_that_cannot_be_written_is_named),
        HF_SITE_CASE(network_file_system_is_refused_by_name),
    };

    return hf_test_main("directory", cases, HF_TEST_COUNT(cases), 0);
}
