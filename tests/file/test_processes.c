/* Many processes that use one directory exclude each other, even if they are
 * killed at any time. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/expect.h"
#include "lib/recorded.h"
#include "lib/recording.h"
#include "lib/site.h"

#define WORKERS 16
#define KEYS 3

/* Memory that the processes share. The counter is not atomic, and a pause
 * between its load and its store gives others the time to interfere. */
struct shared {
    atomic_bool stop;
    atomic_uint grants;
    atomic_uint violations; /* violations of mutual exclusion */
    struct cell {
        unsigned counter;
        atomic_ullong token; /* highest token of a holder so far */
    } cells[KEYS];
};

static const char *const keys[KEYS] = {"key-0", "key-1", "key-2"};
static struct shared *shared;

static int set_up(void **state)
{
    shared = hf_child_share(sizeof(*shared));
    return hf_site_set_up(state);
}

static void pause_us(long us)
{
    const struct timespec span = {.tv_nsec = us * 1000};

    nanosleep(&span, NULL);
}

/* Raise the cell's token to `token`. Returns false if a holder with this or a
 * larger token was there before. */
static bool raise_token(struct cell *cell, unsigned long long token)
{
    unsigned long long newest = atomic_load(&cell->token);

    while (newest < token)
        if (atomic_compare_exchange_weak(&cell->token, &newest, token))
            return true;
    return false;
}

/* The work that the lock protects. Returns false if another holder interfered.
 * That counts only if the lock is still valid afterwards, because a client has
 * no lock after its validity has ended. */
static bool increment(struct cell *cell, struct hf_lock *lock)
{
    unsigned before = cell->counter;
    bool exclusive = raise_token(cell, hf_lock_token(lock));

    pause_us(20);
    exclusive = exclusive && atomic_load(&cell->token) == hf_lock_token(lock);
    if (!hf_lock_valid_for(lock, 0))
        return true;
    cell->counter = before + 1;
    return exclusive;
}

struct job {
    unsigned rounds;
    uint32_t ttl_ms;
};

static void worker_main(void *arg)
{
    const struct job *job = arg;
    struct hf_client *client = hf_site_open();
    struct hf_lock_opts opts;

    hf_lock_opts_init(&opts);
    opts.ttl_ms = job->ttl_ms;
    opts.wait_ms = HF_FOREVER;
    for (unsigned i = 0; i < job->rounds && !atomic_load(&shared->stop); i++) {
        struct hf_lock *lock;
        enum hf_err err;

        assert_int_equal(recorded_acquire_fifo(
                             client, hf_key_of(keys[i % KEYS]), &opts, &lock),
                         HF_OK);
        atomic_fetch_add(&shared->grants, 1);
        if (!increment(&shared->cells[i % KEYS], lock))
            atomic_fetch_add(&shared->violations, 1);
        err = recorded_release(client, lock);
        if (err != HF_EEXPIRED)
            assert_int_equal(err, HF_OK);
        hf_lock_free(lock);
    }
    hf_close(client, 1000);
}

/* GO-27 */
static void counter_is_exact_with_sixteen_processes(void **state)
{
    struct job job = {.rounds = 60 / hf_test_slowness() + 3,
                      .ttl_ms = HF_TEST_LONG_MS};
    pid_t pids[WORKERS];

    (void)state;
    recorded_init(true);
    for (unsigned i = 0; i < WORKERS; i++)
        pids[i] = hf_child_start(worker_main, &job);
    for (unsigned i = 0; i < WORKERS; i++)
        hf_child_join(pids[i]);
    assert_int_equal(shared->violations, 0);
    assert_int_equal(shared->cells[0].counter + shared->cells[1].counter +
                         shared->cells[2].counter,
                     WORKERS * job.rounds);
    assert_true(recording_grants() >= (size_t)WORKERS * job.rounds);
    assert_int_equal(recorded_check("case"), 0);
}

/* Wait until any worker is granted a key, however slow the machine is. */
static void await_grant(void)
{
    unsigned before = atomic_load(&shared->grants);

    while (atomic_load(&shared->grants) == before)
        pause_us(1000);
}

