/* claim.c - one claim: from asking to held or refused. */
#include "client/claim.h"

#include <string.h>

#include "client/client.h"
#include "client/hold.h"
#include "client/release.h"
#include "client/validity.h"
#include "client/withdrawal.h"

#define LOOK_AGAIN_MS 1000 /* a lost push costs at most about this */
#define LOOK_AGAIN_MIN_MS 20
#define WITHDRAW_MS 1000 /* how long a withdrawal is awaited */
#define LOST_BIT (1u << HF_LOCK_EVENT_LOST)

static void set_timer(struct hf_lock *lock, hf_time at)
{
    hf_timer_set(&lock->client->host, &lock->timer, at);
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
    while ((link = hf_list_take(&lock->claim_waiters))) {
        struct hf_claim_waiter *waiter =
            HF_CONTAINER(link, struct hf_claim_waiter, link);

        waiter->err = err;
        hf_loop_release(&waiter->blocked);
    }
    if (claimant) {
        if (!err)
            lock->answered = claimant;
        if (claimant->out && !err) {
            *claimant->out = lock;
            claimant->granted = true;
            lock->given = true;
        }
        hf_future_answer(&claimant->future, err, text);
    }
    if (releasing && !err) {
        hf_release_begin(lock);
    } else if (releasing) {
        lock->releasing = NULL;
        hf_future_answer(releasing, err, text);
    }
    hf_lock_unref(lock);
}

void hf_claim_refuse(struct hf_lock *lock, enum hf_err err, const char *text)
{
    leave_map(lock);
    set_timer(lock, HF_NEVER);
    lock->place = 0;
    lock->to_tell &= LOST_BIT; /* of the claim before */
    atomic_store_explicit(&lock->token, 0, memory_order_relaxed);
    hf_lock_move(lock, HF_LOCK_IDLE);
    claim_ended(lock, err, text);
}

void hf_claim_withdraw_behind(struct hf_lock *lock)
{
    hf_time until = HF_NEVER;

    if (lock->wait_ms == 0)
        until = hf_validity_gone(hf_client_now(lock->client), lock->ttl_ms);
    hf_withdraw(lock->client, hf_lock_bytes(lock), &lock->nonce, until);
}

/* Nobody knows whether it waits, holds or never arrived. */
static void refuse_in_doubt(struct hf_lock *lock, const char *text)
{
    hf_claim_withdraw_behind(lock);
    hf_claim_refuse(lock, HF_EINDOUBT, text);
}

static void hold(struct hf_lock *lock, hf_time base)
{
    leave_map(lock);
    set_timer(lock, HF_NEVER);
    lock->place = 0;
    lock->to_tell = 0; /* that it waits is no news any more */
    hf_hold_begin(lock, base);
    claim_ended(lock, HF_OK, NULL);
}

/* ---- Asking -------------------------------------------------------------*/

/* Until when a LOCK may wait inside the client. However short its wait is, it
 * has the time that a claim without a wait has. */
static hf_time queue_until(const struct hf_lock *lock)
{
    hf_time answer_by = hf_lock_answer_by(lock);

    return lock->wait_until > answer_by ? lock->wait_until : answer_by;
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
    lock->call.request.waits = lock->place > 0;
    lock->call.request.keeps = lock->renew;
    if (lock->wait_ms > 0)
        hf_call_start_queued(&lock->call, lock->timeout_ms, queue_until(lock));
    else
        hf_call_start(&lock->call, hf_lock_answer_by(lock));
}

static enum hf_err draw_nonce(struct hf_lock *lock)
{
    struct hf_client *client = lock->client;

    atomic_store_explicit(&lock->token, 0, memory_order_relaxed);
    lock->first_sent = hf_client_now(client);
    return hf_random_bytes(&client->random, lock->nonce.bytes,
                           sizeof(lock->nonce.bytes));
}

/* A loss that is reported after the next grant would be taken for the loss of
 * that: the claim is sent when the event callback has returned. */
static void defer(struct hf_lock *lock)
{
    lock->phase = HF_CLAIM_DEFERRED;
    set_timer(lock, queue_until(lock));
}

