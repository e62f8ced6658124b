#include "client/call.h"

#include <stdlib.h>

#include "base/assert.h"
#include "client/client.h"
#include "client/operation.h"

#define BACK_OFF_DEFAULT_MS 50
#define BACK_OFF_MAX_MS 500
#define BACK_OFF_MIN_MS 2

static void on_call_timer(struct hf_timer *timer);
static void on_answer(struct hf_request *request);

static struct hf_host *host_of(const struct hf_call *call)
{
    return &call->client->host;
}

static void set_call_timer(struct hf_call *call, hf_time at)
{
    hf_timer_set(host_of(call), &call->timer, at);
}

enum hf_err hf_call_init(struct hf_call *call, struct hf_client *client,
                         void (*settled)(struct hf_call *call))
{
    enum hf_err err;

    call->client = client;
    call->settled = settled;
    call->timer.fire = on_call_timer;
    call->request.done = on_answer;
    call->back_off_ms = BACK_OFF_DEFAULT_MS;
    err = client->host.ops->timer_add(&client->host, &call->timer);
    if (err)
        call->client = NULL;
    return err;
}

/* Takes ownership of `cause`. */
static void set_cause(struct hf_call *call, char *cause)
{
    free(call->cause);
    call->cause = cause;
}

void hf_call_fini(struct hf_call *call)
{
    if (!call->client)
        return;
    hf_call_abandon(call);
    hf_answer_clear(&call->request.answer);
    set_cause(call, NULL);
    host_of(call)->ops->timer_remove(host_of(call), &call->timer);
    call->client = NULL;
}

/* The lowest sequence number that is still open; the next one to be used if
 * none is open. The server may forget the results of commands with lower
 * numbers. */
static uint64_t lowest_open_sequence(const struct hf_client *client)
{
    struct hf_dlist *first = hf_dlist_first(&client->calls);

    if (!first)
        return client->next_sequence;
    return HF_CONTAINER(first, struct hf_call, link)->request.command.sequence;
}

/* When the current attempt was sent; HF_NEVER if it was not sent yet. */
static hf_time call_sent_at(const struct hf_call *call)
{
    struct hf_client *client = call->client;

    if (call->state != HF_CALL_SENT)
        return HF_NEVER;
    if (!client->strategy->sent_at)
        return call->last_sent;
    return client->strategy->sent_at(client->self, &call->request);
}

static void set_timer_to_limit(struct hf_call *call)
{
    bool queued = call->queue_until > 0 && call->queue_until < call->deadline;

    set_call_timer(call, queued ? call->queue_until : call->deadline);
}

static void send_attempt(struct hf_call *call)
{
    struct hf_client *client = call->client;

    call->last_sent = hf_client_now(client);
    if (call->attempts == 0 || call->renumber)
        call->first_sent = call->last_sent;
    call->renumber = false;
    call->attempts++;
    call->state = HF_CALL_SENT;
    call->request.command.done = lowest_open_sequence(client);
    call->request.deadline =
        call->queue_until > call->deadline ? call->queue_until : call->deadline;
    client->strategy->submit(client->self, &call->request);
    /* A push inside submit() may have ended this call, so check its state. */
    if (call->state == HF_CALL_SENT && !call->request.answered)
        set_timer_to_limit(call);
}

static bool is_window_full(const struct hf_client *client)
{
    return client->next_sequence - lowest_open_sequence(client) >=
           HF_WINDOW_MAX;
}

static void send_with_new_sequence(struct hf_call *call)
{
    struct hf_client *client = call->client;

    call->request.command.sequence = client->next_sequence++;
    hf_dlist_push_back(&client->calls, &call->link);
    send_attempt(call);
}

static bool is_lock_call(struct hf_dlist *link)
{
    const struct hf_call *call = HF_CONTAINER(link, struct hf_call, link);

    return call->request.command.kind == HF_COMMAND_LOCK;
}

/* A request other than LOCK goes before all LOCKs: most such requests renew or
 * end a claim whose lease is running, and the LOCKs may be waiting for the same
 * claims to end. */
static void park_call(struct hf_call *call)
{
    struct hf_dlist *parked = &call->client->parked, *before = parked;

    if (call->request.command.kind != HF_COMMAND_LOCK) {
        before = parked->next;
        while (before != parked && !is_lock_call(before))
            before = before->next;
    }
    hf_dlist_insert(before, &call->link);
}

static void send_numbered(struct hf_call *call)
{
    if (is_window_full(call->client)) {
        call->state = HF_CALL_PARKED;
        park_call(call);
        set_timer_to_limit(call);
    } else {
        send_with_new_sequence(call);
    }
}

/* A LOOKUP is numbered like a command, although the store does not see its
 * number: hf_close() waits for numbered calls, and a release may depend on the
 * LOOKUP. */
