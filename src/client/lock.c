#include "client/lock.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "client/client.h"
#include "client/keeper.h"
#include "client/options.h"
#include "client/validity.h"
#include "client/withdrawal.h"

#define LOOK_AGAIN_MS 1000 /* a lost push costs at most about this */
#define LOOK_AGAIN_MIN_MS 20
#define WITHDRAW_MS 1000 /* how long a withdrawal is awaited */

static void settled(struct hf_call *call);
static void on_timer(struct hf_timer *timer);
static void release(struct hf_lock *lock);

/* ---- States -------------------------------------------------------------*/

#define MOVE(state) (1u << HF_LOCK_##state)

static const unsigned moves[] = {
    [HF_LOCK_IDLE] = MOVE(CLAIMING) | MOVE(HELD), /* HELD: adopted */
    [HF_LOCK_CLAIMING] = MOVE(HELD) | MOVE(IDLE),
    [HF_LOCK_HELD] = MOVE(RELEASING) | MOVE(LOST) | MOVE(IDLE),
    [HF_LOCK_LOST] = MOVE(RELEASING) | MOVE(CLAIMING) | MOVE(IDLE),
    [HF_LOCK_RELEASING] = MOVE(IDLE),
};

static void move(struct hf_lock *lock, enum hf_lock_state state)
{
    HF_ASSERT(moves[lock->state] & (1u << state));
    lock->state = state;
    lock->phase = HF_CLAIM_NONE;
}

static void set_valid_until(struct hf_lock *lock, hf_time end)
{
    atomic_store_explicit(&lock->valid_until, end, memory_order_release);
}

static hf_time valid_until(const struct hf_lock *lock)
{
    return atomic_load_explicit(&lock->valid_until, memory_order_acquire);
}

static void set_timer(struct hf_lock *lock, hf_time at)
{
    hf_timer_set(&lock->client->host, &lock->timer, at);
}

void hf_lock_set_failure(struct hf_lock *lock, enum hf_err err,
                         const char *text)
{
    free(lock->failure_text);
    lock->failure = err;
    lock->failure_text = text ? strdup(text) : NULL;
}

/* ---- Telling ------------------------------------------------------------*/

void hf_lock_tell(struct hf_lock *lock, enum hf_lock_event event)
{
    if (lock->told & (1u << event))
        return;
    lock->told |= 1u << event; /* also where nobody listens */
    if (lock->freed || !lock->on_event)
        return;
    /* Once it is lost, nothing else matters. */
    if (event == HF_LOCK_EVENT_LOST)
        lock->to_tell = 0;
    lock->to_tell |= 1u << event;
    hf_loop_callback(lock->client, &lock->callback,
                     event == HF_LOCK_EVENT_LOST && !HF_MUTANT(43));
}

static void run_event(struct hf_callback *callback)
{
    struct hf_lock *lock = HF_CONTAINER(callback, struct hf_lock, callback);
    struct hf_client *client = lock->client;
    hf_lock_event_fn *on_event = lock->on_event;
    enum hf_lock_event event = HF_LOCK_EVENT_WAITING;
    void *arg = lock->arg;

    if (lock->to_tell == 0)
        return;
    while (!(lock->to_tell & (1u << event)))
        event++;
    lock->to_tell &= ~(1u << event);
    if (lock->to_tell)
        hf_loop_callback(client, callback, false);
    hf_lock_ref(lock);
    pthread_mutex_unlock(&client->mutex);
    on_event(lock, event, arg);
    pthread_mutex_lock(&client->mutex);
    hf_lock_unref(lock);
}

/* ---- The handle ---------------------------------------------------------*/

/* Whether there is something to do or to tell while it is held. */
static bool is_kept(const struct hf_lock *lock)
{
    return lock->renewal || lock->on_event;
}

void hf_lock_ref(struct hf_lock *lock)
{
    lock->references++;
}

static void destroy(struct hf_lock *lock)
{
    struct hf_client *client = lock->client;

    client->kept -= is_kept(lock);
    hf_keeper_fini(lock);
    hf_call_fini(&lock->call);
    client->host.ops->timer_remove(&client->host, &lock->timer);
    hf_list_remove(&lock->callback.link);
    hf_list_remove(&lock->link);
    free(lock->failure_text);
    explicit_bzero(&lock->nonce, sizeof(lock->nonce));
    free(lock);
    hf_client_unref(client);
}

void hf_lock_unref(struct hf_lock *lock)
{
    if (--lock->references == 0)
        destroy(lock);
}

static void copy_options(struct hf_lock *lock, const struct hf_lock_opts *opts)
{
    uint8_t *value = lock->bytes + lock->key_size;
    uint8_t *note = value + opts->value.size;

    lock->ttl_ms = opts->ttl_ms;
    lock->wait_ms = opts->wait_ms;
    lock->timeout_ms = opts->timeout_ms;
    lock->renew_ms = opts->renew_ms;
    lock->renew = opts->renew;
    lock->on_event = opts->on_event;
    lock->arg = opts->arg;
    hf_copy(value, opts->value.data, opts->value.size);
    lock->value = (struct hf_bytes){value, opts->value.size};
    lock->note = (struct hf_bytes){note, opts->note ? strlen(opts->note) : 0};
    hf_copy(note, opts->note, lock->note.size);
}