enum hf_err hf_claim_begin(struct hf_lock *lock)
{
    struct hf_client *client = lock->client;
    enum hf_err err = draw_nonce(lock);

    if (err)
        return err;
    hf_lock_move(lock, HF_LOCK_CLAIMING);
    hf_hold_end(lock);
    lock->adopted = false;
    lock->detached = false;
    lock->forced = false;
    lock->recheck = false;
    lock->told = 0;
    lock->to_tell &= LOST_BIT;
    lock->place = 0;
    lock->was_claimed = true;
    lock->wait_until = lock->wait_ms == HF_FOREVER
                           ? HF_NEVER
                           : hf_time_add(hf_client_now(client), lock->wait_ms);
    lock->limit = lock->from_claim
                      ? hf_time_add(hf_client_now(client), lock->ttl_ms)
                      : HF_NEVER;
    if (lock->limit < lock->wait_until)
        lock->wait_until = lock->limit;
    if (lock->to_tell & LOST_BIT)
        defer(lock);
    else
        ask(lock, HF_CLAIM_ASKING);
    return HF_OK;
}

void hf_claim_resume(struct hf_lock *lock)
{
    if (lock->phase != HF_CLAIM_DEFERRED)
        return;
    hf_client_forget_now(lock->client);
    set_timer(lock, HF_NEVER);
    lock->first_sent = hf_client_now(lock->client);
    ask(lock, HF_CLAIM_ASKING);
    hf_loop_flush(lock->client);
}

void hf_claim_withdraw(struct hf_lock *lock, enum hf_err why)
{
    uint32_t wait_ms =
        lock->timeout_ms < WITHDRAW_MS ? lock->timeout_ms : WITHDRAW_MS;

    if (lock->phase == HF_CLAIM_DEFERRED) { /* nothing was sent */
        hf_claim_refuse(lock, why, NULL);
        return;
    }
    /* First, so that a push inside the abandoning does not find it. */
    lock->phase = HF_CLAIM_WITHDRAWING;
    leave_map(lock);
    hf_call_abandon(&lock->call);
    set_timer(lock, HF_NEVER);
    lock->refusal = why;
    lock->refusal_text = NULL;
    hf_lock_command(lock, &lock->call, HF_COMMAND_CANCEL);
    hf_call_start(&lock->call,
                  hf_time_add(hf_client_now(lock->client), wait_ms));
}

/* ---- In line ------------------------------------------------------------*/

static uint64_t hash_nonce(const struct hf_nonce *nonce)
{
    uint64_t hash;

    /* Our own nonces are random: they are their own hash. */
    memcpy(&hash, nonce->bytes, sizeof(hash));
    return hash;
}

/* Soon enough to find a grant whose push was lost while it lasts, unless the
 * strategy loses none. */
static uint32_t look_again_after(struct hf_lock *lock, uint32_t look_again_ms,
                                 bool is_pushed)
{
    uint32_t span = LOOK_AGAIN_MS;

    if (is_pushed && look_again_ms > 0)
        return look_again_ms;
    if (lock->ttl_ms / 2 < span)
        span = lock->ttl_ms / 2 + LOOK_AGAIN_MIN_MS;
    span += hf_random_below(&lock->client->random, span / 4);
    return look_again_ms > 0 && look_again_ms < span ? look_again_ms : span;
}

static void wait_in_line(struct hf_lock *lock, uint32_t look_again_ms,
                         bool is_pushed)
{
    struct hf_client *client = lock->client;
    hf_time at;

    if (hf_client_now(client) >= lock->wait_until) {
        hf_claim_withdraw(lock, HF_ETIMEDOUT);
        return;
    }
    at = hf_time_add(hf_client_now(client),
                     look_again_after(lock, look_again_ms, is_pushed));
    lock->phase = HF_CLAIM_IN_LINE;
    set_timer(lock, at < lock->wait_until ? at : lock->wait_until);
}

static void join_line(struct hf_lock *lock, const struct hf_answer *answer)
{
    lock->place = answer->result.place;
    if (!lock->in_map) {
        hf_map_insert(&lock->client->waiting, &lock->by_nonce,
                      hash_nonce(&lock->nonce));
        lock->in_map = true;
    }
    hf_lock_tell(lock, HF_LOCK_EVENT_WAITING);
    wait_in_line(lock, answer->look_again_ms, answer->is_pushed);
}

