#include "node/proposals.h"

#include <stdlib.h>

#include "node/state.h"

void hf_proposals_init(struct hf_proposals *proposals)
{
    hf_map_init(&proposals->by_source);
    hf_dlist_init(&proposals->waiting);
    hf_dlist_init(&proposals->in_flight);
    proposals->retry = HF_NEVER;
}

static struct hf_proposal *proposal_at(struct hf_dlist *link)
{
    return HF_CONTAINER(link, struct hf_proposal, link);
}

static void free_proposal(struct hf_proposals *proposals,
                          struct hf_proposal *proposal)
{
    hf_map_remove(&proposals->by_source, &proposal->by_source);
    hf_dlist_remove(&proposal->link);
    proposals->count--;
    proposals->bytes -= hf_proposal_size(proposal->command);
    free(proposal);
}

void hf_proposals_fini(struct hf_proposals *proposals)
{
    struct hf_dlist *link;

    while ((link = hf_dlist_first(&proposals->waiting)) ||
           (link = hf_dlist_first(&proposals->in_flight)))
        free_proposal(proposals, proposal_at(link));
    hf_map_fini(&proposals->by_source);
    hf_buf_fini(&proposals->own);
    hf_ring_fini(&proposals->submissions);
    free(proposals->commands);
}

/* The numbers of an origin are consecutive, and origins are few, so this
 * spreads them well enough. */
static uint64_t hash_source(uint64_t origin, uint64_t number)
{
    return (number + origin * UINT64_C(0x9e3779b97f4a7c15)) *
           UINT64_C(0xff51afd7ed558ccd);
}

static struct hf_proposal *find_proposal(const struct hf_proposals *proposals,
                                         uint64_t origin, uint64_t number)
{
    struct hf_map_link *link =
        hf_map_find(&proposals->by_source, hash_source(origin, number));

    for (; link; link = hf_map_find_next(link)) {
        struct hf_proposal *proposal =
            HF_CONTAINER(link, struct hf_proposal, by_source);

        if (proposal->origin == origin && proposal->number == number)
            return proposal;
    }
    return NULL;
}

/* ---- Answers ------------------------------------------------------------*/

static void send_reply(struct hf_node *node, uint64_t origin,
                       const struct hf_packet_reply *reply)
{
    struct hf_peer *peer = hf_peers_find(node, origin);

    if (!peer)
        return;
    hf_packet_encode_reply(hf_peers_message(node), reply);
    (void)hf_peers_send(node, peer, HF_PACKET_REPLY);
}

static void answer_proposal(struct hf_node *node, uint64_t origin,
                            uint64_t number,
                            const struct hf_node_outcome *outcome)
{
    const struct hf_packet_reply reply = {number, true, *outcome};

    if (origin == node->opts.id)
        hf_requests_answer(node, number, outcome);
    else
        send_reply(node, origin, &reply);
}

void hf_proposals_refuse(struct hf_node *node, uint64_t origin, uint64_t number)
{
    const struct hf_packet_reply reply = {.number = number};

    send_reply(node, origin, &reply);
}

/* ---- Adding -------------------------------------------------------------*/

static struct hf_proposal *new_proposal(uint64_t origin,
                                        const struct hf_node_request *template,
                                        struct hf_node_request *request)
{
    size_t size = request ? 0 : template->command.size;
    struct hf_proposal *proposal = malloc(sizeof(*proposal) + size);

    if (!proposal)
        return NULL;
    *proposal = (struct hf_proposal){
        .origin = origin,
        .number = template->number,
        .request = request,
        .deadline = template->deadline,
        .command = template->command,
    };
    if (request)
        return proposal;
    hf_copy(proposal->bytes, template->command.data, size);
    proposal->command.data = proposal->bytes;
    return proposal;
}

/* The version of the table may be about to rise: until this leader has applied
 * an entry of its own term, it may lack entries that are committed. Let
 * `origin` send the command again later. */
static void put_off_command(struct hf_node *node, uint64_t origin,
                            uint64_t number)
{
    if (origin == node->opts.id)
        hf_requests_on_refused(node, number);
    else
        hf_proposals_refuse(node, origin, number);
}

void hf_proposals_add(struct hf_node *node, uint64_t origin,
                      const struct hf_node_request *template,
                      struct hf_node_request *request)
{
    struct hf_proposals *proposals = &node->proposals;
    struct hf_node_outcome outcome;
    struct hf_proposal *proposal;

    if (find_proposal(proposals, origin, template->number))
        return;
    outcome = hf_proposals_check(node, template->command);
    if (outcome.err == HF_EUNSUPPORTED && !node->in_office) {
        put_off_command(node, origin, template->number);
        return;
    }
    if (outcome.err) {
        answer_proposal(node, origin, template->number, &outcome);
        return;
    }
    proposal = new_proposal(origin, template, request);
    if (!proposal) {
        outcome.err = HF_ELIMIT;
        answer_proposal(node, origin, template->number, &outcome);
        return;
    }
    hf_map_insert(&proposals->by_source, &proposal->by_source,
                  hash_source(origin, template->number));
    hf_dlist_push_back(&proposals->waiting, &proposal->link);
    proposals->count++;
    proposals->bytes += hf_proposal_size(proposal->command);
}

