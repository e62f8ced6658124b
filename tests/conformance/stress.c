/* stress.c - many clients, many keys, many rounds. */
#include "conformance/suite.h"
#include "lib/alloc.h"
#include "lib/recorded.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Races --------------------------------------------------------------*/

#define CLAIMERS_MAX 50

struct race {
    unsigned claimers, rounds;
    pthread_barrier_t barrier;
    struct hf_client *clients[CLAIMERS_MAX];
    struct hf_key key;
    _Atomic unsigned winners; /* clients that won this round */
    _Atomic unsigned wrong; /* rounds without exactly one winner, and errors */
};

/* In each round all clients claim the key. The winner releases it after all of
 * them have their result. */
static void claim_concurrently(unsigned number, void *arg)
{
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct race *race = arg;

    for (unsigned i = 0; i < race->rounds; i++) {
        struct hf_client *client = race->clients[number];
        struct hf_lock *lock = NULL;
        enum hf_err err = HF_OK;

        (void)pthread_barrier_wait(&race->barrier);
        err = recorded_acquire(client, race->key, &once, &lock);
        if (err == HF_OK)
            atomic_fetch_add(&race->winners, 1);
        else if (err != HF_EBUSY)
            atomic_fetch_add(&race->wrong, 1);
        (void)pthread_barrier_wait(&race->barrier);
        if (number == 0 && atomic_exchange(&race->winners, 0) != 1)
            atomic_fetch_add(&race->wrong, 1);
        if (lock && recorded_release(client, lock) != HF_OK)
            atomic_fetch_add(&race->wrong, 1);
        hf_lock_free(lock);
    }
}

static void run_race(unsigned claimers, unsigned rounds)
{
    struct race race = {
        .claimers = claimers,
        .rounds = rounds,
        .key = suite_key("k"),
    };
    struct hf_info info;

    suite_lower_priority();
    assert_int_equal(pthread_barrier_init(&race.barrier, NULL, claimers), 0);
    for (unsigned i = 0; i < claimers; i++)
        race.clients[i] = suite_open();
    suite_threads(claimers, claim_concurrently, &race);

    assert_int_equal(race.wrong, 0);
    /* LK-08: no claim is pending. */
    expect_ok(recorded_read(race.clients[0], race.key, &info));
    assert_false(info.held);
    assert_int_equal(info.waiters, 0);
    hf_info_fini(&info);
    for (unsigned i = 0; i < claimers; i++)
        suite_close(race.clients[i]);
    (void)pthread_barrier_destroy(&race.barrier);
}

/* MM-06 */
static void one_of_fifty_concurrent_claims_wins(void)
{
    run_race(50, suite_scale_count(100));
}

/* LK-08, LK-09 */
static void every_race_has_one_winner(void)
{
    run_race(3, suite_scale_count(1000));
}

/* ---- Counting -----------------------------------------------------------*/

#define COUNTERS 10
#define INCREMENTS 50

/* A counter that is incremented without an atomic operation. Between the read
 * and the write, a thread waits up to `overlap_ms` for another thread to read
 * too; with a lock, no other thread does. */
struct counting {
    bool locks;
    int64_t overlap_ms;
    struct hf_client *clients[COUNTERS];
    struct hf_key key;
    _Atomic unsigned value, inside, running, failures;
};

static void increment(struct counting *counting)
{
    unsigned value = atomic_load(&counting->value);
    int64_t until = suite_now_ms() + counting->overlap_ms;

    atomic_fetch_add(&counting->inside, 1);
    while (atomic_load(&counting->inside) < 2 &&
           atomic_load(&counting->running) > 1 && suite_now_ms() < until)
        (void)sched_yield();
    atomic_store(&counting->value, value + 1);
    atomic_fetch_sub(&counting->inside, 1);
}

static void increment_repeatedly(unsigned number, void *arg)
{
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, HF_FOREVER);
    struct counting *counting = arg;
    struct hf_client *client = counting->clients[number];

    for (unsigned i = 0; i < INCREMENTS; i++) {
        struct hf_lock *lock = NULL;

        if (counting->locks &&
            recorded_acquire(client, counting->key, &opts, &lock) != HF_OK)
            atomic_fetch_add(&counting->failures, 1);
        increment(counting);
        if (lock && recorded_release(client, lock) != HF_OK)
            atomic_fetch_add(&counting->failures, 1);
        hf_lock_free(lock);
    }
    atomic_fetch_sub(&counting->running, 1);
}