/* An idle handle, with one reference. */
static enum hf_err create(struct hf_client *client, struct hf_key key,
                          const struct hf_lock_opts *opts,
                          struct hf_lock **made)
{
    size_t note_size = opts->note ? strlen(opts->note) : 0;
    /* malloc: glibc's calloc passes its thread cache by, and is slower. */
    struct hf_lock *lock =
        malloc(sizeof(*lock) + key.size + opts->value.size + note_size);
    enum hf_err err;

    if (!lock)
        return HF_ENOMEM;
    *lock = (struct hf_lock){
        .client = client,
        .references = 1,
        .timer.fire = on_timer,
        .callback.run = run_event,
        .key_size = key.size,
    };
    hf_copy(lock->bytes, key.data, key.size);
    copy_options(lock, opts);
    hf_list_init(&lock->claim_waiters);
    err = hf_call_init(&lock->call, client, settled);
    if (err)
        goto fail;
    err = client->host.ops->timer_add(&client->host, &lock->timer);
    if (err)
        goto fail_call;
    err = hf_keeper_init(lock);
    if (err)
        goto fail_timer;
    hf_list_push_back(&client->locks, &lock->link);
    hf_client_ref(client);
    client->kept += is_kept(lock);
    *made = lock;
    return HF_OK;

fail_timer:
    client->host.ops->timer_remove(&client->host, &lock->timer);
fail_call:
    hf_call_fini(&lock->call);
fail:
    free(lock);
    return err;
}

void hf_lock_command(struct hf_lock *lock, struct hf_call *call,
                     enum hf_command_kind kind)
{
    call->request.kind = HF_REQUEST_COMMAND;
    call->request.command = (struct hf_command){
        .kind = kind,
        .key = hf_lock_bytes(lock),
        .nonce = lock->nonce,
        .token = atomic_load_explicit(&lock->token, memory_order_relaxed),
    };
}

/* ---- How a claim ends ---------------------------------------------------*/

static void leave_map(struct hf_lock *lock)
{
    if (lock->in_map)
        hf_map_remove(&lock->client->waiting, &lock->by_nonce);
    lock->in_map = false;
}

/* Tell everyone who waits for the end of this claim. */
static void claim_ended(struct hf_lock *lock, enum hf_err err, const char *text)
{
    struct hf_claimant *claimant = lock->claimant;
    struct hf_future *releasing = lock->releasing;
    struct hf_list *link;

    hf_lock_ref(lock); /* the claimant may hold the last but this */
    lock->claimed = err;
    lock->claimant = NULL;
    if (err)
        hf_lock_set_failure(lock, err, text);
    while ((link = hf_list_take(&lock->claim_waiters)))
        hf_loop_release(HF_CONTAINER(link, struct hf_blocked, waiter));
    if (claimant) {
        if (claimant->out && !err)
            *claimant->out = lock;
        hf_future_answer(&claimant->future, err, text);
    }
    if (releasing && !err) {
        release(lock);
    } else if (releasing) {
        lock->releasing = NULL;
        hf_future_answer(releasing, err, text);
    }
    hf_lock_unref(lock);
}

static void refuse(struct hf_lock *lock, enum hf_err err, const char *text)
{
    leave_map(lock);
    set_timer(lock, HF_NEVER);
    lock->place = 0;
    move(lock, HF_LOCK_IDLE);
    claim_ended(lock, err, text);
}

/* What holds ends by itself with its lease; what may wait in line does not. */
static void withdraw_behind(struct hf_lock *lock)
{
    hf_time until = HF_NEVER;

    if (lock->wait_ms == 0)
        until = hf_validity_gone(hf_client_now(lock->client), lock->ttl_ms);
    hf_withdraw(lock->client, hf_lock_bytes(lock), &lock->nonce, until);
}

/* Nobody knows whether it waits, holds or never arrived. */
static void refuse_in_doubt(struct hf_lock *lock, const char *text)
{
    withdraw_behind(lock);
    refuse(lock, HF_EINDOUBT, text);
}

static void hold(struct hf_lock *lock, hf_time base)
{
    hf_time end =
        hf_validity_end(base, hf_client_now(lock->client), lock->ttl_ms);

    leave_map(lock);
    set_timer(lock, HF_NEVER);
    lock->place = 0;
    lock->base = base;
    lock->held_ttl_ms = lock->ttl_ms;
    move(lock, HF_LOCK_HELD);
    set_valid_until(lock, end);
    hf_keeper_start(lock);
    claim_ended(lock, HF_OK, NULL);
}

/* ---- Claiming -----------------------------------------------------------*/

static hf_time answer_by(const struct hf_lock *lock)
{
    return hf_time_add(hf_client_now(lock->client), lock->timeout_ms);
}

