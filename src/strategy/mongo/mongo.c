#include "strategy/mongo/mongo.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "strategy/mongo/greeting.h"
#include "strategy/mongo/library.h"

#define LOOK_SELDOM_MS 20000

/* ---- Calls --------------------------------------------------------------*/

void hf_mongo_call_free(struct hf_mongo_call *call)
{
    hf_list_remove(&call->open);
    if (call->is_due)
        call->mongo->due_looks--;
    hf_mongo_question_fini(&call->question);
    hf_mongo_look_fini(&call->look);
    free(call);
}

/* Answer a call whose worker still waits for the server: the reply finds nobody
 * when it comes. */
static void give_up(struct hf_mongo_call *call, enum hf_mongo_progress progress)
{
    struct hf_request *request = call->request;
    struct hf_mongo *mongo = call->mongo;

    call->request = NULL;
    if (request->kind == HF_REQUEST_COMMAND && progress == HF_MONGO_SENT) {
        request->answer.result.err = HF_EINDOUBT;
        if (request->command.kind == HF_COMMAND_LOCK)
            hf_mongo_doubts_add(&mongo->doubts, &request->command.nonce);
    } else {
        request->answer.result.err = HF_EUNAVAIL;
    }
    mongo->host->ops->answer(mongo->host, request);
}

static void job_done(struct hf_mongo_job *job)
{
    struct hf_mongo_call *call = HF_CONTAINER(job, struct hf_mongo_call, job);

    call->replied(call);
}

static void job_lost(struct hf_mongo_job *job)
{
    struct hf_mongo_call *call = HF_CONTAINER(job, struct hf_mongo_call, job);

    if (call->request)
        give_up(call, hf_mongo_crew_take_back(call->mongo->crew, job));
}

/* The strategy is gone, and its lists with it. */
static void job_drop(struct hf_mongo_job *job)
{
    struct hf_mongo_call *call = HF_CONTAINER(job, struct hf_mongo_call, job);

    call->open = (struct hf_list){0};
    call->is_due = false;
    hf_mongo_call_free(call);
}

struct hf_mongo_call *hf_mongo_call_new(
    struct hf_mongo *mongo, struct hf_request *request,
    void (*replied)(struct hf_mongo_call *call))
{
    struct hf_mongo_call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    call->mongo = mongo;
    call->request = request;
    call->replied = replied;
    call->job.done = job_done;
    call->job.lost = job_lost;
    call->job.drop = job_drop;
    call->sent = mongo->host->ops->now(mongo->host);
    hf_list_push_back(&mongo->calls, &call->open);
    return call;
}

void hf_mongo_answer(struct hf_mongo_call *call)
{
    struct hf_host *host = call->mongo->host;
    struct hf_request *request = call->request;

    hf_mongo_call_free(call);
    if (request)
        host->ops->answer(host, request);
}

static void refuse(struct hf_mongo *mongo, struct hf_request *request,
                   enum hf_err err)
{
    request->answer.result.err = err;
    mongo->host->ops->answer(mongo->host, request);
}

static void give(struct hf_mongo_call *call)
{
    if (hf_mongo_crew_give(call->mongo->crew, &call->job))
        return;
    if (call->request)
        call->request->answer.result.err = HF_EUNAVAIL;
    hf_mongo_answer(call);
}

static void run_question(struct hf_mongo_job *job, mongoc_client_t *client,
                         const struct hf_mongo_place *place)
{
    struct hf_mongo_call *call = HF_CONTAINER(job, struct hf_mongo_call, job);

    hf_mongo_run(&call->question, client, place, &call->reply);
}

static void run_look(struct hf_mongo_job *job, mongoc_client_t *client,
                     const struct hf_mongo_place *place)
{
    struct hf_mongo_call *call = HF_CONTAINER(job, struct hf_mongo_call, job);

    hf_mongo_look(&call->look, client, place);
}

void hf_mongo_send_question(struct hf_mongo_call *call)
{
    call->job.run = run_question;
    give(call);
}

void hf_mongo_send_look(struct hf_mongo_call *call)
{
    call->job.run = run_look;
    give(call);
}

