/* acquire.c - one claim on a key, from the first request to its result. */
#include "client/acquire.h"

#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/drift.h"
#include "client/release.h"
#include "client/validity.h"
#include "client/waiting.h"
#include "client/withdrawal.h"

#define WITHDRAW_MS 1000 /* longest wait for the answer to CANCEL */
#define LOST_BIT (1u << HF_LOCK_EVENT_LOST)

static void set_acquire_timer(struct hf_lock *lock, hf_time at)
{
    hf_timer_set(&lock->client->host, &lock->timer, at);
}

/* ---- Completing a claim -------------------------------------------------*/

/* Report the result to the threads in hf_lock_wait() and to the caller. If a
 * release was requested meanwhile, start it, or fail it with `err`. */
static void finish_claim(struct hf_lock *lock, enum hf_err err,
                         const char *text)
{
    struct hf_acquire_caller *caller = lock->caller;
    struct hf_future *releasing = lock->releasing;
    struct hf_dlist *link;

    hf_handle_ref(lock); /* answering may drop the last reference */
    lock->claim_result = err;
    lock->caller = NULL;
    if (err)
        hf_handle_set_failure(lock, err, text);
    while ((link = hf_dlist_take(&lock->claim_waiters))) {
        struct hf_acquire_waiter *waiter =
            HF_CONTAINER(link, struct hf_acquire_waiter, link);

        waiter->err = err;
        hf_loop_release(&waiter->blocked);
    }
    if (caller) {
        if (!err)
            lock->answered = caller;
        if (caller->out && !err) {
            *caller->out = lock;
            caller->granted = true;
            lock->user_has_reference = true;
        }
        hf_future_answer(&caller->future, err, text);
    }
    if (releasing && !err) {
        hf_release_begin(lock);
    } else if (releasing) {
        lock->releasing = NULL;
        hf_future_answer(releasing, err, text);
    }
    hf_handle_unref(lock);
}

void hf_acquire_refuse(struct hf_lock *lock, enum hf_err err, const char *text)
{
    hf_waiting_remove(lock);
    set_acquire_timer(lock, HF_NEVER);
    lock->position = 0;
    lock->pending_events &= LOST_BIT; /* keep LOST of the previous claim */
    atomic_store_explicit(&lock->token, 0, memory_order_relaxed);
    hf_handle_set_state(lock, HF_LOCK_IDLE);
    finish_claim(lock, err, text);
}

void hf_acquire_withdraw_in_background(struct hf_lock *lock)
{
    hf_time until = HF_NEVER;

    /* A push inside hf_withdrawal_start() must not find the claim: it would be
     * reported as held, although it is canceled. */
    hf_waiting_remove(lock);
    if (lock->phase == HF_ACQUIRE_REQUESTING)
        lock->phase = HF_ACQUIRE_WITHDRAWING;
    if (lock->wait_ms == 0)
        until = hf_drift_expired_by(hf_client_now(lock->client), lock->ttl_ms);
    hf_withdrawal_start(lock->client, hf_handle_key(lock), &lock->nonce, until);
}

/* The claim may be queued, may hold the key, or may never have arrived, so
 * cancel it in the background. */
static void refuse_in_doubt(struct hf_lock *lock, const char *text)
{
    hf_acquire_withdraw_in_background(lock);
    hf_acquire_refuse(lock, HF_EINDOUBT, text);
}

static void become_held(struct hf_lock *lock, hf_time base)
{
    hf_waiting_remove(lock);
    set_acquire_timer(lock, HF_NEVER);
    lock->position = 0;
    lock->pending_events = 0; /* drop WAITING, which is outdated */
    hf_validity_begin(lock, base);
    finish_claim(lock, HF_OK, NULL);
}

/* ---- Sending LOCK and LOOKUP --------------------------------------------*/

/* Until when a LOCK may wait inside the client before it is sent: until
 * wait_until, but at least for timeout_ms. */
static hf_time lock_queue_deadline(const struct hf_lock *lock)
{
    hf_time deadline = hf_handle_call_deadline(lock);

    return lock->wait_until > deadline ? lock->wait_until : deadline;
}