/* ---- Granted ------------------------------------------------------------*/

static void confirm(struct hf_lock *lock, uint64_t token)
{
    atomic_store_explicit(&lock->token, token, memory_order_relaxed);
    leave_map(lock);
    set_timer(lock, HF_NEVER);
    lock->phase = HF_CLAIM_CONFIRMING;
    hf_lock_command(lock, &lock->call, HF_COMMAND_RENEW);
    lock->call.request.command.lease_ms = hf_validity_lease(lock->ttl_ms);
    lock->call.request.command.value = lock->value; /* see strategy.h */
    hf_call_start(&lock->call, hf_lock_answer_by(lock));
}

/* It was granted when its time was over. A claim that was not to wait had no
 * wait that could run out: its answer was too slow. */
static void withdraw_late(struct hf_lock *lock)
{
    hf_claim_withdraw(lock, lock->wait_ms > 0 ? HF_ETIMEDOUT : HF_EUNAVAIL);
    lock->refusal_text =
        "the lock was granted too late: ttl_ms had passed when "
        "the answer came; ask for a longer ttl";
}

/* Granted. After a wait, less than the ttl may be left by what is known here
 * of when it began: then it is renewed before anyone hears of it. */
static void granted(struct hf_lock *lock, uint64_t token,
                    const struct hf_anchor *anchor, bool waited)
{
    hf_time now = hf_client_clock(lock->client);
    hf_time base = hf_validity_base(anchor, lock->first_sent);
    hf_time end = hf_validity_end(base, now, lock->ttl_ms);

    if (now >= lock->limit) {
        withdraw_late(lock);
        return;
    }
    if (end <= now || (waited && end < hf_time_add(now, lock->ttl_ms))) {
        confirm(lock, token);
        return;
    }
    atomic_store_explicit(&lock->token, token, memory_order_relaxed);
    hold(lock, base);
}

static struct hf_lock *find_waiting(const struct hf_client *client,
                                    const struct hf_nonce *nonce)
{
    struct hf_map_link *link = hf_map_find(&client->waiting, hash_nonce(nonce));

    for (; link; link = hf_map_find_next(link)) {
        struct hf_lock *lock = HF_CONTAINER(link, struct hf_lock, by_nonce);

        if (hf_nonce_equal(&lock->nonce, nonce))
            return lock;
    }
    return NULL;
}

/* A push may overtake the answer that says "in line": it comes over another
 * connection. Then the handle is not among those that wait yet. */
static struct hf_lock *find_asking(const struct hf_client *client,
                                   const struct hf_nonce *nonce)
{
    for (struct hf_list *link = client->locks.next; link != &client->locks;
         link = link->next) {
        struct hf_lock *lock = HF_CONTAINER(link, struct hf_lock, link);

        if (lock->phase == HF_CLAIM_ASKING &&
            hf_nonce_equal(&lock->nonce, nonce))
            return lock;
    }
    return NULL;
}

/* A nonce that no claim here has is left alone: its claim is being withdrawn, or
 * was detached and may be valid elsewhere. */
void hf_lock_pushed(struct hf_host *host, const struct hf_push_grant *grant)
{
    struct hf_client *client = HF_CONTAINER(host, struct hf_client, host);
    struct hf_lock *lock = find_waiting(client, &grant->nonce);
    bool asking;

    if (!lock)
        lock = find_asking(client, &grant->nonce);
    if (!lock)
        return;
    /* A LOCK that is on its way must not come true after the lease: a
     * renewal ends it, since whatever is numbered lower is refused. */
    asking = hf_call_open(&lock->call) && !lock->call.request.answered;
    hf_call_abandon(&lock->call);
    if (asking || grant->offered)
        confirm(lock, grant->token);
    else
        granted(lock, grant->token, &grant->anchor, true);
}

void hf_lock_nudged(struct hf_host *host, const struct hf_nonce *nonce)
{
    struct hf_client *client = HF_CONTAINER(host, struct hf_client, host);
    struct hf_lock *lock = find_waiting(client, nonce);

    if (lock && lock->phase == HF_CLAIM_IN_LINE)
        set_timer(lock, hf_client_now(client));
}

