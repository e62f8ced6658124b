/* Many processes over one Redis server, some of which are killed, and the
 * server too. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/recorded.h"
#include "lib/redis_client.h"
#include "lib/runner.h"

#define WAITERS 200
#define WORKERS 16
#define INCREMENTS 40 /* each */
#define RESTARTS 5
#define STORMERS 6
#define STORM_STEPS 120

static const char *const on_disk[] = {"--appendonly", "yes", "--appendfsync",
                                      "always", NULL};

/* What the processes share besides the lock. */
struct shared {
    atomic_uint served[WAITERS]; /* who was granted, in order */
    atomic_uint served_count;
    atomic_uint done; /* increments */
    unsigned counter; /* plain: only the lock protects it */
    atomic_uint failures;
};

static struct hf_test_redis redis;
static struct shared *shared;

static int set_up(void **state)
{
    (void)state;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared != MAP_FAILED ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    hf_test_redis_stop(&redis);
    return 0;
}

static void await_waiters(int count)
{
    char wanted[16];

    (void)snprintf(wanted, sizeof(wanted), "%d", count);
    while (strcmp(hf_test_redis_say(&redis, "ZCARD hf:q:k"), wanted) != 0)
        (void)poll(NULL, 0, 2);
}

/* A child's own client: a test's assertions are its parent's. */
static struct hf_client *open_or_exit(void)
{
    struct hf_client *client = NULL;

    if (hf_open(hf_test_redis_url(&redis, NULL, NULL), NULL, &client))
        _exit(3);
    return client;
}

/* ---- In line ------------------------------------------------------------*/

static _Noreturn void wait_and_be_served(unsigned number, uint32_t ttl_ms)
{
    struct hf_lock_opts opts = hf_test_opts(ttl_ms, HF_FOREVER, 60000);
    struct hf_client *client = open_or_exit();
    struct hf_lock *lock = NULL;

    if (hf_acquire(client, hf_key_of("k"), &opts, &lock))
        _exit(4);
    shared->served[atomic_fetch_add(&shared->served_count, 1)] = number;
    (void)hf_release(lock);
    _exit(hf_close(client, HF_TEST_PATIENCE_MS) ? 5 : 0);
}

/* Each stands in line before the next one comes. */
static void stand_in_line(pid_t *pids, unsigned count, uint32_t ttl_ms)
{
    for (unsigned i = 0; i < count; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            wait_and_be_served(i, ttl_ms);
        await_waiters((int)i + 1);
    }
}

static void kill_one(pid_t *pid)
{
    (void)kill(*pid, SIGKILL);
    (void)waitpid(*pid, NULL, 0);
    *pid = 0;
}

static void expect_all_end(const pid_t *pids, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        int status = -1;

        if (pids[i] == 0)
            continue;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
}

static void two_hundred_are_served_in_order_and_the_killed_are_not(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_PATIENCE_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    pid_t pids[WAITERS];
    unsigned killed = 0;

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    client = hf_test_redis_open(&redis, NULL);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    stand_in_line(pids, WAITERS, 600000);
    for (unsigned i = 0; i < WAITERS; i += 3) { /* the first among them */
        kill_one(&pids[i]);
        killed++;
    }
    expect_ok(hf_release(lock));
    /* And while they are served: one who holds leaves it to its lease, which
     * is long, so only those far behind. */
    for (unsigned i = WAITERS - 1; i >= WAITERS - 20; i--) {
        if (pids[i] > 0 && atomic_load(&shared->served_count) < 60) {
            kill_one(&pids[i]);
            killed++;
        }
    }
    expect_all_end(pids, WAITERS);

    assert_int_equal(shared->served_count, WAITERS - killed);
    for (unsigned i = 1; i < shared->served_count; i++)
        assert_true(shared->served[i - 1] < shared->served[i]);
    assert_string_equal(hf_test_redis_say(&redis, "EXISTS k"), "0");
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_PATIENCE_MS));
}

/* The first in line is stopped: it gets the lock, and keeps it for its lease
 * at most. */
static void who_is_stopped_costs_its_own_lease(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_PATIENCE_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    pid_t pids[3];

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    client = hf_test_redis_open(&redis, NULL);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    stand_in_line(pids, 1, 500);
    for (unsigned i = 1; i < 3; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            wait_and_be_served(i, HF_TEST_LONG_MS);
        await_waiters((int)i + 1);
    }
    (void)kill(pids[0], SIGSTOP);
    expect_ok(hf_release(lock));
    expect_all_end(pids + 1, 2);

    assert_int_equal(shared->served[0], 1);
    assert_int_equal(shared->served[1], 2);
    (void)kill(pids[0], SIGCONT);
    expect_all_end(pids, 1);
    assert_int_equal(shared->served[2], 0);
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_PATIENCE_MS));
}

/* For how long, in milliseconds, the first waiter's client has been silent: the
 * key of its signs of life has 30 s from the last one. */
