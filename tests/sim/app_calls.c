/* app_calls.c - the calls of simulated applications, recorded for hf-check. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "client/drift.h"
#include "lib/runner.h"
#include "sim/app_history.h"
#include "sim/apps.h"

/* One call that has not returned. */
struct app_call {
    struct app *app;
    unsigned life; /* app->lives when it started */
    enum hf_op_kind kind;
    size_t op;
    unsigned key;
    uint64_t token;
    char nonce[2 * HF_NONCE_SIZE + 1];
    struct hf_info info;
    enum hf_consistency how; /* of a read */
    uint64_t link;           /* over which a read was sent */
    struct hf_lock *lock;    /* the handle of the call, for comparison only */
};

static struct hf_key key_of(unsigned key)
{
    return hf_key_of(app_keys[key]);
}

/* ---- Recording ----------------------------------------------------------*/

static struct app_call *new_call(struct app *app, enum hf_op_kind kind,
                                 unsigned key)
{
    struct app_call *call = calloc(1, sizeof(*call));

    assert_non_null(call);
    call->app = app;
    call->life = app->lives;
    call->kind = kind;
    call->key = key;
    call->lock = app->lock;
    app->open_calls++;
    return call;
}

static struct app_call *begin_call(struct app *app, enum hf_op_kind kind,
                                   unsigned key)
{
    struct app_call *call = new_call(app, kind, key);
    bool has_claim = kind != HF_OP_LOCK && kind != HF_OP_READ;

    if (has_claim) {
        call->token = app->token;
        memcpy(call->nonce, app->nonce, sizeof(call->nonce));
    }
    call->op = hf_recorder_begin(&app->all->recorder,
                                 &(struct hf_recorder_call){
                                     .kind = kind,
                                     .client = app->recorded_as,
                                     .key = app_keys[key],
                                     .key_len = strlen(app_keys[key]),
                                     .nonce = has_claim ? call->nonce : NULL,
                                     .token = call->token,
                                     .now = apps_history_now(app->all),
                                 });
    return call;
}

/* Convert an error code to a result for the history. A call that was given up
 * has the result HF_OP_UNKNOWN, because the cluster may have executed it. */
static enum hf_op_result result_of(enum hf_op_kind kind, enum hf_err err)
{
    switch (err) {
    case HF_OK:
        return HF_OP_OK;
    case HF_ETIMEDOUT:
    case HF_EINDOUBT:
    case HF_ECANCELED:
    case HF_ECLOSED:
        return HF_OP_UNKNOWN;
    case HF_EEXPIRED:
        /* A renewal may have been in time at the server, although its reply was
         * too late for the client. */
        return kind == HF_OP_UNLOCK ? HF_OP_FAIL : HF_OP_UNKNOWN;
    default:
        return HF_OP_FAIL;
    }
}

/* Record the end of a call. `deadline` is when the validity of a granted or
 * renewed lock ends, by the application's clock. Returns false if the
 * application has died since. */
static bool end_call(struct app_call *call, enum hf_err err, hf_time deadline)
{
    struct app *app = call->app;
    enum hf_op_result result = result_of(call->kind, err);
    bool timed = call->kind == HF_OP_LOCK || call->kind == HF_OP_RENEW;
    bool grants = result == HF_OP_OK && call->kind != HF_OP_UNLOCK;

    app->open_calls--;
    app->all->failed += err != HF_OK;
    if (call->life != app->lives || app->is_closing)
        return false;
    if (grants && timed && deadline <= app_now(app)) {
        result = HF_OP_UNKNOWN;
        grants = false;
    }
    hf_recorder_end(&app->all->recorder, call->op,
                    &(struct hf_recorder_answer){
                        .result = result,
                        .error = result == HF_OP_FAIL ? hf_err_name(err) : NULL,
                        .nonce = call->nonce[0] ? call->nonce : NULL,
                        .token = grants ? call->token : 0,
                        .deadline = grants && timed
                                        ? apps_history_instant(app, deadline)
                                        : 0,
                        .now = apps_history_now(app->all),
                    });
    return true;
}

