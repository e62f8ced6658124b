/* reply.c - decode replies of the server, and convert them into answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "strategy/mongo/op.h"

/* The first claims in the queue repeat their LOCK when the lease is due. The
 * next claims, up to LATER_RETRIES in all, repeat it later, LATER_MS apart, in
 * case the first ones are dead. */
#define FIRST_RETRIES 3
#define LATER_RETRIES 16
#define LATER_MS 1000

/* ---- Decoding -----------------------------------------------------------*/

uint64_t hf_mongo_reply_time_of(uint32_t seconds, uint32_t increment)
{
    const uint32_t epoch = 1700000000;

    return (uint64_t)(seconds > epoch ? seconds - epoch : 0) << 32 |
           (increment & 0xffffff) << 8;
}

uint64_t hf_mongo_reply_time(const bson_t *reply)
{
    uint32_t seconds = 0, increment = 0;
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, reply, "operationTime") ||
        !BSON_ITER_HOLDS_TIMESTAMP(&iter))
        return 0;
    bson_iter_timestamp(&iter, &seconds, &increment);
    return hf_mongo_reply_time_of(seconds, increment);
}

uint64_t hf_mongo_reply_token(const bson_iter_t *iter)
{
    int64_t token = BSON_ITER_HOLDS_INT64(iter) ? bson_iter_int64(iter) : 0;

    return token > 0 ? (uint64_t)token : 0;
}

static bool is_text(const bson_iter_t *iter, const char *text)
{
    return BSON_ITER_HOLDS_UTF8(iter) &&
           !strcmp(bson_iter_utf8(iter, NULL), text);
}

static void reject_reply(struct hf_mongo_reply *reply, const char *problem)
{
    reply->err = HF_EPROTO;
    (void)snprintf(reply->cause, sizeof(reply->cause),
                   "the document of this key is corrupt: %s", problem);
}

static void read_ended(bson_iter_t *ended, const char *call,
                       struct hf_mongo_reply *reply)
{
    bson_iter_t iter;

    if (!BSON_ITER_HOLDS_DOCUMENT(ended) || !bson_iter_recurse(ended, &iter))
        return;
    while (bson_iter_next(&iter)) {
        const char *name = bson_iter_key(&iter);

        if (!strcmp(name, "token"))
            reply->ended_token = (uint64_t)bson_iter_as_int64(&iter);
        else if (!strcmp(name, "reason"))
            reply->end_reason = (enum hf_event_kind)bson_iter_as_int64(&iter);
        else if (!strcmp(name, "call"))
            reply->ended_mine = is_text(&iter, call);
    }
}

static const char *find_variable(const struct hf_mongo_op *op, const char *name)
{
    bson_iter_t iter;

    HF_ASSERT(bson_iter_init_find(&iter, &op->variables, name));
    return bson_iter_utf8(&iter, NULL);
}

static void read_events(bson_iter_t *iter, const struct hf_mongo_op *op,
                        struct hf_mongo_reply *reply)
{
    size_t size = strlen(op->command);
    const char *events =
        BSON_ITER_HOLDS_UTF8(iter) ? bson_iter_utf8(iter, NULL) : "";

    reply->fresh = !strncmp(events, op->command, size) && events[size] == '\n';
}

/* Compare this update with this client's last update that was applied. */
static void read_updated(const bson_iter_t *list, const struct hf_mongo_op *op,
                         struct hf_mongo_reply *reply)
{
    const char *client = find_variable(op, "client");
    bson_iter_t iter, by, number, wanted;

    if (!bson_iter_init_find(&wanted, &op->variables, "update") ||
        !BSON_ITER_HOLDS_ARRAY(list) || !bson_iter_recurse(list, &iter))
        return;
    while (bson_iter_next(&iter)) {
        if (!BSON_ITER_HOLDS_DOCUMENT(&iter) ||
            !bson_iter_recurse(&iter, &by) || !bson_iter_find(&by, "by") ||
            !is_text(&by, client) || !bson_iter_recurse(&iter, &number) ||
            !bson_iter_find(&number, "number"))
            continue;
        reply->updated =
            bson_iter_as_int64(&number) == bson_iter_int64(&wanted);
        reply->superseded =
            bson_iter_as_int64(&number) > bson_iter_int64(&wanted);
    }
}