static unsigned run_counting(bool locks, int64_t overlap_ms)
{
    struct counting counting = {
        .locks = locks,
        .overlap_ms = overlap_ms,
        .running = COUNTERS,
        .key = suite_key("counter"),
    };

    suite_lower_priority();
    for (unsigned i = 0; i < COUNTERS; i++)
        counting.clients[i] = suite_open();
    suite_threads(COUNTERS, increment_repeatedly, &counting);

    assert_int_equal(counting.failures, 0);
    for (unsigned i = 0; i < COUNTERS; i++)
        suite_close(counting.clients[i]);
    return counting.value;
}

/* GO-27 */
static void increments_under_a_lock_are_exact(void)
{
    assert_int_equal(run_counting(true, 1), COUNTERS * INCREMENTS);
}

/* GO-27: without a lock, increments are lost. This shows that
 * increments_under_a_lock_are_exact() can fail. */
static void increments_without_a_lock_are_lost(void)
{
    assert_true(run_counting(false, SUITE_TIMEOUT_MS) < COUNTERS * INCREMENTS);
}

/* ---- Many keys ----------------------------------------------------------*/

#define KEYSPACE_THREADS 8
#define KEYSPACE_KEYS 64

struct keyspace {
    struct hf_client *clients[KEYSPACE_THREADS];
    struct hf_key keys[KEYSPACE_THREADS][KEYSPACE_KEYS];
    _Atomic unsigned failures;
};

static void acquire_own_keys(unsigned number, void *arg)
{
    struct hf_lock_opts once = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct keyspace *space = arg;
    struct hf_lock *locks[KEYSPACE_KEYS] = {0};

    for (unsigned i = 0; i < KEYSPACE_KEYS; i++)
        if (recorded_acquire(space->clients[number], space->keys[number][i],
                             &once, &locks[i]) != HF_OK)
            atomic_fetch_add(&space->failures, 1);
    for (unsigned i = 0; i < KEYSPACE_KEYS; i++) {
        if (locks[i] &&
            recorded_release(space->clients[number], locks[i]) != HF_OK)
            atomic_fetch_add(&space->failures, 1);
        hf_lock_free(locks[i]);
    }
}

/* GO-27 */
static void many_keys_can_be_held_concurrently(void)
{
    struct keyspace space = {.failures = 0};

    suite_lower_priority();
    for (unsigned i = 0; i < KEYSPACE_THREADS; i++) {
        space.clients[i] = suite_open();
        for (unsigned j = 0; j < KEYSPACE_KEYS; j++)
            space.keys[i][j] = suite_key_number("k", i * KEYSPACE_KEYS + j);
    }
    suite_threads(KEYSPACE_THREADS, acquire_own_keys, &space);

    assert_int_equal(space.failures, 0);
    for (unsigned i = 0; i < KEYSPACE_THREADS; i++)
        suite_close(space.clients[i]);
}

#define CROWD (100000 / suite_slowness())
/* Bytes that may stay allocated: less than 3 per key with memory: and file:, so
 * that a leak of every key is found. */
#define ROOM (256 * 1024L)

static bool count_key(const struct hf_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return true;
}

static unsigned count_keys(struct hf_client *client)
{
    unsigned left = 0;

    expect_ok(hf_list(client, suite_key(""), count_key, &left));
    return left;
}

/* Return a key in the caller's buffer, because suite_key() would allocate
 * memory for each key. */
static struct hf_key numbered(char text[256], const char *prefix,
                              unsigned number)
{
    (void)snprintf(text, 256, "%s%u", prefix, number);
    return hf_key_of(text);
}

/* Acquire `key` with a ttl of a second. If the lease expires before the reply
 * arrives, retry with twice the ttl. */
static struct hf_lock *acquire_short_lease(struct hf_client *client,
                                           struct hf_key key)
{
    struct hf_lock_opts opts = suite_opts(1000, 5000);
    struct hf_lock *lock = NULL;
    enum hf_err err = HF_OK;

    while (suite_lease_was_too_short(
        err = recorded_acquire(client, key, &opts, &lock)))
        opts.ttl_ms *= 2;
    expect_ok(err);
    return lock;
}

/* MS-15 */
static void expired_keys_leave_no_state(void)
{
    struct hf_client *client = suite_open(), *other = suite_open();
    struct hf_lock **locks = calloc(CROWD, sizeof(struct hf_lock *));
    const char *prefix = suite_key("").data;
    char text[256];

    suite_lower_priority();
    assert_non_null(locks);
    for (unsigned i = 0; i < CROWD; i++)
        locks[i] = acquire_short_lease(client, numbered(text, prefix, i));
    suite_sleep(suite_lease_ms(1000));
    while (count_keys(other) > 0)
        suite_sleep(100);

    for (unsigned i = 0; i < CROWD; i++)
        hf_lock_free(locks[i]);
    free(locks);
    suite_close(client);
    suite_close(other);
}

