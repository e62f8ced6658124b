/* What a hostile process can write into a shared arena: well-formed commands,
 * snapshots that decode, numbers in the header and the slots. Other clients get
 * errors; none crashes or hangs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"
#include "core/snapshot.h"
#include "lib/child.h"
#include "lib/commands.h"
#include "lib/expect.h"
#include "lib/site.h"
#include "strategy/file/layout.h"
#include "strategy/file/replica.h"

#define TIMEOUT_S 120 /* after this time, a case counts as hung */
#define STORM 4000    /* commands that one attack writes at most */

static const struct hf_seed seed;

static void ignore_event(void *arg, const struct hf_table_event *event)
{
    (void)arg;
    (void)event;
}

/* ---- The hostile process ------------------------------------------------*/

struct attacker {
    struct hf_arena arena;
    struct hf_replica replica;
};

static void open_attacker(struct attacker *attacker)
{
    struct hf_error error = {.text = ""};

    if (hf_arena_open(&attacker->arena, hf_site_path("locks"), 0700, &error))
        fail_msg("%s", error.text);
    hf_replica_init(&attacker->replica, &attacker->arena, &seed, ignore_event,
                    NULL);
}

static void close_attacker(struct attacker *attacker)
{
    hf_replica_fini(&attacker->replica);
    hf_arena_close(&attacker->arena);
}

static void begin_transaction(struct attacker *attacker)
{
    pid_t pid;
    enum hf_arena_access access;

    do
        access = hf_arena_lock(&attacker->arena, &pid);
    while (access == HF_ARENA_BUSY);
    assert_int_equal(access, HF_ARENA_LOCKED);
    assert_int_equal(hf_replica_catch_up(&attacker->replica), HF_OK);
}

static void end_transaction(struct attacker *attacker)
{
    hf_arena_unlock(&attacker->arena);
}

static void write_command(struct attacker *attacker,
                          const struct hf_command *command, hf_time stamp)
{
    struct hf_result result;

    begin_transaction(attacker);
    hf_replica_run(&attacker->replica, stamp, command, &result);
    end_transaction(attacker);
}

static unsigned find_slot(const struct attacker *attacker, pid_t pid)
{
    for (unsigned i = 0; i < HF_ARENA_SLOTS; i++) {
        if (hf_slot_at(&attacker->arena, i)->pid == pid &&
            hf_slot_at(&attacker->arena, i)->session != 0)
            return i;
    }
    fail_msg("process %ld has no slot", (long)pid);
    return 0;
}

static hf_time machine_now(void)
{
    return hf_time_on(CLOCK_MONOTONIC);
}

/* ---- Victims ------------------------------------------------------------*/

static void expect_refusal(void *arg)
{
    struct hf_lock_opts opts = hf_site_wait_opts();
    struct hf_error error = {.text = ""};
    struct hf_lock *lock;

    (void)arg;
    alarm(TIMEOUT_S);
    opts.error = &error;
    assert_int_equal(hf_acquire(hf_site_open(), hf_key_of("k"), &opts, &lock),
                     HF_EPROTO);
    assert_non_null(strstr(error.text, "ended the session"));
}

static void expect_grant(void *arg)
{
    struct hf_lock_opts opts = hf_site_wait_opts();
    struct hf_lock *lock;

    (void)arg;
    alarm(TIMEOUT_S);
    assert_int_equal(hf_acquire(hf_site_open(), hf_key_of("k"), &opts, &lock),
                     HF_OK);
}

static pid_t start_waiter(struct hf_client *client, void (*act)(void *arg))
{
    pid_t pid = hf_child_start(act, NULL);

    hf_site_await_waiters(client, "k", 1);
    return pid;
}

static void waiter_whose_session_is_ended_gets_an_error(void **state)
{
    struct hf_client *client = hf_site_open();
    struct attacker attacker;
    struct hf_command close;
    struct hf_lock *lock;
    unsigned slot;
    pid_t pid;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    pid = start_waiter(client, expect_refusal);
    open_attacker(&attacker);
    slot = find_slot(&attacker, pid);
    close = hf_test_close(hf_slot_at(&attacker.arena, slot)->session);
    write_command(&attacker, &close, machine_now());
    hf_slot_wake(&attacker.arena, slot);
    hf_child_join(pid);
    close_attacker(&attacker);
    hf_lock_free(lock);
    (void)hf_close(client, HF_TEST_TIMEOUT_MS);
}

/* A snapshot replaces an entry that the client has not read yet, so the client
 * loads the snapshot, and does not find its own session there. */