/* Nobody waits for the answer to this proposal any more. If it was submitted,
 * its entry takes effect all the same. */
static void forget_proposal(struct hf_proposals *proposals,
                            struct hf_proposal *proposal)
{
    if (proposal->index == 0) {
        free_proposal(proposals, proposal);
        return;
    }
    hf_map_remove(&proposals->by_source, &proposal->by_source);
    proposal->origin = 0;
    proposal->request = NULL;
    hf_map_insert(&proposals->by_source, &proposal->by_source,
                  hash_source(0, proposal->number));
}

void hf_proposals_abandon(struct hf_node *node,
                          const struct hf_node_request *request)
{
    struct hf_proposal *proposal =
        find_proposal(&node->proposals, node->opts.id, request->number);

    if (proposal)
        forget_proposal(&node->proposals, proposal);
}

static void drop_from(struct hf_proposals *proposals, struct hf_dlist *list,
                      uint64_t origin)
{
    struct hf_dlist *next;

    for (struct hf_dlist *link = list->next; link != list; link = next) {
        next = link->next;
        if (proposal_at(link)->origin == origin)
            forget_proposal(proposals, proposal_at(link));
    }
}

void hf_proposals_drop_origin(struct hf_node *node, uint64_t origin)
{
    drop_from(&node->proposals, &node->proposals.waiting, origin);
    drop_from(&node->proposals, &node->proposals.in_flight, origin);
}

/* ---- Submitting ---------------------------------------------------------*/

static struct hf_submission *submission_at(const struct hf_proposals *proposals,
                                           size_t i)
{
    return hf_ring_at(&proposals->submissions, sizeof(struct hf_submission), i);
}

static enum hf_err reserve_commands(struct hf_proposals *proposals,
                                    size_t count)
{
    struct hf_bytes *commands;

    if (count <= proposals->commands_capacity)
        return HF_OK;
    commands = realloc(proposals->commands, 2 * count * sizeof(*commands));
    if (!commands)
        return HF_ENOMEM;
    proposals->commands = commands;
    proposals->commands_capacity = 2 * count;
    return HF_OK;
}

/* Collect the commands of waiting proposals, and drop those whose deadline has
 * passed. */
static enum hf_err collect_waiting(struct hf_node *node, size_t *count)
{
    struct hf_proposals *proposals = &node->proposals;
    struct hf_dlist *next;
    size_t bytes = 0;
    size_t n = 0;

    for (struct hf_dlist *link = proposals->waiting.next;
         link != &proposals->waiting && n < HF_NODE_SUBMIT_MAX &&
         bytes < HF_NODE_SUBMIT_BYTES;
         link = next) {
        struct hf_proposal *proposal = proposal_at(link);

        next = link->next;
        if (proposal->deadline <= node->now) {
            free_proposal(proposals, proposal);
            continue;
        }
        if (reserve_commands(proposals, n + 1))
            return HF_ENOMEM;
        proposals->commands[n++] = proposal->command;
        bytes += proposal->command.size;
    }
    *count = n;
    return HF_OK;
}

#define OWN_MAX (HF_NODE_EXPIRE_MAX + HF_SESSIONS_CLOSE_MAX + 1)

/* Encode the commands that the leader itself proposes, one after another.
 * `ends` receives where each one ends, and `*own_count` their number. */
static enum hf_err collect_own(struct hf_node *node, size_t ends[OWN_MAX],
                               size_t *own_count)
{
    struct hf_buf *own = &node->proposals.own;
    uint8_t version = node->machine.store->table.version;
    struct hf_command command;
    size_t count = 0;

    own->size = 0;
    own->failed = false;
    if (!node->in_office)
        return HF_OK;
    while (count < HF_NODE_EXPIRE_MAX &&
           hf_state_machine_take_due(&node->machine, node->now, &command)) {
        hf_command_encode(&command, version, own);
        ends[count++] = own->size;
    }
    for (size_t i = 0;
         i < HF_SESSIONS_CLOSE_MAX && hf_sessions_take_due(node, &command);
         i++) {
        hf_command_encode(&command, version, own);
        ends[count++] = own->size;
    }
    if (hf_versions_raise(node, &command)) {
        hf_command_encode(&command, version, own);
        ends[count++] = own->size;
    }
    *own_count = count;
    return own->failed ? HF_ENOMEM : HF_OK;
}

static enum hf_err append_own(struct hf_proposals *proposals, size_t count,
                              const size_t *ends, size_t own)
{
    size_t start = 0;

    if (reserve_commands(proposals, count + own))
        return HF_ENOMEM;
    for (size_t i = 0; i < own; i++) {
        proposals->commands[count + i] =
            (struct hf_bytes){proposals->own.data + start, ends[i] - start};
        start = ends[i];
    }
    return HF_OK;
}

/* The first `count` waiting proposals are in the log now, from index `first`
 * on. */
