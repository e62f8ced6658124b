#include "client/call.h"

#include "base/assert.h"
#include "client/client.h"

#define PATIENCE_DEFAULT_MS 200
#define PATIENCE_MAX_MS 2000
#define REST_MIN_MS 2

static void on_timer(struct hf_timer *timer);
static void on_answer(struct hf_request *request);

static struct hf_host *host_of(const struct hf_call *call)
{
    return &call->client->host;
}

static void set_timer(struct hf_call *call, hf_time at)
{
    hf_timer_set(host_of(call), &call->timer, at);
}

enum hf_err hf_call_init(struct hf_call *call, struct hf_client *client,
                         void (*settled)(struct hf_call *call))
{
    enum hf_err err;

    call->client = client;
    call->settled = settled;
    call->timer.fire = on_timer;
    call->request.done = on_answer;
    call->patience_ms = PATIENCE_DEFAULT_MS;
    err = client->host.ops->timer_add(&client->host, &call->timer);
    if (err)
        call->client = NULL;
    return err;
}

void hf_call_fini(struct hf_call *call)
{
    if (!call->client)
        return;
    hf_call_abandon(call);
    hf_answer_clear(&call->request.answer);
    host_of(call)->ops->timer_remove(host_of(call), &call->timer);
    call->client = NULL;
}

/* The lowest number that is still awaited: what is below, the server may
 * forget. */
static uint64_t awaited_from(const struct hf_client *client)
{
    struct hf_list *first = hf_list_first(&client->calls);

    if (!first)
        return client->next_sequence;
    return HF_CONTAINER(first, struct hf_call, link)->request.command.sequence;
}

/* How long this attempt may take: patience doubles, up to a limit. */
static uint32_t patience(const struct hf_call *call)
{
    uint32_t shift = call->attempts < 6 ? call->attempts : 6;
    uint64_t span = (uint64_t)call->patience_ms << shift;

    return span < PATIENCE_MAX_MS ? (uint32_t)span : PATIENCE_MAX_MS;
}

static hf_time no_later(const struct hf_call *call, uint32_t span)
{
    hf_time at = hf_time_add(hf_client_now(call->client), span);

    return at < call->deadline ? at : call->deadline;
}

static void send(struct hf_call *call)
{
    struct hf_client *client = call->client;

    if (call->attempts == 0)
        call->first_sent = hf_client_now(client);
    call->state = HF_CALL_SENT;
    call->request.command.done = awaited_from(client);
    client->strategy->submit(client->self, &call->request);
    /* A push from inside that may have ended this call. */
    if (call->state == HF_CALL_SENT && !call->request.answered)
        set_timer(call, no_later(call, patience(call)));
    call->attempts++;
}

static bool window_is_full(const struct hf_client *client)
{
    return client->next_sequence - awaited_from(client) >= HF_WINDOW_MAX;
}

static void number(struct hf_call *call)
{
    struct hf_client *client = call->client;

    call->request.command.sequence = client->next_sequence++;
    hf_list_push_back(&client->calls, &call->link);
    send(call);
}

static bool begins_claim(struct hf_list *link)
{
    const struct hf_call *call = HF_CONTAINER(link, struct hf_call, link);

    return call->request.command.kind == HF_COMMAND_LOCK;
}

/* What keeps or ends a claim goes before what begins one: it has less time, and
 * those who begin wait for it. */
static void park(struct hf_call *call)
{
    struct hf_list *parked = &call->client->parked, *before = parked;

    if (call->request.command.kind != HF_COMMAND_LOCK) {
        before = parked->next;
        while (before != parked && !begins_claim(before))
            before = before->next;
    }
    hf_list_insert(before, &call->link);
}

void hf_call_start(struct hf_call *call, hf_time deadline)
{
    struct hf_client *client = call->client;

    HF_ASSERT(call->state == HF_CALL_IDLE);
    hf_answer_clear(&call->request.answer);
    call->attempts = 0;
    call->in_doubt = false;
    call->deadline = deadline;
    if (call->request.kind != HF_REQUEST_COMMAND) {
        send(call);
    } else if (window_is_full(client)) {
        call->state = HF_CALL_PARKED;
        park(call);
        set_timer(call, deadline);
    } else {
        number(call);
    }
}

