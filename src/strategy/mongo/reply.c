/* reply.c - what a server has answered, and what that means to who asked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "strategy/mongo/command.h"

#define LOOKERS 3 /* claims in a queue that look when the lease ends */

/* Claims that look soon after that, in case the first are dead, and how long one
 * after another. */
#define LATER_LOOKERS 16
#define LATER_MS 1000

/* ---- Reading ------------------------------------------------------------*/

uint64_t hf_mongo_time(uint32_t seconds, uint32_t increment)
{
    const uint32_t epoch = 1700000000;

    return (uint64_t)(seconds > epoch ? seconds - epoch : 0) << 32 |
           (increment & 0xffffff) << 8;
}

uint64_t hf_mongo_reply_time(const bson_t *reply)
{
    uint32_t seconds = 0, increment = 0;
    bson_iter_t at;

    if (!bson_iter_init_find(&at, reply, "operationTime") ||
        !BSON_ITER_HOLDS_TIMESTAMP(&at))
        return 0;
    bson_iter_timestamp(&at, &seconds, &increment);
    return hf_mongo_time(seconds, increment);
}

uint64_t hf_mongo_token(const bson_iter_t *at)
{
    int64_t token = BSON_ITER_HOLDS_INT64(at) ? bson_iter_int64(at) : 0;

    return token > 0 ? (uint64_t)token : 0;
}

static bool is_text(const bson_iter_t *at, const char *text)
{
    return BSON_ITER_HOLDS_UTF8(at) && !strcmp(bson_iter_utf8(at, NULL), text);
}

static void not_understood(struct hf_mongo_reply *reply, const char *field)
{
    reply->err = HF_EPROTO;
    (void)snprintf(reply->cause, sizeof(reply->cause),
                   "what is stored under this key is not understood: %s",
                   field);
}

static void read_ended(bson_iter_t *ended, const char *call,
                       struct hf_mongo_reply *reply)
{
    bson_iter_t at;

    if (!BSON_ITER_HOLDS_DOCUMENT(ended) || !bson_iter_recurse(ended, &at))
        return;
    while (bson_iter_next(&at)) {
        const char *name = bson_iter_key(&at);

        if (!strcmp(name, "token"))
            reply->ended_token = (uint64_t)bson_iter_as_int64(&at);
        else if (!strcmp(name, "why"))
            reply->ended_why = (enum hf_event_kind)bson_iter_as_int64(&at);
        else if (!strcmp(name, "call"))
            reply->ended_mine = is_text(&at, call);
    }
}

/* A text among the variables. */
static const char *variable(const struct hf_mongo_question *question,
                            const char *name)
{
    bson_iter_t at;

    HF_ASSERT(bson_iter_init_find(&at, &question->variables, name));
    return bson_iter_utf8(&at, NULL);
}

static void read_events(bson_iter_t *at,
                        const struct hf_mongo_question *question,
                        struct hf_mongo_reply *reply)
{
    size_t size = strlen(question->command);
    const char *events =
        BSON_ITER_HOLDS_UTF8(at) ? bson_iter_utf8(at, NULL) : "";

    reply->fresh =
        !strncmp(events, question->command, size) && events[size] == '\n';
}

/* Which update of this client was the last that was applied. */
static void read_updated(const bson_iter_t *list,
                         const struct hf_mongo_question *question,
                         struct hf_mongo_reply *reply)
{
    const char *client = variable(question, "client");
    bson_iter_t at, by, number, wanted;

