/* Too few servers: a majority that is gone, for a while. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

#define PATIENCE_MS 60000 /* for what an election may hold up */
#define LONG_MS 600000    /* a lease that nobody here waits for */

static void signal_all_but(unsigned kept, int number)
{
    for (unsigned i = 0; i < 3; i++)
        if (i != kept)
            hf_test_mongo_signal(&mongo, i, number);
}

/* With two of three gone nothing can be decided: an error by the deadline, and
 * no answer that is wrong. */
static void without_a_majority_there_is_no_answer(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(300000, 0, PATIENCE_MS);
    struct hf_lock_opts brief = hf_test_opts(10000, 0, 1500);
    struct hf_client *client;
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_info info;
    unsigned last = 0;
    enum hf_err err;

    (void)state;
    hf_test_mongo_need(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    for (unsigned i = 0; i < 3; i++) {
        if (i != primary())
            last = i;
    }
    for (unsigned i = 0; i < 3; i++) {
        if (i != last)
            hf_test_mongo_kill(&mongo, i);
    }
    err = hf_acquire(client, hf_key_of("other"), &brief, &none);
    assert_true(err == HF_EUNAVAIL || err == HF_EINDOUBT);
    err = hf_read(client, hf_key_of("k"), HF_LINEARIZABLE, &info);
    assert_true(err == HF_EUNAVAIL || err == HF_EINDOUBT);

    for (unsigned i = 0; i < 3; i++) {
        if (i != last)
            assert_true(hf_test_mongo_again(&mongo, i));
    }
    expect_ok(hf_renew(lock, 0));
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, PATIENCE_MS));
}

/* The majority goes while a write is under way: the primary has it, and cannot
 * say for how long. Once the others are back, the answer is found by nonce. */
