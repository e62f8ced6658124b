/* Directories that several users share: modes, groups, umasks, sticky bits, and
 * attacks of one user on another. The cases need root, to become these
 * users. */
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/expect.h"
#include "lib/site.h"

#define GROUP 44100
#define ROUNDS 300    /* times that a client opens during an attack */
#define TIMEOUT_S 120 /* after this time, a case counts as hung */

/* ---- Users --------------------------------------------------------------*/

struct user {
    uid_t id; /* user id; also the number of the primary group */
    bool is_member;
};

static const struct user alice = {44001, true};
static const struct user bob = {44002, true};
static const struct user stranger = {44003, false};

/* Call this only in a child process, because it cannot be undone. */
static void become_user(const struct user *user)
{
    const gid_t group = GROUP;

    assert_int_equal(setgroups(user->is_member ? 1 : 0, &group), 0);
    assert_int_equal(setgid(user->id), 0);
    assert_int_equal(setuid(user->id), 0);
    umask(077);
    alarm(TIMEOUT_S);
}

/* A user opens "locks", with the URL options `options`, and takes a lock. */
struct lock_use {
    const struct user *user;
    const char *options;
    bool is_killed; /* the user's process is killed while it holds the lock */
};

static void use_locks(void *arg)
{
    const struct lock_use *use = arg;
    struct hf_client *client;
    struct hf_lock *lock;

    become_user(use->user);
    client = hf_site_open_at("locks", use->options);
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    if (use->is_killed)
        raise(SIGKILL);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

static void use_locks_as(const struct user *user, const char *options)
{
    struct lock_use one = {user, options, false};

    hf_child_join(hf_child_start(use_locks, &one));
}

static void die_holding_as(const struct user *user, const char *options)
{
    struct lock_use one = {user, options, true};

    int status = 0;

    assert_true(waitpid(hf_child_start(use_locks, &one), &status, 0) > 0);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

/* ---- The directory ------------------------------------------------------*/

static int set_up(void **state)
{
    if (geteuid() != 0)
        hf_test_skip("becoming several users needs root");
    if (hf_site_set_up(state))
        return -1;
    umask(0);
    return chmod(hf_site_path(""), 0755);
}

static void create_locks(mode_t mode, gid_t group)
{
    assert_int_equal(mkdir(hf_site_path("locks"), 0700), 0);
    assert_int_equal(chown(hf_site_path("locks"), 0, group), 0);
    assert_int_equal(chmod(hf_site_path("locks"), mode), 0);
}

static void expect_mode(const char *name, mode_t mode, gid_t group)
{
    struct stat st;

    assert_int_equal(lstat(hf_site_path(name), &st), 0);
    if ((st.st_mode & 07777) != mode || st.st_gid != group)
        fail_msg("%s: mode %04o, group %u; expected %04o, %u", name,
                 (unsigned)st.st_mode & 07777, (unsigned)st.st_gid,
                 (unsigned)mode, (unsigned)group);
}

static void expect_files(mode_t mode, gid_t group)
{
    expect_mode("locks/lock", mode, group);
    expect_mode("locks/arena", mode, group);
    expect_mode("locks/token", mode, group);
}

/* Make the arena look like one of an earlier boot: offset 16 has the boot id,
 * offset 72 the time of the last command (layout.h), which is in the future if
 * the clock has started over. */
static void age_arena(void)
{
    const int64_t later = INT64_MAX;
    int file = open(hf_site_path("locks/arena"), O_RDWR | O_CLOEXEC);

    assert_true(file >= 0);
    assert_int_equal(pwrite(file, "00000000", 8, 16), 8);
    assert_int_equal(pwrite(file, &later, sizeof(later), 72), sizeof(later));
    close(file);
}

/* ---- Groups -------------------------------------------------------------*/

static void members_of_a_group_share_whatever_their_umask(void **state)
{
    (void)state;
    create_locks(0770, GROUP);
    use_locks_as(&alice, "?mode=0770");
    expect_files(0660, GROUP);
    use_locks_as(&bob, "?mode=0770");
    die_holding_as(&alice, "?mode=0770");
    use_locks_as(&bob, "?mode=0770");
    age_arena();
    use_locks_as(&bob, "?mode=0770");
    use_locks_as(&alice, "?mode=0770");
    expect_mode("locks", 0770, GROUP);
}

static void open_as_alice(void *arg)
{
    (void)arg;
    become_user(&alice);
    hf_close(hf_site_open_at("shared/locks", "?mode=0770"), HF_TEST_TIMEOUT_MS);
}

static void directory_keeps_the_group_of_its_parent(void **state)
{
    (void)state;
    assert_int_equal(mkdir(hf_site_path("shared"), 0700), 0);
    assert_int_equal(chown(hf_site_path("shared"), 0, GROUP), 0);
    assert_int_equal(chmod(hf_site_path("shared"), 02770), 0);
    hf_child_join(hf_child_start(open_as_alice, NULL));
    expect_mode("shared/locks", 02770, GROUP);
    expect_mode("shared/locks/arena", 0660, GROUP);
    expect_mode("shared/locks/token", 0660, GROUP);
}

static void mode_may_have_the_group_and_sticky_bits(void **state)
{
    (void)state;
    hf_close(hf_site_open_at("a", "?mode=02770"), HF_TEST_TIMEOUT_MS);
    expect_mode("a", 02770, getegid());
    hf_close(hf_site_open_at("b", "?mode=03777"), HF_TEST_TIMEOUT_MS);
    expect_mode("b", 03777, getegid());
    hf_close(hf_site_open_at("c", "?mode=01777"), HF_TEST_TIMEOUT_MS);
    expect_mode("c", 01777, getegid());
    hf_site_refuse("d", "?mode=04770", HF_EINVAL, "mode '04770'");
}

static void expect_refusal_as_bob(void *arg)
{
    (void)arg;
    become_user(&bob);
    hf_site_refuse("locks", "?mode=0770", HF_EUNAVAIL,
                   "/locks/token: cannot read it: Permission denied");
}

static void unreadable_token_file_is_reported_as_such(void **state)
{
    (void)state;
    create_locks(0770, GROUP);
    use_locks_as(&alice, "?mode=0770");
    assert_int_equal(chmod(hf_site_path("locks/token"), 0600), 0);
    assert_int_equal(remove(hf_site_path("locks/arena")), 0);
    hf_child_join(hf_child_start(expect_refusal_as_bob, NULL));
}

/* ---- Sticky directories -------------------------------------------------*/

static void strangers_share_a_sticky_directory(void **state)
{
    (void)state;
    create_locks(01777, 0);
    use_locks_as(&alice, "?mode=01777");
    use_locks_as(&stranger, "?mode=01777");
    expect_mode("locks/arena", 0666, alice.id);
    die_holding_as(&alice, "?mode=01777");
    use_locks_as(&stranger, "?mode=01777");
    die_holding_as(&stranger, "?mode=01777");
    use_locks_as(&alice, "?mode=01777");
}

static void arena_of_another_user_is_rewritten_in_place(void **state)
{
    (void)state;
    create_locks(01777, 0);
    use_locks_as(&alice, "?mode=01777");
    age_arena();
    use_locks_as(&stranger, "?mode=01777");
    use_locks_as(&alice, "?mode=01777");
    age_arena();
    use_locks_as(&alice, "?mode=01777");
}

static void unfinished_arena_is_rewritten(void **state)
{
    const uint64_t unfinished = ~UINT64_C(0x414e455241464821);
    int file;

    (void)state;
    create_locks(01777, 0);
    use_locks_as(&alice, "?mode=01777");
    file = open(hf_site_path("locks/arena"), O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_int_equal(write(file, &unfinished, sizeof(unfinished)),
                     sizeof(unfinished));
    close(file);
    use_locks_as(&stranger, "?mode=01777");
    use_locks_as(&alice, "?mode=01777");
}

/* A client that is killed before it sets the mode leaves a FIFO that other
 * users cannot open. */
static void fifo_that_cannot_be_opened_is_skipped(void **state)
{
    (void)state;
    create_locks(01777, 0);
    assert_int_equal(mkfifo(hf_site_path("locks/wake.0"), 0600), 0);
    assert_int_equal(chown(hf_site_path("locks/wake.0"), alice.id, alice.id),
                     0);
    use_locks_as(&stranger, "?mode=01777");
}

static void temporary_files_of_other_users_do_not_interfere(void **state)
{
    const char *const names[] = {"locks/arena.44001.new",
                                 "locks/token.44001.new"};

    (void)state;
    create_locks(01777, 0);
    for (size_t i = 0; i < HF_TEST_COUNT(names); i++) {
        int file = open(hf_site_path(names[i]), O_WRONLY | O_CREAT, 0600);

        assert_true(file >= 0);
        assert_int_equal(fchown(file, alice.id, alice.id), 0);
        close(file);
    }
    use_locks_as(&stranger, "?mode=01777");
    use_locks_as(&alice, "?mode=01777");
}

/* ---- Links --------------------------------------------------------------*/

static void create_secret(void)
{
    int file = open(hf_site_path("secret"), O_WRONLY | O_CREAT, 0600);

    assert_true(file >= 0);
    close(file);
    expect_mode("secret", 0600, getegid());
}

/* Keep replacing the FIFO of a client with a link to the file "secret". */
static void plant_links(void *arg)
{
    char target[128], link_path[128], fifo[128];

    (void)arg;
    (void)snprintf(target, sizeof(target), "%s", hf_site_path("secret"));
    (void)snprintf(link_path, sizeof(link_path), "%s",
                   hf_site_path("locks/link"));
    (void)snprintf(fifo, sizeof(fifo), "%s", hf_site_path("locks/wake.0"));
    become_user(&stranger);
    for (;;) {
        if (symlink(target, link_path) == 0)
            (void)rename(link_path, fifo);
    }
}

static void links_of_others_are_never_followed(void **state)
{
    struct hf_client *client;
    pid_t pid;

    (void)state;
    create_secret();
    create_locks(0777, 0);
    pid = hf_child_start(plant_links, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        if (hf_site_try("locks", "?mode=0777", NULL, &client) == HF_OK)
            hf_close(client, 0);
        expect_mode("secret", 0600, getegid());
    }
    hf_child_kill(pid);
}

/* ---- Locks that are never released --------------------------------------*/

static int lock_forever(void)
{
    int file;

    hf_close(hf_site_open(), HF_TEST_TIMEOUT_MS);
    file = open(hf_site_path("locks/lock"), O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(flock(file, LOCK_EX), 0);
    return file;
}

static void opening_fails_while_another_process_has_the_lock(void **state)
{
    int file = lock_forever();

    (void)state;
    alarm(TIMEOUT_S);
    hf_site_refuse("locks", "", HF_EUNAVAIL,
                   "/locks/lock: another process has locked it");
    close(file);
    hf_close(hf_site_open(), HF_TEST_TIMEOUT_MS);
}

/* systemd-tmpfiles(8) locks a directory while it removes old files there. */
static void opening_fails_while_another_process_has_the_directory(void **state)
{
    int directory;

    (void)state;
    hf_close(hf_site_open(), HF_TEST_TIMEOUT_MS);
    directory = open(hf_site_path("locks"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(directory, LOCK_EX), 0);
    alarm(TIMEOUT_S);
    hf_site_refuse("locks", "", HF_EUNAVAIL,
                   "/locks: another process has locked it");
    close(directory);
    hf_close(hf_site_open(), HF_TEST_TIMEOUT_MS);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_site_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(members_of_a_group_share_whatever_their_umask),
        CASE(directory_keeps_the_group_of_its_parent),
        CASE(mode_may_have_the_group_and_sticky_bits),
        CASE(unreadable_token_file_is_reported_as_such),
        CASE(strangers_share_a_sticky_directory),
        CASE(arena_of_another_user_is_rewritten_in_place),
        CASE(unfinished_arena_is_rewritten),
        CASE(fifo_that_cannot_be_opened_is_skipped),
        CASE(temporary_files_of_other_users_do_not_interfere),
        CASE(links_of_others_are_never_followed),
        HF_SITE_CASE(opening_fails_while_another_process_has_the_lock),
        HF_SITE_CASE(opening_fails_while_another_process_has_the_directory),
    };

    return hf_test_main("sharing", cases, HF_TEST_COUNT(cases), 0);
}
