#include "client/operation.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "client/background.h"
#include "client/client.h"
#include "client/drift.h"
#include "client/lock.h"
#include "client/options.h"

static void release_operation(struct hf_future *future)
{
    struct hf_operation *operation =
        HF_CONTAINER(future, struct hf_operation, future);
    struct hf_client *client = future->client;

    hf_call_fini(&operation->call);
    if (operation->lock)
        hf_handle_unref(operation->lock);
    free(operation);
    hf_client_unref(client);
}

void hf_operation_end(struct hf_operation *operation, enum hf_err err)
{
    hf_call_abandon(&operation->call);
    hf_dlist_remove(&operation->link);
    hf_dlist_remove(&operation->list_callback.link);
    if (operation->is_calling) {
        atomic_store(&operation->ended, err);
        return;
    }
    hf_future_answer(&operation->future, err, NULL);
}

/* The result is HF_EINDOUBT for a command that was sent, because the server may
 * execute it; otherwise HF_ECANCELED. */
static void cancel_operation(struct hf_future *future)
{
    struct hf_operation *operation =
        HF_CONTAINER(future, struct hf_operation, future);
    bool in_doubt = operation->call.request.kind == HF_REQUEST_COMMAND &&
                    operation->call.attempts > 0;

    hf_operation_end(operation, in_doubt ? HF_EINDOUBT : HF_ECANCELED);
}

static void on_operation_settled(struct hf_call *call)
{
    struct hf_operation *operation =
        HF_CONTAINER(call, struct hf_operation, call);
    enum hf_err err = call->request.answer.result.err;

    if (operation->each && !err) {
        hf_loop_queue_callback(call->client, &operation->list_callback, false);
        return;
    }
    if (operation->finish)
        err = operation->finish(operation);
    if (operation->lock && err)
        hf_handle_set_failure(operation->lock, err, call->request.answer.cause);
    hf_dlist_remove(&operation->link);
    hf_future_answer(&operation->future, err, call->request.answer.cause);
}

/* Copy `from` to `*at` and advance `*at`. Returns the copy. */
static const void *append_operand(uint8_t **at, const void *from, size_t size)
{
    uint8_t *start = *at;

    hf_copy(start, from, size);
    *at += size;
    return start;
}

enum hf_err hf_operation_new(struct hf_client *client,
                             enum hf_request_kind kind,
                             const struct hf_command *command,
                             struct hf_listener listener,
                             struct hf_operation **operation)
{
    size_t size =
        command->key.size + command->value.size + command->expected.size;
    struct hf_operation *new_operation =
        calloc(1, sizeof(*new_operation) + size);
    struct hf_command *copy;
    uint8_t *at;
    enum hf_err err;

    if (!new_operation)
        return HF_ENOMEM;
    err = hf_call_init(&new_operation->call, client, on_operation_settled);
    if (err) {
        free(new_operation);
        return err;
    }
    at = new_operation->bytes;
    copy = &new_operation->call.request.command;
    *copy = *command;
    copy->key.data = append_operand(&at, command->key.data, command->key.size);
    copy->value.data =
        append_operand(&at, command->value.data, command->value.size);
    copy->expected.data =
        append_operand(&at, command->expected.data, command->expected.size);
    new_operation->call.request.kind = kind;
    hf_future_init(&new_operation->future, client, listener.done, listener.arg);
    new_operation->future.release = release_operation;
    new_operation->future.cancel = cancel_operation;
    hf_client_ref(client);
    *operation = new_operation;
    return HF_OK;
}

void hf_operation_start(struct hf_operation *operation, uint32_t timeout_ms,
                        struct hf_future **future)
{
    struct hf_client *client = operation->future.client;

    hf_dlist_push_back(&client->operations, &operation->link);
    hf_future_give(&operation->future, future);
    hf_call_start(&operation->call,
                  hf_time_add(hf_client_now(client), timeout_ms));
}