/* MJ-11 */
static void a_released_key_leaves_no_memory(void)
{
    struct hf_client *client = suite_open();
    const char *prefix = suite_key("").data;
    long before = 0;
    char text[256];

    suite_lower_priority();
    for (unsigned i = 0; i < 2 * CROWD; i++) {
        struct hf_lock *lock = NULL;

        if (i == CROWD)
            before = hf_alloc_bytes();
        expect_ok(
            recorded_acquire(client, numbered(text, prefix, i), NULL, &lock));
        expect_ok(recorded_release(client, lock));
        hf_lock_free(lock);
    }

    assert_true(hf_alloc_bytes() <= before + ROOM);
    suite_close(client);
}

/* MJ-11: all memory is freed even if all keys were held at the same time. */
static void many_released_keys_leave_no_memory(void)
{
    struct hf_client *client = suite_open();
    struct hf_lock **locks = calloc(CROWD, sizeof(struct hf_lock *));
    const char *prefix = suite_key("").data;
    long before = hf_alloc_bytes(), after = 0;
    char text[256];

    suite_lower_priority();
    assert_non_null(locks);
    for (unsigned i = 0; i < CROWD; i++) {
        struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);

        expect_ok(recorded_acquire(client, numbered(text, prefix, i), &opts,
                                   &locks[i]));
    }
    for (unsigned i = 0; i < CROWD; i++) {
        expect_ok(recorded_release(client, locks[i]));
        hf_lock_free(locks[i]);
    }

    after = hf_alloc_bytes();
    free(locks);
    suite_close(client);

    assert_true(after <= before + ROOM);
}

#define BATCH 2000 /* above HF_WINDOW_MAX, the limit of open commands */

/* Start claims that time out after a millisecond, and expect each to complete
 * once. There are BATCH claims, or fewer with a slow strategy. */
static void time_out_a_batch(struct hf_client *client, struct hf_key key)
{
    struct hf_lock_opts short_opts = suite_opts(SUITE_LONG_TTL_MS, 1);
    struct hf_future *futures[BATCH];
    struct hf_lock *none = NULL;
    unsigned batch = BATCH / suite_slowness();

    for (unsigned i = 0; i < batch; i++)
        expect_ok(recorded_acquire_start(client, key, &short_opts, &none, NULL,
                                         NULL, &futures[i]));
    for (unsigned i = 0; i < batch; i++) {
        enum hf_err err = HF_OK;

        expect_ok(recorded_future_wait(futures[i], SUITE_TIMEOUT_MS, &err));
        /* Withdrawals that are not confirmed within a second continue in the
         * background. */
        if (err != HF_EINDOUBT)
            expect_err(err, HF_ETIMEDOUT);
        hf_future_free(futures[i]);
    }
    assert_null(none);
}

/* Expect that the queue is empty, or becomes empty soon. */
static void expect_no_waiters(struct hf_client *client, struct hf_key key)
{
    int64_t until = suite_now_ms() + SUITE_TIMEOUT_MS;
    uint32_t waiters = 1;
    struct hf_info info;

    while (waiters > 0 && suite_now_ms() < until) {
        expect_ok(hf_read(client, key, HF_LINEARIZABLE, &info));
        waiters = info.waiters;
        hf_info_fini(&info);
    }
    assert_int_equal(waiters, 0);
}

/* LK-22 */
static void timed_out_claims_leave_no_memory(void)
{
    struct hf_client *holder = suite_open(), *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_key key = suite_key("k");
    struct hf_lock *lock = NULL;
    long before = 0;

    suite_lower_priority();
    expect_ok(recorded_acquire(holder, key, &opts, &lock));
    for (unsigned i = 0; i < 5; i++)
        time_out_a_batch(client, key);
    before = hf_alloc_bytes();
    for (unsigned i = 0; i < 100000 / BATCH; i++)
        time_out_a_batch(client, key);

    expect_no_waiters(holder, key);
    assert_true(hf_alloc_bytes() <= before + ROOM);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(client);
}

/* LK-22: calls of hf_wait_free() and hf_wait_held() that time out free all of
 * their memory. */
