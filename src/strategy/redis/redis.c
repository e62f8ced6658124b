#include "strategy/redis/redis.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "strategy/redis/await.h"

#define OPEN_MS 5000         /* hf_open() waits so long for a server */
#define WAIT_MS 100          /* and WAIT so long for replicas */
#define WAIT_REPLICAS_MAX 64 /* a number too many to be meant */

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

    if (request->redis->wait_replicas == 0 || answer->result.err ||
        HF_MUTANT(81))
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
        .in_full = in_full, .queue = queue, .sent = request->sent};
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
 * never made. Where the last was in vain, this one is asked for in full: it may
 * stand in line already, or wants to. */
static void run_command(struct hf_redis *redis, struct hf_request *request)
{
    struct hf_redis_request *made = new_request(redis, request);
    bool in_full =
        request->command.queue && redis->hears_grants && redis->contended;

    if (!made) {
        refuse_now(redis, request, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    made->tried = request->command.kind == HF_COMMAND_LOCK && !in_full;
    if (made->tried || request->command.kind == HF_COMMAND_UNLOCK) {
        made->sent = redis->host->ops->now(redis->host);
        hf_redis_gather(made);
        return;
    }
    hf_redis_send_gathered(redis);
    if (!send_command(made, in_full, in_full))
        hf_redis_refuse(made, HF_EUNAVAIL, redis->link.failure.text);
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
        request->index = answer->index;
    } else if (reply->type == REDIS_REPLY_ERROR) {
        hf_redis_explain(answer, reply->str);
    }
    return err;
}

static void read_replied(struct hf_redis_call *call, const redisReply *reply)
{
    struct hf_redis_request *request =
        HF_CONTAINER(call, struct hf_redis_request, call);

    if (request->request)
        request->request->answer.result.err = take_read(request, reply);
    if (!hf_redis_watches_are_behind(request->redis, request))
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
                                  made, &made->list);
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

static void submit(void *self, struct hf_request *request)
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
    if (!HF_MUTANT(84))
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
static void cancel(void *self, struct hf_request *request)
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
    request->answer.result.err = HF_EINDOUBT;
    redis->host->ops->answer(redis->host, request);
}

/* ---- Opening and closing ------------------------------------------------*/

static void link_up(struct hf_redis_link *link)
{
    hf_redis_look_due(HF_CONTAINER(link, struct hf_redis, link));
}

/* Those whose replies are lost have heard it by their calls. */
static void link_down(struct hf_redis_link *link)
{
    (void)link;
}

static const struct hf_redis_link_ops link_ops = {
    .up = link_up,
    .down = link_down,
};

static enum hf_err connect(struct hf_redis *redis, struct hf_error *error)
{
    enum hf_err err = hf_redis_asker_init(&redis->asker, redis->host);
    struct hf_redis_link *link = &redis->link;

    if (!err)
        err = hf_redis_watches_open(redis);
    if (err)
        return hf_error_code(error, err);
    err =
        hf_redis_link_open(link, redis->host, &redis->address, &link_ops, NULL);
    if (err) {
        hf_redis_watches_close(redis);
        return hf_error_code(error, err);
    }
    hf_redis_await_links(&link, 1, 1, OPEN_MS);
    if (link->state == HF_REDIS_UP)
        return HF_OK;
    err = link->failure.code;
    if (error)
        *error = link->failure;
    hf_redis_link_close(link);
    hf_redis_watches_close(redis);
    return err;
}

static enum hf_err redis_open(void *self, struct hf_url *url,
                              struct hf_host *host, struct hf_error *error)
{
    struct hf_redis *redis = self;
    enum hf_err err;

    redis->host = host;
    hf_list_init(&redis->requests);
    hf_list_init(&redis->gathered);
    hf_list_init(&redis->until_heard);
    err = hf_redis_number(url, "wait_replicas", WAIT_REPLICAS_MAX,
                          &redis->wait_replicas, error);
    if (err)
        return err;
    err = hf_redis_address_init(&redis->address, url, url->hosts, error);
    if (err)
        return err;
    err = connect(redis, error);
    if (err)
        hf_redis_address_fini(&redis->address);
    return err;
}

/* After a failover to a replica that had not heard of it, neither the lock nor
 * the token need be there: that cannot be promised, nor that the server's
 * clock is not set. */
static uint32_t caps(const void *self)
{
    const struct hf_redis *redis = self;
    uint32_t caps = HF_CAP_FENCE | HF_CAP_FIFO | HF_CAP_PUSH |
                    HF_CAP_LINEARIZABLE_READ | HF_CAP_VALUE | HF_CAP_WATCH;

    return redis->link.durable ? caps | HF_CAP_DURABLE : caps;
}

static void redis_close(void *self)
{
    struct hf_redis *redis = self;

    redis->host->ops->unpost(redis->host, &redis->gather);
    hf_redis_link_close(&redis->link);
    hf_redis_link_close(&redis->news);
    hf_redis_watches_close(redis);
    hf_redis_address_fini(&redis->address);
}

#define STRATEGY(name)                                                         \
    {                                                                          \
        .scheme = (name), .size = sizeof(struct hf_redis), .open = redis_open, \
        .caps = caps, .submit = submit, .cancel = cancel,                      \
        .close = redis_close,                                                  \
    }

const struct hf_strategy hf_strategy_redis = STRATEGY("redis");
const struct hf_strategy hf_strategy_redis_unix = STRATEGY("redis+unix");
const struct hf_strategy hf_strategy_rediss = STRATEGY("rediss");
