/* The queue of a key in Redis: which waiters are skipped, and what a waiter
 * sends. */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "redis/one_server.h"

#define STOPPED 5
#define DEAD 20000
#define STEP 1000 /* waiters that one script visits at most (grant_next.lua) */
#define VALUE_SIZE 60000

/* A script that appends ARGV[1] waiters of the client ARGV[2] to the queue
 * KEYS[1], and their claims to the hash KEYS[2]. */
#define FILL_QUEUE                                                             \
    "for i = 1, tonumber(ARGV[1]) do "                                         \
    "local nonce = string.format('%032d', i) "                                 \
    "redis.call('ZADD', KEYS[1], i + 1, nonce .. ARGV[2]) "                    \
    "redis.call('HSET', KEYS[2], 'last', i + 1, nonce, '1000 0 0\\n') end"

static long query_number(const char *command)
{
    return strtol(hf_test_redis_command(&redis, command), NULL, 10);
}

static void await_waiters(long count)
{
    while (query_number("ZCARD hf:q:k") != count)
        (void)poll(NULL, 0, 2);
}

static _Noreturn void wait_in_queue(void)
{
    struct hf_lock_opts opts = hf_test_opts(600000, HF_FOREVER, 60000);
    struct hf_client *own = NULL;
    struct hf_lock *lock = NULL;

    if (hf_open(hf_test_redis_url(&redis, NULL, NULL), NULL, &own))
        _exit(3);
    _exit(hf_acquire(own, hf_key_of("k"), &opts, &lock) ? 4 : 0);
}

/* Milliseconds since the last heartbeat of the client whose waiter is at
 * `position`, counted from 0. */
static long silence_ms(unsigned position)
{
    char waiter[64], command[64];

    (void)snprintf(command, sizeof(command), "ZRANGE hf:q:k %u %u", position,
                   position);
    (void)snprintf(waiter, sizeof(waiter), "%s",
                   hf_test_redis_command(&redis, command));
    (void)snprintf(command, sizeof(command), "PTTL hf:c:%s", waiter + 32);
    return 30000 - query_number(command);
}

/* Waiting processes are stopped. They stay connected, and each would keep the
 * key for ten minutes. */
static void stopped_waiters_do_not_get_the_key(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 60000, 60000);
    struct hf_lock *held = NULL, *lock = NULL;
    pid_t pids[STOPPED];

    (void)state;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &held));
    for (unsigned i = 0; i < STOPPED; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            wait_in_queue();
        await_waiters(i + 1);
    }
    for (unsigned i = 0; i < STOPPED; i++)
        (void)kill(pids[i], SIGSTOP);
    for (unsigned i = 0; i < STOPPED; i++) {
        while (silence_ms(i) <= 1600) /* until three heartbeats are missed */
            (void)poll(NULL, 0, 20);
    }
    expect_ok(hf_release(held));
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));

    expect_ok(hf_release(lock));
    for (unsigned i = 0; i < STOPPED; i++) {
        (void)kill(pids[i], SIGKILL);
        (void)waitpid(pids[i], NULL, 0);
    }
    hf_lock_free(held);
    hf_lock_free(lock);
}

/* The first waiter is silent, and the second waiter's client has only just
 * begun to send heartbeats. Perhaps the server was stopped and received no
 * heartbeats from any client, so it must not skip the first waiter. */
static void a_waiter_keeps_its_turn_if_all_were_silent(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 60000, 60000);
    struct hf_lock *held = NULL, *lock = NULL;
    char waiter[64];
    int status = -1;
    pid_t pid;

    (void)state;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &held));
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        wait_in_queue();
    await_waiters(1);
    (void)kill(pid, SIGSTOP);
    (void)snprintf(waiter, sizeof(waiter), "%s",
                   hf_test_redis_command(&redis, "ZRANGE hf:q:k 0 0"));
    /* Pretend that the client of this waiter sends a heartbeat every 3 s, and
     * sent the last one 10 s ago. */
    (void)hf_test_redis_command(&redis, "SET hf:c:%s %s PX 20000", waiter + 32,
                                "1 3000 1");
    expect_ok(hf_release(held));
    assert_int_equal(query_number("EXISTS k"), 0);
    opts.wait_ms = 1000;
    expect_err(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_ETIMEDOUT);
    (void)kill(pid, SIGCONT);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    hf_lock_free(held);
}

/* A killed client has many waiters. One script drops only some of them, because
 * a script blocks the server. */
