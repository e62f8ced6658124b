/* close.c - hf_close() and hf_close_start(). */
#include "client/background.h"
#include "client/client.h"
#include "client/lock.h"
#include "client/open.h"
#include "client/operation.h"
#include "client/watch.h"
#include "client/withdrawal.h"

static void close_locks(struct hf_client *client, bool only_claiming)
{
    struct hf_dlist *link, *next;

    for (link = client->locks.next; link != &client->locks; link = next) {
        struct hf_lock *lock = HF_CONTAINER(link, struct hf_lock, link);

        next = link->next;
        if (!only_claiming || lock->state == HF_LOCK_CLAIMING)
            hf_release_on_close(lock);
    }
}

/* End pending claims before held locks, so that no pending claim is granted a
 * key that is released here. */
static void end_everything(struct hf_client *client)
{
    struct hf_dlist *link;

    close_locks(client, true);
    close_locks(client, false);
    while ((link = hf_dlist_first(&client->watches)))
        hf_watch_abort(hf_watch_of(link));
    while ((link = hf_dlist_first(&client->operations)))
        hf_operation_end(HF_CONTAINER(link, struct hf_operation, link),
                         HF_ECLOSED);
}

/* Refuse new calls, withdraw all claims, and end all watches and operations.
 * Withdrawals are retried until `deadline`. */
static void begin_close(struct hf_client *client, hf_time deadline)
{
    struct hf_dlist *link;

    client->closing = true;
    client->unconfirmed = false;
    hf_opening_abandon(client);
    end_everything(client);
    for (link = client->withdrawals.next; link != &client->withdrawals;
         link = link->next)
        hf_call_extend(&HF_CONTAINER(link, struct hf_withdrawal, link)->call,
                       deadline);
    hf_host_settle_answers(client);
}

static bool has_calls(const struct hf_client *client)
{
    return !hf_dlist_is_empty(&client->calls) ||
           !hf_dlist_is_empty(&client->parked);
}

static bool is_drained(const struct hf_client *client)
{
    return !has_calls(client) && !client->opening;
}

/* Give up the open calls, once the client is drained or the deadline has
 * passed. Returns HF_OK if all releases and withdrawals were confirmed,
 * otherwise HF_EINDOUBT. */
static enum hf_err abandon_open_calls(struct hf_client *client)
{
    bool confirmed = !has_calls(client) && !client->unconfirmed;
    struct hf_dlist *link;

    client->closed = true;
    close_locks(client, false);
    while ((link = hf_dlist_first(&client->withdrawals)))
        hf_withdrawal_free(HF_CONTAINER(link, struct hf_withdrawal, link));
    return confirmed ? HF_OK : HF_EINDOUBT;
}

/* If the strategy is still being opened, do nothing: the opening thread closes
 * the strategy. */
static void close_strategy(struct hf_client *client)
{
    if (client->opened)
        client->strategy->close(client->self);
    client->opened = false;
}

/* ---- hf_close() ---------------------------------------------------------*/

/* A release may send another request when one is settled, so check again. */
static void await_drained(struct hf_client *client, hf_time deadline)
{
    while (!is_drained(client) && hf_client_now(client) < deadline) {
        struct hf_blocked blocked = {0};

        client->draining = &blocked;
        (void)hf_loop_wait(client, &blocked, deadline);
        client->draining = NULL;
    }
}

static enum hf_err finish_close(struct hf_client *client, hf_time deadline)
{
    enum hf_err err = abandon_open_calls(client);

    hf_background_stop(client, deadline);
    /* Run the remaining callbacks here, because no other thread may come to run
     * them. abandon_open_calls() has queued some. */
    hf_loop_finish_callbacks(client, deadline);
    if (!hf_client_is_forked(client))
        close_strategy(client);
    return err;
}

static enum hf_err check_not_closing(struct hf_client *client)
{
    return client->closing ? HF_ECLOSED : HF_OK;
}

enum hf_err hf_close(struct hf_client *client, uint32_t timeout_ms)
{
    hf_time deadline;
    enum hf_err err;

    if (!client)
        return HF_OK;
    err = hf_client_enter_any(client);
    if (err)
        return err;
    err =
        hf_loop_is_in_callback(client) ? HF_EDEADLK : check_not_closing(client);
    if (err) {
        hf_client_leave(client);
        return err;
    }
    deadline = hf_time_add(hf_client_now(client), timeout_ms);
    begin_close(client, deadline);
    await_drained(client, deadline);
    if (!hf_client_is_forked(client))
        err = finish_close(client, deadline);
    if (hf_client_is_forked(client))
        err = HF_EFORK;
    hf_client_unref(client);
    hf_client_leave(client);
    return err;
}

/* ---- hf_close_start() ---------------------------------------------------*/

/* This is the client's last callback, so it closes the strategy and dismisses
 * the threads before it calls `done`. */
static void run_close_callback(struct hf_callback *callback)
{
    struct hf_close *close = HF_CONTAINER(callback, struct hf_close, callback);
    struct hf_client *client = HF_CONTAINER(close, struct hf_client, close);

    close_strategy(client);
    hf_background_dismiss(client);
    if (close->done) {
        pthread_mutex_unlock(&client->mutex);
        close->done(close->err, close->arg);
        hf_client_relock(client);
    }
    hf_client_unref(client);
}

/* Called when the client is drained, or when the deadline has passed. */
static void on_close_timer(struct hf_timer *timer)
{
    struct hf_close *close = HF_CONTAINER(timer, struct hf_close, timer);
    struct hf_client *client = HF_CONTAINER(close, struct hf_client, close);

    if (!is_drained(client) && hf_client_now(client) < close->deadline) {
        hf_client_host_ops.timer_set(&client->host, timer, close->deadline);
        return; /* a release has sent another request */
    }
    close->err = abandon_open_calls(client);
    hf_client_host_ops.timer_remove(&client->host, &close->timer);
    hf_loop_queue_callback(client, &close->callback, false);
}

/* The caller still uses the call that it ends, so nothing may be freed here. A
 * close in the background therefore continues from a timer that is due at
 * once. */
void hf_close_on_drained(struct hf_client *client)
{
    if (!is_drained(client))
        return;
    if (client->draining)
        hf_loop_release(client->draining);
    else if (client->close.started && !client->closed)
        hf_client_host_ops.timer_set(&client->host, &client->close.timer,
                                     hf_client_now(client));
}

static enum hf_err start_close(struct hf_client *client, uint32_t timeout_ms,
                               hf_done_fn *done, void *arg)
{
    struct hf_close *close = &client->close;
    hf_time deadline = hf_time_add(hf_client_now(client), timeout_ms);
    enum hf_err err = check_not_closing(client);

    if (!err)
        err = hf_background_ensure(client);
    if (!err)
        err = hf_client_host_ops.timer_add(&client->host, &close->timer);
    if (err)
        return err;
    *close = (struct hf_close){
        .started = true,
        .timer.fire = on_close_timer,
        .callback.run = run_close_callback,
        .deadline = deadline,
        .done = done,
        .arg = arg,
    };
    begin_close(client, deadline);
    hf_client_host_ops.timer_set(&client->host, &close->timer, deadline);
    hf_close_on_drained(client);
    return HF_OK;
}

enum hf_err hf_close_start(struct hf_client *client, uint32_t timeout_ms,
                           hf_done_fn *done, void *arg)
{
    enum hf_err err;

    if (!client)
        return HF_EINVAL;
    err = hf_client_enter_any(client);
    if (err)
        return err;
    err = start_close(client, timeout_ms, done, arg);
    hf_client_leave(client);
    return err;
}
