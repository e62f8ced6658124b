/* Replicas of the table that follow the same log agree, whatever each of them
 * has seen or missed, and even if memory runs out. */
#include "strategy/file/replica.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/alloc.h"
#include "lib/commands.h"
#include "lib/folder.h"
#include "lib/runner.h"
#include "strategy/file/layout.h"

#define FEW 50   /* keys whose snapshot is smaller than the initial ring */
#define MANY 800 /* keys whose snapshot is larger than the initial ring */

static char directory[] = HF_TEST_FOLDER;

struct client {
    struct hf_arena arena;
    struct hf_replica replica;
    uint64_t session;
    uint64_t sequence;
};

static void ignore_event(void *arg, const struct hf_table_event *event)
{
    (void)arg;
    (void)event;
}

static void lock_arena(struct client *client)
{
    pid_t pid;

    assert_int_equal(hf_arena_lock(&client->arena, &pid), HF_ARENA_LOCKED);
}

static void catch_up(struct client *client)
{
    lock_arena(client);
    assert_int_equal(hf_replica_catch_up(&client->replica), HF_OK);
    hf_arena_unlock(&client->arena);
}

/* Run a command in the session of this client, with the next sequence
 * number. */
static struct hf_result run_command(struct client *client, hf_time now,
                                    struct hf_command command)
{
    struct hf_result result;

    if (command.kind != HF_COMMAND_OPEN) {
        command.session = client->session;
        command.sequence = ++client->sequence;
        command.done = command.sequence;
    }
    lock_arena(client);
    assert_int_equal(hf_replica_catch_up(&client->replica), HF_OK);
    hf_replica_run(&client->replica, now, &command, &result);
    hf_arena_unlock(&client->arena);
    return result;
}

static void open_client(struct client *client)
{
    static const struct hf_seed seed;
    struct hf_error error = {.text = ""};

    *client = (struct client){0};
    if (hf_arena_open(&client->arena, directory, 0700, &error))
        fail_msg("%s", error.text);
    hf_replica_init(&client->replica, &client->arena, &seed, ignore_event,
                    NULL);
    client->session = run_command(client, 1, hf_test_open("alice")).session;
}

static void close_client(struct client *client)
{
    hf_replica_fini(&client->replica);
    hf_arena_close(&client->arena);
}

static void expect_same_hold(const struct client *a, const struct hf_hold *hold,
                             const struct client *b)
{
    const struct hf_hold *other =
        hf_table_find(&b->replica.store.table, hf_hold_key(hold));

    assert_non_null(other);
    assert_int_equal(hold->token, other->token);
    assert_int_equal(hold->generation, other->generation);
    assert_int_equal(hold->since, other->since);
    assert_int_equal(hold->waiters, other->waiters);
    assert_int_equal(hold->session->id, other->session->id);
    assert_true(hf_bytes_equal(hf_hold_value(hold), hf_hold_value(other)));
    assert_int_equal(hf_store_deadline(&a->replica.store, hold),
                     hf_store_deadline(&b->replica.store, other));
}

static size_t expect_all_held(const struct client *a, const struct client *b)
{
    struct hf_hold *hold = NULL;
    size_t count = 0;

    while ((hold = hf_table_next_hold(&a->replica.store.table, hold))) {
        expect_same_hold(a, hold, b);
        count++;
    }
    return count;
}

static void expect_same(struct client *a, struct client *b)
{
    catch_up(a);
    catch_up(b);
    assert_int_equal(expect_all_held(a, b), expect_all_held(b, a));
    assert_int_equal(a->replica.store.table.token,
                     b->replica.store.table.token);
    assert_int_equal(a->replica.store.table.index,
                     b->replica.store.table.index);
}

/* Run a random command on one of `keys` keys, sometimes with a large value, so
 * that the ring wraps around. */
static void run_random_command(struct client *client, hf_time now,
                               unsigned keys, unsigned *seed)
{
    static char large[4000];
    char key[16];
    const struct hf_hold *hold;
    struct hf_command command;

    memset(large, 'x', sizeof(large) - 1);
    (void)snprintf(key, sizeof(key), "key-%u", (unsigned)rand_r(seed) % keys);
    hold = hf_table_find(&client->replica.store.table, hf_key_of(key));
    if (!hold || rand_r(seed) % 4 == 0) {
        command = hf_test_lock(0, key, (unsigned)rand_r(seed));
        command.lease_ms = 1000 + (uint32_t)rand_r(seed) % 100000;
    } else if (rand_r(seed) % 2) {
        command = hf_test_renew(0, key, 0, hold->token,
                                1000 + (uint32_t)rand_r(seed) % 100000);
        command.nonce = hold->nonce;
    } else if (rand_r(seed) % 2) {
        command = hf_test_update(0, key, 0, hold->token, large);
        command.nonce = hold->nonce;
    } else {
        command = hf_test_unlock(0, key, 0, hold->token);
        command.nonce = hold->nonce;
    }
    (void)run_command(client, now, command);
}

