/* Documents that another program has damaged. Calls that need the damaged part
 * report it, and other keys are not affected. */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

/* Updates that damage the document of a held lock. `results` has a letter for
 * each of READ, UPDATE, RENEW, LOCK and UNLOCK afterwards: P is HF_EPROTO, E is
 * HF_EEXPIRED, T is HF_ETIMEDOUT, as for LOCK of any held key, and "." is
 * HF_OK, because calls ignore damage to fields that they do not need. */
static const struct damage {
    const char *update;
    const char *results;
} damages[] = {
#define SET(what) "{\"$set\":{" what "}}"
#define UNSET(what) "{\"$unset\":{\"" what "\":1}}"
#define COMPUTE(what) "[{\"$set\":{" what "}}]"
#define LONG_TEXT                                                              \
    "{\"$reduce\":{\"input\":{\"$range\":[0,5000]},\"initialValue\":\"x\","    \
    "\"in\":{\"$concat\":[\"$$value\",\"%2\"]}}}"
    {SET("\"token\":\"seven\""), "PPPPP"},
    {SET("\"token\":1.5"), "PPPPP"},
    {SET("\"token\":{\"$numberLong\":\"-5\"}"), "PPPPP"},
    {UNSET("token"), "PPPPP"},
    {SET("\"deadlines\":\"never\""), "PPPPP"},
    {SET("\"deadlines\":[]"), "...T."},
    {SET("\"deadlines\":[1,2,3]"), "...T."},
    {SET("\"deadlines\":[{\"server\":1,\"until\":2}]"), "...T."},
    {UNSET("deadlines"), "...T."},
    {SET("\"queue\":7"), "P..P."},
    {SET("\"queue\":[7]"), "...TP"},
    {SET("\"queue\":[{\"nonce\":3}]"), "...T."},
    {UNSET("queue"), "...T."},
    {COMPUTE("\"queue\":{\"$range\":[0,5000]}"), "...TP"},
    {SET("\"canceled\":true"), "...P."},
    {SET("\"ended\":[]"), "...T."},
    {SET("\"events\":12"), "...T."},
    {SET("\"events\":\"no\\nof \\n sense 1 2 3 4 5 6 7\""), "...T."},
    {COMPUTE("\"events\":" LONG_TEXT), "...T."},
    {SET("\"lease\":\"long\""), "..PT."},
    {UNSET("lease"), "...T."},
    {SET("\"owner\":[1]"), ".PPTP"},
    {COMPUTE("\"owner\":" LONG_TEXT), "...T."},
    {UNSET("owner"), "...T."},
    {SET("\"value\":3"), "...T."},
    {SET("\"note\":3"), "...T."},
    {SET("\"nonce\":5"), ".EETE"},
    {SET("\"nonce\":[\"x\"]"), ".EETE"},
    {UNSET("nonce"), ".EE.E"},
    {SET("\"updated\":7"), ".P.T."},
    {SET("\"updated\":[7]"), "...T."},
    {SET("\"delete_at\":0"), "...T."},
    {SET("\"renewals\":\"x\""), "..PT."},
};

enum {
    READ,
    UPDATE,
    RENEW,
    LOCK,
    UNLOCK
};

static enum hf_err decode_result(char letter)
{
    switch (letter) {
    case 'P':
        return HF_EPROTO;
    case 'T':
        return HF_ETIMEDOUT;
    case 'E':
        return HF_EEXPIRED;
    default:
        return HF_OK;
    }
}

/* Apply `update` to the document of `key`. */
static void damage_document(const char *key, const char *update)
{
    char json[512];

    (void)snprintf(json, sizeof(json),
                   "{\"update\":\"locks\",\"updates\":"
                   "[{\"q\":{\"_id\":\"%s\"},\"u\":%s}]}",
                   key, update);
    assert_non_null(strstr(hf_test_mongo_command(&mongo, 0, "holdfast", json),
                           "\"nModified\" : 1"));
}

static void delete_document(const char *key)
{
    char json[128];

    (void)snprintf(json, sizeof(json),
                   "{\"delete\":\"locks\",\"deletes\":"
                   "[{\"q\":{\"_id\":\"%s\"},\"limit\":1}]}",
                   key);
    assert_non_null(strstr(hf_test_mongo_command(&mongo, 0, "holdfast", json),
                           "\"n\" : 1"));
}

static void expect_result(const struct damage *damage, unsigned call,
                          struct hf_client *client, enum hf_err got)
{
    enum hf_err wanted = decode_result(damage->results[call]);
    struct hf_error error;

    /* A LOCK that times out is withdrawn within a second. On a busy machine
     * that may take longer, so accept that the call is in doubt. */
    if (wanted == HF_ETIMEDOUT && got == HF_EINDOUBT)
        return;
    hf_client_error(client, &error);
    if (got != wanted)
        fail_msg("%s: call %u is %s, should be %s: %s", damage->update, call,
                 hf_err_name(got), hf_err_name(wanted), error.text);
    if (wanted == HF_EPROTO && !strstr(error.text, "corrupt"))
        fail_msg("%s: call %u: \"%s\"", damage->update, call, error.text);
}

