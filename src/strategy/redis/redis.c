#include "strategy/redis/redis.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define WAIT_MS 100 /* the timeout of WAIT */

/* ---- Answers ------------------------------------------------------------*/

static void free_request(struct hf_redis_request *request)
{
    hf_dlist_remove(&request->open);
    hf_dlist_remove(&request->held_back);
    free(request);
}

void hf_redis_request_answer(struct hf_redis_request *request)
{
    struct hf_host *host = request->redis->host;

    if (request->request)
        host->ops->answer(host, request->request);
    free_request(request);
}

void hf_redis_request_fail(struct hf_redis_request *request, enum hf_err err,
                           const char *text)
{
    if (request->request) {
        request->request->answer.result.err = err;
        hf_redis_reply_set_cause(&request->request->answer, text);
    }
    hf_redis_request_answer(request);
}

/* Fail a request for which there is no struct hf_redis_request yet. */
static void fail_unstarted(struct hf_redis *redis, struct hf_request *request,
                           enum hf_err err, const char *text)
{
    request->answer.result.err = err;
    hf_redis_reply_set_cause(&request->answer, text);
    redis->host->ops->answer(redis->host, request);
}

/* ---- Replicas -----------------------------------------------------------*/

static void on_wait_reply(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redis_request *request =
        HF_CONTAINER(call, struct hf_redis_request, call);
    bool enough = reply && reply->type == REDIS_REPLY_INTEGER &&
                  reply->integer >= (long long)request->redis->wait_replicas;

    if (enough)
        hf_redis_request_answer(request);
    else
        hf_redis_request_fail(
            request, HF_EINDOUBT,
            "fewer replicas than wait_replicas have confirmed the write");
}

/* Send WAIT, and answer when enough replicas have the lock: a lock that exists
 * on this server alone is lost with the server. If WAIT_MS pass first, the
 * answer is HF_EINDOUBT. */
static void send_wait(struct hf_redis_request *request)
{
    struct hf_redis *redis = request->redis;
    struct hf_redis_resp_args args = {.count = 0};

    hf_redis_resp_add_text(&args, "WAIT");
    hf_redis_resp_add_number(&args, redis->wait_replicas);
    hf_redis_resp_add_number(&args, WAIT_MS);
    request->call.reply = on_wait_reply;
    if (!hf_redis_connection_send(&redis->connection, &request->call, &args))
        hf_redis_request_fail(request, HF_EINDOUBT,
                              redis->connection.failure.text);
}

/* Returns true if the answer must wait until replicas have the write. WAIT
 * covers only the writes of its own connection, and so not a grant that was
 * made earlier or by another client's command; see age_anchor(). */
static bool needs_replicas(const struct hf_redis_request *request, bool fresh)
{
    return request->redis->wait_replicas > 0 &&
           !request->request->answer.result.err &&
           (request->request->command.kind == HF_COMMAND_RENEW || fresh);
}

/* Give a grant that WAIT does not cover an old anchor: the client then renews
 * the lease at once, and WAIT covers that renewal. */
static void age_anchor(const struct hf_redis_request *request, bool fresh)
{
    struct hf_answer *answer = &request->request->answer;

    if (request->redis->wait_replicas > 0 && !answer->result.err && !fresh &&
        request->request->command.kind == HF_COMMAND_LOCK)
        answer->anchor = (struct hf_anchor){.known = true};
}

/* ---- Commands -----------------------------------------------------------*/

static void on_command_reply(struct hf_redis_call *call,
                             const redisReply *reply);

