/* Tokens never decrease: not if the file "token" or the whole directory is
 * removed, and not if many leases expire at once. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/expect.h"
#include "lib/folder.h"
#include "lib/site.h"
#include "strategy/file/layout.h"
#include "strategy/file/replica.h"

static void pause_briefly(void)
{
    const struct timespec delay = {.tv_nsec = 10000000};

    nanosleep(&delay, NULL);
}

static uint64_t lock_once(struct hf_client *client)
{
    struct hf_lock *lock;
    uint64_t token;

    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    token = hf_lock_token(lock);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_lock_free(lock);
    return token;
}

/* The token of a lock that a new client takes and releases. */
static uint64_t next_token(void)
{
    struct hf_client *client = hf_site_open();
    uint64_t token = lock_once(client);

    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
    return token;
}

/* Make the arena look like one of an earlier boot: offset 16 has the boot id,
 * offset 72 the time of the last command (layout.h), which is in the future if
 * the clock has started over. */
static void simulate_reboot(void)
{
    const int64_t later = INT64_MAX;
    int file = open(hf_site_path("locks/arena"), O_RDWR);

    assert_true(file >= 0);
    assert_int_equal(pwrite(file, "00000000", 8, 16), 8);
    assert_int_equal(pwrite(file, &later, sizeof(later), 72), sizeof(later));
    close(file);
}

static void remove_file(const char *name)
{
    assert_int_equal(remove(hf_site_path(name)), 0);
}

static uint64_t read_token_file(void)
{
    int directory = open(hf_site_path("locks"), O_RDONLY | O_DIRECTORY);
    uint64_t token = 0;

    assert_true(directory >= 0);
    assert_int_equal(hf_token_file_read(directory, &token), HF_OK);
    close(directory);
    return token;
}

/* ---- Removed files ------------------------------------------------------*/

/* Create a directory whose tokens are above the wall clock, so that tokens
 * which start at the clock would be too low. */
static void create_directory(void)
{
    FILE *token;

    assert_int_equal(mkdir(hf_site_path("locks"), 0700), 0);
    token = fopen(hf_site_path("locks/token"), "we");
    assert_non_null(token);
    assert_true(fputs("4000000000000000000\n", token) >= 0);
    assert_int_equal(fclose(token), 0);
}

static void tokens_rise_over_a_reboot_without_the_token_file(void **state)
{
    uint64_t before;

    (void)state;
    create_directory();
    before = next_token();
    remove_file("locks/token");
    simulate_reboot();
    assert_true(next_token() > before);
}

