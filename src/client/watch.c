#include "client/watch.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "client/client.h"
#include "client/operation.h"
#include "client/options.h"

/* What a watch is for: the user's own, or a wait for a key's state. */
enum purpose {
    WATCH_EVENTS,
    WAIT_HELD,
    WAIT_FREE
};

struct queued {
    struct hf_list link;
    struct hf_event event; /* its strings follow */
    char bytes[];
};

struct hf_watch {
    struct hf_client *client;
    struct hf_list link; /* in the client */
    struct hf_call call; /* WATCH, READ, UNWATCH in turn */
    uint64_t number;
    unsigned references;
    enum purpose purpose;
    bool pushing; /* the strategy may push: it holds a reference */
    bool ended;   /* nothing is told any more */

    /* The user's own. */
    uint32_t kinds;
    hf_watch_fn *each;
    void *each_arg;
    struct hf_list queue;
    size_t queued;
    uint64_t dropped; /* first index after what is missing; 0: nothing is */
    struct hf_callback callback;
    struct hf_watch **out;

    /* A wait. */
    struct hf_timer timer;
    hf_time wait_until;
    bool looked;      /* the server has answered */
    bool seen_held;   /* WAIT_FREE: it was not free from the start */
    bool look_again;  /* an event came while a READ was open */
    uint64_t granted; /* WAIT_HELD: the token of the last grant seen */
    char owner[HF_NOTE_MAX + 1]; /* and whose it was */
    struct hf_info *info;
    enum hf_freed *freed;

    struct hf_future *opening; /* who waits for it */
    size_t key_size;
    uint8_t key[];
};

#define LOOK_AGAIN_MS 1000

static void settled(struct hf_call *call);
static void on_timer(struct hf_timer *timer);
static void run_events(struct hf_callback *callback);

struct hf_watch *hf_watch_of(struct hf_list *link)
{
    return HF_CONTAINER(link, struct hf_watch, link);
}

static struct hf_key key_of(const struct hf_watch *watch)
{
    return (struct hf_key){watch->key, watch->key_size};
}

/* ---- Life ---------------------------------------------------------------*/

static void clear_queue(struct hf_watch *watch)
{
    struct hf_list *link;

    while ((link = hf_list_take(&watch->queue)))
        free(HF_CONTAINER(link, struct queued, link));
    watch->queued = 0;
}

static void unref(struct hf_watch *watch)
{
    struct hf_client *client = watch->client;

    if (--watch->references > 0)
        return;
    hf_list_remove(&watch->link);
    hf_list_remove(&watch->callback.link);
    clear_queue(watch);
    hf_call_fini(&watch->call);
    client->host.ops->timer_remove(&client->host, &watch->timer);
    free(watch);
    hf_client_unref(client);
}

static enum hf_err create(struct hf_client *client, struct hf_key key,
                          enum purpose purpose, struct hf_watch **made)
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
    watch->timer.fire = on_timer;
    watch->callback.run = run_events;
    watch->key_size = key.size;
    hf_copy(watch->key, key.data, key.size);
    hf_list_init(&watch->queue);
    err = hf_call_init(&watch->call, client, settled);
    if (err)
        goto fail;
    err = client->host.ops->timer_add(&client->host, &watch->timer);
    if (err)
        goto fail_call;
    hf_list_push_back(&client->watches, &watch->link);
    hf_client_ref(client);
    *made = watch;
    return HF_OK;

fail_call:
    hf_call_fini(&watch->call);
fail:
    free(watch);
    return err;
}

static void set_timer(struct hf_watch *watch, hf_time at)
{
    hf_timer_set(&watch->client->host, &watch->timer, at);
}

static void send(struct hf_watch *watch, enum hf_request_kind kind)
{
    struct hf_request *request = &watch->call.request;
    hf_time deadline =
        hf_time_add(hf_client_now(watch->client), HF_ANSWER_TIMEOUT_MS);

    request->kind = kind;
    request->command.key = key_of(watch);
    request->how = HF_LINEARIZABLE;
    request->watch = watch->number;
    hf_call_start(&watch->call, deadline);
}

