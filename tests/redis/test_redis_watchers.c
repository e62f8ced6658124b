/* Watches in Redis: which events are recorded, and for how long. */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/redis_client.h"
#include "lib/runner.h"

#define PAIRS 20
#define PREFIXES 300
#define WAITS 700

static struct hf_test_redis redis;
static struct hf_client *client, *watcher;

struct seen {
    atomic_uint events, dropped; /* events counted in a thread of the client */
};

static int set_up(void **state)
{
    (void)state;
    if (!hf_test_redis_start(&redis, NULL))
        return -1;
    client = hf_test_redis_open(&redis, NULL);
    watcher = hf_test_redis_open(&redis, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)hf_close(client, 1000);
    (void)hf_close(watcher, 1000);
    hf_test_redis_stop(&redis);
    return 0;
}

static void on_event(const struct hf_event *event, void *arg)
{
    struct seen *seen = arg;

    if (event->kind == HF_EVENT_DROPPED)
        seen->dropped++;
    else
        seen->events++;
}

static void lock_and_unlock(const char *key, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct hf_lock *lock = NULL;

        expect_ok(hf_acquire(client, hf_key_of(key), NULL, &lock));
        expect_ok(hf_release(lock));
        hf_lock_free(lock);
    }
}

static long count_recorded(void)
{
    return strtol(hf_test_redis_command(&redis, "XLEN hf:events"), NULL, 10);
}

static void expect_recorded(long before, long most)
{
    long now = count_recorded();

    assert_in_range(now, before, before + most);
}

static void unwatched_keys_are_not_recorded(void **state)
{
    struct hf_watch *watch = NULL;
    struct seen seen = {0};
    struct hf_info info;
    long before;

    (void)state;
    expect_ok(
        hf_watch_open(watcher, hf_key_of("w/"), NULL, on_event, &seen, &watch));
    expect_err(hf_wait_held(watcher, hf_key_of("exact"), 10, &info),
               HF_ETIMEDOUT);
    before = count_recorded();
    lock_and_unlock("other", PAIRS);
    lock_and_unlock("exact/not", PAIRS);
    expect_recorded(before, 0);
    assert_string_equal(hf_test_redis_command(&redis, "EXISTS hf:held"), "0");

    lock_and_unlock("w/1", PAIRS);
    expect_recorded(before + (long)2 * PAIRS, 0);
    while (seen.events < 2 * PAIRS)
        (void)poll(NULL, 0, 5);
    assert_int_equal(seen.dropped, 0);
    hf_watch_close(watch);
}

/* A registration expires after ten seconds, unless it is renewed. */
static void registrations_expire(void **state)
{
    static const char *const keys[] = {"hf:watched", "hf:prefixes", "hf:until"};
    struct hf_watch *watch = NULL;
    struct seen seen = {0};

    (void)state;
    expect_ok(
        hf_watch_open(watcher, hf_key_of("w/"), NULL, on_event, &seen, &watch));
    for (unsigned i = 0; i < 3; i++) {
        const char *left = hf_test_redis_command(&redis, "PTTL %s", keys[i]);

        assert_in_range(strtol(left, NULL, 10), 1, 10000);
    }
    hf_watch_close(watch);
}

/* The registration is lost, as if the watcher had been stopped for a
 * long time. */
static void unrecorded_events_are_reported_as_dropped(void **state)
{
    struct hf_watch *watch = NULL;
    struct seen seen = {0};

    (void)state;
    expect_ok(
        hf_watch_open(watcher, hf_key_of("w/"), NULL, on_event, &seen, &watch));
    (void)hf_test_redis_command(&redis, "DEL hf:watched hf:prefixes hf:until");
    lock_and_unlock("w/1", 1);
    while (seen.dropped == 0)
        (void)poll(NULL, 0, 5);
    assert_int_equal(seen.events, 0);
    lock_and_unlock("w/1", 1);
    while (seen.events < 2)
        (void)poll(NULL, 0, 5);
    assert_int_equal(seen.dropped, 1);
    hf_watch_close(watch);
}

/* Both watches have the same pattern, so they share a subscription and a
 * registration. */
static void closing_one_of_two_watches_keeps_the_other(void **state)
{
    struct hf_watch *one = NULL, *two = NULL;
    struct seen first = {0}, second = {0};

    (void)state;
    expect_ok(
        hf_watch_open(watcher, hf_key_of("w/"), NULL, on_event, &first, &one));
    expect_ok(
        hf_watch_open(watcher, hf_key_of("w/"), NULL, on_event, &second, &two));
    hf_watch_close(one);
    lock_and_unlock("w/1", 1);
    while (second.events < 2)
        (void)poll(NULL, 0, 5);
    assert_int_equal(first.events, 0);
    hf_watch_close(two);
}

/* The registration of the key "w" expires, and the registration of the prefix
 * "w" does not. */
static void a_prefix_stays_watched_when_the_same_key_is_not(void **state)
{
    struct hf_watch *watch = NULL;
    struct seen seen = {0};
    struct hf_info info;

    (void)state;
    expect_ok(
        hf_watch_open(watcher, hf_key_of("w"), NULL, on_event, &seen, &watch));
    expect_err(hf_wait_held(watcher, hf_key_of("w"), 10, &info), HF_ETIMEDOUT);
    (void)hf_test_redis_command(&redis, "ZADD hf:until 1 =w"); /* due now */
    while (strcmp(hf_test_redis_command(&redis, "HEXISTS hf:watched =w"),
                  "0") != 0)
        expect_err(hf_wait_held(watcher, hf_key_of("x"), 10, &info),
                   HF_ETIMEDOUT);
    assert_string_equal(hf_test_redis_command(&redis, "HEXISTS hf:prefixes 1"),
                        "1");
    lock_and_unlock("w1", 1);
    while (seen.events < 2)
        (void)poll(NULL, 0, 5);
    hf_watch_close(watch);
}

