/* Commands whose outcome is unknown: errors, silence and late copies, with one
 * server. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/mongo_case.h"
#include "lib/runner.h"

#define TIMEOUT_MS 60000
#define LONG_MS 600000 /* a lease that does not expire during a case */

/* Record the kinds of events that a lock has received, as bits. */
static void note_event(struct hf_lock *lock, enum hf_lock_event event,
                       void *arg)
{
    (void)lock;
    atomic_fetch_or((atomic_uint *)arg, 1u << event);
}

static bool has_event(atomic_uint *events, enum hf_lock_event event)
{
    return (atomic_load(events) & (1u << event)) != 0;
}

/* ---- Injected errors ----------------------------------------------------*/

/* MongoDB commands that can be made to fail. findAndModify executes most lock
 * commands, and update executes the fast path of UNLOCK. */
#define COMMAND "\"findAndModify\""
#define FAST_UNLOCK "\"update\""

/* Stop failing commands. Return how many have failed so far. */
static long stop_failing(void)
{
    return find_number(
        hf_test_mongo_command(
            &mongo, 0, "admin",
            "{\"configureFailPoint\":\"failCommand\",\"mode\":\"off\"}"),
        "\"count\" : ");
}

/* Make the server execute writes, but report that no majority confirmed
 * them. */
static void fail_confirmations(const char *commands, const char *mode, int code)
{
    char data[128];

    (void)snprintf(data, sizeof(data),
                   "\"writeConcernError\":{\"code\":%d,"
                   "\"errmsg\":\"no majority\"}",
                   code);
    (void)fail_commands(0, commands, mode, data);
}

/* Expect that `call` succeeds although its first copy is not confirmed. */
#define UNCONFIRMED(command, code, call)                                       \
    do {                                                                       \
        long before = stop_failing();                                          \
                                                                               \
        fail_confirmations(command, "{\"times\":1}", code);                    \
        expect_ok(call);                                                       \
        assert_int_equal(stop_failing(), before + 1);                          \
    } while (0)

struct history {
    atomic_uint count;
    char kinds[64]; /* one letter for each event */
};

static void note_history(const struct hf_event *event, void *arg)
{
    struct history *history = arg;
    unsigned count = atomic_load(&history->count);
    char kind = '?';

    if (event->kind == HF_EVENT_GRANTED)
        kind = 'g';
    else if (event->kind == HF_EVENT_UPDATED)
        kind = 'u';
    else if (event->kind == HF_EVENT_RELEASED)
        kind = 'r';
    if (count < sizeof(history->kinds) - 1)
        history->kinds[count] = kind;
    atomic_store(&history->count, count + 1);
}

/* Watch all events except renewals, because a renewal may be executed twice. */
static struct hf_watch *watch_history(struct hf_client *client,
                                      struct history *history)
{
    struct hf_watch_opts opts;
    struct hf_watch *watch = NULL;

    hf_watch_opts_init(&opts);
    opts.kinds = HF_EVENT_ANY & ~(uint32_t)HF_EVENT_RENEWED;
    expect_ok(hf_watch_open(client, hf_key_of("k"), &opts, note_history,
                            history, &watch));
    return watch;
}

static void expect_held(struct hf_client *client, const char *key,
                        uint64_t token, const char *value)
{
    struct hf_info info;

    expect_ok(hf_read(client, hf_key_of(key), HF_LINEARIZABLE, &info));
    assert_true(info.held);
    assert_int_equal(info.token, token);
    assert_int_equal(info.waiters, 0);
    assert_int_equal(info.value.size, strlen(value));
    assert_memory_equal(info.value.data, value, strlen(value));
    hf_info_fini(&info);
}

enum {
    WRITE_CONCERN_FAILED = 64,
    SHUTDOWN_IN_PROGRESS = 91
};

/* The first copy of each call is executed but not confirmed. The second copy
 * finds that out, and changes nothing, except that a renewal may be executed
 * twice. `code` is used for LOCK and UNLOCK only, because after some codes
 * libmongoc searches for another server for seconds. */