static void expect_greater_tokens(void)
{
    struct hf_client *client = hf_site_open();

    for (unsigned i = 0; i < KEYS; i++) {
        struct hf_lock *lock;

        assert_int_equal(hf_acquire(client, hf_key_of(keys[i]), NULL, &lock),
                         HF_OK);
        assert_true(hf_lock_token(lock) > shared->cells[i].token);
        assert_int_equal(hf_release(lock), HF_OK);
        hf_lock_free(lock);
    }
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

/* Workers are killed in the critical section, while waiting or while holding a
 * key: no key is blocked, no token is granted twice, holders never overlap, and
 * no lease is cut short. A waiter that is too slow to use its grant queues
 * again, so the order is not checked. LK-23 */
static void killed_processes_block_no_key(void **state)
{
    enum {
        KILLS = 2000
    };
    struct job job = {.rounds = UINT32_MAX, .ttl_ms = 100};
    unsigned kills = KILLS / hf_test_slowness();
    pid_t pids[6];
    unsigned seed = 1;

    (void)state;
    recorded_init(false);
    for (unsigned i = 0; i < 6; i++)
        pids[i] = hf_child_start(worker_main, &job);
    for (unsigned i = 0; i < kills; i++) {
        unsigned victim = (unsigned)rand_r(&seed) % 6;

        pause_us(rand_r(&seed) % 3000);
        recorded_kill(pids[victim]);
        pids[victim] = hf_child_start(worker_main, &job);
        if (i % 25 == 24)
            await_grant();
    }
    atomic_store(&shared->stop, true);
    for (unsigned i = 0; i < 6; i++)
        hf_child_join(pids[i]);
    assert_int_equal(shared->violations, 0);
    assert_true(recording_grants() >= kills / 25);
    assert_int_equal(recorded_check("case"), 0);
    expect_greater_tokens();
}

/* MS-04, MS-05 */
static void tokens_rise_when_the_arena_is_removed(void **state)
{
    uint64_t before = 0;

    (void)state;
    for (int round = 0; round < 4; round++) {
        struct hf_client *client = hf_site_open();
        struct hf_lock *lock;

        assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock),
                         HF_OK);
        assert_true(hf_lock_token(lock) > before);
        before = hf_lock_token(lock);
        assert_int_equal(hf_release(lock), HF_OK);
        hf_lock_free(lock);
        assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
        if (round % 2)
            assert_int_equal(remove(hf_site_path("locks/arena")), 0);
    }
}

static void wait_for_key(void *arg)
{
    struct hf_lock_opts opts = hf_site_wait_opts();
    struct hf_client *client = hf_site_open();
    struct hf_lock *lock;

    (void)arg;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), &opts, &lock), HF_OK);
    atomic_store(&shared->cells[0].token, hf_lock_token(lock));
}

/* A dead waiter does not delay the others, however long its ttl is. The dead
 * waiter is not granted the key, or the tokens of the two locks would not be
 * consecutive. */
static void dead_waiters_are_skipped_at_once(void **state)
{
    struct hf_client *client = hf_site_open();
    struct hf_lock *lock;
    pid_t dead, alive;

    (void)state;
    assert_int_equal(hf_acquire(client, hf_key_of("k"), NULL, &lock), HF_OK);
    dead = hf_child_start(wait_for_key, NULL);
    hf_site_await_waiters(client, "k", 1);
    alive = hf_child_start(wait_for_key, NULL);
    hf_site_await_waiters(client, "k", 2);
    hf_child_stop(alive); /* so that `alive` does not reap the dead waiter */
    hf_child_kill(dead);
    assert_int_equal(hf_release(lock), HF_OK);
    hf_child_continue(alive);
    hf_child_join(alive);
    assert_int_equal(shared->cells[0].token, hf_lock_token(lock) + 1);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client, HF_TEST_TIMEOUT_MS), HF_OK);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, set_up, hf_site_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(counter_is_exact_with_sixteen_processes),
        CASE(killed_processes_block_no_key),
        CASE(tokens_rise_when_the_arena_is_removed),
        CASE(dead_waiters_are_skipped_at_once),
    };

    return hf_test_main("processes", cases, HF_TEST_COUNT(cases), 0);
}
