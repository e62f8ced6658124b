/* Unexpected files in the directory cause an error that names the file, or do
 * no harm; never a hang, a crash, or a write to a file elsewhere. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/expect.h"
#include "lib/folder.h"
#include "lib/site.h"

#define TIMEOUT_S 60 /* after this time, a case counts as hung */

enum kind {
    DIRECTORY,
    FIFO,
    PLAIN,
    LINK, /* a symbolic link to the file "theirs" */
    HARD_LINK,
    NULL_DEVICE,
    ZERO_DEVICE,
};

/* An unexpected file in "locks". */
struct oddity {
    const char *name;
    enum kind kind;
    enum hf_err err; /* expected error; HF_OK: opening may succeed or fail */
};

static const char *const kind_names[] = {
    "a directory", "a fifo",    "a plain file", "a link",
    "a hard link", "/dev/null", "/dev/zero",
};

/* "arena.new" and "token.new" stand for temporary files, whose names contain
 * the user id. */
static const char *path_of(const char *name)
{
    char below[64];

    if (strcmp(name, "arena.new") == 0 || strcmp(name, "token.new") == 0)
        (void)snprintf(below, sizeof(below), "locks/%.5s.%u.new", name,
                       (unsigned)geteuid());
    else
        (void)snprintf(below, sizeof(below), "locks/%s", name);
    return hf_site_path(below);
}

static void create_file(const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    assert_true(file >= 0);
    close(file);
}

/* Create the file that `oddity` describes, in place of any file with its name.
 * Returns false on failure; creating a device needs root. */
static bool create_oddity(const struct oddity *oddity)
{
    const char *path = path_of(oddity->name);

    (void)remove(path);
    switch (oddity->kind) {
    case DIRECTORY:
        return mkdir(path, 0700) == 0;
    case FIFO:
        return mkfifo(path, 0600) == 0;
    case PLAIN:
        create_file(path);
        return true;
    case LINK:
        return symlink(hf_site_path("theirs"), path) == 0;
    case HARD_LINK:
        return link(hf_site_path("theirs"), path) == 0;
    case NULL_DEVICE:
        return mknod(path, S_IFCHR | 0600, makedev(1, 3)) == 0;
    case ZERO_DEVICE:
        return mknod(path, S_IFCHR | 0600, makedev(1, 5)) == 0;
    }
    return false;
}

static int set_up(void **state)
{
    if (hf_site_set_up(state))
        return -1;
    create_file(hf_site_path("theirs"));
    return 0;
}

