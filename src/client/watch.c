/* watch.c - a subscription to the events of a key or a prefix. */
#include "client/watch.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "client/background.h"
#include "client/client.h"
#include "client/options.h"

struct queued_event {
    struct hf_dlist link;
    struct hf_event event; /* owner and key point into `bytes` */
    char bytes[];
};

static void on_watch_settled(struct hf_call *call);
static void run_watch_callback(struct hf_callback *callback);

struct hf_watch *hf_watch_of(struct hf_dlist *link)
{
    return HF_CONTAINER(link, struct hf_watch, link);
}

struct hf_key hf_watch_key(const struct hf_watch *watch)
{
    return (struct hf_key){watch->key, watch->key_size};
}

/* ---- Lifetime -----------------------------------------------------------*/

static void clear_queue(struct hf_watch *watch)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_take(&watch->queue)))
        free(HF_CONTAINER(link, struct queued_event, link));
    watch->queued = 0;
}

static void unref_watch(struct hf_watch *watch)
{
    struct hf_client *client = watch->client;

    if (--watch->references > 0)
        return;
    hf_dlist_remove(&watch->link);
    hf_dlist_remove(&watch->callback.link);
    clear_queue(watch);
    hf_call_fini(&watch->call);
    client->host.ops->timer_remove(&client->host, &watch->wait.timer);
    free(watch);
    hf_client_unref(client);
}

static enum hf_err create_client_watch(struct hf_client *client,
                                       struct hf_key key,
                                       enum hf_watch_purpose purpose,
                                       struct hf_watch **new_watch)
{
    struct hf_watch *watch = calloc(1, sizeof(*watch) + key.size);
    enum hf_err err;

    if (!watch)
        return HF_ENOMEM;
    watch->client = client;
    watch->references = 1;
    watch->pushing = true;
    watch->number = ++client->next_watch;
    watch->purpose = purpose;
    watch->kinds = HF_EVENT_ANY;
    watch->wait.timer.fire = hf_wait_on_timer;
    watch->callback.run = run_watch_callback;
    watch->key_size = key.size;
    hf_copy(watch->key, key.data, key.size);
    hf_dlist_init(&watch->queue);
    err = hf_call_init(&watch->call, client, on_watch_settled);
    if (err)
        goto fail;
    err = client->host.ops->timer_add(&client->host, &watch->wait.timer);
    if (err)
        goto fail_call;
    hf_dlist_push_back(&client->watches, &watch->link);
    hf_client_ref(client);
    *new_watch = watch;
    return HF_OK;

fail_call:
    hf_call_fini(&watch->call);
fail:
    free(watch);
    return err;
}

void hf_watch_send(struct hf_watch *watch, enum hf_request_kind kind)
{
    struct hf_request *request = &watch->call.request;
    hf_time deadline =
        hf_time_add(hf_client_now(watch->client), HF_ANSWER_TIMEOUT_MS);

    request->kind = kind;
    request->command.key = hf_watch_key(watch);
    request->how = HF_LINEARIZABLE;
    request->watch = watch->number;
    request->exact = watch->purpose != HF_WATCH_EVENTS;
    hf_call_start(&watch->call, deadline);
}

/* The strategy pushes no more events to this watch, so drop its reference. */
static void drop_push_reference(struct hf_watch *watch)
{
    if (!watch->pushing)
        return;
    watch->pushing = false;
    hf_dlist_remove(&watch->link);
    unref_watch(watch);
}

/* Report no more events, and send UNWATCH. A client that is closing sends no
 * UNWATCH, because it closes the strategy. */
static void end_watch(struct hf_watch *watch)
{
    struct hf_client *client = watch->client;

    if (watch->ended)
        return;
    watch->ended = true;
    hf_timer_set(&client->host, &watch->wait.timer, HF_NEVER);
    clear_queue(watch);
    watch->dropped = 0;
    hf_dlist_remove(&watch->callback.link);
    hf_call_abandon(&watch->call);
    if (client->closing || !(client->caps & HF_CAP_WATCH))
        drop_push_reference(watch);
    else
        hf_watch_send(watch, HF_REQUEST_UNWATCH);
}