static void expect_result(const struct app_call *call, enum hf_err err,
                          const char *what, const enum hf_err *expected,
                          size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (err == expected[i])
            return;
    }
    fail_msg("%s of application %u returned %s", what, call->app->number,
             hf_err_name(err));
}

#define EXPECT(call, err, what, ...)                                           \
    do {                                                                       \
        const enum hf_err expected_[] = {HF_OK, HF_EINDOUBT, HF_EUNAVAIL,      \
                                         HF_ECLOSED, __VA_ARGS__};             \
        expect_result(call, err, what, expected_, HF_TEST_COUNT(expected_));   \
    } while (0)

/* ---- Values -------------------------------------------------------------*/

#define VALUE_SIZE 2000

/* Format value number `count`. Each UPDATE sets the next one. Some values are
 * long: their records have several sectors, and a crash may lose some of
 * them. */
static struct hf_bytes format_value(char text[VALUE_SIZE], unsigned count)
{
    size_t size = count % 4 == 0 ? 0 : 400 + count * 331 % 1500;

    if (count == 0)
        return (struct hf_bytes){0};
    memset(text, '.', VALUE_SIZE);
    (void)snprintf(text, VALUE_SIZE, "%u", count);
    return (struct hf_bytes){text, size > 0 ? size : strlen(text)};
}

/* ---- Dropping -----------------------------------------------------------*/

/* The release in the background has no result that the application sees. */
static void record_background_release(struct app *app)
{
    if (!app->is_held || app->is_releasing)
        return;
    free(begin_call(app, HF_OP_UNLOCK, app->key));
    app->open_calls--;
}

void app_drop(struct app *app)
{
    struct hf_lock *lock = app->lock;

    record_background_release(app);
    app->lock = NULL;
    app->is_claiming = app->is_held = app->is_releasing = false;
    hf_lock_free(lock);
}

/* ---- Claims -------------------------------------------------------------*/

/* Returns true if a lock may have been broken since the application made its
 * claim. */
static bool may_be_broken(const struct app *app)
{
    const struct apps *apps = app->all;

    return apps->open_forces > 0 ||
           apps->forced_at >= app_global(app, app->claimed_at);
}

/* While a claim waits, it may be granted and expire without the application's
 * knowledge, once for each lease that fits into the wait; and once more if it
 * is broken before it was confirmed. Record that these grants are possible. */
static void record_missed_grants(struct app *app)
{
    hf_time waited = app_now(app) - app->claimed_at;

    for (hf_time i = waited / app->ttl_ms + may_be_broken(app); i > 0; i--)
        (void)hf_recorder_begin(
            &app->all->recorder,
            &(struct hf_recorder_call){
                .kind = HF_OP_LOCK,
                .client = app->recorded_as,
                .key = app_keys[app->key],
                .key_len = strlen(app_keys[app->key]),
                .now = apps_history_instant(app, app->claimed_at),
            });
}

/* The position is 0 if the event is outdated. */
static void record_queued(struct app *app)
{
    if (hf_lock_position(app->lock) == 0)
        return;
    hf_lock_nonce(app->lock, app->queued_nonce);
    hf_recorder_queued(&app->all->recorder, app->lock_op,
                       apps_history_now(app->all));
    app->all->queued++;
}

/* If a waiter misses its grant, or its session ends, the client enters the
 * queue again, at its end and with a new nonce. The event is not repeated, so
 * it is unknown when that happened. */
static void forget_lost_position(struct app *app, const uint8_t *nonce,
                                 bool is_granted)
{
    if (memcmp(app->queued_nonce, nonce, HF_NONCE_SIZE) != 0)
        hf_recorder_queued(&app->all->recorder, app->lock_op, HF_OP_NEVER);
    else
        app->all->in_order += is_granted;
}