/* The cost of a LOCK depends on how many different lengths the watched prefixes
 * have, not on how many prefixes there are. */
static void many_prefixes_can_be_watched(void **state)
{
    static struct hf_watch *watches[PREFIXES];
    struct seen seen = {0};
    char prefix[32];

    (void)state;
    for (unsigned i = 0; i < PREFIXES; i++) {
        (void)snprintf(prefix, sizeof(prefix), "w%03u/", i);
        expect_ok(hf_watch_open(watcher, hf_key_of(prefix), NULL, on_event,
                                &seen, &watches[i]));
    }
    assert_string_equal(hf_test_redis_command(&redis, "HGETALL hf:prefixes"),
                        "5\n300");
    lock_and_unlock("w123/x", 1);
    while (seen.events < 2)
        (void)poll(NULL, 0, 5);
    for (unsigned i = 0; i < PREFIXES; i++)
        hf_watch_close(watches[i]);
}

/* The number of arguments of the longest command in the slow log. */
static long longest_command(void)
{
    static const char script[] =
        "local most = 0 for _, entry in ipairs(redis.call('SLOWLOG', 'GET', "
        "10000)) do local words = entry[4] local more = string.match("
        "words[#words], '%((%d+) more arguments%)$') "
        "most = math.max(most, #words + (more and more - 1 or 0)) end "
        "return most";

    return strtol(hf_test_redis_command(&redis, "EVAL %s 0", script), NULL, 10);
}

/* One script registers at most 256 watches, because a script blocks the
 * server. */
static void many_waits_are_registered_in_parts(void **state)
{
    static struct hf_future *futures[WAITS];
    char key[32];

    (void)state;
    (void)hf_test_redis_command(&redis, "CONFIG SET slowlog-max-len 10000");
    (void)hf_test_redis_command(&redis, "CONFIG SET slowlog-log-slower-than 0");
    for (unsigned i = 0; i < WAITS; i++) {
        (void)snprintf(key, sizeof(key), "w%u", i);
        expect_ok(hf_wait_held_start(watcher, hf_key_of(key), HF_FOREVER, NULL,
                                     NULL, NULL, &futures[i]));
    }
    while (strcmp(hf_test_redis_command(&redis, "HLEN hf:watched"), "700") != 0)
        expect_err(hf_future_wait(futures[0], 10, NULL), HF_ETIMEDOUT);
    (void)hf_test_redis_command(&redis, "SLOWLOG RESET");
    while (longest_command() < 200) /* until the next round of registrations */
        expect_err(hf_future_wait(futures[0], 100, NULL), HF_ETIMEDOUT);
    assert_in_range(longest_command(), 200, 300);
    (void)hf_test_redis_command(&redis,
                                "CONFIG SET slowlog-log-slower-than -1");
    lock_and_unlock("w0", 1);
    lock_and_unlock("w699", 1);
    expect_ok(hf_future_wait(futures[0], HF_FOREVER, NULL));
    expect_ok(hf_future_wait(futures[699], HF_FOREVER, NULL));
    for (unsigned i = 0; i < WAITS; i++) {
        hf_future_cancel(futures[i]);
        hf_future_free(futures[i]);
    }
}

static void a_lost_registration_is_renewed(void **state)
{
    struct hf_watch *watch = NULL;
    struct seen seen = {0};

    (void)state;
    expect_ok(
        hf_watch_open(watcher, hf_key_of("w"), NULL, on_event, &seen, &watch));
    (void)hf_test_redis_command(&redis, "DEL hf:watched hf:prefixes hf:until");
    while (strcmp(hf_test_redis_command(&redis, "HEXISTS hf:watched ^w"),
                  "1") != 0)
        (void)poll(NULL, 0, 10);
    lock_and_unlock("w1", 1);
    while (seen.events < 2)
        (void)poll(NULL, 0, 5);
    hf_watch_close(watch);
}

/* A lease expires, and a plain client takes the key before the expiry is
 * recorded. Watchers receive the event, and do not read the key again and again
 * while the plain client has it. */
static void an_expiry_is_reported_if_a_plain_client_takes_the_key(void **state)
{
    struct hf_watch *watch = NULL;
    struct hf_lock *lock = NULL;
    struct seen seen = {0};

    (void)state;
    expect_ok(
        hf_watch_open(watcher, hf_key_of("w/"), NULL, on_event, &seen, &watch));
    expect_ok(hf_acquire(client, hf_key_of("w/1"), NULL, &lock));
    (void)hf_test_redis_command(&redis, "SET w/1 mine PX 600000");
    (void)hf_test_redis_command(&redis, "ZADD hf:ends 1 w/1"); /* due now */
    while (seen.events < 2)
        (void)poll(NULL, 0, 5);
    assert_string_equal(hf_test_redis_command(&redis, "EXISTS hf:ends hf:held"),
                        "0");
    hf_lock_free(lock);
    hf_watch_close(watch);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(unwatched_keys_are_not_recorded),
        CASE(registrations_expire),
        CASE(unrecorded_events_are_reported_as_dropped),
        CASE(closing_one_of_two_watches_keeps_the_other),
        CASE(a_prefix_stays_watched_when_the_same_key_is_not),
        CASE(many_prefixes_can_be_watched),
        CASE(many_waits_are_registered_in_parts),
        CASE(a_lost_registration_is_renewed),
        CASE(an_expiry_is_reported_if_a_plain_client_takes_the_key),
    };

    return hf_test_main("redis watchers", cases, HF_TEST_COUNT(cases), 4);
}