/* ---- Commands -----------------------------------------------------------*/

/* Where the stream lives, grants are pushed and none is lost: a claim looks again
 * for what no push reports, such as the death of all that were to look. */
static void look_seldom(struct hf_mongo *mongo, struct hf_answer *answer)
{
    uint32_t span = LOOK_SELDOM_MS;

    span += hf_random_below(mongo->host->ops->random(mongo->host), span / 2);
    if (answer->look_again_ms == 0 || answer->look_again_ms > span)
        answer->look_again_ms = span;
    answer->is_pushed = true;
}

static void locked(struct hf_mongo *mongo, const struct hf_request *request,
                   const struct hf_mongo_reply *reply, struct hf_answer *answer)
{
    const struct hf_nonce *nonce = &request->command.nonce;

    if (reply->err == HF_EINDOUBT)
        hf_mongo_doubts_add(&mongo->doubts, nonce);
    if (answer->result.place == 0) {
        if (reply->err == HF_OK)
            hf_mongo_waiters_drop(mongo, nonce);
        return;
    }
    if (hf_mongo_waiters_add(mongo, nonce) &&
        hf_mongo_hear_grants(mongo, reply->time))
        look_seldom(mongo, answer);
    if (hf_mongo_was_granted(mongo, nonce))
        answer->look_again_ms = 1;
}

static void ended(struct hf_mongo *mongo, const struct hf_request *request)
{
    enum hf_command_kind kind = request->command.kind;

    if (kind == HF_COMMAND_UNLOCK || kind == HF_COMMAND_CANCEL)
        hf_mongo_doubts_drop(&mongo->doubts, &request->command.nonce);
}

static void command_replied(struct hf_mongo_call *call)
{
    struct hf_request *request = call->request;
    struct hf_mongo *mongo = call->mongo;

    hf_mongo_asker_learn(&mongo->asker, &call->reply);
    if (!request) {
        struct hf_nonce nonce;

        if (call->question.script == HF_MONGO_LOCK &&
            call->reply.err != HF_EINDOUBT &&
            hf_mongo_question_nonce(&call->question, &nonce))
            hf_mongo_doubts_settle(&mongo->doubts, &nonce);
        hf_mongo_call_free(call);
        return;
    }
    hf_mongo_conclude(&request->command, &call->reply, call->sent,
                      &request->answer);
    if (request->command.kind == HF_COMMAND_LOCK)
        locked(mongo, request, &call->reply, &request->answer);
    else if (call->reply.err == HF_OK)
        ended(mongo, request);
    hf_mongo_answer(call);
}

/* What keeps or ends a lock goes before what takes one. */
static enum hf_mongo_urgency urgency_of(enum hf_command_kind kind)
{
    if (kind == HF_COMMAND_LOCK)
        return HF_MONGO_TAKES;
    return kind == HF_COMMAND_CANCEL ? HF_MONGO_WITHDRAWS : HF_MONGO_KEEPS;
}

static void run_command(struct hf_mongo *mongo, struct hf_request *request)
{
    bool doubtful =
        hf_mongo_doubts_has(&mongo->doubts, &request->command.nonce);
    struct hf_mongo_call *call =
        hf_mongo_call_new(mongo, request, command_replied);
    bool waits = hf_mongo_waiters_has(mongo, &request->command.nonce);
    enum hf_err err = call ? hf_mongo_ask(&call->question, &mongo->asker,
                                          &request->command, doubtful, waits)
                           : HF_ENOMEM;

    if (request->command.kind == HF_COMMAND_CANCEL)
        hf_mongo_waiters_drop(mongo, &request->command.nonce);
    if (!err) {
        call->job.urgency = urgency_of(request->command.kind);
        call->job.subject = hf_siphash(&mongo->seed, request->command.key.data,
                                       request->command.key.size);
        hf_mongo_send_question(call);
        return;
    }
    if (call)
        hf_mongo_call_free(call);
    refuse(mongo, request, err);
}

/* ---- Reading ------------------------------------------------------------*/