static long silence_of_the_first(void)
{
    char waiter[64];
    const char *left;

    (void)snprintf(waiter, sizeof(waiter), "%s",
                   hf_test_redis_say(&redis, "ZRANGE hf:q:k 0 0"));
    left = hf_test_redis_say(&redis, "PTTL hf:c:%s", waiter + 32);
    return 30000 - strtol(left, NULL, 10);
}

/* The first in line is stopped, and has not been heard of for a while, as the
 * others have: it is passed over, and keeps its place. */
static void who_is_silent_is_passed_over(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_PATIENCE_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    pid_t pids[3];

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    client = hf_test_redis_open(&redis, NULL);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    stand_in_line(pids, 3, 600000);
    (void)kill(pids[0], SIGSTOP);
    while (silence_of_the_first() <= 1600) /* more than three beats */
        (void)poll(NULL, 0, 20);
    expect_ok(hf_release(lock));
    expect_all_end(pids + 1, 2);

    assert_int_equal(shared->served[0], 1);
    assert_int_equal(shared->served[1], 2);
    await_waiters(1);
    (void)kill(pids[0], SIGCONT);
    expect_all_end(pids, 1);
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_PATIENCE_MS));
}

/* The lease of the key ends. */
static void end_lease(void)
{
    (void)hf_test_redis_say(&redis, "PEXPIRE k 1");
    while (strcmp(hf_test_redis_say(&redis, "EXISTS k"), "0") != 0)
        (void)poll(NULL, 0, 2);
}

/* A lease ends, and who comes first is not first in line, unless the first has
 * not been heard of for three beats. */
static void nobody_jumps_the_line(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_PATIENCE_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL, *jumped = NULL;
    enum hf_err err;
    pid_t pid;

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    client = hf_test_redis_open(&redis, NULL);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    stand_in_line(&pid, 1, HF_TEST_LONG_MS);
    (void)kill(pid, SIGSTOP);
    end_lease();
    err = hf_acquire(client, hf_key_of("k"), &opts, &jumped);
    if (err != HF_EBUSY) {
        expect_ok(err);
        assert_true(silence_of_the_first() > 1500);
        expect_ok(hf_release(jumped));
    }

    (void)kill(pid, SIGCONT);
    expect_all_end(&pid, 1);
    assert_int_equal(shared->served_count, 1);
    hf_lock_free(jumped);
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_PATIENCE_MS));
}

/* Whoever stands in it may be killed at once: also the second line of a key
 * goes by itself. */
static void every_line_has_an_expiry(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_PATIENCE_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    pid_t pid;

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    client = hf_test_redis_open(&redis, NULL);
    for (unsigned i = 0; i < 3; i++) {
        expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
        stand_in_line(&pid, 1, 600000);
        assert_string_not_equal(hf_test_redis_say(&redis, "PTTL hf:q:k"), "-1");
        assert_string_not_equal(hf_test_redis_say(&redis, "PTTL hf:w:k"), "-1");
        expect_ok(hf_release(lock));
        hf_lock_free(lock);
        expect_all_end(&pid, 1);
    }
    expect_ok(hf_close(client, HF_TEST_PATIENCE_MS));
}

/* The holder is killed, and so is the first in line: the second has the key
 * after the holder's lease, and waits for no lease of the first. */
static void the_killed_hold_up_nobody(void **state)
{
    pid_t pids[4], holder;

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    holder = fork();
    assert_true(holder >= 0);
    if (holder == 0) {
        struct hf_lock_opts opts =
            hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_PATIENCE_MS);
        struct hf_lock *lock = NULL;

        if (hf_acquire(open_or_exit(), hf_key_of("k"), &opts, &lock))
            _exit(4);
        for (;;)
            (void)pause();
    }
    while (!strcmp(hf_test_redis_say(&redis, "EXISTS k"), "0"))
        (void)poll(NULL, 0, 2);
    stand_in_line(pids, 4, 600000);
    kill_one(&holder);
    kill_one(&pids[0]);
    kill_one(&pids[2]);
    end_lease();
    expect_all_end(pids, 4);

    assert_int_equal(shared->served_count, 2);
    assert_int_equal(shared->served[0], 1);
    assert_int_equal(shared->served[1], 3);
}

/* ---- A counter ----------------------------------------------------------*/

/* What the lock protects: a load, a pause, a store. */
static bool increment(struct hf_lock *lock)
{
    unsigned seen = shared->counter;

    (void)poll(NULL, 0, 1);
    if (!hf_lock_valid_for(lock, 1000))
        return false;
    shared->counter = seen + 1;
    atomic_fetch_add(&shared->done, 1);
    return true;
}

static _Noreturn void count(void)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, HF_FOREVER, HF_TEST_PATIENCE_MS);
    struct hf_client *client = open_or_exit();

    for (unsigned i = 0; i < INCREMENTS;) {
        struct hf_lock *lock = NULL;
        enum hf_err err = hf_acquire(client, hf_key_of("k"), &opts, &lock);

        if (!err && increment(lock))
            i++;
        if (!err)
            err = hf_release(lock);
        if (err && err != HF_EINDOUBT)
            atomic_fetch_add(&shared->failures, 1);
        hf_lock_free(lock);
    }
    _exit(hf_close(client, HF_TEST_PATIENCE_MS) ? 5 : 0);
}