enum hf_err hf_operation_wait(enum hf_err err, struct hf_future *future)
{
    struct hf_client *client;

    if (err)
        return err;
    client = future->client;
    err = hf_client_enter_any(client);
    if (err)
        return err;
    /* Unless the program calls hf_process(), the client is driven only during
     * blocking calls. Renewals and event callbacks must also run between them,
     * so start the client's threads. */
    if (client->driven_locks > 0)
        (void)hf_background_ensure(client);
    err = hf_future_await(future);
    hf_future_unref(future);
    hf_client_unref(client);
    hf_client_leave(client);
    return err;
}

/* Record an invalid argument for hf_client_error(). */
static enum hf_err fail_with_text(struct hf_client *client,
                                  const struct hf_error *error)
{
    return hf_client_fail(client, error->code, "%s", error->text);
}

/* ---- Renew and update ---------------------------------------------------*/

/* Returns true if the handle still has the claim for which the request was
 * sent. This compares nonces, because a server that has lost its data may grant
 * a token twice. */
static bool is_same_claim(const struct hf_operation *operation)
{
    const struct hf_lock *lock = operation->lock;

    return !lock->detached &&
           hf_nonce_equal(&operation->call.request.command.nonce, &lock->nonce);
}

static enum hf_err finish_renewal(struct hf_operation *operation)
{
    struct hf_lock *lock = operation->lock;
    const struct hf_answer *answer = &operation->call.request.answer;
    enum hf_err err = answer->result.err;

    /* If the handle was claimed again or detached, the answer does not change
     * its state. */
    if (!is_same_claim(operation))
        return hf_validity_map_error(lock, err);
    if (err == HF_OK)
        return hf_validity_extend(
            lock,
            hf_drift_lease_base(&answer->anchor, operation->call.first_sent),
            operation->ttl_ms);
    if (err == HF_ENOTHELD || err == HF_ENOTOWNER)
        hf_validity_lose(lock, HF_EEXPIRED, NULL);
    return hf_validity_map_error(lock, err);
}

static enum hf_err finish_update(struct hf_operation *operation)
{
    struct hf_lock *lock = operation->lock;
    enum hf_err err = operation->call.request.answer.result.err;

    if ((err == HF_ENOTHELD || err == HF_ENOTOWNER) && is_same_claim(operation))
        hf_validity_lose(lock, HF_EEXPIRED, NULL);
    return hf_validity_map_error(lock, err);
}

/* Start RENEW or UPDATE. The caller has set the kind of `command` and, for
 * UPDATE, the new and the expected value. */
static enum hf_err start_on_lock(struct hf_lock *lock,
                                 struct hf_command *command, uint32_t ttl_ms,
                                 struct hf_listener listener)
{
    struct hf_operation *operation;
    enum hf_err err;

    err = hf_validity_check(lock);
    if (err) {
        hf_handle_set_failure(lock, err, NULL);
        (void)hf_client_fail(lock->client, err, "%s", hf_err_text(err));
        return err;
    }
    command->key = hf_handle_key(lock);
    command->nonce = lock->nonce;
    command->token = atomic_load(&lock->token);
    command->lease_ms = hf_drift_lease_ms(ttl_ms);
    err = hf_operation_new(lock->client, HF_REQUEST_COMMAND, command, listener,
                           &operation);
    if (err)
        return err;
    hf_handle_ref(lock);
    operation->lock = lock;
    operation->ttl_ms = ttl_ms;
    operation->finish =
        command->kind == HF_COMMAND_RENEW ? finish_renewal : finish_update;
    hf_operation_start(operation, lock->timeout_ms, listener.future);
    return HF_OK;
}

enum hf_err hf_renew_start(struct hf_lock *lock, uint32_t ttl_ms,
                           hf_done_fn *done, void *arg,
                           struct hf_future **future)
{
    struct hf_command command = {.kind = HF_COMMAND_RENEW};
    struct hf_error error;
    enum hf_err err;