static void on_claim_done(enum hf_err err, void *arg)
{
    struct app_call *call = arg;
    struct app *app = call->app;
    bool is_mine = app->lock && app->lock == call->lock &&
                   call->life == app->lives && !app->is_closing;
    hf_time deadline = 0;
    uint8_t nonce[HF_NONCE_SIZE];

    EXPECT(call, err, "a claim", HF_EBUSY, HF_ETIMEDOUT, HF_ECANCELED,
           HF_ELIMIT);
    if (is_mine) {
        hf_lock_nonce(app->lock, nonce);
        hf_hex_encode(call->nonce, nonce, sizeof(nonce));
        deadline = hf_lock_deadline(app->lock);
        call->token = err ? 0 : hf_lock_token(app->lock);
        record_missed_grants(app);
        if (err && err != HF_EINDOUBT && err != HF_ECANCELED &&
            err != HF_ECLOSED)
            apps_end_claim(app->all, app->key, nonce);
        forget_lost_position(app, nonce, !err);
    }
    (void)end_call(call, is_mine || err ? err : HF_ECANCELED, deadline);
    if (is_mine) {
        app->is_claiming = false;
        app->is_held = !err && deadline > app_now(app);
        app->token = call->token;
        app->deadline = deadline;
        app->knows_value = !err;
        app->value = app->first_value;
        memcpy(app->nonce, call->nonce, sizeof(app->nonce));
        app->all->grants += !err;
        if (!app->is_held)
            app_drop(app);
    }
    free(call);
}

static void on_lock_event(struct hf_lock *lock, enum hf_lock_event event,
                          void *arg)
{
    struct app *app = arg;

    if (lock != app->lock)
        fail_msg("an event of a handle that was freed");
    if (event == HF_LOCK_EVENT_WAITING && app->is_claiming) {
        record_queued(app);
    } else if (event == HF_LOCK_EVENT_LOST) {
        if (hf_lock_valid_for(lock, 0))
            fail_msg("LOST, and still valid");
        hf_recorder_lost(&app->all->recorder, app->recorded_as,
                         app_keys[app->key], strlen(app_keys[app->key]),
                         hf_lock_token(lock), apps_history_now(app->all));
    }
}

void app_claim(struct app *app)
{
    struct hf_lock_opts opts;
    struct app_call *call;
    char text[VALUE_SIZE];

    hf_lock_opts_init(&opts);
    app->key = app_below(app, app->all->key_count);
    app->ttl_ms = opts.ttl_ms = 300 + app_below(app, APP_TTL_MAX_MS - 300);
    /* A call that is open for longer than a session is kept may have to find
     * out what its command did in a session that has ended. */
    opts.timeout_ms =
        app_below(app, 3) == 0 ? 20000 : 300 + app_below(app, 4000);
    opts.wait_ms = app_below(app, 4) == 0 ? 0 : app_below(app, 6000);
    app->is_idle = app_below(app, 4) == 0;
    /* The longer a lease is, the more the rates of the clocks matter. */
    if (app->is_idle && app_below(app, 2) == 0)
        app->ttl_ms = opts.ttl_ms = 10000;
    if (!app->is_idle && app_below(app, 6) == 0) {
        app->ttl_ms = opts.ttl_ms = APP_LONG_TTL_MS;
        opts.timeout_ms = 20000;
    }
    opts.renew = app_below(app, 2) == 0 && !app->is_idle;
    app->first_value = app_below(app, 8);
    opts.value = format_value(text, app->first_value);
    opts.on_event = on_lock_event;
    opts.arg = app;
    opts.idle = true;
    assert_int_equal(
        hf_lock_new(app->client, key_of(app->key), &opts, &app->lock), HF_OK);
    call = begin_call(app, HF_OP_LOCK, app->key);
    app->lock_op = call->op;
    app->claimed_at = app_now(app);
    app->is_claiming = true;
    assert_int_equal(
        hf_lock_acquire_start(app->lock, on_claim_done, call, NULL), HF_OK);
}

/* ---- Calls on a handle --------------------------------------------------*/

static void remember_released(const struct app_call *call)
{
    struct app_grant *released = &call->app->all->released;

    released->key = call->key;
    released->token = call->token;
    assert_true(hf_hex_decode(released->nonce, HF_NONCE_SIZE, call->nonce));
}

