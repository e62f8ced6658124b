#include "client/future.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "client/background.h"
#include "client/client.h"

static void run_done_callback(struct hf_callback *callback)
{
    struct hf_future *future =
        HF_CONTAINER(callback, struct hf_future, callback);
    struct hf_client *client = future->client;

    future->is_observed = true;
    pthread_mutex_unlock(&client->mutex);
    future->done(future->err, future->arg);
    hf_client_relock(client);
    hf_future_unref(future);
}

void hf_future_init(struct hf_future *future, struct hf_client *client,
                    hf_done_fn *done, void *arg)
{
    *future = (struct hf_future){
        .client = client,
        .callback.run = run_done_callback,
        .done = done,
        .arg = arg,
        .references = 1,
    };
    hf_dlist_init(&future->waiters);
}

void hf_future_release_nothing(struct hf_future *future)
{
    (void)future;
}

void hf_future_release_heap(struct hf_future *future)
{
    struct hf_client *client = future->client;

    free(future);
    hf_client_unref(client);
}

void hf_future_answer(struct hf_future *future, enum hf_err err,
                      const char *text)
{
    struct hf_dlist *link;

    HF_ASSERT(!future->answered);
    future->answered = true;
    future->err = err;
    if (err) {
        future->text = text ? strdup(text) : NULL;
        hf_client_fail(future->client, err, "%s",
                       text ? text : hf_err_text(err));
    }
    while ((link = hf_dlist_take(&future->waiters)))
        hf_loop_release(HF_CONTAINER(link, struct hf_blocked, waiter));
    if (future->done)
        hf_loop_queue_callback(future->client, &future->callback, false);
    else
        hf_future_unref(future);
}

void hf_future_give(struct hf_future *future, struct hf_future **to)
{
    if (!to)
        return;
    future->references++;
    hf_client_ref(future->client);
    *to = future;
}

void hf_future_unref(struct hf_future *future)
{
    if (--future->references > 0)
        return;
    free(future->text);
    future->release(future);
}

/* The caller must hold a reference, because another thread may free the future
 * meanwhile. */
static enum hf_err block_once(struct hf_future *future,
                              struct hf_blocked *blocked, hf_time deadline)
{
    enum hf_err err;

    hf_dlist_push_back(&future->waiters, &blocked->waiter);
    err = hf_loop_wait(future->client, blocked, deadline);
    hf_dlist_remove(&blocked->waiter);
    return future->answered ? HF_OK : err;
}

enum hf_err hf_future_await(struct hf_future *future)
{
    struct hf_client *client = future->client;
    bool interrupted = false;
    enum hf_err err;

    hf_host_settle_answers(client);
    while (!future->answered) {
        struct hf_blocked blocked = {0};

        if (future->cancel && !interrupted)
            hf_loop_set_interruptible(client, &blocked, false);
        err = block_once(future, &blocked, HF_NEVER);
        if (err == HF_EFORK)
            return err;
        if (err == HF_EINTR) {
            interrupted = true;
            future->cancel(future);
        }
    }
    return interrupted && future->err == HF_ECANCELED ? HF_EINTR : future->err;
}

/* ---- Public functions ---------------------------------------------------*/

/* Return the result to the user. From now on the result must not change; see
 * cancel_unobserved() in release.c. */
static void observe_answer(struct hf_future *future, enum hf_err *err)
{
    future->is_observed = true;
    if (err)
        *err = future->err;
}

bool hf_future_done(const struct hf_future *future, enum hf_err *err)
{
    struct hf_future *mutable_future = (struct hf_future *)(uintptr_t)future;
    struct hf_client *client;
    bool answered;

    if (!future)
        return false;
    client = future->client;
    if (hf_client_enter_any(client))
        return false;
    hf_host_settle_answers(client);
    answered = future->answered;
    if (answered)
        observe_answer(mutable_future, err);
    hf_client_leave(client);
    return answered;
}

static enum hf_err wait_until_answered(struct hf_future *future,
                                       uint32_t wait_ms)
{
    struct hf_client *client = future->client;
    struct hf_blocked blocked = {0};
    hf_time now = hf_client_now(client);
    hf_time deadline =
        wait_ms == HF_FOREVER ? HF_NEVER : hf_time_add(now, wait_ms);

    /* Unless the program calls hf_process(), the client is driven only during
     * blocking calls. Renewals and event callbacks must also run between them,
     * so start the client's threads. */
    if (client->driven_locks > 0 && !hf_loop_is_in_callback(client))
        (void)hf_background_ensure(client);
    hf_host_settle_answers(client);
    if (future->answered)
        return HF_OK;
    if (hf_loop_is_in_callback(client))
        return HF_EDEADLK;
    hf_loop_set_interruptible(client, &blocked, true);
    return block_once(future, &blocked, deadline);
}

enum hf_err hf_future_wait(struct hf_future *future, uint32_t wait_ms,
                           enum hf_err *err)
{
    struct hf_client *client;
    enum hf_err waited;

    if (!future)
        return HF_EINVAL;
    client = future->client;
    waited = hf_client_enter_any(client);
    if (waited)
        return waited;
    hf_client_ref(client);
    future->references++; /* another thread may free the future */
    waited = wait_until_answered(future, wait_ms);
    if (!waited)
        observe_answer(future, err);
    hf_future_unref(future);
    hf_client_unref(client);
    hf_client_leave(client);
    return waited;
}

void hf_future_cancel(struct hf_future *future)
{
    if (!future || hf_client_enter_any(future->client))
        return;
    if (!future->answered && future->cancel)
        future->cancel(future);
    hf_client_leave(future->client);
}

void hf_future_error(const struct hf_future *future, struct hf_error *error)
{
    if (!error)
        return;
    hf_error_set_code(error, HF_OK);
    if (!future || hf_client_enter_any(future->client))
        return;
    if (future->answered && future->err)
        hf_error_set(error, future->err, "%s",
                     future->text ? future->text : hf_err_text(future->err));
    hf_client_leave(future->client);
}

void hf_future_free(struct hf_future *future)
{
    struct hf_client *client;

    if (!future)
        return;
    client = future->client;
    if (hf_client_enter_any(client))
        return;
    hf_future_unref(future);
    hf_client_unref(client);
    hf_client_leave(client);
}