    if (!lock)
        return HF_EINVAL;
    err = hf_client_enter(lock->client);
    if (err)
        return err;
    if (ttl_ms == 0)
        ttl_ms = lock->ttl_ms;
    err = hf_options_ttl(ttl_ms, &error);
    if (err)
        fail_with_text(lock->client, &error);
    else
        err = start_on_lock(lock, &command, ttl_ms,
                            (struct hf_listener){done, arg, future});
    hf_client_leave(lock->client);
    return err;
}

enum hf_err hf_renew(struct hf_lock *lock, uint32_t ttl_ms)
{
    struct hf_future *future = NULL;
    enum hf_err err = lock ? hf_client_may_block(lock->client) : HF_EINVAL;

    if (!err)
        err = hf_renew_start(lock, ttl_ms, NULL, NULL, &future);
    return hf_operation_wait(err, future);
}

enum hf_err hf_update_start(struct hf_lock *lock,
                            const struct hf_bytes *expected,
                            struct hf_bytes value, hf_done_fn *done, void *arg,
                            struct hf_future **future)
{
    struct hf_command command = {
        .kind = HF_COMMAND_UPDATE,
        .value = value,
        .has_expected = expected != NULL,
        .expected = expected ? *expected : (struct hf_bytes){0},
    };
    struct hf_error error;
    enum hf_err err;

    if (!lock)
        return HF_EINVAL;
    err = hf_client_enter(lock->client);
    if (err)
        return err;
    err = hf_options_bytes("value", value, &error);
    if (!err)
        err = hf_options_bytes("expected", command.expected, &error);
    if (err)
        fail_with_text(lock->client, &error);
    else
        err = start_on_lock(lock, &command, lock->ttl_ms,
                            (struct hf_listener){done, arg, future});
    hf_client_leave(lock->client);
    return err;
}

enum hf_err hf_update(struct hf_lock *lock, const struct hf_bytes *expected,
                      struct hf_bytes value)
{
    struct hf_future *future = NULL;
    enum hf_err err = lock ? hf_client_may_block(lock->client) : HF_EINVAL;

    if (!err)
        err = hf_update_start(lock, expected, value, NULL, NULL, &future);
    return hf_operation_wait(err, future);
}

/* ---- Read, list, force --------------------------------------------------*/

static enum hf_err finish_read(struct hf_operation *operation)
{
    struct hf_answer *answer = &operation->call.request.answer;

    if (answer->result.err)
        return answer->result.err;
    if (answer->count != 1)
        return HF_EPROTO;
    *operation->info = answer->infos[0];
    answer->count = 0; /* the user owns the strings now */
    return HF_OK;
}

enum hf_err hf_read_start(struct hf_client *client, struct hf_key key,
                          enum hf_consistency how, struct hf_info *info,
                          hf_done_fn *done, void *arg,
                          struct hf_future **future)
{
    struct hf_command command = {.key = key};
    struct hf_operation *operation;
    struct hf_error error;
    enum hf_err err;

    if (!client || !info)
        return HF_EINVAL;
    err = hf_client_enter(client);
    if (err)
        return err;
    err = hf_options_key(key, &error);
    if (!err && how != HF_LINEARIZABLE && how != HF_LOCAL)
        err = hf_error_set(&error, HF_EINVAL,
                           "how: %d is not HF_LINEARIZABLE or HF_LOCAL",
                           (int)how);
    if (err)
        fail_with_text(client, &error);
    else
        err = hf_operation_new(client, HF_REQUEST_READ, &command,
                               (struct hf_listener){done, arg, future},
                               &operation);
    if (!err) {
        operation->call.request.how = how;
        operation->info = info;
        operation->finish = finish_read;
        hf_operation_start(operation, HF_ANSWER_TIMEOUT_MS, future);
    }
    hf_client_leave(client);
    return err;
}

enum hf_err hf_read(struct hf_client *client, struct hf_key key,
                    enum hf_consistency how, struct hf_info *info)
{
    struct hf_future *future = NULL;
    enum hf_err err = hf_client_may_block(client);

