/* What may have been done, or not: errors, silence and late copies, of one
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

#define PATIENCE_MS 60000
#define LONG_MS 600000 /* a lease that nobody here waits for */

/* What `lock` is told: a bit for each event. */
static void note_event(struct hf_lock *lock, enum hf_lock_event event,
                       void *arg)
{
    (void)lock;
    atomic_fetch_or((atomic_uint *)arg, 1u << event);
}

static bool is_told(atomic_uint *events, enum hf_lock_event event)
{
    return (atomic_load(events) & (1u << event)) != 0;
}

/* ---- Errors on cue ------------------------------------------------------*/

#define STEP "\"findAndModify\"" /* or, of a lock that was never in doubt: */
#define SHORT_UNLOCK "\"update\""

/* Not any more; and how many of them have, so far. */
static long heal_commands(void)
{
    return find_number(
        hf_test_mongo_say(
            &mongo, 0, "admin",
            "{\"configureFailPoint\":\"failCommand\",\"mode\":\"off\"}"),
        "\"count\" : ");
}

/* What was written is not confirmed by a majority. */
static void confirm_nothing(const char *commands, const char *mode, int code)
{
    char data[128];

    (void)snprintf(data, sizeof(data),
                   "\"writeConcernError\":{\"code\":%d,"
                   "\"errmsg\":\"no majority\"}",
                   code);
    (void)fail_commands(0, commands, mode, data);
}

#define UNCONFIRMED(command, code, call)                                       \
    do {                                                                       \
        long before = heal_commands();                                         \
                                                                               \
        confirm_nothing(command, "{\"times\":1}", code);                       \
        expect_ok(call);                                                       \
        assert_int_equal(heal_commands(), before + 1);                         \
    } while (0)

struct history {
    atomic_uint count;
    char kinds[64]; /* one letter an event */
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

/* A renewal may well happen twice, and is not looked at. */
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

/* Of each call the first copy is done, but not confirmed: the second finds that,
 * and does nothing. `code` is for taking and giving back alone, because after
 * some of them libmongoc looks for another server for a second or two. */
static void do_all_unconfirmed(struct hf_client *client,
                               struct hf_client *other, int code)
{
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, 0, PATIENCE_MS);
    struct hf_bytes old = hf_bytes_of("old");
    struct hf_lock *lock = NULL, *next = NULL;

    opts.value = old;
    UNCONFIRMED(STEP, code, hf_acquire(client, hf_key_of("k"), &opts, &lock));
    UNCONFIRMED(STEP, WRITE_CONCERN_FAILED, hf_renew(lock, 0));
    UNCONFIRMED(STEP, WRITE_CONCERN_FAILED,
                hf_update(lock, &old, hf_bytes_of("new")));
    UNCONFIRMED(STEP, WRITE_CONCERN_FAILED,
                hf_update(lock, NULL, hf_bytes_of("newer")));
    assert_true(hf_lock_valid_for(lock, LONG_MS / 2));
    expect_held(other, "k", hf_lock_token(lock), "newer");
    UNCONFIRMED(STEP, code, hf_release(lock));

    expect_ok(hf_acquire(other, hf_key_of("k"), &opts, &next));
    assert_true(hf_lock_token(next) > hf_lock_token(lock));
    UNCONFIRMED(SHORT_UNLOCK, code, hf_release(next));
    hf_lock_free(lock);
    hf_lock_free(next);
}

static void what_is_confirmed_late_happens_once(void **state)
{
    const char *wanted = "guurgrguurgr";
    struct history history = {.count = 0};
    struct hf_client *client, *other;
    struct hf_watch *watch;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    watch = watch_history(other, &history);
    do_all_unconfirmed(client, other, WRITE_CONCERN_FAILED);
    do_all_unconfirmed(client, other, SHUTDOWN_IN_PROGRESS);
    while (atomic_load(&history.count) < strlen(wanted))
        (void)poll(NULL, 0, 5);
    assert_string_equal(history.kinds, wanted);
    hf_watch_close(watch);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(other, PATIENCE_MS));
}

/* As long as no majority confirms it, whoever asks is told that it is in doubt:
 * not that it was done, and not that it was not. */