/* `slow_path` and `queue` apply only to LOCK. */
static bool send_command(struct hf_redis_request *request, bool slow_path,
                         bool queue)
{
    struct hf_redis *redis = request->redis;
    struct hf_command *command = &request->request->command;
    struct hf_redis_script_call script_call;
    struct hf_redis_lock_opts lock;

    request->sent = redis->host->ops->now(redis->host);
    lock = (struct hf_redis_lock_opts){
        .slow_path = slow_path,
        .queue = queue,
        .waiting = queue && request->waiting,
        .heartbeat_ms = hf_redis_heartbeat_interval(redis, command->lease_ms),
        .sent = request->sent};
    request->call.reply = on_command_reply;
    hf_redis_script_call_command(&script_call, &redis->connection,
                                 &redis->identity, command, &lock);
    return hf_redis_connection_send(&redis->connection, &request->call,
                                    &script_call.args);
}

/* Returns true if batch.lua did not execute the UNLOCK, and it must be sent
 * again outside of a batch. The reply is 1 then. */
static bool is_deferred_unlock(const struct hf_request *request,
                               const redisReply *reply)
{
    return request->command.kind == HF_COMMAND_UNLOCK && reply &&
           reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
}

void hf_redis_request_on_reply(struct hf_redis_request *request,
                               const redisReply *reply)
{
    struct hf_request *submitted = request->request;
    struct hf_redis_lock_reply lock_reply;

    if (!submitted) {
        free_request(request);
        return;
    }
    if (is_deferred_unlock(submitted, reply)) {
        hf_redis_request_send(request);
        return;
    }
    hf_redis_reply_decode(&request->redis->connection, reply, request->sent,
                          &submitted->command, &submitted->answer, &lock_reply);
    if (submitted->command.kind == HF_COMMAND_LOCK)
        request->redis->contended = !lock_reply.fresh;
    if (submitted->keeps &&
        (!submitted->answer.result.err || submitted->answer.result.position))
        hf_redis_pubsub_open_soon(request->redis);
    if (submitted->answer.result.position > 0)
        hf_redis_heartbeat_extend(request->redis, submitted->command.lease_ms);
    if (lock_reply.slow_path || (request->tried && submitted->command.queue &&
                                 submitted->answer.result.err == HF_EBUSY)) {
        hf_redis_request_send_lock(request);
    } else if (needs_replicas(request, lock_reply.fresh)) {
        send_wait(request);
    } else {
        age_anchor(request, lock_reply.fresh);
        hf_redis_request_answer(request);
    }
}

static void on_command_reply(struct hf_redis_call *call,
                             const redisReply *reply)
{
    hf_redis_request_on_reply(HF_CONTAINER(call, struct hf_redis_request, call),
                              reply);
}

void hf_redis_request_send(struct hf_redis_request *request)
{
    if (!send_command(request, false, false))
        hf_redis_request_fail(request, HF_EUNAVAIL,
                              request->redis->connection.failure.text);
}

void hf_redis_request_send_lock(struct hf_redis_request *request)
{
    struct hf_redis *redis = request->redis;
    bool queue = request->request->command.queue;

    if (queue && !redis->pubsub_ready) {
        hf_redis_pubsub_hold_lock(redis, request);
        return;
    }
    request->tried = false;
    request->waiting = false;
    hf_answer_clear(&request->request->answer);
    if (!send_command(request, true, queue))
        hf_redis_request_fail(request, HF_EUNAVAIL,
                              redis->connection.failure.text);
}

static struct hf_redis_request *add_request(struct hf_redis *redis,
                                            struct hf_request *request)
{
    struct hf_redis_request *pending = calloc(1, sizeof(*pending));

    if (!pending)
        return NULL;
    pending->redis = redis;
    pending->request = request;
    hf_dlist_push_back(&redis->requests, &pending->open);
    return pending;
}

/* A LOCK takes the fast path first: most keys are free, and then the client
 * needs no pub/sub connection. If the last LOCK was refused, or the claim is
 * already in the queue, the fast path would probably fail. Then a LOCK that may
 * queue takes the slow path at once, if the pub/sub connection is up. */
