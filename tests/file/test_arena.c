/* Tests of the arena without the lock table: clients that die in the critical
 * section, publishing, snapshots. */
#include "strategy/file/arena.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/folder.h"
#include "lib/runner.h"
#include "strategy/file/layout.h"

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

static void open_arena(struct hf_arena *arena)
{
    struct hf_error error = {.text = ""};

    if (hf_arena_open(arena, directory, 0700, &error))
        fail_msg("%s", error.text);
}

static void lock_arena(struct hf_arena *arena)
{
    pid_t pid;

    assert_int_equal(hf_arena_lock(arena, &pid), HF_ARENA_LOCKED);
}

/* Run a process that writes an entry, publishes it or not, and dies in the
 * critical section. */
static void die_in_critical_section(bool publish)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        struct hf_arena arena;
        struct hf_error error;
        pid_t other;

        if (hf_arena_open(&arena, directory, 0700, &error) ||
            hf_arena_lock(&arena, &other) != HF_ARENA_LOCKED ||
            hf_arena_write(&arena, 7, hf_bytes_of("of the dead")))
            _exit(1);
        if (publish)
            hf_arena_publish(&arena);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void dead_owner_loses_the_arena_lock(void **state)
{
    struct hf_arena arena;

    (void)state;
    open_arena(&arena); /* in another slot than the client that dies */
    die_in_critical_section(false);
    lock_arena(&arena);
    hf_arena_unlock(&arena);
    hf_arena_close(&arena);
}

static void slot_of_a_dead_owner_can_be_used_again(void **state)
{
    struct hf_arena arena;

    (void)state;
    die_in_critical_section(false);
    open_arena(&arena); /* takes the slot of the dead client */
    assert_int_equal(arena.slot, 0);
    lock_arena(&arena);
    hf_arena_unlock(&arena);
    hf_arena_close(&arena);
}

/* A slow client that has found the owner dead must not take the lock from a
 * client that has taken it over meanwhile, even if that client has the same
 * slot. */
static void turns_of_one_slot_differ(void **state)
{
    const uint64_t sleepers = UINT64_C(0x80000000);
    struct hf_arena arena;
    uint64_t seen;

    (void)state;
    die_in_critical_section(false);
    open_arena(&arena);
    assert_int_equal(arena.slot, 0);
    seen = arena.header->word | sleepers;
    for (int i = 0; i < 3; i++) {
        lock_arena(&arena);
        assert_int_not_equal(arena.header->word | sleepers, seen);
        seen = arena.header->word | sleepers;
        hf_arena_unlock(&arena);
    }
    hf_arena_close(&arena);
}

/* Open a client in slot 0, and return the lock word while it has the arena
 * locked. */
static uint64_t word_of_new_client(void)
{
    struct hf_arena arena;
    uint64_t word;

    open_arena(&arena);
    assert_int_equal(arena.slot, 0);
    lock_arena(&arena);
    word = arena.header->word;
    hf_arena_unlock(&arena);
    hf_arena_close(&arena);
    return word;
}

/* A slow client that has found an earlier owner of the slot dead compares with
 * the word of that owner, so no later client may have the same word. */
static void clients_of_one_slot_have_different_words(void **state)
{
    uint64_t first = word_of_new_client();
    uint64_t second = word_of_new_client();

    (void)state;
    assert_int_not_equal(first, second);
    assert_int_not_equal(word_of_new_client(), first);
}

static void live_owner_keeps_the_arena_lock(void **state)
{
    struct hf_arena owner, other;
    pid_t pid = 0;

    (void)state;
    open_arena(&owner);
    open_arena(&other);
    lock_arena(&owner);
    assert_int_equal(hf_arena_lock(&other, &pid), HF_ARENA_BUSY);
    assert_int_equal(pid, getpid());
    hf_arena_unlock(&owner);
    lock_arena(&other);
    hf_arena_unlock(&other);
    hf_arena_close(&other);
    hf_arena_close(&owner);
}

/* The kernel gives the pid of a dead process to another process, sooner or
 * later, so a running process with that pid proves nothing. */