/* ---- Answers, and time --------------------------------------------------*/

/* Whether a repeated LOCK that is answered `err` can never be granted: the store
 * is damaged or gone, or the key holds something that is not a lock. */
static bool is_final(enum hf_err err)
{
    return err == HF_EPROTO || err == HF_EINVAL;
}

static void asked(struct hf_lock *lock, const struct hf_answer *answer)
{
    bool again = lock->phase == HF_CLAIM_ASKING_AGAIN;
    enum hf_err err = answer->result.err;

    if (err == HF_OK)
        granted(lock, answer->result.token, &answer->anchor,
                again || lock->call.in_doubt);
    else if (err == HF_EBUSY && answer->result.place > 0)
        join_line(lock, answer);
    else if (again && !is_final(err))
        wait_in_line(lock, 0, false); /* still in line, as far as is known */
    else if (err == HF_EINDOUBT)
        refuse_in_doubt(lock, answer->cause);
    else if (lock->call.expired_unsent)
        hf_claim_refuse(lock, HF_ETIMEDOUT, NULL);
    else {
        /* An answer that is not kept, such as HF_ENOMEM, is no answer to a
         * copy that is still on its way. And a waiter that is refused for good
         * may still be in the queue. */
        if (again || lock->call.in_doubt)
            hf_claim_withdraw_behind(lock);
        hf_claim_refuse(lock, err, answer->cause);
    }
}

/* With a new nonce, as if it were the first time; the old one is ended behind.
 * It is still the same claim, and waits no longer than it was to. */
static void claim_anew(struct hf_lock *lock)
{
    enum hf_err err;

    /* The turn has lasted longer than the lease. By its old time the next answer
     * would be late as well, and so on for as long as the turn lasts. */
    hf_client_forget_now(lock->client);
    hf_claim_withdraw_behind(lock);
    err = draw_nonce(lock);
    if (err)
        hf_claim_refuse(lock, err, NULL);
    else
        ask(lock, HF_CLAIM_ASKING);
}

static void confirmed(struct hf_lock *lock, const struct hf_answer *answer)
{
    enum hf_err err = answer->result.err;
    hf_time now = hf_client_clock(lock->client);
    hf_time base = hf_validity_base(&answer->anchor, lock->call.first_sent);

    if (err == HF_EINDOUBT || err == HF_EUNAVAIL)
        refuse_in_doubt(lock, answer->cause);
    else if (err == HF_OK && now < lock->limit &&
             hf_validity_end(base, now, lock->ttl_ms) > now)
        hold(lock, base);
    else if (lock->wait_ms > 0 && now < lock->wait_until)
        claim_anew(lock); /* it came, and went, before it could be used */
    else
        withdraw_late(lock);
}

static void withdrawn(struct hf_lock *lock, const struct hf_answer *answer)
{
    enum hf_err err = answer->result.err;

    if (err == HF_OK || err == HF_ENOTHELD)
        hf_claim_refuse(lock, lock->refusal, lock->refusal_text);
    else
        refuse_in_doubt(lock, answer->cause);
}

void hf_claim_settled(struct hf_lock *lock)
{
    const struct hf_answer *answer = &lock->call.request.answer;

    if (lock->phase == HF_CLAIM_WITHDRAWING)
        withdrawn(lock, answer);
    else if (lock->phase == HF_CLAIM_CONFIRMING)
        confirmed(lock, answer);
    else
        asked(lock, answer);
}

void hf_claim_tick(struct hf_lock *lock)
{
    if (lock->phase == HF_CLAIM_DEFERRED) {
        hf_claim_refuse(lock, HF_ETIMEDOUT,
                        "not sent: another callback is still running, and the "
                        "loss of the last claim must be reported first");
    } else if (hf_client_now(lock->client) >= lock->wait_until) {
        hf_claim_withdraw(lock, HF_ETIMEDOUT);
    } else {
        /* In this order: the claim may be granted inside ask(). */
        set_timer(lock, lock->wait_until);
        ask(lock, HF_CLAIM_ASKING_AGAIN);
    }
}