static enum hf_err give_free(struct hf_request *request, uint64_t time)
{
    struct hf_info none = {
        .key = request->command.key,
        .owner = "",
        .note = "",
        .index = HF_MONGO_INDEX(time),
    };
    enum hf_err err;

    request->answer.infos = calloc(1, sizeof(none));
    if (!request->answer.infos)
        return HF_ENOMEM;
    err = hf_info_copy(request->answer.infos, &none);
    request->answer.count = err ? 0 : 1;
    return err;
}

static void give_infos(struct hf_mongo_call *call)
{
    struct hf_mongo_look *look = &call->look;
    struct hf_answer *answer = &call->request->answer;

    answer->infos = look->infos;
    answer->count = look->count;
    answer->index = HF_MONGO_INDEX(look->reply.time);
    look->infos = NULL;
    look->count = 0;
}

static void looked(struct hf_mongo_call *call)
{
    struct hf_mongo_look *look = &call->look;
    struct hf_request *request = call->request;
    enum hf_err err = look->reply.err;

    if (!request) {
        hf_mongo_call_free(call);
        return;
    }
    if (!err)
        give_infos(call);
    else if (*look->reply.cause)
        request->answer.cause = strdup(look->reply.cause);
    if (!err && request->kind == HF_REQUEST_READ && request->answer.count == 0)
        err = give_free(request, look->reply.time);
    request->answer.result.err = err;
    hf_mongo_answer(call);
}

struct hf_mongo_call *hf_mongo_look_new(
    struct hf_mongo *mongo, struct hf_request *request,
    enum hf_mongo_scope scope, void (*replied)(struct hf_mongo_call *call))
{
    struct hf_mongo_call *call = hf_mongo_call_new(mongo, request, replied);
    enum hf_err err =
        call ? hf_mongo_look_init(&call->look, request->command.key, scope)
             : HF_ENOMEM;

    if (!err) {
        memcpy(call->look.client, mongo->asker.client,
               sizeof(call->look.client));
        return call;
    }
    if (call)
        hf_mongo_call_free(call);
    refuse(mongo, request, err);
    return NULL;
}

static void run_look_request(struct hf_mongo *mongo, struct hf_request *request)
{
    bool one = request->kind == HF_REQUEST_READ;
    struct hf_mongo_call *call = hf_mongo_look_new(
        mongo, request, one ? HF_MONGO_ONE : HF_MONGO_PREFIX, looked);

    if (!call)
        return;
    call->look.local = one && request->how == HF_LOCAL;
    hf_mongo_send_look(call);
}

/* ---- Requests -----------------------------------------------------------*/

static void submit(void *self, struct hf_request *request)
{
    struct hf_mongo *mongo = self;

    switch (request->kind) {
    case HF_REQUEST_COMMAND:
        run_command(mongo, request);
        break;
    case HF_REQUEST_READ:
    case HF_REQUEST_LIST:
        run_look_request(mongo, request);
        break;
    case HF_REQUEST_WATCH:
        hf_mongo_watch(mongo, request);
        break;
    case HF_REQUEST_UNWATCH:
        hf_mongo_unwatch(mongo, request->watch);
        mongo->host->ops->answer(mongo->host, request);
        break;
    }
}

static struct hf_mongo_call *find(const struct hf_mongo *mongo,
                                  const struct hf_request *request)
{
    struct hf_list *link = mongo->calls.next;

    while (HF_CONTAINER(link, struct hf_mongo_call, open)->request != request) {
        link = link->next;
        HF_ASSERT(link != &mongo->calls);
    }
    return HF_CONTAINER(link, struct hf_mongo_call, open);
}

static hf_time sent_at(void *self, const struct hf_request *request)
{
    struct hf_mongo *mongo = self;
    const struct hf_mongo_call *call = find(mongo, request);

    return hf_mongo_crew_begun_at(mongo->crew, &call->job);
}

static void cancel(void *self, struct hf_request *request)
{
    struct hf_mongo *mongo = self;
    struct hf_mongo_call *call = find(mongo, request);
    enum hf_mongo_progress progress =
        hf_mongo_crew_take_back(mongo->crew, &call->job);

    hf_answer_clear(&request->answer);
    if (progress != HF_MONGO_WAITING) {
        give_up(call, progress);
        return;
    }
    hf_mongo_call_free(call);
    refuse(mongo, request, HF_EUNAVAIL);
}