static void send_lock(struct hf_lock *lock, enum hf_acquire_phase phase)
{
    struct hf_command *command = &lock->call.request.command;

    lock->phase = phase;
    hf_handle_fill_command(lock, &lock->call, HF_COMMAND_LOCK);
    command->token = 0;
    command->queue = lock->wait_ms > 0;
    command->lease_ms = hf_drift_lease_ms(lock->ttl_ms);
    command->value = lock->value;
    command->note = lock->note;
    lock->call.request.waits = lock->position > 0;
    lock->call.request.keeps = lock->renew;
    if (lock->wait_ms > 0)
        hf_call_start_queued(&lock->call, lock->timeout_ms,
                             lock_queue_deadline(lock));
    else
        hf_call_start(&lock->call, hf_handle_call_deadline(lock));
}

static void send_lookup(struct hf_lock *lock, enum hf_acquire_phase phase,
                        enum hf_consistency how)
{
    lock->phase = phase;
    hf_handle_fill_lookup(lock, &lock->call, how);
    hf_call_start(&lock->call, hf_handle_call_deadline(lock));
}

static enum hf_err draw_nonce(struct hf_lock *lock)
{
    struct hf_client *client = lock->client;

    atomic_store_explicit(&lock->token, 0, memory_order_relaxed);
    lock->first_sent = hf_client_now(client);
    return hf_random_bytes(&client->random, lock->nonce.bytes,
                           sizeof(lock->nonce.bytes));
}

/* If the loss of the previous claim were reported after the next grant, the
 * user would take it for the loss of the new lock. So send the new claim only
 * after the event callback has returned. */
static void defer_claim(struct hf_lock *lock)
{
    lock->phase = HF_ACQUIRE_DEFERRED;
    set_acquire_timer(lock, lock_queue_deadline(lock));
}

enum hf_err hf_acquire_begin(struct hf_lock *lock)
{
    struct hf_client *client = lock->client;
    enum hf_err err = draw_nonce(lock);

    if (err)
        return err;
    hf_handle_set_state(lock, HF_LOCK_CLAIMING);
    hf_validity_clear(lock);
    lock->adopted = false;
    lock->detached = false;
    lock->forced = false;
    lock->recheck = false;
    lock->reported_events = 0;
    lock->pending_events &= LOST_BIT;
    lock->position = 0;
    lock->was_claimed = true;
    lock->wait_until = lock->wait_ms == HF_FOREVER
                           ? HF_NEVER
                           : hf_time_add(hf_client_now(client), lock->wait_ms);
    lock->limit = lock->ttl_includes_wait
                      ? hf_time_add(hf_client_now(client), lock->ttl_ms)
                      : HF_NEVER;
    if (lock->limit < lock->wait_until)
        lock->wait_until = lock->limit;
    if (lock->pending_events & LOST_BIT)
        defer_claim(lock);
    else
        send_lock(lock, HF_ACQUIRE_REQUESTING);
    return HF_OK;
}

void hf_acquire_resume(struct hf_lock *lock)
{
    if (lock->phase != HF_ACQUIRE_DEFERRED)
        return;
    hf_client_reset_now(lock->client);
    set_acquire_timer(lock, HF_NEVER);
    lock->first_sent = hf_client_now(lock->client);
    send_lock(lock, HF_ACQUIRE_REQUESTING);
    hf_loop_flush(lock->client);
}

static void set_refusal_text(struct hf_lock *lock, const char *text)
{
    free(lock->refusal_text);
    lock->refusal_text = text ? strdup(text) : NULL;
}

void hf_acquire_withdraw(struct hf_lock *lock, enum hf_err why)
{
    uint32_t wait_ms =
        lock->timeout_ms < WITHDRAW_MS ? lock->timeout_ms : WITHDRAW_MS;

    if (lock->phase == HF_ACQUIRE_DEFERRED) { /* nothing was sent */
        hf_acquire_refuse(lock, why, NULL);
        return;
    }
    /* Change the phase and leave client->waiting first, so that a push inside
     * hf_call_abandon() does not find the lock. */
    lock->phase = HF_ACQUIRE_WITHDRAWING;
    hf_waiting_remove(lock);
    hf_call_abandon(&lock->call);
    set_acquire_timer(lock, HF_NEVER);
    lock->refusal = why;
    set_refusal_text(lock, NULL);
    hf_handle_fill_command(lock, &lock->call, HF_COMMAND_CANCEL);
    hf_call_start(&lock->call,
                  hf_time_add(hf_client_now(lock->client), wait_ms));
}