static void on_release_done(enum hf_err err, void *arg)
{
    struct app_call *call = arg;
    struct app *app = call->app;
    uint8_t nonce[HF_NONCE_SIZE];

    EXPECT(call, err, "a release", HF_EEXPIRED);
    if (!err)
        remember_released(call);
    if (!err || err == HF_EEXPIRED) {
        assert_true(hf_hex_decode(nonce, sizeof(nonce), call->nonce));
        apps_end_claim(app->all, call->key, nonce);
    }
    if (end_call(call, err, 0) && app->lock == call->lock && app->lock)
        app_drop(app);
    free(call);
}

void app_release(struct app *app)
{
    struct app_call *call = begin_call(app, HF_OP_UNLOCK, app->key);

    app->is_releasing = true;
    assert_int_equal(hf_release_start(app->lock, on_release_done, call, NULL),
                     HF_OK);
}

static bool still_holds(const struct app_call *call)
{
    const struct app *app = call->app;

    return app->lock && app->lock == call->lock && app->is_held &&
           call->life == app->lives && app->token == call->token;
}

static void on_renew_done(enum hf_err err, void *arg)
{
    struct app_call *call = arg;
    struct app *app = call->app;
    hf_time deadline = still_holds(call) ? hf_lock_deadline(app->lock) : 0;

    EXPECT(call, err, "a renewal", HF_EEXPIRED, HF_ECANCELED, HF_EFORCED);
    app->all->renewals += !err;
    (void)end_call(call, err, deadline);
    if (still_holds(call) && !err && deadline > app->deadline)
        app->deadline = deadline;
    free(call);
}

void app_renew(struct app *app)
{
    struct app_call *call = begin_call(app, HF_OP_RENEW, app->key);

    if (hf_renew_start(app->lock, 0, on_renew_done, call, NULL) == HF_OK)
        return;
    (void)end_call(call, HF_ECANCELED, 0);
    free(call);
}

/* If the cluster executed an UPDATE twice, the second execution would not find
 * the expected value and would return HF_EMISMATCH, which is not expected. */
static void on_update_done(enum hf_err err, void *arg)
{
    struct app_call *call = arg;
    struct app *app = call->app;

    EXPECT(call, err, "an update", HF_EEXPIRED, HF_ECANCELED, HF_ELIMIT);
    app->all->updates += !err;
    if (still_holds(call)) {
        app->is_updating = false;
        app->knows_value = err == HF_OK || err == HF_EUNAVAIL;
        app->value += err == HF_OK;
    }
    (void)end_call(call, err, 0);
    free(call);
}

void app_update(struct app *app)
{
    struct app_call *call;
    char text[VALUE_SIZE], expected_text[VALUE_SIZE];
    struct hf_bytes expected = format_value(expected_text, app->value);
    struct hf_bytes value = format_value(text, app->value + 1);

    if (app->is_updating || !app->knows_value)
        return;
    call = begin_call(app, HF_OP_UPDATE, app->key);
    if (hf_update_start(app->lock, &expected, value, on_update_done, call,
                        NULL) == HF_OK) {
        app->is_updating = true;
        return;
    }
    (void)end_call(call, HF_ECANCELED, 0);
    free(call);
}

/* ---- Other calls --------------------------------------------------------*/

static void check_value(const struct hf_info *info)
{
    if (info->value.size == strlen(APP_FORGED) &&
        memcmp(info->value.data, APP_FORGED, info->value.size) == 0)
        fail_msg("a lock has a value that its holder has not set");
}

static bool is_recorded(const struct app_call *call)
{
    return call->how == HF_LINEARIZABLE;
}

static void take_info(struct app_call *call)
{
    struct app *app = call->app;

    call->token = call->info.token;
    check_value(&call->info);
    if (call->life == app->lives && !app->is_closing)
        app_check_read(app, call->link, &call->info);
    hf_info_fini(&call->info);
}

/* The lock is broken: its holder keeps at most what a renewal before now has
 * given it. The lease is a little longer than the ttl. */