static void ask(struct hf_lock *lock, enum hf_claim_phase phase)
{
    struct hf_command *command = &lock->call.request.command;

    lock->phase = phase;
    hf_lock_command(lock, &lock->call, HF_COMMAND_LOCK);
    command->token = 0;
    command->queue = lock->wait_ms > 0;
    command->lease_ms = hf_validity_lease(lock->ttl_ms);
    command->value = lock->value;
    command->note = lock->note;
    hf_call_start(&lock->call, answer_by(lock));
}

static enum hf_err draw_nonce(struct hf_lock *lock)
{
    struct hf_client *client = lock->client;

    atomic_store_explicit(&lock->token, 0, memory_order_relaxed);
    lock->first_sent = hf_client_now(client);
    return hf_random_bytes(&client->random, lock->nonce.bytes,
                           sizeof(lock->nonce.bytes));
}

static enum hf_err claim(struct hf_lock *lock)
{
    struct hf_client *client = lock->client;
    enum hf_err err = draw_nonce(lock);

    if (err)
        return err;
    move(lock, HF_LOCK_CLAIMING);
    set_valid_until(lock, 0);
    lock->adopted = false;
    lock->forced = false;
    lock->told = 0;
    lock->to_tell = 0;
    lock->place = 0;
    lock->was_claimed = true;
    lock->wait_until = lock->wait_ms == HF_FOREVER
                           ? HF_NEVER
                           : hf_time_add(hf_client_now(client), lock->wait_ms);
    ask(lock, HF_CLAIM_ASKING);
    return HF_OK;
}

/* Leave the line, or give back what was granted meanwhile. */
static void withdraw(struct hf_lock *lock, enum hf_err why)
{
    uint32_t wait_ms =
        lock->timeout_ms < WITHDRAW_MS ? lock->timeout_ms : WITHDRAW_MS;

    hf_call_abandon(&lock->call);
    leave_map(lock);
    set_timer(lock, HF_NEVER);
    lock->refusal = why;
    if (HF_MUTANT(20)) {
        refuse(lock, why, NULL);
        return;
    }
    lock->phase = HF_CLAIM_WITHDRAWING;
    hf_lock_command(lock, &lock->call, HF_COMMAND_CANCEL);
    hf_call_start(&lock->call,
                  hf_time_add(hf_client_now(lock->client), wait_ms));
}

static uint64_t hash_nonce(const struct hf_nonce *nonce)
{
    uint64_t hash;

    /* Our own nonces are random: they are their own hash. */
    memcpy(&hash, nonce->bytes, sizeof(hash));
    return hash;
}

static void wait_in_line(struct hf_lock *lock, uint32_t look_again_ms)
{
    struct hf_client *client = lock->client;
    uint32_t span = LOOK_AGAIN_MS;
    hf_time at;

    /* Soon enough to find a grant whose push was lost while it lasts. */
    if (lock->ttl_ms / 2 < span)
        span = lock->ttl_ms / 2 + LOOK_AGAIN_MIN_MS;

    if (hf_client_now(client) >= lock->wait_until) {
        withdraw(lock, HF_ETIMEDOUT);
        return;
    }
    span += hf_random_below(&client->random, span / 4);
    if (look_again_ms > 0 && look_again_ms < span)
        span = look_again_ms;
    at = hf_time_add(hf_client_now(client), span);
    if (HF_MUTANT(40))
        at = lock->wait_until;
    lock->phase = HF_CLAIM_IN_LINE;
    set_timer(lock, at < lock->wait_until ? at : lock->wait_until);
}

static void join_line(struct hf_lock *lock, uint32_t place,
                      uint32_t look_again_ms)
{
    lock->place = place;
    if (!lock->in_map) {
        hf_map_insert(&lock->client->waiting, &lock->by_nonce,
                      hash_nonce(&lock->nonce));
        lock->in_map = true;
    }
    hf_lock_tell(lock, HF_LOCK_EVENT_WAITING);
    wait_in_line(lock, look_again_ms);
}

static void confirm(struct hf_lock *lock, uint64_t token)
{
    atomic_store_explicit(&lock->token, token, memory_order_relaxed);
    leave_map(lock);
    set_timer(lock, HF_NEVER);
    lock->phase = HF_CLAIM_CONFIRMING;
    hf_lock_command(lock, &lock->call, HF_COMMAND_RENEW);
    lock->call.request.command.lease_ms = hf_validity_lease(lock->ttl_ms);
    hf_call_start(&lock->call, answer_by(lock));
}

/* Granted. After a wait, less than the ttl may be left by what is known here
 * of when it began: then it is renewed before anyone hears of it. */
static void granted(struct hf_lock *lock, uint64_t token,
                    const struct hf_anchor *anchor, bool waited)
{
    hf_time now = hf_client_now(lock->client);
    hf_time base = hf_validity_base(anchor, lock->first_sent);
    hf_time end = hf_validity_end(base, now, lock->ttl_ms);

    if (end <= now || (waited && end < hf_time_add(now, lock->ttl_ms))) {
        confirm(lock, token);
        return;
    }
    atomic_store_explicit(&lock->token, token, memory_order_relaxed);
    hold(lock, base);
}

