/* app_intruder.c - calls of simulated applications on locks that are not
 * theirs: with a wrong nonce, with an old token, or on a lock that was
 * released. None of them may succeed. That they change nothing shows in the
 * history of the holder, whose lock does not end early, and in the values that
 * are read. */
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "lib/runner.h"
#include "sim/apps.h"

/* One call that has not returned. */
struct intrusion {
    struct app *app;
    unsigned life; /* app->lives when it started */
};

static void end_forged(struct app *app)
{
    struct hf_lock *lock = app->forged;

    app->forged = NULL;
    hf_lock_free(lock);
}

static void on_intrusion_done(enum hf_err err, void *arg)
{
    struct intrusion *call = arg;
    struct app *app = call->app;
    bool is_refused = err == HF_ENOTOWNER || err == HF_ENOTHELD;

    if (!is_refused && err != HF_EINDOUBT && err != HF_EUNAVAIL &&
        err != HF_ECLOSED && err != HF_ECANCELED && err != HF_ELIMIT)
        fail_msg("application %u has used a lock that is not its own: %s",
                 app->number, hf_err_name(err));
    app->open_calls--;
    app->all->intrusions += is_refused;
    if (call->life == app->lives && !app->is_closing)
        end_forged(app);
    free(call);
}

/* Start to release, renew or update the lock. */
static void start_intrusion(struct app *app)
{
    struct intrusion *call = malloc(sizeof(*call));
    enum hf_err err;

    assert_non_null(call);
    *call = (struct intrusion){app, app->lives};
    app->open_calls++;
    switch (app_below(app, 3)) {
    case 0:
        err = hf_release_start(app->forged, on_intrusion_done, call, NULL);
        break;
    case 1:
        err = hf_renew_start(app->forged, 0, on_intrusion_done, call, NULL);
        break;
    default:
        err = hf_update_start(app->forged, NULL, hf_bytes_of(APP_FORGED),
                              on_intrusion_done, call, NULL);
    }
    assert_int_equal(err, HF_OK);
}

/* Forge the grant of an application that holds a lock. Returns false if there
 * is none. */
static bool forge_grant(struct app *app, struct app_grant *grant)
{
    const struct apps *apps = app->all;
    unsigned first = app_below(app, apps->count);
    unsigned byte = app_below(app, HF_NONCE_SIZE);
    bool has_old_token = app_below(app, 2) == 0;

    for (unsigned i = 0; i < apps->count; i++) {
        const struct app *other = &apps->list[(first + i) % apps->count];

        if (!other->is_held || other->token < 2)
            continue;
        grant->key = other->key;
        grant->token = other->token - has_old_token;
        if (!hf_hex_decode(grant->nonce, HF_NONCE_SIZE, other->nonce))
            fail_msg("the nonce of application %u", other->number);
        if (!has_old_token)
            grant->nonce[byte] ^= 1;
        return true;
    }
    return false;
}

void app_intrude(struct app *app)
{
    struct app_grant grant = app->all->released;
    bool is_old = app_below(app, 3) == 0;
    struct hf_lock_opts opts;

    if (app->forged || (is_old && grant.token == 0) ||
        (!is_old && !forge_grant(app, &grant)))
        return;
    hf_lock_opts_init(&opts);
    opts.timeout_ms = 300 + app_below(app, 4000);
    assert_int_equal(hf_lock_adopt(app->client, hf_key_of(app_keys[grant.key]),
                                   grant.nonce, grant.token, &opts,
                                   &app->forged),
                     HF_OK);
    start_intrusion(app);
}