static void removed_token_file_is_written_again(void **state)
{
    struct hf_client *client = hf_site_open();
    uint64_t token = lock_once(client);

    (void)state;
    remove_file("locks/token");
    while (access(hf_site_path("locks/token"), F_OK)) {
        token = lock_once(client);
        pause_briefly();
    }
    assert_true(read_token_file() >= token);
    remove_file("locks/token");
    token = next_token(); /* opening a client writes the file again too */
    assert_true(read_token_file() >= token);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

static void tokens_rise_without_the_arena(void **state)
{
    uint64_t before;

    (void)state;
    create_directory();
    before = next_token();
    remove_file("locks/arena");
    assert_true(next_token() > before);
}

static void tokens_rise_when_the_directory_is_removed(void **state)
{
    uint64_t before = next_token();

    (void)state;
    assert_true(hf_test_folder_remove(hf_site_path("locks")));
    assert_true(next_token() > before);
}

/* ---- The reserve --------------------------------------------------------*/

static void open_arena(struct hf_arena *arena)
{
    struct hf_error error = {.text = ""};

    if (hf_arena_open(arena, hf_site_path("locks"), 0700, &error))
        fail_msg("%s", error.text);
}

/* The path of the temporary token file of this user. */
static const char *temporary_token_path(void)
{
    char name[HF_SHARE_NAME], below[64];

    hf_share_temporary_name(name, "token");
    (void)snprintf(below, sizeof(below), "locks/%s", name);
    return hf_site_path(below);
}

static void reserve_is_raised_after_the_token_file(void **state)
{
    struct hf_arena arena;
    uint64_t reserve;

    (void)state;
    open_arena(&arena);
    reserve = arena.header->token_reserve;
    assert_int_equal(mkdir(temporary_token_path(), 0700), 0);
    assert_int_equal(hf_token_file_reserve(&arena, reserve + 1), HF_ESYSTEM);
    assert_int_equal(arena.header->token_reserve, reserve);
    assert_int_equal(rmdir(temporary_token_path()), 0);
    assert_int_equal(hf_token_file_reserve(&arena, reserve + 1), HF_OK);
    assert_true(hf_token_file_covers(&arena, reserve + 1));
    assert_int_equal(arena.header->token_reserve, read_token_file());
    hf_arena_close(&arena);
}

/* A client that raises the reserve locks byte HF_ARENA_SLOTS + 1 of the arena
 * (token_file.c). Here another client has locked that byte. */
static void reserve_is_raised_by_one_client_at_a_time(void **state)
{
    struct flock lock = {
        .l_type = F_WRLCK,
        .l_whence = SEEK_SET,
        .l_start = HF_ARENA_SLOTS + 1,
        .l_len = 1,
    };
    struct hf_arena arena, other;
    uint64_t reserve;

    (void)state;
    open_arena(&arena);
    open_arena(&other);
    reserve = arena.header->token_reserve;
    assert_int_equal(fcntl(other.file, F_OFD_SETLK, &lock), 0);
    assert_int_equal(hf_token_file_reserve(&arena, reserve + 1), HF_OK);
    assert_int_equal(read_token_file(), reserve);
    hf_arena_close(&other); /* unlocks the byte, as if the client died */
    assert_int_equal(hf_token_file_reserve(&arena, reserve + 1), HF_OK);
    reserve = read_token_file();
    assert_int_equal(hf_token_file_reserve(&arena, reserve), HF_OK);
    assert_int_equal(read_token_file(),
                     reserve); /* unchanged, because it was high enough */
    hf_arena_close(&arena);
}

static void reserve_is_refilled_before_it_is_used_up(void **state)
{
    struct hf_client *client = hf_site_open();
    struct hf_arena arena;
    uint64_t low;

    (void)state;
    open_arena(&arena);
    low = lock_once(client) + 100000;
    arena.header->token_reserve = low;
    while (arena.header->token_reserve == low && lock_once(client) < low)
        pause_briefly();
    assert_true(lock_once(client) < low);
    assert_int_equal(arena.header->token_reserve, read_token_file());
    assert_true(read_token_file() > low);
    hf_arena_close(&arena);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

/* If the token file cannot be written, because a directory has its temporary
 * name, the tokens that are left in the reserve can still be granted. */
static void tokens_below_the_reserve_are_granted_when_the_disk_fails(
    void **state)
{
    struct hf_client *client = hf_site_open();
    struct hf_arena arena;

    (void)state;
    open_arena(&arena);
    assert_int_equal(mkdir(temporary_token_path(), 0700), 0);
    remove_file("locks/token");
    arena.header->token_reserve = lock_once(client) + 20;
    for (int i = 0; i < 15; i++) {
        (void)lock_once(client);
        pause_briefly();
    }
    assert_int_equal(rmdir(temporary_token_path()), 0);
    for (int i = 0; i < 15; i++)
        (void)lock_once(client);
    hf_arena_close(&arena);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

/* ---- Many at once -------------------------------------------------------*/

#define MANY 1100
#define TTL_MS 2000
#define ROUNDS 300 /* pauses in which the waiter may be granted keys */

static struct hf_key number_key(char name[16], int number)
{
    (void)snprintf(name, 16, "k%d", number);
    return hf_key_of(name);
}

static void holder_main(void *arg)
{
    struct hf_client *client = hf_site_open();
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    char name[16];

    (void)arg;
    hf_lock_opts_init(&opts);
    opts.ttl_ms = TTL_MS;
    opts.renew = true;
    for (int i = 0; i < MANY; i++)
        assert_int_equal(hf_acquire(client, number_key(name, i), &opts, &lock),
                         HF_OK);
    for (;;)
        pause();
}

static void waiter_main(void *arg)
{
    struct hf_client *client = hf_site_open();
    struct hf_lock_opts opts = hf_site_wait_opts();
    struct hf_future *future;
    struct hf_lock *lock;
    char name[16];

    (void)arg;
    opts.ttl_ms = 3600000;
    for (int i = 0; i < MANY; i++)
        assert_int_equal(hf_acquire_start(client, number_key(name, i), &opts,
                                          &lock, NULL, NULL, &future),
                         HF_OK);
    for (;;)
        (void)hf_future_wait(future, HF_FOREVER, NULL);
}

static void ignore_event(void *arg, const struct hf_table_event *event)
{
    (void)arg;
    (void)event;
}

/* Returns the highest token that has been granted. */
static uint64_t highest_token(struct hf_arena *arena)
{
    static const struct hf_seed seed;
    struct hf_replica replica;
    uint64_t token;
    pid_t other;

    hf_replica_init(&replica, arena, &seed, ignore_event, NULL);
    while (hf_arena_lock(arena, &other) != HF_ARENA_LOCKED)
        pause_briefly();
    assert_int_equal(hf_replica_catch_up(&replica), HF_OK);
    token = replica.store.table.token;
    hf_arena_unlock(arena);
    hf_replica_fini(&replica);
    return token;
}

/* One client finds that all leases have expired. The reserve has fewer tokens
 * than there are waiters, and cannot be raised, so the client must not grant
 * all keys at once. */
static void tokens_stay_below_the_token_file_when_many_leases_expire(
    void **state)
{
    const struct timespec lease = {.tv_sec = 2 * TTL_MS / 1000};
    struct hf_client *client = hf_site_open();
    struct hf_arena arena;
    struct hf_info info;
    pid_t holder, waiter;
    uint64_t before;

    (void)state;
    holder = hf_child_start(holder_main, NULL);
    assert_int_equal(
        hf_wait_held(client, hf_key_of("k1099"), HF_FOREVER, &info), HF_OK);
    hf_info_fini(&info);
    waiter = hf_child_start(waiter_main, NULL);
    hf_site_await_waiters(client, "k1099", 1);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
    open_arena(&arena);
    hf_child_stop(waiter);
    before = highest_token(&arena);
    arena.header->token_reserve = before + 1024;
    assert_int_equal(mkdir(temporary_token_path(), 0700), 0);
    hf_child_kill(holder);
    nanosleep(&lease, NULL);
    hf_child_continue(waiter);
    for (int i = 0; i < ROUNDS && highest_token(&arena) == before; i++)
        pause_briefly();
    assert_true(highest_token(&arena) <= arena.header->token_reserve);
    assert_int_equal(rmdir(temporary_token_path()), 0);
    while (highest_token(&arena) < before + MANY)
        pause_briefly();
    assert_true(read_token_file() >= before + MANY);
    hf_child_kill(waiter);
    hf_arena_close(&arena);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        HF_SITE_CASE(tokens_rise_over_a_reboot_without_the_token_file),
        HF_SITE_CASE(removed_token_file_is_written_again),
        HF_SITE_CASE(tokens_rise_without_the_arena),
        HF_SITE_CASE(tokens_rise_when_the_directory_is_removed),
        HF_SITE_CASE(reserve_is_raised_after_the_token_file),
        HF_SITE_CASE(reserve_is_raised_by_one_client_at_a_time),
        HF_SITE_CASE(reserve_is_refilled_before_it_is_used_up),
        HF_SITE_CASE(tokens_below_the_reserve_are_granted_when_the_disk_fails),
        HF_SITE_CASE(tokens_stay_below_the_token_file_when_many_leases_expire),
    };

    return hf_test_main("tokens", cases, HF_TEST_COUNT(cases), 0);
}
