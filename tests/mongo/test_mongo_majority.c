/* Replica sets that lack a majority for a while. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

#define TIMEOUT_MS 60000 /* longer than an election takes */
#define LONG_MS 600000   /* a lease that does not expire during a case */

static void signal_all_but(unsigned kept, int number)
{
    for (unsigned i = 0; i < 3; i++)
        if (i != kept)
            hf_test_mongo_signal(&mongo, i, number);
}

/* With one of three servers nothing can be decided, so calls fail by their
 * deadlines. */
static void without_a_majority_calls_fail(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(300000, 0, TIMEOUT_MS);
    struct hf_lock_opts brief = hf_test_opts(10000, 0, 1500);
    struct hf_client *client;
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_info info;
    unsigned survivor = 0;
    enum hf_err err;

    (void)state;
    hf_test_mongo_require(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    for (unsigned i = 0; i < 3; i++) {
        if (i != primary())
            survivor = i;
    }
    for (unsigned i = 0; i < 3; i++) {
        if (i != survivor)
            hf_test_mongo_kill(&mongo, i);
    }
    err = hf_acquire(client, hf_key_of("other"), &brief, &none);
    assert_true(err == HF_EUNAVAIL || err == HF_EINDOUBT);
    err = hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info);
    assert_true(err == HF_EUNAVAIL || err == HF_EINDOUBT);

    for (unsigned i = 0; i < 3; i++) {
        if (i != survivor)
            assert_true(hf_test_mongo_restart(&mongo, i));
    }
    expect_ok(hf_renew(lock, 0));
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
}

/* The majority is missing during a write, so the primary has executed the write
 * but cannot confirm it. Once the other servers are back, the repeated LOCK
 * finds its nonce. */
