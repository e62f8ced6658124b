/* request.c - requests, from submit to answer. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "strategy/raft/raft.h"

#define REMAINING_MAX_MS 10000 /* limit of the timeout sent to a node */

/* ---- Answers ------------------------------------------------------------*/

static void free_raft_request(struct hf_raft *raft,
                              struct hf_raft_request *pending)
{
    hf_map_remove(&raft->requests_by_id, &pending->by_id);
    hf_dlist_remove(&pending->link);
    free(pending);
}

static void answer_request(struct hf_raft *raft,
                           struct hf_raft_request *pending)
{
    struct hf_request *request = pending->request;

    free_raft_request(raft, pending);
    raft->net.host->ops->answer(raft->net.host, request);
}

static void set_failure(struct hf_request *request, enum hf_err err,
                        const char *text)
{
    hf_answer_clear(&request->answer);
    request->answer.result.err = err;
    request->answer.cause = text && *text ? strdup(text) : NULL;
}

/* Fail a request for which there is no struct hf_raft_request. */
static void fail_unsent(struct hf_raft *raft, struct hf_request *request,
                        enum hf_err err, const char *text)
{
    set_failure(request, err, text);
    raft->net.host->ops->answer(raft->net.host, request);
}

static void set_gone(struct hf_request *request)
{
    set_failure(request, HF_EINDOUBT,
                "the cluster has closed the session of this client, which was "
                "disconnected for too long");
    request->answer.session_gone = true;
}

/* The result of a request that ends without a reply. Only commands change
 * anything, so only they can be in doubt. */
static enum hf_err unanswered_error(const struct hf_raft_request *pending)
{
    return pending->request->kind == HF_REQUEST_COMMAND && pending->copies > 0
               ? HF_EINDOUBT
               : HF_EUNAVAIL;
}

void hf_raft_requests_fail(struct hf_raft *raft, const struct hf_error *why)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_first(&raft->requests))) {
        struct hf_raft_request *pending =
            HF_CONTAINER(link, struct hf_raft_request, link);

        set_failure(pending->request, unanswered_error(pending), why->text);
        answer_request(raft, pending);
    }
}

/* Requests that are not commands, and commands that were never sent, continue
 * in the next session. */
void hf_raft_requests_on_gone(struct hf_raft *raft)
{
    struct hf_dlist *link = raft->requests.next, *next;

    for (; link != &raft->requests; link = next) {
        struct hf_raft_request *pending =
            HF_CONTAINER(link, struct hf_raft_request, link);

        next = link->next;
        if (pending->request->kind != HF_REQUEST_COMMAND ||
            pending->request->command.session == 0)
            continue;
        set_gone(pending->request);
        answer_request(raft, pending);
    }
}

/* ---- Sending ------------------------------------------------------------*/

static uint32_t remaining_ms(const struct hf_raft *raft,
                             const struct hf_request *request)
{
    uint32_t left = hf_time_left(request->deadline, hf_net_now(&raft->net));

    if (left == 0)
        return 1;
    return left < REMAINING_MAX_MS ? left : REMAINING_MAX_MS;
}

static void send_raft_request(struct hf_raft *raft,
                              struct hf_raft_request *pending)
{
    struct hf_request *request = pending->request;
    struct hf_mux_request message = {
        .id = pending->id,
        .verb = hf_raft_reply_verb(request),
        .linearizable = request->how == HF_LINEARIZABLE,
        .exact = request->exact,
        .remaining_ms = remaining_ms(raft, request),
        .watch = request->watch,
        .from = request->from,
        .secret = request->command.nonce,
        .key = request->command.key,
    };

    if (request->kind == HF_REQUEST_COMMAND) {
        HF_ASSERT(raft->session.id > 0);
        request->command.session = raft->session.id;
        raft->scratch.size = 0;
        raft->scratch.failed = false;
        hf_command_encode(&request->command, raft->current->version,
                          &raft->scratch);
        if (raft->scratch.failed)
            raft->current->link.output.failed = true; /* its flush fails */
        message.command =
            (struct hf_bytes){raft->scratch.data, raft->scratch.size};
    }
    if (pending->copies == 0)
        pending->first_sent = hf_net_now(&raft->net);
    if (pending->first_sent < request->first_sent)
        request->first_sent = pending->first_sent;
    pending->copies++;
    hf_raft_connection_send(raft->current, &message);
}

void hf_raft_requests_send_all(struct hf_raft *raft)
{
    for (struct hf_dlist *link = raft->requests.next; link != &raft->requests;
         link = link->next) {
        struct hf_raft_request *pending =
            HF_CONTAINER(link, struct hf_raft_request, link);

        hf_answer_clear(&pending->request->answer); /* a part of a LIST */
        pending->capacity = 0;
        send_raft_request(raft, pending);
    }
}

/* ---- Members of the strategy --------------------------------------------*/

static struct hf_raft_request *add_raft_request(struct hf_raft *raft,
                                                struct hf_request *request)
{
    struct hf_raft_request *pending = calloc(1, sizeof(*pending));

    if (!pending)
        return NULL;
    pending->request = request;
    pending->first_sent = HF_NEVER;
    pending->id = raft->net.next_id++;
    hf_dlist_push_back(&raft->requests, &pending->link);
    hf_map_insert(&raft->requests_by_id, &pending->by_id, pending->id);
    return pending;
}