    if (!err)
        err = hf_read_start(client, key, how, info, NULL, NULL, &future);
    return hf_operation_wait(err, future);
}

static void call_each(struct hf_operation *operation)
{
    struct hf_answer *answer = &operation->call.request.answer;
    size_t i = 0;

    hf_info_sort(answer->infos, answer->count);
    while (i < answer->count && !atomic_load(&operation->ended) &&
           operation->each(&answer->infos[i], operation->each_arg))
        i++;
}

/* Run `each` for the results without the mutex, like any user callback; then
 * complete the operation. */
static void run_list_callback(struct hf_callback *callback)
{
    struct hf_operation *operation =
        HF_CONTAINER(callback, struct hf_operation, list_callback);
    struct hf_client *client = operation->future.client;

    operation->future.references++; /* `each` may free the future */
    operation->is_calling = true;
    pthread_mutex_unlock(&client->mutex);
    call_each(operation);
    hf_client_relock(client);
    operation->is_calling = false;
    if (!operation->future.answered)
        hf_operation_end(operation, atomic_load(&operation->ended));
    hf_future_unref(&operation->future);
}

enum hf_err hf_list_start(struct hf_client *client, struct hf_key prefix,
                          hf_list_fn *each, void *each_arg, hf_done_fn *done,
                          void *arg, struct hf_future **future)
{
    struct hf_command command = {.key = prefix};
    struct hf_operation *operation;
    struct hf_error error;
    enum hf_err err;

    if (!client || !each)
        return HF_EINVAL;
    err = hf_client_enter(client);
    if (err)
        return err;
    err = hf_options_prefix(prefix, &error);
    if (err)
        fail_with_text(client, &error);
    else
        err = hf_operation_new(client, HF_REQUEST_LIST, &command,
                               (struct hf_listener){done, arg, future},
                               &operation);
    if (!err) {
        operation->each = each;
        operation->each_arg = each_arg;
        operation->list_callback.run = run_list_callback;
        hf_operation_start(operation, HF_ANSWER_TIMEOUT_MS, future);
    }
    hf_client_leave(client);
    return err;
}

enum hf_err hf_list(struct hf_client *client, struct hf_key prefix,
                    hf_list_fn *each, void *arg)
{
    struct hf_future *future = NULL;
    enum hf_err err = hf_client_may_block(client);

    if (!err)
        err = hf_list_start(client, prefix, each, arg, NULL, NULL, &future);
    return hf_operation_wait(err, future);
}

enum hf_err hf_force_start(struct hf_client *client, struct hf_key key,
                           uint64_t token, bool now, hf_done_fn *done,
                           void *arg, struct hf_future **future)
{
    struct hf_command command = {
        .kind = HF_COMMAND_FORCE,
        .key = key,
        .token = token,
        .now = now,
    };
    struct hf_operation *operation;
    struct hf_error error;
    enum hf_err err;

    if (!client)
        return HF_EINVAL;
    err = hf_client_enter(client);
    if (err)
        return err;
    err = hf_options_key(key, &error);
    if (!err && token == 0)
        err = hf_error_set(&error, HF_EINVAL,
                           "token: 0; pass the token of the lock to break");
    if (err)
        fail_with_text(client, &error);
    else
        err = hf_operation_new(client, HF_REQUEST_COMMAND, &command,
                               (struct hf_listener){done, arg, future},
                               &operation);
    if (!err)
        hf_operation_start(operation, HF_ANSWER_TIMEOUT_MS, future);
    hf_client_leave(client);
    return err;
}

enum hf_err hf_force(struct hf_client *client, struct hf_key key,
                     uint64_t token, bool now)
{
    struct hf_future *future = NULL;
    enum hf_err err = hf_client_may_block(client);

    if (!err)
        err = hf_force_start(client, key, token, now, NULL, NULL, &future);
    return hf_operation_wait(err, future);
}