static bool is_numbered(const struct hf_call *call)
{
    return call->request.kind == HF_REQUEST_COMMAND ||
           call->request.kind == HF_REQUEST_LOOKUP;
}

static void start_call(struct hf_call *call)
{
    HF_ASSERT(call->state == HF_CALL_IDLE);
    hf_answer_clear(&call->request.answer);
    set_cause(call, NULL);
    call->attempts = 0;
    call->in_doubt = false;
    call->renumber = false;
    call->expired_unsent = false;
    call->request.progress = 0;
    call->request.first_sent = HF_NEVER;
    call->request.command.session = 0;
    if (is_numbered(call))
        send_numbered(call);
    else
        send_attempt(call);
}

void hf_call_start(struct hf_call *call, hf_time deadline)
{
    call->deadline = deadline;
    call->queue_until = 0;
    start_call(call);
}

void hf_call_start_queued(struct hf_call *call, uint32_t timeout_ms,
                          hf_time queue_until)
{
    call->deadline = hf_time_add(hf_client_now(call->client), timeout_ms);
    call->queue_until = queue_until;
    call->timeout_ms = timeout_ms;
    start_call(call);
}

void hf_call_extend(struct hf_call *call, hf_time deadline)
{
    if (deadline <= call->deadline)
        return;
    call->deadline = deadline;
    if (call->state == HF_CALL_PARKED ||
        (call->state == HF_CALL_SENT && !call->request.answered))
        set_timer_to_limit(call);
}

bool hf_call_send_parked(struct hf_client *client)
{
    bool sent = false;

    while (!is_window_full(client) && !hf_dlist_is_empty(&client->parked)) {
        struct hf_dlist *link = hf_dlist_take(&client->parked);

        send_with_new_sequence(HF_CONTAINER(link, struct hf_call, link));
        sent = true;
    }
    return sent;
}

/* The window may have room for parked calls now, but they are not sent here: a
 * push inside submit() could change the lock that owns this call. They are sent
 * at the end of the turn, by hf_call_send_parked(). */
static void end_call(struct hf_call *call)
{
    struct hf_client *client = call->client;

    call->state = HF_CALL_IDLE;
    set_call_timer(call, HF_NEVER);
    hf_dlist_remove(&call->link);
    if (client->closing)
        hf_close_on_drained(client);
}

/* Make the strategy answer the request now, and remove the request from the
 * list of answered requests, so that on_answer() does not run. */
static void cancel_attempt(struct hf_call *call)
{
    struct hf_client *client = call->client;

    if (!call->request.answered)
        client->strategy->cancel(client->self, &call->request);
    HF_ASSERT(call->request.answered);
    call->request.answered = false;
    hf_dlist_remove(&call->request.link);
}

void hf_call_abandon(struct hf_call *call)
{
    if (call->state == HF_CALL_SENT)
        cancel_attempt(call);
    if (call->state != HF_CALL_IDLE)
        end_call(call);
}

static void settle_call(struct hf_call *call, enum hf_err err)
{
    end_call(call);
    call->request.answer.result.err = err;
    call->settled(call);
}

/* The delay doubles with each attempt, up to BACK_OFF_MAX_MS. A random time of
 * up to the same length is added, so that clients that failed together do not
 * retry together. */
static void back_off_call(struct hf_call *call)
{
    uint32_t shift = call->attempts < 8 ? call->attempts - 1 : 7;
    uint64_t doubled = (uint64_t)call->back_off_ms << shift;
    uint32_t delay =
        doubled < BACK_OFF_MAX_MS ? (uint32_t)doubled : BACK_OFF_MAX_MS;
    hf_time at;

    delay +=
        hf_random_below(&call->client->random, delay + 1) + BACK_OFF_MIN_MS;
    at = hf_time_add(hf_client_now(call->client), delay);
    call->state = HF_CALL_BACKING_OFF;
    set_call_timer(call, at < call->deadline ? at : call->deadline);
}

static void fail_call(struct hf_call *call)
{
    struct hf_answer *answer = &call->request.answer;

    if (!answer->cause) {
        answer->cause = call->cause;
        call->cause = NULL;
    }
    settle_call(call, call->in_doubt ? HF_EINDOUBT : HF_EUNAVAIL);
}

/* Called when the strategy has reported that the attempt was lost or could not
 * be sent. */
static void retry_or_fail(struct hf_call *call, enum hf_err err)
{
    hf_time now = hf_client_now(call->client);

    if (err == HF_EINDOUBT)
        call->in_doubt = true;
    if (call->queue_until > 0) { /* timeout_ms counts from now */
        call->queue_until = 0;
        call->deadline = hf_time_add(now, call->timeout_ms);
    }
    if (now >= call->deadline) {
        fail_call(call);
        return;
    }
    back_off_call(call);
    if (call->failed)
        call->failed(call);
}