static void many_dead_waiters_are_dropped_in_steps(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 60000, 60000);
    struct hf_lock *held = NULL, *lock = NULL;

    (void)state;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &held));
    (void)hf_test_redis_command(&redis, "EVAL %s 2 hf:q:k hf:w:k %d %s",
                                FILL_QUEUE, DEAD, "0123456789abcdef");
    assert_int_equal(query_number("ZCARD hf:q:k"), DEAD);
    expect_ok(hf_release(held));
    assert_in_range(query_number("ZCARD hf:q:k"), DEAD - 2 * STEP, DEAD - 1);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    assert_int_equal(query_number("ZCARD hf:q:k"), 0);
    hf_lock_free(held);
    hf_lock_free(lock);
}

/* Copy the client id of the waiter at `position`, counted from 0. */
static void copy_client_id(unsigned position, char id[17])
{
    const char *waiter = hf_test_redis_command(&redis, "ZRANGE hf:q:k %u %u",
                                               position, position);

    (void)snprintf(id, 17, "%s", waiter + 32);
}

static pid_t start_stopped_waiter(long position)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        wait_in_queue();
    await_waiters(position);
    (void)kill(pid, SIGSTOP);
    return pid;
}

static void end_waiter(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* Let `client` wait for the key "x", which another client holds, until it times
 * out, so that the server has a heartbeat of `client`. Then overwrite the
 * heartbeat, as if `client` had sent heartbeats without a gap since 1970, the
 * last one 30000 - `left_ms` ms ago. */
static void pretend_to_be_steady(struct hf_lock_opts *opts, long left_ms)
{
    struct hf_lock *lock = NULL;
    char own[32];

    expect_err(hf_acquire(client, hf_key_of("x"), opts, &lock), HF_ETIMEDOUT);
    (void)snprintf(own, sizeof(own), "%s",
                   hf_test_redis_command(&redis, "KEYS hf:c:*"));
    (void)hf_test_redis_command(&redis, "SET %s %s PX %ld", own, "1 500 1",
                                left_ms);
}

/* The first waiter is silent. The second waiter is alive, but its heartbeats
 * have not been steady for long enough to pass the first. A third client has
 * been steady for long enough, and must not pass the second waiter. */
static void a_late_client_does_not_pass_a_live_waiter(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 50, 60000);
    struct hf_client *other = hf_test_redis_open(&redis, NULL);
    struct hf_lock *held[2] = {0}, *lock = NULL;
    char first[17], second[17];
    pid_t pids[2];

    (void)state;
    expect_ok(hf_acquire(other, hf_key_of("x"), &opts, &held[0]));
    expect_ok(hf_acquire(other, hf_key_of("k"), &opts, &held[1]));
    pretend_to_be_steady(&opts, 30000);
    for (unsigned i = 0; i < 2; i++)
        pids[i] = start_stopped_waiter(i + 1);
    copy_client_id(0, first);
    copy_client_id(1, second);
    (void)hf_test_redis_command(&redis, "SET hf:c:%s %s", first, "1 9000 1");
    (void)hf_test_redis_command(&redis, "EVAL %s 1 hf:c:%s",
                                "local now = redis.call('TIME')[1] .. '000' "
                                "redis.call('SET', KEYS[1], '1 9000 ' .. now, "
                                "'PX', 30000)",
                                second);
    expect_ok(hf_release(held[1]));
    opts.wait_ms = 0;
    expect_err(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_EBUSY);

    for (unsigned i = 0; i < 2; i++) {
        end_waiter(pids[i]);
        hf_lock_free(held[i]);
    }
    expect_ok(hf_close(other, 1000));
}

/* The waiter is silent, and so was the client that comes later. Perhaps the
 * server was stopped, so the client must not pass the waiter. */
static void a_client_that_was_silent_does_not_pass_a_waiter(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 50, 60000);
    struct hf_client *other = hf_test_redis_open(&redis, NULL);
    struct hf_lock *held[2] = {0}, *lock = NULL;
    char id[17];
    pid_t pid;

    (void)state;
    expect_ok(hf_acquire(other, hf_key_of("x"), &opts, &held[0]));
    expect_ok(hf_acquire(other, hf_key_of("k"), &opts, &held[1]));
    pretend_to_be_steady(&opts, 20000);
    pid = start_stopped_waiter(1);
    copy_client_id(0, id);
    (void)hf_test_redis_command(&redis, "SET hf:c:%s %s", id, "1 500 1");
    expect_ok(hf_release(held[1]));
    opts.wait_ms = 0;
    expect_err(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_EBUSY);

    end_waiter(pid);
    hf_lock_free(held[0]);
    hf_lock_free(held[1]);
    expect_ok(hf_close(other, 1000));
}

