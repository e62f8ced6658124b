#include "node/requests.h"

#include "base/assert.h"
#include "node/state.h"

#define RESEND_MS 50

void hf_requests_init(struct hf_requests *requests)
{
    hf_map_init(&requests->by_number);
    hf_dlist_init(&requests->unsent);
    hf_dlist_init(&requests->sent);
    hf_dlist_init(&requests->answered);
    requests->resend_at = HF_NEVER;
}

void hf_requests_fini(struct hf_requests *requests)
{
    hf_map_fini(&requests->by_number);
    hf_heap_fini(&requests->by_deadline);
}

static struct hf_node_request *request_at(struct hf_dlist *link)
{
    return HF_CONTAINER(link, struct hf_node_request, link);
}

/* The numbers are consecutive, which this spreads well enough. */
static uint64_t hash_number(uint64_t number)
{
    return number * UINT64_C(0x9e3779b97f4a7c15);
}

static struct hf_node_request *find_pending_request(
    const struct hf_requests *requests, uint64_t number)
{
    struct hf_map_link *link =
        hf_map_find(&requests->by_number, hash_number(number));

    for (; link; link = hf_map_find_next(link)) {
        struct hf_node_request *request =
            HF_CONTAINER(link, struct hf_node_request, by_number);

        if (request->number == number)
            return request;
    }
    return NULL;
}

enum hf_err hf_node_submit(struct hf_node *node,
                           struct hf_node_request *request)
{
    struct hf_requests *requests = &node->requests;

    if (requests->count >= HF_NODE_REQUESTS_MAX)
        return HF_ELIMIT;
    if (hf_heap_reserve(&requests->by_deadline, requests->count + 1))
        return HF_ENOMEM;
    requests->count++;
    request->number = ++requests->last_number;
    request->by_deadline = (struct hf_heap_link){0};
    request->was_sent = request->is_answered = false;
    request->outcome = (struct hf_node_outcome){.age_ms = -1};
    hf_heap_set(&requests->by_deadline, &request->by_deadline,
                request->deadline);
    hf_map_insert(&requests->by_number, &request->by_number,
                  hash_number(request->number));
    hf_dlist_push_back(request->kind == HF_NODE_COMMAND ? &requests->unsent
                                                        : &node->reads.unsent,
                       &request->link);
    return HF_OK;
}

/* Remove the request from its list, and from the indexes of requests that have
 * no outcome. */
static void retire_request(struct hf_requests *requests,
                           struct hf_node_request *request)
{
    hf_dlist_remove(&request->link);
    hf_map_remove(&requests->by_number, &request->by_number);
    hf_heap_drop(&requests->by_deadline, &request->by_deadline);
    requests->count--;
}

void hf_node_abandon(struct hf_node *node, struct hf_node_request *request)
{
    if (request->is_answered) {
        hf_dlist_remove(&request->link);
        return;
    }
    hf_proposals_abandon(node, request);
    retire_request(&node->requests, request);
}

/* ---- Sending ------------------------------------------------------------*/

void hf_requests_resend(struct hf_node *node)
{
    struct hf_requests *requests = &node->requests;

    while (!hf_dlist_is_empty(&requests->sent)) {
        struct hf_dlist *last = requests->sent.prev;

        hf_dlist_remove(last);
        hf_dlist_push_front(&requests->unsent, last);
    }
    requests->resend_at = HF_NEVER;
    hf_reads_resend(node);
}

static bool forward(struct hf_node *node, struct hf_peer *leader,
                    struct hf_node_request *request)
{
    struct hf_packet_forward packet = {
        .number = request->number,
        .remaining_ms = hf_time_left(request->deadline, node->now),
        .command = request->command,
    };

    hf_packet_encode_forward(hf_peers_message(node), &packet);
    if (!hf_peers_send(node, leader, HF_PACKET_FORWARD))
        return false;
    request->was_sent = true;
    node->forwarded++;
    return true;
}