static void start_command(struct hf_redis_request *pending)
{
    struct hf_redis *redis = pending->redis;
    struct hf_request *request = pending->request;
    bool slow_path = request->command.queue && redis->pubsub_ready &&
                     (redis->contended || request->waits);

    pending->tried = request->command.kind == HF_COMMAND_LOCK && !slow_path;
    pending->waiting = request->waits;
    if (pending->tried || request->command.kind == HF_COMMAND_UNLOCK) {
        pending->sent = redis->host->ops->now(redis->host);
        hf_redis_batch_add(pending);
        return;
    }
    hf_redis_batch_flush(redis);
    if (!send_command(pending, slow_path, slow_path))
        hf_redis_request_fail(pending, HF_EUNAVAIL,
                              redis->connection.failure.text);
}

/* The server replies in order, so the server info that was requested before the
 * PING has arrived. */
static void on_ping_reply(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redis_request *pending =
        HF_CONTAINER(call, struct hf_redis_request, call);
    struct hf_redis_connection *connection = &pending->redis->connection;
    struct hf_host *host = pending->redis->host;
    struct hf_error error;
    enum hf_err err;

    if (!pending->request) {
        free_request(pending);
        return;
    }
    if (!reply) {
        hf_redis_request_fail(pending, HF_EUNAVAIL, connection->failure.text);
        return;
    }
    err = hf_redis_server_info_check_grant(
        &connection->server_info, connection->address,
        &pending->request->command, host->ops->now(host), &error);
    if (err)
        hf_redis_request_fail(pending, err, error.text);
    else
        start_command(pending);
}

/* The stored server info forbids the command, and new info was requested. Send
 * a PING, whose reply arrives after the new info, and decide then. So a
 * corrected configuration takes effect at once. */
static void recheck_server(struct hf_redis_request *pending)
{
    struct hf_redis_resp_args args = {.count = 0};

    hf_redis_resp_add_text(&args, "PING");
    pending->call.reply = on_ping_reply;
    if (!hf_redis_connection_send(&pending->redis->connection, &pending->call,
                                  &args))
        hf_redis_request_fail(pending, HF_EUNAVAIL,
                              pending->redis->connection.failure.text);
}

static void check_and_start_command(struct hf_redis *redis,
                                    struct hf_request *request)
{
    struct hf_error error;
    enum hf_err err = hf_redis_handshake_check_command(
        &redis->connection, &request->command, &error);
    struct hf_redis_request *pending;

    if (err && err != HF_EUNSUPPORTED) {
        fail_unstarted(redis, request, err, error.text);
        return;
    }
    pending = add_request(redis, request);
    if (!pending)
        fail_unstarted(redis, request, HF_ENOMEM, hf_err_text(HF_ENOMEM));
    else if (err)
        recheck_server(pending);
    else
        start_command(pending);
}

/* ---- Reading ------------------------------------------------------------*/

static enum hf_err decode_read_reply(struct hf_redis_request *request,
                                     const redisReply *reply)
{
    struct hf_answer *answer = &request->request->answer;
    struct hf_redis_connection *connection = &request->redis->connection;
    enum hf_err err;
    bool ours;

    if (!reply)
        return HF_EUNAVAIL; /* not in doubt: a read changes nothing */
    answer->infos = calloc(1, sizeof(*answer->infos));
    if (!answer->infos)
        return HF_ENOMEM;
    err = hf_redis_reply_decode_read(
        connection, reply, request->request->command.key, answer->infos, &ours);
    if (!err) {
        answer->count = 1;
        answer->index = answer->infos->index;
        hf_redis_watches_catch_up(request->redis, answer->index);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        hf_redis_reply_set_error_cause(answer, request->request->command.key,
                                       reply);
    }
    return err;
}

static void on_read_reply(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redis_request *request =
        HF_CONTAINER(call, struct hf_redis_request, call);

    if (request->request)
        request->request->answer.result.err = decode_read_reply(request, reply);
    hf_redis_request_answer(request);
}

