#include "strategy/mongo/mongo.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "strategy/mongo/handshake.h"
#include "strategy/mongo/library.h"

#define PUSHED_RETRY_MS 20000 /* see set_pushed_retry() */

/* ---- Calls --------------------------------------------------------------*/

void hf_mongo_call_free(struct hf_mongo_call *call)
{
    hf_dlist_remove(&call->open);
    if (call->is_expiry_check)
        call->mongo->expiry_checks--;
    hf_mongo_op_fini(&call->op);
    hf_mongo_query_fini(&call->query);
    free(call);
}

/* Answer the request of a call that a worker executes or has executed. The call
 * itself stays until its reply arrives; the reply shows whether a LOCK was
 * executed. */
static void abandon_call(struct hf_mongo_call *call,
                         enum hf_mongo_progress progress)
{
    struct hf_request *request = call->request;
    struct hf_mongo *mongo = call->mongo;

    call->request = NULL;
    if (request->kind == HF_REQUEST_COMMAND && progress == HF_MONGO_SENT) {
        request->answer.result.err = HF_EINDOUBT;
        if (request->command.kind == HF_COMMAND_LOCK)
            hf_mongo_in_doubt_add(&mongo->in_doubt, &request->command.nonce);
    } else {
        request->answer.result.err = HF_EUNAVAIL;
    }
    mongo->host->ops->answer(mongo->host, request);
}

static void on_job_done(struct hf_mongo_job *job)
{
    struct hf_mongo_call *call = HF_CONTAINER(job, struct hf_mongo_call, job);

    call->on_reply(call);
}

static void on_job_lost(struct hf_mongo_job *job)
{
    struct hf_mongo_call *call = HF_CONTAINER(job, struct hf_mongo_call, job);

    if (call->request)
        abandon_call(call, hf_mongo_workers_cancel(call->mongo->workers, job));
}

/* Free the call of a strategy that was closed. `mongo` may be freed already, so
 * hf_mongo_call_free() must not touch it. */
static void drop_call_job(struct hf_mongo_job *job)
{
    struct hf_mongo_call *call = HF_CONTAINER(job, struct hf_mongo_call, job);

    call->open = (struct hf_dlist){0};
    call->is_expiry_check = false;
    hf_mongo_call_free(call);
}

struct hf_mongo_call *hf_mongo_call_new(
    struct hf_mongo *mongo, struct hf_request *request,
    void (*on_reply)(struct hf_mongo_call *call))
{
    struct hf_mongo_call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    call->mongo = mongo;
    call->request = request;
    call->on_reply = on_reply;
    call->job.done = on_job_done;
    call->job.lost = on_job_lost;
    call->job.drop = drop_call_job;
    call->sent = mongo->host->ops->now(mongo->host);
    hf_dlist_push_back(&mongo->calls, &call->open);
    return call;
}

void hf_mongo_call_answer(struct hf_mongo_call *call)
{
    struct hf_host *host = call->mongo->host;
    struct hf_request *request = call->request;

    hf_mongo_call_free(call);
    if (request)
        host->ops->answer(host, request);
}

static void fail_mongo_request(struct hf_mongo *mongo,
                               struct hf_request *request, enum hf_err err)
{
    request->answer.result.err = err;
    mongo->host->ops->answer(mongo->host, request);
}

static void submit_call(struct hf_mongo_call *call)
{
    if (hf_mongo_workers_submit(call->mongo->workers, &call->job))
        return;
    if (call->request)
        call->request->answer.result.err = HF_EUNAVAIL;
    hf_mongo_call_answer(call);
}

static void run_op_job(struct hf_mongo_job *job, mongoc_client_t *client,
                       const struct hf_mongo_context *context)
{
    struct hf_mongo_call *call = HF_CONTAINER(job, struct hf_mongo_call, job);

    hf_mongo_execute(&call->op, client, context, &call->reply);
}

static void run_query_job(struct hf_mongo_job *job, mongoc_client_t *client,
                          const struct hf_mongo_context *context)
{
    struct hf_mongo_call *call = HF_CONTAINER(job, struct hf_mongo_call, job);

    if (call->op.key)
        hf_mongo_query_run_linearizable(&call->query, &call->op, client,
                                        context);
    else
        hf_mongo_query_run(&call->query, client, context);
}

void hf_mongo_call_send_op(struct hf_mongo_call *call)
{
    call->job.run = run_op_job;
    submit_call(call);
}