    if (!bson_iter_init_find(&wanted, &question->variables, "update") ||
        !BSON_ITER_HOLDS_ARRAY(list) || !bson_iter_recurse(list, &at))
        return;
    while (bson_iter_next(&at)) {
        if (!BSON_ITER_HOLDS_DOCUMENT(&at) || !bson_iter_recurse(&at, &by) ||
            !bson_iter_find(&by, "by") || !is_text(&by, client) ||
            !bson_iter_recurse(&at, &number) ||
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
    bson_iter_t at;

    if (!BSON_ITER_HOLDS_ARRAY(list) || !bson_iter_recurse(list, &at))
        return false;
    while (bson_iter_next(&at))
        if (is_text(&at, text))
            return true;
    return false;
}

static void read_field(bson_iter_t *at,
                       const struct hf_mongo_question *question,
                       struct hf_mongo_reply *reply)
{
    const char *name = bson_iter_key(at);
    const char *nonce = variable(question, "nonce");

    if (!strcmp(name, "nonce")) {
        reply->held = !BSON_ITER_HOLDS_NULL(at); /* as the pipelines see it */
        reply->mine = is_text(at, nonce);
    } else if (!strcmp(name, "token")) {
        reply->token = hf_mongo_token(at);
    } else if (!strcmp(name, "renewals")) {
        reply->renewals = (uint32_t)bson_iter_as_int64(at);
    } else if (!strcmp(name, "forced")) {
        reply->forced = bson_iter_as_bool(at);
    } else if (!strcmp(name, "canceled")) {
        reply->canceled = has_text(at, nonce);
    } else if (!strcmp(name, "events")) {
        read_events(at, question, reply);
    } else if (!strcmp(name, "updated")) {
        read_updated(at, question, reply);
    } else if (!strcmp(name, "ended")) {
        read_ended(at, variable(question, "call"), reply);
    }
}

void hf_mongo_read_reply(const bson_t *bson,
                         const struct hf_mongo_question *question,
                         struct hf_mongo_reply *reply)
{
    bson_iter_t at;
    const uint8_t *data = NULL;
    uint32_t size = 0;
    bson_t left;

    reply->err = HF_OK;
    reply->time = hf_mongo_reply_time(bson);
    reply->place = -1;
    if (!bson_iter_init_find(&at, bson, "value") ||
        !BSON_ITER_HOLDS_DOCUMENT(&at))
        return;
    bson_iter_document(&at, &size, &data);
    if (!bson_init_static(&left, data, size)) {
        not_understood(reply, "it is no BSON document");
        return;
    }
    reply->exists = true;
    for (bson_iter_init(&at, &left); bson_iter_next(&at);)
        read_field(&at, question, reply);
    if (reply->held && reply->token == 0)
        not_understood(reply, "its token is no number");
}

bool hf_mongo_found(const bson_t *reply)
{
    bson_iter_t at;

    return !bson_has_field(reply, "writeErrors") &&
           bson_iter_init_find(&at, reply, "n") && bson_iter_as_int64(&at) == 1;
}

bool hf_mongo_read_given(const bson_t *bson,
                         const struct hf_mongo_question *question,
                         struct hf_mongo_reply *reply)
{
    bson_iter_t at, token;

    HF_ASSERT(bson_iter_init_find(&token, &question->variables, "token"));
    hf_mongo_read_reply(bson, question, reply);
    reply->fresh = hf_mongo_found(bson) &&
                   bson_iter_init_find(&at, bson, "nModified") &&
                   bson_iter_as_int64(&at) == 1;
    reply->ended_mine = reply->fresh;
    reply->ended_why = HF_EVENT_RELEASED;
    reply->ended_token = hf_mongo_token(&token);
    return reply->fresh;
}

/* ---- What it means ------------------------------------------------------*/

/* The first ones in the queue look when the lease ends, one after another: the
 * first may have died. */
static uint32_t look_again(const struct hf_mongo_reply *reply)
{
    uint32_t place = (uint32_t)reply->place, after = place * 10 + 1;

    if (place >= LOOKERS)
        after = (place - LOOKERS + 1) * LATER_MS;
    if (!reply->has_left || reply->left_ms > UINT32_MAX - after ||
        place >= LATER_LOOKERS)
        return 0;
    return reply->left_ms + after;
}

static enum hf_err conclude_lock(const struct hf_command *command,
                                 const struct hf_mongo_reply *reply,
                                 hf_time sent, struct hf_answer *answer)
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
    if (reply->place >= 0) {
        answer->result.place = (uint32_t)reply->place + 1;
        answer->look_again_ms = look_again(reply);
    } else if (command->queue) {
        return HF_ELIMIT;
    }
    return HF_EBUSY;
}

static enum hf_err not_mine(const struct hf_mongo_reply *reply)
{
    return reply->held ? HF_ENOTOWNER : HF_ENOTHELD;
}

/* By this copy of the command, or by one before. */
static bool ended(const struct hf_mongo_reply *reply, uint64_t token,
                  enum hf_event_kind why)
{
    return reply->ended_mine && reply->ended_token == token &&
           reply->ended_why == why;
}

static enum hf_err conclude_update(const struct hf_mongo_reply *reply)
{
    if (reply->updated)
        return HF_OK;
    return reply->superseded ? HF_ECANCELED : HF_EMISMATCH;
}

static enum hf_err conclude_cancel(const struct hf_mongo_reply *reply,
                                   struct hf_answer *answer)
{
    if (reply->ended_mine && reply->ended_why == HF_EVENT_RELEASED) {
        answer->result.token = reply->ended_token;
        return HF_OK;
    }
    return reply->fresh ? HF_OK : HF_ENOTHELD;
}

static enum hf_err conclude_force(const struct hf_command *command,
                                  const struct hf_mongo_reply *reply)
{
    if (command->now && ended(reply, command->token, HF_EVENT_FORCED))
        return HF_OK;
    if (!command->now && reply->held && reply->forced &&
        reply->token == command->token)
        return HF_OK;
    return not_mine(reply);
}

static enum hf_err conclude(const struct hf_command *command,
                            const struct hf_mongo_reply *reply, hf_time sent,
                            struct hf_answer *answer)
{
    bool holds = reply->mine && reply->token == command->token;

    switch (command->kind) {
    case HF_COMMAND_LOCK:
        return conclude_lock(command, reply, sent, answer);
    case HF_COMMAND_UNLOCK:
        return ended(reply, command->token, HF_EVENT_RELEASED)
                   ? HF_OK
                   : not_mine(reply);
    case HF_COMMAND_RENEW:
        answer->result.generation = reply->renewals;
        if (!holds)
            return not_mine(reply);
        return reply->forced ? HF_EFORCED : HF_OK;
    case HF_COMMAND_UPDATE:
        return holds ? conclude_update(reply) : not_mine(reply);
    case HF_COMMAND_CANCEL:
        return conclude_cancel(reply, answer);
    default:
        return conclude_force(command, reply);
    }
}

/* Who ended this very grant is known until the next one ends. */
static bool is_ended(const struct hf_mongo_reply *reply,
                     const struct hf_command *command)
{
    return reply->ended_token == command->token;
}

/* This very grant lasts, and was never of this claim. */
static bool is_anothers(const struct hf_mongo_reply *reply,
                        const struct hf_command *command)
{
    return reply->held && !reply->mine && reply->token == command->token;
}

void hf_mongo_conclude(const struct hf_command *command,
                       const struct hf_mongo_reply *reply, hf_time sent,
                       struct hf_answer *answer)
{
    enum hf_err err = reply->err;

    answer->sure =
        !err && (is_ended(reply, command) || is_anothers(reply, command));
    if (!err)
        err = conclude(command, reply, sent, answer);
    else if (*reply->cause)
        answer->cause = strdup(reply->cause);
    answer->result.err = err;
    answer->index = reply->time;
}