static void a_write_in_doubt_is_resolved(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(300000, 0, PATIENCE_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;
    unsigned kept;

    (void)state;
    hf_test_mongo_need(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    kept = primary();
    signal_all_but(kept, SIGSTOP);
    expect_ok(hf_acquire_start(client, hf_key_of("k"), &opts, &lock, NULL, NULL,
                               &future));
    expect_err(hf_future_wait(future, 1500, &err), HF_ETIMEDOUT);
    signal_all_but(kept, SIGCONT);
    expect_ok(hf_future_wait(future, PATIENCE_MS, &err));
    expect_ok(err);
    assert_true(hf_lock_valid_for(lock, 0));
    expect_ok(hf_release(lock));
    hf_future_free(future);
    hf_lock_free(lock);
    expect_ok(hf_close(client, PATIENCE_MS));
}

/* For longer than a server is looked for at one time there is no primary; then
 * one of those that are left is told to stand, the other where the first lacks
 * what was written last. */
#define VACANT_MS 2500

static void *elect_late(void *arg)
{
    unsigned dead = *(unsigned *)arg, candidate = dead;

    (void)poll(NULL, 0, VACANT_MS);
    for (;;) {
        candidate = (candidate + 1) % 3;
        if (candidate != dead &&
            !strstr(hf_test_mongo_say(&mongo, candidate, "admin",
                                      "{\"replSetStepUp\":1}"),
                    "(lost)"))
            return NULL;
    }
}

/* The primary has just died: who comes now, and asks once, is let in when the
 * next one is elected, and finds what was locked. */
static void who_comes_while_there_is_no_primary_waits(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(300000, 0, PATIENCE_MS);
    char url[HF_TEST_MONGO_URL_SIZE];
    struct hf_error error = {.code = HF_OK};
    struct hf_client *client, *late = NULL;
    struct hf_client_opts late_opts;
    struct hf_lock *lock = NULL, *none = NULL;
    pthread_t thread;
    unsigned dead;
    enum hf_err err;

    (void)state;
    mongo.election_ms = 60000; /* nobody stands by itself */
    hf_test_mongo_need(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    hf_test_mongo_url(&mongo, url, "");
    hf_client_opts_init(&late_opts);
    late_opts.error = &error;
    dead = primary();
    hf_test_mongo_kill(&mongo, dead);
    assert_int_equal(pthread_create(&thread, NULL, elect_late, &dead), 0);
    err = hf_open(url, &late_opts, &late);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (err)
        fail_msg("%s", error.text);
    expect_err(hf_acquire(late, hf_key_of("k"), &opts, &none), HF_EBUSY);
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(late, PATIENCE_MS));
}

static bool is_undecided(enum hf_err err)
{
    return err == HF_EINDOUBT || err == HF_EUNAVAIL;
}

static enum hf_err answer(struct hf_future *future)
{
    enum hf_err err = HF_OK;

    expect_ok(hf_future_wait(future, PATIENCE_MS, &err));
    hf_future_free(future);
    return err;
}

/* Who asks hears by its deadline that nobody knows, and nothing that is wrong. */
static void ask_in_vain(struct hf_client *client, struct hf_lock *given,
                        struct hf_lock *kept, struct hf_lock *changed)
{
    struct hf_lock_opts brief = hf_test_opts(LONG_MS, 0, 1500);
    struct hf_bytes old = hf_bytes_of("old");
    struct hf_future *locking, *unlocking, *renewing, *updating, *reading;
    struct hf_lock *none = NULL;
    struct hf_info info;
    int64_t began = now_ms();

    expect_ok(hf_acquire_start(client, hf_key_of("taken"), &brief, &none, NULL,
                               NULL, &locking));
    expect_ok(hf_release_start(given, NULL, NULL, &unlocking));
    expect_ok(hf_renew_start(kept, 0, NULL, NULL, &renewing));
    expect_ok(hf_update_start(changed, &old, hf_bytes_of("new"), NULL, NULL,
                              &updating));
    expect_ok(hf_read_start(client, hf_key_of("kept"), HF_LINEARIZABLE, &info,
                            NULL, NULL, &reading));
    expect_err(answer(locking), HF_EINDOUBT);
    assert_null(none);
    expect_err(answer(unlocking), HF_EINDOUBT);
    expect_err(answer(renewing), HF_EINDOUBT);
    expect_err(answer(updating), HF_EINDOUBT);
    assert_true(now_ms() - began >= 1500);
    assert_true(is_undecided(answer(reading)));
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

/* The primary has all that was asked for meanwhile, and stays; once the others
 * are back, each was done once, and what nobody was told of is withdrawn. */
static void what_is_in_doubt_was_done_at_most_once(void **state)
{
    struct hf_lock_opts brief = hf_test_opts(LONG_MS, 0, 1500);
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, PATIENCE_MS, PATIENCE_MS);
    struct hf_client *client, *other;
    struct hf_bytes old = hf_bytes_of("old");
    struct hf_lock *given = NULL, *kept = NULL, *changed = NULL;
    struct hf_lock *taken = NULL, *next = NULL;
    unsigned stays;
    enum hf_err err;

    (void)state;
    mongo.election_ms = PATIENCE_MS;
    hf_test_mongo_need(&mongo, 3);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    brief.value = old;
    given = lock_at_last(client, "given", &brief);
    kept = lock_at_last(client, "kept", &brief);
    changed = lock_at_last(client, "changed", &brief);
    stays = primary();
    signal_all_but(stays, SIGSTOP);
    ask_in_vain(client, given, kept, changed);
    assert_true(hf_lock_valid_for(kept, LONG_MS / 2));
    assert_false(hf_lock_valid_for(given, 0));
    signal_all_but(stays, SIGCONT);

    expect_new(other);
    do
        err = hf_update(changed, &old, hf_bytes_of("newer"));
    while (is_undecided(err));
    expect_err(err, HF_EMISMATCH);
    expect_ok(hf_acquire(other, hf_key_of("taken"), &opts, &taken));
    expect_ok(hf_acquire(other, hf_key_of("given"), &opts, &next));
    assert_true(hf_lock_token(next) > hf_lock_token(given));
    hf_lock_free(given);
    hf_lock_free(kept);
    hf_lock_free(changed);
    hf_lock_free(taken);
    hf_lock_free(next);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(other, PATIENCE_MS));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(without_a_majority_there_is_no_answer),
        CASE(a_write_in_doubt_is_resolved),
        CASE(who_comes_while_there_is_no_primary_waits),
        CASE(what_is_in_doubt_was_done_at_most_once),
    };

    return hf_test_main("mongo majority", cases, HF_TEST_COUNT(cases), 2);
}