/* The strategy pushes no more. */
static void let_go(struct hf_watch *watch)
{
    if (!watch->pushing)
        return;
    watch->pushing = false;
    hf_list_remove(&watch->link);
    unref(watch);
}

/* Nothing is told from now on, and the strategy hears that it need not push.
 * Where the client closes, it knows. */
static void end(struct hf_watch *watch)
{
    struct hf_client *client = watch->client;

    if (watch->ended)
        return;
    watch->ended = true;
    set_timer(watch, HF_NEVER);
    clear_queue(watch);
    watch->dropped = 0;
    hf_list_remove(&watch->callback.link);
    hf_call_abandon(&watch->call);
    if (client->closing || !(client->caps & HF_CAP_WATCH))
        let_go(watch);
    else
        send(watch, HF_REQUEST_UNWATCH);
}

/* The opening, or the whole wait, is over. */
static void answer(struct hf_watch *watch, enum hf_err err, const char *cause)
{
    struct hf_future *opening = watch->opening;

    watch->opening = NULL;
    if (watch->purpose != WATCH_EVENTS || err)
        end(watch);
    if (opening)
        hf_future_answer(opening, err, cause);
}

void hf_watch_close(struct hf_watch *watch)
{
    watch->references++;
    if (watch->opening)
        answer(watch, HF_ECLOSED, NULL);
    end(watch);
    hf_call_abandon(&watch->call);
    let_go(watch);
    unref(watch);
}

/* ---- Events for the user ------------------------------------------------*/

static void queue_event(struct hf_watch *watch, const struct hf_event *event)
{
    size_t owner_size = strlen(event->owner) + 1;
    struct queued *queued = NULL;

    if (watch->queued < HF_WATCH_QUEUE_MAX && watch->dropped == 0)
        queued = malloc(sizeof(*queued) + owner_size + event->key.size);
    if (!queued) {
        watch->dropped = event->index + (event->kind != HF_EVENT_DROPPED);
        return;
    }
    queued->link = (struct hf_list){0};
    queued->event = *event;
    memcpy(queued->bytes, event->owner, owner_size);
    hf_copy(queued->bytes + owner_size, event->key.data, event->key.size);
    queued->event.owner = queued->bytes;
    queued->event.key.data = queued->bytes + owner_size;
    hf_list_push_back(&watch->queue, &queued->link);
    watch->queued++;
}

/* One event a run, so that other callbacks have their turn. What is queued
 * comes before the mark: it was dropped after them. */
static void run_events(struct hf_callback *callback)
{
    struct hf_watch *watch = HF_CONTAINER(callback, struct hf_watch, callback);
    struct hf_client *client = watch->client;
    struct hf_list *link = hf_list_take(&watch->queue);
    struct queued *queued = NULL;
    struct hf_event event = {.kind = HF_EVENT_DROPPED, .owner = ""};

    if (link) {
        queued = HF_CONTAINER(link, struct queued, link);
        event = queued->event;
        watch->queued--;
    } else if (watch->dropped > 0) {
        event.index = watch->dropped;
        watch->dropped = 0;
    } else {
        return;
    }
    if (watch->queued > 0 || watch->dropped > 0)
        hf_loop_callback(client, callback, false);
    watch->references++;
    pthread_mutex_unlock(&client->mutex);
    watch->each(&event, watch->each_arg);
    pthread_mutex_lock(&client->mutex);
    free(queued);
    unref(watch);
}

/* ---- Waiting for a state ------------------------------------------------*/

static void look(struct hf_watch *watch)
{
    if (hf_call_open(&watch->call)) {
        watch->look_again = true;
        return;
    }
    watch->look_again = false;
    send(watch, HF_REQUEST_READ);
}