/* ---- Waiting in the queue -----------------------------------------------*/

/* Wait for a push, at most until the next poll; or withdraw the claim if
 * wait_until has passed. `answer` is the answer that reported the position, or
 * NULL. */
static void wait_in_queue(struct hf_lock *lock, const struct hf_answer *answer)
{
    struct hf_client *client = lock->client;
    hf_time at;

    if (hf_client_now(client) >= lock->wait_until) {
        hf_acquire_withdraw(lock, HF_ETIMEDOUT);
        return;
    }
    at = hf_time_add(hf_client_now(client), hf_waiting_poll_ms(lock, answer));
    lock->phase = HF_ACQUIRE_QUEUED;
    set_acquire_timer(lock, at < lock->wait_until ? at : lock->wait_until);
}

static void enter_queue(struct hf_lock *lock, const struct hf_answer *answer)
{
    lock->position = answer->result.position;
    hf_waiting_add(lock);
    hf_handle_report(lock, HF_LOCK_EVENT_WAITING);
    wait_in_queue(lock, answer);
}

/* ---- Handling a grant ---------------------------------------------------*/

static void confirm_grant(struct hf_lock *lock, uint64_t token)
{
    atomic_store_explicit(&lock->token, token, memory_order_relaxed);
    hf_waiting_remove(lock);
    set_acquire_timer(lock, HF_NEVER);
    lock->phase = HF_ACQUIRE_CONFIRMING;
    hf_handle_fill_command(lock, &lock->call, HF_COMMAND_RENEW);
    lock->call.request.command.lease_ms = hf_drift_lease_ms(lock->ttl_ms);
    /* Send the value, because some strategies do not store the values of
     * waiters (struct hf_push_grant). */
    lock->call.request.command.value = lock->value;
    hf_call_start(&lock->call, hf_handle_call_deadline(lock));
}

/* Withdraw a lock that was granted too late to be used, or has ended before its
 * grant was reported. With `wait_ms` 0 there was no wait that could time out,
 * so the error is HF_EUNAVAIL: the answer was too slow. */
static void withdraw_late_grant(struct hf_lock *lock)
{
    hf_acquire_withdraw(lock, lock->wait_ms > 0 ? HF_ETIMEDOUT : HF_EUNAVAIL);
    set_refusal_text(lock, "the lock was granted, but ttl_ms had passed when "
                           "the answer arrived; use a longer ttl");
}

/* Report the grant, unless too little validity is left: if validity has already
 * ended, renew the lock first, and if lock->limit has passed, withdraw it. If
 * the claim was `waited` for, the client may not know when the lease began; it
 * assumes the earliest possible instant, and renews the lock first if that
 * leaves less than the ttl. */
static void on_grant(struct hf_lock *lock, uint64_t token,
                     const struct hf_anchor *anchor, bool waited)
{
    hf_time now = hf_client_clock(lock->client);
    hf_time base = hf_drift_lease_base(anchor, lock->first_sent);
    hf_time end = hf_drift_valid_until(base, now, lock->ttl_ms);

    if (now >= lock->limit) {
        withdraw_late_grant(lock);
        return;
    }
    if (end <= now || (waited && end < hf_time_add(now, lock->ttl_ms))) {
        confirm_grant(lock, token);
        return;
    }
    atomic_store_explicit(&lock->token, token, memory_order_relaxed);
    become_held(lock, base);
}

/* Called for a pushed grant. A grant whose nonce no waiting claim has is
 * ignored: the claim is being withdrawn, or was granted by an earlier answer.
 * In the latter case the lock may have been detached since, and belong to
 * another process. */