static void asked(struct hf_lock *lock, const struct hf_answer *answer)
{
    bool again = lock->phase == HF_CLAIM_ASKING_AGAIN;
    enum hf_err err = answer->result.err;

    if (err == HF_OK)
        granted(lock, answer->result.token, &answer->anchor,
                again || lock->call.in_doubt);
    else if (err == HF_EBUSY && answer->result.place > 0)
        join_line(lock, answer->result.place, answer->look_again_ms);
    else if (again)
        wait_in_line(lock, 0); /* still in line, as far as is known */
    else if (err == HF_EINDOUBT)
        refuse_in_doubt(lock, answer->cause);
    else {
        /* An answer that is not kept, such as HF_ENOMEM, is no answer to a
         * copy that is still on its way. */
        if (lock->call.in_doubt)
            withdraw_behind(lock);
        refuse(lock, err, answer->cause);
    }
}

/* With a new nonce, as if it were the first time; the old one is ended behind.
 * It is still the same claim, and waits no longer than it was to. */
static void claim_anew(struct hf_lock *lock)
{
    enum hf_err err;

    withdraw_behind(lock);
    err = draw_nonce(lock);
    if (err)
        refuse(lock, err, NULL);
    else
        ask(lock, HF_CLAIM_ASKING);
}

static void confirmed(struct hf_lock *lock, const struct hf_answer *answer)
{
    enum hf_err err = answer->result.err;
    hf_time now = hf_client_now(lock->client);
    hf_time base = hf_validity_base(&answer->anchor, lock->call.first_sent);

    if (err == HF_EINDOUBT || err == HF_EUNAVAIL)
        refuse_in_doubt(lock, answer->cause);
    else if (err == HF_OK && hf_validity_end(base, now, lock->ttl_ms) > now)
        hold(lock, base);
    else if (lock->wait_ms > 0 && now < lock->wait_until)
        claim_anew(lock); /* it came, and went, before it could be used */
    else
        withdraw(lock, HF_ETIMEDOUT);
}

static void withdrawn(struct hf_lock *lock, const struct hf_answer *answer)
{
    enum hf_err err = answer->result.err;

    if (err == HF_OK || err == HF_ENOTHELD)
        refuse(lock, lock->refusal, NULL);
    else
        refuse_in_doubt(lock, answer->cause);
}

void hf_lock_pushed(struct hf_host *host, const struct hf_push_grant *grant)
{
    struct hf_client *client = HF_CONTAINER(host, struct hf_client, host);
    struct hf_map_link *link =
        hf_map_find(&client->waiting, hash_nonce(&grant->nonce));

    for (; link; link = hf_map_find_next(link)) {
        struct hf_lock *lock = HF_CONTAINER(link, struct hf_lock, by_nonce);
        bool asking;

        if (!hf_nonce_equal(&lock->nonce, &grant->nonce))
            continue;
        /* A LOCK that is on its way must not come true after the lease: a
         * renewal ends it, since whatever is numbered lower is refused. */
        asking = hf_call_open(&lock->call) && !lock->call.request.answered;
        hf_call_abandon(&lock->call);
        if (asking)
            confirm(lock, grant->token);
        else
            granted(lock, grant->token, &grant->anchor, true);
        return;
    }
}

/* ---- Releasing ----------------------------------------------------------*/

enum hf_err hf_lock_ended(const struct hf_lock *lock, enum hf_err err)
{
    if (lock->adopted || (err != HF_ENOTHELD && err != HF_ENOTOWNER))
        return err;
    return HF_EEXPIRED;
}

static void release(struct hf_lock *lock)
{
    bool lost = lock->state == HF_LOCK_LOST && !lock->adopted;

    if (!HF_MUTANT(41))
        set_valid_until(lock, 0);
    hf_keeper_stop(lock);
    lock->to_tell = 0;
    move(lock, HF_LOCK_RELEASING);
    /* What is lost here may be held there, even anew by a LOCK that was long
     * on its way: the nonce is ended, whatever its token. */
    hf_lock_command(lock, &lock->call,
                    lost ? HF_COMMAND_CANCEL : HF_COMMAND_UNLOCK);
    hf_lock_ref(lock); /* until it is answered */
    hf_call_start(&lock->call, answer_by(lock));
}

static enum hf_err release_result(const struct hf_lock *lock)
{
    const struct hf_call *call = &lock->call;
    const struct hf_result *result = &call->request.answer.result;
    enum hf_err err = result->err;
    /* Before this instant no server can have ended the lease by itself. */
    hf_time running =
        hf_time_add(lock->base, hf_validity_lease(lock->held_ttl_ms) / 50 * 49);

    if (call->request.command.kind == HF_COMMAND_CANCEL && err == HF_OK &&
        result->token != atomic_load(&lock->token))
        return HF_EEXPIRED;
    if (lock->adopted || (err != HF_ENOTHELD && err != HF_ENOTOWNER))
        return err;
    if (call->request.command.kind == HF_COMMAND_UNLOCK && call->in_doubt &&
        hf_client_now(lock->client) < running)
        return HF_OK; /* then it was an earlier copy of this very UNLOCK */
    return HF_EEXPIRED;
}

