/* Replica sets that fail: stepdowns, crashes, restarts; and clients that
 * die. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "lib/mongo_queue.h"
#include "lib/recorded.h"
#include "lib/runner.h"

#define TIMEOUT_MS 60000 /* longer than an election takes */
#define ACTORS 4
#define STEPS 30

/* ---- Failovers ----------------------------------------------------------*/

/* The lock is still held after a failover, because the new primary knows the
 * holder. */
static void a_lock_survives_its_primary(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(120000, 0, TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *none = NULL;
    uint64_t token;
    unsigned killed;

    (void)state;
    require_two_clients(3, &client, &other);
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
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* The change stream resumes at the new primary and reports the grant. */
static void a_waiter_is_granted_the_key_after_a_stepdown(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(120000, TIMEOUT_MS, TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    require_two_clients(3, &client, &other);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    assert_true(hf_test_mongo_step_down(&mongo) >= 0);
    expect_ok(hf_release(lock));
    expect_ok(hf_future_wait(future, TIMEOUT_MS, &err));
    expect_ok(err);
    assert_true(hf_lock_valid_for(next, 0));

    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(next);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

struct actor {
    pthread_t thread;
    struct hf_client *client;
    unsigned seed;
    atomic_uint *steps;
};

static unsigned random_below(struct actor *actor, unsigned below)
{
    actor->seed = actor->seed * 1103515245u + 12345u;
    return (actor->seed >> 16) % below;
}

static void run_random_step(struct actor *actor)
{
    struct hf_lock_opts opts =
        hf_test_opts(300 + random_below(actor, 2000),
                     random_below(actor, 3) * 500, TIMEOUT_MS / 2);
    struct hf_key key = hf_key_of(random_below(actor, 2) ? "a" : "b");
    struct hf_lock *lock = NULL;
    struct hf_info info;

    if (random_below(actor, 3) == 0 &&
        recorded_read(actor->client, key, &info) == HF_OK)
        hf_info_fini(&info);
    if (recorded_acquire(actor->client, key, &opts, &lock) != HF_OK)
        return;
    if (random_below(actor, 3) == 0)
        (void)recorded_renew(actor->client, lock, 0);
    (void)recorded_is_valid(actor->client, lock);
    (void)recorded_release(actor->client, lock);
    hf_lock_free(lock);
}

static void *actor_main(void *arg)
{
    struct actor *actor = arg;

    for (unsigned i = 0; i < STEPS; i++) {
        run_random_step(actor);
        atomic_fetch_add(actor->steps, 1);
    }
    return NULL;
}

static void start_actors(struct actor *actors, atomic_uint *steps)
{
    for (unsigned i = 0; i < ACTORS; i++) {
        actors[i] = (struct actor){
            .client = hf_test_mongo_open(&mongo, ""),
            .seed = i + 1,
            .steps = steps,
        };
        assert_int_equal(
            pthread_create(&actors[i].thread, NULL, actor_main, &actors[i]), 0);
    }
}

static void join_actors(struct actor *actors)
{
    for (unsigned i = 0; i < ACTORS; i++)
        assert_int_equal(pthread_join(actors[i].thread, NULL), 0);
    for (unsigned i = 0; i < ACTORS; i++)
        (void)recorded_close(actors[i].client, TIMEOUT_MS);
}

static void await_steps(atomic_uint *steps, unsigned wanted)
{
    while (atomic_load(steps) < wanted)
        (void)poll(NULL, 0, 5);
}

/* The primary steps down, is killed and restarted, and hangs for a while. The
 * history checker verifies the result. */
static void failovers_under_load_leave_a_valid_history(void **state)
{
    const unsigned all = ACTORS * STEPS;
    struct actor actors[ACTORS];
    atomic_uint steps = 0;
    unsigned victim;

    (void)state;
    hf_test_mongo_require(&mongo, 3);
    recorded_init(false);
    start_actors(actors, &steps);
    await_steps(&steps, all / 5);
    assert_true(hf_test_mongo_step_down(&mongo) >= 0);
    await_steps(&steps, all * 2 / 5);
    victim = primary();
    hf_test_mongo_kill(&mongo, victim);
    await_steps(&steps, all * 3 / 5);
    assert_true(hf_test_mongo_restart(&mongo, victim));
    await_steps(&steps, all * 4 / 5);
    victim = primary();
    hf_test_mongo_signal(&mongo, victim, SIGSTOP);
    (void)poll(NULL, 0, 2000);
    hf_test_mongo_signal(&mongo, victim, SIGCONT);
    join_actors(actors);
    assert_int_equal(recorded_check("failovers under load"), 0);
}

/* G2-13, MS-05: all servers are killed. After a restart the lock is still held
 * with its token, and the next token is larger. */
static void a_lock_survives_a_crash_of_all_servers(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(120000, 0, TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_info info;
    enum hf_err err;

    (void)state;
    hf_test_mongo_require(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    for (unsigned i = 0; i < 3; i++)
        hf_test_mongo_kill(&mongo, i);
    for (unsigned i = 0; i < 3; i++)
        assert_true(hf_test_mongo_restart(&mongo, i));

    (void)primary(); /* an election may take longer than hf_open() waits */
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
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* ---- Dead waiters -------------------------------------------------------*/

#define OFFER_MS 3000 /* as in src/strategy/mongo/op.h */

/* Each of two dead waiters is offered the key and does not confirm the offer.
 * It delays the next waiter by three seconds, not by its lease of ten
 * minutes. */
static void a_dead_waiter_costs_three_seconds(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, HF_FOREVER, TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;
    int64_t began;
    struct waiting_process dead[2];

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    for (unsigned i = 0; i < 2; i++)
        dead[i] = fork_waiters(1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    kill_in_queue(dead, 2);
    other = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    await_queue_length(3);
    began = now_ms();
    expect_ok(hf_release(lock));
    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    expect_ok(err);
    assert_true(now_ms() - began >= 2 * OFFER_MS - 100);
    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(next);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* The offer to a dead waiter ends after three seconds even at a new primary,
 * which has no deadline for that offer. */
static void an_offer_stays_short_at_a_new_primary(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, HF_FOREVER, TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;
    struct waiting_process dead;

    (void)state;
    hf_test_mongo_require(&mongo, 3);
    dead = fork_waiters(1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    kill_in_queue(&dead, 1);
    other = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    await_queue_length(2);
    expect_ok(hf_release(lock));
    assert_true(hf_test_mongo_step_down(&mongo) >= 0);
    expect_ok(hf_future_wait(future, HF_TEST_TIMEOUT_MS, &err));
    expect_ok(err);
    hf_future_free(future);
    hf_lock_free(lock);
    hf_lock_free(next);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_lock_survives_its_primary),
        CASE(a_waiter_is_granted_the_key_after_a_stepdown),
        CASE(failovers_under_load_leave_a_valid_history),
        CASE(a_lock_survives_a_crash_of_all_servers),
        CASE(a_dead_waiter_costs_three_seconds),
        CASE(an_offer_stays_short_at_a_new_primary),
    };

    return hf_test_main("mongo faults", cases, HF_TEST_COUNT(cases), 4);
}