void hf_watch_answer(struct hf_watch *watch, enum hf_err err, const char *cause)
{
    struct hf_future *opening = watch->opening;

    watch->opening = NULL;
    if (opening)
        hf_future_answer(opening, err, cause);
    /* End the watch last, because UNWATCH reuses the call, which owns
     * `cause`. */
    if (watch->purpose != HF_WATCH_EVENTS || err)
        end_watch(watch);
}

void hf_watch_abort(struct hf_watch *watch)
{
    watch->references++;
    if (watch->opening)
        hf_watch_answer(watch, HF_ECLOSED, NULL);
    /* NOLINTBEGIN(clang-analyzer-unix.Malloc): the reference above keeps the
     * watch alive, but the analyzer does not see that. */
    end_watch(watch);
    hf_call_abandon(&watch->call);
    drop_push_reference(watch);
    unref_watch(watch);
    /* NOLINTEND(clang-analyzer-unix.Malloc) */
}

static void cancel_opening(struct hf_future *future)
{
    struct hf_dlist *link = future->client->watches.next;

    while (hf_watch_of(link)->opening != future)
        link = link->next;
    hf_watch_answer(hf_watch_of(link), HF_ECANCELED, NULL);
}

enum hf_err hf_watch_new(struct hf_client *client, struct hf_key key,
                         enum hf_watch_purpose purpose,
                         struct hf_listener listener,
                         struct hf_watch **new_watch)
{
    struct hf_future *future = malloc(sizeof(*future));
    struct hf_watch *watch;
    enum hf_err err;

    if (!future)
        return HF_ENOMEM;
    err = create_client_watch(client, key, purpose, &watch);
    if (err) {
        free(future);
        return err;
    }
    hf_future_init(future, client, listener.done, listener.arg);
    future->release = hf_future_release_heap;
    future->cancel = cancel_opening;
    hf_client_ref(client);
    watch->opening = future;
    hf_future_give(future, listener.future);
    *new_watch = watch;
    return HF_OK;
}

/* ---- Events for the user ------------------------------------------------*/

static void queue_event(struct hf_watch *watch, const struct hf_event *event)
{
    size_t owner_size = strlen(event->owner) + 1;
    struct queued_event *queued = NULL;

    if (watch->queued < HF_WATCH_QUEUE_MAX && watch->dropped == 0)
        queued = malloc(sizeof(*queued) + owner_size + event->key.size);
    if (!queued) {
        watch->dropped = event->index + (event->kind != HF_EVENT_DROPPED);
        return;
    }
    queued->link = (struct hf_dlist){0};
    queued->event = *event;
    memcpy(queued->bytes, event->owner, owner_size);
    hf_copy(queued->bytes + owner_size, event->key.data, event->key.size);
    queued->event.owner = queued->bytes;
    queued->event.key.data = queued->bytes + owner_size;
    hf_dlist_push_back(&watch->queue, &queued->link);
    watch->queued++;
}

/* Report one event per run, so that other callbacks are not delayed. DROPPED
 * follows the queued events, because they are older than the gap. */
static void run_watch_callback(struct hf_callback *callback)
{
    struct hf_watch *watch = HF_CONTAINER(callback, struct hf_watch, callback);
    struct hf_client *client = watch->client;
    struct hf_dlist *link = hf_dlist_take(&watch->queue);
    struct queued_event *queued = NULL;
    struct hf_event event = {.kind = HF_EVENT_DROPPED, .owner = ""};

    if (link) {
        queued = HF_CONTAINER(link, struct queued_event, link);
        event = queued->event;
        watch->queued--;
    } else if (watch->dropped > 0) {
        event.index = watch->dropped;
        watch->dropped = 0;
    } else {
        return;
    }
    if (watch->queued > 0 || watch->dropped > 0)
        hf_loop_queue_callback(client, callback, false);
    watch->references++;
    pthread_mutex_unlock(&client->mutex);
    watch->each(&event, watch->each_arg);
    hf_client_relock(client);
    free(queued);
    unref_watch(watch);
}

/* ---- Events and answers from the strategy -------------------------------*/

static struct hf_watch *find_client_watch(const struct hf_client *client,
                                          uint64_t number)
{
    for (struct hf_dlist *link = client->watches.next; link != &client->watches;
         link = link->next) {
        if (hf_watch_of(link)->number == number)
            return hf_watch_of(link);
    }
    return NULL;
}

