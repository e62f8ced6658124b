/* A network that is cut: between the servers, and between them and clients. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

#define PATIENCE_MS 60000

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

/* Have one of the others elected: of two, only one may have heard of the last
 * that was written, and then the other cannot win. */
static unsigned elect_without(unsigned old)
{
    unsigned candidate = old;

    do {
        candidate = (candidate + 1) % mongo.count;
        if (candidate != old)
            (void)hf_test_mongo_say(&mongo, candidate, "admin",
                                    "{\"replSetStepUp\":1}");
    } while (candidate == old || !is_primary(candidate));
    return candidate;
}

static void expect_no_answer(enum hf_err err)
{
    if (err != HF_EUNAVAIL && err != HF_EINDOUBT)
        fail_msg("answered %s", hf_err_name(err));
}

/* The rest of what may be asked of a server that is cut off, at one time: each
 * takes until its deadline. */
static void ask_the_rest(struct hf_client *late, struct hf_lock *renewed,
                         struct hf_lock *unlocked)
{
    struct hf_lock_opts brief = hf_test_opts(600000, 0, 3000);
    struct hf_future *asked[4] = {NULL};
    struct hf_lock *none = NULL;
    struct hf_info info;

    expect_ok(hf_read_start(late, hf_lock_key(renewed), HF_LINEARIZABLE, &info,
                            NULL, NULL, &asked[0]));
    expect_ok(hf_acquire_start(late, hf_key_of("free"), &brief, &none, NULL,
                               NULL, &asked[1]));
    expect_ok(hf_renew_start(renewed, 0, NULL, NULL, &asked[2]));
    expect_ok(hf_release_start(unlocked, NULL, NULL, &asked[3]));
    for (unsigned i = 0; i < HF_TEST_COUNT(asked); i++) {
        enum hf_err err = HF_OK;

        expect_ok(hf_future_wait(asked[i], HF_TEST_PATIENCE_MS, &err));
        expect_no_answer(err);
        hf_future_free(asked[i]);
    }
}

/* At the new primary: it is taken away, and given to somebody else. */
static struct hf_lock *take_over(struct hf_client *client, const char *key,
                                 const struct hf_lock *from)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, PATIENCE_MS);
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

/* The old primary does not know yet that there is another. It grants nothing;
 * what it last knew, that keys are held, is no answer either; and to who held
 * them it neither says that they are held longer, nor that they were given
 * back. */
static void who_is_cut_off_tells_nothing_old(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, 3000);
    struct hf_client *client, *late, *other;
    struct hf_lock *renewed = NULL, *unlocked = NULL, *next, *last;
    struct hf_lock *none = NULL;
    unsigned old;

    (void)state;
    mongo.election_ms = 60000; /* so long it may believe what it likes */
    need_network(3);
    old = (unsigned)hf_test_mongo_primary(&mongo);
    client = open_at(old);
    late = open_at(old);
    renewed = lock_at_last(client, "renewed", &opts);
    unlocked = lock_at_last(client, "unlocked", &opts);
    hf_test_network_cut_server(&network, (int)old);
    other = open_at(elect_without(old));
    next = take_over(other, "renewed", renewed);
    last = take_over(other, "unlocked", unlocked);

    assert_true(is_primary(old));
    expect_no_answer(hf_acquire(late, hf_key_of("renewed"), &opts, &none));
    ask_the_rest(late, renewed, unlocked);
    assert_true(is_primary(old));

    /* What it has written meanwhile is undone. */
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
    expect_ok(hf_close(other, PATIENCE_MS));
}

/* Who waits or holds hears nothing while the network is cut; once it is whole,
 * all goes on, and who waited has its turn. */
static void a_cut_is_gone_through(void **state)
{
    struct hf_lock_opts opts =
        hf_test_opts(HF_TEST_LONG_MS, PATIENCE_MS, PATIENCE_MS);
    struct hf_lock_opts brief = hf_test_opts(10000, 0, 1000);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL, *none = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    need_network(1);
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
    expect_ok(hf_future_wait(future, PATIENCE_MS, &err));
    expect_ok(err);
    assert_true(hf_lock_token(next) > hf_lock_token(lock));
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
