#include "strategy/redis/redis.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define WAIT_MS 100 /* and WAIT so long for replicas */

/* ---- Answers ------------------------------------------------------------*/

static void drop(struct hf_redis_request *request)
{
    hf_list_remove(&request->open);
    hf_list_remove(&request->held_back);
    free(request);
}

void hf_redis_answer(struct hf_redis_request *request)
{
    struct hf_host *host = request->redis->host;

    if (request->request)
        host->ops->answer(host, request->request);
    drop(request);
}

void hf_redis_refuse(struct hf_redis_request *request, enum hf_err err,
                     const char *text)
{
    if (request->request) {
        request->request->answer.result.err = err;
        hf_redis_explain(&request->request->answer, text);
    }
    hf_redis_answer(request);
}

/* Answer what was not even begun. */
static void refuse_now(struct hf_redis *redis, struct hf_request *request,
                       enum hf_err err, const char *text)
{
    request->answer.result.err = err;
    hf_redis_explain(&request->answer, text);
    redis->host->ops->answer(redis->host, request);
}

/* ---- Replicas -----------------------------------------------------------*/

static void replicas_counted(struct hf_redis_call *call,
                             const redisReply *reply)
{
    struct hf_redis_request *request =
        HF_CONTAINER(call, struct hf_redis_request, call);
    bool enough = reply && reply->type == REDIS_REPLY_INTEGER &&
                  reply->integer >= (long long)request->redis->wait_replicas;

    if (enough)
        hf_redis_answer(request);
    else
        hf_redis_refuse(request, HF_EINDOUBT,
                        "fewer replicas have it than wait_replicas asks for");
}

/* What was granted here, and is lost with this server, is no lock: see that
 * the replicas have it. */
static void count_replicas(struct hf_redis_request *request)
{
    struct hf_redis *redis = request->redis;
    struct hf_redis_args args = {.count = 0};

    hf_redis_add_text(&args, "WAIT");
    hf_redis_add_number(&args, redis->wait_replicas);
    hf_redis_add_number(&args, WAIT_MS);
    request->call.reply = replicas_counted;
    if (!hf_redis_link_send(&redis->link, &request->call, &args))
        hf_redis_refuse(request, HF_EINDOUBT, redis->link.failure.text);
}

/* Whether the answer is one that replicas are to have. WAIT knows only what
 * its own connection has written: what was granted before, or by another, is
 * made to look old, so that it is renewed first. */
static bool wants_replicas(const struct hf_redis_request *request, bool fresh)
{
    enum hf_command_kind kind = request->request->command.kind;
    struct hf_answer *answer = &request->request->answer;

    if (request->redis->wait_replicas == 0 || answer->result.err)
        return false;
    if (kind == HF_COMMAND_LOCK && !fresh)
        answer->anchor = (struct hf_anchor){.known = true};
    return kind == HF_COMMAND_RENEW || fresh;
}

/* ---- Commands -----------------------------------------------------------*/

static void replied(struct hf_redis_call *call, const redisReply *reply);

/* A LOCK is asked for in full, by lock.lua, or quickly, by take.lua. */
static bool send_command(struct hf_redis_request *request, bool in_full,
                         bool queue)
{
    struct hf_redis *redis = request->redis;
    struct hf_command *command = &request->request->command;
    struct hf_redis_words words;
    struct hf_redis_lock lock;

    request->sent = redis->host->ops->now(redis->host);
    lock = (struct hf_redis_lock){
        .in_full = in_full,
        .queue = queue,
        .waiting = queue && request->waiting,
        .beat_ms = hf_redis_beat_every(redis, command->lease_ms),
        .sent = request->sent};
    request->call.reply = replied;
    hf_redis_command(&words, &redis->link, &redis->asker, command, &lock);
    return hf_redis_link_send(&redis->link, &request->call, &words.args);
}

/* gather.c asks for several at once, and the server for one of them alone. */
static bool is_put_off(const struct hf_request *request,
                       const redisReply *reply)
{
    return request->command.kind == HF_COMMAND_UNLOCK && reply &&
           reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
}

void hf_redis_replied(struct hf_redis_request *request, const redisReply *reply)
{
    struct hf_request *asked = request->request;
    struct hf_redis_taken taken;

    if (!asked) {
        drop(request);
        return;
    }
    if (is_put_off(asked, reply)) {
        hf_redis_send_alone(request);
        return;
    }
    hf_redis_take_command(&request->redis->link, reply, request->sent,
                          &asked->command, &asked->answer, &taken);
    if (asked->command.kind == HF_COMMAND_LOCK)
        request->redis->contended = !taken.fresh;
    if (asked->keeps &&
        (!asked->answer.result.err || asked->answer.result.place))
        hf_redis_listen_soon(request->redis);
    if (asked->answer.result.place > 0)
        hf_redis_beat_go_on(request->redis, asked->command.lease_ms);
    if (taken.in_full || (request->tried && asked->command.queue &&
                          asked->answer.result.err == HF_EBUSY))
        hf_redis_send_lock(request);
    else if (wants_replicas(request, taken.fresh))
        count_replicas(request);
    else
        hf_redis_answer(request);
}

