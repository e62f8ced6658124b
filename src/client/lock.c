/* lock.c - what the user calls to take a lock. */
#include "client/lock.h"

#include <stdlib.h>
#include <string.h>

#include "client/background.h"
#include "client/client.h"
#include "client/options.h"

/* ---- Who waits for a claim ----------------------------------------------*/

static void forget_claimant(const struct hf_claimant *claimant)
{
    if (claimant->lock->answered == claimant)
        claimant->lock->answered = NULL;
}

static void release_claimant(struct hf_future *future)
{
    struct hf_claimant *claimant =
        HF_CONTAINER(future, struct hf_claimant, future);

    forget_claimant(claimant);
    /* hf_acquire_start() gave the handle away, or it was never granted. */
    if (claimant->out && !claimant->granted)
        hf_handle_unref(claimant->lock);
    hf_handle_unref(claimant->lock);
    free(claimant);
}

static void cancel_claim(struct hf_future *future)
{
    struct hf_claimant *claimant =
        HF_CONTAINER(future, struct hf_claimant, future);

    if (claimant->lock->phase != HF_ACQUIRE_WITHDRAWING)
        hf_acquire_withdraw(claimant->lock, HF_ECANCELED);
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
    hf_handle_ref(lock);
    return claimant;
}

static enum hf_err start_claim(struct hf_lock *lock, struct hf_lock **out,
                               hf_done_fn *done, void *arg,
                               struct hf_future **future)
{
    struct hf_claimant *claimant = new_claimant(lock, done, arg);
    enum hf_err err;

    if (!claimant)
        return HF_ENOMEM;
    claimant->out = out;
    claimant->future.references++; /* it may be answered at once */
    lock->claimant = claimant;
    err = hf_acquire_begin(lock);
    if (err) {
        lock->claimant = NULL;
        hf_handle_unref(lock);
        free(claimant);
        return err;
    }
    hf_future_give(&claimant->future, future);
    hf_future_unref(&claimant->future);
    return HF_OK;
}

/* ---- Taking -------------------------------------------------------------*/

/* Look at what is asked for, and enter the client. HF_OK: leave it. */
static enum hf_err enter_checked(struct hf_client *client, struct hf_key key,
                                 const struct hf_lock_opts *opts,
                                 struct hf_lock_opts *checked)
{
    struct hf_error discarded;
    struct hf_error *error = hf_options_lock_error(opts, &discarded);
    enum hf_err wrong = hf_options_key(key, error);
    enum hf_err err;

    if (!wrong)
        wrong = hf_options_lock(checked, opts, error);
    err = hf_client_enter(client);
    if (wrong && !err) {
        hf_client_fail(client, wrong, "%s", error->text);
        hf_client_leave(client);
    }
    if (wrong)
        return wrong;
    return err ? hf_error_set_code(error, err) : HF_OK;
}

/* With words for a failure, which leaves no handle to ask. */
static enum hf_err leave_with_error(struct hf_client *client,
                                    struct hf_error *error, enum hf_err err)
{
    if (err && error && client->error.code == err)
        *error = client->error;
    else if (err)
        hf_error_set_code(error, err);
    hf_client_leave(client);
    return err;
}

/* Who blocks has no event loop: what is to be renewed or told while no call is
 * open wants a thread. */
static enum hf_err ensure_lock_driver(struct hf_lock *lock)
{
    return hf_handle_needs_driver(lock) ? hf_background_ensure(lock->client)
                                        : HF_OK;
}

/* Begin a claim, and wait for the answer to this claim and no other. */
static enum hf_err claim_blocking(struct hf_lock *lock)
{
    struct hf_claimant claimant = {.lock = lock};
    enum hf_err err = ensure_lock_driver(lock);

    if (err)
        return err;
    hf_future_init(&claimant.future, lock->client, NULL, NULL);
    claimant.future.release = hf_future_release_nothing;
    claimant.future.cancel = cancel_claim;
    lock->claimant = &claimant;
    err = hf_acquire_begin(lock);
    if (err) {
        lock->claimant = NULL;
        return err;
    }
    err = hf_future_await(&claimant.future);
    forget_claimant(&claimant);
    return err;
}