static enum hf_freed freed_by(enum hf_event_kind kind)
{
    switch (kind) {
    case HF_EVENT_RELEASED:
        return HF_FREED_RELEASED;
    case HF_EVENT_EXPIRED:
        return HF_FREED_EXPIRED;
    default:
        return HF_FREED_FORCED;
    }
}

static void free_at_last(struct hf_watch *watch, enum hf_freed freed)
{
    if (watch->freed)
        *watch->freed = freed;
    answer(watch, HF_OK, NULL);
}

static void held_at_last(struct hf_watch *watch, struct hf_answer *read)
{
    if (watch->info) {
        *watch->info = read->infos[0];
        read->count = 0; /* the strings are the user's now */
    }
    answer(watch, HF_OK, NULL);
}

/* It was held when the event came, and is no more: that is what was asked. */
static void was_held(struct hf_watch *watch)
{
    struct hf_info was = {
        .key = key_of(watch),
        .held = true,
        .token = watch->granted,
        .owner = watch->owner,
        .note = "",
    };
    enum hf_err err = HF_OK;

    if (watch->info)
        err = hf_info_copy(watch->info, &was);
    answer(watch, err, NULL);
}

static void wait_pushed(struct hf_watch *watch, const struct hf_event *event)
{
    if (event->kind != HF_EVENT_DROPPED &&
        !hf_key_equal(event->key, key_of(watch)))
        return;
    if (watch->purpose == WAIT_FREE && event->freed) {
        hf_call_abandon(&watch->call);
        free_at_last(watch, freed_by(event->kind));
    } else if (event->kind == HF_EVENT_DROPPED) {
        look(watch);
    } else if (event->kind == HF_EVENT_GRANTED) {
        watch->granted = event->token;
        hf_copy(watch->owner, event->owner, strlen(event->owner) + 1);
        look(watch);
    }
}

/* Look again by and by, or when the lease that was seen runs out. */
static void give_up(struct hf_watch *watch)
{
    answer(watch, watch->looked ? HF_ETIMEDOUT : HF_EUNAVAIL, NULL);
}

static void rest(struct hf_watch *watch, uint32_t left_ms)
{
    uint32_t span =
        left_ms > 0 && left_ms < LOOK_AGAIN_MS ? left_ms + 1 : LOOK_AGAIN_MS;
    hf_time at = hf_time_add(hf_client_now(watch->client), span);

    set_timer(watch, at < watch->wait_until ? at : watch->wait_until);
    if (hf_client_now(watch->client) >= watch->wait_until)
        give_up(watch);
    else if (watch->look_again)
        look(watch);
}

static void looked(struct hf_watch *watch)
{
    struct hf_answer *read = &watch->call.request.answer;
    enum hf_err err = read->result.err;
    bool held = !err && read->count == 1 && read->infos[0].held;

    watch->looked = watch->looked || !err;
    if (err == HF_ENOMEM || (!err && read->count != 1)) {
        answer(watch, err ? err : HF_EPROTO, read->cause);
    } else if (err) {
        rest(watch, 0); /* not reached: until the wait runs out */
    } else if (watch->purpose == WAIT_HELD && held) {
        held_at_last(watch, read);
    } else if (watch->purpose == WAIT_HELD && watch->granted > 0) {
        was_held(watch);
    } else if (watch->purpose == WAIT_FREE && !held) {
        free_at_last(watch,
                     watch->seen_held ? HF_FREED_UNSEEN : HF_FREED_BEFORE);
    } else {
        watch->seen_held = held;
        rest(watch, read->infos[0].left_ms);
    }
}

static void on_timer(struct hf_timer *timer)
{
    struct hf_watch *watch = HF_CONTAINER(timer, struct hf_watch, timer);

    if (hf_client_now(watch->client) >= watch->wait_until) {
        hf_call_abandon(&watch->call);
        give_up(watch);
        return;
    }
    set_timer(watch, watch->wait_until);
    look(watch);
}

