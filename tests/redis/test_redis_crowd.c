/* Many processes use one Redis server. Some of them are killed, and the server
 * is restarted. */
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
#define INCREMENTS 40 /* increments of each worker */
#define RESTARTS 5
#define STORMERS 6
#define STORM_STEPS 120

static const char *const on_disk[] = {"--appendonly", "yes", "--appendfsync",
                                      "always", NULL};

/* State in memory that all processes share. */
struct shared {
    atomic_uint
        served[WAITERS]; /* numbers of waiters, in the order of grants */
    atomic_uint served_count;
    atomic_uint done; /* number of increments */
    unsigned counter; /* not atomic, because the lock must protect it */
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
    while (strcmp(hf_test_redis_command(&redis, "ZCARD hf:q:k"), wanted) != 0)
        (void)poll(NULL, 0, 2);
}

/* Open a client in a child process, and exit on failure: a failed assertion
 * would run the teardown of the case, which stops the server. */
static struct hf_client *open_or_exit(void)
{
    struct hf_client *client = NULL;

    if (hf_open(hf_test_redis_url(&redis, NULL, NULL), NULL, &client))
        _exit(3);
    return client;
}

/* ---- The queue ----------------------------------------------------------*/

static _Noreturn void wait_for_grant(unsigned number, uint32_t ttl_ms)
{
    struct hf_lock_opts opts = hf_test_opts(ttl_ms, HF_FOREVER, 60000);
    struct hf_client *client = open_or_exit();
    struct hf_lock *lock = NULL;

    if (hf_acquire(client, hf_key_of("k"), &opts, &lock))
        _exit(4);
    shared->served[atomic_fetch_add(&shared->served_count, 1)] = number;
    (void)hf_release(lock);
    _exit(hf_close(client, HF_TEST_TIMEOUT_MS) ? 5 : 0);
}