static void released(struct hf_lock *lock)
{
    struct hf_future *releasing = lock->releasing;
    enum hf_err err = release_result(lock);
    const char *cause = lock->call.request.answer.cause;

    lock->releasing = NULL;
    move(lock, HF_LOCK_IDLE);
    if (err)
        hf_lock_set_failure(lock, err, cause);
    hf_future_answer(releasing, err, cause);
    hf_lock_unref(lock);
}

static void settled(struct hf_call *call)
{
    struct hf_lock *lock = HF_CONTAINER(call, struct hf_lock, call);

    hf_lock_ref(lock); /* telling may free it */
    if (lock->state == HF_LOCK_RELEASING)
        released(lock);
    else if (lock->phase == HF_CLAIM_WITHDRAWING)
        withdrawn(lock, &call->request.answer);
    else if (lock->phase == HF_CLAIM_CONFIRMING)
        confirmed(lock, &call->request.answer);
    else
        asked(lock, &call->request.answer);
    hf_lock_unref(lock);
}

/* ---- Holding ------------------------------------------------------------*/

static enum hf_lock_state state_now(const struct hf_lock *lock);

enum hf_err hf_lock_check_held(struct hf_lock *lock)
{
    if (state_now(lock) == HF_LOCK_LOST) {
        hf_lock_lose(lock, HF_EEXPIRED, NULL);
        return HF_EEXPIRED;
    }
    return lock->state == HF_LOCK_HELD ? HF_OK : HF_ESTATE;
}

enum hf_err hf_lock_extend(struct hf_lock *lock, hf_time base, uint32_t ttl_ms)
{
    hf_time end = hf_validity_end(base, hf_client_now(lock->client), ttl_ms);

    if (hf_lock_check_held(lock))
        return HF_EEXPIRED;
    if (end > valid_until(lock)) {
        set_valid_until(lock, end);
        lock->base = base;
        lock->held_ttl_ms = ttl_ms;
    }
    hf_keeper_confirmed(lock);
    return HF_OK;
}

void hf_lock_lose(struct hf_lock *lock, enum hf_err why, const char *text)
{
    if (lock->state != HF_LOCK_HELD)
        return;
    set_valid_until(lock, 0);
    hf_keeper_stop(lock);
    hf_lock_set_failure(lock, why, text);
    move(lock, HF_LOCK_LOST);
    hf_lock_tell(lock, HF_LOCK_EVENT_LOST);
}

static void on_timer(struct hf_timer *timer)
{
    struct hf_lock *lock = HF_CONTAINER(timer, struct hf_lock, timer);
    struct hf_client *client = lock->client;

    if (lock->state == HF_LOCK_HELD) {
        hf_keeper_tick(lock);
    } else if (hf_client_now(client) >= lock->wait_until) {
        withdraw(lock, HF_ETIMEDOUT);
    } else {
        ask(lock, HF_CLAIM_ASKING_AGAIN);
        set_timer(lock, lock->wait_until);
    }
}

/* Validity ends by the clock, whether or not anybody was there to see it. */
static enum hf_lock_state state_now(const struct hf_lock *lock)
{
    bool unknown = lock->adopted && valid_until(lock) == 0;

    if (lock->state == HF_LOCK_HELD && !unknown &&
        hf_client_now(lock->client) >= valid_until(lock))
        return HF_LOCK_LOST;
    return lock->state;
}

/* ---- What the user calls: taking ----------------------------------------*/

static void release_claimant(struct hf_future *future)
{
    struct hf_claimant *claimant =
        HF_CONTAINER(future, struct hf_claimant, future);

    /* hf_lock_start() gave the handle away, or it was never granted. */
    if (claimant->out && future->err)
        hf_lock_unref(claimant->lock);
    hf_lock_unref(claimant->lock);
    free(claimant);
}

static void keep_claimant(struct hf_future *future)
{
    (void)future; /* it is on the stack of a blocked caller */
}

static void cancel_claim(struct hf_future *future)
{
    struct hf_claimant *claimant =
        HF_CONTAINER(future, struct hf_claimant, future);

    if (claimant->lock->phase != HF_CLAIM_WITHDRAWING)
        withdraw(claimant->lock, HF_ECANCELED);
}

static enum hf_err check(struct hf_client *client, struct hf_key key,
                         const struct hf_lock_opts *opts,
                         struct hf_lock_opts *checked)
{
    struct hf_error unheard;
    struct hf_error *error = hf_options_lock_error(opts, &unheard);
    enum hf_err err = hf_options_key(key, error);

    if (!err)
        err = hf_options_lock(checked, opts, error);
    if (err && !hf_client_enter(client)) {
        hf_client_fail(client, err, "%s", error->text);
        hf_client_leave(client);
    }
    return err;
}

/* The words for a failure that leaves no handle to ask. */
static void explain(const struct hf_client *client, struct hf_error *error,
                    enum hf_err err)
{
    if (err && error && client->error.code == err)
        *error = client->error;
    else if (err)
        hf_error_code(error, err);
}

