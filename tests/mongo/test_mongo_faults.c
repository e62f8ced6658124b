/* What a MongoDB replica set can do to its clients, and they to each other:
 * stepdowns, crashes, restarts. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "lib/mongo_queue.h"
#include "lib/recorded.h"
#include "lib/runner.h"

#define PATIENCE_MS 60000 /* for what an election may hold up */
#define STORMERS 4
#define STORM_STEPS 30

/* ---- Another primary ----------------------------------------------------*/

/* What was granted before holds after, and its holder is known there. */
static void a_lock_outlives_its_primary(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(120000, 0, PATIENCE_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *none = NULL;
    uint64_t token;
    unsigned killed;

    (void)state;
    hf_test_mongo_need(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    token = hf_lock_token(lock);
    killed = primary();
    hf_test_mongo_kill(&mongo, killed);

    expect_err(hf_acquire(other, hf_key_of("k"), &opts, &none), HF_EBUSY);
    expect_ok(hf_renew(lock, 0));
    assert_true(hf_lock_valid_for(lock, 0));
    expect_ok(hf_release(lock));
    expect_ok(hf_acquire(other, hf_key_of("k"), &opts, &none));
    assert_true(hf_lock_token(none) > token);

    hf_lock_free(lock);
    hf_lock_free(none);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(other, PATIENCE_MS));
}

/* A waiter is woken by a stream that went on at another server. */
static void who_waits_is_woken_after_a_stepdown(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(120000, PATIENCE_MS, PATIENCE_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    hf_test_mongo_need(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    assert_true(hf_test_mongo_step_down(&mongo) >= 0);
    expect_ok(hf_release(lock));
    expect_ok(hf_future_wait(future, PATIENCE_MS, &err));
    expect_ok(err);
    assert_true(hf_lock_valid_for(next, 0));

    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(next);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(other, PATIENCE_MS));
}

struct stormer {
    pthread_t thread;
    struct hf_client *client;
    unsigned seed;
    atomic_uint *steps;
};

static unsigned chance(struct stormer *stormer, unsigned below)
{
    stormer->seed = stormer->seed * 1103515245u + 12345u;
    return (stormer->seed >> 16) % below;
}

static void step(struct stormer *stormer)
{
    struct hf_lock_opts opts = hf_test_opts(
        300 + chance(stormer, 2000), chance(stormer, 3) * 500, PATIENCE_MS / 2);
    struct hf_key key = hf_key_of(chance(stormer, 2) ? "a" : "b");
    struct hf_lock *lock = NULL;
    struct hf_info info;

    if (chance(stormer, 3) == 0 &&
        recorded_read(stormer->client, key, &info) == HF_OK)
        hf_info_fini(&info);
    if (recorded_lock(stormer->client, key, &opts, &lock) != HF_OK)
        return;
    if (chance(stormer, 3) == 0)
        (void)recorded_renew(stormer->client, lock, 0);
    (void)recorded_valid(stormer->client, lock);
    (void)recorded_unlock(stormer->client, lock);
    hf_lock_free(lock);
}

static void *storm(void *arg)
{
    struct stormer *stormer = arg;

    for (unsigned i = 0; i < STORM_STEPS; i++) {
        step(stormer);
        atomic_fetch_add(stormer->steps, 1);
    }
    return NULL;
}

static void start_storm(struct stormer *stormers, atomic_uint *steps)
{
    for (unsigned i = 0; i < STORMERS; i++) {
        stormers[i] = (struct stormer){
            .client = hf_test_mongo_open(&mongo, ""),
            .seed = i + 1,
            .steps = steps,
        };
        assert_int_equal(
            pthread_create(&stormers[i].thread, NULL, storm, &stormers[i]), 0);
    }
}

static void end_storm(struct stormer *stormers)
{
    for (unsigned i = 0; i < STORMERS; i++)
        assert_int_equal(pthread_join(stormers[i].thread, NULL), 0);
    for (unsigned i = 0; i < STORMERS; i++)
        (void)recorded_close(stormers[i].client, PATIENCE_MS);
}

static void await_steps(atomic_uint *steps, unsigned wanted)
{
    while (atomic_load(steps) < wanted)
        (void)poll(NULL, 0, 5);
}

/* The primary steps down, is killed and comes back, is silent for a while; the
 * checker is the judge. */
static void a_storm_with_failovers_leaves_a_good_history(void **state)
{
    const unsigned all = STORMERS * STORM_STEPS;
    struct stormer stormers[STORMERS];
    atomic_uint steps = 0;
    unsigned victim;

    (void)state;
    hf_test_mongo_need(&mongo, 3);
    recorded_init(false);
    start_storm(stormers, &steps);
    await_steps(&steps, all / 5);
    assert_true(hf_test_mongo_step_down(&mongo) >= 0);
    await_steps(&steps, all * 2 / 5);
    victim = primary();
    hf_test_mongo_kill(&mongo, victim);
    await_steps(&steps, all * 3 / 5);
    assert_true(hf_test_mongo_again(&mongo, victim));
    await_steps(&steps, all * 4 / 5);
    victim = primary();
    hf_test_mongo_signal(&mongo, victim, SIGSTOP);
    (void)poll(NULL, 0, 2000);
    hf_test_mongo_signal(&mongo, victim, SIGCONT);
    end_storm(stormers);
    assert_int_equal(recorded_check("a storm with failovers"), 0);
}

/* G2-13, MS-05: all servers are killed. What was held is held when they are
 * back, with its token, and the next is larger. */
static void a_lock_outlives_a_crash_of_all_servers(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(120000, 0, PATIENCE_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_info info;
    enum hf_err err;

    (void)state;
    hf_test_mongo_need(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    for (unsigned i = 0; i < 3; i++)
        hf_test_mongo_kill(&mongo, i);
    for (unsigned i = 0; i < 3; i++)
        assert_true(hf_test_mongo_again(&mongo, i));

    other = hf_test_mongo_open(&mongo, "");
    expect_err(hf_acquire(other, hf_key_of("k"), &opts, &next), HF_EBUSY);
    expect_ok(hf_renew(lock, 0));
    do
        err = hf_read(other, hf_key_of("k"), HF_LINEARIZABLE, &info);
    while (err == HF_EUNAVAIL);
    expect_ok(err);
    assert_true(info.held);
    assert_int_equal(info.token, hf_lock_token(lock));
    hf_info_fini(&info);
    expect_ok(hf_release(lock));
    expect_ok(hf_acquire(other, hf_key_of("k"), &opts, &next));
    assert_true(hf_lock_token(next) > hf_lock_token(lock));
    hf_lock_free(lock);
    hf_lock_free(next);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(other, PATIENCE_MS));
}

/* ---- In line ------------------------------------------------------------*/

#define OFFER_MS 3000 /* how long one in line may take to take the key up */

/* Who died in line is offered the key, does not take it up, and costs the next
 * three seconds: not its lease, which is ten minutes. */
static void a_dead_waiter_costs_three_seconds(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, HF_FOREVER, PATIENCE_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;
    int64_t began;
    struct waiting_process dead[2];

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    for (unsigned i = 0; i < 2; i++)
        dead[i] = fork_waiters(1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    die_in_queue(dead, 2);
    other = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    await_line(3);
    began = now_ms();
    expect_ok(hf_release(lock));
    expect_ok(hf_future_wait(future, HF_TEST_PATIENCE_MS, &err));
    expect_ok(err);
    assert_true(now_ms() - began >= 2 * OFFER_MS - 100);
    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(next);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(other, PATIENCE_MS));
}

/* The same where another server has to end the offer, which it knows nothing of
 * but that it is one. */
static void a_dead_waiter_costs_no_lease_at_a_new_primary(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, HF_FOREVER, PATIENCE_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;
    struct waiting_process dead;

    (void)state;
    hf_test_mongo_need(&mongo, 3);
    dead = fork_waiters(1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    die_in_queue(&dead, 1);
    other = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    await_line(2);
    expect_ok(hf_release(lock));
    assert_true(hf_test_mongo_step_down(&mongo) >= 0);
    expect_ok(hf_future_wait(future, HF_TEST_PATIENCE_MS, &err));
    expect_ok(err);
    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(next);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(other, PATIENCE_MS));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_lock_outlives_its_primary),
        CASE(who_waits_is_woken_after_a_stepdown),
        CASE(a_storm_with_failovers_leaves_a_good_history),
        CASE(a_lock_outlives_a_crash_of_all_servers),
        CASE(a_dead_waiter_costs_three_seconds),
        CASE(a_dead_waiter_costs_no_lease_at_a_new_primary),
    };

    return hf_test_main("mongo faults", cases, HF_TEST_COUNT(cases), 4);
}