/* ---- Pushes and answers -------------------------------------------------*/

static struct hf_watch *find(const struct hf_client *client, uint64_t number)
{
    for (struct hf_list *link = client->watches.next; link != &client->watches;
         link = link->next) {
        if (hf_watch_of(link)->number == number)
            return hf_watch_of(link);
    }
    return NULL;
}

void hf_watch_pushed(struct hf_host *host, const struct hf_push_event *push)
{
    struct hf_client *client = HF_CONTAINER(host, struct hf_client, host);
    struct hf_watch *watch = find(client, push->watch);

    if (!watch || watch->ended)
        return;
    if (watch->purpose != WATCH_EVENTS) {
        wait_pushed(watch, &push->event);
    } else if (push->event.kind == HF_EVENT_DROPPED ||
               (push->event.kind & watch->kinds)) {
        queue_event(watch, &push->event);
        hf_loop_callback(client, &watch->callback, false);
    }
}

static void opened(struct hf_watch *watch, enum hf_err err)
{
    if (!err) {
        watch->references++; /* the user's */
        *watch->out = watch;
    }
    answer(watch, err, watch->call.request.answer.cause);
}

static void settled(struct hf_call *call)
{
    struct hf_watch *watch = HF_CONTAINER(call, struct hf_watch, call);
    enum hf_err err = call->request.answer.result.err;

    watch->references++;
    if (call->request.kind == HF_REQUEST_UNWATCH)
        let_go(watch);
    else if (call->request.kind == HF_REQUEST_READ)
        looked(watch);
    else if (watch->purpose != WATCH_EVENTS && !err)
        look(watch);
    else
        opened(watch, err);
    unref(watch);
}

/* ---- What the user calls ------------------------------------------------*/

static void release_future(struct hf_future *future)
{
    struct hf_client *client = future->client;

    free(future);
    hf_client_unref(client);
}

static void cancel_opening(struct hf_future *future)
{
    struct hf_list *link = future->client->watches.next;

    while (hf_watch_of(link)->opening != future)
        link = link->next;
    answer(hf_watch_of(link), HF_ECANCELED, NULL);
}

/* Begin a watch, or a wait, that answers a future. */
static enum hf_err begin(struct hf_client *client, struct hf_key key,
                         enum purpose purpose, struct hf_listener listener,
                         struct hf_watch **made)
{
    struct hf_future *future = malloc(sizeof(*future));
    struct hf_watch *watch;
    enum hf_err err;

    if (!future)
        return HF_ENOMEM;
    err = create(client, key, purpose, &watch);
    if (err) {
        free(future);
        return err;
    }
    hf_future_init(future, client, listener.done, listener.arg);
    future->release = release_future;
    future->cancel = cancel_opening;
    hf_client_ref(client);
    watch->opening = future;
    hf_future_give(future, listener.future);
    *made = watch;
    return HF_OK;
}

enum hf_err hf_watch_start(struct hf_client *client, struct hf_key prefix,
                           const struct hf_watch_opts *opts, hf_watch_fn *each,
                           void *each_arg, struct hf_watch **watch,
                           hf_done_fn *done, void *arg,
                           struct hf_future **future)
{
    struct hf_watch_opts checked;
    struct hf_error error;
    struct hf_watch *made;
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
        err = hf_error_set(&error, HF_EUNSUPPORTED, "%s: cannot watch",
                           client->strategy->scheme);
    if (err)
        hf_client_fail(client, err, "%s", error.text);
    else
        err = begin(client, prefix, WATCH_EVENTS,
                    (struct hf_listener){done, arg, future}, &made);
    if (!err) {
        made->kinds = checked.kinds;
        made->each = each;
        made->each_arg = each_arg;
        made->out = watch;
        made->call.request.from = checked.from;
        send(made, HF_REQUEST_WATCH);
    }
    hf_client_leave(client);
    return err;
}