/* Who blocks has no event loop: what is to be renewed or told while no call is
 * open wants a thread. */
static enum hf_err see_kept(struct hf_lock *lock)
{
    return is_kept(lock) ? hf_loop_see_driven(lock->client) : HF_OK;
}

static enum hf_err lock_blocking(struct hf_client *client, struct hf_key key,
                                 const struct hf_lock_opts *opts,
                                 struct hf_lock **out)
{
    struct hf_claimant claimant = {.out = NULL};
    struct hf_lock *lock;
    enum hf_err err;

    if (hf_loop_inside(client))
        return HF_EDEADLK;
    err = create(client, key, opts, &lock);
    if (err)
        return err;
    hf_future_init(&claimant.future, client, NULL, NULL);
    claimant.future.release = keep_claimant;
    claimant.lock = lock;
    lock->claimant = &claimant;
    err = see_kept(lock);
    if (!err)
        err = claim(lock);
    if (!err)
        err = hf_future_await(&claimant.future);
    if (err)
        hf_lock_unref(lock);
    else
        *out = lock;
    return err;
}

enum hf_err hf_lock(struct hf_client *client, struct hf_key key,
                    const struct hf_lock_opts *opts, struct hf_lock **lock)
{
    struct hf_lock_opts checked;
    enum hf_err err;

    if (!client || !lock)
        return HF_EINVAL;
    err = check(client, key, opts, &checked);
    if (err)
        return err;
    err = hf_client_enter(client);
    if (err)
        return hf_error_code(checked.error, err);
    err = lock_blocking(client, key, &checked, lock);
    explain(client, checked.error, err);
    hf_client_leave(client);
    return err;
}

/* A future for a claim of `lock`; it holds a reference to it. */
static struct hf_claimant *new_claimant(struct hf_lock *lock, hf_done_fn *done,
                                        void *arg)
{
    struct hf_claimant *claimant = calloc(1, sizeof(*claimant));

    if (!claimant)
        return NULL;
    hf_future_init(&claimant->future, lock->client, done, arg);
    claimant->future.release = release_claimant;
    claimant->future.cancel = cancel_claim;
    claimant->lock = lock;
    hf_lock_ref(lock);
    return claimant;
}

static enum hf_err claim_start(struct hf_lock *lock, struct hf_lock **out,
                               hf_done_fn *done, void *arg,
                               struct hf_future **future)
{
    struct hf_claimant *claimant = new_claimant(lock, done, arg);
    enum hf_err err;

    if (!claimant)
        return HF_ENOMEM;
    err = claim(lock);
    if (err) {
        hf_lock_unref(lock);
        free(claimant);
        return err;
    }
    claimant->out = out;
    lock->claimant = claimant;
    hf_future_give(&claimant->future, future);
    return HF_OK;
}

enum hf_err hf_lock_start(struct hf_client *client, struct hf_key key,
                          const struct hf_lock_opts *opts,
                          struct hf_lock **lock, hf_done_fn *done, void *arg,
                          struct hf_future **future)
{
    struct hf_lock_opts checked;
    struct hf_lock *made;
    enum hf_err err;

    if (!client || !lock)
        return HF_EINVAL;
    err = check(client, key, opts, &checked);
    if (err)
        return err;
    err = hf_client_enter(client);
    if (err)
        return hf_error_code(checked.error, err);
    err = create(client, key, &checked, &made);
    if (!err) {
        err = claim_start(made, lock, done, arg, future);
        if (err)
            hf_lock_unref(made);
    }
    explain(client, checked.error, err);
    hf_client_leave(client);
    return err;
}

enum hf_err hf_lock_new(struct hf_client *client, struct hf_key key,
                        const struct hf_lock_opts *opts, struct hf_lock **lock)
{
    struct hf_lock_opts checked;
    struct hf_lock *made;
    enum hf_err err;

    if (!client || !lock)
        return HF_EINVAL;
    err = check(client, key, opts, &checked);
    if (err)
        return err;
    err = hf_client_enter(client);
    if (err)
        return hf_error_code(checked.error, err);
    err = create(client, key, &checked, &made);
    if (!err && !checked.idle) {
        err = claim(made);
        if (err)
            hf_lock_unref(made);
    }
    if (!err)
        *lock = made;
    explain(client, checked.error, err);
    hf_client_leave(client);
    return err;
}

enum hf_err hf_lock_adopt(struct hf_client *client, struct hf_key key,
                          const uint8_t nonce[HF_NONCE_SIZE], uint64_t token,
                          const struct hf_lock_opts *opts,
                          struct hf_lock **lock)
{
    struct hf_lock_opts checked;
    struct hf_lock *made;
    enum hf_err err;

    if (!client || !lock || !nonce || token == 0)
        return HF_EINVAL;
    err = check(client, key, opts, &checked);
    if (err)
        return err;
    err = hf_client_enter(client);
    if (err)
        return hf_error_code(checked.error, err);
    err = create(client, key, &checked, &made);
    if (!err) {
        memcpy(made->nonce.bytes, nonce, HF_NONCE_SIZE);
        atomic_store(&made->token, token);
        made->adopted = true;
        move(made, HF_LOCK_HELD);
        *lock = made;
    }
    explain(client, checked.error, err);
    hf_client_leave(client);
    return err;
}