static void what_no_majority_confirms_is_in_doubt(void **state)
{
    struct hf_lock_opts brief = hf_test_opts(LONG_MS, 0, 500);
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, PATIENCE_MS, PATIENCE_MS);
    struct hf_bytes old = hf_bytes_of("old");
    struct hf_client *client, *other;
    struct hf_lock *given = NULL, *kept = NULL, *none = NULL, *next = NULL;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    other = hf_test_mongo_open(&mongo, "");
    brief.value = old;
    given = lock_at_last(client, "given", &brief);
    kept = lock_at_last(client, "kept", &brief);
    confirm_nothing(STEP "," SHORT_UNLOCK, "\"alwaysOn\"",
                    WRITE_CONCERN_FAILED);
    expect_err(hf_acquire(client, hf_key_of("taken"), &brief, &none),
               HF_EINDOUBT);
    assert_null(none);
    expect_err(hf_renew(kept, 0), HF_EINDOUBT);
    expect_err(hf_update(kept, &old, hf_bytes_of("new")), HF_EINDOUBT);
    expect_err(hf_release(given), HF_EINDOUBT);
    assert_true(heal_commands() >= 4);

    assert_true(hf_lock_valid_for(kept, LONG_MS / 2));
    expect_held(other, "kept", hf_lock_token(kept), "new");
    expect_ok(hf_renew(kept, 0));
    expect_ok(hf_acquire(other, hf_key_of("taken"), &opts, &none));
    expect_ok(hf_acquire(other, hf_key_of("given"), &opts, &next));
    assert_true(hf_lock_token(next) > hf_lock_token(given));
    expect_ok(hf_release(kept));
    hf_lock_free(given);
    hf_lock_free(kept);
    hf_lock_free(none);
    hf_lock_free(next);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(other, PATIENCE_MS));
}

/* MS-13: the connection breaks while a renewal is on its way; the lease lasts
 * for some more attempts. False if it did not, on a machine that is busy. */
static bool failed_renewal_is_made_again(struct hf_client *client,
                                         uint32_t ttl_ms)
{
    struct hf_lock_opts opts = hf_test_opts(ttl_ms, PATIENCE_MS, PATIENCE_MS);
    atomic_uint events = 0;
    struct hf_lock *lock = NULL;
    bool kept;
    int64_t end;
    long before;

    opts.renew = true;
    opts.on_event = note_event;
    opts.arg = &events;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    before = heal_commands();
    end = hf_lock_deadline(lock);
    (void)fail_commands(0, STEP, "{\"times\":1}", "\"closeConnection\":true");
    while (hf_lock_deadline(lock) <= end && hf_lock_valid_for(lock, 0))
        (void)poll(NULL, 0, 5);
    kept = hf_lock_valid_for(lock, 0);
    assert_true(heal_commands() == before + 1 || !kept);
    while (now_ms() <= end)
        (void)poll(NULL, 0, 20);
    kept = kept && hf_lock_valid_for(lock, 0);
    assert_true(!is_told(&events, HF_LOCK_EVENT_LOST) || !kept);
    kept = hf_release(lock) == HF_OK && kept;
    hf_lock_free(lock);
    return kept;
}

static void a_renewal_that_fails_is_made_again(void **state)
{
    struct hf_client *client;
    uint32_t ttl_ms = 3000;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    while (!failed_renewal_is_made_again(client, ttl_ms)) {
        ttl_ms *= 2;
        assert_true(ttl_ms < PATIENCE_MS);
    }
    expect_ok(hf_close(client, PATIENCE_MS));
}

/* MS-08: somebody deletes the document. The next renewal finds that, and the
 * rest of the lease, which is long, counts for nothing. */
static void a_document_that_is_deleted_is_a_lock_lost(void **state)
{
    const char *erase = "{\"delete\":\"locks\",\"deletes\":"
                        "[{\"q\":{\"_id\":\"k\"},\"limit\":1}]}";
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, 0, PATIENCE_MS);
    atomic_uint events = 0;
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    struct hf_error error;

    (void)state;
    opts.renew = true;
    opts.renew_ms = LONG_MS - 1000;
    opts.on_event = note_event;
    opts.arg = &events;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    assert_non_null(
        strstr(hf_test_mongo_say(&mongo, 0, "holdfast", erase), "\"n\" : 1"));
    while (!is_told(&events, HF_LOCK_EVENT_LOST))
        (void)poll(NULL, 0, 5);
    assert_false(hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_lock_state(lock), HF_LOCK_LOST);
    hf_lock_error(lock, &error);
    expect_err(error.code, HF_EEXPIRED);
    assert_non_null(strstr(error.text, "taken away"));
    expect_err(hf_renew(lock, 0), HF_EEXPIRED);

    /* What a lost handle claims anew is a lock as any other. */
    expect_ok(hf_lock_acquire(lock));
    assert_true(hf_lock_valid_for(lock, 0));
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, PATIENCE_MS));
}

/* ---- Silence ------------------------------------------------------------*/

/* Whatever the server does, hf_process() returns, and the answer comes while it
 * is silent. */