/* Returns true if it does no harm to execute the command twice. */
static bool may_run_twice(const struct hf_command *command)
{
    return command->kind == HF_COMMAND_RENEW ||
           command->kind == HF_COMMAND_CANCEL;
}

static void on_session_gone(struct hf_call *call)
{
    if (may_run_twice(&call->request.command)) {
        call->renumber = true;
        retry_or_fail(call, HF_EINDOUBT);
    } else {
        settle_call(call, HF_EINDOUBT);
    }
}

/* Returns true if `err` is the result of a command that was executed, and not a
 * reason for which the server or the strategy has refused this copy of it. */
static bool is_result(enum hf_err err)
{
    return err == HF_OK || err == HF_EBUSY || err == HF_ENOTHELD ||
           err == HF_ENOTOWNER || err == HF_EEXPIRED || err == HF_EMISMATCH ||
           err == HF_EFORCED;
}

/* A refusal concerns one copy of a command. If another copy is in doubt, the
 * command may have been executed all the same. The owner of a LOCK withdraws
 * the claim in that case, and RENEW and CANCEL may be executed twice. */
static bool is_still_in_doubt(const struct hf_call *call, enum hf_err err)
{
    const struct hf_request *request = &call->request;

    return call->in_doubt && !is_result(err) &&
           request->kind == HF_REQUEST_COMMAND &&
           request->command.kind != HF_COMMAND_LOCK &&
           !may_run_twice(&request->command);
}

static void on_answer(struct hf_request *request)
{
    struct hf_call *call = HF_CONTAINER(request, struct hf_call, request);
    enum hf_err err = request->answer.result.err;

    if (request->answer.session_gone)
        on_session_gone(call);
    else if (err == HF_EINDOUBT || err == HF_EUNAVAIL)
        retry_or_fail(call, err);
    else
        settle_call(call, is_still_in_doubt(call, err) ? HF_EINDOUBT : err);
}

/* Called when the timer of the call has fired. For hf_call_start_queued(),
 * compute the deadline again: an unsent request may wait until queue_until, and
 * a sent request has timeout_ms from when it was sent. Returns false if no time
 * is left. Sets expired_unsent if queue_until passed before the request was
 * sent. */
static bool extend_deadline(struct hf_call *call)
{
    hf_time now = hf_client_now(call->client);
    hf_time sent;

    if (call->queue_until == 0)
        return false;
    sent = call_sent_at(call);
    if (sent == HF_NEVER && now >= call->queue_until) {
        call->expired_unsent = true;
        return false;
    }
    if (sent != HF_NEVER)
        call->queue_until = 0;
    call->deadline =
        hf_time_add(sent == HF_NEVER ? now : sent, call->timeout_ms);
    return now < call->deadline;
}

/* Returns true if a LIST may continue because parts of its answer still arrive.
 * Then this moves the deadline, up to HF_LIST_TIMEOUT_MS after the first
 * send. */
static bool is_making_progress(struct hf_call *call)
{
    hf_time until = hf_time_add(call->request.progress, HF_ANSWER_TIMEOUT_MS);
    hf_time limit = hf_time_add(call->first_sent, HF_LIST_TIMEOUT_MS);

    if (call->request.kind != HF_REQUEST_LIST || call->request.progress == 0)
        return false;
    if (until > limit)
        until = limit;
    if (until > call->deadline)
        call->deadline = until;
    return hf_client_now(call->client) < call->deadline;
}

static void on_limit(struct hf_call *call)
{
    if (extend_deadline(call) || is_making_progress(call)) {
        set_timer_to_limit(call);
        return;
    }
    if (call->state == HF_CALL_SENT) {
        cancel_attempt(call);
        call->in_doubt =
            call->in_doubt || call->request.answer.result.err != HF_EUNAVAIL;
    }
    fail_call(call);
}

/* Send the next attempt. Any session may execute it if it is a new command, or
 * if no earlier copy can have been executed. */
static void send_again(struct hf_call *call)
{
    if (call->renumber || !call->in_doubt)
        call->request.command.session = 0;
    if (call->renumber) {
        hf_dlist_remove(&call->link);
        send_numbered(call);
    } else {
        send_attempt(call);
    }
}

static void on_call_timer(struct hf_timer *timer)
{
    struct hf_call *call = HF_CONTAINER(timer, struct hf_call, timer);

    HF_ASSERT(call->state != HF_CALL_IDLE);
    if (call->state == HF_CALL_SENT && call->request.answered)
        return; /* answered in this turn; on_answer() follows */
    if (call->state != HF_CALL_BACKING_OFF ||
        hf_client_now(call->client) >= call->deadline) {
        on_limit(call);
    } else {
        if (call->request.answer.cause) {
            set_cause(call, call->request.answer.cause);
            call->request.answer.cause = NULL;
        }
        hf_answer_clear(&call->request.answer);
        send_again(call);
    }
}