/* ---- Claiming again -----------------------------------------------------*/

/* A lost handle may claim again: its old nonce is ended behind. */
static enum hf_err get_ready(struct hf_lock *lock)
{
    enum hf_lock_state state = state_now(lock);

    if (state == HF_LOCK_IDLE)
        return HF_OK;
    if (state != HF_LOCK_LOST)
        return HF_ESTATE;
    hf_lock_lose(lock, HF_EEXPIRED, NULL);
    withdraw_behind(lock);
    return HF_OK;
}

enum hf_err hf_claim_start(struct hf_lock *lock, hf_done_fn *done, void *arg,
                           struct hf_future **future)
{
    enum hf_err err;

    if (!lock)
        return HF_EINVAL;
    err = hf_client_enter(lock->client);
    if (err)
        return err;
    err = get_ready(lock);
    if (!err)
        err = claim_start(lock, NULL, done, arg, future);
    if (err)
        hf_client_fail(lock->client, err, "claim: %s", hf_err_text(err));
    hf_client_leave(lock->client);
    return err;
}

static enum hf_err await_claim(struct hf_lock *lock)
{
    struct hf_client *client = lock->client;

    hf_loop_settle(client);
    while (lock->state == HF_LOCK_CLAIMING) {
        struct hf_blocked blocked = {0};

        if (hf_loop_inside(client))
            return HF_EDEADLK;
        hf_list_push_back(&lock->claim_waiters, &blocked.waiter);
        (void)hf_loop_wait(client, &blocked, HF_NEVER);
    }
    return lock->was_claimed ? lock->claimed : HF_ESTATE;
}

enum hf_err hf_claim_wait(struct hf_lock *lock)
{
    enum hf_err err;

    if (!lock)
        return HF_EINVAL;
    err = hf_client_enter(lock->client);
    if (err)
        return err;
    hf_lock_ref(lock);
    err = hf_loop_inside(lock->client) ? HF_OK : see_kept(lock);
    if (!err)
        err = await_claim(lock);
    hf_lock_unref(lock);
    hf_client_leave(lock->client);
    return err;
}

enum hf_err hf_claim(struct hf_lock *lock)
{
    enum hf_err err;

    if (!lock)
        return HF_EINVAL;
    err = hf_client_enter(lock->client);
    if (err)
        return err;
    hf_lock_ref(lock);
    err = hf_loop_inside(lock->client) ? HF_EDEADLK : get_ready(lock);
    if (!err)
        err = see_kept(lock);
    if (!err)
        err = claim(lock);
    if (!err)
        err = await_claim(lock);
    else
        hf_client_fail(lock->client, err, "claim: %s", hf_err_text(err));
    hf_lock_unref(lock);
    hf_client_leave(lock->client);
    return err;
}

/* ---- Giving back --------------------------------------------------------*/

static void release_future(struct hf_future *future)
{
    struct hf_client *client = future->client;

    free(future);
    hf_client_unref(client);
}

static void keep_future(struct hf_future *future)
{
    (void)future; /* it is on the stack of a blocked caller */
}

/* Start the release, or leave it for when the claim that is under way ends. */
static enum hf_err begin_release(struct hf_lock *lock, struct hf_future *future)
{
    if (lock->releasing || lock->state == HF_LOCK_IDLE)
        return HF_ESTATE;
    lock->releasing = future;
    if (lock->state == HF_LOCK_CLAIMING)
        return HF_OK;
    if (lock->state == HF_LOCK_HELD && state_now(lock) == HF_LOCK_LOST)
        hf_lock_lose(lock, HF_EEXPIRED, NULL);
    release(lock);
    return HF_OK;
}

enum hf_err hf_unlock(struct hf_lock *lock)
{
    struct hf_future future;
    struct hf_client *client;
    enum hf_err err;

    if (!lock)
        return HF_EINVAL;
    client = lock->client;
    err = hf_client_enter(client);
    if (err)
        return err;
    hf_future_init(&future, client, NULL, NULL);
    future.release = keep_future;
    hf_client_ref(client); /* the handle may be freed meanwhile */
    err = hf_loop_inside(client) ? HF_EDEADLK : begin_release(lock, &future);
    if (err)
        hf_client_fail(client, err, "unlock: %s", hf_err_text(err));
    else
        err = hf_future_await(&future);
    hf_client_unref(client);
    hf_client_leave(client);
    return err;
}

enum hf_err hf_unlock_start(struct hf_lock *lock, hf_done_fn *done, void *arg,
                            struct hf_future **future)
{
    struct hf_future *made;
    struct hf_client *client;
    enum hf_err err;