static void start_request(struct hf_raft *raft, struct hf_request *request)
{
    bool up = hf_raft_connection_is_up(raft->current);
    struct hf_raft_request *pending;

    if (up)
        hf_net_link_expect(&raft->current->link);
    pending = add_raft_request(raft, request);
    if (!pending) {
        fail_unsent(raft, request, HF_ENOMEM, hf_err_text(HF_ENOMEM));
        return;
    }
    if (up)
        send_raft_request(raft, pending);
}

/* Returns true if a copy of the command was sent in a session that is gone. In
 * another session the command would be executed once more. */
static bool is_of_gone_session(const struct hf_raft *raft,
                               const struct hf_request *request)
{
    return request->kind == HF_REQUEST_COMMAND &&
           request->command.session != 0 &&
           request->command.session != raft->session.id;
}

void hf_raft_request_submit(void *self, struct hf_request *request)
{
    struct hf_raft *raft = self;

    if (request->kind == HF_REQUEST_COMMAND &&
        request->command.kind != HF_COMMAND_LOCK)
        hf_raft_claims_remove(raft, &request->command.nonce);
    if (request->kind == HF_REQUEST_UNWATCH) {
        hf_raft_watch_stop(raft, request->watch);
        raft->net.host->ops->answer(raft->net.host, request);
    } else if (is_of_gone_session(raft, request)) {
        set_gone(request);
        raft->net.host->ops->answer(raft->net.host, request);
    } else if (hf_raft_route_has_failed(raft)) {
        fail_unsent(raft, request, HF_EUNAVAIL, raft->route.failure.text);
    } else {
        start_request(raft, request);
    }
}

static struct hf_raft_request *find_raft_request(
    const struct hf_raft *raft, const struct hf_request *request)
{
    for (struct hf_dlist *link = raft->requests.next; link != &raft->requests;
         link = link->next) {
        struct hf_raft_request *pending =
            HF_CONTAINER(link, struct hf_raft_request, link);

        if (pending->request == request)
            return pending;
    }
    return NULL;
}

/* The reply to a canceled request is ignored, because its id is no longer
 * known. */
void hf_raft_request_cancel(void *self, struct hf_request *request)
{
    struct hf_raft *raft = self;
    struct hf_raft_request *pending = find_raft_request(raft, request);
    bool up = hf_raft_connection_is_up(raft->current);

    set_failure(request, unanswered_error(pending),
                up ? NULL : raft->route.failure.text);
    if (request->kind == HF_REQUEST_WATCH && pending->copies > 0)
        hf_raft_watch_stop(raft, request->watch);
    answer_request(raft, pending);
}

hf_time hf_raft_request_sent_at(void *self, const struct hf_request *request)
{
    const struct hf_raft_request *pending = find_raft_request(self, request);

    return pending ? pending->first_sent : HF_NEVER;
}

hf_time hf_raft_requests_find_lock(const struct hf_raft *raft,
                                   const struct hf_nonce *nonce)
{
    for (struct hf_dlist *link = raft->requests.next; link != &raft->requests;
         link = link->next) {
        const struct hf_raft_request *pending =
            HF_CONTAINER(link, struct hf_raft_request, link);
        const struct hf_command *command = &pending->request->command;

        if (pending->request->kind == HF_REQUEST_COMMAND &&
            command->kind == HF_COMMAND_LOCK &&
            hf_nonce_equal(&command->nonce, nonce))
            return pending->request->first_sent;
    }
    return HF_NEVER;
}

/* ---- Replies ------------------------------------------------------------*/

static struct hf_raft_request *find_by_id(const struct hf_raft *raft,
                                          uint64_t id)
{
    struct hf_map_link *link = hf_map_find(&raft->requests_by_id, id);

    return link ? HF_CONTAINER(link, struct hf_raft_request, by_id) : NULL;
}

/* A node that refuses a copy of a command knows nothing about the copies that
 * were sent over lost connections, so the command is in doubt. */
static void note_earlier_copies(struct hf_raft_request *pending,
                                const struct hf_mux_reply *reply)
{
    struct hf_request *request = pending->request;

    if (reply->err && request->kind == HF_REQUEST_COMMAND &&
        pending->copies > 1)
        request->answer.result.err = HF_EINDOUBT;
}

void hf_raft_requests_on_reply(struct hf_raft_connection *connection,
                               uint64_t id,
                               const struct hf_resp_message *message)
{
    struct hf_raft *raft = connection->raft;
    struct hf_raft_request *pending = find_by_id(raft, id);
    enum hf_raft_reply_status status = HF_RAFT_REPLY_MALFORMED;
    struct hf_mux_reply reply;

    if (!pending || connection != raft->current) {
        hf_raft_watches_on_reply(connection, id, message);
        return;
    }
    if (!hf_mux_reply_decode(&reply, hf_raft_reply_verb(pending->request),
                             message))
        status = hf_raft_reply_decode(raft, pending, &reply);
    switch (status) {
    case HF_RAFT_REPLY_MORE:
        break;
    case HF_RAFT_REPLY_MALFORMED:
        hf_raft_connection_lose(connection, HF_EPROTO,
                                "the node sent a malformed reply");
        break;
    case HF_RAFT_REPLY_GONE:
        hf_raft_session_on_gone(raft);
        hf_raft_connection_lose(connection, HF_EUNAVAIL,
                                "the cluster has closed the session");
        break;
    case HF_RAFT_REPLY_DONE:
        note_earlier_copies(pending, &reply);
        answer_request(raft, pending);
        break;
    }
}