static void reused_pid_does_not_keep_a_dead_client_alive(void **state)
{
    struct hf_arena arena;

    (void)state;
    open_arena(&arena);
    die_in_critical_section(false);
    hf_slot_at(&arena, 1)->pid = getpid();
    assert_false(hf_slot_is_alive(&arena, 1));
    lock_arena(&arena);
    hf_arena_unlock(&arena);
    hf_arena_close(&arena);
}

/* Returns true if another process considers the client of the slot alive. */
static bool is_alive_elsewhere(unsigned slot)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        struct hf_arena arena;
        struct hf_error error;

        if (hf_arena_open(&arena, directory, 0700, &error))
            _exit(2);
        _exit(hf_slot_is_alive(&arena, slot) ? 1 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 1;
}

static void closing_a_client_keeps_its_sibling_alive(void **state)
{
    struct hf_arena open, closed;

    (void)state;
    open_arena(&open);
    open_arena(&closed);
    assert_int_not_equal(open.slot, closed.slot);
    hf_arena_close(&closed);
    assert_true(is_alive_elsewhere(open.slot));
    hf_arena_close(&open);
}

/* Run a process that dies in the critical section, and whose child has
 * inherited all descriptors. Returns the pid of that child. */
static pid_t leave_child_behind(void)
{
    int ends[2];
    pid_t pid, child = 0;
    int status;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        struct hf_arena arena;
        struct hf_error error;
        pid_t other;

        if (hf_arena_open(&arena, directory, 0700, &error) ||
            hf_arena_lock(&arena, &other) != HF_ARENA_LOCKED)
            _exit(1);
        child = fork();
        if (child == 0) {
            for (;;)
                pause();
        }
        if (write(ends[1], &child, sizeof(child)) != sizeof(child))
            _exit(1);
        _exit(0);
    }
    assert_int_equal(read(ends[0], &child, sizeof(child)), sizeof(child));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return child;
}

static void dead_owner_with_a_live_child_loses_the_arena_lock(void **state)
{
    struct hf_arena arena;
    pid_t child;

    (void)state;
    open_arena(&arena);
    child = leave_child_behind();
    assert_false(hf_slot_is_alive(&arena, 1));
    lock_arena(&arena);
    hf_arena_unlock(&arena);
    hf_arena_close(&arena);
    (void)kill(child, SIGKILL);
}

/* Call hf_slot_inherit() directly: when hf_open() calls it, some of the
 * descriptors that hf_open() used are closed, so one is free unless another
 * thread has taken it. */
static void inherit_without_a_free_descriptor_is_an_error(void **state)
{
    struct rlimit limit, none;
    struct hf_arena arena;
    struct hf_error error;

    (void)state;
    open_arena(&arena);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(hf_slot_inherit(&arena, &error), HF_ESYSTEM);
    assert_non_null(strstr(error.text, "inherit"));
    assert_non_null(strstr(error.text, "ulimit -n"));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(hf_slot_inherit(&arena, &error), HF_OK);
    assert_int_equal(fcntl(arena.inherited, F_GETFD), 0);
    hf_arena_close(&arena);
}

static void only_published_entries_are_read(void **state)
{
    struct hf_arena arena;
    uint64_t position = 0;
    struct hf_bytes bytes;
    hf_time stamp;

    (void)state;
    open_arena(&arena);
    die_in_critical_section(false);
    lock_arena(&arena);
    assert_int_equal(hf_arena_read(&arena, &position, &stamp, &bytes),
                     HF_ARENA_ENTRY_NONE);
    hf_arena_unlock(&arena);
    die_in_critical_section(true);
    lock_arena(&arena);
    assert_int_equal(hf_arena_read(&arena, &position, &stamp, &bytes),
                     HF_ARENA_ENTRY_READ);
    assert_int_equal(stamp, 7);
    assert_true(hf_bytes_equal(bytes, hf_bytes_of("of the dead")));
    assert_int_equal(hf_arena_read(&arena, &position, &stamp, &bytes),
                     HF_ARENA_ENTRY_NONE);
    hf_arena_unlock(&arena);
    hf_arena_close(&arena);
}