/* ---- Opening ------------------------------------------------------------*/

static enum hf_err start(struct hf_mongo *mongo, struct hf_error *error)
{
    enum hf_err err = hf_mongo_greet(mongo->crew, error);

    if (err)
        return err;
    err = hf_mongo_asker_init(&mongo->asker, mongo->host);
    if (!err)
        err = hf_mongo_due_open(mongo);
    if (!err)
        err = hf_mongo_watch_open(mongo);
    if (!err)
        err = hf_mongo_sweep_open(mongo);
    return err ? hf_error_code(error, err) : HF_OK;
}

static void mongo_close(void *self)
{
    struct hf_mongo *mongo = self;

    hf_mongo_sweep_close(mongo);
    hf_mongo_watch_close(mongo);
    hf_mongo_waiters_close(mongo);
    hf_mongo_due_close(mongo);
    hf_mongo_crew_close(mongo->crew);
    hf_mongo_asker_fini(&mongo->asker);
    hf_mongo_doubts_fini(&mongo->doubts);
}

static enum hf_err mongo_open(void *self, struct hf_url *url,
                              struct hf_host *host, struct hf_error *error)
{
    struct hf_mongo *mongo = self;
    struct hf_mongo_address address = {0};
    enum hf_err err;

    mongo->host = host;
    hf_list_init(&mongo->calls);
    hf_mongo_doubts_init(&mongo->doubts);
    hf_list_init(&mongo->watches);
    hf_map_init(&mongo->due);
    hf_map_init(&mongo->waiters);
    hf_mongo_library_init();
    err = hf_mongo_address_init(&address, url, error);
    if (err)
        return err;
    err = hf_mongo_crew_open(&mongo->crew, &address, host, error);
    hf_mongo_address_fini(&address);
    if (err)
        return err;
    err = start(mongo, error);
    if (err)
        mongo_close(mongo);
    return err;
}

/* A server's wall clock times the leases, and may be set: no `steady`. A
 * standalone server has nothing to fail over to, tells nobody of changes, and
 * after a clean-up its clock alone speaks for the tokens. Of a failover who is
 * connected to one member alone may not hear. */
static uint32_t caps(const void *self)
{
    const struct hf_mongo *mongo = self;
    const struct hf_mongo_place *place = hf_mongo_crew_place(mongo->crew);
    uint32_t caps = HF_CAP_DURABLE | HF_CAP_FIFO | HF_CAP_LINEARIZABLE_READ |
                    HF_CAP_VALUE | HF_CAP_FLEET;

    if (place->alone)
        return caps;
    if (!place->address.direct)
        caps |= HF_CAP_FAILOVER_SAFE;
    return caps | HF_CAP_FENCE | HF_CAP_PUSH | HF_CAP_WATCH;
}

static void mongo_describe(const void *self, hf_fact_fn *each, void *arg)
{
    const struct hf_mongo *mongo = self;

    each("server",
         hf_mongo_crew_place(mongo->crew)->alone
             ? "MongoDB, standalone"
             : "MongoDB, replica set or sharded cluster",
         arg);
}

/* With MongoDB's defaults a primary that hangs is replaced after 21 s: 10 s until
 * the election, and 10 s in which the new one waits for the old one's newest
 * write. A lease of 30 s outlives that if 25 s are left when it begins. */
#define RENEW_PART 6

#define STRATEGY(name)                                                         \
    {                                                                          \
        .scheme = (name), .size = sizeof(struct hf_mongo),                     \
        .renew_part = RENEW_PART, .open = mongo_open, .caps = caps,            \
        .describe = mongo_describe, .submit = submit, .cancel = cancel,        \
        .sent_at = sent_at, .close = mongo_close,                              \
    }

const struct hf_strategy hf_strategy_mongodb = STRATEGY("mongodb");
const struct hf_strategy hf_strategy_mongodb_srv = STRATEGY("mongodb+srv");
