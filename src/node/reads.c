#include "node/reads.h"

#include <stdlib.h>

#include "node/state.h"

/* A tag identifies a question in raft/rounds: the position of the origin among
 * the members, then the number of the question. */
#define QUESTION_BITS 56
#define QUESTION_MASK ((UINT64_C(1) << QUESTION_BITS) - 1)

void hf_reads_init(struct hf_node *node)
{
    struct hf_reads *reads = &node->reads;
    struct hf_membership members = {.count = node->opts.member_count};

    for (size_t i = 0; i < members.count; i++)
        members.voters[i] = node->members[i].id;
    hf_dlist_init(&reads->unsent);
    hf_dlist_init(&reads->asked);
    hf_dlist_init(&reads->confirmed);
    hf_rounds_init(&reads->rounds, node->opts.id, &members);
}

void hf_reads_fini(struct hf_reads *reads)
{
    hf_rounds_fini(&reads->rounds);
    free(reads->early);
}

static struct hf_node_request *read_request_at(struct hf_dlist *link)
{
    return HF_CONTAINER(link, struct hf_node_request, link);
}

/* ---- At the origin ------------------------------------------------------*/

void hf_reads_resend(struct hf_node *node)
{
    while (!hf_dlist_is_empty(&node->reads.asked)) {
        struct hf_dlist *last = node->reads.asked.prev;

        hf_dlist_remove(last);
        hf_dlist_push_front(&node->reads.unsent, last);
    }
}

static bool send_question(struct hf_node *node, uint64_t question)
{
    struct hf_peer *leader = hf_peers_leader(node);

    if (hf_node_leads(node)) {
        hf_reads_ask(node, node->opts.id, question);
        return true;
    }
    if (!leader)
        return false;
    hf_buf_u64(hf_peers_message(node), question);
    return hf_peers_send(node, leader, HF_PACKET_READ);
}

/* Ask the leader one question for all unsent reads. If the last question has
 * had no answer for HF_NODE_REPEAT_MS, ask for its reads again. */
static void ask_leader(struct hf_node *node)
{
    struct hf_reads *reads = &node->reads;
    struct hf_dlist *link;

    if (!hf_dlist_is_empty(&reads->asked) &&
        node->now >= reads->asked_at + HF_NODE_REPEAT_MS)
        hf_reads_resend(node);
    if (hf_dlist_is_empty(&reads->unsent) ||
        !send_question(node, reads->question + 1))
        return;
    reads->question++;
    reads->asked_at = node->now;
    while ((link = hf_dlist_take(&reads->unsent))) {
        read_request_at(link)->outcome.index = reads->question;
        hf_dlist_push_back(&reads->asked, link);
    }
}

/* An index that is new enough for a question is new enough for earlier ones. */
void hf_reads_answer(struct hf_node *node, uint64_t question, uint64_t index)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_first(&node->reads.asked)) &&
           read_request_at(link)->outcome.index <= question) {
        hf_dlist_remove(link);
        read_request_at(link)->outcome.index = index;
        hf_dlist_push_back(&node->reads.confirmed, link);
    }
}

static void finish_confirmed(struct hf_node *node)
{
    struct hf_dlist *list = &node->reads.confirmed;
    struct hf_dlist *next;

    for (struct hf_dlist *link = list->next; link != list; link = next) {
        struct hf_node_request *request = read_request_at(link);
        struct hf_node_outcome outcome = request->outcome;

        next = link->next;
        if (outcome.index > node->machine.applied)
            continue;
        outcome.err = HF_OK;
        outcome.index = node->machine.applied;
        hf_requests_answer(node, request->number, &outcome);
    }
}

/* ---- At the leader ------------------------------------------------------*/

static uint64_t tag_of(const struct hf_node *node, uint64_t origin,
                       uint64_t question)
{
    uint64_t position = 0;

    while (position < node->opts.member_count &&
           node->members[position].id != origin)
        position++;
    return position << QUESTION_BITS | (question & QUESTION_MASK);
}

static void keep_early(struct hf_reads *reads, uint64_t tag)
{
    size_t capacity = reads->early_capacity * 2 + 16;
    uint64_t *early;

    if (reads->early_count == reads->early_capacity) {
        if (capacity > HF_RAFT_ROUNDS_MAX)
            return;
        early = realloc(reads->early, capacity * sizeof(*early));
        if (!early)
            return; /* the origin asks again */
        reads->early = early;
        reads->early_capacity = capacity;
    }
    reads->early[reads->early_count++] = tag;
}

static void add_read(struct hf_node *node, uint64_t tag)
{
    (void)hf_rounds_add(&node->reads.rounds, node->commit, tag);
}

void hf_reads_ask(struct hf_node *node, uint64_t origin, uint64_t question)
{
    uint64_t tag = tag_of(node, origin, question);

    if (!hf_node_leads(node))
        return;
    if (node->in_office && hf_engine_can_read(&node->engine))
        add_read(node, tag);
    else
        keep_early(&node->reads, tag);
}

void hf_reads_lead(struct hf_node *node, uint64_t term)
{
    hf_rounds_lead(&node->reads.rounds, term);
    node->reads.early_count = 0;
}

static void start_round(struct hf_node *node)
{
    struct hf_reads *reads = &node->reads;
    bool again = node->now >= reads->round_at + node->opts.heartbeat_ms;
    struct hf_message message = {
        .kind = HF_MESSAGE_ROUND,
        .term = node->leading_term,
        .round = hf_rounds_start(&reads->rounds, again),
    };

    if (message.round == 0)
        return;
    reads->round_at = node->now;
    for (size_t i = 0; i < node->peers.count; i++) {
        message.peer = node->peers.list[i].id;
        hf_peers_send_raft(node, &message);
    }
}

static void reply_to_read(struct hf_node *node, const struct hf_read *read)
{
    uint64_t origin = node->members[read->tag >> QUESTION_BITS].id;
    uint64_t question = read->tag & QUESTION_MASK;
    struct hf_packet_read_reply packet = {question, true, read->index};
    struct hf_peer *peer = hf_peers_find(node, origin);

    if (origin == node->opts.id) {
        hf_reads_answer(node, question, read->index);
    } else if (peer) {
        hf_packet_encode_read_reply(hf_peers_message(node), &packet);
        (void)hf_peers_send(node, peer, HF_PACKET_READ_REPLY);
        peer->awaits_commit = true;
    }
}

static void lead_turn(struct hf_node *node)
{
    struct hf_reads *reads = &node->reads;
    struct hf_read read;

    if (node->in_office && hf_engine_can_read(&node->engine)) {
        for (size_t i = 0; i < reads->early_count; i++)
            add_read(node, reads->early[i]);
        reads->early_count = 0;
    }
    start_round(node);
    while (hf_rounds_take(&reads->rounds, UINT64_MAX, &read))
        reply_to_read(node, &read);
}

void hf_reads_turn(struct hf_node *node)
{
    ask_leader(node);
    if (hf_node_leads(node))
        lead_turn(node);
    finish_confirmed(node);
}

hf_time hf_reads_deadline(const struct hf_node *node)
{
    const struct hf_reads *reads = &node->reads;

    if (!hf_dlist_is_empty(&reads->unsent) && hf_peers_can_ask(node))
        return node->now;
    if (reads->rounds.reads.count > 0)
        return reads->round_at + node->opts.heartbeat_ms;
    if (!hf_dlist_is_empty(&reads->asked))
        return reads->asked_at + HF_NODE_REPEAT_MS;
    return HF_NEVER;
}