static void client_whose_session_is_not_in_a_snapshot_gets_an_error(
    void **state)
{
    struct hf_client *client = hf_site_open();
    struct hf_command open = hf_test_open("a");
    struct attacker attacker;
    struct hf_info info;

    (void)state;
    open_attacker(&attacker);
    write_command(&attacker, &open, machine_now());
    begin_transaction(&attacker);
    assert_int_equal(
        hf_arena_set_snapshot(&attacker.arena, (struct hf_bytes){0}), HF_OK);
    end_transaction(&attacker);
    assert_int_equal(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info),
                     HF_EPROTO);
    close_attacker(&attacker);
    (void)hf_close(client, HF_TEST_TIMEOUT_MS);
}

/* Without its slot, the waiter seems dead to every client but itself, so it has
 * to find out by itself that the lease has expired. */
static void waiter_whose_slot_is_overwritten_is_granted(void **state)
{
    struct hf_client *client = hf_site_open();
    struct attacker attacker;
    struct hf_lock_opts opts;
    struct hf_lock *lock;
    unsigned slot;
    pid_t pid;

    (void)state;
    hf_lock_opts_init(&opts);
    opts.ttl_ms = 2000;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    pid = start_waiter(client, expect_grant);
    open_attacker(&attacker);
    slot = find_slot(&attacker, pid);
    hf_slot_at(&attacker.arena, slot)->session = 999999;
    hf_slot_at(&attacker.arena, slot)->pid = 1;
    hf_child_join(pid);
    close_attacker(&attacker);
    hf_lock_free(lock);
    (void)hf_close(client, HF_TEST_TIMEOUT_MS);
}

static void ignore_watched(const struct hf_event *event, void *arg)
{
    (void)arg;
    assert_non_null(event->owner);
}

/* Lock, renew, read and watch, with a new client in each round, until `*done`
 * is set. Errors are ignored: the case checks that clients do not crash or
 * hang. */
static void victim_main(void *arg)
{
    volatile bool *done = arg;

    alarm(TIMEOUT_S);
    while (!*done) {
        struct hf_client *client;
        struct hf_lock_opts opts;
        struct hf_watch *watch = NULL;
        struct hf_lock *lock;
        struct hf_info info;

        if (hf_site_try("locks", "", NULL, &client))
            continue;
        (void)hf_watch_open(client, hf_key_of(""), NULL, ignore_watched, NULL,
                            &watch);
        hf_lock_opts_init(&opts);
        opts.wait_ms = 20;
        opts.timeout_ms = 200;
        for (int i = 0; i < 20 && !*done; i++) {
            if (hf_acquire(client, hf_key_of("k"), &opts, &lock))
                continue;
            (void)hf_renew(lock, 0);
            if (!hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info))
                hf_info_fini(&info);
            (void)hf_release(lock);
            hf_lock_free(lock);
        }
        if (watch)
            hf_watch_close(watch);
        (void)hf_close(client, 10);
    }
}

/* ---- Well-formed commands -----------------------------------------------*/

static uint64_t random_number(struct hf_random *random, uint64_t likely)
{
    switch (hf_random_below(random, 8)) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX - hf_random_below(random, 4);
    case 2:
        return likely + hf_random_below(random, 4) - 2;
    case 3:
        return UINT64_C(1) << hf_random_below(random, 64);
    default:
        return likely;
    }
}

/* Returns a session id, usually that of an open client. */
static uint64_t random_session(struct attacker *attacker,
                               struct hf_random *random)
{
    unsigned slot = hf_random_below(random, 5);

    return random_number(random, hf_slot_at(&attacker->arena, slot)->session);
}

static hf_time random_stamp(struct hf_random *random)
{
    switch (hf_random_below(random, 10)) {
    case 0:
        return 0;
    case 1:
        return HF_NEVER / 4;
    case 2:
        return machine_now() + 1000000;
    default:
        return machine_now();
    }
}

/* Returns a command that is usually about the key "k", in the session of any
 * client. */
static struct hf_command random_command(struct attacker *attacker,
                                        struct hf_random *random)
{
    const struct hf_table *table = &attacker->replica.store.table;
    const struct hf_hold *hold = hf_table_find(table, hf_key_of("k"));
    const struct hf_session *session;
    struct hf_command command = {
        .kind = 1 + hf_random_below(random, HF_COMMAND_KINDS - 1),
        .queue = hf_random_below(random, 2),
        .now = hf_random_below(random, 2),
        .lease_ms = 1 + hf_random_below(random, 1000),
        .session = random_session(attacker, random),
        .token = random_number(random, hold ? hold->token : 1),
        .generation =
            (uint32_t)random_number(random, hold ? hold->generation : 0),
        .key = hf_key_of(hf_random_below(random, 4) ? "k" : "another"),
    };

