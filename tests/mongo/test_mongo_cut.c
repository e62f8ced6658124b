/* A network that is cut: between the servers, and between them and clients. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "lib/mongo_client.h"
#include "lib/runner.h"

#define PATIENCE_MS 60000

static struct hf_test_network network;
static struct hf_test_mongo mongo;

static int set_up(void **state)
{
    (void)state;
    network = (struct hf_test_network){.pid = 0};
    mongo = (struct hf_test_mongo){.network = &network};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (mongo.count > 0)
        hf_test_mongo_stop(&mongo);
    hf_test_network_stop(&network);
    return 0;
}

static void need(unsigned count)
{
    assert_true(hf_test_network_start(&network, count));
    hf_test_mongo_need(&mongo, count);
}

/* A client of one member alone, whatever becomes of the others. */
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
    return strstr(hf_test_mongo_say(&mongo, member, "admin", "{\"hello\":1}"),
                  "\"isWritablePrimary\" : true");
}

/* The old primary does not know yet that there is another. It grants nothing,
 * and what it last knew, that the key is held, is no answer either: it was given
 * back at the new one. */
static void who_is_cut_off_tells_nothing_old(void **state)
{
    struct hf_lock_opts opts = hf_test_mongo_opts(600000, 0, PATIENCE_MS);
    struct hf_lock_opts brief = hf_test_mongo_opts(600000, 0, 3000);
    struct hf_client *client, *late, *other;
    struct hf_lock *lock = NULL, *none = NULL, *next = NULL;
    unsigned old, new;
    enum hf_err err;

    (void)state;
    mongo.election_ms = 60000; /* so long it may believe what it likes */
    need(3);
    old = (unsigned)hf_test_mongo_primary(&mongo);
    new = (old + 1) % 3;
    client = open_at(old);
    late = open_at(old);
    expect_ok(hf_lock(client, hf_key("k"), &opts, &lock));
    hf_test_network_cut_server(&network, (int)old);
    while (!is_primary(new))
        (void)hf_test_mongo_say(&mongo, new, "admin", "{\"replSetStepUp\":1}");
    other = open_at(new);
    expect_ok(hf_force(other, hf_key("k"), hf_token(lock), true));

    assert_true(is_primary(old));
    err = hf_lock(late, hf_key("k"), &brief, &none);
    assert_true(err == HF_EUNAVAIL || err == HF_EINDOUBT);
    err = hf_lock(late, hf_key("free"), &brief, &none);
    assert_true(err == HF_EUNAVAIL || err == HF_EINDOUBT);
    expect_ok(hf_lock(other, hf_key("k"), &opts, &next));
    assert_true(hf_token(next) > hf_token(lock));

    hf_test_network_cut_server(&network, -1);
    expect_ok(hf_unlock(next));
    hf_lock_free(lock);
    hf_lock_free(next);
    (void)hf_close(late, 100);
    (void)hf_close(client, 100);
    expect_ok(hf_close(other, PATIENCE_MS));
}

/* Who waits or holds hears nothing while the network is cut; once it is whole,
 * all goes on, and who waited has its turn. */
static void a_cut_is_gone_through(void **state)
{
    struct hf_lock_opts opts =
        hf_test_mongo_opts(PATIENCE_MS, PATIENCE_MS, PATIENCE_MS);
    struct hf_lock_opts brief = hf_test_mongo_opts(10000, 0, 1000);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL, *none = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    need(1);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_lock(client, hf_key("k"), &opts, &lock));
    expect_ok(
        hf_lock_start(other, hf_key("k"), &opts, &next, NULL, NULL, &future));
    expect_err(hf_future_wait(future, 300, &err), HF_ETIMEDOUT);
    hf_test_network_cut_clients(&network, true);
    err = hf_lock(client, hf_key("other"), &brief, &none);
    assert_true(err == HF_EUNAVAIL || err == HF_EINDOUBT);
    assert_null(none);

    hf_test_network_cut_clients(&network, false);
    expect_ok(hf_unlock(lock));
    expect_ok(hf_future_wait(future, PATIENCE_MS, &err));
    expect_ok(err);
    assert_true(hf_token(next) > hf_token(lock));
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
        CASE(who_is_cut_off_tells_nothing_old),
        CASE(a_cut_is_gone_through),
    };

    return hf_test_main("mongo cut", cases, HF_TEST_COUNT(cases), 2);
}
