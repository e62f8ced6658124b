/* lock.c - the public functions that acquire or adopt a lock. */
#include "client/lock.h"

#include <stdlib.h>
#include <string.h>

#include "client/background.h"
#include "client/client.h"
#include "client/options.h"

/* ---- Callers ------------------------------------------------------------*/

static void forget_caller(const struct hf_acquire_caller *caller)
{
    if (caller->lock->answered == caller)
        caller->lock->answered = NULL;
}

static void release_caller(struct hf_future *future)
{
    struct hf_acquire_caller *caller =
        HF_CONTAINER(future, struct hf_acquire_caller, future);

    forget_caller(caller);
    /* hf_acquire_start() created the handle. If the claim was not granted, the
     * user never got the handle, so drop the user's reference here. */
    if (caller->out && !caller->granted)
        hf_handle_unref(caller->lock);
    hf_handle_unref(caller->lock);
    free(caller);
}

static void cancel_claim(struct hf_future *future)
{
    struct hf_acquire_caller *caller =
        HF_CONTAINER(future, struct hf_acquire_caller, future);

    if (caller->lock->phase != HF_ACQUIRE_WITHDRAWING)
        hf_acquire_withdraw(caller->lock, HF_ECANCELED);
}

/* The caller holds a reference to `lock`. */
static struct hf_acquire_caller *new_caller(struct hf_lock *lock,
                                            hf_done_fn *done, void *arg)
{
    struct hf_acquire_caller *caller = calloc(1, sizeof(*caller));

    if (!caller)
        return NULL;
    hf_future_init(&caller->future, lock->client, done, arg);
    caller->future.release = release_caller;
    caller->future.cancel = cancel_claim;
    caller->lock = lock;
    hf_handle_ref(lock);
    return caller;
}

static enum hf_err start_claim(struct hf_lock *lock, struct hf_lock **out,
                               hf_done_fn *done, void *arg,
                               struct hf_future **future)
{
    struct hf_acquire_caller *caller = new_caller(lock, done, arg);
    enum hf_err err;

    if (!caller)
        return HF_ENOMEM;
    caller->out = out;
    /* hf_acquire_begin() may complete the claim, which drops a reference. */
    caller->future.references++;
    lock->caller = caller;
    err = hf_acquire_begin(lock);
    if (err) {
        lock->caller = NULL;
        hf_handle_unref(lock);
        free(caller);
        return err;
    }
    hf_future_give(&caller->future, future);
    hf_future_unref(&caller->future);
    return HF_OK;
}

/* ---- Acquiring with a new handle ----------------------------------------*/

/* Check the arguments, set `checked` to the options with their defaults, and
 * enter the client. On failure the client is not entered. */
static enum hf_err enter_checked(struct hf_client *client, struct hf_key key,
                                 const struct hf_lock_opts *opts,
                                 struct hf_lock_opts *checked)
{
    struct hf_error discarded;
    struct hf_error *error = hf_options_lock_error(opts, &discarded);
    enum hf_err invalid = hf_options_key(key, error);
    enum hf_err err;

    if (!invalid)
        invalid = hf_options_lock(checked, opts, error);
    err = hf_client_enter(client);
    if (invalid && !err) {
        hf_client_fail(client, invalid, "%s", error->text);
        hf_client_leave(client);
    }
    if (invalid)
        return invalid;
    return err ? hf_error_set_code(error, err) : HF_OK;
}

/* Leave the client. A failed call returns no handle for hf_lock_error(), so
 * store its message in `error`, which is opts->error. */
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

/* If the lock is renewed or has an event callback, start the client's threads:
 * a program that makes blocking calls has no event loop that would drive the
 * client between them. */
static enum hf_err ensure_lock_driver(struct hf_lock *lock)
{
    return hf_handle_needs_driver(lock) ? hf_background_ensure(lock->client)
                                        : HF_OK;
}

/* Start a claim and wait for its result. A callback may start another claim on
 * the handle meanwhile; this function returns the result of the claim that it
 * started. */
static enum hf_err claim_blocking(struct hf_lock *lock)
{
    struct hf_acquire_caller caller = {.lock = lock};
    enum hf_err err = ensure_lock_driver(lock);

    if (err)
        return err;
    hf_future_init(&caller.future, lock->client, NULL, NULL);
    caller.future.release = hf_future_release_nothing;
    caller.future.cancel = cancel_claim;
    /* The claim ends before this function returns, and clears this. */
    /* cppcheck-suppress autoVariables */
    lock->caller = &caller;
    err = hf_acquire_begin(lock);
    if (err) {
        lock->caller = NULL;
        return err;
    }
    err = hf_future_await(&caller.future);
    forget_caller(&caller);
    return err;
}

static enum hf_err acquire_blocking(struct hf_client *client, struct hf_key key,
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
        /* The user gets no handle and cannot call hf_lock_free(), which would
         * wait for a running callback, so wait here. */
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
                            acquire_blocking(client, key, &checked, lock));
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

/* ---- Acquiring with an existing handle ----------------------------------*/

/* Check that the handle can be claimed. The previous claim of a lost handle is
 * withdrawn in the background, unless it was adopted: an adopted claim may
 * still be valid in another process. */
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
        hf_client_fail(lock->client, err, "acquire: %s", hf_err_text(err));
    hf_client_leave(lock->client);
    return err;
}

/* Wait for the claim that is pending now. If no claim is pending, return the
 * result of the last claim, or HF_ESTATE if there was none. */
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
        return HF_ECANCELED; /* the handle was freed before this thread ran */
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
    hf_handle_ref(lock); /* another thread may free the handle */
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
    hf_handle_ref(lock); /* another thread may free the handle */
    err = hf_loop_is_in_callback(client) ? HF_EDEADLK : prepare_claim(lock);
    if (err)
        hf_client_fail(client, err, "acquire: %s", hf_err_text(err));
    else
        err = claim_blocking(lock);
    hf_handle_unref(lock);
    hf_client_leave(client);
    return err;
}

/* ---- Running a function under a lock ------------------------------------*/

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
        err = HF_EEXPIRED; /* validity has ended, but not the lease */
    hf_lock_free(lock);
    if (result)
        *result = code;
    return err;
}