static void replied(struct hf_redis_call *call, const redisReply *reply)
{
    hf_redis_replied(HF_CONTAINER(call, struct hf_redis_request, call), reply);
}

void hf_redis_send_alone(struct hf_redis_request *request)
{
    if (!send_command(request, false, false))
        hf_redis_refuse(request, HF_EUNAVAIL,
                        request->redis->link.failure.text);
}

void hf_redis_send_lock(struct hf_redis_request *request)
{
    struct hf_redis *redis = request->redis;

    bool queue = request->request->command.queue;

    if (queue && !redis->hears_grants) {
        hf_redis_news_hold(redis, request);
        return;
    }
    request->tried = false;
    request->waiting = false;
    hf_answer_clear(&request->request->answer);
    if (!send_command(request, true, queue))
        hf_redis_refuse(request, HF_EUNAVAIL, redis->link.failure.text);
}

static struct hf_redis_request *new_request(struct hf_redis *redis,
                                            struct hf_request *request)
{
    struct hf_redis_request *made = calloc(1, sizeof(*made));

    if (!made)
        return NULL;
    made->redis = redis;
    made->request = request;
    hf_list_push_back(&redis->requests, &made->open);
    return made;
}

/* A LOCK is tried first: most keys are free, and then the second connection is
 * never made. Where the last was refused, this one is asked for in full: it may
 * stand in line already, or wants to. */
static void start_command(struct hf_redis_request *made)
{
    struct hf_redis *redis = made->redis;
    struct hf_request *request = made->request;
    bool in_full = request->command.queue && redis->hears_grants &&
                   (redis->contended || request->waits);

    made->tried = request->command.kind == HF_COMMAND_LOCK && !in_full;
    made->waiting = request->waits;
    if (made->tried || request->command.kind == HF_COMMAND_UNLOCK) {
        made->sent = redis->host->ops->now(redis->host);
        hf_redis_gather(made);
        return;
    }
    hf_redis_send_gathered(redis);
    if (!send_command(made, in_full, in_full))
        hf_redis_refuse(made, HF_EUNAVAIL, redis->link.failure.text);
}

/* The promises were read again before this reply. */
static void on_ping_reply(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redis_request *made =
        HF_CONTAINER(call, struct hf_redis_request, call);
    struct hf_redis_link *link = &made->redis->link;
    struct hf_host *host = made->redis->host;
    struct hf_error error;
    enum hf_err err;

    if (!made->request) {
        drop(made);
        return;
    }
    if (!reply) {
        hf_redis_refuse(made, HF_EUNAVAIL, link->failure.text);
        return;
    }
    err = hf_redis_may_grant(&link->promises, link->address,
                             &made->request->command, host->ops->now(host),
                             &error);
    if (err)
        hf_redis_refuse(made, err, error.text);
    else
        start_command(made);
}

/* What the server promised last does not allow it. It is asked again, so that a
 * configuration that was put right counts at once. */
static void ask_before_refusing(struct hf_redis_request *made)
{
    struct hf_redis_args args = {.count = 0};

    hf_redis_add_text(&args, "PING");
    made->call.reply = on_ping_reply;
    if (!hf_redis_link_send(&made->redis->link, &made->call, &args))
        hf_redis_refuse(made, HF_EUNAVAIL, made->redis->link.failure.text);
}

static void run_command(struct hf_redis *redis, struct hf_request *request)
{
    struct hf_error error;
    enum hf_err err =
        hf_redis_link_check(&redis->link, &request->command, &error);
    struct hf_redis_request *made;

    if (err && err != HF_EUNSUPPORTED) {
        refuse_now(redis, request, err, error.text);
        return;
    }
    made = new_request(redis, request);
    if (!made)
        refuse_now(redis, request, HF_ENOMEM, hf_err_text(HF_ENOMEM));
    else if (err)
        ask_before_refusing(made);
    else
        start_command(made);
}

/* ---- Reading ------------------------------------------------------------*/

