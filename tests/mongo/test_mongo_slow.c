/* Slow servers: what is sent once, what runs in parallel, what goes first, and
 * what is never sent because its caller gave up; and a primary that is
 * replaced. */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

#define LONG_MS 60000
#define FAILOVER_MS 100000 /* longer than an election takes */
#define MANY 40            /* more workers than a client keeps idle */
#define WAITERS 60
#define KEPT 100
#define CROWD 120 /* more LOCKs than a client has workers */

/* Delay writes by `ms` from now on, or stop delaying them if `ms` is 0. Wait
 * until no delayed write is in flight, and return how many were delayed so
 * far. */
static long delay_writes(unsigned ms)
{
    char data[64];

    (void)snprintf(data, sizeof(data),
                   "\"blockConnection\":true,"
                   "\"blockTimeMS\":%u",
                   ms);
    return fail_commands(0, "\"findAndModify\",\"update\"",
                         ms ? "\"alwaysOn\"" : "\"off\"", data);
}

/* Count the findAndModify commands that the server executes or delays now. */
static unsigned count_running(void)
{
    const char *at = hf_test_mongo_command(&mongo, 0, "admin",
                                           "{\"currentOp\":1,\"active\":true}");
    unsigned count = 0;

    /* currentOp reports a long command as truncated text, not as JSON. */
    while ((at = strstr(at, "{ findAndModify:"))) {
        at++;
        count++;
    }
    return count;
}

static struct hf_key key_of(unsigned number, char (*name)[16])
{
    (void)snprintf(*name, sizeof(*name), "k%u", number);
    return hf_key_of(*name);
}

static enum hf_err await_answer(struct hf_future *future)
{
    enum hf_err err = HF_ECANCELED;

    expect_ok(hf_future_wait(future, 2 * FAILOVER_MS, &err));
    hf_future_free(future);
    return err;
}

/* Expect that each command is sent once, no matter how slow the reply is. */
static void expect_one_write_each(unsigned ms)
{
    struct hf_lock_opts opts = hf_test_opts(300000, 0, LONG_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    long before;

    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    before = delay_writes(ms);
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_renew(lock, 0));
    expect_ok(hf_release(lock));
    assert_int_equal(delay_writes(0) - before, 3);
    hf_lock_free(lock);
    expect_ok(hf_close(client, LONG_MS));
}

static void a_slow_write_is_sent_once(void **state)
{
    (void)state;
    expect_one_write_each(700);
}

static void a_very_slow_write_is_sent_once(void **state)
{
    (void)state;
    expect_one_write_each(4000);
}

/* Each write has its own worker, so no call waits for the slow write of another
 * call. */
static void slow_writes_run_in_parallel(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(300000, 0, LONG_MS);
    struct hf_future *futures[MANY];
    struct hf_lock *locks[MANY] = {NULL};
    struct hf_client *client;
    char name[16];

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    (void)delay_writes(6000);
    for (unsigned i = 0; i < MANY; i++)
        expect_ok(hf_acquire_start(client, key_of(i, &name), &opts, &locks[i],
                                   NULL, NULL, &futures[i]));
    while (count_running() < MANY)
        expect_err(hf_future_wait(futures[0], 20, NULL), HF_ETIMEDOUT);
    (void)delay_writes(0);
    for (unsigned i = 0; i < MANY; i++)
        expect_ok(await_answer(futures[i]));
    for (unsigned i = 0; i < MANY; i++)
        hf_lock_free(locks[i]);
    expect_ok(hf_close(client, LONG_MS));
}

/* `locked` counts the LOCKs that were answered, and `locked_before` those that
 * were answered before the renewal. */
static atomic_uint locked, locked_before;

static void on_locked(enum hf_err err, void *arg)
{
    (void)arg;
    assert_int_equal(err, HF_OK);
    (void)atomic_fetch_add(&locked, 1);
}

static void on_renewed(enum hf_err err, void *arg)
{
    (void)arg;
    assert_int_equal(err, HF_OK);
    atomic_store(&locked_before, atomic_load(&locked));
}

/* There are more LOCKs than workers. A renewal that is started after them is
 * sent before the LOCKs that still wait for a worker. */
static void renewals_go_before_locks(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(300000, 0, LONG_MS);
    struct hf_future *futures[CROWD], *renewal;
    struct hf_lock *lock = NULL, *locks[CROWD] = {NULL};
    struct hf_client *client;
    char name[16];

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("kept"), &opts, &lock));
    (void)delay_writes(5000);
    for (unsigned i = 0; i < CROWD; i++)
        expect_ok(hf_acquire_start(client, key_of(i, &name), &opts, &locks[i],
                                   on_locked, NULL, &futures[i]));
    while (count_running() < CROWD / 3)
        (void)poll(NULL, 0, 20);
    (void)poll(NULL, 0, 500);
    expect_ok(hf_renew_start(lock, 0, on_renewed, NULL, &renewal));
    expect_ok(await_answer(renewal));
    (void)delay_writes(0);
    for (unsigned i = 0; i < CROWD; i++) {
        expect_ok(await_answer(futures[i]));
        hf_lock_free(locks[i]);
    }
    assert_true(atomic_load(&locked_before) < CROWD / 2);
    hf_lock_free(lock);
    expect_ok(hf_close(client, LONG_MS));
}