static void snapshot_empties_a_full_ring(void **state)
{
    static uint8_t block[100000];
    struct hf_arena arena;
    uint64_t position = 0, after = 1;
    struct hf_bytes bytes = {block, sizeof(block)};
    hf_time stamp;
    unsigned written = 0;

    (void)state;
    open_arena(&arena);
    lock_arena(&arena);
    assert_int_equal(hf_arena_snapshot(&arena, &after).size, 0);
    assert_int_equal(after, 0);
    while (hf_arena_write(&arena, 1, bytes) == HF_OK)
        written++;
    assert_in_range(written, 9, 10);
    hf_arena_publish(&arena);
    assert_int_equal(hf_arena_set_snapshot(&arena, hf_bytes_of("all of it")),
                     HF_OK);
    assert_int_equal(hf_arena_read(&arena, &position, &stamp, &bytes),
                     HF_ARENA_ENTRY_GONE);
    bytes = hf_arena_snapshot(&arena, &position);
    assert_true(hf_bytes_equal(bytes, hf_bytes_of("all of it")));
    bytes = (struct hf_bytes){block, sizeof(block)};
    assert_int_equal(hf_arena_write(&arena, 2, bytes), HF_OK);
    hf_arena_publish(&arena);
    assert_int_equal(hf_arena_read(&arena, &position, &stamp, &bytes),
                     HF_ARENA_ENTRY_READ);
    assert_int_equal(stamp, 2);
    assert_int_equal(bytes.size, sizeof(block));
    hf_arena_unlock(&arena);
    hf_arena_close(&arena);
}

/* A hostile process overwrites the sizes in the header while a client has the
 * arena locked. The client keeps using the sizes that it read when it locked
 * the arena. */
static void sizes_are_read_once_per_critical_section(void **state)
{
    struct hf_arena arena;

    (void)state;
    open_arena(&arena);
    arena.header->head = UINT64_C(1) << 30;
    arena.header->tail = UINT64_C(1) << 30;
    lock_arena(&arena);
    arena.header->ring_room = UINT64_C(1) << 40;
    arena.header->half_room = 0;
    assert_int_equal(hf_arena_write(&arena, 1, hf_bytes_of("safe")), HF_OK);
    assert_int_equal(hf_arena_reserve_snapshot(&arena, 2 * HF_ARENA_HALF_FIRST),
                     HF_OK);
    hf_arena_unlock(&arena);
    hf_arena_close(&arena);
}

static void write_one(struct hf_arena *arena)
{
    lock_arena(arena);
    assert_int_equal(hf_arena_write(arena, 1, hf_bytes_of("more")), HF_OK);
    hf_arena_publish(arena);
    hf_arena_unlock(arena);
}

static void data_read_without_the_lock_is_valid_until_a_snapshot(void **state)
{
    struct hf_arena reader, writer;

    (void)state;
    open_arena(&reader);
    open_arena(&writer);
    assert_true(hf_arena_begin_read(&reader));
    write_one(&writer);
    assert_true(hf_arena_end_read(&reader));
    lock_arena(&writer);
    assert_int_equal(hf_arena_set_snapshot(&writer, hf_bytes_of("all")), HF_OK);
    hf_arena_unlock(&writer);
    assert_false(hf_arena_end_read(&reader));
    assert_true(hf_arena_begin_read(&reader));
    reader.header->ring_room =
        2 * HF_ARENA_RING_FIRST; /* entries move when the ring grows */
    assert_false(hf_arena_end_read(&reader));
    hf_arena_close(&writer);
    hf_arena_close(&reader);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(dead_owner_loses_the_arena_lock),
        CASE(slot_of_a_dead_owner_can_be_used_again),
        CASE(turns_of_one_slot_differ),
        CASE(clients_of_one_slot_have_different_words),
        CASE(live_owner_keeps_the_arena_lock),
        CASE(reused_pid_does_not_keep_a_dead_client_alive),
        CASE(closing_a_client_keeps_its_sibling_alive),
        CASE(dead_owner_with_a_live_child_loses_the_arena_lock),
        CASE(inherit_without_a_free_descriptor_is_an_error),
        CASE(only_published_entries_are_read),
        CASE(sizes_are_read_once_per_critical_section),
        CASE(data_read_without_the_lock_is_valid_until_a_snapshot),
        CASE(snapshot_empties_a_full_ring),
    };

    return hf_test_main("arena", cases, HF_TEST_COUNT(cases), 0);
}
