/* Network partitions between the servers, and between servers and clients. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

#define TIMEOUT_MS 60000

/* Open a client that is connected to one member only. */
static struct hf_client *open_at(unsigned member)
{
    char url[HF_TEST_MONGO_URL_SIZE];

    (void)snprintf(url, sizeof(url),
                   "mongodb://127.0.0.1:%d/?directConnection=true&unsafe=1",
                   mongo.members[member].port);
    return hf_test_mongo_open_url(url);
}

static bool is_primary(unsigned member)
{
    return strstr(
        hf_test_mongo_command(&mongo, member, "admin", "{\"hello\":1}"),
        "\"isWritablePrimary\" : true");
}

/* Elect one of the other members. If only one of them has the last write, the
 * other cannot win, so try both in turn. */
static unsigned elect_without(unsigned old)
{
    unsigned candidate = old;

    do {
        candidate = (candidate + 1) % mongo.count;
        if (candidate != old)
            (void)hf_test_mongo_command(&mongo, candidate, "admin",
                                        "{\"replSetStepUp\":1}");
    } while (candidate == old || !is_primary(candidate));
    return candidate;
}

static void expect_no_answer(enum hf_err err)
{
    if (err != HF_EUNAVAIL && err != HF_EINDOUBT)
        fail_msg("answered %s", hf_err_name(err));
}

/* Expect that READ, LOCK of a free key, RENEW and UNLOCK get no answer from the
 * isolated server. Send them in parallel, because each takes until its
 * deadline. */
static void expect_no_other_answer(struct hf_client *late,
                                   struct hf_lock *renewed,
                                   struct hf_lock *unlocked)
{
    struct hf_lock_opts brief = hf_test_opts(600000, 0, 3000);
    struct hf_future *futures[4] = {NULL};
    struct hf_lock *none = NULL;
    struct hf_info info;

    expect_ok(hf_read_start(late, hf_lock_key(renewed), HF_LINEARIZABLE, &info,
                            NULL, NULL, &futures[0]));
    expect_ok(hf_acquire_start(late, hf_key_of("free"), &brief, &none, NULL,
                               NULL, &futures[1]));
    expect_ok(hf_renew_start(renewed, 0, NULL, NULL, &futures[2]));
    expect_ok(hf_release_start(unlocked, NULL, NULL, &futures[3]));
    for (unsigned i = 0; i < HF_TEST_COUNT(futures); i++) {
        enum hf_err err = HF_OK;

        expect_ok(hf_future_wait(futures[i], HF_TEST_TIMEOUT_MS, &err));
        expect_no_answer(err);
        hf_future_free(futures[i]);
    }
}

/* End the grant of `from` at the new primary, and grant the key to another
 * client. */
static struct hf_lock *take_over(struct hf_client *client, const char *key,
                                 const struct hf_lock *from)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, TIMEOUT_MS);
    struct hf_lock *lock = NULL;

    expect_ok(hf_force(client, hf_key_of(key), hf_lock_token(from), true));
    expect_ok(hf_acquire(client, hf_key_of(key), &opts, &lock));
    assert_true(hf_lock_token(lock) > hf_lock_token(from));
    return lock;
}

static void expect_held(struct hf_client *client, const struct hf_lock *lock)
{
    struct hf_info info;

    expect_ok(hf_read(client, hf_lock_key(lock), HF_LINEARIZABLE, &info));
    assert_true(info.held);
    assert_int_equal(info.token, hf_lock_token(lock));
    hf_info_fini(&info);
}

/* The old primary does not know of the new primary yet. It grants nothing, does
 * not report its stale state, and confirms neither renewals nor releases. */
static void an_isolated_primary_returns_no_stale_data(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, 3000);
    struct hf_client *client, *late, *other;
    struct hf_lock *renewed = NULL, *unlocked = NULL, *next, *last;
    struct hf_lock *none = NULL;
    unsigned old;

    (void)state;
    mongo.election_ms = 60000; /* no stepdown during the test */
    require_network(3);
    old = (unsigned)hf_test_mongo_primary(&mongo);
    client = open_at(old);
    late = open_at(old);
    renewed = acquire_with_retries(client, "renewed", &opts);
    unlocked = acquire_with_retries(client, "unlocked", &opts);
    hf_test_network_cut_server(&network, (int)old);
    other = open_at(elect_without(old));
    next = take_over(other, "renewed", renewed);
    last = take_over(other, "unlocked", unlocked);

    assert_true(is_primary(old));
    expect_no_answer(hf_acquire(late, hf_key_of("renewed"), &opts, &none));
    expect_no_other_answer(late, renewed, unlocked);
    assert_true(is_primary(old));

    /* After the partition, the writes of the old primary are rolled back. */
    hf_test_network_cut_server(&network, -1);
    while (is_primary(old))
        continue;
    expect_held(other, next);
    expect_held(other, last);
    hf_lock_free(renewed);
    hf_lock_free(unlocked);
    hf_lock_free(next);
    hf_lock_free(last);
    (void)hf_close(late, 100);
    (void)hf_close(client, 100);
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* Calls fail during the partition. Afterwards the holder can release, and the
 * waiter is granted the key. */
static void clients_recover_from_a_partition(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, TIMEOUT_MS, TIMEOUT_MS);
    struct hf_lock_opts brief = hf_test_opts(10000, 0, 1000);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL, *none = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    require_network(1);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_acquire_start(other, hf_key_of("k"), &opts, &next, NULL, NULL,
                               &future));
    expect_err(hf_future_wait(future, 300, &err), HF_ETIMEDOUT);
    hf_test_network_cut_clients(&network, true);
    err = hf_acquire(client, hf_key_of("other"), &brief, &none);
    assert_true(err == HF_EUNAVAIL || err == HF_EINDOUBT);
    assert_null(none);

    hf_test_network_cut_clients(&network, false);
    expect_ok(hf_release(lock));
    expect_ok(hf_future_wait(future, TIMEOUT_MS, &err));
    expect_ok(err);
    assert_true(hf_lock_token(next) > hf_lock_token(lock));
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
        CASE(an_isolated_primary_returns_no_stale_data),
        CASE(clients_recover_from_a_partition),
    };

    return hf_test_main("mongo partition", cases, HF_TEST_COUNT(cases), 2);
}
