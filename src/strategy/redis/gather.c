/* gather.c - the quick commands of one turn, as one script: most of what a
 * script costs the server, it costs once. */
#include <stdlib.h>

#include "strategy/redis/redis.h"

#define SEVERAL_MAX 32 /* in one script: the server does nothing else then */

struct several {
    struct hf_redis_call call;
    unsigned count;
    struct hf_redis_request *requests[SEVERAL_MAX];
};

static bool is_answer(const redisReply *reply, unsigned count)
{
    return reply->type == REDIS_REPLY_ERROR ||
           (reply->type == REDIS_REPLY_ARRAY && reply->elements == count);
}

static void several_replied(struct hf_redis_call *call, const redisReply *reply)
{
    struct several *several = HF_CONTAINER(call, struct several, call);
    bool each = false;

    if (reply && !is_answer(reply, several->count)) {
        hf_redis_link_drop(&several->requests[0]->redis->link, HF_EPROTO,
                           "what it says is not understood");
        reply = NULL;
    }
    each = reply && reply->type == REDIS_REPLY_ARRAY;
    for (unsigned i = 0; i < several->count; i++)
        hf_redis_replied(several->requests[i],
                         each ? reply->element[i] : reply);
    free(several);
}

static bool send_several(struct hf_redis *redis, struct several *several)
{
    const struct hf_command *commands[SEVERAL_MAX];
    struct hf_buf bytes = {0};
    bool sent;

    for (unsigned i = 0; i < several->count; i++)
        commands[i] = &several->requests[i]->request->command;
    hf_redis_several(&bytes, &redis->link, &redis->asker, commands,
                     several->count);
    sent =
        !bytes.failed && hf_redis_link_send_bytes(&redis->link, &several->call,
                                                  bytes.data, bytes.size);
    hf_buf_fini(&bytes);
    return sent;
}

static struct hf_redis_request *take_first(struct hf_redis *redis)
{
    return HF_CONTAINER(hf_list_take(&redis->gathered), struct hf_redis_request,
                        held_back);
}

static bool is_one(const struct hf_list *list)
{
    return list->next == list->prev;
}

static void send_some(struct hf_redis *redis)
{
    struct several *several = NULL;

    if (!is_one(&redis->gathered))
        several = calloc(1, sizeof(*several));
    if (!several) {
        hf_redis_send_alone(take_first(redis));
        return;
    }
    several->call.reply = several_replied;
    while (several->count < SEVERAL_MAX && !hf_list_empty(&redis->gathered))
        several->requests[several->count++] = take_first(redis);
    if (send_several(redis, several))
        return;
    for (unsigned i = 0; i < several->count; i++)
        hf_redis_send_alone(several->requests[i]);
    free(several);
}

void hf_redis_send_gathered(struct hf_redis *redis)
{
    while (!hf_list_empty(&redis->gathered))
        send_some(redis);
}

static void turn_ends(struct hf_post *post)
{
    hf_redis_send_gathered(HF_CONTAINER(post, struct hf_redis, gather));
}

void hf_redis_gather(struct hf_redis_request *request)
{
    struct hf_redis *redis = request->redis;

    redis->gather.run = turn_ends;
    hf_list_push_back(&redis->gathered, &request->held_back);
    redis->host->ops->defer(redis->host, &redis->gather);
}