    if (!lock)
        return HF_EINVAL;
    client = lock->client;
    err = hf_client_enter(client);
    if (err)
        return err;
    made = malloc(sizeof(*made));
    err = made ? HF_OK : HF_ENOMEM;
    if (made) {
        hf_future_init(made, client, done, arg);
        made->release = release_future;
        err = begin_release(lock, made);
    }
    if (err) {
        free(made);
        hf_client_fail(client, err, "unlock: %s", hf_err_text(err));
    } else {
        hf_client_ref(client);
        hf_future_give(made, future);
    }
    hf_client_leave(client);
    return err;
}

/* End whatever it claims, and answer who waits for that. */
static void abandon(struct hf_lock *lock, enum hf_err err)
{
    bool claims = lock->state == HF_LOCK_CLAIMING ||
                  lock->state == HF_LOCK_HELD || lock->state == HF_LOCK_LOST;

    set_valid_until(lock, 0);
    hf_keeper_stop(lock);
    lock->to_tell = 0;
    if (claims && !lock->adopted) {
        hf_call_abandon(&lock->call);
        withdraw_behind(lock);
    }
    if (lock->state == HF_LOCK_CLAIMING)
        refuse(lock, err, NULL);
    else if (lock->state == HF_LOCK_HELD || lock->state == HF_LOCK_LOST)
        move(lock, HF_LOCK_IDLE);
}

void hf_lock_close(struct hf_lock *lock)
{
    hf_lock_ref(lock);
    abandon(lock, HF_ECLOSED);
    if (lock->client->closed && lock->state == HF_LOCK_RELEASING) {
        hf_call_abandon(&lock->call);
        lock->call.request.answer.result.err = HF_EINDOUBT;
        released(lock);
    }
    hf_lock_unref(lock);
}

void hf_lock_free(struct hf_lock *lock)
{
    struct hf_client *client;

    if (!lock)
        return;
    client = lock->client;
    if (hf_client_enter_closed(client))
        return;
    lock->freed = true;
    abandon(lock, HF_ECANCELED);
    hf_lock_unref(lock);
    hf_client_leave(client);
}

/* ---- Asking -------------------------------------------------------------*/

bool hf_valid_for(const struct hf_lock *lock, uint32_t ms)
{
    hf_time end;

    if (!lock || *lock->client->alive == 0)
        return false; /* a forked child holds nothing of its parent's */
    end = valid_until(lock);
    return end > 0 && hf_client_clock(lock->client) + (hf_time)ms < end;
}

uint32_t hf_remaining_ms(const struct hf_lock *lock)
{
    if (!lock || *lock->client->alive == 0)
        return 0;
    return hf_time_left(valid_until(lock), hf_client_clock(lock->client));
}

int64_t hf_deadline(const struct hf_lock *lock)
{
    return lock && *lock->client->alive ? valid_until(lock) : 0;
}

uint64_t hf_token(const struct hf_lock *lock)
{
    return lock ? atomic_load_explicit(&lock->token, memory_order_relaxed) : 0;
}

void hf_nonce(const struct hf_lock *lock, uint8_t nonce[HF_NONCE_SIZE])
{
    if (nonce)
        memset(nonce, 0, HF_NONCE_SIZE);
    if (!lock || !nonce || hf_client_enter_closed(lock->client))
        return;
    memcpy(nonce, lock->nonce.bytes, HF_NONCE_SIZE);
    hf_client_leave(lock->client);
}

struct hf_key hf_lock_key(const struct hf_lock *lock)
{
    return lock ? hf_lock_bytes(lock) : (struct hf_key){0};
}

enum hf_lock_state hf_lock_state(const struct hf_lock *lock)
{
    enum hf_lock_state state;

    if (!lock || hf_client_enter_closed(lock->client))
        return HF_LOCK_IDLE;
    state = state_now(lock);
    hf_client_leave(lock->client);
    return state;
}

uint32_t hf_lock_place(const struct hf_lock *lock)
{
    uint32_t place;

    if (!lock || hf_client_enter_closed(lock->client))
        return 0;
    place = lock->place;
    hf_client_leave(lock->client);
    return place;
}

void hf_lock_error(const struct hf_lock *lock, struct hf_error *error)
{
    if (!error)
        return;
    hf_error_code(error, HF_OK);
    if (!lock || hf_client_enter_closed(lock->client))
        return;
    hf_error_set(error, lock->failure, "%s",
                 lock->failure_text ? lock->failure_text
                                    : hf_err_text(lock->failure));
    hf_client_leave(lock->client);
}

/* ---- A function under a lock --------------------------------------------*/

enum hf_err hf_run(struct hf_client *client, struct hf_key key,
                   const struct hf_lock_opts *opts, hf_run_fn *run, void *arg,
                   int *result)
{
    struct hf_lock *lock;
    enum hf_err err;
    bool lost;
    int code;

    if (!run)
        return HF_EINVAL;
    err = hf_lock(client, key, opts, &lock);
    if (err)
        return err;
    code = run(lock, arg);
    lost = hf_lock_state(lock) != HF_LOCK_HELD;
    err = hf_unlock(lock);
    if (lost && err == HF_OK)
        err = HF_EEXPIRED; /* the server had it; who ran could not know */
    hf_lock_free(lock);
    if (result)
        *result = code;
    return err;
}