static enum hf_err lock_blocking(struct hf_client *client, struct hf_key key,
                                 const struct hf_lock_opts *opts,
                                 struct hf_lock **out)
{
    struct hf_lock *lock;
    enum hf_err err;

    if (hf_loop_is_in_callback(client))
        return HF_EDEADLK;
    err = hf_handle_new(client, key, opts, &lock);
    if (err)
        return err;
    err = claim_blocking(lock);
    if (!err) {
        lock->user_has_reference = true;
        *out = lock;
    } else if (err != HF_EFORK) {
        /* No handle is left whose hf_lock_free() would wait. */
        hf_loop_await_callback(client, &lock->callback);
        hf_handle_unref(lock);
    }
    return err;
}

enum hf_err hf_acquire(struct hf_client *client, struct hf_key key,
                       const struct hf_lock_opts *opts, struct hf_lock **lock)
{
    struct hf_lock_opts checked;
    enum hf_err err;

    if (!client || !lock)
        return HF_EINVAL;
    err = enter_checked(client, key, opts, &checked);
    if (err)
        return err;
    return leave_with_error(client, checked.error,
                            lock_blocking(client, key, &checked, lock));
}

enum hf_err hf_acquire_start(struct hf_client *client, struct hf_key key,
                             const struct hf_lock_opts *opts,
                             struct hf_lock **lock, hf_done_fn *done, void *arg,
                             struct hf_future **future)
{
    struct hf_lock_opts checked;
    struct hf_lock *new_lock;
    enum hf_err err;

    if (!client || !lock)
        return HF_EINVAL;
    err = enter_checked(client, key, opts, &checked);
    if (err)
        return err;
    err = hf_handle_new(client, key, &checked, &new_lock);
    if (!err) {
        err = start_claim(new_lock, lock, done, arg, future);
        if (err)
            hf_handle_unref(new_lock);
    }
    return leave_with_error(client, checked.error, err);
}

enum hf_err hf_lock_new(struct hf_client *client, struct hf_key key,
                        const struct hf_lock_opts *opts, struct hf_lock **lock)
{
    struct hf_lock_opts checked;
    struct hf_lock *new_lock;
    enum hf_err err;

    if (!client || !lock)
        return HF_EINVAL;
    err = enter_checked(client, key, opts, &checked);
    if (err)
        return err;
    err = hf_handle_new(client, key, &checked, &new_lock);
    if (!err && !checked.idle) {
        err = hf_acquire_begin(new_lock);
        if (err)
            hf_handle_unref(new_lock);
    }
    if (!err) {
        new_lock->user_has_reference = true;
        *lock = new_lock;
    }
    return leave_with_error(client, checked.error, err);
}

enum hf_err hf_lock_adopt(struct hf_client *client, struct hf_key key,
                          const uint8_t nonce[HF_NONCE_SIZE], uint64_t token,
                          const struct hf_lock_opts *opts,
                          struct hf_lock **lock)
{
    struct hf_lock_opts checked;
    struct hf_lock *new_lock;
    enum hf_err err;

    if (!client || !lock || !nonce || token == 0)
        return HF_EINVAL;
    err = enter_checked(client, key, opts, &checked);
    if (err)
        return err;
    err = hf_handle_new(client, key, &checked, &new_lock);
    if (!err) {
        memcpy(new_lock->nonce.bytes, nonce, HF_NONCE_SIZE);
        atomic_store(&new_lock->token, token);
        new_lock->adopted = true;
        new_lock->user_has_reference = true;
        hf_handle_set_state(new_lock, HF_LOCK_HELD);
        *lock = new_lock;
    }
    return leave_with_error(client, checked.error, err);
}

/* ---- Claiming again -----------------------------------------------------*/

/* A lost handle may claim again. Its old claim is ended in the background, but
 * only if it is its own: what was adopted may be valid for somebody else. */