static void a_counter_stays_exact_while_the_server_is_restarted(void **state)
{
    pid_t pids[WORKERS];

    (void)state;
    assert_true(hf_test_redis_start(&redis, on_disk));
    for (unsigned i = 0; i < WORKERS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            count();
    }
    for (unsigned i = 1; i <= RESTARTS; i++) {
        unsigned wanted = i * WORKERS * INCREMENTS / (RESTARTS + 1);

        while (atomic_load(&shared->done) < wanted)
            (void)poll(NULL, 0, 1);
        hf_test_redis_kill(&redis);
        assert_true(hf_test_redis_again(&redis, true));
    }
    expect_all_end(pids, WORKERS);

    assert_int_equal(shared->failures, 0);
    assert_int_equal(shared->done, WORKERS * INCREMENTS);
    assert_int_equal(shared->counter, WORKERS * INCREMENTS);
}

/* ---- A history ----------------------------------------------------------*/

struct stormer {
    pthread_t thread;
    struct hf_client *client;
    uint64_t seed;
    _Atomic unsigned *steps;
};

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void storm_step(struct stormer *stormer)
{
    static const char *const keys[] = {"a", "b"};
    struct hf_key key = hf_key_of(keys[next_random(&stormer->seed) % 2]);
    struct hf_lock_opts opts =
        hf_test_opts((uint32_t)(20 + next_random(&stormer->seed) % 200),
                     (uint32_t)(next_random(&stormer->seed) % 3 * 100), 1000);
    struct hf_client *client = stormer->client;
    struct hf_lock *lock = NULL;
    struct hf_info info;

    if (recorded_read(client, key, &info) == HF_OK)
        hf_info_fini(&info);
    if (recorded_lock(client, key, &opts, &lock) != HF_OK)
        return;
    if (next_random(&stormer->seed) % 3 == 0)
        (void)recorded_renew(client, lock, 0);
    (void)recorded_valid(client, lock);
    if (next_random(&stormer->seed) % 4 == 0)
        (void)poll(NULL, 0, (int)(next_random(&stormer->seed) % 60));
    (void)recorded_unlock(client, lock);
    hf_lock_free(lock);
}

static void *storm(void *arg)
{
    struct stormer *stormer = arg;

    for (unsigned i = 0; i < STORM_STEPS; i++) {
        storm_step(stormer);
        atomic_fetch_add(stormer->steps, 1);
    }
    return NULL;
}

/* Connections are cut and the server is restarted, over its disk, while the
 * locks are taken; the checker is the judge. */
static void a_storm_with_restarts_leaves_a_good_history(void **state)
{
    struct stormer stormers[STORMERS];
    _Atomic unsigned steps = 0;

    (void)state;
    assert_true(hf_test_redis_start(&redis, on_disk));
    recorded_init(false);
    for (unsigned i = 0; i < STORMERS; i++) {
        stormers[i] = (struct stormer){
            .client = hf_test_redis_open(&redis, NULL),
            .seed = i + 1,
            .steps = &steps,
        };
        assert_int_equal(
            pthread_create(&stormers[i].thread, NULL, storm, &stormers[i]), 0);
    }
    for (unsigned i = 1; i <= 2 * RESTARTS; i++) {
        unsigned wanted = i * STORMERS * STORM_STEPS / (2 * RESTARTS + 1);

        while (atomic_load(&steps) < wanted)
            (void)poll(NULL, 0, 1);
        if (i % 2) {
            (void)hf_test_redis_say(&redis, "CLIENT KILL TYPE normal");
            (void)hf_test_redis_say(&redis, "CLIENT KILL TYPE pubsub");
            continue;
        }
        hf_test_redis_kill(&redis);
        assert_true(hf_test_redis_again(&redis, true));
    }
    for (unsigned i = 0; i < STORMERS; i++)
        assert_int_equal(pthread_join(stormers[i].thread, NULL), 0);
    for (unsigned i = 0; i < STORMERS; i++)
        (void)recorded_close(stormers[i].client, 5000);
    assert_int_equal(recorded_check("a storm with restarts"), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(two_hundred_are_served_in_order_and_the_killed_are_not),
        CASE(who_is_stopped_costs_its_own_lease),
        CASE(who_is_silent_is_passed_over),
        CASE(nobody_jumps_the_line),
        CASE(every_line_has_an_expiry),
        CASE(the_killed_hold_up_nobody),
        CASE(a_counter_stays_exact_while_the_server_is_restarted),
        CASE(a_storm_with_restarts_leaves_a_good_history),
    };

    return hf_test_main("redis crowd", cases, HF_TEST_COUNT(cases), 2);
}