static void run_unconfirmed_calls(struct hf_client *client,
                                  struct hf_client *other, int code)
{
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, 0, TIMEOUT_MS);
    struct hf_bytes old = hf_bytes_of("old");
    struct hf_lock *lock = NULL, *next = NULL;

    opts.value = old;
    UNCONFIRMED(COMMAND, code,
                hf_acquire(client, hf_key_of("k"), &opts, &lock));
    UNCONFIRMED(COMMAND, WRITE_CONCERN_FAILED, hf_renew(lock, 0));
    UNCONFIRMED(COMMAND, WRITE_CONCERN_FAILED,
                hf_update(lock, &old, hf_bytes_of("new")));
    UNCONFIRMED(COMMAND, WRITE_CONCERN_FAILED,
                hf_update(lock, NULL, hf_bytes_of("newer")));
    assert_true(hf_lock_valid_for(lock, LONG_MS / 2));
    expect_held(other, "k", hf_lock_token(lock), "newer");
    UNCONFIRMED(COMMAND, code, hf_release(lock));

    expect_ok(hf_acquire(other, hf_key_of("k"), &opts, &next));
    assert_true(hf_lock_token(next) > hf_lock_token(lock));
    UNCONFIRMED(FAST_UNLOCK, code, hf_release(next));
    hf_lock_free(lock);
    hf_lock_free(next);
}