void hf_mongo_call_send_query(struct hf_mongo_call *call)
{
    call->job.run = run_query_job;
    submit_call(call);
}

/* ---- Commands -----------------------------------------------------------*/

/* The stream is live, so the grant will be pushed, and no push is lost. The
 * waiter still repeats its LOCK, at the latest after PUSHED_RETRY_MS and a
 * random time of up to half as much, to notice what no push reports, such as
 * the death of all waiters that should have ended an offer. */
static void set_pushed_retry(struct hf_mongo *mongo, struct hf_answer *answer)
{
    uint32_t span = PUSHED_RETRY_MS;

    span += hf_random_below(mongo->host->ops->random(mongo->host), span / 2);
    if (answer->poll_after_ms == 0 || answer->poll_after_ms > span)
        answer->poll_after_ms = span;
    answer->is_pushed = true;
}

static void track_lock(struct hf_mongo *mongo, const struct hf_request *request,
                       const struct hf_mongo_reply *reply,
                       struct hf_answer *answer)
{
    const struct hf_nonce *nonce = &request->command.nonce;

    if (reply->err == HF_EINDOUBT)
        hf_mongo_in_doubt_add(&mongo->in_doubt, nonce);
    if (answer->result.position == 0) {
        if (reply->err == HF_OK)
            hf_mongo_waiters_remove(mongo, nonce);
        return;
    }
    if (hf_mongo_waiters_add(mongo, nonce) &&
        hf_mongo_watch_grants(mongo, reply->time))
        set_pushed_retry(mongo, answer);
    if (hf_mongo_watch_was_granted(mongo, nonce))
        answer->poll_after_ms = 1;
}

static void track_end(struct hf_mongo *mongo, const struct hf_request *request)
{
    enum hf_command_kind kind = request->command.kind;

    if (kind == HF_COMMAND_UNLOCK || kind == HF_COMMAND_CANCEL)
        hf_mongo_in_doubt_remove(&mongo->in_doubt, &request->command.nonce);
}

static void on_op_done(struct hf_mongo_call *call)
{
    struct hf_request *request = call->request;
    struct hf_mongo *mongo = call->mongo;

    if (call->reply.contended)
        hf_mongo_identity_note_contention(&mongo->identity);
    if (!request) {
        struct hf_nonce nonce;

        if (call->op.script == HF_MONGO_LOCK &&
            call->reply.err != HF_EINDOUBT &&
            hf_mongo_op_nonce(&call->op, &nonce))
            hf_mongo_in_doubt_resolve(&mongo->in_doubt, &nonce);
        hf_mongo_call_free(call);
        return;
    }
    hf_mongo_reply_to_answer(&request->command, &call->reply, call->sent,
                             &request->answer);
    if (request->command.kind == HF_COMMAND_LOCK)
        track_lock(mongo, request, &call->reply, &request->answer);
    else if (call->reply.err == HF_OK)
        track_end(mongo, request);
    hf_mongo_call_answer(call);
}

/* Commands that keep or end a lock are executed before commands that take
 * one. */
static enum hf_mongo_urgency urgency_of(enum hf_command_kind kind)
{
    if (kind == HF_COMMAND_LOCK)
        return HF_MONGO_TAKES;
    return kind == HF_COMMAND_CANCEL ? HF_MONGO_WITHDRAWS : HF_MONGO_KEEPS;
}

static void start_op(struct hf_mongo *mongo, struct hf_request *request)
{
    bool in_doubt =
        hf_mongo_in_doubt_has(&mongo->in_doubt, &request->command.nonce);
    struct hf_mongo_call *call = hf_mongo_call_new(mongo, request, on_op_done);
    bool waits = hf_mongo_waiters_has(mongo, &request->command.nonce);
    enum hf_err err = call
                          ? hf_mongo_op_init(&call->op, &mongo->identity,
                                             &request->command, in_doubt, waits)
                          : HF_ENOMEM;

    if (request->command.kind == HF_COMMAND_CANCEL)
        hf_mongo_waiters_remove(mongo, &request->command.nonce);
    if (!err) {
        call->job.urgency = urgency_of(request->command.kind);
        call->job.subject = hf_siphash(&mongo->seed, request->command.key.data,
                                       request->command.key.size);
        hf_mongo_call_send_op(call);
        return;
    }
    if (call)
        hf_mongo_call_free(call);
    fail_mongo_request(mongo, request, err);
}

/* ---- Queries ------------------------------------------------------------*/