/* Start `count` waiters, each after the previous one has joined the queue. */
static void start_waiters(pid_t *pids, unsigned count, uint32_t ttl_ms)
{
    for (unsigned i = 0; i < count; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            wait_for_grant(i, ttl_ms);
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

static void waiters_are_granted_in_order_and_killed_ones_skipped(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    pid_t pids[WAITERS];
    unsigned killed = 0;

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    client = hf_test_redis_open(&redis, NULL);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    start_waiters(pids, WAITERS, 600000);
    for (unsigned i = 0; i < WAITERS; i += 3) { /* the first waiter, too */
        kill_one(&pids[i]);
        killed++;
    }
    expect_ok(hf_release(lock));
    /* Kill some more waiters while the others are granted the lock. Kill only
     * the last ones, because a holder that is killed would keep the lock for
     * its long lease. */
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
    assert_string_equal(hf_test_redis_command(&redis, "EXISTS k"), "0");
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
}

/* The first waiter is stopped. The server may still grant it the lock, which
 * then ends with its lease. */
static void a_stopped_waiter_costs_at_most_its_lease(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    pid_t pids[3];

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    client = hf_test_redis_open(&redis, NULL);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    start_waiters(pids, 1, 500);
    for (unsigned i = 1; i < 3; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            wait_for_grant(i, HF_TEST_LONG_MS);
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
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
}

/* Milliseconds since the last heartbeat of the first waiter's client, computed
 * from the heartbeat key, which expires 30 s after each heartbeat. */
static long silence_of_first_ms(void)
{
    char waiter[64];
    const char *left;

    (void)snprintf(waiter, sizeof(waiter), "%s",
                   hf_test_redis_command(&redis, "ZRANGE hf:q:k 0 0"));
    left = hf_test_redis_command(&redis, "PTTL hf:c:%s", waiter + 32);
    return 30000 - strtol(left, NULL, 10);
}

/* The first waiter is stopped, so it sends no heartbeats, while the others do.
 * The first waiter is skipped, but keeps its position. */
static void a_silent_waiter_is_skipped_and_keeps_its_position(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    pid_t pids[3];

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    client = hf_test_redis_open(&redis, NULL);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    start_waiters(pids, 3, 600000);
    (void)kill(pids[0], SIGSTOP);
    while (silence_of_first_ms() <= 1600) /* three missed heartbeats */
        (void)poll(NULL, 0, 20);
    expect_ok(hf_release(lock));
    expect_all_end(pids + 1, 2);

    assert_int_equal(shared->served[0], 1);
    assert_int_equal(shared->served[1], 2);
    await_waiters(1);
    (void)kill(pids[0], SIGCONT);
    expect_all_end(pids, 1);
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
}

static void end_lease(void)
{
    (void)hf_test_redis_command(&redis, "PEXPIRE k 1");
    while (strcmp(hf_test_redis_command(&redis, "EXISTS k"), "0") != 0)
        (void)poll(NULL, 0, 2);
}

/* A lease expires while the first waiter is stopped. Another client must not
 * get the lock, unless the first waiter has missed three heartbeats. */
static void a_late_client_does_not_pass_the_first_waiter(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL, *jumped = NULL;
    enum hf_err err;
    pid_t pid;

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    client = hf_test_redis_open(&redis, NULL);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    start_waiters(&pid, 1, HF_TEST_LONG_MS);
    (void)kill(pid, SIGSTOP);
    end_lease();
    err = hf_acquire(client, hf_key_of("k"), &opts, &jumped);
    if (err != HF_EBUSY) {
        expect_ok(err);
        assert_true(silence_of_first_ms() > 1500);
        expect_ok(hf_release(jumped));
    }

    (void)kill(pid, SIGCONT);
    expect_all_end(&pid, 1);
    assert_int_equal(shared->served_count, 1);
    hf_lock_free(jumped);
    hf_lock_free(lock);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
}

/* All waiters may be killed together, so every queue must expire by itself,
 * including the second and third queue of the same key. */
static void every_queue_has_an_expiry(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    pid_t pid;

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    client = hf_test_redis_open(&redis, NULL);
    for (unsigned i = 0; i < 3; i++) {
        expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
        start_waiters(&pid, 1, 600000);
        assert_string_not_equal(hf_test_redis_command(&redis, "PTTL hf:q:k"),
                                "-1");
        assert_string_not_equal(hf_test_redis_command(&redis, "PTTL hf:w:k"),
                                "-1");
        expect_ok(hf_release(lock));
        hf_lock_free(lock);
        expect_all_end(&pid, 1);
    }
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
}

/* The holder, the first and the third waiter are killed. When the holder's
 * lease has expired, the second and the fourth waiter are granted the key, one
 * after the other. */
static void killed_clients_do_not_delay_others(void **state)
{
    pid_t pids[4], holder;

    (void)state;
    assert_true(hf_test_redis_start(&redis, NULL));
    holder = fork();
    assert_true(holder >= 0);
    if (holder == 0) {
        struct hf_lock_opts opts =
            hf_test_opts(HF_TEST_LONG_MS, 0, HF_TEST_TIMEOUT_MS);
        struct hf_lock *lock = NULL;

        if (hf_acquire(open_or_exit(), hf_key_of("k"), &opts, &lock))
            _exit(4);
        for (;;)
            (void)pause();
    }
    while (!strcmp(hf_test_redis_command(&redis, "EXISTS k"), "0"))
        (void)poll(NULL, 0, 2);
    start_waiters(pids, 4, 600000);
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

/* The critical section: a load, a pause, a store. If two processes were in it
 * at once, an increment would be lost. Returns false, without the store, if the
 * lock may expire soon. */
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

static _Noreturn void increment_repeatedly(void)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, HF_FOREVER, HF_TEST_TIMEOUT_MS);
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
    _exit(hf_close(client, HF_TEST_TIMEOUT_MS) ? 5 : 0);
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
            increment_repeatedly();
    }
    for (unsigned i = 1; i <= RESTARTS; i++) {
        unsigned wanted = i * WORKERS * INCREMENTS / (RESTARTS + 1);

        while (atomic_load(&shared->done) < wanted)
            (void)poll(NULL, 0, 1);
        hf_test_redis_kill(&redis);
        assert_true(hf_test_redis_restart(&redis, true));
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
    if (recorded_acquire(client, key, &opts, &lock) != HF_OK)
        return;
    if (next_random(&stormer->seed) % 3 == 0)
        (void)recorded_renew(client, lock, 0);
    (void)recorded_is_valid(client, lock);
    if (next_random(&stormer->seed) % 4 == 0)
        (void)poll(NULL, 0, (int)(next_random(&stormer->seed) % 60));
    (void)recorded_release(client, lock);
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

/* Connections are killed and the server is restarted, with its data, while
 * threads take locks. The history checker decides whether all promises were
 * kept. */
static void a_storm_with_restarts_leaves_a_valid_history(void **state)
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
            (void)hf_test_redis_command(&redis, "CLIENT KILL TYPE normal");
            (void)hf_test_redis_command(&redis, "CLIENT KILL TYPE pubsub");
            continue;
        }
        hf_test_redis_kill(&redis);
        assert_true(hf_test_redis_restart(&redis, true));
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
        CASE(waiters_are_granted_in_order_and_killed_ones_skipped),
        CASE(a_stopped_waiter_costs_at_most_its_lease),
        CASE(a_silent_waiter_is_skipped_and_keeps_its_position),
        CASE(a_late_client_does_not_pass_the_first_waiter),
        CASE(every_queue_has_an_expiry),
        CASE(killed_clients_do_not_delay_others),
        CASE(a_counter_stays_exact_while_the_server_is_restarted),
        CASE(a_storm_with_restarts_leaves_a_valid_history),
    };

    return hf_test_main("redis crowd", cases, HF_TEST_COUNT(cases), 2);
}
