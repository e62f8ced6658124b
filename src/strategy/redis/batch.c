/* batch.c - send up to BATCH_MAX fast-path commands of one turn as one script.
 * Most of what a script costs the server does not depend on the number of
 * commands, so one script for many commands is cheaper than one for each. */
#include <stdlib.h>

#include "strategy/redis/redis.h"

#define BATCH_MAX 32 /* commands in a batch; a script blocks the server */

struct batch {
    struct hf_redis_call call;
    unsigned count;
    struct hf_redis_request *requests[BATCH_MAX];
};

static bool is_batch_reply(const redisReply *reply, unsigned count)
{
    return reply->type == REDIS_REPLY_ERROR ||
           (reply->type == REDIS_REPLY_ARRAY && reply->elements == count);
}

static void on_batch_reply(struct hf_redis_call *call, const redisReply *reply)
{
    struct batch *batch = HF_CONTAINER(call, struct batch, call);
    bool each = false;

    if (reply && !is_batch_reply(reply, batch->count)) {
        hf_redis_connection_drop(&batch->requests[0]->redis->connection,
                                 HF_EPROTO,
                                 "unexpected reply to batch.lua: not one "
                                 "element for each command");
        reply = NULL;
    }
    each = reply && reply->type == REDIS_REPLY_ARRAY;
    for (unsigned i = 0; i < batch->count; i++)
        hf_redis_request_on_reply(batch->requests[i],
                                  each ? reply->element[i] : reply);
    free(batch);
}

static bool send_batch(struct hf_redis *redis, struct batch *batch)
{
    const struct hf_command *commands[BATCH_MAX];
    struct hf_buf bytes = {0};
    bool sent;

    for (unsigned i = 0; i < batch->count; i++)
        commands[i] = &batch->requests[i]->request->command;
    hf_redis_script_call_batch(&bytes, &redis->connection, &redis->identity,
                               commands, batch->count);
    sent = !bytes.failed &&
           hf_redis_connection_send_bytes(&redis->connection, &batch->call,
                                          bytes.data, bytes.size);
    hf_buf_fini(&bytes);
    return sent;
}

static struct hf_redis_request *take_first_batched(struct hf_redis *redis)
{
    return HF_CONTAINER(hf_dlist_take(&redis->batched), struct hf_redis_request,
                        held_back);
}

static bool has_one_entry(const struct hf_dlist *list)
{
    return list->next == list->prev;
}

static void send_next_batch(struct hf_redis *redis)
{
    struct batch *batch = NULL;

    if (!has_one_entry(&redis->batched))
        batch = calloc(1, sizeof(*batch));
    if (!batch) {
        hf_redis_request_send(take_first_batched(redis));
        return;
    }
    batch->call.reply = on_batch_reply;
    while (batch->count < BATCH_MAX && !hf_dlist_is_empty(&redis->batched))
        batch->requests[batch->count++] = take_first_batched(redis);
    if (send_batch(redis, batch))
        return;
    for (unsigned i = 0; i < batch->count; i++)
        hf_redis_request_send(batch->requests[i]);
    free(batch);
}

void hf_redis_batch_flush(struct hf_redis *redis)
{
    while (!hf_dlist_is_empty(&redis->batched))
        send_next_batch(redis);
}

static void on_turn_end(struct hf_post *post)
{
    hf_redis_batch_flush(HF_CONTAINER(post, struct hf_redis, batch_post));
}

void hf_redis_batch_add(struct hf_redis_request *request)
{
    struct hf_redis *redis = request->redis;

    redis->batch_post.run = on_turn_end;
    hf_dlist_push_back(&redis->batched, &request->held_back);
    redis->host->ops->defer(redis->host, &redis->batch_post);
}