/* A client that was stopped has more waiters than one script visits. */
static void many_silent_waiters_do_not_block_a_live_one(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 60000, 60000);
    struct hf_lock *held = NULL, *lock = NULL;
    char id[17];
    pid_t pid;

    (void)state;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &held));
    pid = start_stopped_waiter(1);
    copy_client_id(0, id);
    (void)hf_test_redis_command(&redis, "EVAL %s 2 hf:q:k hf:w:k %d %s",
                                FILL_QUEUE, 3 * STEP, id);
    (void)hf_test_redis_command(&redis, "SET hf:c:%s %s", id, "1 500 1");
    expect_ok(hf_release(held));
    opts.wait_ms = 30000;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    assert_in_range(query_number("ZCARD hf:q:k"), 1,
                    STEP); /* not all silent waiters were dropped */

    end_waiter(pid);
    hf_lock_free(held);
    hf_lock_free(lock);
}

/* A client has died shortly after its last heartbeat. The server must not
 * mistake a subscriber to all channels for that client. */
static void a_pattern_subscriber_does_not_count_as_the_client(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 0, 60000);
    struct hf_lock *held = NULL, *lock = NULL;
    pid_t pid;

    (void)state;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &held));
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)execlp("redis-cli", "redis-cli", "-s", redis.socket, "PSUBSCRIBE",
                     "*", NULL);
        _exit(1);
    }
    while (query_number("PUBSUB NUMPAT") == 0)
        (void)poll(NULL, 0, 2);
    (void)hf_test_redis_command(&redis, "EVAL %s 2 hf:q:k hf:w:k 1 %s",
                                FILL_QUEUE, "0123456789abcdef");
    (void)hf_test_redis_command(&redis, "SET hf:c:0123456789abcdef %s PX 30000",
                                "1 9000 1");
    expect_ok(hf_release(held));
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));

    end_waiter(pid);
    hf_lock_free(held);
    hf_lock_free(lock);
}

#define UNSUBSCRIBED "deafdeafdeafdeaf" /* a client id */
#define UNSUBSCRIBED_WAITERS 3000

/* A client is alive, but has lost its pub/sub connection. It must not keep the
 * key from others, no matter how many waiters it has. */
static void many_unsubscribed_waiters_do_not_block_a_live_one(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, HF_FOREVER, 60000);
    struct hf_lock *lock = NULL;

    (void)state;
    (void)hf_test_redis_command(&redis, "SET hf:c:" UNSUBSCRIBED " %s PX 30000",
                                "1 10000 1");
    (void)hf_test_redis_command(&redis,
                                "EVAL %s 2 hf:q:k hf:w:k %d " UNSUBSCRIBED,
                                FILL_QUEUE, UNSUBSCRIBED_WAITERS);
    assert_int_equal(query_number("ZCARD hf:q:k"), UNSUBSCRIBED_WAITERS);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    assert_in_range(query_number("ZCARD hf:q:k"), 100, STEP);
    hf_lock_free(lock);
}

static long count_of(const char *section, const char *name)
{
    const char *found =
        strstr(hf_test_redis_command(&redis, "INFO %s", section), name);

    return found ? strtol(found + strlen(name), NULL, 10) : 0;
}

static long count_polls(void)
{
    return count_of("commandstats", "cmdstat_zrank:calls=");
}

/* A waiter polls without sending its value again, because the server has the
 * value already. */
static void a_waiter_sends_its_value_once(void **state)
{
    static char value[VALUE_SIZE];
    struct hf_lock_opts opts = hf_test_opts(10000, 60000, 60000);
    struct hf_client *other = hf_test_redis_open(&redis, NULL);
    struct hf_lock *held = NULL, *lock = NULL;
    struct hf_future *future = NULL;
    struct hf_info info;
    enum hf_err err = HF_OK;
    long bytes, before;

    (void)state;
    memset(value, 'v', sizeof(value));
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &held));
    opts.value = (struct hf_bytes){value, sizeof(value)};
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &lock, NULL, NULL,
                               &future));
    (void)hf_future_wait(future, 10, &err); /* drives the client */
    while (query_number("ZCARD hf:q:k") != 1)
        (void)hf_future_wait(future, 10, &err);
    bytes = count_of("stats", "total_net_input_bytes:");
    before = count_polls();
    while (count_polls() < before + 4)
        (void)hf_future_wait(future, 50, &err);
    assert_in_range(count_of("stats", "total_net_input_bytes:") - bytes, 1,
                    VALUE_SIZE - 1);

    expect_ok(hf_release(held));
    expect_ok(hf_future_wait(future, HF_FOREVER, &err));
    expect_ok(err);
    expect_ok(hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info));
    assert_int_equal(info.value.size, sizeof(value));
    hf_info_fini(&info);
    hf_future_free(future);
    hf_lock_free(held);
    hf_lock_free(lock);
    expect_ok(hf_close(other, 1000));
}