/* Who blocks has no event loop: its callbacks want a thread. */
static enum hf_err see_driven(struct hf_client *client)
{
    enum hf_err err = hf_client_enter(client);

    if (err)
        return err;
    err = hf_loop_see_driven(client);
    hf_client_leave(client);
    return err;
}

enum hf_err hf_watch(struct hf_client *client, struct hf_key prefix,
                     const struct hf_watch_opts *opts, hf_watch_fn *each,
                     void *arg, struct hf_watch **watch)
{
    struct hf_future *future = NULL;
    enum hf_err err = hf_client_may_block(client);

    if (!err)
        err = see_driven(client);
    if (!err)
        err = hf_watch_start(client, prefix, opts, each, arg, watch, NULL, NULL,
                             &future);
    return hf_operation_finish(err, future);
}

void hf_watch_free(struct hf_watch *watch)
{
    struct hf_client *client;

    if (!watch)
        return;
    client = watch->client;
    if (hf_client_enter_closed(client))
        return;
    end(watch);
    unref(watch);
    hf_client_leave(client);
}

static enum hf_err wait_start(struct hf_client *client, struct hf_key key,
                              uint32_t wait_ms, enum purpose purpose,
                              struct hf_listener listener,
                              struct hf_watch **made)
{
    struct hf_error error;
    enum hf_err err = hf_options_key(key, &error);

    if (err)
        return hf_client_fail(client, err, "%s", error.text);
    err = begin(client, key, purpose, listener, made);
    if (err)
        return err;
    (*made)->wait_until = wait_ms == HF_FOREVER
                              ? HF_NEVER
                              : hf_time_add(hf_client_now(client), wait_ms);
    set_timer(*made, (*made)->wait_until);
    if (client->caps & HF_CAP_WATCH)
        send(*made, HF_REQUEST_WATCH);
    else
        send(*made, HF_REQUEST_READ);
    return HF_OK;
}

enum hf_err hf_wait_held_start(struct hf_client *client, struct hf_key key,
                               uint32_t wait_ms, struct hf_info *info,
                               hf_done_fn *done, void *arg,
                               struct hf_future **future)
{
    struct hf_watch *made;
    enum hf_err err;

    if (!client)
        return HF_EINVAL;
    err = hf_client_enter(client);
    if (err)
        return err;
    err = wait_start(client, key, wait_ms, WAIT_HELD,
                     (struct hf_listener){done, arg, future}, &made);
    if (!err)
        made->info = info;
    hf_client_leave(client);
    return err;
}

enum hf_err hf_wait_held(struct hf_client *client, struct hf_key key,
                         uint32_t wait_ms, struct hf_info *info)
{
    struct hf_future *future = NULL;
    enum hf_err err = hf_client_may_block(client);

    if (!err)
        err =
            hf_wait_held_start(client, key, wait_ms, info, NULL, NULL, &future);
    return hf_operation_finish(err, future);
}

enum hf_err hf_wait_free_start(struct hf_client *client, struct hf_key key,
                               uint32_t wait_ms, enum hf_freed *freed,
                               hf_done_fn *done, void *arg,
                               struct hf_future **future)
{
    struct hf_watch *made;
    enum hf_err err;

    if (!client)
        return HF_EINVAL;
    err = hf_client_enter(client);
    if (err)
        return err;
    err = wait_start(client, key, wait_ms, WAIT_FREE,
                     (struct hf_listener){done, arg, future}, &made);
    if (!err)
        made->freed = freed;
    hf_client_leave(client);
    return err;
}

enum hf_err hf_wait_free(struct hf_client *client, struct hf_key key,
                         uint32_t wait_ms, enum hf_freed *freed)
{
    struct hf_future *future = NULL;
    enum hf_err err = hf_client_may_block(client);

    if (!err)
        err = hf_wait_free_start(client, key, wait_ms, freed, NULL, NULL,
                                 &future);
    return hf_operation_finish(err, future);
}
