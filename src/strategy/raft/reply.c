/* reply.c - turn replies of a node into answers. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "strategy/raft/raft.h"

enum hf_verb hf_raft_reply_verb(const struct hf_request *request)
{
    switch (request->kind) {
    case HF_REQUEST_COMMAND:
        return HF_VERB_DO;
    case HF_REQUEST_READ:
        return HF_VERB_READ;
    case HF_REQUEST_LOOKUP:
        return HF_VERB_LOOKUP;
    case HF_REQUEST_LIST:
        return HF_VERB_LIST;
    case HF_REQUEST_WATCH:
        return HF_VERB_WATCH;
    case HF_REQUEST_UNWATCH:
        return HF_VERB_UNWATCH;
    }
    HF_ASSERT(false);
    return HF_VERB_COUNT;
}

/* ---- Commands -----------------------------------------------------------*/

/* When the first LOCK of the claim was sent: this one, in this attempt or an
 * earlier one whose fate is unknown; or another one that put the claim into the
 * queue. */
static hf_time claim_first_sent(const struct hf_raft *raft,
                                const struct hf_request *request)
{
    hf_time earlier = hf_raft_claims_find(raft, &request->command.nonce);

    return earlier < request->first_sent ? earlier : request->first_sent;
}

static void note_lock_result(struct hf_raft *raft,
                             const struct hf_raft_request *pending,
                             const struct hf_mux_reply *reply)
{
    const struct hf_nonce *nonce = &pending->request->command.nonce;
    struct hf_answer *answer = &pending->request->answer;
    hf_time sent = claim_first_sent(raft, pending->request);

    if (answer->result.err == HF_EBUSY && answer->result.position > 0) {
        hf_raft_claims_add(raft, nonce, sent);
        return;
    }
    if (!answer->result.err)
        answer->anchor = hf_raft_anchor(sent, reply->age_ms);
    hf_raft_claims_remove(raft, nonce);
}

/* Store the result of a command. HF_EINDOUBT means that the table does not know
 * the session; the table returns it for no other reason. */
static enum hf_raft_reply_status decode_reply_result(
    struct hf_raft *raft, struct hf_raft_request *pending,
    const struct hf_mux_reply *reply)
{
    struct hf_request *request = pending->request;
    struct hf_answer *answer = &request->answer;

    if (hf_command_decode_result(&answer->result, reply->result.data,
                                 reply->result.size))
        return HF_RAFT_REPLY_MALFORMED;
    if (answer->result.err == HF_EINDOUBT)
        return HF_RAFT_REPLY_GONE;
    answer->index = reply->index;
    if (request->command.kind == HF_COMMAND_LOCK)
        note_lock_result(raft, pending, reply);
    /* The session keeps results, so this is the result of the first copy. */
    answer->sure = request->command.kind == HF_COMMAND_UNLOCK;
    return HF_RAFT_REPLY_DONE;
}

/* ---- Reading ------------------------------------------------------------*/

/* Returns true if the claim does not wait any more. A node that is behind may
 * not know the claim yet. */
static bool has_ended_wait(const struct hf_request *lookup,
                           const struct hf_mux_reply *reply)
{
    return reply->state == HF_CLAIM_HELD ||
           (reply->state == HF_CLAIM_UNKNOWN && lookup->how == HF_LINEARIZABLE);
}

static void decode_lookup(struct hf_raft *raft, struct hf_request *lookup,
                          const struct hf_mux_reply *reply)
{
    static const enum hf_err errors[] = {
        [HF_CLAIM_UNKNOWN] = HF_ENOTHELD,
        [HF_CLAIM_QUEUED] = HF_EBUSY,
        [HF_CLAIM_HELD] = HF_OK,
    };

    lookup->answer.result = (struct hf_result){
        .err = errors[reply->state],
        .token = reply->token,
        .generation = reply->generation,
        .position = reply->position,
    };
    if (has_ended_wait(lookup, reply))
        hf_raft_claims_remove(raft, &lookup->command.nonce);
}

static enum hf_err reserve_infos(struct hf_raft_request *pending, size_t more)
{
    struct hf_answer *answer = &pending->request->answer;
    size_t needed = answer->count + more;
    size_t capacity = pending->capacity > 0 ? pending->capacity : 16;
    struct hf_info *infos;

    if (needed > HF_LIST_MAX)
        return HF_ELIMIT;
    if (needed <= pending->capacity)
        return HF_OK;
    while (capacity < needed)
        capacity *= 2;
    infos = realloc(answer->infos, capacity * sizeof(*infos));
    if (!infos)
        return HF_ENOMEM;
    answer->infos = infos;
    pending->capacity = capacity;
    return HF_OK;
}

static enum hf_err decode_infos(struct hf_raft_request *pending,
                                const struct hf_mux_reply *reply)
{
    struct hf_answer *answer = &pending->request->answer;
    enum hf_err err = reserve_infos(pending, reply->info_count);

    for (size_t i = 0; !err && i < reply->info_count; i++) {
        struct hf_info info;

        err = hf_protocol_decode_info(&info, hf_resp_bytes(&reply->infos[i]));
        if (!err)
            err = hf_info_copy(&answer->infos[answer->count], &info);
        answer->count += !err;
    }
    return err;
}

static enum hf_raft_reply_status decode_page(struct hf_raft *raft,
                                             struct hf_raft_request *pending,
                                             const struct hf_mux_reply *reply)
{
    struct hf_request *request = pending->request;
    enum hf_err err = decode_infos(pending, reply);

    request->answer.result.err = err;
    request->progress = hf_net_now(&raft->net);
    if (err == HF_EPROTO)
        return HF_RAFT_REPLY_MALFORMED;
    if (!err && reply->more)
        return HF_RAFT_REPLY_MORE;
    if (!err && request->kind == HF_REQUEST_LIST)
        request->answer.count =
            hf_info_sort_unique(request->answer.infos, request->answer.count);
    return HF_RAFT_REPLY_DONE;
}

/* ---- All kinds ----------------------------------------------------------*/

static void set_error(const struct hf_raft *raft, struct hf_answer *answer,
                      const struct hf_mux_reply *reply)
{
    struct hf_error error;

    (void)hf_error_set(&error, reply->err, "%s: %.*s",
                       raft->current->link.address->name, (int)reply->text.size,
                       (const char *)reply->text.data);
    hf_answer_clear(answer);
    answer->result.err = reply->err;
    answer->cause = strdup(error.text);
}

enum hf_raft_reply_status hf_raft_reply_decode(struct hf_raft *raft,
                                               struct hf_raft_request *pending,
                                               const struct hf_mux_reply *reply)
{
    struct hf_request *request = pending->request;
    struct hf_answer *answer = &request->answer;

    if (reply->session_gone && request->kind == HF_REQUEST_COMMAND)
        return HF_RAFT_REPLY_GONE;
    if (reply->err) {
        set_error(raft, answer, reply);
        return HF_RAFT_REPLY_DONE;
    }
    answer->index = reply->index;
    switch (request->kind) {
    case HF_REQUEST_COMMAND:
        return decode_reply_result(raft, pending, reply);
    case HF_REQUEST_LOOKUP:
        decode_lookup(raft, request, reply);
        break;
    case HF_REQUEST_READ:
    case HF_REQUEST_LIST:
        return decode_page(raft, pending, reply);
    case HF_REQUEST_WATCH:
        answer->result.err = hf_raft_watch_add(raft, request, reply->index);
        break;
    case HF_REQUEST_UNWATCH:
        break;
    }
    return HF_RAFT_REPLY_DONE;
}