static void on_force_done(enum hf_err err, void *arg)
{
    struct app_call *call = arg;
    struct apps *apps = call->app->all;

    EXPECT(call, err, "a force", HF_ENOTHELD, HF_ENOTOWNER, HF_ECANCELED);
    call->app->open_calls--;
    apps->open_forces--;
    apps->forced_at = apps->nodes->schedule.now;
    for (unsigned i = 0; !err && i < apps->count; i++) {
        struct app *app = &apps->list[i];

        if (!app->lock || app->token != call->token)
            continue;
        apps->forced++;
        app->forced_token = app->token;
        app->forced_until =
            app_now(app) + (hf_time)hf_drift_lease_ms(app->ttl_ms);
    }
    free(call);
}

static void force_lock(struct app *app, unsigned key, uint64_t token)
{
    struct app_call *call = calloc(1, sizeof(*call));

    assert_non_null(call);
    call->app = app;
    call->life = app->lives;
    call->token = token;
    app->open_calls++;
    app->all->open_forces++;
    assert_int_equal(hf_force_start(app->client, key_of(key), token, false,
                                    on_force_done, call, NULL),
                     HF_OK);
}

static void on_read_done(enum hf_err err, void *arg)
{
    struct app_call *call = arg;
    struct app *app = call->app;
    bool held = !err && call->info.held;
    bool breaks = false;

    EXPECT(call, err, "a read", HF_ETIMEDOUT, HF_ECANCELED);
    app->all->reads += !err;
    app->all->local_reads += !err && !is_recorded(call);
    if (!err)
        take_info(call);
    if (is_recorded(call))
        breaks = end_call(call, err, 0) && held && !app->all->is_ending &&
                 app_below(app, 10) == 0;
    else
        app->open_calls--;
    if (breaks)
        force_lock(app, call->key, call->token);
    free(call);
}

/* The history has no local reads, which may be old. */
void app_read(struct app *app)
{
    unsigned key = app_below(app, app->all->key_count);
    bool is_local = app_below(app, 3) == 0;
    struct app_call *call = is_local ? new_call(app, HF_OP_READ, key)
                                     : begin_call(app, HF_OP_READ, key);

    call->how = is_local ? HF_LOCAL : HF_LINEARIZABLE;
    call->link = app_link_of(app);
    assert_int_equal(hf_read_start(app->client, key_of(key), call->how,
                                   &call->info, on_read_done, call, NULL),
                     HF_OK);
}

/* Write to the resource of the key, whether or not the lock is still valid: an
 * application may have checked it long ago. The resource compares tokens. */
void app_write(struct app *app)
{
    uint64_t *highest = &app->all->highest[app->key];
    bool accepts = app->token >= *highest;
    size_t op = hf_recorder_begin(&app->all->recorder,
                                  &(struct hf_recorder_call){
                                      .kind = HF_OP_WRITE,
                                      .client = app->recorded_as,
                                      .key = app_keys[app->key],
                                      .key_len = strlen(app_keys[app->key]),
                                      .nonce = app->nonce,
                                      .token = app->token,
                                      .cell = app_keys[app->key],
                                      .value = app->all->writes + 1,
                                      .now = apps_history_now(app->all),
                                  });

    app->all->writes += accepts;
    app->all->refused += !accepts;
    if (accepts)
        *highest = app->token;
    hf_recorder_end(&app->all->recorder, op,
                    &(struct hf_recorder_answer){
                        .result = accepts ? HF_OP_OK : HF_OP_FAIL,
                        .error = accepts ? NULL : "HF_EFENCED",
                        .nonce = app->nonce,
                        .token = app->token,
                        .now = apps_history_now(app->all),
                    });
}

void app_watch(struct app *app)
{
    struct hf_watch_opts opts;

    hf_watch_opts_init(&opts);
    app->next_event = 0;
    assert_int_equal(hf_watch_open_start(app->client, hf_key_of(""), &opts,
                                         app_on_event, app, &app->watch, NULL,
                                         NULL, NULL),
                     HF_OK);
}