    session = hf_table_find_session(table, command.session);
    command.sequence =
        random_number(random, session ? session->highest + 1 : 1);
    command.done = random_number(random, session ? session->done : 1);
    if (hold && hf_random_below(random, 4))
        command.nonce = hold->nonce;
    else
        command.nonce = hf_test_nonce(hf_random_below(random, 8));
    return command;
}

/* Write up to STORM random commands, leaving out those that are not valid.
 * `number` is the seed. */
static void write_random_commands(struct attacker *attacker, uint64_t number)
{
    struct hf_random random;

    hf_random_init(&random, number);
    for (int i = 0; i < STORM; i++) {
        struct hf_command command;
        struct hf_result result;

        begin_transaction(attacker);
        command = random_command(attacker, &random);
        if (hf_command_is_valid(&command))
            hf_replica_run(&attacker->replica, random_stamp(&random), &command,
                           &result);
        end_transaction(attacker);
        hf_slot_wake(&attacker->arena, hf_random_below(&random, 5));
    }
}

static void clients_survive_a_storm_of_hostile_commands(void **state)
{
    volatile bool *done = hf_child_share(sizeof(*done));
    struct attacker attacker;
    pid_t victims[3];

    (void)state;
    open_attacker(&attacker);
    for (int i = 0; i < 3; i++)
        victims[i] = hf_child_start(victim_main, (void *)done);
    for (uint64_t i = 1; i <= 4; i++)
        write_random_commands(&attacker, i);
    *done = true;
    for (int i = 0; i < 3; i++)
        hf_child_join(victims[i]);
    close_attacker(&attacker);
}

static void flood_of_sessions_is_an_error(void **state)
{
    struct hf_command open = hf_test_open("flood");
    struct hf_error error = {.text = ""};
    struct attacker attacker;
    struct hf_client *client;
    struct hf_result result = {0};

    (void)state;
    open_attacker(&attacker);
    begin_transaction(&attacker);
    for (unsigned i = 0; !result.err; i++) {
        open.nonce = hf_test_nonce(1000000 + i);
        hf_replica_run(&attacker.replica, machine_now(), &open, &result);
    }
    assert_int_equal(result.err, HF_ELIMIT);
    end_transaction(&attacker);
    assert_int_equal(hf_site_try("locks", "", &error, &client), HF_ELIMIT);
    close_attacker(&attacker);
}

/* ---- Numbers ------------------------------------------------------------*/

static void tokens_near_the_maximum_are_refused(void **state)
{
    const uint64_t last = UINT64_MAX;
    struct attacker attacker;

    (void)state;
    open_attacker(&attacker);
    attacker.arena.header->label.first_token = last;
    close_attacker(&attacker);
    hf_site_refuse("locks", "", HF_EPROTO, "/locks/arena");
}

static void implausible_stamp_is_refused(void **state)
{
    const hf_time stamps[] = {-1, INT64_MIN, HF_NEVER};

    (void)state;
    for (size_t i = 0; i < HF_TEST_COUNT(stamps); i++) {
        struct hf_client *client = hf_site_open_at("locks", "");
        struct hf_command lock = hf_test_lock(1, "k", 1);
        struct attacker attacker;
        struct hf_lock *none;

        open_attacker(&attacker);
        lock.sequence = lock.done = 1;
        write_command(&attacker, &lock, stamps[i]);
        close_attacker(&attacker);
        assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &none),
                         HF_EPROTO);
        hf_close(client, 0);
        assert_int_equal(remove(hf_site_path("locks/arena")), 0);
    }
}

/* The log is read up to the tail as of hf_arena_lock(), so a later change of
 * the tail has no effect. */
static void tail_that_runs_ahead_is_not_followed(void **state)
{
    struct attacker attacker;
    pid_t pid;

    (void)state;
    open_attacker(&attacker);
    assert_int_equal(hf_arena_lock(&attacker.arena, &pid), HF_ARENA_LOCKED);
    attacker.arena.header->tail = UINT64_C(1) << 60;
    assert_int_equal(hf_replica_catch_up(&attacker.replica), HF_OK);
    end_transaction(&attacker);
    assert_int_equal(hf_arena_lock(&attacker.arena, &pid), HF_ARENA_BAD_HEADER);
    close_attacker(&attacker);
}