static void an_unconfirmed_command_is_executed_once(void **state)
{
    const char *wanted = "guurgrguurgr";
    struct history history = {.count = 0};
    struct hf_client *client, *other;
    struct hf_watch *watch;

    (void)state;
    require_two_clients(1, &client, &other);
    watch = watch_history(other, &history);
    run_unconfirmed_calls(client, other, WRITE_CONCERN_FAILED);
    run_unconfirmed_calls(client, other, SHUTDOWN_IN_PROGRESS);
    while (atomic_load(&history.count) < strlen(wanted))
        (void)poll(NULL, 0, 5);
    assert_string_equal(history.kinds, wanted);
    hf_watch_close(watch);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* While no majority confirms a command, its outcome is HF_EINDOUBT: neither
 * success nor failure. */
static void a_write_without_a_majority_is_in_doubt(void **state)
{
    struct hf_lock_opts brief = hf_test_opts(LONG_MS, 0, 500);
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, TIMEOUT_MS, TIMEOUT_MS);
    struct hf_bytes old = hf_bytes_of("old");
    struct hf_client *client, *other;
    struct hf_lock *released = NULL, *kept = NULL, *none = NULL, *next = NULL;

    (void)state;
    require_two_clients(1, &client, &other);
    brief.value = old;
    released = acquire_with_retries(client, "released", &brief);
    kept = acquire_with_retries(client, "kept", &brief);
    fail_confirmations(COMMAND "," FAST_UNLOCK, "\"alwaysOn\"",
                       WRITE_CONCERN_FAILED);
    expect_err(hf_acquire(client, hf_key_of("taken"), &brief, &none),
               HF_EINDOUBT);
    assert_null(none);
    expect_err(hf_renew(kept, 0), HF_EINDOUBT);
    expect_err(hf_update(kept, &old, hf_bytes_of("new")), HF_EINDOUBT);
    expect_err(hf_release(released), HF_EINDOUBT);
    assert_true(stop_failing() >= 4);

    assert_true(hf_lock_valid_for(kept, LONG_MS / 2));
    expect_held(other, "kept", hf_lock_token(kept), "new");
    expect_ok(hf_renew(kept, 0));
    expect_ok(hf_acquire(other, hf_key_of("taken"), &opts, &none));
    expect_ok(hf_acquire(other, hf_key_of("released"), &opts, &next));
    assert_true(hf_lock_token(next) > hf_lock_token(released));
    expect_ok(hf_release(kept));
    hf_lock_free(released);
    hf_lock_free(kept);
    hf_lock_free(none);
    hf_lock_free(next);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* MS-13: the connection breaks during a renewal, and the lease is long enough
 * for a few more attempts. Returns false if the lease expired nevertheless,
 * which may happen on a busy machine. */
static bool retry_failed_renewal(struct hf_client *client, uint32_t ttl_ms)
{
    struct hf_lock_opts opts = hf_test_opts(ttl_ms, TIMEOUT_MS, TIMEOUT_MS);
    atomic_uint events = 0;
    struct hf_lock *lock = NULL;
    bool kept;
    int64_t end;
    long before;

    opts.renew = true;
    opts.on_event = note_event;
    opts.arg = &events;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    before = stop_failing();
    end = hf_lock_deadline(lock);
    (void)fail_commands(0, COMMAND, "{\"times\":1}",
                        "\"closeConnection\":true");
    while (hf_lock_deadline(lock) <= end && hf_lock_valid_for(lock, 0))
        (void)poll(NULL, 0, 5);
    kept = hf_lock_valid_for(lock, 0);
    assert_true(stop_failing() == before + 1 || !kept);
    while (now_ms() <= end)
        (void)poll(NULL, 0, 20);
    kept = kept && hf_lock_valid_for(lock, 0);
    assert_true(!has_event(&events, HF_LOCK_EVENT_LOST) || !kept);
    kept = hf_release(lock) == HF_OK && kept;
    hf_lock_free(lock);
    return kept;
}

static void a_failed_renewal_is_retried(void **state)
{
    struct hf_client *client;
    uint32_t ttl_ms = 3000;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    while (!retry_failed_renewal(client, ttl_ms)) {
        ttl_ms *= 2;
        assert_true(ttl_ms < TIMEOUT_MS);
    }
    expect_ok(hf_close(client, TIMEOUT_MS));
}

/* MS-08: the document is deleted. The next renewal notices that, and ends the
 * validity at once, although the lease is long. */
static void a_deleted_document_is_a_lost_lock(void **state)
{
    const char *delete_command = "{\"delete\":\"locks\",\"deletes\":"
                                 "[{\"q\":{\"_id\":\"k\"},\"limit\":1}]}";
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, 0, TIMEOUT_MS);
    atomic_uint events = 0;
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    struct hf_error error;

    (void)state;
    opts.renew = true;
    opts.renew_ms = LONG_MS - 1000;
    opts.on_event = note_event;
    opts.arg = &events;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    assert_non_null(
        strstr(hf_test_mongo_command(&mongo, 0, "holdfast", delete_command),
               "\"n\" : 1"));
    while (!has_event(&events, HF_LOCK_EVENT_LOST))
        (void)poll(NULL, 0, 5);
    assert_false(hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    hf_lock_error(lock, &error);
    expect_err(error.code, HF_EEXPIRED);
    assert_non_null(strstr(error.text, "a renewal was refused"));
    expect_err(hf_renew(lock, 0), HF_EEXPIRED);

    /* A lost handle can acquire the lock again. */
    expect_ok(hf_lock_acquire(lock));
    assert_true(hf_lock_valid_for(lock, 0));
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
}

/* ---- Silent servers -----------------------------------------------------*/

/* Check that hf_process() returns while the server is silent, and that the call
 * ends at its deadline. */
static void process_while_silent(struct hf_client *client)
{
    struct hf_lock_opts brief = hf_test_opts(LONG_MS, 0, 500);
    struct pollfd fd = {.fd = hf_fd(client), .events = POLLIN};
    struct hf_lock *none = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_OK;
    int64_t began = now_ms();

    expect_ok(hf_acquire_start(client, hf_key_of("driven"), &brief, &none, NULL,
                               NULL, &future));
    while (!hf_future_done(future, &err)) {
        (void)poll(&fd, 1, 100);
        expect_ok(hf_process(client));
    }
    expect_err(err, HF_EINDOUBT);
    assert_null(none);
    assert_true(now_ms() - began >= 500);
    hf_future_free(future);
}

/* MM-10: a stopped server answers nothing. Calls end at their deadlines, and
 * after hf_release() the handle can be used again. */
static void a_silent_server_is_given_up_at_the_deadline(void **state)
{
    struct hf_lock_opts brief = hf_test_opts(LONG_MS, 0, 1000);
    struct hf_lock_opts opts = hf_test_opts(3000, TIMEOUT_MS, 500);
    struct hf_client *client, *driven;
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_info info;
    uint64_t token;
    int64_t began;
    enum hf_err err;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    driven = hf_test_mongo_open(&mongo, "");
    (void)poll(NULL, 0, 1500); /* until clients use the connection pool */
    expect_ok(hf_read(driven, hf_key_of("k"), HF_LINEARIZABLE, &info));
    hf_info_fini(&info);
    lock = acquire_with_retries(client, "k", &opts);
    token = hf_lock_token(lock);
    hf_test_mongo_signal(&mongo, 0, SIGSTOP);

    began = now_ms();
    expect_err(hf_acquire(client, hf_key_of("other"), &brief, &none),
               HF_EINDOUBT);
    assert_null(none);
    assert_true(now_ms() - began >= 1000);
    began = now_ms();
    err = hf_release(lock); /* a call that cannot connect is not in doubt */
    assert_true(err == HF_EINDOUBT || err == HF_EUNAVAIL);
    assert_true(now_ms() - began >= 500);
    assert_false(hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_lock_state(lock), HF_LOCK_IDLE);
    process_while_silent(driven);

    hf_test_mongo_signal(&mongo, 0, SIGCONT);
    do
        err = hf_lock_acquire(lock);
    while (err == HF_EINDOUBT || err == HF_EUNAVAIL); /* the timeout is short */
    expect_ok(err);
    assert_true(hf_lock_token(lock) > token);

    /* The claim in doubt is withdrawn long before its lease expires. */
    brief = hf_test_opts(LONG_MS, TIMEOUT_MS, TIMEOUT_MS);
    expect_ok(hf_acquire(client, hf_key_of("other"), &brief, &none));
    expect_ok(hf_release(none));
    hf_lock_free(lock);
    hf_lock_free(none);
    expect_ok(hf_close(client, TIMEOUT_MS));
    (void)hf_close(driven, TIMEOUT_MS);
}

struct closing {
    pthread_t thread;
    struct hf_client *client;
    uint32_t timeout_ms;
    enum hf_err err;
    int64_t ended;
};

static void *closer_main(void *arg)
{
    struct closing *closing = arg;

    closing->err = hf_close(closing->client, closing->timeout_ms);
    closing->ended = now_ms();
    return NULL;
}

/* Check that hf_close() ends validity when it is called, not when it
 * returns. */
static void close_while_silent(struct hf_client *client, struct hf_lock *lock)
{
    struct closing closing = {
        .client = client,
        .timeout_ms = 5000,
    };
    int64_t began = now_ms(), invalid;

    assert_true(hf_lock_valid_for(lock, LONG_MS / 2));
    assert_int_equal(
        pthread_create(&closing.thread, NULL, closer_main, &closing), 0);
    while (hf_lock_valid_for(lock, 0))
        (void)poll(NULL, 0, 1);
    invalid = now_ms();
    assert_int_equal(pthread_join(closing.thread, NULL), 0);
    expect_err(closing.err, HF_EINDOUBT);
    assert_true(invalid <= closing.ended);
    assert_true(closing.ended - began >= closing.timeout_ms);
}

/* MS-11, MS-12: renewals hang. The validity of one lock ends before its lease
 * expires, and that of the other when the client is closed. */
static void a_silent_server_ends_validity(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(6000, 0, 1000);
    struct hf_lock_opts long_opts = hf_test_opts(LONG_MS, 0, TIMEOUT_MS);
    atomic_uint events = 0;
    struct hf_client *client;
    struct hf_lock *lock = NULL, *lasting = NULL;
    int64_t stopped;

    (void)state;
    opts.renew = true;
    opts.on_event = note_event;
    opts.arg = &events;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("lasting"), &long_opts, &lasting));
    lock = acquire_with_retries(client, "k", &opts);
    hf_test_mongo_signal(&mongo, 0, SIGSTOP);
    stopped = now_ms();
    /* The last renewal was sent before the stop, and its lease is 6425 ms, a
     * little longer than the ttl. So validity has ended after 6.5 s. */
    while (now_ms() - stopped <= 6500)
        (void)poll(NULL, 0, 20);
    assert_false(hf_lock_valid_for(lock, 0));
    while (!has_event(&events, HF_LOCK_EVENT_LOST))
        (void)poll(NULL, 0, 5);
    assert_true(has_event(&events, HF_LOCK_EVENT_AT_RISK));
    close_while_silent(client, lasting);

    hf_test_mongo_signal(&mongo, 0, SIGCONT);
    hf_lock_free(lock);
    hf_lock_free(lasting);
}

