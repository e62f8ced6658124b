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

static struct hf_node_request *find_pending_request(
    const struct hf_requests *requests, uint64_t number)
{
    struct hf_map_link *link =
        hf_map_find(&requests->by_number, hf_map_hash_number(number));

    for (; link; link = hf_map_find_next(link)) {
        struct hf_node_request *request =
            HF_CONTAINER(link, struct hf_node_request, by_number);

        if (request->number == number)
            return request;
    }
    return NULL;
}

enum hf_err hf_requests_submit(struct hf_node *node,
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
    request->copies = 0;
    request->is_answered = false;
    request->outcome = (struct hf_node_outcome){.age_ms = -1};
    hf_heap_set(&requests->by_deadline, &request->by_deadline,
                request->deadline);
    hf_map_insert(&requests->by_number, &request->by_number,
                  hf_map_hash_number(request->number));
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

void hf_requests_abandon(struct hf_node *node, struct hf_node_request *request)
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

static bool forward_request(struct hf_node *node, struct hf_peer *leader,
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
    request->copies++;
    node->forwarded++;
    return true;
}

static void mark_sent(struct hf_node *node, struct hf_node_request *request)
{
    hf_dlist_remove(&request->link);
    hf_dlist_push_back(&node->requests.sent, &request->link);
    request->sent_at = node->now;
}

/* Returns true if the command has had no answer for so long that it or its
 * answer may be lost. */
static bool is_late(const struct hf_node *node, struct hf_dlist *link)
{
    return link && node->now >= request_at(link)->sent_at + HF_NODE_REPEAT_MS;
}

/* Let hf_requests_dispatch() send late commands again, before those that were
 * not sent yet. Only late ones: otherwise a leader with a slow disk would
 * receive all commands again every second. */
static void resend_late(struct hf_node *node)
{
    struct hf_requests *requests = &node->requests;
    struct hf_dlist *before = requests->unsent.next;
    struct hf_dlist *link;

    while (is_late(node, link = hf_dlist_first(&requests->sent))) {
        hf_dlist_remove(link);
        hf_dlist_insert(before, link);
    }
}

/* Returns when to send commands again: when one of them is late, or at
 * `resend_at`. That is safe: the leader ignores a command that it already has,
 * and a session applies a command once. */
static hf_time repeat_time(const struct hf_node *node)
{
    struct hf_dlist *oldest = hf_dlist_first(&node->requests.sent);
    hf_time late;

    if (!oldest)
        return HF_NEVER;
    if (hf_node_leads(node))
        return node->requests.resend_at;
    late = request_at(oldest)->sent_at + HF_NODE_REPEAT_MS;
    return hf_time_min(late, node->requests.resend_at);
}

void hf_requests_dispatch(struct hf_node *node)
{
    struct hf_dlist *unsent = &node->requests.unsent;
    struct hf_peer *leader = hf_peers_leader(node);
    struct hf_dlist *link;

    if (node->now >= node->requests.resend_at)
        hf_requests_resend(node);
    if (!hf_node_leads(node))
        resend_late(node);
    while ((hf_node_leads(node) || leader) && (link = hf_dlist_first(unsent))) {
        struct hf_node_request *request = request_at(link);

        if (!hf_node_leads(node) && !forward_request(node, leader, request))
            return;
        mark_sent(node, request);
        if (hf_node_leads(node))
            hf_proposals_add(node, node->opts.id, request, request);
    }
}

/* ---- Answers ------------------------------------------------------------*/

static void complete_request(struct hf_node *node,
                             struct hf_node_request *request,
                             const struct hf_node_outcome *outcome)
{
    retire_request(&node->requests, request);
    request->is_answered = true;
    request->outcome = *outcome;
    hf_dlist_push_back(&node->requests.answered, &request->link);
}

/* A leader that refuses a copy of a command knows nothing about the other
 * copies. One of them may be in a log, so the command may still take effect. */
static void complete_copy(struct hf_node *node, struct hf_node_request *request,
                          const struct hf_node_outcome *outcome,
                          bool has_other_copies)
{
    static const struct hf_node_outcome in_doubt = {.err = HF_EINDOUBT,
                                                    .age_ms = -1};

    complete_request(node, request,
                     outcome->err && has_other_copies ? &in_doubt : outcome);
}

/* A copy that this node has refused was never submitted, and is not counted. */
void hf_requests_answer(struct hf_node *node, uint64_t number,
                        const struct hf_node_outcome *outcome)
{
    struct hf_node_request *request =
        find_pending_request(&node->requests, number);

    if (request)
        complete_copy(node, request, outcome, request->copies > 0);
}

static struct hf_node_request *find_pending_command(struct hf_node *node,
                                                    uint64_t number)
{
    struct hf_node_request *request =
        find_pending_request(&node->requests, number);

    return request && request->kind == HF_NODE_COMMAND ? request : NULL;
}

void hf_requests_on_reply(struct hf_node *node, uint64_t number,
                          const struct hf_node_outcome *outcome)
{
    struct hf_node_request *request = find_pending_command(node, number);

    if (!request)
        return;
    /* This node may lead by now, and have a copy of its own. */
    hf_proposals_abandon(node, request);
    complete_copy(node, request, outcome, request->copies > 1);
}

/* The node does not lead, does not know yet that it leads, or is not in office
 * yet. That may have changed after RESEND_MS. */
void hf_requests_on_refused(struct hf_node *node, uint64_t number)
{
    if (find_pending_command(node, number) &&
        node->requests.resend_at == HF_NEVER)
        node->requests.resend_at = hf_time_add(node->now, RESEND_MS);
}

static void expire_requests(struct hf_node *node)
{
    struct hf_heap *heap = &node->requests.by_deadline;
    struct hf_node_outcome outcome = {.age_ms = -1};

    while (hf_heap_top_key(heap) <= node->now && hf_heap_top(heap)) {
        struct hf_node_request *request = HF_CONTAINER(
            hf_heap_top(heap), struct hf_node_request, by_deadline);

        outcome.err = request->copies > 0 ? HF_EINDOUBT : HF_EUNAVAIL;
        hf_proposals_abandon(node, request);
        complete_request(node, request, &outcome);
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
    return hf_time_min(repeat_time(node), deadline);
}