static enum hf_err answer_free_key(struct hf_request *request, uint64_t time)
{
    struct hf_info free_info = {
        .key = request->command.key,
        .owner = "",
        .note = "",
        .index = HF_MONGO_INDEX(time),
    };
    enum hf_err err;

    request->answer.infos = calloc(1, sizeof(free_info));
    if (!request->answer.infos)
        return HF_ENOMEM;
    err = hf_info_copy(request->answer.infos, &free_info);
    request->answer.count = err ? 0 : 1;
    return err;
}

static void answer_infos(struct hf_mongo_call *call)
{
    struct hf_mongo_query *query = &call->query;
    struct hf_answer *answer = &call->request->answer;

    answer->infos = query->infos;
    answer->count = query->count;
    answer->index = HF_MONGO_INDEX(query->reply.time);
    query->infos = NULL;
    query->count = 0;
}

static void on_query_done(struct hf_mongo_call *call)
{
    struct hf_mongo_query *query = &call->query;
    struct hf_request *request = call->request;
    enum hf_err err = query->reply.err;

    if (!request) {
        hf_mongo_call_free(call);
        return;
    }
    if (!err)
        answer_infos(call);
    else if (*query->reply.cause)
        request->answer.cause = strdup(query->reply.cause);
    if (!err && request->kind == HF_REQUEST_READ && request->answer.count == 0)
        err = answer_free_key(request, query->reply.time);
    request->answer.result.err = err;
    hf_mongo_call_answer(call);
}

struct hf_mongo_call *hf_mongo_call_new_query(
    struct hf_mongo *mongo, struct hf_request *request,
    enum hf_mongo_scope scope, void (*on_reply)(struct hf_mongo_call *call))
{
    struct hf_mongo_call *call = hf_mongo_call_new(mongo, request, on_reply);
    enum hf_err err =
        call ? hf_mongo_query_init(&call->query, request->command.key, scope)
             : HF_ENOMEM;

    if (!err) {
        memcpy(call->query.client, mongo->identity.client,
               sizeof(call->query.client));
        return call;
    }
    if (call)
        hf_mongo_call_free(call);
    fail_mongo_request(mongo, request, err);
    return NULL;
}

static void start_query(struct hf_mongo *mongo, struct hf_request *request)
{
    bool one = request->kind == HF_REQUEST_READ;
    struct hf_mongo_call *call = hf_mongo_call_new_query(
        mongo, request, one ? HF_MONGO_ONE : HF_MONGO_PREFIX, on_query_done);

    if (!call)
        return;
    call->query.local = one && request->how == HF_LOCAL;
    if (one && !call->query.local &&
        hf_mongo_op_init_expire(&call->op, &mongo->identity,
                                request->command.key)) {
        hf_mongo_call_free(call);
        fail_mongo_request(mongo, request, HF_ENOMEM);
        return;
    }
    hf_mongo_call_send_query(call);
}

/* ---- Requests -----------------------------------------------------------*/

static void mongo_submit(void *self, struct hf_request *request)
{
    struct hf_mongo *mongo = self;

    switch (request->kind) {
    case HF_REQUEST_COMMAND:
        start_op(mongo, request);
        break;
    case HF_REQUEST_READ:
    case HF_REQUEST_LIST:
        start_query(mongo, request);
        break;
    case HF_REQUEST_WATCH:
        hf_mongo_watch_start(mongo, request);
        break;
    case HF_REQUEST_LOOKUP:
        HF_ASSERT(false); /* this strategy does not set `looks_up` */
        break;
    case HF_REQUEST_UNWATCH:
        hf_mongo_watch_stop(mongo, request->watch);
        mongo->host->ops->answer(mongo->host, request);
        break;
    }
}

static struct hf_mongo_call *find_call(const struct hf_mongo *mongo,
                                       const struct hf_request *request)
{
    struct hf_dlist *link = mongo->calls.next;

    while (HF_CONTAINER(link, struct hf_mongo_call, open)->request != request) {
        link = link->next;
        HF_ASSERT(link != &mongo->calls);
    }
    return HF_CONTAINER(link, struct hf_mongo_call, open);
}

static hf_time mongo_sent_at(void *self, const struct hf_request *request)
{
    struct hf_mongo *mongo = self;
    const struct hf_mongo_call *call = find_call(mongo, request);

    return hf_mongo_workers_started_at(mongo->workers, &call->job);
}