/* LOCKs of one key run one after another. The time that a LOCK waits inside the
 * client counts towards wait_ms, not towards timeout_ms. */
static void time_in_the_run_queue_counts_as_wait(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(300000, LONG_MS, 2000);
    struct hf_future *futures[WAITERS];
    struct hf_lock *lock = NULL, *locks[WAITERS] = {NULL};
    struct hf_client *client;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    (void)delay_writes(100);
    for (unsigned i = 0; i < WAITERS; i++)
        expect_ok(hf_acquire_start(client, hf_key_of("k"), &opts, &locks[i],
                                   NULL, NULL, &futures[i]));
    await_queue_length(WAITERS);
    for (unsigned i = 0; i < WAITERS; i++)
        assert_false(hf_future_done(futures[i], NULL));
    (void)delay_writes(0);
    (void)hf_close(client, LONG_MS);
    for (unsigned i = 0; i < WAITERS; i++) {
        expect_err(await_answer(futures[i]), HF_ECLOSED);
        hf_lock_free(locks[i]);
    }
    hf_lock_free(lock);
}

/* A LOCK was executed but not confirmed. The repeated LOCK takes only one more
 * command, because it does not try the fast path first. */
static void a_repeated_lock_skips_the_fast_path(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(300000, 0, LONG_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    long before;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    before = count_commands("findAndModify");
    (void)fail_commands(0, "\"findAndModify\"", "{\"times\":1}",
                        "\"writeConcernError\":{\"code\":64,"
                        "\"errmsg\":\"timed out\"}");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    assert_int_equal(count_commands("findAndModify") - before, 2);
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, LONG_MS));
}

/* A LOCK that is given up while no server can be selected is not executed, not
 * even later. */
static void a_lock_given_up_before_it_is_sent_is_never_sent(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(300000, 0, LONG_MS);
    struct hf_lock_opts brief = hf_test_opts(300000, 0, 500);
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_client *client;
    struct hf_info info;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(
        &mongo, "&serverSelectionTimeoutMS=60000&socketTimeoutMS=60000");
    (void)poll(NULL, 0, 1500); /* until the client uses the connection pool */
    expect_ok(hf_acquire(client, hf_key_of("held"), &opts, &lock));
    hf_test_mongo_kill(&mongo, 0);
    /* The first LOCK may use the connection that has just been lost, so it may
     * be in doubt. */
    assert_int_not_equal(hf_acquire(client, hf_key_of("a"), &brief, &none),
                         HF_OK);
    expect_err(hf_acquire(client, hf_key_of("b"), &brief, &none), HF_EUNAVAIL);
    assert_true(hf_test_mongo_restart(&mongo, 0));
    expect_ok(hf_renew(lock, 0));
    (void)poll(NULL, 0, 500);
    expect_ok(hf_read(client, hf_key_of("b"), HF_LINEARIZABLE, &info));
    assert_false(info.held);
    hf_info_fini(&info);
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, LONG_MS));
}

/* The primary hangs and keeps the connections of all renewals open. Once
 * another primary is elected, the client repeats the renewals there, long
 * before a socket times out, even if there are more renewals than workers. */
static void renewals_move_to_the_new_primary(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(300000, 0, FAILOVER_MS);
    struct hf_future *renewals[KEPT];
    struct hf_lock *locks[KEPT] = {NULL};
    struct hf_client *client;
    char name[16];

    (void)state;
    mongo.election_ms = 2000;
    mongo.short_timeouts = true;
    hf_test_mongo_require(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "&socketTimeoutMS=600000");
    /* Wait until the client uses the pool, whose monitors notice a new
     * primary. */
    (void)poll(NULL, 0, 1500);
    for (unsigned i = 0; i < KEPT; i++)
        expect_ok(hf_acquire(client, key_of(i, &name), &opts, &locks[i]));
    hf_test_mongo_signal(&mongo, primary(), SIGSTOP);
    for (unsigned i = 0; i < KEPT; i++)
        expect_ok(hf_renew_start(locks[i], 0, NULL, NULL, &renewals[i]));
    for (unsigned i = 0; i < KEPT; i++) {
        expect_ok(await_answer(renewals[i]));
        hf_lock_free(locks[i]);
    }
    (void)hf_close(client, 1000);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_slow_write_is_sent_once),
        CASE(a_very_slow_write_is_sent_once),
        CASE(slow_writes_run_in_parallel),
        CASE(renewals_go_before_locks),
        CASE(time_in_the_run_queue_counts_as_wait),
        CASE(a_repeated_lock_skips_the_fast_path),
        CASE(a_lock_given_up_before_it_is_sent_is_never_sent),
        CASE(renewals_move_to_the_new_primary),
    };

    return hf_test_main("mongo slow", cases, HF_TEST_COUNT(cases), 2);
}
