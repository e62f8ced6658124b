/* release.c - releasing a lock, and freeing or closing its handle. */
#include "client/release.h"

#include <stdlib.h>

#include "client/acquire.h"
#include "client/client.h"
#include "client/keeper.h"
#include "client/validity.h"

void hf_release_begin(struct hf_lock *lock)
{
    bool lost = lock->state == HF_LOCK_LOST && !lock->adopted;

    lock->held_until = atomic_load(&lock->valid_until);
    hf_validity_clear(lock);
    hf_keeper_stop(lock);
    lock->pending_events = 0;
    hf_handle_set_state(lock, HF_LOCK_RELEASING);
    /* For a lost lock send CANCEL, which ends the claim whatever its token is:
     * the server may still keep the lock, or a delayed copy of the LOCK may
     * have been granted with another token. */
    hf_handle_fill_command(lock, &lock->call,
                           lost ? HF_COMMAND_CANCEL : HF_COMMAND_UNLOCK);
    hf_handle_ref(lock); /* dropped by hf_release_on_settled() */
    hf_call_start(&lock->call, hf_handle_call_deadline(lock));
}

/* If the session in which UNLOCK was sent is gone, no copy of it can be
 * executed any more. Send a linearizable LOOKUP, which shows whether one was:
 * if the claim still holds the key, send UNLOCK again, as a new command.
 * Returns true if a request was sent. */
static bool continue_release(struct hf_lock *lock)
{
    struct hf_call *call = &lock->call;
    const struct hf_answer *answer = &call->request.answer;
    bool was_lookup = call->request.kind == HF_REQUEST_LOOKUP;

    if (lock->client->closed)
        return false;
    if (was_lookup && answer->result.err == HF_OK)
        hf_handle_fill_command(lock, call, HF_COMMAND_UNLOCK);
    else if (call->request.command.kind == HF_COMMAND_UNLOCK &&
             answer->session_gone)
        hf_handle_fill_lookup(lock, call, HF_LINEARIZABLE);
    else
        return false;
    hf_call_start(call, call->deadline);
    return true;
}

/* If the claim is unknown before its lease can have ended, UNLOCK has ended it.
 * Later, nothing shows what has ended it. */
static enum hf_err lookup_result(const struct hf_lock *lock)
{
    if (lock->call.request.answer.result.err == HF_ENOTHELD &&
        hf_client_clock(lock->client) < lock->held_until)
        return HF_OK;
    return HF_EINDOUBT;
}

static enum hf_err release_result(const struct hf_lock *lock)
{
    const struct hf_call *call = &lock->call;
    const struct hf_result *result = &call->request.answer.result;
    enum hf_err err = result->err;

    if (call->request.kind == HF_REQUEST_LOOKUP)
        return lookup_result(lock);
    if (call->request.command.kind == HF_COMMAND_CANCEL && err == HF_OK &&
        result->token != atomic_load(&lock->token))
        return HF_EEXPIRED;
    if (err != HF_ENOTHELD && err != HF_ENOTOWNER)
        return err;
    /* An earlier copy of this UNLOCK may have released the lock. A strategy
     * that has proof of that returns HF_OK. A free key is no proof, because the
     * lease may have expired or the server may have lost its data, so the
     * result is in doubt. */
    if (call->request.command.kind == HF_COMMAND_UNLOCK && call->in_doubt &&
        !call->request.answer.sure)
        return HF_EINDOUBT;
    return lock->adopted ? err : HF_EEXPIRED;
}

void hf_release_on_settled(struct hf_lock *lock)
{
    struct hf_future *releasing = lock->releasing;
    const char *cause = lock->call.request.answer.cause;
    enum hf_err err;

    if (continue_release(lock))
        return;
    err = release_result(lock);
    lock->releasing = NULL;
    hf_handle_set_state(lock, HF_LOCK_IDLE);
    if (err)
        hf_handle_set_failure(lock, err, cause);
    hf_future_answer(releasing, err, cause);
    hf_handle_unref(lock);
}

/* ---- hf_release() -------------------------------------------------------*/

/* Start the release. If a claim is pending, finish_claim() starts the release
 * when the claim completes. */
static enum hf_err start_or_defer_release(struct hf_lock *lock,
                                          struct hf_future *future)
{
    if (lock->releasing || lock->state == HF_LOCK_IDLE)
        return HF_ESTATE;
    lock->releasing = future;
    if (lock->state == HF_LOCK_CLAIMING)
        return HF_OK;
    if (lock->state == HF_LOCK_HELD && hf_validity_state(lock) == HF_LOCK_LOST)
        hf_validity_lose(lock, HF_EEXPIRED, NULL);
    hf_release_begin(lock);
    return HF_OK;
}