static void write_in_turn(unsigned keys, hf_time turns)
{
    struct client clients[2], late;
    unsigned seed = 1;

    open_client(&clients[0]);
    open_client(&clients[1]);
    for (hf_time now = 1; now < turns; now++) {
        /* The second client runs seldom, so it finds a snapshot instead of the
         * log. */
        run_random_command(&clients[now % 1000 > 980], now, keys, &seed);
        if (now % 500 == 0)
            expect_same(&clients[0], &clients[1]);
    }
    open_client(&late);
    expect_same(&clients[0], &late);
    expect_same(&clients[0], &clients[1]);
    assert_true(clients[0].replica.position > 3 << 20);
    assert_int_equal(clients[0].arena.header->ring_room > HF_ARENA_RING_FIRST,
                     keys == MANY);
    close_client(&late);
    close_client(&clients[1]);
    close_client(&clients[0]);
}

static void replicas_agree_when_clients_write_in_turn(void **state)
{
    (void)state;
    write_in_turn(FEW, 4000);
}

/* Many keys make the snapshots large, and the ring grows with them. */
static void replicas_agree_when_many_keys_are_held(void **state)
{
    (void)state;
    write_in_turn(MANY, 12000);
}

/* Each allocation of a command fails once. Nothing is published then, and the
 * next attempt succeeds. */
static void command_that_runs_out_of_memory_is_not_published(void **state)
{
    struct client writer, reader;
    bool failed = true;

    (void)state;
    open_client(&writer);
    open_client(&reader);
    for (unsigned long nth = 1; failed; nth++) {
        char key[16];
        struct hf_result result;

        assert_in_range(nth, 1, 100);
        (void)snprintf(key, sizeof(key), "key-%lu", nth);
        catch_up(&writer);
        hf_alloc_fail(nth, 1);
        result = run_command(&writer, 5, hf_test_lock(0, key, (unsigned)nth));
        failed = hf_alloc_failed();
        if (failed)
            writer.sequence--;
        assert_int_equal(result.err, failed ? HF_ENOMEM : HF_OK);
        expect_same(&writer, &reader);
        result = run_command(&writer, 5, hf_test_lock(0, key, (unsigned)nth));
        assert_int_equal(result.err, HF_OK);
        expect_same(&writer, &reader);
    }
    close_client(&reader);
    close_client(&writer);
}

static void fill_log(struct client *client)
{
    unsigned seed = 2;

    for (hf_time now = 1; now < 1500; now++)
        run_random_command(client, now, FEW, &seed);
}

/* A partial table is never used: a replica that could not be loaded completely
 * is loaded again. */
static void replica_that_runs_out_of_memory_is_read_again(void **state)
{
    struct client writer, reader;
    bool failed = true;

    (void)state;
    open_client(&writer);
    open_client(&reader);
    fill_log(&writer);
    catch_up(&reader);
    for (unsigned long nth = 1; failed; nth++) {
        enum hf_err err;

        assert_in_range(nth, 1, 2000);
        lock_arena(&reader);
        hf_alloc_fail(nth, 1);
        err = hf_replica_reload_history(&reader.replica);
        failed = hf_alloc_failed();
        hf_arena_unlock(&reader.arena);
        if (err) /* some allocations may fail without an error */
            assert_true(err == HF_ENOMEM && failed);
        expect_same(&writer, &reader);
    }
    close_client(&reader);
    close_client(&writer);
}

/* Reading ahead needs no arena lock, so a client that stays in the critical
 * section does not delay it. */
static void replica_is_read_while_the_arena_is_locked(void **state)
{
    static const struct hf_seed seed;
    struct client writer, late, idle;
    unsigned random = 1;

    (void)state;
    open_client(&writer);
    open_client(&idle);
    for (int i = 0; i < 4000; i++)
        run_random_command(&writer, 1 + i, MANY, &random);
    late = (struct client){.arena = idle.arena};
    hf_replica_init(&late.replica, &late.arena, &seed, ignore_event, NULL);
    lock_arena(&writer);
    hf_replica_read_ahead(&late.replica);
    hf_replica_read_ahead(&idle.replica);
    hf_arena_unlock(&writer.arena);
    assert_int_equal(late.replica.position, writer.replica.position);
    assert_int_equal(idle.replica.position, writer.replica.position);
    assert_true(writer.arena.header->snapshot > 1);
    expect_same(&writer, &late);
    expect_same(&writer, &idle);
    hf_replica_fini(&late.replica);
    close_client(&idle);
    close_client(&writer);
}

static void replica_that_runs_out_of_memory_while_reading_ahead_is_read_again(
    void **state)
{
    struct client writer, reader;
    unsigned random = 1;
    bool failed = true;

    (void)state;
    open_client(&writer);
    open_client(&reader);
    for (size_t nth = 1; failed; nth++) {
        assert_in_range(nth, 1, 20000);
        for (int i = 0; nth % 100 == 1 && i < 500; i++)
            run_random_command(&writer, 1 + i, FEW, &random);
        reader.replica.stale = true;
        hf_alloc_fail(nth, 1);
        hf_replica_read_ahead(&reader.replica);
        failed = hf_alloc_failed();
        expect_same(&writer, &reader);
    }
    close_client(&reader);
    close_client(&writer);
}

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

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(replicas_agree_when_clients_write_in_turn),
        CASE(replicas_agree_when_many_keys_are_held),
        CASE(command_that_runs_out_of_memory_is_not_published),
        CASE(replica_that_runs_out_of_memory_is_read_again),
        CASE(replica_is_read_while_the_arena_is_locked),
        CASE(replica_that_runs_out_of_memory_while_reading_ahead_is_read_again),
    };

    return hf_test_main("replica", cases, HF_TEST_COUNT(cases), 0);
}