static void move_to_flight(struct hf_node *node, size_t count, uint64_t first)
{
    struct hf_proposals *proposals = &node->proposals;

    for (size_t i = 0; i < count; i++) {
        struct hf_proposal *proposal =
            proposal_at(hf_dlist_take(&proposals->waiting));

        proposal->index = first + i;
        if (proposal->request)
            proposal->request->copies++;
        hf_dlist_push_back(&proposals->in_flight, &proposal->link);
    }
}

static void note_submission(struct hf_node *node, uint64_t last)
{
    struct hf_submission *submission =
        hf_ring_push(&node->proposals.submissions, sizeof(*submission));

    *submission = (struct hf_submission){last, node->now};
}

bool hf_proposals_can_submit(const struct hf_node *node)
{
    return hf_node_leads(node) && !node->is_leaving &&
           node->journal.pending_bytes <= HF_NODE_PENDING_MAX &&
           (node->proposals.retry == HF_NEVER ||
            node->now >= node->proposals.retry);
}

/* Nothing could be submitted, because memory is short or the engine refused it
 * (hf_engine_step()). Try again soon. The EXPIREs and the VERSION were taken,
 * so let them be taken again; CLOSEs are due again in any case. */
static void put_off(struct hf_node *node)
{
    node->proposals.retry = hf_time_add(node->now, HF_NODE_DISK_RETRY_MS);
    node->version_proposed = 0;
    hf_state_machine_reset_due(&node->machine);
}

/* Collect what waits and what the leader itself has to propose. */
static enum hf_err collect_all(struct hf_node *node, size_t *waiting,
                               size_t *own)
{
    struct hf_proposals *proposals = &node->proposals;
    size_t ends[OWN_MAX];
    enum hf_err err =
        hf_ring_reserve(&proposals->submissions, sizeof(struct hf_submission));

    if (!err)
        err = collect_waiting(node, waiting);
    if (!err)
        err = collect_own(node, ends, own);
    if (!err)
        err = append_own(proposals, *waiting, ends, *own);
    return err;
}

static enum hf_err submit_collected(struct hf_node *node, size_t waiting,
                                    size_t own)
{
    struct hf_proposals *proposals = &node->proposals;
    enum hf_err err = hf_consensus_step(
        node, (struct hf_engine_event){
                  .kind = HF_ENGINE_SUBMIT,
                  .submit = {proposals->commands, waiting + own}});

    if (err || !hf_node_leads(node))
        return err ? err : HF_ESTATE;
    note_submission(node, node->submitted + waiting + own - 1);
    move_to_flight(node, waiting, node->submitted);
    return HF_OK;
}

void hf_proposals_submit(struct hf_node *node)
{
    size_t waiting = 0;
    size_t own = 0;
    enum hf_err err;

    if (!hf_proposals_can_submit(node))
        return;
    node->proposals.retry = HF_NEVER;
    err = collect_all(node, &waiting, &own);
    if (!err && waiting + own > 0)
        err = submit_collected(node, waiting, own);
    if (err)
        put_off(node);
}

/* ---- Applying -----------------------------------------------------------*/

static void forget_submissions(struct hf_proposals *proposals, uint64_t index)
{
    while (proposals->submissions.count > 0 &&
           submission_at(proposals, 0)->last <= index)
        hf_ring_drop_first(&proposals->submissions);
}

hf_time hf_proposals_submitted_at(const struct hf_node *node, uint64_t index)
{
    const struct hf_proposals *proposals = &node->proposals;

    for (size_t i = 0; i < proposals->submissions.count; i++) {
        const struct hf_submission *submission = submission_at(proposals, i);

        if (index <= submission->last)
            return submission->at;
    }
    return HF_NEVER;
}

void hf_proposals_applied(struct hf_node *node, uint64_t index,
                          const struct hf_result *result)
{
    struct hf_proposals *proposals = &node->proposals;
    struct hf_dlist *first = hf_dlist_first(&proposals->in_flight);
    struct hf_node_outcome outcome = {
        .result = *result,
        .index = index,
        .age_ms = node->machine.has_granted ? 0 : -1,
    };
    struct hf_proposal *proposal = first ? proposal_at(first) : NULL;

    forget_submissions(proposals, index);
    if (!proposal || proposal->index != index)
        return; /* a command that the leader itself has proposed */
    if (proposal->origin != 0)
        answer_proposal(node, proposal->origin, proposal->number, &outcome);
    free_proposal(proposals, proposal);
}

/* ---- Changes of leadership ----------------------------------------------*/

void hf_proposals_reset(struct hf_node *node)
{
    struct hf_proposals *proposals = &node->proposals;
    struct hf_dlist *link;

    while ((link = hf_dlist_first(&proposals->in_flight)) ||
           (link = hf_dlist_first(&proposals->waiting))) {
        struct hf_proposal *proposal = proposal_at(link);

        if (proposal->origin != 0 && proposal->origin != node->opts.id)
            hf_proposals_refuse(node, proposal->origin, proposal->number);
        free_proposal(proposals, proposal);
    }
    hf_ring_clear(&proposals->submissions);
    proposals->retry = HF_NEVER;
    hf_state_machine_reset_due(&node->machine);
}