static void expect_theirs_untouched(void)
{
    struct stat st;

    assert_int_equal(stat(hf_site_path("theirs"), &st), 0);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

static void lock_once(struct hf_client *client)
{
    struct hf_lock *lock;

    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
}

static void open_with_oddity(void *arg)
{
    const struct oddity *oddity = arg;
    struct hf_client *client;
    struct hf_error error = {.text = ""};
    enum hf_err err;

    alarm(TIMEOUT_S);
    err = hf_site_try("locks", "", &error, &client);
    if (oddity->err)
        assert_int_equal(err, oddity->err);
    if (err && !strstr(error.text, path_of(oddity->name)))
        fail_msg("%s (%s) does not name the file", hf_err_name(err),
                 error.text);
    if (err)
        return;
    lock_once(client);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

/* For each of the files, create a new directory that contains it, and open a
 * client there. */
static void open_with_each(struct oddity *oddities, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            assert_true(hf_test_folder_remove(hf_site_path("locks")));
        assert_int_equal(mkdir(hf_site_path("locks"), 0700), 0);
        print_message("%s is %s\n", oddities[i].name,
                      kind_names[oddities[i].kind]);
        if (!create_oddity(&oddities[i]))
            assert_int_not_equal(geteuid(), 0);
        else
            hf_child_join(hf_child_start(open_with_oddity, &oddities[i]));
        expect_theirs_untouched();
    }
}

/* ---- While opening ------------------------------------------------------*/

static void arena_that_is_not_a_regular_file_is_refused(void **state)
{
    struct oddity oddities[] = {
        {"arena", DIRECTORY, HF_ESYSTEM},  {"arena", FIFO, HF_EPROTO},
        {"arena", LINK, HF_ESYSTEM},       {"arena", NULL_DEVICE, HF_EPROTO},
        {"arena", ZERO_DEVICE, HF_EPROTO}, {"arena", HARD_LINK, HF_EPROTO},
    };

    (void)state;
    open_with_each(oddities, HF_TEST_COUNT(oddities));
}

static void lock_file_that_is_not_a_regular_file_is_refused(void **state)
{
    struct oddity oddities[] = {
        {"lock", DIRECTORY, HF_ESYSTEM}, {"lock", LINK, HF_ESYSTEM},
        {"lock", FIFO, HF_EPROTO},       {"lock", NULL_DEVICE, HF_EPROTO},
        {"lock", HARD_LINK, HF_EPROTO},
    };

    (void)state;
    open_with_each(oddities, HF_TEST_COUNT(oddities));
}

static void token_file_that_is_not_a_regular_file_is_refused(void **state)
{
    struct oddity oddities[] = {
        {"token", DIRECTORY, HF_EPROTO},   {"token", LINK, HF_ESYSTEM},
        {"token", PLAIN, HF_EPROTO}, /* an empty file */
        {"token", NULL_DEVICE, HF_EPROTO}, {"token", ZERO_DEVICE, HF_EPROTO},
        {"token", HARD_LINK, HF_EPROTO},
    };

    (void)state;
    open_with_each(oddities, HF_TEST_COUNT(oddities));
}

static void token_file_that_is_a_fifo_is_refused(void **state)
{
    struct oddity oddities[] = {{"token", FIFO, HF_EPROTO}};

    (void)state;
    open_with_each(oddities, HF_TEST_COUNT(oddities));
}

static void file_at_the_temporary_token_name_is_refused_or_replaced(
    void **state)
{
    struct oddity oddities[] = {
        {"token.new", PLAIN, HF_OK},
        {"token.new", LINK, HF_OK},
        {"token.new", FIFO, HF_OK},
        {"token.new", DIRECTORY, HF_ESYSTEM},
    };

    (void)state;
    open_with_each(oddities, HF_TEST_COUNT(oddities));
}

static void file_at_the_temporary_arena_name_is_refused_or_replaced(
    void **state)
{
    struct oddity oddities[] = {
        {"arena.new", DIRECTORY, HF_ESYSTEM}, {"arena.new", PLAIN, HF_OK},
        {"arena.new", LINK, HF_OK},           {"arena.new", FIFO, HF_OK},
        {"arena.new", NULL_DEVICE, HF_OK},
    };

    (void)state;
    open_with_each(oddities, HF_TEST_COUNT(oddities));
}

static void file_in_place_of_a_fifo_is_replaced_or_skipped(void **state)
{
    struct oddity oddities[] = {
        {"wake.0", DIRECTORY, HF_OK},   {"wake.0", PLAIN, HF_OK},
        {"wake.0", LINK, HF_OK},        {"wake.0", FIFO, HF_OK},
        {"wake.0", NULL_DEVICE, HF_OK},
    };

    (void)state;
    open_with_each(oddities, HF_TEST_COUNT(oddities));
}

/* ---- While in use -------------------------------------------------------*/

static void wait_for_key(void *arg)
{
    struct hf_lock_opts opts;
    struct hf_lock *lock;

    (void)arg;
    hf_lock_opts_init(&opts);
    opts.wait_ms = TIMEOUT_S * 1000;
    assert_int_equal(hf_acquire(hf_site_open(), hf_key_of("k"), &opts, &lock),
                     HF_OK);
    assert_int_equal(hf_release(lock), HF_OK);
}

/* The FIFO no longer wakes the waiter, so the waiter notices its grant when it
 * polls. */
static void waiter_is_served_when_its_fifo_is_replaced(void **state)
{
    const struct oddity oddities[] = {
        {"wake.1", PLAIN, HF_OK},     {"wake.1", LINK, HF_OK},
        {"wake.1", HARD_LINK, HF_OK}, {"wake.1", DIRECTORY, HF_OK},
        {"wake.1", FIFO, HF_OK}, /* another FIFO, which nobody reads */
    };
    struct hf_client *client = hf_site_open();

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(oddities); i++) {
        struct hf_lock *lock;
        pid_t pid;

        assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock),
                         HF_OK);
        pid = hf_child_start(wait_for_key, NULL);
        hf_site_await_waiters(client, "k", 1);
        assert_true(create_oddity(&oddities[i]));
        assert_int_equal(hf_release(lock), HF_OK);
        hf_child_join(pid);
        expect_theirs_untouched();
        hf_lock_free(lock);
        (void)remove(path_of("wake.1"));
    }
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

static enum hf_err try_to_lock(struct hf_client *client)
{
    struct hf_lock *lock;
    enum hf_err err = hf_acquire(client, hf_key_of("k"), NULL, &lock);

    if (!err)
        hf_lock_free(lock);
    return err;
}

/* Clients that open the directory now would use another arena, so the old arena
 * must not grant anything. */
static void expect_broken(struct hf_client *client)
{
    const struct timespec delay = {.tv_nsec = 10000000};
    struct hf_error error;
    enum hf_err err = HF_OK;

    for (int i = 0; i < TIMEOUT_S * 100 && !err; i++) {
        err = try_to_lock(client);
        nanosleep(&delay, NULL);
    }
    assert_int_equal(err, HF_EPROTO);
    hf_client_error(client, &error);
    assert_non_null(strstr(error.text, path_of("arena")));
}

static void clients_of_a_replaced_arena_get_an_error(void **state)
{
    const struct oddity oddities[] = {
        {"arena", PLAIN, HF_OK},
        {"arena", FIFO, HF_OK},
        {"arena", DIRECTORY, HF_OK},
        {"arena", LINK, HF_OK},
    };

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(oddities); i++) {
        struct hf_client *client = hf_site_open();

        lock_once(client);
        assert_true(create_oddity(&oddities[i]));
        expect_broken(client);
        (void)hf_close(client, 0);
        (void)remove(path_of("arena"));
    }
    expect_theirs_untouched();
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_site_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(arena_that_is_not_a_regular_file_is_refused),
        CASE(lock_file_that_is_not_a_regular_file_is_refused),
        CASE(token_file_that_is_not_a_regular_file_is_refused),
        CASE(token_file_that_is_a_fifo_is_refused),
        CASE(file_at_the_temporary_token_name_is_refused_or_replaced),
        CASE(file_at_the_temporary_arena_name_is_refused_or_replaced),
        CASE(file_in_place_of_a_fifo_is_replaced_or_skipped),
        CASE(waiter_is_served_when_its_fifo_is_replaced),
        CASE(clients_of_a_replaced_arena_get_an_error),
    };

    return hf_test_main("hostile_files", cases, HF_TEST_COUNT(cases), 0);
}