/* Where it is sent or rests, its timer may still be for the deadline it had:
 * then it asks once more, no harm done. */
void hf_call_extend(struct hf_call *call, hf_time deadline)
{
    if (deadline <= call->deadline)
        return;
    call->deadline = deadline;
    if (call->state == HF_CALL_PARKED)
        set_timer(call, deadline);
}

static void unpark(struct hf_client *client)
{
    while (!window_is_full(client) && !hf_list_empty(&client->parked)) {
        struct hf_list *link = hf_list_take(&client->parked);

        number(HF_CONTAINER(link, struct hf_call, link));
    }
}

static void stop(struct hf_call *call)
{
    struct hf_client *client = call->client;

    call->state = HF_CALL_IDLE;
    set_timer(call, HF_NEVER);
    hf_list_remove(&call->link);
    if (!hf_list_empty(&client->parked))
        unpark(client);
    else if (client->draining && hf_list_empty(&client->calls))
        hf_loop_release(client->draining);
}

/* Have the strategy let go of it now, and take the answer out of the line. */
static void take_back(struct hf_call *call)
{
    struct hf_client *client = call->client;

    if (!call->request.answered)
        client->strategy->cancel(client->self, &call->request);
    HF_ASSERT(call->request.answered);
    call->request.answered = false;
    hf_list_remove(&call->request.link);
}

void hf_call_abandon(struct hf_call *call)
{
    if (call->state == HF_CALL_SENT)
        take_back(call);
    if (call->state != HF_CALL_IDLE)
        stop(call);
}

static void settle(struct hf_call *call, enum hf_err err)
{
    stop(call);
    call->request.answer.result.err = err;
    call->settled(call);
}

/* Rest between attempts: about half as long as was waited for an answer, so
 * that those who failed together do not come back together. */
static void rest(struct hf_call *call)
{
    uint32_t span = patience(call) / 4;

    span += hf_random_below(&call->client->random, span + 1) + REST_MIN_MS;
    call->state = HF_CALL_RESTING;
    set_timer(call, no_later(call, span));
}

/* The attempt came to nothing: again, or it ends so. */
static void attempt_failed(struct hf_call *call, enum hf_err err)
{
    if (err == HF_EINDOUBT)
        call->in_doubt = true;
    if (hf_client_now(call->client) >= call->deadline)
        settle(call, call->in_doubt ? HF_EINDOUBT : HF_EUNAVAIL);
    else
        rest(call);
}

static void on_answer(struct hf_request *request)
{
    struct hf_call *call = HF_CONTAINER(request, struct hf_call, request);
    enum hf_err err = request->answer.result.err;

    if (err == HF_EINDOUBT || err == HF_EUNAVAIL)
        attempt_failed(call, err);
    else
        settle(call, err);
}

/* It waits its turn: to ask again would be to lose it. */
static bool waits_its_turn(const struct hf_call *call)
{
    struct hf_client *client = call->client;

    return call->state == HF_CALL_SENT && client->strategy->is_unsent &&
           hf_client_now(client) < call->deadline &&
           client->strategy->is_unsent(client->self, &call->request);
}

static void on_timer(struct hf_timer *timer)
{
    struct hf_call *call = HF_CONTAINER(timer, struct hf_call, timer);

    HF_ASSERT(call->state != HF_CALL_IDLE);
    if (call->state == HF_CALL_SENT && call->request.answered)
        return; /* just now, by another timer: on_answer() is to run */
    if (waits_its_turn(call)) {
        set_timer(call, no_later(call, patience(call)));
    } else if (call->state == HF_CALL_SENT) {
        take_back(call);
        attempt_failed(call, call->request.answer.result.err == HF_EUNAVAIL
                                 ? HF_EUNAVAIL
                                 : HF_EINDOUBT);
    } else if (hf_client_now(call->client) >= call->deadline) {
        settle(call, call->in_doubt ? HF_EINDOUBT : HF_EUNAVAIL);
    } else {
        hf_answer_clear(&call->request.answer);
        if (HF_MUTANT(44))
            call->request.command.sequence = call->client->next_sequence++;
        send(call);
    }
}