void hf_acquire_on_grant(struct hf_host *host,
                         const struct hf_push_grant *grant)
{
    struct hf_client *client = HF_CONTAINER(host, struct hf_client, host);
    struct hf_lock *lock = hf_waiting_find(client, &grant->nonce);
    bool has_open_lock;

    if (!lock)
        return;
    /* A LOCK in flight could be granted again after the lease has expired. A
     * RENEW prevents that: afterwards the server refuses a LOCK of this nonce
     * with a lower sequence number. */
    has_open_lock = hf_call_is_open(&lock->call) &&
                    !lock->call.request.answered &&
                    lock->call.request.kind == HF_REQUEST_COMMAND;
    hf_call_abandon(&lock->call);
    if (has_open_lock || grant->offered)
        confirm_grant(lock, grant->token);
    else
        on_grant(lock, grant->token, &grant->anchor, true);
}

void hf_acquire_on_nudge(struct hf_host *host, const struct hf_nonce *nonce)
{
    struct hf_client *client = HF_CONTAINER(host, struct hf_client, host);
    struct hf_lock *lock = hf_waiting_find(client, nonce);

    if (lock && lock->phase == HF_ACQUIRE_QUEUED)
        set_acquire_timer(lock, hf_client_now(client));
}

/* ---- Answers and timers -------------------------------------------------*/

/* Returns true if `err`, the result of a poll, means that a queued claim can
 * never be granted: the store is damaged or was removed, or the key holds data
 * that is not a lock. */
static bool is_final_error(enum hf_err err)
{
    return err == HF_EPROTO || err == HF_EINVAL;
}

/* A copy of the LOCK was refused with `err`, but an earlier copy is in doubt.
 * It may have been executed, or may still arrive: the server keeps no result
 * for errors such as HF_ENOMEM, so it would execute that copy as a new
 * command. */
static void withdraw_refused(struct hf_lock *lock, enum hf_err err,
                             const char *cause)
{
    char *text = cause ? strdup(cause) : NULL;

    hf_acquire_withdraw(lock, err); /* clears `cause` */
    set_refusal_text(lock, text);
    free(text);
}

static void on_lock_reply(struct hf_lock *lock, const struct hf_answer *answer)
{
    bool polling = lock->phase == HF_ACQUIRE_POLLING;
    enum hf_err err = answer->result.err;

    if (err == HF_OK)
        on_grant(lock, answer->result.token, &answer->anchor,
                 polling || lock->call.in_doubt);
    else if (err == HF_EBUSY && answer->result.position > 0)
        enter_queue(lock, answer);
    else if (polling && !is_final_error(err))
        wait_in_queue(lock, NULL); /* the claim may still be queued */
    else if (answer->session_gone)
        send_lookup(lock, HF_ACQUIRE_RESOLVING, HF_LINEARIZABLE);
    else if (err == HF_EINDOUBT)
        refuse_in_doubt(lock, answer->cause);
    else if (lock->call.expired_unsent)
        hf_acquire_refuse(lock, HF_ETIMEDOUT, NULL);
    else if (lock->call.in_doubt && !polling && err != HF_EBUSY)
        withdraw_refused(lock, err, answer->cause);
    else {
        /* A claim that was polling may still be in the queue. If HF_EBUSY
         * answers a repeated LOCK, no copy of it has been granted, but one may
         * still arrive. */
        if (polling || lock->call.in_doubt)
            hf_acquire_withdraw_in_background(lock);
        hf_acquire_refuse(lock, err, answer->cause);
    }
}

/* Send LOCK again with a new nonce, and cancel the old nonce in the background.
 * For the user it is still the same claim: wait_until does not change. */
static void restart_claim(struct hf_lock *lock)
{
    enum hf_err err;

    /* This turn may have lasted longer than the lease. Read the clock again: if
     * validity counted from the start of this turn, it would end before the
     * next grant arrives. */
    hf_client_reset_now(lock->client);
    set_acquire_timer(lock, HF_NEVER);
    lock->position = 0;
    hf_acquire_withdraw_in_background(lock);
    err = draw_nonce(lock);
    if (err)
        hf_acquire_refuse(lock, err, NULL);
    else
        send_lock(lock, HF_ACQUIRE_REQUESTING);
}

/* A linearizable LOOKUP has not found the claim: it was granted and has ended,
 * or it was withdrawn with its session, or its LOCK was never executed. No copy
 * of that LOCK can be executed any more (session.h). */