static void drive_in_silence(struct hf_client *client)
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

/* MM-10: a server that is stopped answers nothing. Whoever asks hears so by its
 * own deadline, and an unlock leaves its handle to be claimed again. */
static void silence_ends_by_the_deadline(void **state)
{
    struct hf_lock_opts brief = hf_test_opts(LONG_MS, 0, 1000);
    struct hf_lock_opts opts = hf_test_opts(3000, PATIENCE_MS, 500);
    struct hf_client *client, *driven;
    struct hf_lock *lock = NULL, *none = NULL;
    struct hf_info info;
    uint64_t token;
    int64_t began;
    enum hf_err err;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    driven = hf_test_mongo_open(&mongo, "");
    (void)poll(NULL, 0, 1500); /* then they use a pool's connections */
    expect_ok(hf_read(driven, hf_key_of("k"), HF_LINEARIZABLE, &info));
    hf_info_fini(&info);
    lock = lock_at_last(client, "k", &opts);
    token = hf_lock_token(lock);
    hf_test_mongo_signal(&mongo, 0, SIGSTOP);

    began = now_ms();
    expect_err(hf_acquire(client, hf_key_of("other"), &brief, &none),
               HF_EINDOUBT);
    assert_null(none);
    assert_true(now_ms() - began >= 1000);
    began = now_ms();
    err = hf_release(lock); /* over a connection that may have to be made */
    assert_true(err == HF_EINDOUBT || err == HF_EUNAVAIL);
    assert_true(now_ms() - began >= 500);
    assert_false(hf_lock_valid_for(lock, 0));
    assert_int_equal(hf_lock_state(lock), HF_LOCK_IDLE);
    drive_in_silence(driven);

    hf_test_mongo_signal(&mongo, 0, SIGCONT);
    do
        err = hf_lock_acquire(lock);
    while (err == HF_EINDOUBT || err == HF_EUNAVAIL); /* 500 ms are short */
    expect_ok(err);
    assert_true(hf_lock_token(lock) > token);

    /* What was in doubt is withdrawn, long before its lease would end. */
    brief = hf_test_opts(LONG_MS, PATIENCE_MS, PATIENCE_MS);
    expect_ok(hf_acquire(client, hf_key_of("other"), &brief, &none));
    expect_ok(hf_release(none));
    hf_lock_free(lock);
    hf_lock_free(none);
    expect_ok(hf_close(client, PATIENCE_MS));
    (void)hf_close(driven, PATIENCE_MS);
}

struct closing {
    pthread_t thread;
    struct hf_client *client;
    uint32_t timeout_ms;
    enum hf_err err;
    int64_t ended;
};

static void *run_close(void *arg)
{
    struct closing *closing = arg;

    closing->err = hf_close(closing->client, closing->timeout_ms);
    closing->ended = now_ms();
    return NULL;
}

/* Validity ends when the call begins, not when it ends. */
static void close_in_silence(struct hf_client *client, struct hf_lock *lock)
{
    struct closing closing = {
        .client = client,
        .timeout_ms = 5000,
    };
    int64_t began = now_ms(), invalid;

    assert_true(hf_lock_valid_for(lock, LONG_MS / 2));
    assert_int_equal(pthread_create(&closing.thread, NULL, run_close, &closing),
                     0);
    while (hf_lock_valid_for(lock, 0))
        (void)poll(NULL, 0, 1);
    invalid = now_ms();
    assert_int_equal(pthread_join(closing.thread, NULL), 0);
    expect_err(closing.err, HF_EINDOUBT);
    assert_true(invalid <= closing.ended);
    assert_true(closing.ended - began >= closing.timeout_ms);
}

/* MS-11, MS-12: renewals hang, and validity ends all the same: with the lease,
 * or with the client. */
static void silence_ends_validity(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(6000, 0, 1000);
    struct hf_lock_opts long_opts = hf_test_opts(LONG_MS, 0, PATIENCE_MS);
    atomic_uint events = 0;
    struct hf_client *client;
    struct hf_lock *lock = NULL, *lasting = NULL;
    int64_t stopped;

    (void)state;
    opts.renew = true;
    opts.on_event = note_event;
    opts.arg = &events;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("lasting"), &long_opts, &lasting));
    lock = lock_at_last(client, "k", &opts);
    hf_test_mongo_signal(&mongo, 0, SIGSTOP);
    stopped = now_ms();
    /* The last renewal was sent before, and its lease is a little longer. */
    while (now_ms() - stopped <= 6500)
        (void)poll(NULL, 0, 20);
    assert_false(hf_lock_valid_for(lock, 0));
    while (!is_told(&events, HF_LOCK_EVENT_LOST))
        (void)poll(NULL, 0, 5);
    assert_true(is_told(&events, HF_LOCK_EVENT_AT_RISK));
    close_in_silence(client, lasting);

    hf_test_mongo_signal(&mongo, 0, SIGCONT);
    hf_lock_free(lock);
    hf_lock_free(lasting);
}