static bool has_text(const bson_iter_t *list, const char *text)
{
    bson_iter_t iter;

    if (!BSON_ITER_HOLDS_ARRAY(list) || !bson_iter_recurse(list, &iter))
        return false;
    while (bson_iter_next(&iter))
        if (is_text(&iter, text))
            return true;
    return false;
}

static void read_reply_field(bson_iter_t *iter, const struct hf_mongo_op *op,
                             struct hf_mongo_reply *reply)
{
    const char *name = bson_iter_key(iter);
    const char *nonce = find_variable(op, "nonce");

    if (!strcmp(name, "nonce")) {
        reply->held = !BSON_ITER_HOLDS_NULL(iter); /* null if free */
        reply->mine = is_text(iter, nonce);
    } else if (!strcmp(name, "token")) {
        reply->token = hf_mongo_reply_token(iter);
    } else if (!strcmp(name, "renewals")) {
        reply->renewals = (uint32_t)bson_iter_as_int64(iter);
    } else if (!strcmp(name, "forced")) {
        reply->forced = bson_iter_as_bool(iter);
    } else if (!strcmp(name, "canceled")) {
        reply->canceled = has_text(iter, nonce);
    } else if (!strcmp(name, "events")) {
        read_events(iter, op, reply);
    } else if (!strcmp(name, "updated")) {
        read_updated(iter, op, reply);
    } else if (!strcmp(name, "ended")) {
        read_ended(iter, find_variable(op, "call"), reply);
    }
}

void hf_mongo_reply_read(const bson_t *bson, const struct hf_mongo_op *op,
                         struct hf_mongo_reply *reply)
{
    bson_iter_t iter;
    const uint8_t *data = NULL;
    uint32_t size = 0;
    bson_t document;

    reply->err = HF_OK;
    reply->time = hf_mongo_reply_time(bson);
    reply->position = -1;
    if (!bson_iter_init_find(&iter, bson, "value") ||
        !BSON_ITER_HOLDS_DOCUMENT(&iter))
        return;
    bson_iter_document(&iter, &size, &data);
    if (!bson_init_static(&document, data, size)) {
        reject_reply(reply, "it is not valid BSON");
        return;
    }
    reply->exists = true;
    for (bson_iter_init(&iter, &document); bson_iter_next(&iter);)
        read_reply_field(&iter, op, reply);
    if (reply->held && reply->token == 0)
        reject_reply(reply, "its token is not a positive number");
}

bool hf_mongo_reply_matched_one(const bson_t *reply)
{
    bson_iter_t iter;

    return !bson_has_field(reply, "writeErrors") &&
           bson_iter_init_find(&iter, reply, "n") &&
           bson_iter_as_int64(&iter) == 1;
}

bool hf_mongo_reply_read_unlock_fast(const bson_t *bson,
                                     const struct hf_mongo_op *op,
                                     struct hf_mongo_reply *reply)
{
    bson_iter_t iter, token;

    HF_ASSERT(bson_iter_init_find(&token, &op->variables, "token"));
    hf_mongo_reply_read(bson, op, reply);
    reply->fresh = hf_mongo_reply_matched_one(bson) &&
                   bson_iter_init_find(&iter, bson, "nModified") &&
                   bson_iter_as_int64(&iter) == 1;
    reply->ended_mine = reply->fresh;
    reply->end_reason = HF_EVENT_RELEASED;
    reply->ended_token = hf_mongo_reply_token(&token);
    return reply->fresh;
}

/* ---- Answers ------------------------------------------------------------*/

/* Return after how many milliseconds a waiter repeats its LOCK. The first
 * waiters do so when the lease is due, and others later, in case the first ones
 * are dead. Returns 0 if the end of the lease is unknown or the waiter is far
 * back in the queue. */
static uint32_t retry_after_ms(const struct hf_mongo_reply *reply)
{
    uint32_t position = (uint32_t)reply->position, after = position * 10 + 1;

    if (position >= FIRST_RETRIES)
        after = (position - FIRST_RETRIES + 1) * LATER_MS;
    if (!reply->has_left || reply->left_ms > UINT32_MAX - after ||
        position >= LATER_RETRIES)
        return 0;
    return reply->left_ms + after;
}