static enum hf_err take_read(struct hf_redis_request *request,
                             const redisReply *reply)
{
    struct hf_answer *answer = &request->request->answer;
    struct hf_redis_link *link = &request->redis->link;
    enum hf_err err;
    bool ours;

    if (!reply)
        return HF_EUNAVAIL; /* nothing is done by reading */
    answer->infos = calloc(1, sizeof(*answer->infos));
    if (!answer->infos)
        return HF_ENOMEM;
    err = hf_redis_take_read(link, reply, request->request->command.key,
                             answer->infos, &ours);
    if (!err) {
        answer->count = 1;
        answer->index = answer->infos->index;
        hf_redis_watches_catch_up(request->redis, answer->index);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        hf_redis_explain_error(answer, request->request->command.key, reply);
    }
    return err;
}

static void read_replied(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redis_request *request =
        HF_CONTAINER(call, struct hf_redis_request, call);

    if (request->request)
        request->request->answer.result.err = take_read(request, reply);
    hf_redis_answer(request);
}

static void run_read(struct hf_redis *redis, struct hf_request *request)
{
    struct hf_redis_request *made = new_request(redis, request);
    struct hf_redis_words words;

    if (!made) {
        refuse_now(redis, request, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    made->call.reply = read_replied;
    hf_redis_read(&words, &redis->link, request->command.key);
    if (!hf_redis_link_send(&redis->link, &made->call, &words.args))
        hf_redis_refuse(made, HF_EUNAVAIL, redis->link.failure.text);
}

static void listed(void *arg, struct hf_redis_listed *found)
{
    struct hf_redis_request *request = arg;
    struct hf_answer *answer = &request->request->answer;

    answer->result.err = found->err;
    answer->cause = found->cause;
    answer->infos = found->infos;
    answer->count = found->count;
    hf_redis_answer(request);
}

static void run_list(struct hf_redis *redis, struct hf_request *request)
{
    struct hf_redis_request *made = new_request(redis, request);
    enum hf_err err = HF_ENOMEM;

    if (made)
        err = hf_redis_list_start(&redis->link, request->command.key, listed,
                                  made, &request->progress, &made->list);
    if (err && made)
        hf_redis_refuse(made, err, hf_err_text(err));
    else if (err)
        refuse_now(redis, request, err, hf_err_text(err));
}

/* ---- Requests -----------------------------------------------------------*/

static bool names_a_key(const struct hf_request *request)
{
    return request->kind == HF_REQUEST_COMMAND ||
           request->kind == HF_REQUEST_READ ||
           (request->kind == HF_REQUEST_WATCH && request->exact);
}

void hf_redis_submit(void *self, struct hf_request *request)
{
    struct hf_redis *redis = self;

    if (names_a_key(request) && hf_redis_key_is_ours(request->command.key)) {
        refuse_now(redis, request, HF_EINVAL,
                   "key: what begins with 'hf:' is holdfast's own in Redis");
        return;
    }
    if (request->kind == HF_REQUEST_UNWATCH) {
        hf_redis_unwatch(redis, request->watch);
        redis->host->ops->answer(redis->host, request);
        return;
    }
    if (redis->link.state != HF_REDIS_UP) {
        refuse_now(redis, request, HF_EUNAVAIL, redis->link.failure.text);
        return;
    }
    if (request->kind == HF_REQUEST_COMMAND) {
        run_command(redis, request);
        return;
    }
    hf_redis_send_gathered(redis);
    if (request->kind == HF_REQUEST_READ)
        run_read(redis, request);
    else if (request->kind == HF_REQUEST_LIST)
        run_list(redis, request);
    else
        hf_redis_watch(redis, request);
}

static struct hf_redis_request *find(const struct hf_redis *redis,
                                     const struct hf_request *request)
{
    for (struct hf_list *link = redis->requests.next; link != &redis->requests;
         link = link->next) {
        struct hf_redis_request *made =
            HF_CONTAINER(link, struct hf_redis_request, open);

        if (made->request == request)
            return made;
    }
    return NULL;
}

/* Its reply still comes, and finds nobody. */
void hf_redis_cancel(void *self, struct hf_request *request)
{
    struct hf_redis *redis = self;
    struct hf_redis_request *made = find(redis, request);

    if (made && made->list)
        hf_redis_list_abandon(made->list);
    if (made && (made->list || hf_list_linked(&made->held_back)))
        drop(made);
    else if (made)
        made->request = NULL;
    else
        hf_redis_watch_cancel(redis, request);
    hf_answer_clear(&request->answer);
    /* Nothing is done by reading. */
    request->answer.result.err =
        request->kind == HF_REQUEST_COMMAND ? HF_EINDOUBT : HF_EUNAVAIL;
    redis->host->ops->answer(redis->host, request);
}