/* ---- Late copies --------------------------------------------------------*/

/* The server delays the first copy of a LOCK for longer than the client waits
 * for the reply. Meanwhile the second copy is granted the key, which is then
 * released. The late copy is refused, so the next client gets the key, although
 * the lease is long. */
static void a_late_lock_after_its_release_is_refused(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, TIMEOUT_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL;
    long before;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "&socketTimeoutMS=1000");
    other = hf_test_mongo_open(&mongo, "");
    before = count_commands("findAndModify");
    (void)fail_commands(0, COMMAND, "{\"times\":1}",
                        "\"blockConnection\":true,\"blockTimeMS\":4000");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_release(lock));
    while (count_commands("findAndModify") <
           before + 3) /* LOCK, UNLOCK and the late LOCK */
        (void)poll(NULL, 0, 20);
    expect_ok(hf_acquire(other, hf_key_of("k"), &opts, &next));
    hf_lock_free(lock);
    hf_lock_free(next);
    expect_ok(hf_close(client, TIMEOUT_MS));
    expect_ok(hf_close(other, TIMEOUT_MS));
}

/* The server is silent until the client has given up the connection of the
 * first copy and sent a second copy. The first copy changes the value, and the
 * reply to the second copy reports that. */
static void an_update_in_doubt_is_applied_once(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(120000, 0, TIMEOUT_MS);
    struct hf_bytes old = hf_bytes_of("old");
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "&socketTimeoutMS=500");
    opts.value = old;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    hf_test_mongo_signal(&mongo, 0, SIGSTOP);
    expect_ok(
        hf_update_start(lock, &old, hf_bytes_of("new"), NULL, NULL, &future));
    expect_err(hf_future_wait(future, 1500, &err), HF_ETIMEDOUT);
    hf_test_mongo_signal(&mongo, 0, SIGCONT);
    expect_ok(hf_future_wait(future, TIMEOUT_MS, &err));
    expect_ok(err);
    expect_err(hf_update(lock, &old, hf_bytes_of("newer")), HF_EMISMATCH);
    hf_future_free(future);
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, TIMEOUT_MS));
}