static void timed_out_waits_leave_no_memory(void)
{
    struct hf_client *holder = suite_open(), *client = suite_open();
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct hf_key held = suite_key("held"), nobody = suite_key("unused");
    struct hf_lock *lock = NULL;
    long before = 0;

    suite_lower_priority();
    expect_ok(recorded_acquire(holder, held, &opts, &lock));
    for (unsigned i = 0; i < suite_scale_count(1000); i++) {
        if (i == 100)
            before = hf_alloc_bytes();
        expect_err(hf_wait_free(client, held, 0, NULL), HF_ETIMEDOUT);
        expect_err(hf_wait_held(client, nobody, 1, NULL), HF_ETIMEDOUT);
    }

    assert_true(hf_alloc_bytes() <= before + ROOM);
    hf_lock_free(lock);
    suite_close(holder);
    suite_close(client);
}

/* ---- Against a model ----------------------------------------------------*/

#define MODEL_KEYS 3
#define MODEL_CLIENTS 4
#define MODEL_STEPS suite_scale_count(5000)

/* The expected state of one key when operations do not overlap. */
struct model {
    struct hf_lock *holder; /* NULL: free */
    unsigned client;
    char value[8];
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u); /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

struct world {
    struct hf_client *clients[MODEL_CLIENTS];
    struct hf_key keys[MODEL_KEYS];
    struct model models[MODEL_KEYS];
    uint64_t seed, last_token;
};

static void model_lock(struct world *world, unsigned client, unsigned key)
{
    struct hf_lock_opts opts = suite_opts(SUITE_LONG_TTL_MS, 0);
    struct model *model = &world->models[key];
    struct hf_lock *lock = NULL;

    opts.value = hf_bytes_of("new");
    if (model->holder) {
        expect_err(recorded_acquire(world->clients[client], world->keys[key],
                                    &opts, &lock),
                   HF_EBUSY);
        return;
    }
    expect_ok(recorded_acquire(world->clients[client], world->keys[key], &opts,
                               &lock));
    *model = (struct model){lock, client, "new"};
}

static void model_unlock(struct world *world, unsigned key)
{
    struct model *model = &world->models[key];

    if (!model->holder)
        return;
    expect_ok(recorded_release(world->clients[model->client], model->holder));
    hf_lock_free(model->holder);
    model->holder = NULL;
}

static void model_update(struct world *world, unsigned key)
{
    struct model *model = &world->models[key];
    struct hf_bytes expected = hf_bytes_of(model->value);
    bool right = next_random(&world->seed) % 2;
    char value[8];

    if (!model->holder)
        return;
    (void)snprintf(value, sizeof(value), "%u",
                   (unsigned)(next_random(&world->seed) % 1000));
    if (!right)
        expected = hf_bytes_of("not it");
    expect_err(recorded_update(world->clients[model->client], model->holder,
                               &expected, hf_bytes_of(value)),
               right ? HF_OK : HF_EMISMATCH);
    if (right)
        memcpy(model->value, value, sizeof(value));
}

static void model_force(struct world *world, unsigned client, unsigned key)
{
    struct model *model = &world->models[key];

    if (!model->holder)
        return;
    expect_ok(recorded_force_now(world->clients[client], world->keys[key],
                                 hf_lock_token(model->holder)));
    expect_err(recorded_release(world->clients[model->client], model->holder),
               HF_EEXPIRED);
    hf_lock_free(model->holder);
    model->holder = NULL;
}

static void model_read(struct world *world, unsigned client, unsigned key)
{
    const struct model *model = &world->models[key];
    struct hf_info info;

    expect_ok(recorded_read(world->clients[client], world->keys[key], &info));
    assert_int_equal(info.held, model->holder != NULL);
    if (model->holder) {
        assert_int_equal(info.token, hf_lock_token(model->holder));
        assert_int_equal(info.value.size, strlen(model->value));
        assert_memory_equal(info.value.data, model->value, info.value.size);
    }
    hf_info_fini(&info);
}

/* LK-29 */
static void random_operations_match_the_model(void)
{
    struct world world = {.seed = 1};

    suite_lower_priority();
    for (unsigned i = 0; i < MODEL_CLIENTS; i++)
        world.clients[i] = suite_open();
    for (unsigned i = 0; i < MODEL_KEYS; i++)
        world.keys[i] = suite_key_number("k", i);
    for (unsigned i = 0; i < MODEL_STEPS; i++) {
        unsigned client = (unsigned)(next_random(&world.seed) % MODEL_CLIENTS);
        unsigned key = (unsigned)(next_random(&world.seed) % MODEL_KEYS);

        switch (next_random(&world.seed) % 8) {
        case 0:
        case 1:
        case 2:
            model_lock(&world, client, key);
            break;
        case 3:
            model_unlock(&world, key);
            break;
        case 4:
        case 5:
            model_update(&world, key);
            break;
        case 6:
            model_force(&world, client, key);
            break;
        default:
            model_read(&world, client, key);
            break;
        }
    }
    for (unsigned i = 0; i < MODEL_KEYS; i++)
        model_unlock(&world, i);
    for (unsigned i = 0; i < MODEL_CLIENTS; i++)
        suite_close(world.clients[i]);
}