enum hf_err hf_release(struct hf_lock *lock)
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
    future.release = hf_future_release_nothing;
    hf_client_ref(client); /* another thread may free the handle meanwhile */
    err = hf_loop_is_in_callback(client)
              ? HF_EDEADLK
              : start_or_defer_release(lock, &future);
    if (err)
        hf_client_fail(client, err, "release: %s", hf_err_text(err));
    else
        err = hf_future_await(&future);
    hf_client_unref(client);
    hf_client_leave(client);
    return err;
}

enum hf_err hf_release_start(struct hf_lock *lock, hf_done_fn *done, void *arg,
                             struct hf_future **future)
{
    struct hf_future *new_future;
    struct hf_client *client;
    enum hf_err err;

    if (!lock)
        return HF_EINVAL;
    client = lock->client;
    err = hf_client_enter(client);
    if (err)
        return err;
    new_future = malloc(sizeof(*new_future));
    err = new_future ? HF_OK : HF_ENOMEM;
    if (new_future) {
        hf_future_init(new_future, client, done, arg);
        new_future->release = hf_future_release_heap;
        err = start_or_defer_release(lock, new_future);
    }
    if (err) {
        free(new_future);
        hf_client_fail(client, err, "release: %s", hf_err_text(err));
    } else {
        hf_client_ref(client);
        hf_future_give(new_future, future);
    }
    hf_client_leave(client);
    return err;
}

/* ---- Detaching, closing and freeing -------------------------------------*/

enum hf_err hf_lock_detach(struct hf_lock *lock)
{
    struct hf_client *client;
    enum hf_err err;

    if (!lock)
        return HF_EINVAL;
    client = lock->client;
    err = hf_client_enter(client);
    if (err)
        return err;
    if (hf_validity_state(lock) != HF_LOCK_HELD) {
        err = HF_ESTATE;
        hf_client_fail(client, err, "detach: %s", hf_err_text(err));
    } else {
        if (client->strategy->detach)
            client->strategy->detach(client->self);
        hf_keeper_stop(lock);
        lock->pending_events = 0;
        hf_validity_clear(lock);
        hf_handle_set_state(lock, HF_LOCK_IDLE);
        lock->detached = true;
    }
    hf_client_leave(client);
    return err;
}

/* Withdraw the claim in the background, unless it was adopted. A pending claim
 * completes with `err`. */
static void abandon_claim(struct hf_lock *lock, enum hf_err err)
{
    bool has_claim = lock->state == HF_LOCK_CLAIMING ||
                     lock->state == HF_LOCK_HELD || lock->state == HF_LOCK_LOST;

    hf_validity_clear(lock);
    hf_keeper_stop(lock);
    lock->pending_events = 0;
    if (has_claim && !lock->adopted) {
        hf_call_abandon(&lock->call);
        hf_acquire_withdraw_in_background(lock);
    }
    if (lock->state == HF_LOCK_CLAIMING)
        hf_acquire_refuse(lock, err, NULL);
    else if (lock->state == HF_LOCK_HELD || lock->state == HF_LOCK_LOST)
        hf_handle_set_state(lock, HF_LOCK_IDLE);
}

void hf_release_on_close(struct hf_lock *lock)
{
    hf_handle_ref(lock);
    abandon_claim(lock, HF_ECLOSED);
    if (lock->client->closed && lock->state == HF_LOCK_RELEASING) {
        hf_call_abandon(&lock->call);
        lock->call.request.answer.result.err = HF_EINDOUBT;
        hf_release_on_settled(lock);
    }
    hf_handle_unref(lock);
}

/* If the claim was granted and its caller has not seen the result, change the
 * result to HF_ECANCELED, so that the caller does not get a freed handle. */
static void cancel_unobserved(struct hf_lock *lock)
{
    struct hf_acquire_caller *caller = lock->answered;

    if (!caller || caller->future.is_observed)
        return;
    caller->future.err = HF_ECANCELED;
    if (caller->out)
        *caller->out = NULL;
}

/* An event callback may free a handle that hf_acquire() has not returned yet.
 * In that case the user has no reference to drop, and hf_acquire() drops its
 * own reference. */
void hf_lock_free(struct hf_lock *lock)
{
    struct hf_client *client;
    bool user_has_reference;

    if (!lock)
        return;
    client = lock->client;
    if (hf_client_enter_any(client))
        return;
    lock->freed = true;
    user_has_reference = lock->user_has_reference;
    cancel_unobserved(lock);
    abandon_claim(lock, HF_ECANCELED);
    hf_handle_ref(lock);
    hf_loop_await_callback(client, &lock->callback);
    hf_handle_unref(lock);
    if (user_has_reference)
        hf_handle_unref(lock);
    hf_client_leave(client);
}