static void a_write_in_doubt_is_resolved(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(300000, 0, TIMEOUT_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;
    unsigned kept;

    (void)state;
    hf_test_mongo_require(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    kept = primary();
    signal_all_but(kept, SIGSTOP);
    expect_ok(hf_acquire_start(client, hf_key_of("k"), &opts, &lock, NULL, NULL,
                               &future));
    expect_err(hf_future_wait(future, 1500, &err), HF_ETIMEDOUT);
    signal_all_but(kept, SIGCONT);
    expect_ok(hf_future_wait(future, TIMEOUT_MS, &err));
    expect_ok(err);
    assert_true(hf_lock_valid_for(lock, 0));
    expect_ok(hf_release(lock));
    hf_future_free(future);
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
}

/* Longer than one server selection takes, so hf_open() has to repeat it. */
#define NO_PRIMARY_MS 2500

/* After NO_PRIMARY_MS, elect one of the two remaining members. If the first
 * candidate lacks the last write, the other is elected. */
static void *late_election_main(void *arg)
{
    unsigned dead = *(unsigned *)arg, candidate = dead;

    (void)poll(NULL, 0, NO_PRIMARY_MS);
    for (;;) {
        candidate = (candidate + 1) % 3;
        if (candidate != dead &&
            !strstr(hf_test_mongo_command(&mongo, candidate, "admin",
                                          "{\"replSetStepUp\":1}"),
                    "(lost)"))
            return NULL;
    }
}

/* hf_open() during an election succeeds once the new primary is elected, and
 * finds the lock that is held. */
static void open_waits_for_an_election(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(300000, 0, TIMEOUT_MS);
    char url[HF_TEST_MONGO_URL_SIZE];
    struct hf_error error = {.code = HF_OK};
    struct hf_client *client, *late = NULL;
    struct hf_client_opts late_opts;
    struct hf_lock *lock = NULL, *none = NULL;
    pthread_t thread;
    unsigned dead;
    enum hf_err err;

    (void)state;
    mongo.election_ms = 60000; /* no member calls an election by itself */
    hf_test_mongo_require(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    hf_test_mongo_url(&mongo, url, "");
    hf_client_opts_init(&late_opts);
    late_opts.error = &error;
    dead = primary();
    hf_test_mongo_kill(&mongo, dead);
    assert_int_equal(pthread_create(&thread, NULL, late_election_main, &dead),
                     0);
    err = hf_open(url, &late_opts, &late);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (err)
        fail_msg("%s", error.text);
    expect_err(hf_acquire(late, hf_key_of("k"), &opts, &none), HF_EBUSY);
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(late, TIMEOUT_MS));
}

static bool is_undecided(enum hf_err err)
{
    return err == HF_EINDOUBT || err == HF_EUNAVAIL;
}

static enum hf_err await_answer(struct hf_future *future)
{
    enum hf_err err = HF_OK;

    expect_ok(hf_future_wait(future, TIMEOUT_MS, &err));
    hf_future_free(future);
    return err;
}

/* Expect that each write ends at its deadline in doubt, and that a READ fails
 * at its deadline. */
static void expect_all_in_doubt(struct hf_client *client,
                                struct hf_lock *released, struct hf_lock *kept,
                                struct hf_lock *changed)
{
    struct hf_lock_opts brief = hf_test_opts(LONG_MS, 0, 1500);
    struct hf_bytes old = hf_bytes_of("old");
    struct hf_future *lock_future, *unlock_future, *renew_future,
        *update_future, *read_future;
    struct hf_lock *none = NULL;
    struct hf_info info;
    int64_t began = now_ms();

    expect_ok(hf_acquire_start(client, hf_key_of("taken"), &brief, &none, NULL,
                               NULL, &lock_future));
    expect_ok(hf_release_start(released, NULL, NULL, &unlock_future));
    expect_ok(hf_renew_start(kept, 0, NULL, NULL, &renew_future));
    expect_ok(hf_update_start(changed, &old, hf_bytes_of("new"), NULL, NULL,
                              &update_future));
    expect_ok(hf_read_start(client, hf_key_of("kept"), HF_LINEARIZABLE, &info,
                            NULL, NULL, &read_future));
    expect_err(await_answer(lock_future), HF_EINDOUBT);
    assert_null(none);
    expect_err(await_answer(unlock_future), HF_EINDOUBT);
    expect_err(await_answer(renew_future), HF_EINDOUBT);
    expect_err(await_answer(update_future), HF_EINDOUBT);
    assert_true(now_ms() - began >= 1500);
    assert_true(is_undecided(await_answer(read_future)));
    assert_true(now_ms() - began >= 5000);
}

static void expect_new(struct hf_client *client)
{
    struct hf_info info;
    enum hf_err err;

    do
        err = hf_read(client, hf_key_of("changed"), HF_LINEARIZABLE, &info);
    while (is_undecided(err));
    expect_ok(err);
    assert_true(info.held);
    assert_int_equal(info.value.size, 3);
    assert_memory_equal(info.value.data, "new", 3);
    hf_info_fini(&info);
}

/* The primary stays primary, and has executed all commands. Once the other
 * servers are back, each command has taken effect once, and the LOCK in doubt
 * is withdrawn. */
static void commands_in_doubt_are_executed_at_most_once(void **state)
{
    struct hf_lock_opts brief = hf_test_opts(LONG_MS, 0, 1500);
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, TIMEOUT_MS, TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_bytes old = hf_bytes_of("old");
    struct hf_lock *released = NULL, *kept = NULL, *changed = NULL;
    struct hf_lock *taken = NULL, *next = NULL;
    unsigned stays;
    enum hf_err err;

    (void)state;
    mongo.election_ms = TIMEOUT_MS;
    require_two_clients(3, &client, &other);
    brief.value = old;
    released = acquire_with_retries(client, "released", &brief);
    kept = acquire_with_retries(client, "kept", &brief);
    changed = acquire_with_retries(client, "changed", &brief);
    stays = primary();
    signal_all_but(stays, SIGSTOP);
    expect_all_in_doubt(client, released, kept, changed);
    assert_true(hf_lock_valid_for(kept, LONG_MS / 2));
    assert_false(hf_lock_valid_for(released, 0));
    signal_all_but(stays, SIGCONT);

    expect_new(other);
    do
        err = hf_update(changed, &old, hf_bytes_of("newer"));
    while (is_undecided(err));
    expect_err(err, HF_EMISMATCH);
    expect_ok(hf_acquire(other, hf_key_of("taken"), &opts, &taken));
    expect_ok(hf_acquire(other, hf_key_of("released"), &opts, &next));
    assert_true(hf_lock_token(next) > hf_lock_token(released));
    hf_lock_free(released);
    hf_lock_free(kept);
    hf_lock_free(changed);
    hf_lock_free(taken);
    hf_lock_free(next);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(without_a_majority_calls_fail),
        CASE(a_write_in_doubt_is_resolved),
        CASE(open_waits_for_an_election),
        CASE(commands_in_doubt_are_executed_at_most_once),
    };

    return hf_test_main("mongo majority", cases, HF_TEST_COUNT(cases), 2);
}