static void mongo_cancel(void *self, struct hf_request *request)
{
    struct hf_mongo *mongo = self;
    struct hf_mongo_call *call = find_call(mongo, request);
    enum hf_mongo_progress progress =
        hf_mongo_workers_cancel(mongo->workers, &call->job);

    hf_answer_clear(&request->answer);
    if (progress != HF_MONGO_WAITING) {
        abandon_call(call, progress);
        return;
    }
    hf_mongo_call_free(call);
    fail_mongo_request(mongo, request, HF_EUNAVAIL);
}

/* ---- Opening and closing ------------------------------------------------*/

static enum hf_err set_up_mongo(struct hf_mongo *mongo, struct hf_error *error)
{
    enum hf_err err = hf_mongo_handshake_run(mongo->workers, error);

    if (err)
        return err;
    err = hf_mongo_identity_init(&mongo->identity, mongo->host);
    if (!err)
        err = hf_mongo_expiry_open(mongo);
    if (!err)
        err = hf_mongo_watch_open(mongo);
    if (!err)
        err = hf_mongo_sweep_open(mongo);
    return err ? hf_error_set_code(error, err) : HF_OK;
}

static void mongo_close(void *self)
{
    struct hf_mongo *mongo = self;

    hf_mongo_sweep_close(mongo);
    hf_mongo_watch_close(mongo);
    hf_mongo_waiters_close(mongo);
    hf_mongo_expiry_close(mongo);
    hf_mongo_workers_close(mongo->workers);
    hf_mongo_identity_fini(&mongo->identity);
    hf_mongo_in_doubt_fini(&mongo->in_doubt);
}

static enum hf_err mongo_open(void *self, struct hf_url *url,
                              struct hf_host *host, struct hf_error *error)
{
    struct hf_mongo *mongo = self;
    struct hf_mongo_address address = {0};
    enum hf_err err;

    mongo->host = host;
    hf_dlist_init(&mongo->calls);
    hf_mongo_in_doubt_init(&mongo->in_doubt);
    hf_watches_init(&mongo->watches);
    hf_map_init(&mongo->expiries);
    hf_map_init(&mongo->waiters);
    hf_mongo_library_init();
    err = hf_mongo_address_init(&address, url, error);
    if (err)
        return err;
    err = hf_mongo_workers_open(&mongo->workers, &address, host, error);
    hf_mongo_address_fini(&address);
    if (err)
        return err;
    err = set_up_mongo(mongo, error);
    if (err)
        mongo_close(mongo);
    return err;
}

/* The wall clock of a server times the leases and may be changed, so
 * HF_CAP_STEADY is not promised. A standalone server has no failover and no
 * change streams, and after it has deleted a document only its clock keeps
 * tokens rising. A client that is connected to one member only may miss a
 * failover. */
static uint32_t mongo_caps(const void *self)
{
    const struct hf_mongo *mongo = self;
    const struct hf_mongo_context *context =
        hf_mongo_workers_context(mongo->workers);
    uint32_t caps = HF_CAP_DURABLE | HF_CAP_FIFO | HF_CAP_LINEARIZABLE_READ |
                    HF_CAP_VALUE | HF_CAP_FLEET;

    if (context->standalone)
        return caps;
    if (!context->address.direct)
        caps |= HF_CAP_FAILOVER_SAFE;
    return caps | HF_CAP_FENCE | HF_CAP_PUSH | HF_CAP_WATCH;
}

static void mongo_describe(const void *self, hf_fact_fn *each, void *arg)
{
    const struct hf_mongo *mongo = self;

    each("server",
         hf_mongo_workers_context(mongo->workers)->standalone
             ? "MongoDB, standalone"
             : "MongoDB, replica set",
         arg);
}

/* With MongoDB's defaults, a primary that hangs is replaced after about 21 s:
 * 10 s until the election, and then 10 s in which the new primary waits for the
 * newest write of the old one. A lease of 30 s outlasts that if at least 25 s
 * of it are left, so leases are renewed after a sixth. */
#define RENEW_PART 6

#define STRATEGY(name)                                                         \
    {                                                                          \
        .scheme = (name), .size = sizeof(struct hf_mongo),                     \
        .renew_part = RENEW_PART, .open = mongo_open, .caps = mongo_caps,      \
        .describe = mongo_describe, .submit = mongo_submit,                    \
        .cancel = mongo_cancel, .sent_at = mongo_sent_at,                      \
        .close = mongo_close,                                                  \
    }

const struct hf_strategy hf_strategy_mongodb = STRATEGY("mongodb");
const struct hf_strategy hf_strategy_mongodb_srv = STRATEGY("mongodb+srv");