static void start_read(struct hf_redis *redis, struct hf_request *request)
{
    struct hf_redis_request *pending = add_request(redis, request);
    struct hf_redis_script_call script_call;

    if (!pending) {
        fail_unstarted(redis, request, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    pending->call.reply = on_read_reply;
    hf_redis_script_call_read(&script_call, &redis->connection,
                              request->command.key);
    if (!hf_redis_connection_send(&redis->connection, &pending->call,
                                  &script_call.args))
        hf_redis_request_fail(pending, HF_EUNAVAIL,
                              redis->connection.failure.text);
}

static void on_list_done(void *arg, struct hf_redis_list_result *found)
{
    struct hf_redis_request *request = arg;
    struct hf_answer *answer = &request->request->answer;

    answer->result.err = found->err;
    answer->cause = found->cause;
    answer->infos = found->infos;
    answer->count = found->count;
    hf_redis_request_answer(request);
}

static void start_list(struct hf_redis *redis, struct hf_request *request)
{
    struct hf_redis_request *pending = add_request(redis, request);
    enum hf_err err = HF_ENOMEM;

    if (pending)
        err = hf_redis_list_start(&redis->connection, request->command.key,
                                  on_list_done, pending, &request->progress,
                                  &pending->list);
    if (err && pending)
        hf_redis_request_fail(pending, err, hf_err_text(err));
    else if (err)
        fail_unstarted(redis, request, err, hf_err_text(err));
}

/* ---- Requests -----------------------------------------------------------*/

static bool has_exact_key(const struct hf_request *request)
{
    return request->kind == HF_REQUEST_COMMAND ||
           request->kind == HF_REQUEST_READ ||
           (request->kind == HF_REQUEST_WATCH && request->exact);
}

void hf_redis_submit(void *self, struct hf_request *request)
{
    struct hf_redis *redis = self;

    if (has_exact_key(request) &&
        hf_redis_keyspace_is_reserved(request->command.key)) {
        fail_unstarted(
            redis, request, HF_EINVAL,
            "key: keys that begin with 'hf:' are reserved for holdfast in "
            "Redis; choose another key");
        return;
    }
    if (request->kind == HF_REQUEST_UNWATCH) {
        hf_redis_watch_stop(redis, request->watch);
        redis->host->ops->answer(redis->host, request);
        return;
    }
    if (redis->connection.state != HF_REDIS_UP) {
        fail_unstarted(redis, request, HF_EUNAVAIL,
                       redis->connection.failure.text);
        return;
    }
    if (request->kind == HF_REQUEST_COMMAND) {
        check_and_start_command(redis, request);
        return;
    }
    hf_redis_batch_flush(redis);
    if (request->kind == HF_REQUEST_READ)
        start_read(redis, request);
    else if (request->kind == HF_REQUEST_LIST)
        start_list(redis, request);
    else
        hf_redis_watch_start(redis, request);
}

static struct hf_redis_request *find_request(const struct hf_redis *redis,
                                             const struct hf_request *request)
{
    for (struct hf_dlist *link = redis->requests.next; link != &redis->requests;
         link = link->next) {
        struct hf_redis_request *pending =
            HF_CONTAINER(link, struct hf_redis_request, open);

        if (pending->request == request)
            return pending;
    }
    return NULL;
}

/* A command that was sent stays in the queue of calls, because its reply still
 * arrives; only its request is detached. */
void hf_redis_cancel(void *self, struct hf_request *request)
{
    struct hf_redis *redis = self;
    struct hf_redis_request *pending = find_request(redis, request);

    if (pending && pending->list)
        hf_redis_list_abandon(pending->list);
    if (pending && (pending->list || hf_dlist_is_linked(&pending->held_back)))
        free_request(pending);
    else if (pending)
        pending->request = NULL;
    else
        hf_redis_watch_cancel(redis, request);
    hf_answer_clear(&request->answer);
    /* Only commands change anything, so only they can be in doubt. */
    request->answer.result.err =
        request->kind == HF_REQUEST_COMMAND ? HF_EINDOUBT : HF_EUNAVAIL;
    redis->host->ops->answer(redis->host, request);
}
