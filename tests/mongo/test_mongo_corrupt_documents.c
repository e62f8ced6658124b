/* A document that somebody else has written to: whoever needs what was there
 * hears that it is not understood, and nobody is harmed. */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

/* What somebody else may write over a lock that is held, as an update; and what
 * they hear then who read it, update it, renew it, stand in line for it, give it
 * back, a letter each: OK (.), HF_EPROTO, HF_ETIMEDOUT, HF_EEXPIRED. What they
 * have no use for they do not mind. */
static const struct scribble {
    const char *update;
    const char *heard;
} scribbles[] = {
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

static enum hf_err meaning(char letter)
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

/* `update` of the document of one key. */
static void write_over(const char *key, const char *update)
{
    char json[512];

    (void)snprintf(json, sizeof(json),
                   "{\"update\":\"locks\",\"updates\":"
                   "[{\"q\":{\"_id\":\"%s\"},\"u\":%s}]}",
                   key, update);
    assert_non_null(strstr(hf_test_mongo_say(&mongo, 0, "holdfast", json),
                           "\"nModified\" : 1"));
}

static void erase(const char *key)
{
    char json[128];

    (void)snprintf(json, sizeof(json),
                   "{\"delete\":\"locks\",\"deletes\":"
                   "[{\"q\":{\"_id\":\"%s\"},\"limit\":1}]}",
                   key);
    assert_non_null(
        strstr(hf_test_mongo_say(&mongo, 0, "holdfast", json), "\"n\" : 1"));
}

/* What is not understood is said to be so. */
static void expect_heard(const struct scribble *scribble, unsigned call,
                         struct hf_client *client, enum hf_err got)
{
    enum hf_err wanted = meaning(scribble->heard[call]);
    struct hf_error error;

    /* To leave the line may take longer than its second on a busy machine. */
    if (wanted == HF_ETIMEDOUT && got == HF_EINDOUBT)
        return;
    hf_client_error(client, &error);
    if (got != wanted)
        fail_msg("%s: call %u is %s, should be %s: %s", scribble->update, call,
                 hf_err_name(got), hf_err_name(wanted), error.text);
    if (wanted == HF_EPROTO && !strstr(error.text, "not understood"))
        fail_msg("%s: call %u: \"%s\"", scribble->update, call, error.text);
}

static void try_everything(const struct scribble *scribble,
                           struct hf_client *client, struct hf_client *other,
                           struct hf_lock *lock)
{
    struct hf_lock_opts opts = hf_test_opts(10000, 1, HF_TEST_PATIENCE_MS);
    struct hf_key key = hf_lock_key(lock);
    struct hf_lock *next = NULL;
    struct hf_info info;
    enum hf_err err = hf_read(other, key, HF_LINEARIZABLE, &info);

    expect_heard(scribble, READ, other, err);
    if (!err)
        hf_info_fini(&info);
    expect_heard(scribble, UPDATE, client,
                 hf_update(lock, NULL, hf_bytes_of("v")));
    expect_heard(scribble, RENEW, client, hf_renew(lock, 0));
    expect_heard(scribble, LOCK, other, hf_acquire(other, key, &opts, &next));
    hf_lock_free(next);
    expect_heard(scribble, UNLOCK, client, hf_release(lock));
}

/* Events are made of what is written, too: the longest owner among them. */
static void see(const struct hf_event *event, void *arg)
{
    atomic_size_t *longest = arg;

    if (strlen(event->owner) > atomic_load(longest))
        atomic_store(longest, strlen(event->owner));
}

/* Each is an error that says so, or the lock is as good as ever. Other keys are
 * as they were, and so is this one once the document is deleted. */
static void a_scribbled_document_is_an_error_and_no_more(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, 0, HF_TEST_PATIENCE_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *good = NULL;
    struct hf_watch *watch = NULL;
    atomic_size_t longest = 0;
    char name[16];

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_watch_open(other, hf_key_of(""), NULL, see, &longest, &watch));
    expect_ok(hf_acquire(client, hf_key_of("good"), &opts, &good));
    for (unsigned i = 0; i < HF_TEST_COUNT(scribbles); i++) {
        (void)snprintf(name, sizeof(name), "k%u", i);
        expect_ok(hf_acquire(client, hf_key_of(name), &opts, &lock));
        write_over(name, scribbles[i].update);
        try_everything(&scribbles[i], client, other, lock);
        erase(name);
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
    expect_ok(hf_close(client, HF_TEST_PATIENCE_MS));
    expect_ok(hf_close(other, HF_TEST_PATIENCE_MS));
}

/* Once its lease has ended, what was scribbled on it keeps nobody out. */
static void what_is_over_need_not_be_understood(void **state)
{
    static const char *const updates[] = {SET("\"token\":7"), UNSET("token")};
    struct hf_lock_opts opts =
        hf_test_opts(1000, HF_TEST_PATIENCE_MS, HF_TEST_PATIENCE_MS);
    struct hf_client *client, *fresh;
    struct hf_lock *lock = NULL, *next = NULL;
    struct hf_info info;
    char name[16];

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    for (unsigned i = 0; i < HF_TEST_COUNT(updates); i++) {
        (void)snprintf(name, sizeof(name), "k%u", i);
        expect_ok(hf_acquire(client, hf_key_of(name), &opts, &lock));
        write_over(name, updates[i]);
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
        (void)hf_close(fresh, HF_TEST_PATIENCE_MS);
    }
    (void)hf_close(client, 10000);
}

static bool count_one(const struct hf_info *info, void *arg)
{
    (void)info;
    ++*(unsigned *)arg;
    return true;
}

/* Among thousands nobody would find it. */
static void a_list_names_what_it_does_not_understand(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(60000, 0, HF_TEST_PATIENCE_MS);
    struct hf_client *client;
    struct hf_lock *good = NULL, *bad = NULL;
    struct hf_error error;
    unsigned count = 0;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("good"), &opts, &good));
    expect_ok(hf_acquire(client, hf_key_of("bad"), &opts, &bad));
    write_over("bad", "{\"$set\":{\"token\":\"7\"}}");
    expect_err(hf_list(client, hf_key_of(""), count_one, &count), HF_EPROTO);
    hf_client_error(client, &error);
    assert_non_null(strstr(error.text, "under the key bad "));
    erase("bad");
    expect_ok(hf_list(client, hf_key_of(""), count_one, &count));
    assert_int_equal(count, 1);
    hf_lock_free(good);
    hf_lock_free(bad);
    expect_ok(hf_close(client, HF_TEST_PATIENCE_MS));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(a_scribbled_document_is_an_error_and_no_more),
        CASE(what_is_over_need_not_be_understood),
        CASE(a_list_names_what_it_does_not_understand),
    };

    return hf_test_main("mongo scribbles", cases, HF_TEST_COUNT(cases), 2);
}