/* ---- Late copies --------------------------------------------------------*/

/* The server keeps the first copy of a LOCK back for longer than its connection
 * lasts. The second one is granted meanwhile, and released: the late copy takes
 * nothing then, and the next client gets the key, though the lease was long. */
static void what_comes_late_leaves_no_ghost(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(600000, 0, PATIENCE_MS);
    struct hf_client *client, *other;
    struct hf_lock *lock = NULL, *next = NULL;
    long before;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "&socketTimeoutMS=1000");
    other = hf_test_mongo_open(&mongo, "");
    before = begun();
    (void)fail_commands(0, STEP, "{\"times\":1}",
                        "\"blockConnection\":true,\"blockTimeMS\":4000");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_release(lock));
    while (begun() < before + 3) /* LOCK, UNLOCK, and the late one */
        (void)poll(NULL, 0, 20);
    expect_ok(hf_acquire(other, hf_key_of("k"), &opts, &next));
    hf_lock_free(lock);
    hf_lock_free(next);
    expect_ok(hf_close(client, PATIENCE_MS));
    expect_ok(hf_close(other, PATIENCE_MS));
}

/* The server is silent until the connection of the first copy has been given up
 * and a second one is on its way: the first changes the value, and the answer
 * to the second says so. */
static void an_update_in_doubt_happens_once(void **state)
{
    struct hf_lock_opts opts = hf_test_opts(120000, 0, PATIENCE_MS);
    struct hf_bytes old = hf_bytes_of("old");
    struct hf_client *client;
    struct hf_lock *lock = NULL;
    struct hf_future *future = NULL;
    enum hf_err err = HF_ECANCELED;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "&socketTimeoutMS=500");
    opts.value = old;
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    hf_test_mongo_signal(&mongo, 0, SIGSTOP);
    expect_ok(
        hf_update_start(lock, &old, hf_bytes_of("new"), NULL, NULL, &future));
    expect_err(hf_future_wait(future, 1500, &err), HF_ETIMEDOUT);
    hf_test_mongo_signal(&mongo, 0, SIGCONT);
    expect_ok(hf_future_wait(future, PATIENCE_MS, &err));
    expect_ok(err);
    expect_err(hf_update(lock, &old, hf_bytes_of("newer")), HF_EMISMATCH);
    hf_future_free(future);
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    expect_ok(hf_close(client, PATIENCE_MS));
}

/* A copy that is late leaves no doubt where the grant is another's all along. */
static void who_never_held_hears_so(void **state)
{
    static const uint8_t bogus[HF_NONCE_SIZE] = {"no such nonce"};
    struct hf_lock_opts opts = hf_test_opts(LONG_MS, 0, PATIENCE_MS);
    struct hf_client *client;
    struct hf_lock *lock = NULL, *forged = NULL;
    long before;

    (void)state;
    hf_test_mongo_need(&mongo, 1);
    client = hf_test_mongo_open(&mongo, "");
    expect_ok(hf_acquire(client, hf_key_of("k"), &opts, &lock));
    expect_ok(hf_lock_adopt(client, hf_key_of("k"), bogus, hf_lock_token(lock),
                            &opts, &forged));
    before = heal_commands();
    (void)fail_commands(0, SHORT_UNLOCK, "{\"times\":1}",
                        "\"closeConnection\":true");
    expect_err(hf_release(forged), HF_ENOTOWNER);
    assert_int_equal(heal_commands(), before + 1);
    expect_ok(hf_release(lock));
    hf_lock_free(lock);
    hf_lock_free(forged);
    expect_ok(hf_close(client, PATIENCE_MS));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(what_is_confirmed_late_happens_once),
        CASE(what_no_majority_confirms_is_in_doubt),
        CASE(a_renewal_that_fails_is_made_again),
        CASE(a_document_that_is_deleted_is_a_lock_lost),
        CASE(silence_ends_by_the_deadline),
        CASE(silence_ends_validity),
        CASE(what_comes_late_leaves_no_ghost),
        CASE(an_update_in_doubt_happens_once),
        CASE(who_never_held_hears_so),
    };

    return hf_test_main("mongo doubt", cases, HF_TEST_COUNT(cases), 4);
}