static atomic_uint withdrawn, misnamed;

static void count_withdrawn(const struct hf_event *event, void *arg)
{
    (void)arg;
    if (event->kind == HF_EVENT_WITHDRAWN)
        withdrawn++;
    if (event->kind == HF_EVENT_WITHDRAWN && strcmp(event->owner, "o") != 0)
        misnamed++;
}

/* The event of each dropped waiter names its owner. The script reads the owner
 * from only one claim of the client, because claims include values, which may
 * be long. */
static void dropping_watched_waiters_reads_one_claim(void **state)
{
    struct hf_watch *watch = NULL;
    struct hf_lock *held = NULL;
    long before;

    (void)state;
    expect_ok(hf_watch_open(client, hf_key_of("k"), NULL, count_withdrawn, NULL,
                            &watch));
    expect_ok(hf_acquire(client, hf_key_of("k"), NULL, &held));
    (void)hf_test_redis_command(
        &redis, "EVAL %s 2 hf:q:k hf:w:k",
        "for i = 1, 300 do local nonce = string.format('%032d', i) "
        "redis.call('ZADD', KEYS[1], i, nonce .. 'dead') "
        "redis.call('HSET', KEYS[2], nonce, '1000 1 0\\no' .. "
        "string.rep('v', 1000)) end");
    before = count_of("commandstats", "cmdstat_hget:calls=");
    expect_ok(hf_release(held));
    assert_in_range(count_of("commandstats", "cmdstat_hget:calls=") - before, 1,
                    100);
    while (withdrawn < 300)
        (void)poll(NULL, 0, 5);
    assert_int_equal(misnamed, 0);
    hf_watch_close(watch);
    hf_lock_free(held);
}

static void all_waiters_of_a_client_share_one_heartbeat(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 60000, 60000);
    struct hf_client *other = hf_test_redis_open(&redis, NULL);
    struct hf_lock *held[4] = {0}, *locks[4] = {0};
    struct hf_future *futures[4];
    static const char *const keys[4] = {"a", "b", "c", "d"};
    enum hf_err err = HF_OK;

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        expect_ok(hf_acquire(client, hf_key_of(keys[i]), &opts, &held[i]));
        expect_ok(hf_acquire_start(other, hf_key_of(keys[i]), &opts, &locks[i],
                                   NULL, NULL, &futures[i]));
    }
    while (query_number("EXISTS hf:q:a hf:q:b hf:q:c hf:q:d") != 4)
        (void)hf_future_wait(futures[0], 10, &err);
    assert_int_equal(strlen(hf_test_redis_command(&redis, "KEYS hf:c:*")),
                     strlen("hf:c:") + 16);
    for (unsigned i = 0; i < 4; i++) {
        expect_ok(hf_release(held[i]));
        expect_ok(hf_future_wait(futures[i], HF_FOREVER, &err));
        expect_ok(err);
        hf_future_free(futures[i]);
        hf_lock_free(held[i]);
        hf_lock_free(locks[i]);
    }
    expect_ok(hf_close(other, 1000));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(stopped_waiters_do_not_get_the_key),
        CASE(a_waiter_keeps_its_turn_if_all_were_silent),
        CASE(many_dead_waiters_are_dropped_in_steps),
        CASE(a_late_client_does_not_pass_a_live_waiter),
        CASE(a_client_that_was_silent_does_not_pass_a_waiter),
        CASE(many_silent_waiters_do_not_block_a_live_one),
        CASE(a_pattern_subscriber_does_not_count_as_the_client),
        CASE(many_unsubscribed_waiters_do_not_block_a_live_one),
        CASE(dropping_watched_waiters_reads_one_claim),
        CASE(a_waiter_sends_its_value_once),
        CASE(all_waiters_of_a_client_share_one_heartbeat),
    };

    return hf_test_main("redis queue", cases, HF_TEST_COUNT(cases), 2);
}