static enum hf_err answer_lock(const struct hf_command *command,
                               const struct hf_mongo_reply *reply, hf_time sent,
                               struct hf_answer *answer)
{
    if (reply->mine) {
        answer->result.token = reply->token;
        answer->result.generation = reply->renewals;
        answer->anchor =
            (struct hf_anchor){.known = reply->fresh, .sent = sent};
        return HF_OK;
    }
    if (reply->canceled)
        return HF_ECANCELED;
    if (reply->position >= 0) {
        answer->result.position = (uint32_t)reply->position + 1;
        answer->poll_after_ms = retry_after_ms(reply);
    } else if (command->queue) {
        return HF_ELIMIT;
    }
    return HF_EBUSY;
}

static enum hf_err not_holder_error(const struct hf_mongo_reply *reply)
{
    return reply->held ? HF_ENOTOWNER : HF_ENOTHELD;
}

/* Returns true if this copy of the command, or an earlier copy of it, ended the
 * grant `token` for `reason`. */
static bool was_ended_by_call(const struct hf_mongo_reply *reply,
                              uint64_t token, enum hf_event_kind reason)
{
    return reply->ended_mine && reply->ended_token == token &&
           reply->end_reason == reason;
}

static enum hf_err answer_update(const struct hf_mongo_reply *reply)
{
    if (reply->updated)
        return HF_OK;
    return reply->superseded ? HF_ECANCELED : HF_EMISMATCH;
}

static enum hf_err answer_cancel(const struct hf_mongo_reply *reply,
                                 struct hf_answer *answer)
{
    if (reply->ended_mine && reply->end_reason == HF_EVENT_RELEASED) {
        answer->result.token = reply->ended_token;
        return HF_OK;
    }
    return reply->fresh ? HF_OK : HF_ENOTHELD;
}

static enum hf_err answer_force(const struct hf_command *command,
                                const struct hf_mongo_reply *reply)
{
    if (command->now &&
        was_ended_by_call(reply, command->token, HF_EVENT_FORCED))
        return HF_OK;
    if (!command->now && reply->held && reply->forced &&
        reply->token == command->token)
        return HF_OK;
    return not_holder_error(reply);
}

static enum hf_err answer_command(const struct hf_command *command,
                                  const struct hf_mongo_reply *reply,
                                  hf_time sent, struct hf_answer *answer)
{
    bool holds = reply->mine && reply->token == command->token;

    switch (command->kind) {
    case HF_COMMAND_LOCK:
        return answer_lock(command, reply, sent, answer);
    case HF_COMMAND_UNLOCK:
        return was_ended_by_call(reply, command->token, HF_EVENT_RELEASED)
                   ? HF_OK
                   : not_holder_error(reply);
    case HF_COMMAND_RENEW:
        answer->result.generation = reply->renewals;
        if (!holds)
            return not_holder_error(reply);
        return reply->forced ? HF_EFORCED : HF_OK;
    case HF_COMMAND_UPDATE:
        return holds ? answer_update(reply) : not_holder_error(reply);
    case HF_COMMAND_CANCEL:
        return answer_cancel(reply, answer);
    default:
        return answer_force(command, reply);
    }
}

/* Returns true if the command's grant has ended and the field `ended` still
 * describes it. */
static bool is_grant_ended(const struct hf_mongo_reply *reply,
                           const struct hf_command *command)
{
    return reply->ended_token == command->token;
}

/* Returns true if another claim holds the grant with the command's token. */
static bool is_held_by_other(const struct hf_mongo_reply *reply,
                             const struct hf_command *command)
{
    return reply->held && !reply->mine && reply->token == command->token;
}

void hf_mongo_reply_to_answer(const struct hf_command *command,
                              const struct hf_mongo_reply *reply, hf_time sent,
                              struct hf_answer *answer)
{
    enum hf_err err = reply->err;

    answer->sure = !err && (is_grant_ended(reply, command) ||
                            is_held_by_other(reply, command));
    if (!err)
        err = answer_command(command, reply, sent, answer);
    else if (*reply->cause)
        answer->cause = strdup(reply->cause);
    answer->result.err = err;
    answer->index = reply->time;
}