/* ---- Snapshots ----------------------------------------------------------*/

static void hold_without_a_lease_is_refused(void **state)
{
    struct hf_buf buf = {0};
    struct attacker attacker;
    struct hf_command open = hf_test_open("a");
    struct hf_command lock = hf_test_lock(1, "k", 1);
    pid_t pid;

    (void)state;
    open_attacker(&attacker);
    lock.sequence = lock.done = 1;
    write_command(&attacker, &open, 1);
    write_command(&attacker, &lock, 1);
    hf_snapshot_encode(&attacker.replica.store.table, &buf);
    hf_buf_u64(&buf, buf.size);
    begin_transaction(&attacker);
    assert_int_equal(
        hf_arena_set_snapshot(&attacker.arena,
                              (struct hf_bytes){buf.data, buf.size}),
        HF_OK);
    end_transaction(&attacker);
    hf_buf_fini(&buf);
    assert_int_equal(hf_arena_lock(&attacker.arena, &pid), HF_ARENA_LOCKED);
    assert_int_equal(hf_replica_reload_history(&attacker.replica), HF_EPROTO);
    end_transaction(&attacker);
    close_attacker(&attacker);
}

/* ---- Bytes that change while they are read ------------------------------*/

#define LONG_KEYS 300

static struct hf_command lock_long_key(uint8_t key[HF_KEY_MAX], unsigned number)
{
    struct hf_command lock = hf_test_lock(1, "", number);

    memset(key, 'x', HF_KEY_MAX);
    memcpy(key, &number, sizeof(number));
    lock.key = (struct hf_key){key, HF_KEY_MAX};
    lock.sequence = lock.done = number;
    return lock;
}

/* Keep changing a byte near the end of each key. */
static void corrupt_keys(void *arg)
{
    struct attacker *attacker = arg;

    alarm(TIMEOUT_S);
    for (;;) {
        uint64_t position = 0;
        struct hf_bytes entry;
        hf_time stamp;

        while (hf_arena_read(&attacker->arena, &position, &stamp, &entry) ==
               HF_ARENA_ENTRY_READ) {
            uint8_t *key = memmem(entry.data, entry.size, "xxxxxxxx", 8);

            if (key)
                key[HF_KEY_MAX - 16] ^= 1;
        }
    }
}

static void expect_findable(const struct hf_table *table)
{
    const struct hf_hold *hold = NULL;

    assert_int_equal(table->holds.count, LONG_KEYS);
    while ((hold = hf_table_next_hold(table, hold)))
        assert_ptr_equal(hf_table_find(table, hf_hold_key(hold)), hold);
}

/* A key that changes after it was hashed could never be released, so an entry
 * is copied before it is used. */
static void entries_that_change_while_they_are_read_do_no_harm(void **state)
{
    struct hf_command open = hf_test_open("a");
    struct attacker attacker;
    pid_t pid;

    (void)state;
    open_attacker(&attacker);
    write_command(&attacker, &open, 1);
    for (unsigned i = 1; i <= LONG_KEYS; i++) {
        uint8_t key[HF_KEY_MAX];
        struct hf_command lock = lock_long_key(key, i);

        write_command(&attacker, &lock, 1);
    }
    begin_transaction(&attacker);
    pid = hf_child_start(corrupt_keys, &attacker);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(hf_replica_reload_history(&attacker.replica), HF_OK);
        expect_findable(&attacker.replica.store.table);
    }
    end_transaction(&attacker);
    hf_child_kill(pid);
    close_attacker(&attacker);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        HF_SITE_CASE(waiter_whose_session_is_ended_gets_an_error),
        HF_SITE_CASE(client_whose_session_is_not_in_a_snapshot_gets_an_error),
        HF_SITE_CASE(waiter_whose_slot_is_overwritten_is_granted),
        HF_SITE_CASE(clients_survive_a_storm_of_hostile_commands),
        HF_SITE_CASE(flood_of_sessions_is_an_error),
        HF_SITE_CASE(tokens_near_the_maximum_are_refused),
        HF_SITE_CASE(implausible_stamp_is_refused),
        HF_SITE_CASE(tail_that_runs_ahead_is_not_followed),
        HF_SITE_CASE(hold_without_a_lease_is_refused),
        HF_SITE_CASE(entries_that_change_while_they_are_read_do_no_harm),
    };

    return hf_test_main("hostile_writes", cases, HF_TEST_COUNT(cases), 0);
}