static void on_unknown_claim(struct hf_lock *lock)
{
    if (lock->wait_ms > 0 && hf_client_now(lock->client) >= lock->wait_until)
        hf_acquire_refuse(lock, HF_ETIMEDOUT, NULL);
    else
        restart_claim(lock);
}

/* The LOOKUP has failed, so the claim may still be queued, or hold the key. */
static void on_failed_lookup(struct hf_lock *lock,
                             const struct hf_answer *answer)
{
    enum hf_err err = answer->result.err;

    if (lock->phase == HF_ACQUIRE_RESOLVING) {
        refuse_in_doubt(lock, answer->cause);
    } else if (is_final_error(err)) {
        hf_acquire_withdraw_in_background(lock);
        hf_acquire_refuse(lock, err, answer->cause);
    } else {
        wait_in_queue(lock, NULL);
    }
}

/* A local LOOKUP may be older than the LOCK, so a linearizable one confirms
 * that the claim is unknown. */
static void on_lookup_reply(struct hf_lock *lock,
                            const struct hf_answer *answer)
{
    const struct hf_result *result = &answer->result;

    if (result->err == HF_OK && lock->phase == HF_ACQUIRE_RESOLVING)
        confirm_grant(lock, result->token);
    else if (result->err == HF_OK)
        on_grant(lock, result->token, &answer->anchor, true);
    else if (result->err == HF_EBUSY)
        enter_queue(lock, answer);
    else if (result->err != HF_ENOTHELD)
        on_failed_lookup(lock, answer);
    else if (lock->call.request.how == HF_LINEARIZABLE)
        on_unknown_claim(lock);
    else
        send_lookup(lock, HF_ACQUIRE_POLLING, HF_LINEARIZABLE);
}

static void on_renew_reply(struct hf_lock *lock, const struct hf_answer *answer)
{
    enum hf_err err = answer->result.err;
    hf_time now = hf_client_clock(lock->client);
    hf_time base = hf_drift_lease_base(&answer->anchor, lock->call.first_sent);

    if (err == HF_EINDOUBT || err == HF_EUNAVAIL)
        refuse_in_doubt(lock, answer->cause);
    else if (err == HF_OK && now < lock->limit &&
             hf_drift_valid_until(base, now, lock->ttl_ms) > now)
        become_held(lock, base);
    else if (lock->wait_ms > 0 && now < lock->wait_until)
        restart_claim(lock); /* the lock has ended, or no validity is left */
    else
        withdraw_late_grant(lock);
}

static void on_withdraw_reply(struct hf_lock *lock,
                              const struct hf_answer *answer)
{
    enum hf_err err = answer->result.err;

    if (err == HF_OK || err == HF_ENOTHELD)
        hf_acquire_refuse(lock, lock->refusal, lock->refusal_text);
    else
        refuse_in_doubt(lock, answer->cause);
}

void hf_acquire_on_settled(struct hf_lock *lock)
{
    const struct hf_answer *answer = &lock->call.request.answer;

    if (lock->phase == HF_ACQUIRE_WITHDRAWING)
        on_withdraw_reply(lock, answer);
    else if (lock->phase == HF_ACQUIRE_CONFIRMING)
        on_renew_reply(lock, answer);
    else if (lock->call.request.kind == HF_REQUEST_LOOKUP)
        on_lookup_reply(lock, answer);
    else
        on_lock_reply(lock, answer);
}

void hf_acquire_on_timer(struct hf_lock *lock)
{
    if (lock->phase == HF_ACQUIRE_DEFERRED) {
        hf_acquire_refuse(
            lock, HF_ETIMEDOUT,
            "not sent: the loss of the previous claim must be reported first, "
            "and another callback is still running");
    } else if (hf_client_now(lock->client) >= lock->wait_until) {
        hf_acquire_withdraw(lock, HF_ETIMEDOUT);
    } else {
        /* Set the timer first, because sending may complete the claim and
         * clear the timer. */
        set_acquire_timer(lock, lock->wait_until);
        if (lock->client->strategy->looks_up)
            send_lookup(lock, HF_ACQUIRE_POLLING, HF_LOCAL);
        else
            send_lock(lock, HF_ACQUIRE_POLLING);
    }
}