/* An UNLOCK by a client that never held the lock is not in doubt, even if a
 * copy of it was lost. */
static void an_unlock_by_a_non_owner_is_never_in_doubt(void **state)
{
    static const uint8_t bogus[HF_NONCE_SIZE] = {"no such nonce"};
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, 0, TIMEOUT_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL, *forged = NULL;
    long before;

    (void)state;
    hf_test_mongo_require(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_lock_adopt(client, hf_key_of("k"), bogus, hf_lock_token(lock),
                            &opts, &forged));
    before = stop_failing();
    (void)fail_commands(0, FAST_UNLOCK, "{\"times\":1}",
                        "\"closeConnection\":true");
    expect_err(hf_release(forged), HF_ENOTOWNER);
    assert_int_equal(stop_failing(), before + 1);
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    hf_lock_free(forged);
    expect_ok(hf_close(client, TIMEOUT_MS));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(an_unconfirmed_command_is_executed_once),
        CASE(a_write_without_a_majority_is_in_doubt),
        CASE(a_failed_renewal_is_retried),
        CASE(a_deleted_document_is_a_lost_lock),
        CASE(a_silent_server_is_given_up_at_the_deadline),
        CASE(a_silent_server_ends_validity),
        CASE(a_late_lock_after_its_release_is_refused),
        CASE(an_update_in_doubt_is_applied_once),
        CASE(an_unlock_by_a_non_owner_is_never_in_doubt),
    };

    return hf_test_main("mongo in doubt", cases, HF_TEST_COUNT(cases), 4);
}