static enum hf_err prepare_claim(struct hf_lock *lock)
{
    enum hf_state state = hf_validity_state(lock);

    if (state == HF_LOCK_IDLE)
        return HF_OK;
    if (state != HF_LOCK_LOST)
        return HF_ESTATE;
    hf_validity_lose(lock, HF_EEXPIRED, NULL);
    if (!lock->adopted)
        hf_acquire_withdraw_in_background(lock);
    return HF_OK;
}

enum hf_err hf_lock_acquire_start(struct hf_lock *lock, hf_done_fn *done,
                                  void *arg, struct hf_future **future)
{
    enum hf_err err;

    if (!lock)
        return HF_EINVAL;
    err = hf_client_enter(lock->client);
    if (err)
        return err;
    err = prepare_claim(lock);
    if (!err)
        err = start_claim(lock, NULL, done, arg, future);
    if (err)
        hf_client_fail(lock->client, err, "claim: %s", hf_err_text(err));
    hf_client_leave(lock->client);
    return err;
}

/* A claim that ends while this waits is answered to it, whatever becomes of the
 * handle next. */
static enum hf_err await_claim(struct hf_lock *lock)
{
    struct hf_acquire_waiter waiter = {.err = HF_OK};
    enum hf_err err;

    hf_host_settle_answers(lock->client);
    if (lock->state != HF_LOCK_CLAIMING)
        return lock->was_claimed ? lock->claim_result : HF_ESTATE;
    if (hf_loop_is_in_callback(lock->client))
        return HF_EDEADLK;
    hf_loop_set_interruptible(lock->client, &waiter.blocked, true);
    hf_dlist_push_back(&lock->claim_waiters, &waiter.link);
    err = hf_loop_wait(lock->client, &waiter.blocked, HF_NEVER);
    if (err == HF_EINTR || err == HF_EFORK)
        waiter.err = err;
    hf_dlist_remove(&waiter.link);
    if (lock->freed && !waiter.err)
        return HF_ECANCELED; /* granted, and freed before this thread ran */
    return waiter.err;
}

enum hf_err hf_lock_wait(struct hf_lock *lock)
{
    struct hf_client *client;
    enum hf_err err;

    if (!lock)
        return HF_EINVAL;
    client = lock->client;
    err = hf_client_enter(client);
    if (err)
        return err;
    hf_handle_ref(lock); /* it may be freed meanwhile */
    err = hf_loop_is_in_callback(client) ? HF_OK : ensure_lock_driver(lock);
    if (!err)
        err = await_claim(lock);
    hf_handle_unref(lock);
    hf_client_leave(client);
    return err;
}

enum hf_err hf_lock_acquire(struct hf_lock *lock)
{
    struct hf_client *client;
    enum hf_err err;

    if (!lock)
        return HF_EINVAL;
    client = lock->client;
    err = hf_client_enter(client);
    if (err)
        return err;
    hf_handle_ref(lock); /* it may be freed meanwhile */
    err = hf_loop_is_in_callback(client) ? HF_EDEADLK : prepare_claim(lock);
    if (err)
        hf_client_fail(client, err, "claim: %s", hf_err_text(err));
    else
        err = claim_blocking(lock);
    hf_handle_unref(lock);
    hf_client_leave(client);
    return err;
}

/* ---- A function under a lock --------------------------------------------*/

enum hf_err hf_run(struct hf_client *client, struct hf_key key,
                   const struct hf_lock_opts *opts, hf_run_fn *run, void *arg,
                   int *result)
{
    struct hf_lock *lock = NULL;
    enum hf_err err;
    bool lost;
    int code;

    if (!run)
        return HF_EINVAL;
    err = hf_acquire(client, key, opts, &lock);
    if (err)
        return err;
    code = run(lock, arg);
    lost = hf_lock_state(lock) != HF_LOCK_HELD;
    err = hf_release(lock);
    if (lost && err == HF_OK)
        err = HF_EEXPIRED; /* the server had it; who ran could not know */
    hf_lock_free(lock);
    if (result)
        *result = code;
    return err;
}