#define STORM_CLIENTS 6
#define STORM_STEPS suite_scale_count(400)

struct storm {
    struct hf_client *clients[STORM_CLIENTS];
    struct hf_key keys[MODEL_KEYS];
    _Atomic unsigned wrong;
};

/* Returns true if `err` is HF_OK, `also`, or HF_EINDOUBT: on a busy machine,
 * some of these many requests may end in doubt. */
static bool is_legal(enum hf_err err, enum hf_err also)
{
    return err == HF_OK || err == also || err == HF_EINDOUBT;
}

/* Claim a key with a lease that is so short that some leases expire, then run
 * random operations on the lock. */
static void storm_step(struct storm *storm, struct hf_client *client,
                       uint64_t *seed)
{
    struct hf_key key = storm->keys[next_random(seed) % MODEL_KEYS];
    struct hf_lock_opts opts =
        suite_opts((uint32_t)(5 + next_random(seed) % 60),
                   (uint32_t)(next_random(seed) % 3 * 20));
    struct hf_lock *lock = NULL;
    enum hf_err err = recorded_acquire(client, key, &opts, &lock);
    struct hf_info info;

    if (!is_legal(err, HF_EBUSY) && !suite_lease_was_too_short(err))
        atomic_fetch_add(&storm->wrong, 1);
    if (recorded_read(client, key, &info) != HF_OK)
        atomic_fetch_add(&storm->wrong, 1);
    else
        hf_info_fini(&info);
    if (!lock)
        return;
    if (next_random(seed) % 4 == 0)
        suite_sleep((int64_t)(next_random(seed) % 30));
    if (next_random(seed) % 3 == 0)
        err = recorded_renew(client, lock, 0);
    else
        (void)recorded_is_valid(client, lock);
    if (!is_legal(err, HF_EEXPIRED))
        atomic_fetch_add(&storm->wrong, 1);
    if (next_random(seed) % 8 == 0) {
        recorded_lock_free(lock);
        return;
    }
    err = recorded_release(client, lock);
    if (!is_legal(err, HF_EEXPIRED))
        atomic_fetch_add(&storm->wrong, 1);
    hf_lock_free(lock);
}

static void run_storm(unsigned number, void *arg)
{
    struct storm *storm = arg;
    uint64_t seed = number + 1;

    for (unsigned i = 0; i < STORM_STEPS; i++)
        storm_step(storm, storm->clients[number], &seed);
}

/* LK-29: the history checker verifies the recorded operations. */
static void concurrent_operations_are_linearizable(void)
{
    struct storm storm = {.wrong = 0};

    suite_lower_priority();
    for (unsigned i = 0; i < STORM_CLIENTS; i++)
        storm.clients[i] = i % 2 ? suite_open_background() : suite_open();
    for (unsigned i = 0; i < MODEL_KEYS; i++)
        storm.keys[i] = suite_key_number("k", i);
    suite_threads(STORM_CLIENTS, run_storm, &storm);

    assert_int_equal(storm.wrong, 0);
    for (unsigned i = 0; i < STORM_CLIENTS; i++)
        suite_close(storm.clients[i]);
}

static const struct promise promises[] = {
    PROMISE(concurrent_operations_are_linearizable, HF_CAP_LINEARIZABLE_READ),
    PROMISE(expired_keys_leave_no_state, 0),
    PROMISE(timed_out_claims_leave_no_memory, 0),
    PROMISE(timed_out_waits_leave_no_memory, 0),
    PROMISE(one_of_fifty_concurrent_claims_wins, 0),
    PROMISE(every_race_has_one_winner, 0),
    PROMISE(increments_under_a_lock_are_exact, 0),
    PROMISE(increments_without_a_lock_are_lost, 0),
    PROMISE(many_keys_can_be_held_concurrently, 0),
    PROMISE(a_released_key_leaves_no_memory, 0),
    PROMISE(many_released_keys_leave_no_memory, 0),
    PROMISE(random_operations_match_the_model,
            HF_CAP_VALUE | HF_CAP_LINEARIZABLE_READ),
};

const struct chapter chapter_stress = CHAPTER(promises);