void hf_watch_on_event(struct hf_host *host, const struct hf_push_event *push)
{
    struct hf_client *client = HF_CONTAINER(host, struct hf_client, host);
    struct hf_watch *watch = find_client_watch(client, push->watch);

    if (!watch || watch->ended)
        return;
    if (watch->purpose != HF_WATCH_EVENTS) {
        hf_wait_on_event(watch, &push->event);
    } else if (push->event.kind == HF_EVENT_DROPPED ||
               (push->event.kind & watch->kinds)) {
        queue_event(watch, &push->event);
        hf_loop_queue_callback(client, &watch->callback, false);
    }
}

static void on_watch_opened(struct hf_watch *watch, enum hf_err err)
{
    if (!err) {
        watch->references++; /* the user's reference */
        *watch->out = watch;
    }
    hf_watch_answer(watch, err, watch->call.request.answer.cause);
}

static void on_watch_settled(struct hf_call *call)
{
    struct hf_watch *watch = HF_CONTAINER(call, struct hf_watch, call);
    enum hf_err err = call->request.answer.result.err;

    watch->references++;
    HF_ASSERT(watch->references > 1); /* an open call keeps the watch alive */
    if (call->request.kind == HF_REQUEST_UNWATCH)
        drop_push_reference(watch);
    else if (watch->purpose != HF_WATCH_EVENTS)
        hf_wait_on_settled(watch);
    else
        on_watch_opened(watch, err);
    unref_watch(watch);
}

/* ---- Public functions ---------------------------------------------------*/

enum hf_err hf_watch_open_start(struct hf_client *client, struct hf_key prefix,
                                const struct hf_watch_opts *opts,
                                hf_watch_fn *each, void *each_arg,
                                struct hf_watch **watch, hf_done_fn *done,
                                void *arg, struct hf_future **future)
{
    struct hf_watch_opts checked;
    struct hf_error error;
    struct hf_watch *new_watch;
    enum hf_err err;

    if (!client || !each || !watch)
        return HF_EINVAL;
    err = hf_client_enter(client);
    if (err)
        return err;
    err = hf_options_prefix(prefix, &error);
    if (!err)
        err = hf_options_watch(&checked, opts, &error);
    if (!err && !(client->caps & HF_CAP_WATCH))
        err = hf_error_set(&error, HF_EUNSUPPORTED,
                           "the strategy %s: does not support watches",
                           client->strategy->scheme);
    if (err)
        hf_client_fail(client, err, "%s", error.text);
    else
        err = hf_watch_new(client, prefix, HF_WATCH_EVENTS,
                           (struct hf_listener){done, arg, future}, &new_watch);
    if (!err) {
        new_watch->kinds = checked.kinds;
        new_watch->each = each;
        new_watch->each_arg = each_arg;
        new_watch->out = watch;
        new_watch->call.request.from = checked.from;
        hf_watch_send(new_watch, HF_REQUEST_WATCH);
    }
    hf_client_leave(client);
    return err;
}

/* A program that makes blocking calls has no event loop, so start the client's
 * threads, which run the callback of the watch. */
static enum hf_err ensure_watch_driver(struct hf_client *client)
{
    enum hf_err err = hf_client_enter(client);

    if (err)
        return err;
    err = hf_background_ensure(client);
    hf_client_leave(client);
    return err;
}

enum hf_err hf_watch_open(struct hf_client *client, struct hf_key prefix,
                          const struct hf_watch_opts *opts, hf_watch_fn *each,
                          void *arg, struct hf_watch **watch)
{
    struct hf_future *future = NULL;
    enum hf_err err = hf_client_may_block(client);

    if (!err)
        err = ensure_watch_driver(client);
    if (!err)
        err = hf_watch_open_start(client, prefix, opts, each, arg, watch, NULL,
                                  NULL, &future);
    return hf_operation_wait(err, future);
}

void hf_watch_close(struct hf_watch *watch)
{
    struct hf_client *client;

    if (!watch)
        return;
    client = watch->client;
    if (hf_client_enter_any(client))
        return;
    end_watch(watch);
    hf_loop_await_callback(client, &watch->callback);
    /* The user still holds this reference, but the analyzer does not see that:
     * NOLINTNEXTLINE(clang-analyzer-unix.Malloc). */
    unref_watch(watch);
    hf_client_leave(client);
}
