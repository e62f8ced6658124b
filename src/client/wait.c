/* wait.c - hf_wait_held() and hf_wait_free(). */
#include "client/wait.h"

#include <string.h>

#include "base/bytes.h"
#include "client/client.h"
#include "client/options.h"
#include "client/watch.h"

#define POLL_MS 1000

/* A READ can find the key free before the event that says why has arrived,
 * because events may use another connection. The wait continues for up to this
 * long, so that it can report the reason. */
#define AWAIT_EVENT_MS 2000

static void set_wait_timer(struct hf_watch *watch, hf_time at)
{
    hf_timer_set(&watch->client->host, &watch->wait.timer, at);
}

static void send_read(struct hf_watch *watch)
{
    if (hf_call_is_open(&watch->call)) {
        watch->wait.read_again = true;
        return;
    }
    watch->wait.read_again = false;
    hf_watch_send(watch, HF_REQUEST_READ);
}

/* ---- Completing a wait --------------------------------------------------*/

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

static void finish_free(struct hf_watch *watch, enum hf_freed freed)
{
    if (watch->wait.freed)
        *watch->wait.freed = freed;
    hf_watch_answer(watch, HF_OK, NULL);
}

/* READ found the key free. If the key was held earlier in this wait, wait for
 * the event that says how the key became free, unless the strategy has no
 * events or wait_until has passed. */
static void on_read_free(struct hf_watch *watch)
{
    hf_time now = hf_client_now(watch->client);
    hf_time until = hf_time_add(now, AWAIT_EVENT_MS);

    if (!watch->wait.seen_held) {
        finish_free(watch, HF_FREED_ALREADY);
    } else if (!(watch->client->caps & HF_CAP_WATCH) ||
               now >= watch->wait.wait_until) {
        finish_free(watch, HF_FREED_UNSEEN);
    } else {
        watch->wait.seen_free = true;
        set_wait_timer(watch, until < watch->wait.wait_until
                                  ? until
                                  : watch->wait.wait_until);
    }
}

static void finish_held(struct hf_watch *watch, struct hf_answer *read)
{
    if (watch->wait.info) {
        *watch->wait.info = read->infos[0];
        read->count = 0; /* the user owns the strings now */
    }
    hf_watch_answer(watch, HF_OK, NULL);
}

/* READ found the key free, but an event has shown that it was held during the
 * wait. That fulfills the wait, so return the token and the owner from the
 * event. */
static void finish_was_held(struct hf_watch *watch)
{
    struct hf_info info = {
        .key = hf_watch_key(watch),
        .held = true,
        .token = watch->wait.granted,
        .owner = watch->wait.owner,
        .note = "",
    };
    enum hf_err err = HF_OK;

    if (watch->wait.info)
        err = hf_info_copy(watch->wait.info, &info);
    hf_watch_answer(watch, err, NULL);
}

static void fail_wait(struct hf_watch *watch)
{
    hf_watch_answer(watch, watch->wait.has_answer ? HF_ETIMEDOUT : HF_EUNAVAIL,
                    NULL);
}

/* ---- Events, answers and timers -----------------------------------------*/

void hf_wait_on_event(struct hf_watch *watch, const struct hf_event *event)
{
    if (event->kind != HF_EVENT_DROPPED &&
        !hf_key_equal(event->key, hf_watch_key(watch)))
        return;
    if (watch->purpose == HF_WATCH_WAIT_FREE && event->freed) {
        hf_call_abandon(&watch->call);
        finish_free(watch, freed_by(event->kind));
    } else if (watch->wait.seen_free) {
        if (event->kind == HF_EVENT_DROPPED)
            finish_free(watch, HF_FREED_UNSEEN);
    } else if (event->kind == HF_EVENT_DROPPED) {
        send_read(watch);
    } else if (event->kind == HF_EVENT_GRANTED) {
        watch->wait.granted = event->token;
        hf_copy(watch->wait.owner, event->owner, strlen(event->owner) + 1);
        send_read(watch);
    }
}

/* Read again after POLL_MS, or when the lease has expired if `left_ms` is
 * shorter and not 0; at once if `read_again` is set. If wait_until has passed,
 * fail the wait. */
static void schedule_read(struct hf_watch *watch, uint32_t left_ms)
{
    uint32_t delay = left_ms > 0 && left_ms < POLL_MS ? left_ms + 1 : POLL_MS;
    hf_time at = hf_time_add(hf_client_now(watch->client), delay);

    set_wait_timer(watch,
                   at < watch->wait.wait_until ? at : watch->wait.wait_until);
    if (hf_client_now(watch->client) >= watch->wait.wait_until)
        fail_wait(watch);
    else if (watch->wait.read_again)
        send_read(watch);
}