static void check_all_calls(const struct damage *damage,
                            struct hf_client *client, struct hf_client *other,
                            struct hf_lock *lock)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 1, HF_TEST_TIMEOUT_MS);
    struct hf_key key = hf_lock_key(lock);
    struct hf_lock *next = NULL;
    struct hf_info info;
    enum hf_err err = hf_read(other, key, HF_LINEARIZABLE, &info);

    expect_result(damage, READ, other, err);
    if (!err)
        hf_info_fini(&info);
    expect_result(damage, UPDATE, client,
                  hf_update(lock, NULL, hf_bytes_of("v")));
    expect_result(damage, RENEW, client, hf_renew(lock, 0));
    expect_result(damage, LOCK, other, hf_acquire(other, key, &opts, &next));
    hf_lock_free(next);
    expect_result(damage, UNLOCK, client, hf_release(lock));
}

/* Record the length of the longest owner in an event: even the owner in a
 * damaged document must be cut to HF_NOTE_MAX bytes. */
static void note_longest_owner(const struct hf_event *event, void *arg)
{
    atomic_size_t *longest = arg;

    if (strlen(event->owner) > atomic_load(longest))
        atomic_store(longest, strlen(event->owner));
}

/* Each call reports the damage or succeeds. Other keys are not affected, and
 * the key works again once its document is deleted. */
static void a_corrupt_document_affects_only_its_key(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, 0, HF_TEST_TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *good = NULL;
    struct hf_watch *watch = NULL;
    atomic_size_t longest = 0;
    char name[16];

    (void)state;
    require_two_clients(1, &client, &other);
    expect_ok(hf_watch_open(other, hf_key_of(""), NULL, note_longest_owner,
                            &longest, &watch));
    expect_ok(hf_acquire(client, hf_key_of("good"), &opts, &good));
    for (unsigned i = 0; i < HF_TEST_COUNT(damages); i++) {
        (void)snprintf(name, sizeof(name), "k%u", i);
        expect_ok(hf_acquire(client, hf_key_of(name), &opts, &lock));
        damage_document(name, damages[i].update);
        check_all_calls(&damages[i], client, other, lock);
        delete_document(name);
        expect_ok(hf_lock_acquire(lock));
        expect_ok(hf_release(lock));
        hf_lock_free(lock);
        expect_ok(hf_renew(good, 0));
    }
    expect_ok(hf_release(good));
    hf_lock_free(good);
    while (atomic_load(&longest) < HF_NOTE_MAX)
        (void)poll(NULL, 0, 5);
    hf_watch_close(watch);
    assert_int_equal(longest, HF_NOTE_MAX);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
    expect_ok(hf_close(other, HF_TEST_TIMEOUT_MS));
}

/* After its lease has expired, a damaged document keeps nobody from taking the
 * key. */
static void an_expired_corrupt_lock_can_be_taken(void **state)
{
    static const char *const updates[] = {SET("\"token\":7"), UNSET("token")};
    struct hf_lock_opts opts =
        hf_test_opts(1000, HF_TEST_TIMEOUT_MS, HF_TEST_TIMEOUT_MS);
    struct hf_client *client, *fresh;
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_info info;
    char name[16];

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    for (unsigned i = 0; i < HF_TEST_COUNT(updates); i++) {
        (void)snprintf(name, sizeof(name), "k%u", i);
        expect_ok(hf_acquire(client, hf_key_of(name), &opts, &lock));
        damage_document(name, updates[i]);
        while (hf_read(client, hf_key_of(name), HF_LINEARIZABLE, &info) ==
               HF_EPROTO)
            (void)poll(NULL, 0, 20);
        assert_false(info.held);
        hf_info_fini(&info);
        fresh = hf_test_mongo_open(&mongo, "");
        expect_ok(hf_acquire(fresh, hf_key_of(name), &opts, &next));
        assert_true(hf_lock_token(next) > hf_lock_token(lock));
        hf_lock_free(lock);
        hf_lock_free(next);
        (void)hf_close(fresh, HF_TEST_TIMEOUT_MS);
    }
    (void)hf_close(client, 10000);
}

static bool count_one(const struct hf_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return true;
}

/* The error names the key, which may be one of thousands. */
static void list_names_the_corrupt_document(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, 0, HF_TEST_TIMEOUT_MS);
    struct hf_client *client;
    struct hf_lock *good = NULL, *bad = NULL;
    struct hf_error error;
    unsigned count = 0;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("good"), &opts, &good));
    expect_ok(hf_acquire(client, hf_key_of("bad"), &opts, &bad));
    damage_document("bad", "{\"$set\":{\"token\":\"7\"}}");
    expect_err(hf_list(client, hf_key_of(""), count_one, &count), HF_EPROTO);
    hf_client_error(client, &error);
    assert_non_null(strstr(error.text, "of the key bad "));
    delete_document("bad");
    expect_ok(hf_list(client, hf_key_of(""), count_one, &count));
    assert_int_equal(count, 1);
    hf_lock_free(good);
    hf_lock_free(bad);
    expect_ok(hf_close(client, HF_TEST_TIMEOUT_MS));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_corrupt_document_affects_only_its_key),
        CASE(an_expired_corrupt_lock_can_be_taken),
        CASE(list_names_the_corrupt_document),
    };

    return hf_test_main("mongo corrupt documents", cases, HF_TEST_COUNT(cases),
                        2);
}