static void mark_sent(struct hf_node *node, struct hf_node_request *request)
{
    hf_dlist_remove(&request->link);
    hf_dlist_push_back(&node->requests.sent, &request->link);
    request->sent_at = node->now;
}

/* Returns when to send commands again: when the oldest one has had no answer
 * for HF_NODE_REPEAT_MS, because the command or its answer may be lost, or at
 * `resend_at`. That is safe: the leader ignores a command that it already has,
 * and a session applies a command once. */
static hf_time repeat_time(const struct hf_node *node)
{
    struct hf_dlist *oldest = hf_dlist_first(&node->requests.sent);

    hf_time late;

    if (!oldest || node->leading_term != 0)
        return HF_NEVER;
    late = request_at(oldest)->sent_at + HF_NODE_REPEAT_MS;
    return late < node->requests.resend_at ? late : node->requests.resend_at;
}

void hf_requests_dispatch(struct hf_node *node)
{
    struct hf_dlist *unsent = &node->requests.unsent;
    struct hf_peer *leader = hf_peers_leader(node);
    struct hf_dlist *link;

    if (node->now >= repeat_time(node))
        hf_requests_resend(node);
    while ((hf_node_leads(node) || leader) && (link = hf_dlist_first(unsent))) {
        struct hf_node_request *request = request_at(link);

        if (!hf_node_leads(node) && !forward(node, leader, request))
            return;
        mark_sent(node, request);
        if (hf_node_leads(node))
            hf_proposals_add(node, node->opts.id, request, request);
    }
}

/* ---- Answers ------------------------------------------------------------*/

static void complete(struct hf_node *node, struct hf_node_request *request,
                     const struct hf_node_outcome *outcome)
{
    retire_request(&node->requests, request);
    request->is_answered = true;
    request->outcome = *outcome;
    hf_dlist_push_back(&node->requests.answered, &request->link);
}

/* HF_ESTATE comes from a node that does not lead, or does not know yet that it
 * leads. Send again after RESEND_MS; the leader may be known then. */
void hf_requests_answer(struct hf_node *node, uint64_t number,
                        const struct hf_node_outcome *outcome)
{
    struct hf_node_request *request =
        find_pending_request(&node->requests, number);

    if (request && outcome->err != HF_ESTATE)
        complete(node, request, outcome);
    else if (request && node->requests.resend_at == HF_NEVER)
        node->requests.resend_at = hf_time_add(node->now, RESEND_MS);
}

static void expire_requests(struct hf_node *node)
{
    struct hf_heap *heap = &node->requests.by_deadline;
    struct hf_node_outcome outcome = {.age_ms = -1};

    while (hf_heap_top_key(heap) <= node->now && hf_heap_top(heap)) {
        struct hf_node_request *request = HF_CONTAINER(
            hf_heap_top(heap), struct hf_node_request, by_deadline);

        outcome.err = request->was_sent && request->kind == HF_NODE_COMMAND
                          ? HF_EINDOUBT
                          : HF_EUNAVAIL;
        hf_proposals_abandon(node, request);
        complete(node, request, &outcome);
    }
}

void hf_requests_finish(struct hf_node *node)
{
    struct hf_dlist *link;

    expire_requests(node);
    while ((link = hf_dlist_take(&node->requests.answered))) {
        struct hf_node_request *request = request_at(link);

        request->done(request, &request->outcome);
    }
}

hf_time hf_requests_deadline(const struct hf_node *node)
{
    const struct hf_requests *requests = &node->requests;
    hf_time deadline = hf_heap_top_key(&requests->by_deadline);

    if (!hf_dlist_is_empty(&requests->answered))
        return node->now;
    if (!hf_dlist_is_empty(&requests->unsent) && hf_peers_can_ask(node))
        return node->now;
    return repeat_time(node) < deadline ? repeat_time(node) : deadline;
}