static void on_wait_read_reply(struct hf_watch *watch)
{
    struct hf_answer *read = &watch->call.request.answer;
    enum hf_err err = read->result.err;
    bool held = !err && read->count == 1 && read->infos[0].held;

    watch->wait.has_answer = watch->wait.has_answer || !err;
    if (err == HF_ENOMEM || err == HF_EINVAL || (!err && read->count != 1)) {
        hf_watch_answer(watch, err ? err : HF_EPROTO, read->cause);
    } else if (err) {
        schedule_read(watch, 0); /* retry until wait_until */
    } else if (watch->purpose == HF_WATCH_WAIT_HELD && held) {
        finish_held(watch, read);
    } else if (watch->purpose == HF_WATCH_WAIT_HELD &&
               watch->wait.granted > 0) {
        finish_was_held(watch);
    } else if (watch->purpose == HF_WATCH_WAIT_FREE && !held) {
        on_read_free(watch);
    } else {
        watch->wait.seen_held = held;
        schedule_read(watch, read->infos[0].left_ms);
    }
}

/* After WATCH is answered, later changes are pushed, so READ the state as it is
 * now. */
void hf_wait_on_settled(struct hf_watch *watch)
{
    const struct hf_request *request = &watch->call.request;
    enum hf_err err = request->answer.result.err;

    if (request->kind == HF_REQUEST_READ)
        on_wait_read_reply(watch);
    else if (err)
        hf_watch_answer(watch, err, request->answer.cause);
    else
        send_read(watch);
}

void hf_wait_on_timer(struct hf_timer *timer)
{
    struct hf_watch *watch = HF_CONTAINER(timer, struct hf_watch, wait.timer);

    if (watch->wait.seen_free) {
        finish_free(watch, HF_FREED_UNSEEN);
        return;
    }
    if (hf_client_now(watch->client) >= watch->wait.wait_until) {
        /* Even with a short wait_ms the first READ may run until its own
         * deadline, so that the key is checked at least once. */
        if (hf_call_is_open(&watch->call) && !watch->wait.has_answer)
            return;
        hf_call_abandon(&watch->call);
        fail_wait(watch);
        return;
    }
    set_wait_timer(watch, watch->wait.wait_until);
    send_read(watch);
}

/* ---- Public functions ---------------------------------------------------*/

/* Call hf_watch_send() last, because a push inside it may complete the wait. */
static void begin_wait(struct hf_watch *watch, uint32_t wait_ms)
{
    struct hf_client *client = watch->client;

    watch->wait.wait_until = wait_ms == HF_FOREVER
                                 ? HF_NEVER
                                 : hf_time_add(hf_client_now(client), wait_ms);
    set_wait_timer(watch, watch->wait.wait_until);
    if (client->caps & HF_CAP_WATCH)
        hf_watch_send(watch, HF_REQUEST_WATCH);
    else
        hf_watch_send(watch, HF_REQUEST_READ);
}

/* `info` is for HF_WATCH_WAIT_HELD, `freed` for HF_WATCH_WAIT_FREE; the other
 * pointer is NULL. */
static enum hf_err start_wait(struct hf_client *client, struct hf_key key,
                              uint32_t wait_ms, enum hf_watch_purpose purpose,
                              struct hf_info *info, enum hf_freed *freed,
                              struct hf_listener listener)
{
    struct hf_watch *watch = NULL;
    struct hf_error error;
    enum hf_err err;

    if (!client)
        return HF_EINVAL;
    err = hf_client_enter(client);
    if (err)
        return err;
    err = hf_options_key(key, &error);
    if (err)
        hf_client_fail(client, err, "%s", error.text);
    else
        err = hf_watch_new(client, key, purpose, listener, &watch);
    if (!err) {
        watch->wait.info = info;
        watch->wait.freed = freed;
        begin_wait(watch, wait_ms);
    }
    hf_client_leave(client);
    return err;
}

enum hf_err hf_wait_held_start(struct hf_client *client, struct hf_key key,
                               uint32_t wait_ms, struct hf_info *info,
                               hf_done_fn *done, void *arg,
                               struct hf_future **future)
{
    return start_wait(client, key, wait_ms, HF_WATCH_WAIT_HELD, info, NULL,
                      (struct hf_listener){done, arg, future});
}

enum hf_err hf_wait_held(struct hf_client *client, struct hf_key key,
                         uint32_t wait_ms, struct hf_info *info)
{
    struct hf_future *future = NULL;
    enum hf_err err = hf_client_may_block(client);

    if (!err)
        err =
            hf_wait_held_start(client, key, wait_ms, info, NULL, NULL, &future);
    return hf_operation_wait(err, future);
}

enum hf_err hf_wait_free_start(struct hf_client *client, struct hf_key key,
                               uint32_t wait_ms, enum hf_freed *freed,
                               hf_done_fn *done, void *arg,
                               struct hf_future **future)
{
    return start_wait(client, key, wait_ms, HF_WATCH_WAIT_FREE, NULL, freed,
                      (struct hf_listener){done, arg, future});
}

enum hf_err hf_wait_free(struct hf_client *client, struct hf_key key,
                         uint32_t wait_ms, enum hf_freed *freed)
{
    struct hf_future *future = NULL;
    enum hf_err err = hf_client_may_block(client);

    if (!err)
        err = hf_wait_free_start(client, key, wait_ms, freed, NULL, NULL,
                                 &future);
    return hf_operation_wait(err, future);
}
